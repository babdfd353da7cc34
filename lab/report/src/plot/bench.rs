//! Results of benchmarks: the running performance of each process (figures 4.5 to 4.8 of Vef's
//! thesis, 2016) and the latency distribution in 50 bins with the share of the time (figures 4.12
//! to 4.15).

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use weft_charts::{Axis, Frame, Line, Lines, Style, Unit, categorical, stacked, views};
use weft_trace::latency::{Latency, SLOTS, Slot, Stacked, slot_bounds_ns};

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
    repetition: u64,
    /// Seconds that a point stands for
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    window: f64,
}

#[derive(Debug, clap::Args)]
pub struct LatencyArgs {
    #[command(flatten)]
    common: Common,
    /// The phase of the benchmark
    #[arg(long, value_name = "NAME", default_value = "create")]
    phase: String,
}

/// A process of a progress file: its machine, and what it did in each interval, by the interval's
/// end in seconds.
type Process = (String, Vec<(f64, u64)>);
type Processes = BTreeMap<u64, Process>;

impl RunningArgs {
    pub fn run(self) -> Result<()> {
        let panels = self.common.panels()?;
        let mut runs = Vec::new();
        for (input, label) in panels {
            let text = std::fs::read_to_string(input).with_context(|| format!("cannot read {}", input.display()))?;
            let processes = progress(&text, &self.phase, self.repetition).with_context(|| input.display().to_string())?;
            runs.push((label, processes));
        }
        let window = window_of(&runs.iter().map(|(_, processes)| processes).collect::<Vec<_>>(), self.window);
        let mut lines: Vec<Vec<Line>> = runs.iter().map(|(_, processes)| lines(processes, window)).collect();
        lines.iter_mut().flatten().for_each(make_visible);
        // The same axes for all panels, or they could not be compared.
        let top = |of: fn(&(f64, f64)) -> f64| lines.iter().flatten().flat_map(|line| &line.points).map(of).fold(0.0, f64::max);
        let (longest, highest) = (top(|point| point.0), top(|point| point.1));
        let pictures = runs.iter().zip(lines).map(|((label, processes), lines)| {
            let done: u64 = processes.values().flat_map(|(_, counts)| counts).map(|(_, count)| count).sum();
            let end = processes.values().flat_map(|(_, counts)| counts).map(|(end, _)| *end).fold(0.0, f64::max);
            let said = format!(
                "{} operations in {}, {} together; a line for each process, points over {}",
                Unit::Count.format(done as f64),
                Unit::Seconds.format(end),
                Unit::PerSecond.format(done as f64 / end.max(1e-9)),
                Unit::Seconds.format(window)
            );
            let chart = Lines {
                frame: Frame::new(label, &said).sized(960, 300),
                x: Axis::linear("time since the start", Unit::Seconds).ranging(0.0, longest),
                y: Axis::linear("operations of a process", Unit::PerSecond).ranging(0.0, highest * 1.05),
                lines,
                marks: Vec::new(),
            };
            chart.svg()
        });
        self.common.write(&stacked(&self.common.title("Running performance"), &pictures.collect::<Vec<_>>()))
    }
}

impl LatencyArgs {
    pub fn run(self) -> Result<()> {
        let mut pictures = Vec::new();
        for (input, label) in self.common.panels()? {
            let text = std::fs::read_to_string(input).with_context(|| format!("cannot read {}", input.display()))?;
            let stacked = latencies(&text, &self.phase).with_context(|| input.display().to_string())?;
            let total = stacked.total();
            let us = |q: f64| Unit::Seconds.format(total.quantile_ns(q) as f64 / 1e9);
            let said = format!(
                "{} operations; median {}, 99 of 100 within {}, 999 of 1000 within {}",
                Unit::Count.format(total.count() as f64),
                us(0.5),
                us(0.99),
                us(0.999)
            );
            let frame = Frame::new(&label, &said).sized(960, 360);
            pictures.push(views::latency_bins(frame, &stacked, Some(TAIL_NS)).svg());
        }
        self.common.write(&stacked(&self.common.title("Latency distributions"), &pictures))
    }
}

/// The processes of a phase in a progress file. Columns are found by their names.
fn progress(text: &str, phase: &str, repetition: u64) -> Result<Processes> {
    let mut rows = text.lines();
    let names: Vec<&str> = rows.next().unwrap_or_default().split(',').collect();
    let column = |name: &str| names.iter().position(|known| *known == name).with_context(|| format!("there is no column `{name}`"));
    let (proc, node, end, count) = (column("proc")?, column("node")?, column("t_s")?, column("count")?);
    let (phases, repetitions) = (column("phase").ok(), column("repetition").ok());
    let mut processes = Processes::new();
    for (number, row) in rows.enumerate() {
        let cells: Vec<&str> = row.split(',').collect();
        let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
        let wrong = || format!("line {} is no line of a progress file: {row}", number + 2);
        if phases.is_some_and(|at| cell(at) != phase) || repetitions.is_some_and(|at| cell(at).parse() != Ok(repetition)) {
            continue;
        }
        let process = processes.entry(cell(proc).parse().with_context(wrong)?).or_insert_with(|| (cell(node).to_string(), Vec::new()));
        process.1.push((cell(end).parse().with_context(wrong)?, cell(count).parse().with_context(wrong)?));
    }
    if processes.is_empty() {
        bail!("there is no phase `{phase}` with repetition {repetition}");
    }
    Ok(processes)
}

/// A line for each process: operations a second over windows, each at its end; the last one may be
/// shorter.
fn lines(processes: &Processes, window_s: f64) -> Vec<Line> {
    let mut nodes: Vec<&String> = processes.values().map(|(node, _)| node).collect();
    nodes.sort();
    nodes.dedup();
    let line = |(position, (process, (node, counts))): (usize, (&u64, &Process))| {
        let (mut points, mut done) = (Vec::new(), 0);
        let mut begin = counts.first().map_or(0.0, |(end, _)| end - interval(counts));
        for (end, count) in counts {
            done += count;
            // Times in the file are rounded.
            if end - begin >= window_s * 0.99 {
                points.push((*end, done as f64 / (end - begin)));
                (begin, done) = (*end, 0);
            }
        }
        // What is left at the end is a point if it is long enough to say something.
        if let Some((end, _)) = counts.last().filter(|(end, _)| end - begin > window_s / 2.0 || (points.is_empty() && *end > begin)) {
            points.push((*end, done as f64 / (end - begin)));
        }
        // Colours say the machine if there are several, else the process.
        let color = if nodes.len() > 1 { nodes.iter().position(|known| *known == node).unwrap_or(0) } else { position };
        let name = if nodes.len() > 1 { node.clone() } else { format!("process {process}") };
        Line { name, color: categorical(color).color, style: Style::Line, points }
    };
    processes.iter().enumerate().map(line).collect()
}

/// Points stand for so many seconds: what was asked for, or less if the longest run is too short to
/// have five of them.
fn window_of(runs: &[&Processes], asked_s: f64) -> f64 {
    let counts = || runs.iter().flat_map(|processes| processes.values()).map(|(_, counts)| counts);
    let end = counts().filter_map(|counts| counts.last()).map(|(end, _)| *end).fold(0.0, f64::max);
    let finest = counts().map(|counts| interval(counts)).fold(0.0, f64::max);
    asked_s.min((end / 5.0).max(finest))
}

/// A line through one point is nothing: it becomes one from the start.
fn make_visible(line: &mut Line) {
    if let [(end, rate)] = line.points[..] {
        line.points = vec![(0.0, rate), (end, rate)];
    }
}

/// Seconds of a whole interval: the longest time between two ends, as the last one may be shorter.
fn interval(counts: &[(f64, u64)]) -> f64 {
    let first = counts.first().map_or(0.0, |first| first.0);
    let longest = counts.windows(2).map(|pair| pair[1].0 - pair[0].0).fold(0.0, f64::max);
    if longest > 0.0 { longest.min(first) } else { first }
}

/// The distributions of all repetitions of a phase in a report, one for each process.
fn latencies(text: &str, phase: &str) -> Result<Stacked> {
    let report: Value = serde_json::from_str(text).context("this is no report of weft bench --json")?;
    let phases = report.as_array().context("this is no report of weft bench --json")?;
    let of = phases.iter().find(|one| one["phase"] == phase).with_context(|| format!("there is no phase `{phase}`"))?;
    let processes = of["progress"].as_array().context("it holds no progress: run weft bench with --progress FILE too")?;
    let mut stacked = Stacked::default();
    for process in processes {
        let mut slots = [Slot::default(); SLOTS];
        let (mut min_ns, mut max_ns) = (u64::MAX, 0);
        for bin in process["latency_bins"].as_array().into_iter().flatten() {
            let number = |key: &str| bin[key].as_u64().with_context(|| format!("a bin has no {key}"));
            let slot = usize::try_from(number("slot")?)?;
            let place = slots.get_mut(slot).context("there is no such bin")?;
            *place = Slot { count: number("count")?, sum_ns: number("sum_ns")? };
            let (from, to) = slot_bounds_ns(slot);
            (min_ns, max_ns) = (min_ns.min(from), max_ns.max(if to == u64::MAX { place.sum_ns / place.count.max(1) } else { to - 1 }));
        }
        stacked.part(&format!("process {}", process["proc"])).merge(&Latency::from_slots(slots, min_ns, max_ns));
    }
    if stacked.total().count() == 0 {
        bail!("no operation has a latency of its own: with --depth 1 each has");
    }
    Ok(stacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "phase,repetition,proc,node,t_s,count,bytes\ncreate,0,0,a,0.1,9,0\ncreate,1,0,a,0.1,3,0\ncreate,1,0,a,0.2,4,0\n\
                        create,1,0,a,0.25,5,0\ncreate,1,1,b,0.15,7,0\nremove,1,1,b,0.1,7,0\n";

    #[test]
    fn points_stand_for_windows_and_colours_for_machines() {
        let processes = progress(FILE, "create", 1).expect("sound");
        assert_eq!(processes.len(), 2);
        let lines = lines(&processes, 0.2);
        let rounded: Vec<(i64, i64)> = lines[0].points.iter().map(|(x, y)| ((x * 10.0).round() as i64, y.round() as i64)).collect();
        assert_eq!(rounded, [(2, 35)], "the third interval is too short for a point");
        assert_eq!((lines[1].points.len(), lines[1].points[0].1.round()), (1, 47.0));
        assert_ne!(lines[0].color, lines[1].color);
        assert!(progress(FILE, "create", 7).is_err() && progress("a,b\n", "create", 0).is_err());
        assert!(progress("phase,repetition,proc,node,t_s,count\ncreate,1,x,a,0.1,9\n", "create", 1).is_err());
    }

    #[test]
    fn a_run_of_less_than_a_window_is_seen() {
        let processes = progress(FILE, "create", 1).expect("sound");
        let window = window_of(&[&processes], 1.0);
        assert!((0.09..0.2).contains(&window), "{window}");
        let mut lines = lines(&processes, window);
        lines.iter_mut().for_each(make_visible);
        assert!(lines.iter().all(|line| line.points.len() >= 2), "{lines:?}");
        assert_eq!(window_of(&[&processes], 0.1), 0.1, "what is asked for, if there is room");
    }

    #[test]
    fn bins_of_a_report_come_back_as_they_were() {
        let bin = serde_json::json!({ "slot": 16, "from_ns": 65_000, "count": 3, "sum_ns": 210_000 });
        let process = |number: u64| serde_json::json!({ "proc": number, "latency_bins": [bin] });
        let report = serde_json::json!([{ "phase": "create", "progress": [process(0), process(1), process(0)] }]).to_string();
        let stacked = latencies(&report, "create").expect("sound");
        assert_eq!((stacked.parts().len(), stacked.total().count(), stacked.total().sum_ns()), (2, 9, 630_000));
        assert!(latencies(&report, "remove").is_err() && latencies("{}", "create").is_err());
    }
}
