//! A line for each record, as RFC 4180 has it. The columns are those of [`crate::rows`].

use std::io::{self, Write};

use crate::rows::{Cell, Table};
use crate::source::Source;

/// Writes everything that was chosen; says what it was.
///
/// # Errors
/// Of the writer.
pub fn write(source: &Source, out: &mut dyn Write) -> io::Result<String> {
    let table = Table::new(source);
    line(out, table.columns().iter().map(|(name, _)| name.as_str()))?;
    for event in source.events() {
        let row = table.row(source, event);
        let texts: Vec<String> = row.into_iter().map(text).collect();
        line(out, texts.iter().map(String::as_str))?;
    }
    Ok(format!("{} rows of {} columns", source.chosen.len(), table.columns().len()))
}

fn text(cell: Cell) -> String {
    match cell {
        Cell::Empty => String::new(),
        Cell::Number(number) => number.to_string(),
        Cell::Text(text) => text,
    }
}

fn line<'a>(out: &mut dyn Write, cells: impl Iterator<Item = &'a str>) -> io::Result<()> {
    for (number, cell) in cells.enumerate() {
        if number > 0 {
            out.write_all(b",")?;
        }
        if cell.contains([',', '"', '\n', '\r']) {
            write!(out, "\"{}\"", cell.replace('"', "\"\""))?;
        } else {
            out.write_all(cell.as_bytes())?;
        }
    }
    out.write_all(b"\r\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::samples;

    #[test]
    fn every_record_is_a_line_with_all_columns() {
        let mut bytes = Vec::new();
        write(&samples::two_creates(), &mut bytes).expect("memory");
        let text = String::from_utf8(bytes).expect("UTF-8");
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        let names: Vec<&str> = lines[0].split(',').collect();
        assert_eq!(lines.len(), 9);
        let rows: Vec<BTreeMap<&str, &str>> =
            lines[1..].iter().filter(|line| !line.contains('"')).map(|line| names.iter().copied().zip(line.split(',')).collect()).collect();
        let row = |event: &str| rows.iter().find(|row| row["event"] == event).expect("recorded");
        let staged_span = row("meta.create");
        assert_eq!(
            [
                staged_span["node"],
                staged_span["request"],
                staged_span["duration_ns"],
                staged_span["phase_journal_ns"],
                staged_span["phase_lock_ns"]
            ],
            ["meta0", "4d", "4480", "2400", "0"]
        );
        let disk = row("disk.write");
        assert_eq!([disk["class"], disk["offset"], disk["length"], disk["start_ns"]], ["far seek", "4096", "512", "3100"]);
        assert_eq!((row("load.server")["gauge_dirty_bytes"], row("net.call")["wait_ns"]), ("0", "160"));
        assert!(lines.iter().any(|line| line.contains("\"create, \"\"phase\"\" <1>\"")), "quoted as RFC 4180 says");
        assert!(lines.iter().all(|line| line.matches(',').count() + 1 >= names.len()));
    }
}
