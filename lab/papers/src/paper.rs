//! The TOML file of a paper.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use toml::Table;

/// The papers.
const FILES: [(&str, &str); 5] = [
    ("2006", include_str!("../2006.toml")),
    ("2007", include_str!("../2007.toml")),
    ("2009", include_str!("../2009.toml")),
    ("2016", include_str!("../2016.toml")),
    ("dnfsp", include_str!("../dnfsp.toml")),
];

/// A paper and its results.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// How commands and files call it; not in the file.
    #[serde(skip)]
    pub name: String,
    pub title: String,
    pub author: String,
    /// What was measured there and how Weft repeats it, as paragraphs of Markdown.
    pub about: String,
    #[serde(rename = "result")]
    pub results: Vec<Expected>,
}

/// A figure or table: what the paper says, and what to run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// As the paper numbers it.
    pub figure: String,
    pub shows: String,
    /// A command of `weft` that answers with JSON: an array of rows, or one object, which is a
    /// single row.
    pub command: Option<String>,
    /// A command of `weft` that draws it, beside what is drawn of the numbers: `DIR` stands for the
    /// folder.
    pub plot: Option<String>,
    /// A file without which the command cannot run here.
    pub needs: Option<String>,
    /// The command measures this machine: it runs with `--real` only.
    #[serde(default)]
    pub real: bool,
    /// The name of a field that must be true in every row.
    pub all: Option<String>,
    /// How the values must follow each other.
    pub order: Option<Order>,
    #[serde(default, rename = "value")]
    pub values: Vec<Value>,
    /// What a reader must know to judge.
    pub note: Option<String>,
    /// Why there is no such result.
    pub missing: Option<String>,
}

/// How values follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    Growing,
    Falling,
    /// The largest is at most a tenth above the smallest.
    Flat,
}

/// A number of the answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    pub label: String,
    /// What the row's fields must be; exactly one row is.
    #[serde(default)]
    pub r#where: Table,
    /// The field, with dots between the names of nested objects.
    pub field: String,
    /// The row that the value is divided by.
    pub over: Option<Table>,
    /// What the value is multiplied by, for another unit.
    #[serde(default = "one")]
    pub times: f64,
    /// What is divided by the value, for a rate from a time.
    pub per: Option<f64>,
    #[serde(default)]
    pub unit: String,
    /// What the paper prints.
    pub printed: Option<f64>,
    /// The largest relative difference from what is printed.
    pub within: Option<f64>,
    /// The range that the paper, or an issue that follows from it, gives.
    pub between: Option<[f64; 2]>,
}

fn one() -> f64 {
    1.0
}

/// All papers.
///
/// # Errors
/// A file is not of this form; it says where.
pub fn all() -> Result<Vec<Paper>> {
    FILES.iter().map(|(name, text)| read(name, text)).collect()
}

fn read(name: &str, text: &str) -> Result<Paper> {
    let paper: Paper = toml::from_str(text).with_context(|| format!("lab/papers/{name}.toml"))?;
    for result in &paper.results {
        let problem = if result.command.is_some() == result.missing.is_some() {
            "either a command or what is missing"
        } else if result.command.is_some() && result.all.is_none() && result.values.is_empty() {
            "values, or a field that is true in all rows"
        } else if result.values.iter().any(|value| value.within.is_some() && value.printed.is_none()) {
            "a printed value for each \"within\""
        } else {
            continue;
        };
        bail!("lab/papers/{name}.toml: {} ({}) needs {problem}", result.figure, result.shows);
    }
    Ok(Paper { name: name.to_string(), ..paper })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_paper_can_be_read_and_names_each_result_once() {
        for paper in all().expect("the files of the papers") {
            for (index, result) in paper.results.iter().enumerate() {
                let name = (&result.figure, &result.shows);
                assert!(paper.results[..index].iter().all(|other| (&other.figure, &other.shows) != name), "{}: {name:?} twice", paper.name);
                assert!(!result.figure.contains('|') && !result.shows.contains('|'), "{name:?} would break the table of the page");
            }
        }
    }

    #[test]
    fn a_wrong_file_says_where() {
        let head = "title = \"t\"\nauthor = \"a\"\nabout = \"\"\n[[result]]\nfigure = \"1\"\nshows = \"s\"\n";
        let error = |rest: &str| format!("{:#}", read("x", &format!("{head}{rest}")).expect_err(rest));
        assert!(error("colour = 1").contains("line 7"), "{}", error("colour = 1"));
        assert!(error("").contains("1 (s) needs either a command"));
        assert!(error("command = \"weft sim\"").contains("needs values"));
        let value = "command = \"weft sim\"\n[[result.value]]\nlabel = \"l\"\nfield = \"f\"\nwithin = 0.1";
        assert!(error(value).contains("needs a printed value"));
    }
}
