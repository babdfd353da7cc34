//! Answers of commands, and the numbers in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value as Json;
use toml::Table;

use crate::paper::Value;

/// What commands answered; each runs once.
#[derive(Debug)]
pub struct Answers {
    program: PathBuf,
    answers: BTreeMap<String, Vec<Json>>,
    drawn: BTreeSet<String>,
}

impl Answers {
    /// Of commands of the program that runs now.
    ///
    /// # Errors
    /// The program cannot be found.
    pub fn of_this_program() -> Result<Answers> {
        let program = std::env::current_exe().context("this program cannot be found")?;
        Ok(Answers { program, answers: BTreeMap::new(), drawn: BTreeSet::new() })
    }

    /// The rows of a command's answer. The command is that of a paper: words with spaces between.
    ///
    /// # Errors
    /// It fails, or answers with something else than JSON.
    pub fn rows(&mut self, command: &str) -> Result<&[Json]> {
        if !self.answers.contains_key(command) {
            let answer = self.run(command).with_context(|| command.to_string())?;
            self.answers.insert(command.to_string(), answer);
        }
        Ok(&self.answers[command])
    }

    /// Has a command draw into a folder, for which the word `DIR` in it stands: the names of the
    /// files. The second time it says only that it has.
    ///
    /// # Errors
    /// It draws nothing.
    pub fn drawings(&mut self, command: &str, folder: &Path) -> Result<Vec<String>> {
        if !self.drawn.insert(command.to_string()) {
            return Ok(vec![format!("drawn above by `{command}`")]);
        }
        let before = files(folder)?;
        let path = folder.to_str().context("the name of the folder is not UTF-8")?;
        let output = self.output(command, |word| word.replace("DIR", path))?;
        let drawn = files(folder)?.into_iter().filter(|(name, time)| before.get(name) != Some(time));
        let drawn: Vec<String> = drawn.map(|(name, _)| name).collect();
        if drawn.is_empty() {
            bail!("{command}: {}; {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(drawn)
    }

    fn output(&self, command: &str, argument: impl Fn(&str) -> String) -> Result<Output> {
        let mut words = command.split_whitespace();
        if words.next() != Some("weft") {
            bail!("a command of a paper begins with weft");
        }
        Ok(Command::new(&self.program).args(words.map(argument)).output()?)
    }

    fn run(&self, command: &str) -> Result<Vec<Json>> {
        let output = self.output(command, str::to_string)?;
        match serde_json::from_slice(&output.stdout) {
            Ok(Json::Array(rows)) => Ok(rows),
            Ok(row) => Ok(vec![row]),
            Err(error) if output.status.success() => Err(error).context("the answer is not JSON"),
            Err(_) => bail!("{}; {}", output.status, String::from_utf8_lossy(&output.stderr).trim()),
        }
    }
}

/// The files of a folder and when they were written.
fn files(folder: &Path) -> Result<BTreeMap<String, SystemTime>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        files.insert(entry.file_name().to_string_lossy().into_owned(), entry.metadata()?.modified()?);
    }
    Ok(files)
}

/// The value in `rows`.
///
/// # Errors
/// Not exactly one row, or the field is not a number.
pub fn number(rows: &[Json], value: &Value) -> Result<f64> {
    let number = field(one_row(rows, &value.r#where)?, &value.field)?;
    let over = value.over.as_ref().map_or(Ok(1.0), |over| field(one_row(rows, over)?, &value.field))?;
    Ok(scaled(number / over, value))
}

fn one_row<'a>(rows: &'a [Json], wanted: &Table) -> Result<&'a Json> {
    let mut found = rows.iter().filter(|row| wanted.iter().all(|(key, wanted)| is(field_of(row, key), wanted)));
    match (found.next(), found.count()) {
        (Some(row), 0) => Ok(row),
        (None, _) => bail!("no row has {wanted}"),
        (Some(_), more) => bail!("{} rows have {wanted}", more + 1),
    }
}

/// The rows with a field in another unit: that of the values of a result, which have it in common.
pub fn in_unit(rows: &[Json], value: &Value) -> Result<(Vec<Json>, String)> {
    if value.unit.is_empty() || (value.times == 1.0 && value.per.is_none()) {
        return Ok((rows.to_vec(), value.field.clone()));
    }
    let moved = rows.iter().map(|row| {
        let number = scaled(field(row, &value.field)?, value);
        let mut row = row.clone();
        row[&value.unit] = number.into();
        Ok(row)
    });
    Ok((moved.collect::<Result<_>>()?, value.unit.clone()))
}

fn scaled(number: f64, value: &Value) -> f64 {
    let number = number * value.times;
    value.per.map_or(number, |amount| amount / number)
}

/// A field by its whole name, or by the names of nested objects and the positions in lists.
fn field_of<'a>(row: &'a Json, name: &str) -> Option<&'a Json> {
    let inside = |of: &'a Json, name: &str| name.parse::<usize>().ok().and_then(|position| of.get(position)).or_else(|| of.get(name));
    row.get(name).or_else(|| name.split('.').try_fold(row, inside))
}

fn field(row: &Json, name: &str) -> Result<f64> {
    field_of(row, name).and_then(Json::as_f64).ok_or_else(|| anyhow!("there is no number {name} in {row}"))
}

/// Whether a field is what is wanted.
pub fn is(json: Option<&Json>, wanted: &toml::Value) -> bool {
    match (json, wanted) {
        (Some(Json::String(text)), toml::Value::String(wanted)) => text == wanted,
        (Some(Json::Bool(json)), toml::Value::Boolean(wanted)) => json == wanted,
        (Some(json), toml::Value::Integer(wanted)) => json.as_f64() == Some(*wanted as f64),
        (Some(json), toml::Value::Float(wanted)) => json.as_f64() == Some(*wanted),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_number_is_taken_from_exactly_one_row() {
        let rows =
            [json!({"clients": 1, "mode": "old", "rate": {"median": 8.0}}), json!({"clients": 2, "mode": "old", "rate": {"median": 4.0}})];
        let value = |rest: &str| toml::from_str::<Value>(&format!("label = \"\"\nfield = \"rate.median\"\n{rest}")).expect("a value");
        assert_eq!(number(&rows, &value("where = { clients = 1 }")).expect("one row"), 8.0);
        assert_eq!(
            number(&rows, &value("where = { clients = 2 }\nover = { clients = 1, mode = \"old\" }\ntimes = 100")).expect("two rows"),
            50.0
        );
        assert_eq!(number(&rows, &value("where = { clients = 2 }\ntimes = 2\nper = 100")).expect("one row"), 12.5);
        for (rest, problem) in [("where = { clients = 3 }", "no row has"), ("where = { mode = \"old\" }", "2 rows have")] {
            let error = number(&rows, &value(rest)).expect_err(rest);
            assert!(error.to_string().contains(problem), "{error}");
        }
        let list: Value = toml::from_str("label = \"\"\nfield = \"tasks.1.seconds\"").expect("a value");
        assert_eq!(number(&[json!({"tasks": [{"seconds": 1}, {"seconds": 2}]})], &list).expect("the second"), 2.0);
        assert!(number(&[json!({"rate": 1})], &value("")).expect_err("no object").to_string().contains("no number rate.median"));
    }
}
