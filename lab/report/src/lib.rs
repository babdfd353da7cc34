//! `weft report`: one file about one or several runs, to keep and to pass on: what was measured
//! where, medians and spread with every run as a dot, distributions, running performance, where the
//! time goes, bounds, and what speaks against the numbers. `weft plot` ([`plot`]): single pictures.
//!
//! It never draws by itself (`weft-charts` does) and never changes a trace.
// A full disk or a reader who has gone must not end a process, and these macros panic then: see
// `write_line` of `weft-rt-real`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod document;
mod excerpt;
pub mod plot;
#[cfg(test)]
#[path = "../../analysis/tests/sample/mod.rs"]
mod sample;
pub mod side_by_side;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use weft_analysis::compare;
use weft_analysis::compare::Part;
use weft_analysis::inputs;
use weft_analysis::limits;
use weft_analysis::results::{Ceiling, Spread};
use weft_analysis::run::Run;
use weft_analysis::running;
use weft_analysis::running::{RunningOptions, View};
use weft_analysis::{drawn, latency};
use weft_charts::{Axis, Frame, Line, Lines, Style, Table, Unit, categorical, views};
use weft_host::output::print;
use weft_trace::latency::{Latency, Stacked};

use document::{Block, Document};

/// Write a report about runs: results, distributions, where the time goes, bounds
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft report traces/ -o report.html
  weft report run1/ run2/ run3/ ceiling.json -o report.html      # several runs: median, spread, every run as a dot
  weft report before/ after/ bench.json progress.csv -o report.md  # pictures go beside it: report-1.svg ...")]
pub struct Args {
    /// Traces and results of weft bench, as for weft view
    #[arg(required = true, value_name = "[NAME=]FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Where to write it; .html is one file with everything in it, .md has its pictures beside it
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Where bounds come from: the ceilings of unix or tcp sockets, or the cluster of Kunkel 2006
    #[arg(long, value_name = "WHICH", default_value = "unix", value_parser = ["unix", "tcp", "2006"])]
    hardware: String,
}

impl Args {
    /// Reads the runs and writes the report.
    ///
    /// # Errors
    /// If no run can be read, or the file cannot be written.
    pub fn run(self) -> Result<()> {
        let is_markdown = match self.output.extension().and_then(|end| end.to_str()) {
            Some("html" | "htm") => false,
            Some("md") => true,
            _ => bail!("the name of the report must end in .html or .md"),
        };
        inputs::refuse_to_overwrite(&self.output, &self.paths)?;
        let (mut runs, mut refused) = (Vec::new(), Vec::new());
        for input in inputs::inputs(&self.paths)? {
            match Run::load(&input, |_, _| {}) {
                Ok(run) => runs.push(run),
                Err(error) => refused.push(format!("{} could not be read: {error:#}", input.name)),
            }
        }
        if runs.is_empty() {
            bail!("{}", refused.join("; "));
        }
        let document = report(&runs.iter().collect::<Vec<_>>(), &refused, &self.hardware);
        let text = if is_markdown { self.with_pictures(&document)? } else { document.html() };
        fs::write(&self.output, text).with_context(|| format!("cannot write {}", self.output.display()))?;
        Ok(print(&format!("{}\n", self.output.display()))?)
    }

    /// The Markdown text; its pictures are written beside it.
    fn with_pictures(&self, document: &Document) -> Result<String> {
        let stem = self.output.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let mut failed = None;
        let text = document.markdown(|number, svg| {
            let name = format!("{stem}-{number}.svg");
            if let Err(error) = fs::write(self.output.with_file_name(&name), svg) {
                failed.get_or_insert((name.clone(), error));
            }
            name.replace(' ', "%20")
        });
        match failed {
            Some((name, error)) => Err(error).with_context(|| format!("cannot write {name}")),
            None => Ok(text),
        }
    }
}

/// A report as the page offers it.
pub fn html(runs: &[&Run], hardware: &str) -> String {
    report(runs, &[], hardware).html()
}

fn report(runs: &[&Run], refused: &[String], hardware: &str) -> Document {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let mut blocks: Vec<Block> = Vec::new();
    blocks.extend(refused.iter().map(|sentence| Block::Warning(sentence.clone())));
    blocks.extend(runs.iter().flat_map(|run| warnings(run)));
    let traced: Vec<&Run> = runs.iter().copied().filter(|run| run.has_trace()).collect();
    for run in runs {
        verdict::verdict(run, runs.len() > 1, &mut blocks);
    }
    results(runs, &traced, &mut blocks);
    if let [a, others @ ..] = traced.as_slice() {
        others.iter().for_each(|b| differences(a, b, &mut blocks));
    }
    for run in &traced {
        distribution(run, traced.len() > 1, &mut blocks);
    }
    performance(runs, &mut blocks);
    for run in &traced {
        excerpt::excerpt(run, traced.len() > 1, &mut blocks);
    }
    for run in &traced {
        verdict::stages(run, traced.len() > 1, &mut blocks);
    }
    let rows: Vec<Ceiling> = runs.iter().map(|run| run.results.ceilings.clone()).find(|rows| !rows.is_empty()).unwrap_or_default();
    runs.iter().for_each(|run| bounds(run, &rows, hardware, &mut blocks));
    environment(runs, &rows, &mut blocks);
    Document { title: format!("Report: {}", names.join(", ")), blocks }
}

/// What makes the numbers of a run doubtful: said before them.
fn warnings(run: &Run) -> Vec<Block> {
    let mut said = Vec::new();
    let lost: u64 = run.merged.nodes.iter().map(|node| node.lost).sum();
    if lost > 0 {
        said.push(format!("{}: {lost} records were lost while recording.", run.name));
    }
    if run.merged.causality_violations() > 0 {
        said.push(format!(
            "{}: {} requests were served before they were sent, or after: clocks are wrong.",
            run.name,
            run.merged.causality_violations()
        ));
    }
    said.extend(
        run.sources
            .iter()
            .filter_map(|source| source.refused.as_ref().map(|why| format!("{}: {}: {why}", run.name, source.path.display()))),
    );
    for node in &run.merged.nodes {
        said.extend(node.problems.iter().map(|problem| format!("{}: {}: {problem}", run.name, node.name)));
    }
    said.into_iter().map(Block::Warning).collect()
}

fn section(blocks: &mut Vec<Block>, title: impl Into<String>) {
    blocks.push(Block::Heading(2, title.into()));
}

fn per_second(rate: f64) -> String {
    Unit::PerSecond.format(rate)
}

fn time(ns: f64) -> String {
    Unit::Seconds.format(ns / 1e9)
}

fn count(number: u64) -> String {
    Unit::Count.format(number as f64)
}

fn total(run: &Run) -> Latency {
    latency::chosen(run, 0, u64::MAX, &[]).stacked.total()
}

fn results(runs: &[&Run], traced: &[&Run], blocks: &mut Vec<Block>) {
    section(blocks, "Results");
    if !traced.is_empty() {
        let mut table = Table::new(
            "Operations of clients",
            ["run", "kind", "operations", "duration", "rate", "median", "p90", "p99", "p99.9", "longest"],
        );
        let mut rates = Vec::new();
        for run in traced {
            let total = total(run);
            let rate = total.count() as f64 * 1e9 / run.duration_ns as f64;
            rates.push(rate);
            let quantiles = [0.5, 0.9, 0.99, 0.999, 1.0].map(|q| time(total.quantile_ns(q) as f64));
            let kind = if run.is_simulated() { "simulated" } else { "recorded" };
            let first = [run.name.clone(), kind.into(), count(total.count()), time(run.duration_ns as f64), per_second(rate)];
            table.row(first.into_iter().chain(quantiles));
        }
        blocks.push(Block::Table(table));
        if let Some(Spread { median, min, max }) = Spread::of(rates.iter().copied()).filter(|_| rates.len() > 1) {
            blocks.push(Block::Text(format!(
                "{} runs: median {}, from {} to {}.",
                rates.len(),
                per_second(median),
                per_second(min),
                per_second(max)
            )));
            let names: Vec<String> = traced.iter().zip(1..).map(|(run, number)| format!("{number} {}", run.name)).collect();
            blocks.push(dots("Rate of every run", &names.join(", "), "run", &[("runs", rates)], Some(median)));
        }
    }
    for run in runs.iter().filter(|run| !run.results.phases.is_empty()) {
        let columns = [
            "phase",
            "processes x threads x depth",
            "repetitions",
            "operations/s",
            "min - max",
            "MiB/s",
            "min - max",
            "p50",
            "p99",
            "of its ceiling",
        ];
        let mut table = Table::new(&format!("{}: phases of weft bench, medians", run.name), columns);
        for phase in &run.results.phases {
            let (ops, mib) = (phase.ops_per_s, phase.mib_per_s);
            let range = |min: f64, max: f64| format!("{} - {}", Unit::Count.format(min), Unit::Count.format(max));
            let micros = |us: Option<f64>| us.map_or_else(String::new, |us| time(us * 1e3));
            table.row([
                phase.title(),
                format!("{} x {} x {}", phase.procs, phase.clients, phase.depth),
                phase.repetitions.to_string(),
                Unit::Count.format(ops.median),
                range(ops.min, ops.max),
                mib.map_or_else(String::new, |mib| Unit::Count.format(mib.median)),
                mib.map_or_else(String::new, |mib| range(mib.min, mib.max)),
                micros(phase.latency_us.map(|latency| latency.p50)),
                micros(phase.latency_us.map(|latency| latency.p99)),
                phase.ratio_to_ceiling.map_or_else(String::new, |ratio| Unit::Share.format(ratio.median)),
            ]);
        }
        blocks.push(Block::Table(table));
        blocks.extend(repetitions(run));
    }
}

/// Every repetition of every phase whose progress was recorded, as a dot.
fn repetitions(run: &Run) -> Option<Block> {
    let mut phases: Vec<(&str, Vec<f64>)> = Vec::new();
    for one in &run.results.progress {
        let same = || run.results.progress.iter().filter(|other| (&other.phase, other.repetition) == (&one.phase, one.repetition));
        if same().next().is_some_and(|first| !std::ptr::eq(first, one)) {
            continue;
        }
        let steps = || same().flat_map(|process| &process.steps);
        let operations: u64 = steps().map(|step| step.1).sum();
        let end_ns = steps().filter(|step| step.1 > 0).map(|step| step.0).max()?;
        let rate = operations as f64 * 1e9 / end_ns as f64;
        match phases.iter_mut().find(|(phase, _)| *phase == one.phase) {
            Some((_, rates)) => rates.push(rate),
            None => phases.push((&one.phase, vec![rate])),
        }
    }
    let note = "from the recorded progress, whose last interval counts as a whole one";
    (!phases.is_empty()).then(|| dots(&format!("{}: every repetition", run.name), note, "repetition", &phases, None))
}

/// Numbers as dots, one series beside the other.
fn dots(title: &str, subtitle: &str, what: &str, series: &[(&str, Vec<f64>)], median: Option<f64>) -> Block {
    let longest = series.iter().map(|(_, values)| values.len()).max().unwrap_or(1) as f64;
    let line = |(number, (name, values)): (usize, &(&str, Vec<f64>))| Line {
        name: (*name).to_string(),
        color: categorical(number).color,
        style: Style::Dots,
        points: values.iter().enumerate().map(|(at, value)| (at as f64 + 1.0, *value)).collect(),
    };
    let median = median.map(|median| Line {
        name: format!("median {}", per_second(median)),
        color: 0x22_22_22,
        style: Style::Dashed,
        points: vec![(0.0, median), (longest + 1.0, median)],
    });
    let chart = Lines {
        frame: Frame::new(title, subtitle).sized(960, 300),
        x: Axis::linear(what, Unit::Count).ranging(0.0, longest + 1.0),
        y: Axis::linear("rate", Unit::PerSecond),
        lines: series.iter().enumerate().map(line).chain(median).collect(),
        marks: Vec::new(),
    };
    Block::Picture(chart.svg(), chart.table())
}

fn differences(a: &Run, b: &Run, blocks: &mut Vec<Block>) {
    section(blocks, format!("{} (A) against {} (B)", a.name, b.name));
    let (a, b) = (Part { run: a, from: 0, to: u64::MAX }, Part { run: b, from: 0, to: u64::MAX });
    let found = compare::compare(a, b);
    let sentences: Vec<&str> = found["sentences"].as_array().into_iter().flatten().filter_map(|sentence| sentence.as_str()).collect();
    blocks.push(Block::Text(sentences.join(" ")));
    let mut table = Table::new(
        "By kind of operation",
        ["operation", "A: count", "median", "p99", "B: count", "median", "p99", "ratio of the medians, 95 %"],
    );
    for row in found["kinds"].as_array().into_iter().flatten() {
        let micros = |side: &str, field: &str| row[side][field].as_f64().map_or_else(String::new, |us| time(us * 1e3));
        let number = |side: &str| row[side]["count"].as_u64().map_or_else(String::new, count);
        let interval = row["median_ratio"].as_array().map_or_else(String::new, |ratio| {
            ratio.iter().filter_map(serde_json::Value::as_f64).map(|value| format!("{value:.2}")).collect::<Vec<_>>().join(" to ")
        });
        let name = row["operation"].as_str().unwrap_or_default().to_string();
        table.row([
            name,
            number("a"),
            micros("a", "p50_us"),
            micros("a", "p99_us"),
            number("b"),
            micros("b", "p50_us"),
            micros("b", "p99_us"),
            interval,
        ]);
    }
    blocks.push(Block::Table(table));
    let chart = compare::ecdf(a, b, "");
    blocks.push(Block::Picture(chart.svg(), chart.table()));
}

fn titled(title: &str, run: &Run, several: bool) -> String {
    if several { format!("{title}: {}", run.name) } else { title.to_string() }
}

fn distribution(run: &Run, several: bool, blocks: &mut Vec<Block>) {
    section(blocks, titled("Latency", run, several));
    let stacked: Stacked = latency::chosen(run, 0, u64::MAX, &[]).stacked;
    let total = stacked.total();
    if total.count() == 0 {
        blocks.push(Block::Text("The trace holds no operation of a client.".into()));
        return;
    }
    let tail = latency::tail_from_ns(&total);
    let (entries, share) = total.tail(tail);
    blocks.push(Block::Text(format!(
        "{} operations. The slowest {} of them, from {} on, take {} of the time.",
        count(total.count()),
        Unit::Share.format(entries),
        time(tail as f64),
        Unit::Share.format(share)
    )));
    let note = "50 bins of one leading digit (Vef 2016, section 3.3.2); line: share of the total time.";
    let frame = Frame::new("Number of operations and share of time by latency", "stacked by node").with_note(note);
    let bars = views::latency_bins(frame, &stacked, Some(tail).filter(|_| entries < 0.5));
    blocks.push(Block::Picture(bars.svg(), bars.table()));
    let lines = drawn::latency_ecdf(run, 0, u64::MAX, &[], 960);
    blocks.push(Block::Picture(lines.svg(), lines.table()));
}

fn performance(runs: &[&Run], blocks: &mut Vec<Block>) {
    for run in runs {
        let asked = RunningOptions::default();
        let told = running::describe(run, &asked);
        if told["count"].as_u64().unwrap_or(0) == 0 {
            continue;
        }
        section(blocks, titled("Running performance", run, runs.len() > 1));
        let processes = told["processes"].as_array().map_or(0, Vec::len);
        let idle = told["idle_share"].as_f64().unwrap_or(0.0);
        blocks.push(Block::Text(format!(
            "{processes} processes; {} of their time passed after they were done, while others still worked.",
            Unit::Share.format(idle)
        )));
        for each in [false, true] {
            let chart = running::chart(run, None, &asked, View { each, accumulated: false }, 960);
            blocks.push(Block::Picture(chart.svg(), chart.table()));
        }
    }
}

fn bounds(run: &Run, rows: &[Ceiling], hardware: &str, blocks: &mut Vec<Block>) {
    let facts = limits::facts(run, rows, |_| None, hardware);
    let told = limits::describe(run, &facts);
    let measured = told["rows"].as_array().cloned().unwrap_or_default();
    if facts.rtt_s.is_none() || measured.is_empty() {
        return;
    }
    section(blocks, format!("Bounds: {}", run.name));
    let mut known = Table::new("What the hardware does", ["fact", "value"]);
    for fact in told["facts"].as_array().into_iter().flatten() {
        let value = fact["value"].as_f64().map_or_else(|| "not known".to_string(), |value| Unit::Count.format(value));
        known.row([fact["title"].as_str().unwrap_or_default().to_string(), value]);
    }
    blocks.push(Block::Table(known));
    let is_large = |row: &serde_json::Value| row["at"].as_f64() >= Some(limits::LARGE);
    for which in ["create", "large", "small"] {
        let kind = if which == "create" { "creates" } else { "streams" };
        if measured.iter().any(|row| row["kind"] == kind && (which != "large" || is_large(row))) {
            let chart = limits::chart(run, &facts, which, 64, 960);
            blocks.push(Block::Picture(chart.svg(), chart.table()));
        }
    }
    let mut table = Table::new("Part of each bound that was reached", ["measurement", "median", "bound", "its value", "reached"]);
    for row in &measured {
        let unit = row["unit"].as_str().unwrap_or_default();
        for bound in row["bounds"].as_array().into_iter().flatten() {
            let number = |value: &serde_json::Value| {
                value.as_f64().map_or_else(String::new, |value| format!("{} {unit}", Unit::Count.format(value)))
            };
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_string();
            let reached = bound["efficiency"].as_f64().map_or_else(String::new, |part| Unit::Share.format(part));
            table.row([text(&row["name"]), number(&row["rates"][0]), text(&bound["name"]), number(&bound["bound"]), reached]);
        }
    }
    blocks.push(Block::Table(table));
    blocks.push(Block::Text(
        "Formulas: Kunkel 2006, chapter 4. Processing is left out; what passes a bound did not meet its assumption.".into(),
    ));
}

fn environment(runs: &[&Run], ceilings: &[Ceiling], blocks: &mut Vec<Block>) {
    section(blocks, "Environment");
    let mut nodes = Table::new("Nodes", ["run", "node", "records lost", "clock", "what is missing"]);
    for run in runs {
        for (node, clock) in run.merged.nodes.iter().zip(&run.merged.clocks) {
            let clock = match clock.error_ns {
                None => "not tied to the others".to_string(),
                Some(0) if clock.offset_ns == 0 => "the same as the first node's".to_string(),
                Some(error) => format!("shifted by {}, right within {}", time(clock.offset_ns as f64), time(error as f64)),
            };
            nodes.row([run.name.clone(), node.name.clone(), node.lost.to_string(), clock, node.problems.join("; ")]);
        }
    }
    if !nodes.rows.is_empty() {
        blocks.push(Block::Table(nodes));
    }
    let mut files = Table::new("Files", ["run", "file", "bytes", ""]);
    for run in runs {
        for source in &run.sources {
            let path = source.path.display().to_string();
            files.row([run.name.clone(), path, source.bytes.to_string(), source.refused.clone().unwrap_or_default()]);
        }
    }
    blocks.push(Block::Table(files));
    if !ceilings.is_empty() {
        let mut table = Table::new("Ceilings of the machine that was measured (weft bench ceiling)", ["name", "median", "unit"]);
        ceilings.iter().for_each(|row| table.row([row.name.clone(), Unit::Count.format(row.median), row.unit.clone()]));
        blocks.push(Block::Table(table));
    }
    let problems: usize = runs.iter().map(|run| run.problem_count()).sum();
    blocks.push(Block::Text(format!("{problems} things are missing or damaged in these files.")));
    blocks.push(Block::Text(format!("Made by weft {} on: {}.", env!("CARGO_PKG_VERSION"), machine())));
}

/// The machine on which the report is made; traces do not say on which they were recorded.
fn machine() -> String {
    let first = |path: &str, begin: &str| {
        let text = fs::read_to_string(Path::new(path)).ok()?;
        let line = text.lines().find(|line| line.starts_with(begin))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    let kernel = nix::sys::utsname::uname().ok();
    let kernel = kernel.map(|names| format!("{} {} {}", names.sysname().display(), names.release().display(), names.machine().display()));
    let processors = std::thread::available_parallelism().ok().map(|number| format!("{number} processors"));
    let facts = [
        kernel,
        first("/proc/cpuinfo", "model name"),
        processors,
        first("/proc/meminfo", "MemTotal").map(|size| format!("{size} of memory")),
    ];
    facts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
