//! Results as rows: medians, ranges, intervals, and ratios of pairs of the same repetition.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::Value;
use weft_analysis::results::Phase;
use weft_bench::{Found, Row, agree, table};

use crate::results::{Line, Results, Run};

/// What came out so far.
pub struct Summary {
    rows: Vec<Row>,
    /// What is not in the rows, for people.
    head: String,
    notes: String,
}

impl Summary {
    /// Of all lines of a file.
    pub fn of(results: &Results) -> Summary {
        let mut places: Vec<&str> = Vec::new();
        let mut groups: Vec<(&Run, Vec<&Run>)> = Vec::new();
        let hosts: usize = results.runs().map(|run| run.hosts).max().unwrap_or(0);
        let is_same = |one: &Run, other: &Run| {
            (one.case, &one.parameters, &one.phase.phase, one.hosts) == (other.case, &other.parameters, &other.phase.phase, other.hosts)
        };
        for run in results.runs() {
            if !places.contains(&run.place.as_str()) {
                places.push(&run.place);
            }
            match groups.iter_mut().find(|(known, _)| is_same(known, run)) {
                Some((_, members)) => members.push(run),
                None => groups.push((run, vec![run])),
            }
        }
        // Places as they were named, cases as they stand in the plan: they were done in another
        // order.
        if let Some((_, asked, _)) = results.first() {
            let rank = |place: &str| asked.places.iter().position(|known| known.split('=').next() == Some(place));
            places.sort_by_key(|place| rank(place).unwrap_or(usize::MAX));
        }
        groups.sort_by_key(|(run, _)| run.case.unwrap_or(usize::MAX));
        let first_of = |run: &Run, place: &str| {
            let same = |other: &&Run| {
                other.place == places[0] && other.phase.phase == run.phase.phase && agree(&run.parameters, &other.parameters)
            };
            // Simulated places are beside the median of what was measured.
            let simulated = run.case.is_none() && place != places[0];
            let rates: Vec<f64> = results.runs().filter(same).map(|other| other.phase.ops_per_s.median).collect();
            simulated.then(|| weft_analysis::results::Spread::of(rates)).flatten().map(|spread| spread.median)
        };
        let mut rows = Vec::new();
        for (group, members) in &groups {
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
                let mut parameters = group.parameters.clone();
                match own.first().filter(|run| !run.own.is_empty()) {
                    Some(run) => parameters.extend(run.own.clone()),
                    None if places.len() > 1 => drop(parameters.insert("place".into(), Value::from(*place))),
                    None => {}
                }
                if hosts > 0 {
                    parameters.insert("hosts".into(), Value::from(group.hosts));
                }
                let disks = own.iter().filter_map(|run| run.disk).collect();
                rows.push(Row::of(Found {
                    parameters,
                    phase,
                    samples: phases.iter().map(|one| one.ops_per_s.median).collect(),
                    ratios,
                    disks,
                }));
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

fn head(results: &Results) -> String {
    let Some((seed, asked, environment)) = results.first() else { return String::new() };
    let loads: Vec<f64> = results.runs().filter(|run| run.case.is_some()).map(|run| run.load).collect();
    let load = weft_analysis::results::Spread::of(loads);
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
