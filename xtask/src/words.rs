//! One noun for one thing: the glossary has each noun once, and a public type of the file system
//! has its name for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Where the nouns are.
const GLOSSARY: &str = "docs/glossary.md";
/// More nouns are more than a newcomer learns.
const NOUNS_MAX: usize = 80;
/// The crates of the file system; the laboratory and tests have words of their own.
const FILE_SYSTEM: [&str; 4] = ["core/", "runtime/", "nodes/", "gateways/"];
/// What is wrong with the words of the tree.
pub fn check(root: &Path, files: &[String]) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    let mut problems = glossary(&read(GLOSSARY));
    let sources = files.iter().filter(|file| is_of_the_file_system(file));
    problems.extend(types(sources.map(|file| (file.as_str(), read(file)))));
    problems
}

fn is_of_the_file_system(file: &str) -> bool {
    file.ends_with(".rs") && file.contains("/src/") && FILE_SYSTEM.iter().any(|folder| file.starts_with(folder))
}

/// Nouns that stand there twice, or too many of them.
fn glossary(text: &str) -> Vec<String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let mut nouns = BTreeSet::new();
    let mut problems = Vec::new();
    for noun in rows.filter(|noun| *noun != "noun").flat_map(|row| row.split(", ")) {
        if !nouns.insert(noun) {
            problems.push(format!("{GLOSSARY}: {noun} has two meanings"));
        }
    }
    if nouns.is_empty() || nouns.len() > NOUNS_MAX {
        problems.push(format!("{GLOSSARY}: {} nouns, where 1 to {NOUNS_MAX} are wanted", nouns.len()));
    }
    problems
}

/// Public types that share their name.
fn types<'a>(sources: impl Iterator<Item = (&'a str, String)>) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (file, text) in sources {
        let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        product.lines().filter_map(public_type).for_each(|name| places.entry(name.to_owned()).or_default().push(file));
    }
    let shared = places.iter().filter(|(_, files)| files.len() > 1);
    shared.map(|(name, files)| format!("{name} is the name of {} public types: {}", files.len(), files.join(", "))).collect()
}

/// The name of the public type that the line declares. `Result` and `Error` are what each crate
/// calls its own, as everywhere in Rust.
fn public_type(line: &str) -> Option<&str> {
    let declaration = line.strip_prefix("pub ")?;
    let name = ["struct ", "enum ", "trait ", "type "].iter().find_map(|word| declaration.strip_prefix(word))?;
    let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(name.len());
    (!["Result", "Error"].contains(&&name[..end])).then_some(&name[..end])
}

#[cfg(test)]
mod tests {
    use super::{glossary, types};

    #[test]
    fn a_noun_has_one_row() {
        let text = "| noun | meaning |\n|---|---|\n| request, reply | two |\n| reply | another |\n";
        assert_eq!(glossary(text), ["docs/glossary.md: reply has two meanings"]);
    }

    #[test]
    fn a_public_type_has_its_name_for_itself() {
        let sources =
            [("a.rs", "pub struct Batch<T> {\n"), ("b.rs", "pub enum Batch {\nstruct Own;\n"), ("c.rs", "pub type Result<T> = X;\n")];
        let problems = types(sources.into_iter().map(|(file, text)| (file, text.to_owned())));
        assert_eq!(problems, ["Batch is the name of 2 public types: a.rs, b.rs"]);
    }
}
