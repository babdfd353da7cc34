//! The pictures of a paper's results: the answers of their commands, drawn over the key in which
//! the numbers of a result differ.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value as Json;
use weft_report::plot::{Picture, Wanted, file_name, pictures};

use crate::answer::{Answers, is};
use crate::paper::{Expected, Paper};

/// Draws every result of a paper into a folder that can be drawn. The lines say which files, or why
/// there is none.
///
/// # Errors
/// A command fails, or a file cannot be written.
pub fn draw(paper: &Paper, answers: &mut Answers, folder: &Path, real: bool) -> Result<Vec<String>> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let (mut lines, mut names) = (Vec::new(), BTreeSet::new());
    let mut drawn: Vec<(&str, &str, Vec<String>)> = Vec::new();
    for result in &paper.results {
        let head = format!("{}, {}", result.figure, result.shows);
        let found = match why_not(result, real) {
            Some(why) => Err(why),
            None => of_result(paper, result, answers).with_context(|| head.clone())?,
        };
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                lines.push(format!("{head}: no picture: {why}"));
                continue;
            }
        };
        let command = result.command.as_deref().unwrap_or_default();
        let same = found.iter().map(|picture| picture.name.clone()).collect::<Vec<_>>();
        if drawn.contains(&(&result.figure, command, same.clone())) {
            lines.push(format!("{head}: the same picture as above"));
            continue;
        }
        let mut files = Vec::new();
        for mut picture in found {
            let name = file_name(&[&paper.name, &result.figure, &picture.name]);
            let free = |number: &usize| if *number == 1 { name.clone() } else { format!("{name}-{number}") };
            let name = (1..).map(|number| free(&number)).find(|name| !names.contains(name)).unwrap_or_default();
            names.insert(name.clone());
            picture.name.clone_from(&name);
            weft_report::plot::write(folder, &picture)?;
            files.push(format!("{name}.svg"));
        }
        drawn.push((&result.figure, command, same));
        lines.push(format!("{head}: {}", files.join(", ")));
    }
    Ok(lines)
}

/// Why nothing can be drawn, as far as that is known before the command runs.
fn why_not(result: &Expected, real: bool) -> Option<String> {
    let Some(command) = &result.command else {
        return Some("not built".to_string());
    };
    if let Some(file) = result.needs.as_ref().filter(|file| !Path::new(file).exists()) {
        return Some(format!("needs {file}"));
    }
    if command.starts_with("weft sim thesis") {
        return Some("the cases of the thesis are no plan; `weft sim thesis --plot DIR` draws them".to_string());
    }
    if result.values.is_empty() {
        return Some("no number of it is named".to_string());
    }
    (result.real && !real).then(|| "measured with `--real` only".to_string())
}

/// The pictures, or why there is none.
fn of_result(paper: &Paper, result: &Expected, answers: &mut Answers) -> Result<Result<Vec<Picture>, String>> {
    let rows = answers.rows(result.command.as_deref().unwrap_or_default())?;
    let label = format!("{}, {}", paper.name, result.figure);
    let over = axis(result, rows);
    let kept = if over.is_some() { kept(result) } else { toml::Table::new() };
    let mut all: Vec<Picture> = Vec::new();
    let mut seen = BTreeSet::new();
    for value in &result.values {
        let phase = value.r#where.get("phase").and_then(toml::Value::as_str);
        if !seen.insert((phase, value.field.as_str())) {
            continue;
        }
        let is_own = |row: &&Json| {
            let in_phase = phase.is_none_or(|phase| row["phase"] == phase);
            in_phase && kept.iter().all(|(key, wanted)| row.get(key).is_none_or(|found| is(Some(found), wanted)))
        };
        let own: Vec<Json> = rows.iter().filter(is_own).cloned().collect();
        let wanted = Wanted { over: over.as_deref(), field: Some(&value.field), ..Wanted::default() };
        match pictures(&own, wanted, &label) {
            Ok(found) => all.extend(found),
            Err(why) => return Ok(Err(format!("{why:#}"))),
        }
    }
    Ok(Ok(all))
}

/// The numbers that are the same in all rows that a result looks at: a figure of one server shows
/// no others.
fn kept(result: &Expected) -> toml::Table {
    let tables = || result.values.iter().flat_map(|value| std::iter::once(&value.r#where).chain(&value.over));
    let first = tables().next().cloned().unwrap_or_default();
    let is_same = |key: &str, value: &toml::Value| !value.is_str() && tables().all(|table| table.get(key) == Some(value));
    first.into_iter().filter(|(key, value)| is_same(key, value)).collect()
}

/// The key with numbers in which the values of a result differ and which all rows have.
fn axis(result: &Expected, rows: &[Json]) -> Option<String> {
    let tables: Vec<&toml::Table> = result.values.iter().map(|value| &value.r#where).collect();
    let is_number = |key: &str| tables.iter().all(|table| table.get(key).is_some_and(|value| value.is_integer() || value.is_float()));
    let differs = |key: &str| tables.iter().any(|table| table.get(key) != tables[0].get(key));
    let in_rows = |key: &str| rows.iter().all(|row| !row[key].is_null());
    let key = tables.first()?.keys().find(|key| is_number(key) && differs(key) && in_rows(key))?;
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
    }

    #[test]
    fn a_figure_shows_what_all_its_numbers_have_in_common() {
        let value = |rest: &str| format!("[[value]]\nlabel = \"\"\nfield = \"seconds\"\n{rest}\n");
        let one = value("where = { clients = 1, servers = 5, mode = \"a\" }\nover = { clients = 1, servers = 5, mode = \"b\" }");
        let other = value("where = { clients = 5, servers = 5, mode = \"a\" }");
        let kept = kept(&result(&format!("command = \"weft\"\n{one}{other}")));
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), [("servers".to_string(), toml::Value::Integer(5))]);
    }

    #[test]
    fn what_has_no_picture_says_why() {
        let why = |rest: &str| why_not(&result(rest), false);
        assert_eq!(why("missing = \"later\"").as_deref(), Some("not built"));
        assert!(why("command = \"weft sim thesis --json\"").is_some_and(|why| why.contains("weft sim thesis --plot")));
        let value = "[[value]]\nlabel = \"\"\nfield = \"seconds\"";
        assert!(why(&format!("command = \"weft bench\"\nreal = true\n{value}")).is_some_and(|why| why.contains("--real")));
        assert_eq!(why(&format!("command = \"weft sim run x\"\n{value}")), None);
    }
}
