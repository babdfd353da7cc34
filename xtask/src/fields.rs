//! Structs whose fields other files touch: with too many of them nobody knows who may change what.

use std::fs;
use std::path::Path;

/// Fields of one struct that other files see, at most.
const FIELDS_MAX: usize = 12;
/// Structs that have more all the same, with their number: formats, reports, and those that are yet
/// to be split. This list only gets shorter, and so do they.
const WIDE: [(&str, usize); 9] = [
    ("core/base/src/attr.rs: Attr", 18),
    ("core/namespace/src/inode.rs: Inode", 18),
    ("core/wire/src/header.rs: Header", 13),
    ("core/workload/src/lib.rs: Workload", 26),
    ("gateways/fuse/src/kernel/types.rs: FileAttr", 14),
    ("runtime/rt-sim/src/node.rs: Node", 27),
    ("runtime/rt-sim/src/world.rs: State", 13),
    ("runtime/trace/src/explain/of_node.rs: OfNode", 13),
    ("runtime/trace/src/recorder/open.rs: Open", 14),
];
/// The crates of the file system.
const FILE_SYSTEM: [&str; 4] = ["core/", "runtime/", "nodes/", "gateways/"];

/// Structs with too many fields, and exceptions that are no longer needed. Messages of the wire
/// (`wire_struct!`) are formats and do not count.
pub fn check(root: &Path, files: &[String]) -> Vec<String> {
    let sources = files
        .iter()
        .filter(|file| file.ends_with(".rs") && file.contains("/src/") && FILE_SYSTEM.iter().any(|folder| file.starts_with(folder)));
    let found: Vec<(String, usize)> = sources
        .flat_map(|file| {
            let text = fs::read_to_string(root.join(file)).unwrap_or_default();
            wide(&text).into_iter().map(|(name, fields)| (format!("{file}: {name}"), fields)).collect::<Vec<_>>()
        })
        .collect();
    let allowed = |name: &str| WIDE.iter().find(|(other, _)| *other == name).map_or(FIELDS_MAX, |(_, fields)| *fields);
    let new = found.iter().filter(|(name, fields)| *fields > allowed(name));
    let new = new.map(|(name, fields)| format!("{name} has {fields} fields that other files see; split it by what belongs together"));
    let is_there = |entry: &&(&str, usize)| found.iter().any(|(name, fields)| name == entry.0 && *fields == entry.1);
    let left_over = WIDE.iter().filter(|entry| !is_there(entry)).map(|(name, _)| format!("{name} has fewer fields: say so in WIDE"));
    new.chain(left_over).collect()
}

/// Structs of a formatted file with more than [`FIELDS_MAX`] fields that are not private, with
/// their number.
fn wide(text: &str) -> Vec<(String, usize)> {
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut wide = Vec::new();
    let mut open: Option<(String, usize)> = None;
    for line in product.lines() {
        let declared = line.strip_suffix(" {").and_then(|line| line.split("struct ").nth(1)).filter(|_| !line.starts_with([' ', '/']));
        match (&mut open, declared) {
            (None, Some(name)) => {
                let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(name.len());
                open = Some((name[..end].to_string(), 0));
            }
            (Some(_), _) if line == "}" => wide.extend(open.take().filter(|(_, fields)| *fields > FIELDS_MAX)),
            (Some((_, fields)), _) if line.starts_with("    pub") => *fields += 1,
            _ => {}
        }
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::wide;

    #[test]
    fn fields_that_others_see_are_counted() {
        let fields = |count: usize, visible: &str| (0..count).map(|n| format!("    {visible}field{n}: u8,\n")).collect::<String>();
        let text = |count, visible| format!("/// A struct {{\npub struct Many<T> {{\n{}}}\n", fields(count, visible));
        assert_eq!(wide(&text(13, "pub(crate) ")), [("Many".to_string(), 13)]);
        assert!(wide(&text(12, "pub ")).is_empty() && wide(&text(20, "")).is_empty());
    }
}
