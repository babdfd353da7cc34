//! Results of benchmarks: the running performance of each process (figures 4.5 to 4.8 of Vef's
//! thesis, 2016) and the latency distribution in 50 bins with the share of the time (figures 4.12
//! to 4.15).

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use weft_analysis::inputs::Input;
use weft_analysis::lanes::SpanKind;
use weft_analysis::latency;
use weft_analysis::pattern::is_like;
use weft_analysis::results::Phase;
use weft_analysis::run::Run;
use weft_analysis::running::{RunningOptions, View, chart};
use weft_charts::{Frame, Lines, Unit, stacked, views};
use weft_host::units::seconds;
use weft_trace::Stage;
use weft_trace::latency::{Latency, SLOTS, Slot, Stacked, slot_bounds_ns, slot_of};

use super::results::{CLIENTS, short};

use crate::plot::Common;

/// Nanoseconds from which on the thesis calls operations outliers.
const TAIL_NS: u64 = 950_000;

#[derive(Debug, clap::Args)]
pub struct RunningArgs {
    #[command(flatten)]
    common: Common,
    /// The phase of the benchmark
    #[arg(long, value_name = "NAME", default_value = "create")]
    phase: String,
    /// The repetition, from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    repetition: u32,
    /// Seconds that a point stands for [default: as many as are read well]
    #[arg(long, value_name = "SECONDS", value_parser = seconds(0.001, 3600.0))]
    window: Option<f64>,
}

#[derive(Debug, clap::Args)]
pub struct LatencyArgs {
    #[command(flatten)]
    common: Common,
    /// The phase of the benchmark
    #[arg(long, value_name = "NAME", default_value = "create")]
    phase: String,
    /// Of a trace: only operations of this name, with * for any letters [default: those of clients]
    #[arg(long, value_name = "EVENT")]
    of: Option<String>,
    /// Of a trace: how long operations were in this stage (journal, network, server_queue ...:
    /// `weft explain --json` names them)
    #[arg(long, value_name = "STAGE", value_parser = stage)]
    stage: Option<Stage>,
}

fn stage(text: &str) -> Result<Stage, String> {
    let names = || Stage::ALL.map(Stage::name).join(", ");
    Stage::from_name(text).ok_or_else(|| format!("there is no such stage; there are {}", names()))
}

fn load(input: &Path, label: &str) -> Result<Run> {
    Run::load(&Input { name: label.to_string(), paths: vec![input.to_path_buf()] }, |_, _| {})
}

impl RunningArgs {
    pub fn run(self) -> Result<()> {
        let panel = |(input, label): (&Path, String)| self.panel(&load(input, &label)?).with_context(|| input.display().to_string());
        let mut panels = self.common.panels()?.into_iter().map(panel).collect::<Result<Vec<Lines>>>()?;
        Lines::share_axes(&mut panels);
        let pictures: Vec<String> = panels.iter().map(Lines::svg).collect();
        self.common.write(&stacked(&self.common.title("Running performance"), &pictures))
    }

    fn panel(&self, run: &Run) -> Result<Lines> {
        let (phase, repetition) = (&self.phase, self.repetition);
        let ours = || run.results.progress.iter().filter(|one| one.phase == *phase && one.repetition == repetition);
        ensure!(ours().next().is_some(), "there is no phase `{phase}` with repetition {repetition}");
        let interval_ns = self.window.map_or(0, |seconds| (seconds * 1e9) as u64);
        let asked = RunningOptions { source: format!("{phase}:{repetition}"), interval_ns, ..RunningOptions::default() };
        let chart = chart(run, None, &asked, View { each: true, accumulated: false }, 960);
        let done: u64 = ours().flat_map(|one| &one.steps).map(|step| step.1).sum();
        let end_s = ours().flat_map(|one| &one.steps).map(|step| step.0).max().unwrap_or(0) as f64 / 1e9;
        let said = format!(
            "{} operations in {}, {} together; {}",
            Unit::Count.format(done as f64),
            Unit::Seconds.format(end_s),
            Unit::PerSecond.format(done as f64 / end_s.max(1e-9)),
            chart.frame.subtitle
        );
        Ok(Lines { frame: Frame::new(&run.name, &said).sized(960, 300), ..chart })
    }
}

impl LatencyArgs {
    pub fn run(self) -> Result<()> {
        let mut pictures = Vec::new();
        for (input, label) in self.common.panels()? {
            let text = std::fs::read_to_string(input).unwrap_or_default();
            let simulated = cases(&text).with_context(|| input.display().to_string())?;
            if simulated.is_empty() {
                let run = load(input, &label)?;
                let (title, measured) = match run.has_trace() {
                    true => self.traced(&run, &label).with_context(|| input.display().to_string())?,
                    false => (label.clone(), latencies(&run.results.phases, &self.phase).with_context(|| input.display().to_string())?),
                };
                pictures.push(bins(&title, &measured));
            }
            pictures.extend(simulated.iter().map(|(case, stacked)| bins(&format!("{label}: {case}"), stacked)));
        }
        self.common.write(&stacked(&self.common.title("Latency distributions"), &pictures))
    }
}

impl LatencyArgs {
    /// The distribution of recorded operations, a part for each node.
    fn traced(&self, run: &Run, label: &str) -> Result<(String, Stacked)> {
        let wanted = |kind: &&SpanKind| self.of.as_ref().is_some_and(|of| is_like(&kind.name, of));
        let kinds = (0..).zip(&run.lanes.kinds).filter(|(_, kind)| wanted(kind)).map(|(number, _)| number).collect::<Vec<u64>>();
        if let Some(of) = self.of.as_ref().filter(|_| kinds.is_empty()) {
            bail!("no event of this trace is called {of}");
        }
        let stacked = latency::of(run, 0, u64::MAX, &kinds, self.stage).stacked;
        let of = self.of.as_ref().map_or(String::new(), |of| format!(", {of}"));
        let inside = self.stage.map_or(String::new(), |stage| format!(", time in the stage {}", stage.title()));
        if stacked.total().count() == 0 {
            let of = self.of.as_deref().unwrap_or("of clients");
            let inside = self.stage.map_or(String::new(), |stage| format!(" that spent time in the stage {}", stage.title()));
            bail!("no operation ({of}){inside} was recorded");
        }
        Ok((format!("{label}{of}{inside}"), stacked))
    }
}

/// The distribution of each case of a plan that has been simulated, if the file holds that.
fn cases(text: &str) -> Result<Vec<(String, Stacked)>> {
    let rows: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
    let simulated = rows.iter().filter(|row| row["latencies"].is_array());
    simulated.map(|row| Ok((case(row), of_case(row)?))).collect()
}

/// What a case of a plan is called: its clients and the keys of its tables.
fn case(row: &Value) -> String {
    let keys = row.as_object().into_iter().flatten().filter(|(key, _)| *key == CLIENTS || key.contains('.'));
    keys.map(|(key, value)| format!("{} {value}", short(key))).collect::<Vec<_>>().join(", ")
}

/// The distribution of a simulated case, a part for each client.
fn of_case(row: &Value) -> Result<Stacked> {
    let bins = row["latencies"].as_array().context("a case without latencies")?;
    let mut stacked = Stacked::default();
    for client in 0..row["latencies"][0]["files_by_client"].as_array().map_or(0, Vec::len) {
        let mut slots = [Slot::default(); SLOTS];
        let (mut min_ns, mut max_ns) = (u64::MAX, 0);
        for bin in bins {
            let us = bin["us"].as_u64().context("a bin has no us")?;
            let count = bin["files_by_client"][client].as_u64().context("a bin has no files_by_client")?;
            let seconds = bin["seconds_by_client"][client].as_f64().context("a bin has no seconds_by_client")?;
            if count > 0 {
                slots[slot_of(us * 1000)] = Slot { count, sum_ns: (seconds * 1e9) as u64 };
                (min_ns, max_ns) = (min_ns.min(us * 1000), max_ns.max(us * 1000));
            }
        }
        stacked.part(&format!("client {}", client + 1)).merge(&Latency::from_slots(slots, min_ns, max_ns));
    }
    Ok(stacked)
}

/// The picture of a distribution.
fn bins(label: &str, stacked: &Stacked) -> String {
    let total = stacked.total();
    let us = |q: f64| Unit::Seconds.format(total.quantile_ns(q) as f64 / 1e9);
    let said = format!(
        "{} operations; median {}, 99 of 100 within {}, 999 of 1000 within {}",
        Unit::Count.format(total.count() as f64),
        us(0.5),
        us(0.99),
        us(0.999)
    );
    views::latency_bins(Frame::new(label, &said).sized(960, 360), stacked, Some(TAIL_NS)).svg()
}

/// The distributions of all repetitions of a phase, one for each process.
fn latencies(phases: &[Phase], phase: &str) -> Result<Stacked> {
    let of = phases.iter().find(|one| one.phase == phase).with_context(|| format!("there is no phase `{phase}`"))?;
    let processes = of.progress.as_ref().context("it holds no progress: run weft bench with --progress FILE too")?;
    let mut stacked = Stacked::default();
    for process in processes {
        let mut slots = [Slot::default(); SLOTS];
        let (mut min_ns, mut max_ns) = (u64::MAX, 0);
        for bin in &process.latency_bins {
            let place = slots.get_mut(bin.slot).context("there is no such bin")?;
            *place = Slot { count: bin.count, sum_ns: bin.sum_ns };
            let (from, to) = slot_bounds_ns(bin.slot);
            (min_ns, max_ns) = (min_ns.min(from), max_ns.max(if to == u64::MAX { place.sum_ns / place.count.max(1) } else { to - 1 }));
        }
        stacked.part(&format!("process {}", process.proc)).merge(&Latency::from_slots(slots, min_ns, max_ns));
    }
    if stacked.total().count() == 0 {
        bail!("no operation has a latency of its own: with --depth 1 each has");
    }
    Ok(stacked)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use weft_analysis::results::Results;
    use weft_trace::merge::merge;

    use super::*;

    #[test]
    fn each_process_has_a_line_and_machines_have_colours() {
        let file = "phase,repetition,proc,node,t_s,count,bytes\ncreate,0,0,a,0.1,9,0\ncreate,1,0,a,0.1,3,0\ncreate,1,0,a,0.2,4,0\n\
                    create,1,0,a,0.25,5,0\ncreate,1,1,b,0.15,7,0\nremove,1,1,b,0.1,7,0\n";
        let mut results = Results::default();
        results.add_progress(file).expect("sound");
        let run = Run::of("label", merge(Vec::new()), Vec::new(), results);
        let common = Common { inputs: Vec::new(), output: "o".into(), title: None, labels: Vec::new() };
        let args = RunningArgs { common, phase: "create".into(), repetition: 1, window: Some(0.1) };
        let panel = args.panel(&run).expect("drawn");
        assert!(panel.frame.title == "label" && panel.frame.subtitle.starts_with("19 operations in 250 ms"), "{:?}", panel.frame);
        let (one, other) = (&panel.lines[0], &panel.lines[1]);
        let rates: Vec<i64> = one.points.iter().map(|point| point.1.round() as i64).collect();
        assert_eq!((rates, other.points.len()), (vec![30, 40, 50], 2));
        assert_ne!(one.color, other.color);
        let none = RunningArgs { repetition: 7, ..args };
        assert!(none.panel(&run).expect_err("there is none").to_string().contains("no phase `create` with repetition 7"));
    }

    #[test]
    fn bins_of_a_report_come_back_as_they_were() {
        let bin = serde_json::json!({ "slot": 16, "from_ns": 65_000, "count": 3, "sum_ns": 210_000 });
        let process =
            |number: u64| serde_json::json!({ "repetition": 0, "proc": number, "interval_s": 0.1, "counts": [3], "latency_bins": [bin] });
        let rate = serde_json::json!({ "median": 1.0, "min": 1.0, "max": 1.0 });
        let progress = [process(0), process(1), process(0)];
        let report = serde_json::json!([{ "phase": "create", "ops_per_s": rate, "progress": progress }]).to_string();
        let mut results = Results::default();
        results.add_json(report.as_bytes()).expect("sound");
        let stacked = latencies(&results.phases, "create").expect("sound");
        assert_eq!((stacked.parts().len(), stacked.total().count(), stacked.total().sum_ns()), (2, 9, 630_000));
        assert!(latencies(&results.phases, "remove").is_err());
    }

    #[test]
    fn each_simulated_case_has_a_distribution_with_a_part_for_each_client() {
        let bin = |us: u64, files: [u64; 2]| {
            let seconds = files.map(|files| files as f64 * us as f64 / 1e6);
            serde_json::json!({ "us": us, "files_by_client": files, "seconds_by_client": seconds })
        };
        let rows = serde_json::json!([
            { "clients": 2, "scale.leave_threshold": 0, "latencies": [bin(1, [0, 0]), bin(300, [7, 2]), bin(1000, [0, 1])] },
            { "clients": 2, "scale.leave_threshold": 1000, "latencies": [bin(300, [1, 1])] },
        ]);
        let found = cases(&rows.to_string()).expect("two cases");
        assert_eq!((found.len(), found[0].0.as_str()), (2, "clients 2, leave_threshold 0"));
        let total = found[0].1.total();
        assert_eq!((found[0].1.parts().len(), total.count(), total.sum_ns()), (2, 10, 3_700_000));
        assert!((total.tail(950_000).0 - 0.1).abs() < 1e-9, "one of ten from 1 ms on");
        assert!(cases("[{\"latencies\": [{\"files_by_client\": [1]}]}]").is_err() && cases("{}").is_ok_and(|none| none.is_empty()));
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: LatencyArgs,
    }

    #[test]
    fn recorded_operations_have_bins_of_their_own_and_of_one_stage() {
        let run = Run::new(crate::sample::merged(&crate::sample::Sample { operations: 400, ..Default::default() }), Vec::new());
        let traced = |words: &[&str]| {
            let words = ["plot", "traces", "-o", "bins.svg"].iter().chain(words);
            Line::try_parse_from(words).map_err(|error| error.to_string())?.args.traced(&run, "run").map_err(|error| error.to_string())
        };
        let (title, all) = traced(&[]).expect("operations");
        assert_eq!((title.as_str(), all.total().count()), ("run", 400));
        let (title, journal) = traced(&["--of", "client.create", "--stage", "journal"]).expect("creates");
        assert_eq!(title, "run, client.create, time in the stage journal wait");
        assert!(journal.total().count() > 0 && journal.total().count() < 400);
        assert!(traced(&["--of", "no.such"]).expect_err("unknown").contains("no event of this trace is called no.such"));
        let none = traced(&["--of", "client.create", "--stage", "disk_far"]).expect_err("creates reach no disk");
        assert_eq!(none, "no operation (client.create) that spent time in the stage disk, far seek was recorded");
        assert!(traced(&["--stage", "lunch"]).expect_err("none").contains("there are client, "));
    }
}
