//! `cargo xtask size`: lines of product, tests and comments by crate and group.

use std::collections::BTreeMap;
use std::fs;
use std::ops::AddAssign;
use std::path::Path;

use crate::tidy::{crates_of, files_below};

/// Lines of one crate or group. Empty lines are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// What users run.
    product: usize,
    /// `#[cfg(test)]`, and files of tests and benchmarks, comments in them too.
    test: usize,
    /// Lines of the product that are nothing but comment.
    comment: usize,
}

impl AddAssign for Lines {
    fn add_assign(&mut self, other: Lines) {
        self.product += other.product;
        self.test += other.test;
        self.comment += other.comment;
    }
}

/// What belongs together, by folder; the first that fits counts.
const GROUPS: [(&str, &[&str]); 6] = [
    ("laboratory", &["lab/"]),
    ("virtual time", &["runtime/rt-sim", "nodes/virtual-cluster"]),
    ("seeing", &["runtime/trace", "core/live"]),
    ("file system", &["core/", "runtime/", "nodes/", "gateways/"]),
    ("commands", &["apps/"]),
    ("tests and tools", &[""]),
];

/// Prints the table.
pub fn print(root: &Path) {
    let files = files_below(root);
    let mut by_crate: BTreeMap<String, Lines> = crates_of(root, &files).into_iter().map(|krate| (krate.folder, Lines::default())).collect();
    for file in files.iter().filter(|file| file.ends_with(".rs")) {
        let Some((_, sum)) = by_crate.iter_mut().rev().find(|(folder, _)| file.starts_with(&format!("{folder}/"))) else { continue };
        *sum += lines(&fs::read_to_string(root.join(file)).unwrap_or_default(), is_test_file(file));
    }
    println!("{:<26}{:>9}{:>9}{:>9}", "crate", "product", "comment", "test");
    let row = |name: &str, lines: &Lines| println!("{name:<26}{:>9}{:>9}{:>9}", lines.product, lines.comment, lines.test);
    let mut all = Lines::default();
    for (group, _) in GROUPS {
        let mut sum = Lines::default();
        for (folder, lines) in by_crate.iter().filter(|(folder, _)| group_of(folder) == group) {
            row(folder, lines);
            sum += *lines;
        }
        row(&format!("= {group}"), &sum);
        println!();
        all += sum;
    }
    row("= all", &all);
}

fn group_of(folder: &str) -> &'static str {
    let fits = |begins: &[&str]| begins.iter().any(|begin| folder.starts_with(begin));
    GROUPS.iter().find(|(_, begins)| fits(begins)).map_or("", |(group, _)| group)
}

fn is_test_file(file: &str) -> bool {
    let in_folder = |name: &str| file.starts_with(&format!("{name}/")) || file.contains(&format!("/{name}/"));
    in_folder("tests") || file.starts_with("benches/sched/") || file.ends_with("_test.rs") || file.ends_with("/tests.rs")
}

/// Counts one file. A module behind `#[cfg(test)]` reaches to the brace in the column where the
/// attribute stands, as rustfmt writes it.
fn lines(text: &str, is_test: bool) -> Lines {
    let mut counted = Lines::default();
    // The column of an attribute whose item has not ended.
    let mut test: Option<usize> = None;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (column, words) = (line.len() - line.trim_start().len(), line.trim());
        if is_test || test.is_some() {
            counted.test += 1;
        } else if words == "#[cfg(test)]" {
            counted.test += 1;
            test = Some(column);
            continue;
        } else if words.starts_with("//") {
            counted.comment += 1;
        } else {
            counted.product += 1;
        }
        let is_whole = words.ends_with(';') || words.ends_with('}') || (words.ends_with(',') && !words.ends_with("(,"));
        if test == Some(column) && is_whole && !words.starts_with("#[") {
            test = None;
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_tests_and_comments_are_told_apart() {
        let text = "//! What it is.\n\nuse a;\n#[cfg(test)]\nuse b;\n\nfn c() {\n    // why\n    d();\n}\n\n#[cfg(test)]\nmod tests {\n    // x\n    fn e() {}\n}\n";
        assert_eq!(lines(text, false), Lines { product: 4, test: 7, comment: 2 });
        assert_eq!(lines(text, true), Lines { product: 0, test: 13, comment: 0 });
        assert_eq!(
            lines("impl A {\n    #[cfg(test)]\n    fn b() {\n        c();\n    }\n    fn d() {}\n}\n", false),
            Lines { product: 3, test: 4, comment: 0 }
        );
    }

    #[test]
    fn every_folder_belongs_to_a_group() {
        let groups = ["core/wire", "core/live", "runtime/rt-sim", "lab/view", "apps/host", "xtask", "tests/sim"].map(group_of);
        assert_eq!(groups, ["file system", "seeing", "virtual time", "laboratory", "commands", "tests and tools", "tests and tools"]);
        assert!(is_test_file("tests/sim/src/lib.rs") && is_test_file("core/wire/tests/golden.rs") && !is_test_file("lab/bench/src/run.rs"));
    }
}
