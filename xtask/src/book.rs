//! The documents as one book: `docs/README.md` lists all of them, their links lead somewhere, and a
//! decision says its status and what was rejected.

use std::fs;
use std::path::Path;

/// The index of the book.
const INDEX: &str = "docs/README.md";
/// What every decision has.
const PARAGRAPHS: [&str; 3] = ["**Decision.**", "**Status.**", "**Rejected alternatives.**"];

/// What is wrong with the documents of the tree.
pub fn check(root: &Path, files: &[String]) -> Vec<String> {
    let documents: Vec<&String> = files.iter().filter(|file| file.ends_with(".md")).collect();
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    let index = links(&read(INDEX)).filter_map(|link| resolved(INDEX, link)).collect::<Vec<_>>();
    let missing = documents.iter().filter(|file| **file != INDEX && !index.contains(file));
    let mut problems: Vec<String> = missing.map(|file| format!("{INDEX} does not list {file}")).collect();
    for file in documents {
        let text = read(file);
        let dead = links(&text).filter(|link| resolved(file, link).is_some_and(|path| !root.join(path).exists()));
        problems.extend(dead.map(|link| format!("{file}: the link to {link} leads nowhere")));
        if file.starts_with("docs/decisions/") {
            let lacking = PARAGRAPHS.iter().filter(|paragraph| !text.contains(**paragraph));
            problems.extend(lacking.map(|paragraph| format!("{file} has no paragraph {paragraph}")));
        }
    }
    problems
}

/// Where the links of a document lead.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// The path from the root to which a link of the document leads; `None`: out of the tree, or within
/// the document.
fn resolved(document: &str, link: &str) -> Option<String> {
    let path = link.split('#').next().filter(|path| !path.is_empty() && !path.contains("://") && !path.starts_with("mailto:"))?;
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::{links, resolved};

    #[test]
    fn links_are_found_and_resolved_from_their_document() {
        let text = "see [a](../a.md#part), [b](b/c.md), ![p](p.svg), [out](https://x.org/y) and [here](#below)";
        let paths: Vec<_> = links(text).map(|link| resolved("docs/x.md", link)).collect();
        let path = |path: &str| Some(path.to_string());
        assert_eq!(paths, [path("a.md"), path("docs/b/c.md"), path("docs/p.svg"), None, None]);
    }
}
