//! Circles of imports among the files of one crate: none of them can be understood, tested or moved
//! without the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Files that import each other in a circle, at most.
pub const FILES_MAX: usize = 2;

/// The circles of a crate, each with its files in order; `files` are those of the whole tree.
pub fn circles(root: &Path, folder: &str, files: &[String]) -> Vec<Vec<String>> {
    let source = format!("{folder}/src/");
    let modules: BTreeMap<Vec<String>, &String> =
        files.iter().filter_map(|file| Some((module(file.strip_prefix(&source)?.strip_suffix(".rs")?), file))).collect();
    let arrows = modules.iter().map(|(module, file)| {
        let text = fs::read_to_string(root.join(file)).unwrap_or_default();
        (file.as_str(), imports(&text, module).filter_map(|path| found(&path, &modules)).filter(|other| other != file).collect())
    });
    components(&arrows.collect())
}

/// The path of a module from the path of its file.
fn module(file: &str) -> Vec<String> {
    let mut module: Vec<String> = file.split('/').map(str::to_string).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

/// The file of the longest beginning of a path that is a module. The root of the crate is nobody's
/// file: what it offers stands elsewhere.
fn found<'a>(path: &[String], modules: &BTreeMap<Vec<String>, &'a String>) -> Option<&'a str> {
    (1..=path.len()).rev().find_map(|len| modules.get(&path[..len])).map(|file| file.as_str())
}

/// Every path from `crate`, `super` or `self` in a file, as a path from the root. Tests do not
/// count: they stand on top.
fn imports<'a>(text: &'a str, module: &'a [String]) -> impl Iterator<Item = Vec<String>> + 'a {
    let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let product = product.split("#[cfg(test)]\npub(crate) mod tests").next().unwrap_or_default();
    let code: String = product.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let mut paths = Vec::new();
    for begin in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(begin) {
            let follows_name = code[..at].ends_with(|letter: char| letter.is_alphanumeric() || matches!(letter, '_' | ':'));
            if !follows_name {
                expand(&code[at..], &mut Vec::new(), &mut paths);
            }
        }
    }
    paths.into_iter().map(move |path| absolute(&path, module))
}

/// Reads one path, with what stands in braces behind it; returns how many bytes it took.
fn expand(text: &str, before: &mut Vec<String>, paths: &mut Vec<Vec<String>>) -> usize {
    let (depth, mut at) = (before.len(), 0);
    loop {
        let name: String = text[at..].chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
        at += name.len();
        if !name.is_empty() {
            before.push(name);
        }
        if !text[at..].starts_with("::") {
            break;
        }
        at += 2;
        if text[at..].starts_with('{') {
            at += 1;
            while let Some(next) = text[at..].chars().next().filter(|next| *next != '}') {
                at += if next.is_alphanumeric() || next == '_' { expand(&text[at..], before, paths) } else { next.len_utf8() };
            }
            before.truncate(depth);
            return at + usize::from(at < text.len());
        }
    }
    paths.push(before.clone());
    before.truncate(depth);
    at
}

fn absolute(path: &[String], module: &[String]) -> Vec<String> {
    let mut whole = module.to_vec();
    for name in path {
        match name.as_str() {
            "crate" => whole.clear(),
            "super" => drop(whole.pop()),
            "self" => {}
            _ => whole.push(name.clone()),
        }
    }
    whole
}

/// Sets of files of which each reaches each other one.
fn components(arrows: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Vec<String>> {
    let reached = |from: &str| {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut open: Vec<&str> = arrows.get(from).into_iter().flatten().copied().collect();
        while let Some(file) = open.pop() {
            if seen.insert(file) {
                open.extend(arrows.get(file).into_iter().flatten());
            }
        }
        seen
    };
    let reach: BTreeMap<&str, BTreeSet<&str>> = arrows.keys().map(|file| (*file, reached(file))).collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for (file, others) in reach.iter().filter(|(file, others)| others.contains(*file)) {
        found.insert(others.iter().filter(|other| reach[*other].contains(file)).map(|other| other.to_string()).collect());
    }
    found.into_iter().filter(|circle| circle.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str, module: &[&str]) -> Vec<String> {
        let module: Vec<String> = module.iter().map(|name| name.to_string()).collect();
        imports(text, &module).map(|path| path.join("::")).collect()
    }

    #[test]
    fn paths_are_read_as_the_compiler_reads_them() {
        assert_eq!(paths("use crate::{a, b::{self, C}};\nx(super::d::e(1))", &["m", "n"]), ["a", "b", "b::C", "m::d::e"]);
        assert_eq!(
            paths("// crate::a\nuse super::super::b;\nuse std::self_::x;\n#[cfg(test)]\nmod tests {\n use crate::c;\n}", &["m", "n"]),
            ["b"]
        );
    }

    #[test]
    fn circles_are_whole_and_named_once() {
        let arrows = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "f"), ("f", "e")];
        let mut map: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to) in arrows {
            map.entry(from).or_default().insert(to);
        }
        assert_eq!(components(&map), [vec!["a", "b", "c"], vec!["e", "f"]]);
    }
}
