//! `weft explain`: where the time of recorded operations went.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use weft_charts::{Frame, views};
use weft_trace::Stage;
use weft_trace::explain::{Analysis, Explanation, Waterfall};
use weft_trace::file::TraceFile;
use weft_trace::merge::merge;

use crate::output::{Table, print, print_json};

/// Show where the time of operations went, from trace files
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Processes record when WEFT_TRACE names a folder; each writes its file there when it ends.

Examples:
  WEFT_TRACE=/tmp/t weft up /tmp/demo    and the same for clients; then, when all have ended:
  weft explain /tmp/t
  weft explain /tmp/t --slowest 10
  weft explain /tmp/t --svg where.svg")]
pub struct Args {
    /// Trace files, or folders with them
    #[arg(required = true)]
    traces: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show the slowest operations step by step
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    slowest: usize,
    /// Places to name for each kind of operation
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    suspects: usize,
    /// Draw the stages into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    explanation: Explanation,
    slowest: Vec<Waterfall>,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let files = files(&self.traces)?;
        let merged = merge(files.iter().map(|file| read(file)).collect::<Result<_>>()?);
        let analysis = Analysis::new(&merged);
        let report = Report { explanation: analysis.explain(self.suspects), slowest: analysis.slowest(self.slowest) };
        if let Some(svg) = &self.svg {
            let explained = format!("{} operations, {:.1} % covered", report.explanation.operations, report.explanation.covered * 100.0);
            let picture = views::where_time_goes(Frame::new("Where the time goes", &explained), &report.explanation).svg();
            std::fs::write(svg, picture).with_context(|| format!("cannot write {}", svg.display()))?;
        }
        if self.json {
            print_json(&report)?;
        } else {
            print(&text(&report))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn files(traces: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for trace in traces {
        if !trace.is_dir() {
            files.push(trace.clone());
            continue;
        }
        let entries = std::fs::read_dir(trace).with_context(|| format!("cannot read {}", trace.display()))?;
        files.extend(entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "wtrace")));
    }
    files.sort();
    if files.is_empty() {
        bail!("no trace files there; processes write them when they end, if WEFT_TRACE names a folder");
    }
    Ok(files)
}

fn read(file: &Path) -> Result<TraceFile> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    TraceFile::read(&bytes).with_context(|| file.display().to_string())
}

fn text(report: &Report) -> String {
    let all = &report.explanation;
    let mut text = format!("{} operations, {:.3} s, {:.1} % of the time covered\n", all.operations, all.seconds, all.covered * 100.0);
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
