//! `cargo xtask tidy`: what the compiler does not check. Every rule is a function from the source
//! tree to sentences about what is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::circles::{FILES_MAX, circles};
use crate::{book, fields, operations, words};

/// Larger files do not belong into the tree, in bytes.
const BLOB_BYTES: u64 = 512 << 10;
/// Longer source files should be folders, in lines.
const LINES_MAX: usize = 500;
/// Files that are longer all the same, with their lines. This list only gets shorter, and so do the
/// files.
const LONG: [(&str, usize); 0] = [];
/// Comments and documents are read in narrower columns than code. Tables and drawings may be wider.
const COLUMNS_MAX: usize = 100;
/// Crates in which `unsafe` may be allowed.
const UNSAFE_IN: [&str; 8] = [
    "runtime/rt-real/",
    "runtime/trace/",
    "gateways/fuse/",
    "gateways/capi/",
    "gateways/preload/",
    "gateways/python/",
    "benches/ceiling/",
    "tests/system/",
];
/// The two runtimes.
const RUNTIMES: [&str; 2] = ["weft-rt-real", "weft-rt-sim"];

/// The root of the source tree.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask is a folder of the source tree").to_path_buf()
}

/// Everything that is wrong with the tree.
pub fn check(root: &Path) -> Vec<String> {
    let files = files_below(root);
    let crates = crates_of(root, &files);
    let mut problems = Vec::new();
    problems.extend(ranks(&crates));
    problems.extend(documented_dependencies(root, &crates));
    problems.extend(first_paragraphs(root, &crates));
    problems.extend(named_files(root));
    problems.extend(promises(root, &files));
    problems.extend(operations::check(root, &files));
    problems.extend(words::check(root, &files));
    problems.extend(book::check(root, &files));
    problems.extend(fields::check(root, &files));
    problems.extend(dead_files(root, &files));
    problems.extend(blobs(root, &files));
    problems.extend(sources(root, &files));
    problems.extend(long_files(root, &files));
    problems.extend(wide_text(root, &files));
    problems.extend(import_circles(root, &files, &crates));
    problems
}

/// A crate of the workspace.
pub struct Crate {
    /// Its folder, from the root, without a slash at the end.
    pub folder: String,
    name: String,
    /// Names of crates it uses, for tests too.
    uses: BTreeSet<String>,
}

/// Layers from below; tests and tools may use everything. The laboratory stands above what it
/// examines; only the one binary uses it.
fn rank(folder: &str) -> u32 {
    match folder.split('/').next() {
        _ if folder == "apps/host" => 5,
        // What programs load chooses its runtime, as the one binary does.
        _ if ["gateways/capi", "gateways/preload", "gateways/python"].contains(&folder) => 7,
        Some("core") => 1,
        Some("runtime") => 2,
        Some("nodes") => 3,
        Some("gateways" | "benches") => 4,
        Some("lab") => 6,
        Some("apps") => 7,
        _ => 8,
    }
}

/// All files that could be committed, by path from the root.
pub fn files_below(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(root.join(&folder)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = folder.join(&name);
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && name != ".git" && !name.starts_with("target") {
                folders.push(path);
            } else if !is_folder {
                files.push(path.to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    files
}

pub fn crates_of(root: &Path, files: &[String]) -> Vec<Crate> {
    let manifests = files.iter().filter(|file| file.ends_with("/Cargo.toml") && !file.starts_with("fuzz/"));
    let crates = manifests.filter_map(|file| {
        let manifest: Table = fs::read_to_string(root.join(file)).ok()?.parse().ok()?;
        let name = manifest.get("package")?.get("name")?.as_str()?.to_string();
        let folder = file.trim_end_matches("/Cargo.toml").to_string();
        Some(Crate { folder, name, uses: uses_of(&manifest) })
    });
    crates.collect()
}

fn uses_of(manifest: &Table) -> BTreeSet<String> {
    let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
    let mut tables: Vec<&Table> = sections.iter().filter_map(|section| manifest.get(*section)?.as_table()).collect();
    for target in manifest.get("target").and_then(Value::as_table).into_iter().flat_map(|targets| targets.values()) {
        tables.extend(sections.iter().filter_map(|section| target.get(*section)?.as_table()));
    }
    tables.into_iter().flat_map(|table| table.keys().cloned()).collect()
}

/// A crate uses crates of its own rank or lower, the core uses nothing else at all, and the two
/// runtimes do not know each other.
fn ranks(crates: &[Crate]) -> Vec<String> {
    let folders: BTreeMap<&str, &str> = crates.iter().map(|krate| (krate.name.as_str(), krate.folder.as_str())).collect();
    let mut problems = Vec::new();
    for krate in crates {
        for used in &krate.uses {
            let Some(folder) = folders.get(used.as_str()) else { continue };
            if rank(folder) > rank(&krate.folder) {
                problems.push(format!("{} must not use {folder}, which is above it", krate.folder));
            }
            if RUNTIMES.contains(&krate.name.as_str()) && RUNTIMES.contains(&used.as_str()) {
                problems.push(format!("{} must not use {folder}: the two runtimes do not know each other", krate.folder));
            }
        }
    }
    problems
}

/// Every dependency from outside has its line in docs/dependencies.md, and every line its
/// dependency.
fn documented_dependencies(root: &Path, crates: &[Crate]) -> Vec<String> {
    let own: BTreeSet<&str> = crates.iter().map(|krate| krate.name.as_str()).collect();
    let used: BTreeSet<&str> = crates.iter().flat_map(|krate| &krate.uses).map(String::as_str).filter(|name| !own.contains(name)).collect();
    let text = fs::read_to_string(root.join("docs/dependencies.md")).unwrap_or_default();
    let documented = first_column(&text);
    let missing = used.iter().filter(|name| !documented.contains(**name));
    let missing = missing.map(|name| format!("docs/dependencies.md has no line for {name}"));
    let left_over = documented.iter().filter(|name| !used.contains(name.as_str()));
    let left_over = left_over.map(|name| format!("docs/dependencies.md explains {name}, which nobody uses"));
    missing.chain(left_over).collect()
}

/// The names in the first column of the document's table, separated by commas.
fn first_column(text: &str) -> BTreeSet<String> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| crate "));
    let cells = rows.filter_map(|line| line.split('|').nth(1));
    cells.flat_map(|cell| cell.split(',')).map(|name| name.trim().trim_matches('`').to_string()).collect()
}

/// Every crate begins with a paragraph that says what it is, and what it never does.
fn first_paragraphs(root: &Path, crates: &[Crate]) -> Vec<String> {
    let check = |krate: &Crate| {
        let candidates = ["src/lib.rs", "src/main.rs"].map(|file| format!("{}/{file}", krate.folder));
        let Some(file) = candidates.iter().find(|file| root.join(file).exists()) else {
            return Some(format!("{} has neither src/lib.rs nor src/main.rs", krate.folder));
        };
        let text = fs::read_to_string(root.join(file)).unwrap_or_default();
        let words: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).flat_map(str::split_whitespace).collect();
        match words.iter().any(|word| word.to_lowercase().trim_matches(',') == "never") {
            true => None,
            false => Some(format!("{file} must open with a paragraph that says what the crate is and what it never does")),
        }
    };
    crates.iter().filter_map(check).collect()
}

/// Files and folders that ARCHITECTURE.md, README.md and the documents name in backticks exist.
fn named_files(root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for document in ["ARCHITECTURE.md", "README.md", "tests/README.md"] {
        let text = fs::read_to_string(root.join(document)).unwrap_or_default();
        if text.is_empty() {
            problems.push(format!("{document} is missing"));
        }
        for path in paths_in(&text) {
            if !root.join(&path).exists() {
                problems.push(format!("{document} names {path}, which does not exist"));
            }
        }
    }
    problems
}

/// Words in backticks that are paths of this tree.
fn paths_in(text: &str) -> BTreeSet<String> {
    let folders = ["core", "runtime", "nodes", "gateways", "apps", "benches", "tests", "docs", "fuzz", "xtask", "lab", "scripts"];
    let quoted = text.split('`').skip(1).step_by(2);
    let paths = quoted.filter(|word| {
        let is_path = word.contains('/') && !word.contains(char::is_whitespace) && !word.contains('*');
        is_path && word.split('/').next().is_some_and(|first| folders.contains(&first))
    });
    paths.map(|path| path.trim_end_matches('/').to_string()).collect()
}

/// Every promise of docs/semantics.md has a test of its name.
fn promises(root: &Path, files: &[String]) -> Vec<String> {
    let text = fs::read_to_string(root.join("docs/semantics.md")).unwrap_or_default();
    let promised: BTreeSet<&str> =
        text.split("**").skip(1).step_by(2).filter(|word| word.starts_with("promise_") && !word.contains(' ')).collect();
    let mut kept = BTreeSet::new();
    for file in files.iter().filter(|file| file.ends_with(".rs")) {
        let source = fs::read_to_string(root.join(file)).unwrap_or_default();
        kept.extend(promised.iter().copied().filter(|promise| source.contains(&format!("fn {promise}("))));
    }
    promised.difference(&kept).map(|promise| format!("docs/semantics.md: no test is called {promise}")).collect()
}

/// Source files that no other one declares as a module: the compiler never sees them.
fn dead_files(root: &Path, files: &[String]) -> Vec<String> {
    let is_root = |file: &str| !file.contains("/src/") || file.ends_with("/lib.rs") || file.ends_with("/main.rs");
    let sources = files.iter().filter(|file| file.ends_with(".rs") && !is_root(file));
    let is_declared = |file: &str| {
        let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
        let (folder, name) = module.rsplit_once('/')?;
        let parents = [format!("{folder}/mod.rs"), format!("{folder}/lib.rs"), format!("{folder}/main.rs"), format!("{folder}.rs")];
        let declares = |parent: &String| fs::read_to_string(root.join(parent)).is_ok_and(|text| text.contains(&format!("mod {name};")));
        parents.iter().any(declares).then_some(())
    };
    sources.filter(|file| is_declared(file).is_none()).map(|file| format!("{file} is no module of its crate")).collect()
}

fn blobs(root: &Path, files: &[String]) -> Vec<String> {
    let size = |file: &String| fs::metadata(root.join(file)).map_or(0, |data| data.len());
    let large = files.iter().filter(|file| *file != "Cargo.lock" && size(file) > BLOB_BYTES);
    large.map(|file| format!("{file} has {} KiB; large files do not belong here", size(file) >> 10)).collect()
}

/// Rules about single source files.
fn sources(root: &Path, files: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    // Put together so that this file does not find itself.
    let unfinished = [["TO", "DO"], ["FIX", "ME"], ["unimplemented", "!("], ["todo", "!("]].map(|parts| parts.concat());
    let unsafe_allowed = ["allow(unsafe", "_code)"].concat();
    for file in files.iter().filter(|file| file.ends_with(".rs")) {
        let text = fs::read_to_string(root.join(file)).unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = unfinished.iter().find(|word| line.contains(word.as_str())) {
                problems.push(format!("{file}:{}: {word}", number + 1));
            }
            if line.contains(&unsafe_allowed) && !UNSAFE_IN.iter().any(|folder| file.starts_with(folder)) {
                problems.push(format!("{file}:{}: unsafe code has its address in {}", number + 1, UNSAFE_IN.join(", ")));
            }
        }
    }
    problems
}

/// Files that are longer than they may be, and exceptions that are no longer needed.
fn long_files(root: &Path, files: &[String]) -> Vec<String> {
    let lines = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default().lines().count();
    let allowed: BTreeMap<&str, usize> = LONG.into_iter().collect();
    let judge = |file: &String| {
        let (lines, exception) = (lines(file), allowed.get(file.as_str()));
        match exception {
            _ if lines > exception.copied().unwrap_or(LINES_MAX) => Some(format!("{file} has {lines} lines; make it a folder")),
            Some(_) if lines <= LINES_MAX => Some(format!("{file} is short enough: take it from the list LONG")),
            _ => None,
        }
    };
    let gone = LONG.iter().filter(|(file, _)| !files.iter().any(|there| there == file));
    let gone = gone.map(|(file, _)| format!("{file} is gone: take it from the list LONG"));
    files.iter().filter(|file| file.ends_with(".rs")).filter_map(judge).chain(gone).collect()
}

/// Comments and paragraphs that are wider than [`COLUMNS_MAX`].
fn wide_text(root: &Path, files: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.ends_with(".rs") || file.ends_with(".md")) {
        let text = fs::read_to_string(root.join(file)).unwrap_or_default();
        let mut drawn = false;
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']));
            let Some(words) = comment.or(file.ends_with(".md").then_some(line)) else {
                drawn = false;
                continue;
            };
            drawn ^= words.trim_start().starts_with("```");
            if !drawn && !words.trim_start().starts_with('|') && line.chars().count() > COLUMNS_MAX {
                problems.push(format!("{file}:{}: wrap this text at {COLUMNS_MAX} columns", number + 1));
            }
        }
    }
    problems
}

/// Circles of imports with too many files.
fn import_circles(root: &Path, files: &[String], crates: &[Crate]) -> Vec<String> {
    let found = crates.iter().flat_map(|krate| circles(root, &krate.folder, files));
    let large = found.filter(|circle| circle.len() > FILES_MAX);
    large.map(|circle| format!("{} files import each other in a circle: {}", circle.len(), circle.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn krate(folder: &str, name: &str, uses: &[&str]) -> Crate {
        Crate { folder: folder.into(), name: name.into(), uses: uses.iter().map(|used| used.to_string()).collect() }
    }

    #[test]
    fn the_tree_is_tidy() {
        let problems = check(&root());
        assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    }

    #[test]
    fn arrows_upwards_are_found() {
        let crates = [
            krate("core/base", "weft-base", &["weft-client", "bytes"]),
            krate("nodes/client", "weft-client", &["weft-base"]),
            krate("runtime/rt-sim", "weft-rt-sim", &["weft-rt-real", "weft-base"]),
            krate("runtime/rt-real", "weft-rt-real", &[]),
            krate("lab/view", "weft-view", &["weft-host", "weft"]),
            krate("apps/host", "weft-host", &["weft-client", "weft-view"]),
            krate("apps/weft", "weft", &["weft-view", "weft-host"]),
            krate("xtask", "xtask", &["weft-client"]),
        ];
        assert_eq!(
            ranks(&crates),
            [
                "core/base must not use nodes/client, which is above it",
                "runtime/rt-sim must not use runtime/rt-real: the two runtimes do not know each other",
                "lab/view must not use apps/weft, which is above it",
                "apps/host must not use lab/view, which is above it",
            ]
        );
    }

    #[test]
    fn dependencies_of_all_sections_count() {
        let manifest = "[dependencies]\na = '1'\n[dev-dependencies]\nb.workspace = true\n[target.'cfg(unix)'.dependencies]\nc = '1'";
        let manifest: Table = manifest.parse().expect("valid TOML");
        assert_eq!(uses_of(&manifest).into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
        let table = "| crate | used for |\n|---|---|\n| hmac, sha2 | proofs |\n| `toml` | files |\n";
        assert_eq!(first_column(table).into_iter().collect::<Vec<_>>(), ["hmac", "sha2", "toml"]);
    }

    #[test]
    fn only_paths_of_the_tree_are_looked_for() {
        let text = "see `core/wire/src/ops.rs`, `cargo xtask tidy`, `nodes/client/src/`, `/etc/fstab` and `core/*`";
        assert_eq!(paths_in(text).into_iter().collect::<Vec<_>>(), ["core/wire/src/ops.rs", "nodes/client/src"]);
    }
}
