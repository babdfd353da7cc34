//! What commands print: tables for people, JSON for programs, and nothing more when the reader of a
//! pipe has gone.

use std::ffi::OsStr;
use std::io::{self, Write};

use serde::Serialize;
use weft_rt_real::Level;

/// Rows under a heading, in columns as wide as they need.
#[derive(Debug)]
pub struct Table {
    heading: Vec<String>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns; the heading of a column of numbers begins with `>` and such
    /// columns end at the right.
    pub fn new(columns: &[&str]) -> Table {
        Table {
            heading: columns.iter().map(|column| column.trim_start_matches('>').to_string()).collect(),
            right: columns.iter().map(|column| column.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; it has one cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.heading.len(), "a row has one cell for each column");
        self.rows.push(cells);
    }

    /// The text, each line ended by a newline, without spaces at line ends.
    pub fn render(&self) -> String {
        let lines = || std::iter::once(&self.heading).chain(&self.rows);
        let width = |column: usize| lines().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.heading.len()).map(width).collect();
        let mut text = String::new();
        for line in lines() {
            let cells = line.iter().zip(&widths).zip(&self.right);
            let cells: Vec<String> =
                cells.map(|((cell, width), right)| if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }).collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// Prints text.
///
/// # Errors
/// Of standard output; a reader that has gone is `BrokenPipe`.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    // Else a full disk here would look like a full file system.
    written.map_err(|error| io::Error::new(error.kind(), format!("standard output: {error}")))
}

/// Tells a person something beside the output: behind `weft: ` on standard error, or as a line of
/// the log in a process that has one. Whether anybody can read it changes nothing.
pub fn tell(what: &str) {
    tell_at(Level::Warn, "weft", what);
}

/// As [`tell`], with how much it matters and who says it.
pub fn tell_at(level: Level, who: &str, what: &str) {
    if weft_rt_real::logs_to_file() {
        weft_rt_real::write_line(level, who, what);
    } else {
        tell_plainly(&format!("{who}: {what}"));
    }
}

/// A line on standard error as it is, for the course of long work.
pub fn tell_plainly(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Prints a value as JSON.
///
/// # Errors
/// As [`print()`].
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
    print(&format!("{}\n", json_for_terminals(&text)))
}

/// JSON that a terminal takes for text only: of what terminals obey, JSON itself lets some through.
pub fn json_for_terminals(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        // What JSON is made of has line ends, and its strings have none of these.
        if is_obeyed(letter) && letter != '\n' {
            text.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            text.push(letter);
        }
    }
    text
}

/// True for what moves a cursor, changes colours, or makes what follows run the other way.
fn is_obeyed(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Prints a result: as JSON for programs, else as a text for people.
///
/// # Errors
/// As [`print()`].
pub fn print_as(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> io::Result<()> {
    if json { print_json(value) } else { print(&text()) }
}

/// A name for people: printable as it is, anything else (newlines, invalid UTF-8, control
/// characters, marks that turn the direction of writing) escaped.
pub fn show_name(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if !text.chars().any(is_obeyed) => text.to_string(),
        _ => name.escape_ascii().to_string(),
    }
}

/// A word of a command that a person is advised to give: in quotes if a shell would read something
/// else without.
pub fn shell_word(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref().to_string_lossy();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+:,@%=".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) { word.into_owned() } else { quoted(&word) }
}

/// A word in quotes for a shell.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["name", ">bytes", "state"]);
        table.row(vec!["meta0".into(), "1".into(), "serving".into()]);
        table.row(vec!["é".into(), "123456".into(), "".into()]);
        assert_eq!(table.render(), "name    bytes  state\nmeta0       1  serving\né      123456\n");
    }

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        let words = ["/data/größe-1.0", "weft://n:7000/fs", "a b", "it's", "~/fs", "$x", "", "a;b"].map(shell_word);
        assert_eq!(words, ["/data/größe-1.0", "weft://n:7000/fs", "'a b'", r"'it'\''s'", "'~/fs'", "'$x'", "''", "'a;b'"]);
    }

    #[test]
    fn names_are_shown_safely() {
        assert_eq!(show_name("größe".as_bytes()), "größe");
        assert_eq!(show_name(b"new\nline\xff"), "new\\nline\\xff");
        assert_eq!(show_name(b"\x1b[31m"), "\\x1b[31m");
        assert_eq!(show_name("gpj\u{202e}.exe".as_bytes()), r"gpj\xe2\x80\xae.exe");
    }

    #[test]
    fn json_is_shown_safely_and_means_the_same() {
        let name = "\x1b \n \x7f \u{9b}31m \u{202e} größe";
        let pretty = serde_json::to_string_pretty(&[name]).unwrap();
        let shown = json_for_terminals(&pretty);
        assert_eq!(shown, "[\n  \"\\u001b \\n \\u007f \\u009b31m \\u202e größe\"\n]");
        assert_eq!(serde_json::from_str::<[String; 1]>(&shown).unwrap(), [name]);
    }
}
