//! `weft sim thesis`: every number that the thesis behind the simulator prints, beside the
//! simulated one.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::Serialize;
use weft_host::output::{Table, print_as};
use weft_piosim::thesis::{Case, Cell, PartdiffTable, RunResult, cases, number, partdiff};
use weft_piosim::{Application, ClusterConfig, Simulation};

use crate::figures;
use crate::pool;
use crate::workload::{read_model, read_project};

/// Repeat the evaluation of the PIOsimHD thesis (2009) and compare every printed number
///
/// Random and database tests are means of ten runs and agree if they are within the printed
/// standard deviation; everything else must be equal in every printed digit. A number is called
/// fitted if it is equal only because orders of files were searched until it was. Tables 6.1 to 6.5
/// need the traced application.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weft sim thesis\n  weft sim thesis --table C.3.2\n  weft sim thesis --table 6.3 --json\n  weft sim thesis --plot figures"
)]
pub struct Args {
    /// Only this table or section: C, C.1 to C.4 (or deeper, as C.2.1), 6, 6.1 to 6.5
    #[arg(long)]
    table: Option<String>,
    /// Folder with the traced application (partdiff-par.proj, its traces, pvs-cluster-model.xml)
    #[arg(long, default_value = "../shared/data/partdiff-mpi-io-synced")]
    trace_dir: PathBuf,
    /// Print JSON: an array with one object for each number
    #[arg(long)]
    json: bool,
    /// Draw figures 6.2 to 6.12 of what was simulated into this folder: bars as simulated, dots as
    /// printed
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

/// A number of the thesis.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    cell: Cell,
    /// Processor seconds of the simulations behind this number.
    cpu_s: f64,
}

/// One simulation.
enum Job {
    /// Run number `.1` of a case.
    Case(usize, u64),
    /// A table of partdiff-par.
    Partdiff(Box<PartdiffTable>),
}

/// What a simulation gave.
enum Outcome {
    Run(RunResult, f64),
    Cells(Vec<Cell>, f64),
}

impl Args {
    pub fn run(self, threads: usize) -> Result<bool> {
        let wanted = |table: &str| match &self.table {
            None => true,
            Some(prefix) => table == prefix || table.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.starts_with('.')),
        };
        let cases: Vec<Case> = cases("").into_iter().filter(|case| wanted(case.table())).collect();
        let tables: Vec<PartdiffTable> = partdiff().filter(|table| wanted(table.number)).collect();
        if cases.is_empty() && tables.is_empty() {
            bail!("the thesis has no such table: write C, C.1 to C.4 (or deeper, as C.2.1), 6, or 6.1 to 6.5");
        }
        let mut jobs: Vec<Job> =
            cases.iter().enumerate().flat_map(|(index, case)| (0..case.runs()).map(move |seed| Job::Case(index, seed))).collect();
        let traced = if tables.is_empty() { None } else { traced(&self.trace_dir, self.table.is_some())? };
        if traced.is_some() {
            jobs.extend(tables.into_iter().map(|table| Job::Partdiff(Box::new(table))));
        }
        let outcomes = pool::all(&jobs, threads, |job| simulate(job, &cases, &traced))?;
        let (runs, partdiff) = sorted(&cases, &jobs, outcomes);
        if let Some(folder) = &self.plot {
            let ran: Vec<figures::Ran<'_>> = cases.iter().zip(&runs).map(|(case, (runs, _))| (case, runs.as_slice())).collect();
            let files = figures::write(folder, &ran, &traced_times(&partdiff))?;
            weft_host::output::tell(&format!("{}: {}", folder.display(), files.join(", ")));
        }
        let compared = cases.iter().zip(runs).map(|(case, (runs, cpu_s))| Row { cell: case.compare(&runs), cpu_s });
        let rows: Vec<Row> = compared.chain(partdiff).collect();
        let agree = rows.iter().all(|row| row.cell.within_deviation);
        print_as(self.json, &rows, || text(&rows))?;
        Ok(agree)
    }
}

/// The traced application and its cluster. Without the trace, `None` unless it is indispensable.
fn traced(folder: &Path, indispensable: bool) -> Result<Option<(ClusterConfig, Application)>> {
    let project = folder.join("partdiff-par.proj");
    if !project.is_file() {
        let message = format!("Tables 6.1 to 6.5 need the traced application; {} is absent (see --trace-dir)", project.display());
        if indispensable {
            bail!(message);
        }
        weft_host::output::tell(&message);
        return Ok(None);
    }
    Ok(Some((read_model(&folder.join("pvs-cluster-model.xml"))?, read_project(&project)?.0)))
}

fn simulate(job: &Job, cases: &[Case], traced: &Option<(ClusterConfig, Application)>) -> Result<Outcome> {
    let began = thread_seconds()?;
    match job {
        Job::Case(index, seed) => {
            let case = &cases[*index];
            let run = case.run(*seed).map_err(|problem| anyhow!("{} {}: {problem}", case.table(), case.name()))?;
            Ok(Outcome::Run(run, thread_seconds()? - began))
        }
        Job::Partdiff(table) => {
            let Some((model, application)) = traced else { bail!("the traced application is absent") };
            let simulation = Simulation::new(&table.config(model), application).map_err(anyhow::Error::msg)?;
            let report = simulation.run().map_err(|problem| anyhow!("{}: {problem}", table.number))?;
            let cells = table.compare(&report).into_iter().map(|cell| Cell { events: report.events, ..cell }).collect();
            Ok(Outcome::Cells(cells, thread_seconds()? - began))
        }
    }
}

/// Seconds of a processor that this thread has taken: what else the machine does is not in them.
fn thread_seconds() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6)
}

/// The seconds of Tables 6.1 to 6.5.
fn traced_times(rows: &[Row]) -> Vec<figures::Traced> {
    let times = rows.iter().map(|row| &row.cell).filter(|cell| cell.case == "time");
    let layer = |cell: &Cell| {
        partdiff().find(|table| table.number == cell.table).map_or_else(String::new, |table| {
            let delayed = if table.delayed { ", delayed" } else { "" };
            format!("{}: {}{delayed}", table.number, table.layer.name())
        })
    };
    times.map(|cell| (layer(cell), number(&cell.simulated), number(&cell.printed))).collect()
}

/// The runs of each case with their real seconds, and what is said of the traced application.
fn sorted(cases: &[Case], jobs: &[Job], outcomes: Vec<Outcome>) -> (Vec<(Vec<RunResult>, f64)>, Vec<Row>) {
    let mut runs: Vec<(Vec<RunResult>, f64)> = vec![(Vec::new(), 0.0); cases.len()];
    let mut partdiff = Vec::new();
    for (job, outcome) in jobs.iter().zip(outcomes) {
        match (job, outcome) {
            (Job::Case(index, _), Outcome::Run(run, cpu_s)) => {
                runs[*index].0.push(run);
                runs[*index].1 += cpu_s;
            }
            (_, Outcome::Cells(cells, cpu_s)) => partdiff.extend(cells.into_iter().map(|cell| Row { cell, cpu_s })),
            (Job::Partdiff(_), Outcome::Run(..)) => {}
        }
    }
    (runs, partdiff)
}

fn text(rows: &[Row]) -> String {
    let mut table = Table::new(&["table", "case", ">printed", ">simulated", "unit", ">difference", ""]);
    let cells = || rows.iter().map(|row| &row.cell);
    for cell in cells() {
        let verdict = match (cell.equal, cell.within_deviation) {
            (true, _) if cell.fitted => "fitted",
            (true, _) => "equal",
            (false, true) => "agrees",
            (false, false) => "DIFFERS",
        };
        let difference = if cell.equal { "0".to_string() } else { format!("{:+.9}", cell.difference) };
        let Cell { table: of, case, unit, printed, simulated, .. } = cell.clone();
        table.row(vec![of, case, printed, simulated, unit.to_string(), difference, verdict.to_string()]);
    }
    let equal = cells().filter(|cell| cell.equal).count();
    let agree = cells().filter(|cell| cell.within_deviation && !cell.equal).count();
    let fitted = cells().filter(|cell| cell.fitted).count();
    let events: u64 = cells().map(|cell| cell.events).sum();
    let seconds: f64 = rows.iter().map(|row| row.cpu_s).sum();
    let rate = if seconds > 0.0 { events as f64 / seconds / 1e6 } else { 0.0 };
    let summary = format!(
        "{equal} of {} numbers are equal in every printed digit ({fitted} of them fitted: equal by orders of files that were searched against \
         them), {agree} more agree (means within the printed deviation, sums that contradict their printed parts), {} differ; {rate:.1} \
         million events in a second of a processor\n",
        rows.len(),
        rows.len() - equal - agree
    );
    table.render() + &summary
}
