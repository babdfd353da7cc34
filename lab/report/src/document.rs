//! A document of headings, sentences, tables and pictures, as one HTML file that needs nothing
//! else, or as Markdown.

use weft_charts::{Table, escape};

/// A part of a document.
#[derive(Debug)]
pub enum Block {
    /// A heading; level 2 begins a section.
    Heading(u8, String),
    /// Sentences.
    Text(String),
    /// What a reader must not overlook.
    Warning(String),
    /// Rows under names of columns. Its title is the caption.
    Table(Table),
    /// A picture; the same as a table, for those who cannot see it.
    Picture(String, Table),
    /// Lines with a dot.
    List(Vec<String>),
}

/// A whole document.
#[derive(Debug, Default)]
pub struct Document {
    /// Its name.
    pub title: String,
    /// From top to bottom.
    pub blocks: Vec<Block>,
}

/// Rows of the table beside a picture; what is longer is drawn only.
const TWIN_ROWS_MAX: usize = 400;

const STYLE: &str = "\
:root{color-scheme:light}body{font:15px/1.5 system-ui,'DejaVu Sans',sans-serif;color:#1a1d21;background:#fff;max-width:1060px;margin:24px auto;padding:0 20px}\
h1{font-size:25px}h2{font-size:20px;margin-top:34px;border-bottom:1px solid #cfd4da;padding-bottom:3px}h3{font-size:16px}\
table{border-collapse:collapse;font-size:13.5px;margin:8px 0}th{text-align:left;color:#5a626c;font-weight:400;border-bottom:1px solid #cfd4da}\
th,td{padding:2px 14px 2px 0;vertical-align:top}caption{text-align:left;color:#5a626c}th.n{text-align:right}td.n{text-align:right;font-variant-numeric:tabular-nums}\
.warning{background:#fff2cc;color:#5a4200;padding:4px 12px;border-radius:4px}figure{margin:14px 0}svg{max-width:100%;height:auto}\
details{font-size:13px}nav a{margin-right:14px}@media print{details{display:none}h2{break-after:avoid}figure{break-inside:avoid}}";

impl Document {
    /// One HTML file; it asks for nothing outside and holds no script.
    pub fn html(&self) -> String {
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n<meta name=\"viewport\" \
             content=\"width=device-width\">\n<title>{0}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
            escape(&self.title)
        );
        let sections = self.blocks.iter().enumerate().filter_map(|(number, block)| match block {
            Block::Heading(2, text) => Some((number, text)),
            _ => None,
        });
        let links: String = sections.map(|(number, text)| format!("<a href=\"#s{number}\">{}</a>", escape(text))).collect();
        out += &format!("<nav>{links}</nav>\n");
        for (number, block) in self.blocks.iter().enumerate() {
            out += &match block {
                Block::Heading(level, text) => format!("<h{level} id=\"s{number}\">{}</h{level}>\n", escape(text)),
                Block::Text(text) => format!("<p>{}</p>\n", escape(text)),
                Block::Warning(text) => format!("<p class=\"warning\">{}</p>\n", escape(text)),
                Block::Table(table) => html_table(table),
                Block::Picture(svg, table) => {
                    let twin = match table.rows.len() {
                        0..=TWIN_ROWS_MAX => format!("<details><summary>As a table</summary>\n{}</details>\n", html_table(table)),
                        _ => String::new(),
                    };
                    format!("<figure>\n{svg}{twin}</figure>\n")
                }
                Block::List(lines) => {
                    let items: String = lines.iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect();
                    format!("<ul>\n{items}</ul>\n")
                }
            };
        }
        out.push_str("</body>\n</html>\n");
        out
    }

    /// Markdown; `link` is told the number of a picture and its SVG text, and says where it can be
    /// found.
    pub fn markdown(&self, mut link: impl FnMut(usize, &str) -> String) -> String {
        let mut out = format!("# {}\n", plain(&self.title));
        let mut pictures = 0;
        for block in &self.blocks {
            out.push('\n');
            out += &match block {
                Block::Heading(level, text) => format!("{} {}\n", "#".repeat(usize::from(*level)), plain(text)),
                Block::Text(text) => format!("{}\n", plain(text)),
                Block::Warning(text) => format!("> **{}**\n", plain(text)),
                Block::Table(table) => markdown_table(table),
                Block::Picture(svg, table) => {
                    pictures += 1;
                    format!("![{}]({})\n", plain(&table.title), link(pictures, svg))
                }
                Block::List(lines) => lines.iter().map(|line| format!("- {}\n", plain(line))).collect(),
            };
        }
        out
    }
}

fn is_number(cell: &str) -> bool {
    cell.is_empty() || cell.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '-' | '<' | '+'))
}

fn html_table(table: &Table) -> String {
    let numeric: Vec<bool> = (0..table.columns.len()).map(|column| table.rows.iter().all(|row| is_number(&row[column]))).collect();
    let cell = |(cell, numeric): (&String, &bool)| format!("<td{}>{}</td>", if *numeric { " class=\"n\"" } else { "" }, escape(cell));
    let rows: String =
        table.rows.iter().map(|row| format!("<tr>{}</tr>\n", row.iter().zip(&numeric).map(cell).collect::<String>())).collect();
    let head = |(name, numeric): (&String, &bool)| {
        format!("<th scope=\"col\"{}>{}</th>", if *numeric { " class=\"n\"" } else { "" }, escape(name))
    };
    let head: String = table.columns.iter().zip(&numeric).map(head).collect();
    let caption = if table.title.is_empty() { String::new() } else { format!("<caption>{}</caption>", escape(&table.title)) };
    format!("<table>{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table>\n")
}

fn markdown_table(table: &Table) -> String {
    let line =
        |cells: &[String]| format!("| {} |\n", cells.iter().map(|cell| plain(cell).replace('|', "\\|")).collect::<Vec<_>>().join(" | "));
    let rule = format!("|{}\n", "---|".repeat(table.columns.len()));
    [line(&table.columns), rule].into_iter().chain(table.rows.iter().map(|row| line(row))).collect()
}

/// Text whose signs mean nothing to Markdown. Names come from trace files, and those from anywhere.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '*' | '_' | '`' | '[' | ']' | '\\' | '!' | '#' => {
                out.push('\\');
                out.push(letter);
            }
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        let mut table = Table::new("t", ["name", "number"]);
        table.row(["<script>alert(1)</script>|`x`", "5"]);
        let blocks = vec![
            Block::Heading(2, "A <b>".into()),
            Block::Text("![x](http://example.com)".into()),
            Block::Table(table.clone()),
            Block::Picture("<svg></svg>".into(), table),
            Block::List(vec!["one".into()]),
        ];
        Document { title: "T & U".into(), blocks }
    }

    #[test]
    fn names_are_text_in_both_forms() {
        let html = document().html();
        assert!(!html.contains("<script") && html.contains("&lt;script&gt;") && html.contains("<h1>T &amp; U</h1>"), "{html}");
        assert!(html.contains("<td class=\"n\">5</td>") && html.contains("href=\"#s0\""));
        let markdown = document().markdown(|number, _| format!("p{number}.svg"));
        assert!(
            !markdown.contains("<script") && markdown.contains("\\!\\[x\\]") && markdown.contains("&lt;script>alert(1)&lt;/script>\\|"),
            "{markdown}"
        );
        assert!(markdown.contains("![t](p1.svg)"), "{markdown}");
    }
}
