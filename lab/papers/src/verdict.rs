//! What Weft gives for each result of a paper, and whether that is what the paper says.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value as Json;

use crate::answer::{Answers, number};
use crate::paper::{Expected, Order, Paper, Value};

/// The largest of flat values by the smallest.
const FLAT: f64 = 1.1;

/// Whether a result is as the paper says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Holds,
    Differs,
    /// The paper gives nothing to compare with.
    Shown,
    NotBuilt,
    /// What it needs is not here, or it was never measured.
    NotRun,
}

impl Verdict {
    /// As on the page.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Differs => "**differs**",
            Verdict::Shown => "shown",
            Verdict::NotBuilt => "not built",
            Verdict::NotRun => "not run",
        }
    }
}

/// A result as Weft gives it.
#[derive(Debug)]
pub struct Outcome {
    pub gives: String,
    pub verdict: Verdict,
}

/// Numbers of measured results, by figure and what it shows.
type Measured = BTreeMap<String, Vec<f64>>;

/// All results of a paper in their order. Measured ones run if `real` says so, and their numbers
/// are kept in the file `recording`; otherwise they are taken from there.
///
/// # Errors
/// A command fails, or its answer lacks a number; the file cannot be read or written.
pub fn outcomes(paper: &Paper, answers: &mut Answers, recording: Option<&Path>, real: bool) -> Result<Vec<Outcome>> {
    let mut measured = recording.map_or_else(|| Ok(Measured::new()), read)?;
    let mut outcomes = Vec::with_capacity(paper.results.len());
    for expected in &paper.results {
        let name = format!("{}: {}", expected.figure, expected.shows);
        let outcome = outcome(expected, answers, real, measured.entry(name.clone()).or_default());
        outcomes.push(outcome.with_context(|| format!("paper {}, {name}", paper.name))?);
    }
    measured.retain(|_, numbers| !numbers.is_empty());
    if let (true, Some(path)) = (real, recording) {
        let text = serde_json::to_string_pretty(&measured).context("numbers that are no JSON")?;
        std::fs::write(path, text + "\n").with_context(|| path.display().to_string())?;
    }
    Ok(outcomes)
}

fn read(path: &Path) -> Result<Measured> {
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).with_context(|| path.display().to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Measured::new()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// `measured` are the numbers of the last time; they are replaced if this one is measured.
fn outcome(expected: &Expected, answers: &mut Answers, real: bool, measured: &mut Vec<f64>) -> Result<Outcome> {
    let not_run = |why: String| Ok(Outcome { gives: why, verdict: Verdict::NotRun });
    let Some(command) = &expected.command else {
        return Ok(Outcome { gives: expected.missing.clone().unwrap_or_default(), verdict: Verdict::NotBuilt });
    };
    if let Some(file) = expected.needs.as_ref().filter(|file| !Path::new(file).exists()) {
        return not_run(format!("needs {file}"));
    }
    if expected.real && !real {
        let known = measured.len() == expected.values.len();
        return if known { Ok(compared(expected, measured)) } else { not_run("measured with `--real` only".to_string()) };
    }
    let rows = answers.rows(command)?;
    if let Some(field) = &expected.all {
        let holding = rows.iter().filter(|row| row.get(field).and_then(Json::as_bool) == Some(true)).count();
        let verdict = if holding == rows.len() && holding > 0 { Verdict::Holds } else { Verdict::Differs };
        return Ok(Outcome { gives: format!("{field}: {holding} of {}", rows.len()), verdict });
    }
    let numbers = expected.values.iter().map(|value| number(rows, value)).collect::<Result<Vec<f64>>>()?;
    let outcome = compared(expected, &numbers);
    if expected.real {
        *measured = numbers;
    }
    Ok(outcome)
}

fn compared(expected: &Expected, numbers: &[f64]) -> Outcome {
    let pairs = || expected.values.iter().zip(numbers);
    let gives: Vec<String> = pairs().map(|(value, number)| labelled(value, *number)).collect();
    let is_judged = expected.order.is_some() || expected.values.iter().any(|value| value.within.is_some() || value.between.is_some());
    let holds = pairs().all(|(value, number)| fits(value, *number)) && expected.order.is_none_or(|order| follow(order, numbers));
    let verdict = match (is_judged, holds) {
        (false, _) => Verdict::Shown,
        (true, true) => Verdict::Holds,
        (true, false) => Verdict::Differs,
    };
    Outcome { gives: gives.join("; "), verdict }
}

fn fits(value: &Value, number: f64) -> bool {
    let is_near = match (value.printed, value.within) {
        (Some(printed), Some(within)) => (number - printed).abs() <= within * printed.abs(),
        _ => true,
    };
    is_near && value.between.is_none_or(|[least, most]| (least..=most).contains(&number))
}

fn follow(order: Order, numbers: &[f64]) -> bool {
    let largest = numbers.iter().copied().fold(f64::MIN, f64::max);
    let smallest = numbers.iter().copied().fold(f64::MAX, f64::min);
    match order {
        Order::Growing => numbers.is_sorted_by(|one, next| one < next),
        Order::Falling => numbers.is_sorted_by(|one, next| one > next),
        Order::Flat => largest <= smallest * FLAT,
    }
}

/// A number with its label and unit.
pub fn labelled(value: &Value, number: f64) -> String {
    let unit = if value.unit.is_empty() { String::new() } else { format!(" {}", value.unit) };
    let label = if value.label.is_empty() { String::new() } else { format!("{}: ", value.label) };
    format!("{label}{}{unit}", digits(number))
}

/// Four significant digits, and all digits before the point.
fn digits(number: f64) -> String {
    let whole = number.abs().max(1e-9).log10().floor() as i32;
    let text = format!("{number:.*}", usize::try_from(3 - whole).unwrap_or(0));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(rest: &str) -> Expected {
        toml::from_str(&format!("figure = \"1\"\nshows = \"\"\ncommand = \"weft\"\n{rest}")).expect("a result")
    }

    #[test]
    fn what_is_printed_and_the_order_decide() {
        let value = |rest: &str| format!("[[value]]\nlabel = \"\"\nfield = \"f\"\n{rest}\n");
        let verdict = |rest: &str, numbers: &[f64]| compared(&expected(rest), numbers).verdict;
        let near = value("printed = 100\nwithin = 0.25");
        assert_eq!(verdict(&near, &[125.0]), Verdict::Holds);
        assert_eq!(verdict(&near, &[126.0]), Verdict::Differs);
        assert_eq!(verdict(&value("printed = 100"), &[9.0]), Verdict::Shown);
        assert_eq!(verdict(&value("between = [2, 3]"), &[3.1]), Verdict::Differs);
        let two = |order: &str| format!("order = \"{order}\"\n{}{}", value(""), value(""));
        let cases = [("growing", [1.0, 2.0], [2.0, 1.0]), ("falling", [2.0, 1.0], [1.0, 1.0]), ("flat", [1.0, 1.09], [1.0, 1.2])];
        for (order, right, wrong) in cases {
            assert_eq!((verdict(&two(order), &right), verdict(&two(order), &wrong)), (Verdict::Holds, Verdict::Differs), "{order}");
        }
    }

    #[test]
    fn numbers_have_four_digits() {
        let cases = [(4693.4, "4693"), (744_837.2, "744837"), (0.012_341, "0.01234"), (3.0, "3"), (99.95, "99.95"), (0.0, "0")];
        for (number, text) in cases {
            assert_eq!(digits(number), text);
        }
    }

    #[test]
    fn what_cannot_run_is_said() {
        let mut answers = Answers::of_this_program().expect("a test is a program");
        let absent = expected("needs = \"/absent\"\nall = \"equal\"");
        assert_eq!(outcome(&absent, &mut answers, false, &mut vec![]).expect("nothing runs").verdict, Verdict::NotRun);
        let real = expected("real = true\n[[value]]\nlabel = \"\"\nfield = \"f\"\nbetween = [1, 2]");
        assert_eq!(outcome(&real, &mut answers, false, &mut vec![]).expect("nothing runs").verdict, Verdict::NotRun);
        assert_eq!(outcome(&real, &mut answers, false, &mut vec![1.5]).expect("it was measured").verdict, Verdict::Holds);
    }
}
