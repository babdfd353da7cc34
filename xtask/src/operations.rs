//! What follows from the table of operations (`core/wire/src/ops/mod.rs`) outside of the compiler's
//! sight: the table of `docs/wire.md`, and who else has to know an operation.

use std::fs;
use std::path::Path;

use weft_base::ServerRole;
use weft_sim_tests::asked::{ASKED, NOT_ASKED};
use weft_wire::Op;
use weft_wire::ops::{Class, Space};

/// Where the table stands.
const DOCUMENT: &str = "docs/wire.md";
/// Its first line.
const HEADING: &str = "| number | name | goes to | once | space | kind of work | in traces |";

/// Writes the table into its document.
///
/// # Errors
/// Why it cannot.
pub fn write(root: &Path) -> Result<(), String> {
    let path = root.join(DOCUMENT);
    let text = fs::read_to_string(&path).map_err(|error| format!("{DOCUMENT}: {error}"))?;
    let (before, _, after) = split(&text).ok_or_else(|| format!("{DOCUMENT} has no line {HEADING}"))?;
    fs::write(&path, format!("{before}{}{after}", table())).map_err(|error| format!("{DOCUMENT}: {error}"))
}

/// Operations that somebody does not know who should.
pub fn check(root: &Path, files: &[String]) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    let mut problems = Vec::new();
    if split(&read(DOCUMENT)).is_none_or(|(_, there, _)| there != table()) {
        problems.push(format!("{DOCUMENT}: the operations are not those of the code; `cargo xtask tidy --write` writes them"));
    }
    let executes = [
        "nodes/serving/src/any.rs",
        "core/namespace/src/ops/mod.rs",
        "nodes/meta-server/src/ops/mod.rs",
        "nodes/data-server/src/ops/mod.rs",
    ];
    let executed: String = executes.iter().map(|file| read(file)).collect();
    let asks =
        |file: &&String| file.ends_with(".rs") && ["nodes/", "gateways/", "lab/", "apps/"].iter().any(|folder| file.starts_with(folder));
    let asked: String = files.iter().filter(asks).map(|file| read(file)).collect();
    for op in Op::ALL {
        let name = op.name();
        if !executed.contains(&format!("Request::{name}(")) {
            problems.push(format!("no server executes {name}: an arm is missing in one of {}", executes.join(", ")));
        }
        if !asked.contains(&format!("{name}Request {{")) && !asked.contains(&format!("{name}Request::")) {
            problems.push(format!("nobody asks for {name}: a method is missing in nodes/client/src"));
        }
        if ASKED.contains(op) == NOT_ASKED.iter().any(|(other, _)| other == op) {
            problems.push(format!("{name} must be in one list of tests/sim/src/asked.rs: do histories ask for it, and if not, why?"));
        }
    }
    problems
}

/// The text before the table, the table, and the text behind it.
fn split(text: &str) -> Option<(&str, &str, &str)> {
    let start = text.find(HEADING)?;
    let len = text[start..].find("\n\n").map_or(text.len() - start, |end| end + 1);
    Some((&text[..start], &text[start..start + len], &text[start + len..]))
}

fn table() -> String {
    let mut table = format!("{HEADING}\n|---|---|---|---|---|---|---|\n");
    for op in Op::ALL {
        let space = match op.space() {
            Space::Untouched => "",
            Space::Needed => "needed",
            Space::Freed => "freed",
        };
        let once = if op.changes() { "yes" } else { "" };
        let class = match op.class() {
            Class::MetaRead => "reads metadata",
            Class::MetaChange => "changes metadata",
            Class::DataRead => "reads data",
            Class::DataWrite => "writes data",
            Class::Other => "",
        };
        let event = match op.role() {
            None => String::new(),
            Some(ServerRole::Meta) => format!("`meta.{}`", op.event_name()),
            Some(ServerRole::Data) => format!("`data.{}`", op.event_name()),
        };
        let cells = [&op.code().to_string(), op.name(), op.goes_to(), once, space, class, &event];
        table.push_str(&cells.map(|cell| if cell.is_empty() { "|".into() } else { format!("| {cell} ") }).concat());
        table.push_str("|\n");
    }
    table
}
