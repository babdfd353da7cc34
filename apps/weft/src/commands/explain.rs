//! `weft explain`: where the time of operations went: of recorded ones, or of a running file
//! system's.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use weft_analysis::inputs::{self, Content};
use weft_analysis::traces;
use weft_charts::{Frame, views};
use weft_host::connect::Common;
use weft_host::fs_arg::CONFIG_NAME;
use weft_host::mounts;
use weft_host::output::{Table, print_as, shell_word};
use weft_host::parallel::at_once;
use weft_host::units::seconds;
use weft_predict::{Advised, advise};
use weft_recording::files_in;
use weft_recording::nodes::{Recorded, record};
use weft_report::side_by_side::SideBySide;
use weft_trace::Stage;
use weft_trace::event::LOAD_MOUNT;
use weft_trace::explain::{Analysis, Explanation, Finding, Waterfall};
use weft_trace::merge::{Merged, NodeClock, TracedNode, gathered, merge_by};
use weft_trace::record::Body;

/// Show where the time of operations went, of a running file system or from trace files
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Of a running file system the servers, wherever they are, and the mounts and NFS gateways of this user on this machine are recorded for some
seconds. Other commands (`weft bench`, `weft cp`) record when WEFT_TRACE names a folder, and write their files there when they end; programs
that use the libraries or `weft preload` record nothing, and what they asked servers for is told as missing.
Ctrl-C ends the recording early, and what there is by then is explained. While `weft trace on` records, nothing else does.

The first lines say what limits and by how much; then what to do, and what it would give: the same work in virtual time on the machine of the
profile, as it is and with the change. Without a profile (`weft predict calibrate` makes one in half a minute) there is no such number.

Examples:
  weft explain ~/fs                 the next 3 s of a running file system
  weft explain ~/fs --seconds 10 --keep t
  weft explain t                    from the files of `weft trace`
  weft explain run.proj             from a project of HDTrace, with the files beside it
  weft explain t --slowest 10
  weft explain one/ two/ four/ --side-by-side
  weft explain t --svg where.svg")]
pub struct Args {
    /// A running file system, or trace files and folders with them
    #[arg(required = true, value_name = "FS|TRACES")]
    traces: Vec<PathBuf>,
    /// How long a running file system is recorded [default: 3]
    #[arg(long, value_name = "SECONDS", value_parser = seconds(0.01, 3600.0))]
    seconds: Option<f64>,
    /// Keep the files of that in this folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show the slowest operations step by step
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    slowest: usize,
    /// Each of the traces is a run of its own: a table of stages for each kind of operation, a
    /// column for each run
    #[arg(long, conflicts_with_all = ["keep", "seconds", "slowest", "svg", "machine"])]
    side_by_side: bool,
    /// Places to name for each kind of operation
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    suspects: usize,
    /// The machine that is asked what a change would give: a profile [default: that of this
    /// machine, of `weft predict calibrate`]
    #[arg(long, value_name = "PROFILE")]
    machine: Option<PathBuf>,
    /// Draw the stages into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// How long a running file system is recorded.
const SECONDS: f64 = 3.0;

/// What the numbers below are about.
fn measured(all: &Explanation) -> String {
    if all.operations == 0 {
        return format!("0 operations ended in {:.2} s", all.wall.recorded_seconds);
    }
    format!(
        "{} operations, {:.3} s together; {:.1} % of that time is covered by records. Some were under way for {:.3} s of the {:.3} s that were \
         recorded, {:.1} at once",
        all.operations,
        all.seconds,
        all.covered * 100.0,
        all.wall.busy_seconds,
        all.wall.recorded_seconds,
        all.wall.at_once
    )
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    explanation: Explanation,
    twin: Advised,
    slowest: Vec<Waterfall>,
    nodes: Vec<NodeRow>,
}

/// Where a node ran, and how its clock stands to that of the first node.
#[derive(Serialize)]
struct NodeRow {
    node: String,
    /// Empty: the file does not say it.
    machine: String,
    /// Was added to its times at the beginning.
    clock_offset_ns: i64,
    /// By so much it grew, in millionths.
    clock_rate_ppm: f64,
    /// Its times are right within so much; `None`: not comparable.
    clock_error_ns: Option<u64>,
    /// Of a mount: all requests of the kernel together have waited so long for one of its threads
    /// at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_wait_at_most_s: Option<f64>,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        if self.side_by_side {
            let runs = SideBySide::of(&self.traces)?;
            print_as(self.json, &runs.json(), || runs.text())?;
            return Ok(());
        }
        let (mut recorded, mut noted) = (None, Recorded::default());
        let files = match &self.traces[..] {
            [fs] if is_file_system(fs) => {
                // Removed when this returns, unless the files are to be kept.
                let folder = recorded.insert(tempfile::tempdir().context("cannot make a folder for traces")?);
                let path = self.keep.as_deref().unwrap_or(folder.path());
                refuse_a_second_recording(path)?;
                refuse_a_lost_folder(path)?;
                noted = record(fs.as_os_str(), "*", common, self.seconds.unwrap_or(SECONDS), path, self.keep.is_some())?;
                files(&[path.to_path_buf()])?
            }
            _ if self.keep.is_some() || self.seconds.is_some() => {
                bail!("--seconds and --keep are for a running file system, and {} is none", self.traces[0].display())
            }
            traces => files(traces)?,
        };
        let read_all = gathered(&at_once, files.len(), |number| {
            let (file, content) = &files[number];
            // A project goes as a whole, although one of its files is at fault.
            let what = if matches!(content, Content::HdTrace) { "project" } else { "file" };
            traces::read(file, *content, |_| {}).map_err(|reason| anyhow!("{}: {reason}: this {what} is left out", file.display()))
        });
        let (sound, damaged): (Vec<_>, Vec<_>) = read_all.into_iter().partition(Result::is_ok);
        let damaged = damaged.into_iter().filter_map(Result::err).map(|error| format!("{error:#}"));
        noted.problems.extend(damaged);
        if sound.is_empty() {
            bail!("{}", noted.problems.join("; "));
        }
        let merged = merge_by(sound.into_iter().flatten().flatten().collect(), &at_once);
        let analysis = Analysis::by(&merged, &at_once);
        let mut explanation = analysis.explain_by(self.suspects, i64::MIN, i64::MAX, &at_once);
        explanation.note_silent(&noted.silent);
        // What limits is worth saying without it.
        let twin = advise(&explanation, self.machine.as_deref()).or_else(|error| match &self.machine {
            Some(_) => Err(error),
            None => Ok(Advised::unknown(&error)),
        })?;
        let mut report = Report { explanation, twin, slowest: analysis.slowest(self.slowest), nodes: nodes(&merged) };
        report.explanation.missing.extend(noted.problems);
        if let Some(svg) = &self.svg {
            inputs::refuse_to_overwrite(svg, &self.traces)?;
            let explained = format!("{} operations, {:.1} % covered", report.explanation.operations, report.explanation.covered * 100.0);
            let picture = views::where_time_goes(Frame::new("Where the time goes", &explained), &report.explanation).svg();
            std::fs::write(svg, picture).with_context(|| format!("cannot write {}", svg.display()))?;
        }
        Ok(print_as(self.json, &report, || text(&report))?)
    }
}

/// A state directory, a config, an address or a mount point; traces are anything else.
fn is_file_system(path: &Path) -> bool {
    let is_config = path.extension().is_some_and(|end| end == "toml") && path.is_file();
    let is_mount = || mounts::containing(path).is_ok_and(|found| found.is_some_and(|(_, rest)| rest.as_os_str().is_empty()));
    is_config || path.to_string_lossy().starts_with("weft://") || is_mount() || path.join(CONFIG_NAME).is_file()
}

/// The traces among what was named; what lies beside them in a folder is for other commands.
fn files(traces: &[PathBuf]) -> Result<Vec<(PathBuf, Content)>> {
    let mut files = inputs::files(traces)?;
    files.retain(|(_, content)| !matches!(content, Content::Json | Content::Progress | Content::Names));
    if files.is_empty() {
        bail!("no trace files there; `weft trace` makes some, and processes for which WEFT_TRACE names a folder, when they end");
    }
    Ok(files)
}

/// A folder is made, but not all that lead to it: a name that was mistyped is told.
fn refuse_a_lost_folder(folder: &Path) -> Result<()> {
    match std::path::absolute(folder)?.parent().filter(|parent| !parent.is_dir()) {
        Some(parent) => bail!("{} is no directory: make it first, or name another folder with --keep", parent.display()),
        None => Ok(()),
    }
}

/// Files of one folder are one run: those of two recordings would be read as one.
fn refuse_a_second_recording(folder: &Path) -> Result<()> {
    match files_in(folder) {
        Ok(files) if !files.is_empty() => bail!(
            "{} holds a recording already ({} files), and two in one folder would be read as one: name a new folder with --keep, or explain \
             that one with `weft explain {}`",
            folder.display(),
            files.len(),
            shell_word(folder)
        ),
        // Not there yet, or whatever is wrong with it is said when it is written to.
        _ => Ok(()),
    }
}

fn nodes(merged: &Merged) -> Vec<NodeRow> {
    let row = |(number, (node, clock)): (usize, (&TracedNode, &NodeClock))| NodeRow {
        thread_wait_at_most_s: thread_wait_at_most_s(merged, number),
        node: node.name.clone(),
        machine: node.machine.clone(),
        clock_offset_ns: clock.offset_ns,
        clock_rate_ppm: clock.rate * 1e6,
        clock_error_ns: clock.error_ns,
    };
    merged.nodes.iter().zip(&merged.clocks).enumerate().map(row).collect()
}

/// What the gauge of a mount has grown by.
fn thread_wait_at_most_s(merged: &Merged, node: usize) -> Option<f64> {
    let events = &merged.events;
    let gauge = |position: u32| match (events.sort(position).event == LOAD_MOUNT).then(|| events.event(position).record.body) {
        Some(Body::Counter([.., at_most_ns])) => Some(at_most_ns),
        _ => None,
    };
    let mut gauges = events.of_node(node).filter_map(gauge);
    let first = gauges.next()?;
    Some(gauges.next_back()?.saturating_sub(first) as f64 / 1e9)
}

/// A line for each mount.
fn wait_lines(nodes: &[NodeRow]) -> String {
    let line = |node: &NodeRow| {
        let seconds = node.thread_wait_at_most_s?;
        Some(format!("requests of the kernel to {}: waited {seconds:.4} s at most for one of its threads, all together\n", node.node))
    };
    nodes.iter().filter_map(line).collect()
}

/// A line for each node whose clock is not that of the first.
fn clock_lines(nodes: &[NodeRow]) -> String {
    let line = |node: &NodeRow| {
        let error_us = node.clock_error_ns.filter(|error| *error > 0)? as f64 / 1e3;
        let at = if node.machine.is_empty() { String::new() } else { format!(" on {}", node.machine) };
        let rate = if node.clock_rate_ppm == 0.0 { String::new() } else { format!(" and {:+.3} us a second", node.clock_rate_ppm) };
        let offset_s = node.clock_offset_ns as f64 / 1e9;
        Some(format!("clock of {}{at}: {offset_s:+.6} s{rate} were added, right within {error_us:.1} us\n", node.node))
    };
    nodes.iter().filter_map(line).collect()
}

/// What limits, and below it what to do.
fn said((verdict, number): (&Finding, usize)) -> String {
    let advice = if verdict.advice.is_empty() { String::new() } else { format!("   {}\n", verdict.advice) };
    format!("{number}. {}\n{advice}", verdict.sentence)
}

fn text(report: &Report) -> String {
    let all = &report.explanation;
    let mut text: String = all.verdict.iter().zip(1..).map(said).collect();
    report.twin.sentences().for_each(|sentence| text += &format!("{sentence}\n"));
    text += &format!("\n{}\n", measured(all));
    text += &(clock_lines(&report.nodes) + &wait_lines(&report.nodes));
    for open in &all.unfinished {
        let server = open.server.as_ref().map_or(String::new(), |server| format!(", waits for {server}"));
        text += &format!("not over: {} by {} after {:.3} s, in {}{server}\n", open.operation, open.client, open.seconds, open.inside);
    }
    for kind in &all.kinds {
        text += &format!(
            "\n{}: {} times, {:.3} s, median {:.0} us, 99th percentile {:.0} us, {:.1} % covered\n",
            kind.operation,
            kind.count,
            kind.seconds,
            kind.p50_us,
            kind.p99_us,
            kind.covered * 100.0
        );
        let mut table = Table::new(&["  stage", ">share", ">in the tail", ">seconds", ">median us", ">p99 us"]);
        for stage in &kind.stages {
            table.row(vec![
                format!("  {}", Stage::from_name(stage.stage).map_or(stage.stage, Stage::title)),
                format!("{:.1} %", stage.share * 100.0),
                format!("{:.1} %", stage.tail_share * 100.0),
                format!("{:.4}", stage.seconds),
                format!("{:.1}", stage.p50_us),
                format!("{:.1}", stage.p99_us),
            ]);
        }
        text += &table.render();
        kind.suspects.iter().for_each(|suspect| text += &format!("  -> {}\n", suspect.evidence));
    }
    all.missing.iter().for_each(|sentence| text += &format!("\nmissing: {sentence}"));
    report.slowest.iter().for_each(|waterfall| text += &format!("\n{waterfall}"));
    text + if all.missing.is_empty() { "" } else { "\n" }
}
