//! The content of a chart as a table: the twin for those who cannot see it, and for programs.

use crate::svg::escape;

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

    /// Comma-separated values as in RFC 4180. Cells that a spreadsheet would take for a formula get
    /// an apostrophe.
    pub fn csv(&self) -> String {
        let line = |cells: &[String]| cells.iter().map(|cell| csv_cell(cell)).collect::<Vec<_>>().join(",") + "\r\n";
        std::iter::once(&self.columns).chain(&self.rows).map(|cells| line(cells)).collect()
    }

    /// An HTML table.
    pub fn html(&self) -> String {
        let cells = |tag: &str, cells: &[String]| cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect::<String>();
        let rows: String = self.rows.iter().map(|row| format!("<tr>{}</tr>\n", cells("td", row))).collect();
        format!(
            "<table>\n<caption>{}</caption>\n<thead><tr>{}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n",
            escape(&self.title),
            cells("th", &self.columns)
        )
    }

    /// Columns of equal width for a terminal: numbers to the right.
    pub fn text(&self) -> String {
        let width = |column: usize| {
            let cells = std::iter::once(&self.columns).chain(&self.rows).map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let is_number: Vec<bool> =
            (0..self.columns.len()).map(|column| self.rows.iter().all(|row| starts_like_a_number(&row[column]))).collect();
        let mut out = String::new();
        for row in std::iter::once(&self.columns).chain(&self.rows) {
            let cells = row.iter().enumerate().map(|(column, cell)| match is_number[column] {
                true => format!("{cell:>width$}", width = widths[column]),
                false => format!("{cell:<width$}", width = widths[column]),
            });
            out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            out.push('\n');
        }
        out
    }
}

fn starts_like_a_number(cell: &str) -> bool {
    cell.is_empty() || cell.trim_start_matches(['-', '+', '<', '>']).starts_with(|c: char| c.is_ascii_digit())
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
        assert_eq!(table.text(), "name     us\na,\"b\"  12.5\n=1+1     -3\n");
        assert!(table.html().contains("<caption>&lt;t&gt;</caption>") && table.html().contains("<td>a,&quot;b&quot;</td>"));
    }
}
