//! `weft predict run`: measured, predicted and bound side by side.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::{Map, Value};
use weft_analysis::results::Spread;
use weft_bench::{LocalPlan, Stop, agree};
use weft_host::connect::Common;
use weft_host::output::{Table, print_as, tell};
use weft_lab_sim::{VirtualPhase, virtual_phases};
use weft_plan::files::Lab;

use crate::twin::{Rates, Twin};

/// What is measured may be so much above a bound before the bound is called wrong: repetitions
/// differ.
const BOUND_SLACK: f64 = 1.05;

/// Predict what a plan would give
///
/// The plan's file system and work in virtual time, by the code of the real servers and clients, on
/// a machine as `weft predict calibrate` has found it. With --what-if the same again with other
/// values of the plan or of the machine.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "together: what waits for each other runs on one processor, so that no message has to wake another one; which of the two it will be is the
kernel's choice, from run to run. A measured rate between the two has no error.
A bound is the rate at which the busiest part of the machine would have nothing else to do; no order of work gives more.

Examples:
  weft predict run weft-creates --set clients=1,2,4 --measure
  weft predict run weft-creates --machine machine.toml --what-if weft.metadata_servers=4
  weft predict run weft-streams --machine machine.toml --what-if weft.shared_cores=none,servers=8 --what-if disk.bandwidth=7GiB"
)]
pub struct Args {
    /// Name or file of a plan among `weft sim list` with `system = "weft"`, or of `weft bench run`
    plan: String,
    /// The machine: a profile. With --measure it keeps how far off predictions were [default: that
    /// of this machine, of `weft predict calibrate`]
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Another value of a key of the plan, with the table before it; commas make a list
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The same with these other values, separated by commas; more than once for several. What is
    /// said about the network is about machines of their own: processes of one need no card
    #[arg(long, value_name = "KEY=VALUE,...")]
    what_if: Vec<String>,
    /// Do the plan on this machine, too, on temporary file systems
    #[arg(long)]
    measure: bool,
    /// Repetitions of what is measured [default: what the plan says]
    #[arg(long, value_name = "N", requires = "measure", value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: Option<u32>,
    /// Where the file systems are [default: where temporary files are]
    #[arg(long, value_name = "DIR", requires = "measure")]
    dir: Option<PathBuf>,
    /// Folder with plans/; what is not there is taken from the program itself
    #[arg(long, default_value = "lab")]
    lab: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One phase of one case.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    parameters: Map<String, Value>,
    phase: String,
    /// Operations a second on this machine.
    measured: Option<Spread>,
    /// Operations a second in virtual time, if each message wakes a processor that sleeps.
    predicted: f64,
    /// The same if the kernel runs who waits for each other on one processor, so that none sleeps.
    predicted_together: f64,
    /// What was predicted by what was measured, less 1: 0 between the two predictions, of which the
    /// kernel chooses.
    error: Option<f64>,
    /// Operations a second that the busiest part of the machine would bear.
    bound: f64,
    /// This part, or `latencies` where all are idle for most of the time.
    waits_for: String,
    /// Measured above the bound: the profile is wrong about this part.
    is_above_bound: bool,
    /// Other values, and operations a second with them.
    what_if: Vec<WhatIf>,
}

#[derive(Debug, Serialize)]
struct WhatIf {
    values: String,
    predicted: f64,
    /// Of what is predicted without them.
    ratio: f64,
    waits_for: String,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        let lab = Lab::near(self.lab.clone());
        let twin = Twin::open(self.machine.as_deref())?;
        let mut twin =
            twin.context("there is no profile of this machine: `weft predict calibrate` makes one, --machine FILE names another")?;
        let virtual_rows = virtual_phases(&lab, &self.plan, &self.settings(&twin, &[]))?;
        let together = virtual_phases(&lab, &self.plan, &self.settings(&twin, &["process.wake=0ns".into()]))?;
        let mut rows = virtual_rows.iter().zip(&together).map(|(row, together)| Row::of(row, together)).collect::<Result<Vec<Row>>>()?;
        for values in &self.what_if {
            let changed = virtual_phases(&lab, &self.plan, &self.settings(&twin, &other_values(values)?))
                .with_context(|| format!("with {values}"))?;
            for row in &mut rows {
                if let Some(found) = changed.iter().find(|found| row.is_like(found)) {
                    let other = Row::of(found, found)?;
                    let ratio = other.predicted / row.predicted;
                    row.what_if.push(WhatIf { values: values.clone(), predicted: other.predicted, ratio, waits_for: other.waits_for });
                }
            }
        }
        if self.measure {
            let plan = LocalPlan { lab: &lab, name: &self.plan, set: &self.set, repetitions: self.reps, dir: self.dir.as_deref() };
            let real = plan.measure(common, &Stop::at_signals()?)?.rows;
            for row in &mut rows {
                let same = real.iter().find(|real| row.phase == real.phase.phase && agree(&row.parameters, &real.parameters));
                row.measured(same.map(|real| real.phase.ops_per_s));
            }
            if let Err(error) = twin.remember(rows.iter().filter_map(|row| row.error)) {
                tell(&format!("what was found out is not kept: {error:#}"));
            }
        }
        print_as(self.json, &rows, || shown(&rows))?;
        Ok(ExitCode::SUCCESS)
    }

    /// The plan's values, on this machine; later ones win.
    fn settings(&self, twin: &Twin, more: &[String]) -> Vec<String> {
        [&twin.machine()[..], &self.set, more].concat()
    }
}

/// As a value of a plan: a path is told from the name of a built-in profile by a slash, and may
/// have commas.
pub(crate) fn path_of(file: &std::path::Path) -> String {
    let path = file.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    if path.contains('/') { format!("\"{path}\"") } else { format!("\"./{path}\"") }
}

/// The values of one alternative. Messages only pass a network between machines.
fn other_values(written: &str) -> Result<Vec<String>> {
    let mut values: Vec<String> = written.split(',').map(|value| value.trim().to_string()).collect();
    for value in &values {
        ensure!(value.contains('='), "--what-if: {value} is not KEY=VALUE");
    }
    let is_about = |key: &str| values.iter().any(|value| value.starts_with(key));
    if is_about("network.") && !is_about("weft.shared_cores") {
        values.push("weft.shared_cores=none".into());
    }
    Ok(values)
}

impl Row {
    fn of(phase: &VirtualPhase, together: &VirtualPhase) -> Result<Row> {
        let number_of = |phase: &VirtualPhase, key: &str| {
            phase.results.get(key).and_then(Value::as_f64).with_context(|| format!("a simulated case has no {key}"))
        };
        // What is still to be written when clients are done is not their time.
        let bound =
            |phase| anyhow::Ok(number_of(phase, "operations_per_second")? / number_of(phase, "busy")?.clamp(f64::MIN_POSITIVE, 1.0));
        let text = |key: &str| phase.results.get(key).and_then(Value::as_str).unwrap_or_default().to_string();
        let predicted = number_of(phase, "operations_per_second")?;
        Ok(Row {
            parameters: phase.parameters.clone(),
            phase: text("phase"),
            measured: None,
            predicted,
            predicted_together: number_of(together, "operations_per_second")?,
            error: None,
            bound: bound(phase)?.max(bound(together)?),
            waits_for: text("waits_for"),
            is_above_bound: false,
            what_if: Vec::new(),
        })
    }

    /// True for the same case and phase with other values.
    fn is_like(&self, other: &VirtualPhase) -> bool {
        other.results.get("phase").and_then(Value::as_str) == Some(&self.phase) && agree(&self.parameters, &other.parameters)
    }

    fn measured(&mut self, rate: Option<Spread>) {
        self.measured = rate;
        let predicted = Rates { apart: self.predicted, together: self.predicted_together };
        self.error = rate.map(|rate| predicted.error(rate.median));
        self.is_above_bound = rate.is_some_and(|rate| rate.median > BOUND_SLACK * self.bound);
    }
}

fn shown(rows: &[Row]) -> String {
    let keys: Vec<&String> = rows.first().map(|row| row.parameters.keys().collect()).unwrap_or_default();
    let is_measured = rows.iter().any(|row| row.measured.is_some());
    let mut headings: Vec<String> = keys.iter().map(|key| key.rsplit('.').next().unwrap_or_default().to_string()).collect();
    headings.push("phase".into());
    if is_measured {
        headings.extend([">measured/s", "min - max"].map(String::from));
    }
    headings.extend([">predicted/s", ">together/s"].map(String::from));
    if is_measured {
        headings.push(">error".into());
    }
    headings.extend([">bound/s", "waits for"].map(String::from));
    let alternatives: Vec<&str> =
        rows.first().map(|row| row.what_if.iter().map(|other| other.values.as_str()).collect()).unwrap_or_default();
    for values in &alternatives {
        headings.extend([format!(">{values}"), "times".into()]);
    }
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    for row in rows {
        let mut cells: Vec<String> = keys.iter().map(|key| word(&row.parameters[*key])).collect();
        cells.push(row.phase.clone());
        if is_measured {
            cells.push(row.measured.map_or_else(|| "-".into(), |rate| whole(rate.median)));
            cells.push(row.measured.map_or_else(String::new, |rate| format!("{} - {}", whole(rate.min), whole(rate.max))));
        }
        cells.push(whole(row.predicted));
        cells.push(whole(row.predicted_together));
        if is_measured {
            cells.push(row.error.map_or_else(String::new, |error| format!("{:+.0} %", error * 100.0)));
        }
        cells.push(whole(row.bound));
        cells.push(row.waits_for.clone());
        for values in &alternatives {
            let found = row.what_if.iter().find(|other| other.values == **values);
            cells.push(found.map_or_else(|| "-".into(), |other| whole(other.predicted)));
            cells.push(found.map_or_else(String::new, |other| format!("{:.2}", other.ratio)));
        }
        table.row(cells);
    }
    let mut text = table.render();
    let errors: Vec<f64> = rows.iter().filter_map(|row| row.error.map(f64::abs)).collect();
    if let Some(spread) = Spread::of(errors) {
        text += &format!("error: median {:.0} %, worst {:.0} %\n", spread.median * 100.0, spread.max * 100.0);
    }
    let mut wrong: Vec<&str> = rows.iter().filter(|row| row.is_above_bound).map(|row| row.waits_for.as_str()).collect();
    let count = wrong.len();
    wrong.sort_unstable();
    wrong.dedup();
    if count > 0 {
        text += &format!("{count} measured above their bound: the profile makes this too slow: {}\n", wrong.join(", "));
    }
    text
}

/// A rate for people: three digits, or all before the point.
fn whole(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(clients: u64, rate: f64) -> VirtualPhase {
        let results = serde_json::json!({ "phase": "create", "operations_per_second": rate, "busy": 0.5, "waits_for": "latencies" });
        let parameters = Map::from_iter([("clients".to_string(), Value::from(clients))]);
        VirtualPhase { parameters, results: results.as_object().expect("an object").clone() }
    }

    #[test]
    fn cases_meet_their_own_and_errors_are_told() {
        let mut rows: Vec<Row> = [row(1, 110.0), row(2, 300.0)].iter().map(|row| Row::of(row, row).expect("a row")).collect();
        assert!(rows[0].is_like(&row(1, 5.0)) && !rows[0].is_like(&row(2, 5.0)));
        let recorded = Map::from_iter([("clients".to_string(), Value::from(1)), ("local.record".into(), Value::from("*"))]);
        assert!(agree(&rows[0].parameters, &recorded) && !agree(&rows[1].parameters, &recorded));
        rows[0].measured(Spread::of([100.0]));
        rows[1].measured(Spread::of([700.0]));
        assert!(!rows[0].is_above_bound && rows[1].is_above_bound, "its bound is 600");
        let text = shown(&rows);
        assert!(text.contains("+10 %") && text.contains("error: median 34 %, worst 57 %"), "{text}");
        assert!(text.contains("1 measured above their bound: the profile makes this too slow: latencies"), "{text}");
    }

    #[test]
    fn the_file_of_a_machine_may_have_any_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a, \"b\" \\c.toml");
        std::fs::write(&file, "description = \"none\"\n").expect("a file");
        let missing = virtual_phases(&Lab::built_in(), "probes", &[format!("profile={}", path_of(&file))]).expect_err("it says nothing");
        assert!(missing.to_string().contains("model: is missing"), "{missing:#}");
        assert_eq!(path_of("machine.toml".as_ref()), "\"./machine.toml\"");
    }

    #[test]
    fn a_network_is_between_machines() {
        assert_eq!(other_values("servers=4").expect("values"), ["servers=4"]);
        assert_eq!(other_values("network.link_latency=1us, servers=4").expect("values")[2], "weft.shared_cores=none");
        assert_eq!(other_values("network.link_latency=1us,weft.shared_cores=8").expect("values").len(), 2);
        assert!(other_values("servers").is_err());
    }
}
