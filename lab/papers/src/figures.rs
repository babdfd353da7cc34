//! The pictures of a paper's results: the answers of their commands, drawn over the key in which
//! the numbers of a result differ.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value as Json;
use weft_report::plot::{Number, Picture, Wanted, file_name, pictures};

use crate::answer::{Answers, in_unit, is, number};
use crate::paper::{Expected, Paper, Value};

/// Draws every result of a paper into a folder that can be drawn. The lines say which files, or why
/// there is none.
///
/// # Errors
/// A command fails, or a file cannot be written.
pub fn draw(paper: &Paper, answers: &mut Answers, folder: &Path, real: bool) -> Result<Vec<String>> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let mut lines = Vec::new();
    // Files by what is in them but for the name of the figure, and all names.
    let (mut drawn, mut names): (BTreeMap<String, String>, BTreeSet<String>) = Default::default();
    for result in &paper.results {
        let head = format!("{}, {}", result.figure, result.shows);
        if let Some(why) = why_not(result, real) {
            lines.push(format!("{head}: no picture: {why}"));
            continue;
        }
        let mut files = match &result.plot {
            Some(command) => answers.drawings(command, folder).with_context(|| head.clone())?,
            None => Vec::new(),
        };
        let label = format!("{}, {}", paper.name, result.figure);
        for mut picture in of_result(result, &label, answers).with_context(|| head.clone())? {
            let content = picture.svg().replace(&label, "");
            if let Some(file) = drawn.get(&content) {
                files.push(file.clone());
                continue;
            }
            let name = file_name(&[&paper.name, &result.figure, &picture.name]);
            let free = |number: &usize| if *number == 1 { name.clone() } else { format!("{name}-{number}") };
            let name = (1..).map(|number| free(&number)).find(|name| !names.contains(name)).unwrap_or_default();
            names.insert(name.clone());
            picture.name = name;
            weft_report::plot::write(folder, &picture)?;
            files.push(format!("{}.svg", picture.name));
            drawn.insert(content, format!("{}.svg", picture.name));
        }
        lines.push(format!("{head}: {}", files.join(", ")));
    }
    Ok(lines)
}

/// Why nothing can be drawn, as far as that is known before the command runs.
fn why_not(result: &Expected, real: bool) -> Option<String> {
    if result.command.is_none() {
        return Some("not built".to_string());
    }
    if let Some(file) = result.needs.as_ref().filter(|file| !Path::new(file).exists()) {
        return Some(format!("needs {file}"));
    }
    if result.values.is_empty() && result.plot.is_none() {
        return Some("no number of it is named".to_string());
    }
    (result.real && !real).then(|| "measured with `--real` only".to_string())
}

/// The pictures of a result. Plain numbers over an axis are lines of all that the command gave
/// there, in the unit of the result; others are bars, and if they are shares of something, it is
/// drawn too.
fn of_result(result: &Expected, label: &str, answers: &mut Answers) -> Result<Vec<Picture>> {
    let Some(first) = result.values.first() else { return Ok(Vec::new()) };
    let rows = answers.rows(result.command.as_deref().unwrap_or_default())?;
    let is_share = result.values.iter().any(|value| value.over.is_some());
    let is_alike = |value: &Value| (&value.field, value.times, value.per) == (&first.field, first.times, first.per);
    let over = axis(result, rows).filter(|_| result.values.iter().all(is_alike));
    let mut all = Vec::new();
    if is_share || over.is_none() {
        let of = |value: &Value| Ok(Number { label: value.label.clone(), found: number(rows, value)?, printed: value.printed });
        let numbers = result.values.iter().map(of).collect::<Result<Vec<Number>>>()?;
        all.push(Picture::of_numbers(label, &result.shows, &first.unit, &numbers));
    }
    let Some(over) = over else { return Ok(all) };
    let phases: BTreeSet<Option<&str>> =
        result.values.iter().map(|value| value.r#where.get("phase").and_then(toml::Value::as_str)).collect();
    let kept = kept(result, is_share);
    for phase in phases {
        let is_own = |row: &&Json| {
            let in_phase = phase.is_none_or(|phase| row["phase"] == phase);
            in_phase && kept.iter().all(|(key, wanted)| row.get(key).is_none_or(|found| is(Some(found), wanted)))
        };
        let own: Vec<Json> = rows.iter().filter(is_own).cloned().collect();
        let (own, field) = if is_share { (own, first.field.clone()) } else { in_unit(&own, first)? };
        let wanted = Wanted { over: Some(&over), field: Some(&field), ..Wanted::default() };
        let mut found = pictures(&own, wanted, label)?;
        if let ([only], false) = (&mut found[..], is_share) {
            *only = only.clone().with_printed(printed(result, &over));
        }
        all.extend(found);
    }
    Ok(all)
}

/// What the paper prints, by the numbers of the axis.
fn printed(result: &Expected, over: &str) -> Vec<(f64, f64)> {
    let at = |value: &Value| value.r#where.get(over).and_then(|at| at.as_float().or_else(|| at.as_integer().map(|at| at as f64)));
    result.values.iter().filter_map(|value| Some((at(value)?, value.printed?))).collect()
}

/// What is the same in all rows that a result looks at: a figure of one server shows no others.
/// Words are kept only of shares: what has another name stands beside a plain number.
fn kept(result: &Expected, is_share: bool) -> toml::Table {
    let tables = || result.values.iter().flat_map(|value| std::iter::once(&value.r#where).chain(&value.over));
    let first = tables().next().cloned().unwrap_or_default();
    let is_same = |key: &str, value: &toml::Value| (is_share || !value.is_str()) && tables().all(|table| table.get(key) == Some(value));
    first.into_iter().filter(|(key, value)| is_same(key, value)).collect()
}

/// The key with numbers in which the values of a result differ most and which all rows have.
fn axis(result: &Expected, rows: &[Json]) -> Option<String> {
    let tables: Vec<&toml::Table> = result.values.iter().map(|value| &value.r#where).collect();
    let is_number = |key: &str| tables.iter().all(|table| table.get(key).is_some_and(|value| value.is_integer() || value.is_float()));
    let values = |key: &str| tables.iter().filter_map(|table| table.get(key).map(ToString::to_string)).collect::<BTreeSet<_>>().len();
    let in_rows = |key: &str| rows.iter().all(|row| !row[key].is_null());
    let keys = tables.first()?.keys().filter(|key| is_number(key) && values(key) > 1 && in_rows(key));
    let key = keys.rev().max_by_key(|key| values(key))?;
    Some(if key == "procs" { "clients".to_string() } else { key.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(rest: &str) -> Expected {
        toml::from_str(&format!("figure = \"Figure 1\"\nshows = \"s\"\n{rest}")).expect("a result")
    }

    #[test]
    fn the_axis_is_what_the_values_differ_in() {
        let of = |one: &str, other: &str| {
            let value = |place: &str| format!("[[value]]\nlabel = \"\"\nfield = \"seconds\"\nwhere = {place}\n");
            axis(&result(&format!("command = \"weft\"\n{}{}", value(one), value(other))), &[serde_json::json!({"clients": 1, "procs": 2})])
        };
        assert_eq!(of("{ clients = 1, mode = \"a\" }", "{ clients = 5, mode = \"b\" }").as_deref(), Some("clients"));
        assert_eq!(of("{ procs = 1 }", "{ procs = 5 }").as_deref(), Some("clients"));
        assert_eq!(of("{ clients = 1, mode = \"a\" }", "{ clients = 1, mode = \"b\" }"), None);
        assert_eq!(of("{ files = 1 }", "{ files = 2 }"), None, "no row has it");
        let most = "command = \"weft\"\n".to_string()
            + &[(1, 1), (1, 8), (2, 16)]
                .map(|(clients, window)| {
                    format!("[[value]]\nlabel = \"\"\nfield = \"f\"\nwhere = {{ clients = {clients}, \"work.window\" = {window} }}\n")
                })
                .concat();
        assert_eq!(axis(&result(&most), &[serde_json::json!({"clients": 1, "work.window": 2})]).as_deref(), Some("work.window"));
    }

    #[test]
    fn a_figure_shows_what_all_its_numbers_have_in_common() {
        let value = |rest: &str| format!("[[value]]\nlabel = \"\"\nfield = \"seconds\"\n{rest}\n");
        let one = value("where = { clients = 1, servers = 5, mode = \"a\" }\nover = { clients = 1, servers = 5, mode = \"b\" }");
        let other = value("where = { clients = 5, servers = 5, mode = \"a\" }");
        let kept = kept(&result(&format!("command = \"weft\"\n{one}{other}")), false);
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), [("servers".to_string(), toml::Value::Integer(5))]);
    }

    #[test]
    fn what_has_no_picture_says_why() {
        let why = |rest: &str| why_not(&result(rest), false);
        assert_eq!(why("missing = \"later\"").as_deref(), Some("not built"));
        assert!(why("command = \"weft sim thesis --json\"\nall = \"agrees\"").is_some_and(|why| why.contains("no number")));
        assert_eq!(why("command = \"weft sim thesis --json\"\nall = \"agrees\"\nplot = \"weft sim thesis --plot DIR\""), None);
        let value = "[[value]]\nlabel = \"\"\nfield = \"seconds\"";
        assert!(why(&format!("command = \"weft bench\"\nreal = true\n{value}")).is_some_and(|why| why.contains("--real")));
        assert_eq!(why(&format!("command = \"weft sim run x\"\n{value}")), None);
    }
}
