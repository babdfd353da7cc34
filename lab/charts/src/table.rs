//! The content of a chart as a table: the twin for those who cannot see it, and for programs.

/// Rows of text under names of columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Names of the columns, with units.
    pub columns: Vec<String>,
    /// One text for each column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub fn new(title: &str, columns: impl IntoIterator<Item = impl Into<String>>) -> Table {
        Table { title: title.to_string(), columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row; missing texts are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Lines of comma-separated values ([`csv_line`]).
    pub fn csv(&self) -> String {
        std::iter::once(&self.columns).chain(&self.rows).map(|cells| csv_line(cells)).collect()
    }
}

/// A line of comma-separated values as in RFC 4180. Cells that a spreadsheet would take for a
/// formula get an apostrophe.
pub fn csv_line(cells: &[impl AsRef<str>]) -> String {
    cells.iter().map(|cell| csv_cell(cell.as_ref())).collect::<Vec<_>>().join(",") + "\r\n"
}

fn csv_cell(cell: &str) -> String {
    let formula = cell.starts_with(['=', '+', '@', '\t', '\r']) || (cell.starts_with('-') && cell.parse::<f64>().is_err());
    let cell = if formula { format!("'{cell}") } else { cell.to_string() };
    if cell.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_hold_the_same() {
        let mut table = Table::new("<t>", ["name", "us"]);
        table.row(["a,\"b\"", "12.5"]);
        table.row(["=1+1", "-3"]);
        assert_eq!(table.csv(), "name,us\r\n\"a,\"\"b\"\"\",12.5\r\n'=1+1,-3\r\n");
    }

    #[test]
    fn hostile_names_are_text_in_a_spreadsheet_too() {
        assert_eq!(csv_cell("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
        assert_eq!(csv_cell("a\"b,c\nd"), "\"a\"\"b,c\nd\"");
        assert_eq!((csv_cell("-5"), csv_cell("-x")), ("-5".to_string(), "'-x".to_string()));
    }
}
