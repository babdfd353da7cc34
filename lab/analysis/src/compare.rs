//! Two runs, or two windows of one: per kind of operation what became faster or slower, how sure
//! that is, and one sentence about the most.
//!
//! A difference counts as clear if the 95 % intervals of the two medians do not touch; they are
//! intervals between order statistics (David and Nagaraja, Order Statistics, 2003, section 7.1), so
//! no shape of the distribution is taken for granted.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weft_charts::{Axis, Frame, Line, Lines, Rows, Series, Style, Unit, categorical, views};
use weft_trace::Stage;
use weft_trace::explain::{Explanation, KindReport};

use crate::ecdf::Durations;
use crate::run::Run;

/// A run, and the part of it that is looked at, in nanoseconds since its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The run.
    pub run: &'a Run,
    /// From here on.
    pub from: u64,
    /// Up to here.
    pub to: u64,
}

/// One kind of operation in one part.
struct Kind<'a> {
    report: &'a KindReport,
    /// Sorted, in nanoseconds.
    durations: Vec<u64>,
}

/// What differs between `a` and `b`.
pub fn compare(a: Part<'_>, b: Part<'_>) -> Value {
    let (explained_a, explained_b) = (a.run.explain(a.from, a.to), b.run.explain(b.from, b.to));
    let (kinds_a, kinds_b) = (kinds(a, &explained_a), kinds(b, &explained_b));
    let mut names: Vec<&str> = kinds_a.keys().chain(kinds_b.keys()).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let all = |explained: &Explanation| explained.operations.max(1) as f64;
    let mut rows: Vec<(f64, Value)> = Vec::new();
    for name in names {
        let (one, other) = (kinds_a.get(name), kinds_b.get(name));
        let pair = one.zip(other);
        // What one mean operation of the whole run takes longer because of this kind.
        let weight = one.map_or(0.0, |kind| kind.report.count as f64 / all(&explained_a))
            + other.map_or(0.0, |kind| kind.report.count as f64 / all(&explained_b));
        let effect_us = pair.map_or(0.0, |(one, other)| (mean_us(other.report) - mean_us(one.report)) * weight / 2.0);
        let median = pair.and_then(|(one, other)| Some((median_interval(&one.durations)?, median_interval(&other.durations)?)));
        let clear = median.map(|(one, other)| one.1 < other.0 || other.1 < one.0);
        let interval =
            median.filter(|(one, _)| one.0 > 0).map(|(one, other)| [other.0 as f64 / one.1 as f64, other.1 as f64 / one.0 as f64]);
        let stages = pair.map(|(one, other)| stage_changes(one.report, other.report)).unwrap_or_default();
        let row = json!({
            "operation": name, "a": one.map(|kind| facts(kind, &explained_a)), "b": other.map(|kind| facts(kind, &explained_b)),
            "effect_us": effect_us, "clear": clear, "median_ratio": interval,
            "stages": stages.iter().map(|(stage, us)| json!([stage.name(), us])).collect::<Vec<_>>(),
        });
        rows.push((effect_us, row));
    }
    rows.sort_by(|(one, _), (other, _)| other.abs().total_cmp(&one.abs()));
    let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    let seconds = |part: Part<'_>| part.to.min(part.run.duration_ns).saturating_sub(part.from).max(1) as f64 / 1e9;
    let rate = |explained: &Explanation, part: Part<'_>| explained.operations as f64 / seconds(part);
    let (rate_a, rate_b) = (rate(&explained_a, a), rate(&explained_b, b));
    json!({
        "a": { "name": a.run.name, "operations": explained_a.operations, "rate": rate_a, "seconds": seconds(a), "covered": explained_a.covered },
        "b": { "name": b.run.name, "operations": explained_b.operations, "rate": rate_b, "seconds": seconds(b), "covered": explained_b.covered },
        "sentences": sentences(&rows, (rate_a, rate_b), (explained_a.operations, explained_b.operations)),
        "kinds": rows,
        "explain": [explained_a, explained_b],
    })
}

/// The distribution functions of both parts: of one kind of operation, or of all if `operation` is
/// empty.
pub fn ecdf(a: Part<'_>, b: Part<'_>, operation: &str) -> Lines {
    let line = |(number, (letter, part)): (usize, (&str, Part<'_>))| {
        let (begin, end) = part.run.absolute(part.from, part.to);
        let mut durations = Durations::default();
        for one in part.run.analyse().analysis.between(begin, end) {
            if operation.is_empty() || part.run.merged.nodes[one.node].events.name(one.event) == operation {
                durations.record(one.dur_ns);
            }
        }
        let points = durations.points().into_iter().map(|(ns, share)| (ns.max(1) as f64 / 1e9, share)).collect();
        let style = if number == 0 { Style::Line } else { Style::Dashed };
        let count = rounded(durations.count() as f64);
        Line { name: format!("{letter}: {}, {count} operations", part.run.name), color: categorical(number).color, style, points }
    };
    let what = if operation.is_empty() { "all operations of clients" } else { operation };
    Lines {
        frame: Frame::new("Share of the operations that were at least as fast", what).sized(860, 340),
        x: Axis::log("latency", Unit::Seconds),
        y: Axis::linear("share of the operations", Unit::Share).ranging(0.0, 1.0),
        lines: [("A", a), ("B", b)].into_iter().enumerate().map(line).collect(),
        marks: Vec::new(),
    }
}

/// Kinds of operations in the picture of stages at most.
const ROWS_MAX: usize = 6;

/// Where the time of the mean operation of each kind goes in both parts: two rows for each kind
/// that both have.
pub fn stages(a: Part<'_>, b: Part<'_>) -> Rows {
    let explained = [a.run.explain(a.from, a.to), b.run.explain(b.from, b.to)];
    let other = |name: &str| explained[1].kinds.iter().find(|kind| kind.operation == name);
    let pairs = explained[0].kinds.iter().filter_map(|kind| Some((kind, other(&kind.operation)?))).take(ROWS_MAX);
    let rows: Vec<(String, &KindReport)> =
        pairs.flat_map(|(one, other)| [(format!("{} A", one.operation), one), (format!("{} B", other.operation), other)]).collect();
    let mean_s = |kind: &KindReport, stage: Stage| {
        let seconds = kind.stages.iter().find(|other| other.stage == stage.name()).map_or(0.0, |found| found.seconds);
        seconds / kind.count.max(1) as f64
    };
    let part = |stage: Stage| Series {
        name: stage.title().to_string(),
        fill: views::stage_fill(stage),
        values: rows.iter().map(|(_, kind)| mean_s(kind, stage)).collect(),
    };
    Rows {
        frame: Frame::new("Where the time of the mean operation goes", "").sized(1000, 200),
        rows: rows.iter().map(|(name, _)| name.clone()).collect(),
        x: Axis::linear("time of the mean operation", Unit::Seconds),
        parts: Stage::ALL.into_iter().map(part).filter(|part| part.values.iter().any(|value| *value > 0.0)).collect(),
    }
}

fn kinds<'a>(part: Part<'_>, explained: &'a Explanation) -> BTreeMap<String, Kind<'a>> {
    let (begin, end) = part.run.absolute(part.from, part.to);
    let mut durations: BTreeMap<(usize, u16), Vec<u64>> = BTreeMap::new();
    for operation in part.run.analyse().analysis.between(begin, end) {
        durations.entry((operation.node, operation.event.0)).or_default().push(operation.dur_ns);
    }
    let mut named: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for ((node, event), durations) in durations {
        named.entry(part.run.merged.nodes[node].events.name(weft_trace::EventId(event))).or_default().extend(durations);
    }
    named.values_mut().for_each(|durations| durations.sort_unstable());
    let kind = |report: &'a KindReport| Some((report.operation.clone(), Kind { report, durations: named.remove(&report.operation)? }));
    explained.kinds.iter().filter_map(kind).collect()
}

fn facts(kind: &Kind<'_>, explained: &Explanation) -> Value {
    let report = kind.report;
    json!({
        "count": report.count, "failed": report.failed, "seconds": report.seconds, "share": report.seconds / explained.seconds.max(1e-12),
        "mean_us": mean_us(report), "p50_us": report.p50_us, "p99_us": report.p99_us, "max_us": kind.durations.last().map_or(0.0, |ns| *ns as f64 / 1e3),
    })
}

fn mean_us(report: &KindReport) -> f64 {
    report.seconds * 1e6 / report.count.max(1) as f64
}

/// Microseconds that one operation spends longer in each stage, the largest change first.
fn stage_changes(a: &KindReport, b: &KindReport) -> Vec<(Stage, f64)> {
    let mean = |report: &KindReport, stage: Stage| {
        let found = report.stages.iter().find(|other| other.stage == stage.name());
        found.map_or(0.0, |found| found.seconds * 1e6 / report.count.max(1) as f64)
    };
    let mut changes: Vec<(Stage, f64)> = Stage::ALL.into_iter().map(|stage| (stage, mean(b, stage) - mean(a, stage))).collect();
    changes.retain(|(_, us)| *us != 0.0);
    changes.sort_by(|one, other| other.1.abs().total_cmp(&one.1.abs()));
    changes
}

/// Values between which the median of all such operations lies in 95 of 100 cases, from sorted
/// durations: the entries of rank n/2 - 0.98 sqrt(n) and n/2 + 1 + 0.98 sqrt(n). `None` for less
/// than 6 entries, which give no such interval.
pub fn median_interval(sorted: &[u64]) -> Option<(u64, u64)> {
    let count = sorted.len() as f64;
    if sorted.len() < 6 {
        return None;
    }
    let half = 0.98 * count.sqrt();
    let low = (count / 2.0 - half).floor().max(1.0) as usize;
    let high = (count / 2.0 + 1.0 + half).ceil().min(count) as usize;
    Some((sorted[low - 1], sorted[high - 1]))
}

/// A part of less than this of the mean operation's time is not worth a sentence.
const WORTH_SAYING: f64 = 0.01;

fn sentences(rows: &[Value], (rate_a, rate_b): (f64, f64), (count_a, count_b): (u64, u64)) -> Vec<String> {
    if count_a == 0 || count_b == 0 {
        let which = match (count_a, count_b) {
            (0, 0) => "Neither A nor B has any",
            (0, _) => "A has no",
            _ => "B has no",
        };
        return vec![format!("{which} operations of clients in this window.")];
    }
    let mut said = vec![match rate_b / rate_a {
        ratio if (0.98..=1.02).contains(&ratio) => {
            format!("A and B do about the same number of operations a second ({} and {}).", rounded(rate_a), rounded(rate_b))
        }
        ratio => {
            format!("B does {} operations a second where A does {}: {}.", rounded(rate_b), rounded(rate_a), change(ratio, "more", "fewer"))
        }
    }];
    let number = |row: &Value, side: &str, field: &str| row[side][field].as_f64();
    let whole = rows.iter().filter_map(|row| Some(number(row, "a", "mean_us")? * number(row, "a", "count")? / count_a as f64)).sum::<f64>();
    let most = rows.iter().find(|row| row["effect_us"].as_f64().is_some_and(|us| us.abs() > WORTH_SAYING * whole));
    match most {
        Some(row) => said.push(most_changed(row)),
        None => said.push("No kind of operation changed the mean time by more than 1 %.".into()),
    }
    for (side, other) in [("a", "B"), ("b", "A")] {
        let only = rows.iter().filter(|row| row[if side == "a" { "b" } else { "a" }].is_null()).filter_map(|row| row["operation"].as_str());
        let only: Vec<&str> = only.collect();
        if !only.is_empty() {
            said.push(format!("{} {} not in {other}.", only.join(", "), if only.len() == 1 { "is" } else { "are" }));
        }
    }
    said
}

fn most_changed(row: &Value) -> String {
    let number = |side: &str, field: &str| row[side][field].as_f64().unwrap_or(0.0);
    let (mean_a, mean_b) = (number("a", "mean_us"), number("b", "mean_us"));
    let sure = match row["clear"].as_bool() {
        Some(true) => "the medians' 95 % intervals are apart",
        Some(false) => "but the medians' 95 % intervals overlap: the usual operation may be the same",
        None => "from too few operations to be sure",
    };
    let stage = row["stages"].get(0).and_then(|stage| Some((Stage::from_name(stage[0].as_str()?)?, stage[1].as_f64()?)));
    let stage = stage.map_or_else(String::new, |(stage, us)| {
        let word = if us > 0.0 { "longer" } else { "shorter" };
        format!(" Most of it: {} is {} {word} for each.", stage.title(), micros(us.abs()))
    });
    format!(
        "Most changed {}: {} on the mean instead of {} ({}), median {} instead of {}, {sure}.{stage}",
        row["operation"].as_str().unwrap_or("?"),
        micros(mean_b),
        micros(mean_a),
        change(mean_b / mean_a.max(1e-9), "more", "less"),
        micros(number("b", "p50_us")),
        micros(number("a", "p50_us")),
    )
}

fn change(ratio: f64, more: &str, less: &str) -> String {
    match ratio {
        ratio if ratio >= 3.0 => format!("{} times as much", rounded(ratio)),
        ratio if ratio >= 1.0 => format!("{} % {more}", rounded((ratio - 1.0) * 100.0)),
        ratio => format!("{} % {less}", rounded((1.0 - ratio) * 100.0)),
    }
}

fn micros(us: f64) -> String {
    weft_charts::Unit::Seconds.format(us / 1e6)
}

/// About three digits.
fn rounded(value: f64) -> String {
    weft_charts::Unit::Count.format(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, merged};

    fn run(seed: u64, data: u16) -> Run {
        Run::new(merged(&Sample { operations: 1_200, seed, data, ..Sample::default() }), Vec::new())
    }

    fn whole(run: &Run) -> Part<'_> {
        Part { run, from: 0, to: run.duration_ns }
    }

    #[test]
    fn a_run_does_not_differ_from_itself() {
        let run = run(1, 4);
        let same = compare(whole(&run), whole(&run));
        for row in same["kinds"].as_array().unwrap() {
            assert_eq!((row["effect_us"].as_f64(), row["clear"].as_bool(), &row["a"]), (Some(0.0), Some(false), &row["b"]));
        }
        let said = same["sentences"].to_string();
        assert!(said.contains("about the same") && said.contains("No kind of operation changed"), "{said}");
    }

    #[test]
    fn what_got_slower_is_named_with_its_stage_and_the_other_way_round_it_got_faster() {
        // One data server instead of four: writes and reads queue there.
        let (four, one) = (run(1, 4), run(1, 1));
        let worse = compare(whole(&four), whole(&one));
        let first = &worse["kinds"][0];
        assert!(first["effect_us"].as_f64().unwrap() > 0.0);
        assert!(["client.write", "client.read"].contains(&first["operation"].as_str().unwrap()), "{first}");
        assert_eq!((first["clear"].as_bool(), first["stages"][0][0].as_str()), (Some(true), Some("server_queue")));
        let said = worse["sentences"][1].as_str().unwrap();
        assert!(said.contains(first["operation"].as_str().unwrap()) && said.contains("server queue") && said.contains("longer"), "{said}");
        let better = compare(whole(&one), whole(&four));
        assert_eq!(better["kinds"][0]["effect_us"].as_f64().unwrap(), -first["effect_us"].as_f64().unwrap());
        assert!(better["sentences"][1].as_str().unwrap().contains("shorter"));
    }

    #[test]
    fn the_stages_of_a_row_add_up_to_the_mean_operation() {
        let (four, one) = (run(1, 4), run(1, 1));
        let (rows, told) = (stages(whole(&four), whole(&one)), compare(whole(&four), whole(&one)));
        for kind in told["kinds"].as_array().unwrap() {
            for (letter, side) in [("A", "a"), ("B", "b")] {
                let name = format!("{} {letter}", kind["operation"].as_str().unwrap());
                let row = rows.rows.iter().position(|other| *other == name).unwrap();
                let sum: f64 = rows.parts.iter().map(|part| part.values[row]).sum();
                assert!((sum * 1e6 - kind[side]["mean_us"].as_f64().unwrap()).abs() < 1e-3, "{name}");
            }
        }
    }

    #[test]
    fn an_empty_window_is_said_and_nothing_is_divided_by_zero() {
        let run = run(1, 4);
        let empty = compare(whole(&run), Part { run: &run, from: 1, to: 2 });
        assert_eq!(empty["sentences"][0], "B has no operations of clients in this window.");
        assert!(!empty.to_string().contains("null,\"rate"));
    }

    #[test]
    fn the_interval_of_the_median_holds_it_and_narrows() {
        let of = |count: u64| median_interval(&(1..=count).collect::<Vec<_>>());
        assert_eq!((of(5), of(6)), (None, Some((1, 6))));
        let (low, high) = of(10_000).unwrap();
        assert!((4_900..5_000).contains(&low) && (5_001..5_101).contains(&high), "{low} {high}");
    }
}
