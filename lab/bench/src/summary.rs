//! Results as rows: medians, ranges, intervals, and ratios of pairs of the same repetition.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::Value;
use weft_analysis::results::{Phase, Spread};
use weft_host::in_order::{by_key, once_each};

use crate::findings::{Row, agree, table};
use crate::results::{Line, Records, Results, Run};
use crate::stats::median_interval;
use crate::usage::Used;

/// What came out so far.
pub struct Summary {
    /// Of each step of each case at each place.
    pub rows: Vec<Row>,
    /// What is not in the rows, for people.
    head: String,
    notes: String,
}

impl Summary {
    /// Of all lines of a file.
    pub fn of(results: &Results) -> Summary {
        let mut places = once_each(results.runs().map(|run| run.place.as_str()));
        let hosts: usize = results.runs().map(|run| run.hosts).max().unwrap_or(0);
        let mut groups = by_key(results.runs().map(|run| ((run.case, &run.parameters, &run.phase.phase, run.hosts), run)));
        // Places as they were named, cases as they stand in the plan: they were done in another
        // order.
        if let Some((_, asked, _)) = results.first() {
            let rank = |place: &str| asked.places.iter().position(|known| known.split('=').next() == Some(place));
            places.sort_by_key(|place| rank(place).unwrap_or(usize::MAX));
        }
        groups.sort_by_key(|((case, ..), _)| case.unwrap_or(usize::MAX));
        let first_of = |run: &Run, place: &str| {
            let same = |other: &&Run| {
                other.place == places[0] && other.phase.phase == run.phase.phase && agree(&run.parameters, &other.parameters)
            };
            // Simulated places are beside the median of what was measured.
            let simulated = run.case.is_none() && place != places[0];
            let rates: Vec<f64> = results.runs().filter(same).map(|other| other.phase.ops_per_s.median).collect();
            simulated.then(|| Spread::of(rates)).flatten().map(|spread| spread.median)
        };
        let mut rows = Vec::new();
        for ((_, parameters_of, _, hosts_of), members) in &groups {
            for place in &places {
                let own: Vec<&Run> = members.iter().copied().filter(|run| run.place == **place).collect();
                let phases: Vec<Phase> = own.iter().map(|run| run.phase.clone()).collect();
                let Some(phase) = Phase::over(&phases) else { continue };
                let rate_of_first = |repetition: u32| {
                    let first = members.iter().find(|run| run.place == places[0] && run.repetition == repetition)?;
                    Some(first.phase.ops_per_s.median)
                };
                let pair = |run: &&Run| Some(run.phase.ops_per_s.median / rate_of_first(run.repetition).or_else(|| first_of(run, place))?);
                let ratios = if *place == places[0] { Vec::new() } else { own.iter().filter_map(pair).collect() };
                let mut parameters = (*parameters_of).clone();
                match own.first().filter(|run| !run.own.is_empty()) {
                    Some(run) => parameters.extend(run.own.clone()),
                    None if places.len() > 1 => drop(parameters.insert("place".into(), Value::from(*place))),
                    None => {}
                }
                if hosts > 0 {
                    parameters.insert("hosts".into(), Value::from(*hosts_of));
                }
                let samples: Vec<f64> = phases.iter().map(|one| one.ops_per_s.median).collect();
                rows.push(Row {
                    parameters,
                    ratio_to_first: Spread::of(ratios.iter().copied()),
                    ratio_interval: median_interval(ratios),
                    ops_interval: median_interval(samples.iter().copied()),
                    samples,
                    disk: median_disk(&own),
                    predicted: None,
                    records: records(&own),
                    phase,
                });
            }
        }
        Summary { rows, head: head(results), notes: notes(results) }
    }

    /// As `weft bench run --json`.
    ///
    /// # Errors
    /// None: all keys are strings.
    pub fn json(&self) -> Result<Vec<Value>> {
        Ok(self.rows.iter().map(Row::json).collect::<serde_json::Result<_>>()?)
    }

    /// The table for people.
    pub fn text(&self) -> String {
        format!("{}{}{}", self.head, table(&self.rows), self.notes)
    }
}

/// Of the median repetition by operations.
fn median_disk(runs: &[&Run]) -> Used {
    let mut disks: Vec<Used> = runs.iter().filter_map(|run| run.disk).collect();
    disks.sort_by_key(|disk| disk.operations);
    disks.get(disks.len() / 2).copied().unwrap_or_default()
}

/// Of all repetitions.
fn records(runs: &[&Run]) -> Option<Records> {
    let all = runs.iter().filter_map(|run| run.records);
    all.reduce(|sum, more| Records { taken: sum.taken + more.taken, lost: sum.lost + more.lost })
}

fn head(results: &Results) -> String {
    let Some((seed, asked, environment)) = results.first() else { return String::new() };
    let loads: Vec<f64> = results.runs().filter(|run| run.case.is_some()).map(|run| run.load).collect();
    let load = Spread::of(loads);
    let load = load.map_or(String::new(), |load| format!(", load {:.1} ({:.1} - {:.1})", load.median, load.min, load.max));
    format!(
        "{}, orders drawn from {seed}; Weft {}, {}, {} processors, Linux {}{load}\n",
        asked.plan, environment.weft, environment.machine, environment.processors, environment.kernel
    )
}

fn notes(results: &Results) -> String {
    let mut text = String::new();
    for line in &results.lines {
        if let Line::Lost { host, place, why, .. } = line {
            let who = host.as_ref().map(|host| format!("host {host}")).or(place.as_ref().map(|place| format!("place {place}")));
            let _ = writeln!(text, "lost: {}: {why}", who.unwrap_or_default());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::results::Asked;

    #[test]
    fn each_repetition_is_held_against_the_first_place() {
        let of = |value: Value| value.as_object().expect("an object").clone();
        // In a plan clients are processes; a phase has one of its own for those of a process.
        let run = |layer: &str, repetition: u32, seconds: f64, operations: u64| {
            let rate = json!({ "median": 100.0 / seconds, "min": 100.0 / seconds, "max": 100.0 / seconds });
            let phase = json!({ "phase": "write", "repetitions": 1, "clients": 1, "ops": 100, "ops_per_s": rate });
            Line::Run(Box::new(Run {
                case: Some(0),
                parameters: of(json!({ "clients": 25 })),
                place: layer.to_string(),
                own: Map::from_iter([("server.cache_layer".to_string(), Value::from(layer))]),
                repetition,
                hosts: 0,
                load: 0.0,
                phase: serde_json::from_value(phase).expect("a phase"),
                disk: Some(Used { operations, ..Used::default() }),
                records: None,
            }))
        };
        let asked = Asked { places: ["none=temporary", "aggregation=temporary"].map(String::from).into(), ..Asked::default() };
        let mut lines = vec![Line::session(7, asked, Default::default())];
        for (repetition, (none, aggregation)) in (1..).zip([((1.0, 10), (2.0, 5)), ((2.0, 12), (2.0, 7)), ((4.0, 11), (2.0, 6))]) {
            lines.push(run("aggregation", repetition, aggregation.0, aggregation.1));
            lines.push(run("none", repetition, none.0, none.1));
        }
        let summary = Summary::of(&Results { lines });
        let [first, second] = &summary.rows[..] else { panic!("a row for each place") };
        assert_eq!((first.disk.operations, first.ratio_to_first, first.samples.as_slice()), (11, None, &[100.0, 50.0, 25.0][..]));
        assert_eq!(second.ratio_to_first, Some(Spread { median: 1.0, min: 0.5, max: 2.0 }));
        assert_eq!((second.parameters["server.cache_layer"].as_str(), second.disk.operations), (Some("aggregation"), 6));
        let shown = second.json().expect("an object").to_string();
        assert_eq!((shown.matches("\"clients\":").count(), shown.matches("\"clients\":25").count()), (1, 1), "{shown}");
        // Who reads the row again counts each client once.
        let mut again = weft_analysis::results::Results::default();
        again.add_json(format!("[{shown}]").as_bytes()).expect("a row of a plan");
        assert_eq!((again.phases[0].clients, again.phases[0].title()), (1, "write (server.cache_layer aggregation)".to_string()));
        let text = summary.text();
        assert!(text.contains("of the first") && !text.contains("records") && text.lines().count() == 1 + 3, "{text}");
    }
}
