//! `weft bench engines`: what durability costs. Temporary file systems, one for each engine and
//! durability, run at the same time; creates by the library go to one after the other, over and
//! over, so that whatever else happens on the machine meets all alike.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use weft_host::connect::Common;
use weft_host::output::{Table, print, print_json};

use crate::crew::Stop;
use crate::report;
use crate::report::{Measurement, Phase};
use crate::run::{Bench, say, temporary_dir};
use crate::site::Site;
use crate::stats::Spread;
use crate::usage::Observer;
use crate::work::{Step, Work};

/// Engine, durability, and the name in results. The first is what the others are compared with.
const SYSTEMS: [(&str, &str, &str); 4] = [
    ("memory", "none", "memory"),
    ("journal", "none", "journal none"),
    ("journal", "batch", "journal batch"),
    ("journal", "sync", "journal sync"),
];

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  weft bench engines --files 200000 --reps 5")]
pub struct Args {
    #[command(flatten)]
    creates: Creates,
    /// Repetitions
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
}

/// Creates by the library in temporary file systems.
#[derive(Debug, clap::Args)]
pub struct Creates {
    /// Where the journals are [default: where temporary files are]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Metadata servers of each file system
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub meta: u16,
    /// Files of each client
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub files: u64,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub clients: u32,
    /// Requests that each keeps in flight
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Creates {
    /// All clients in one directory.
    pub fn work(&self) -> Work {
        Work { clients: self.clients, depth: self.depth, files: self.files, ..Work::EMPTY_FILES }
    }
}

/// A result with what it belongs to.
#[derive(Serialize)]
struct Row {
    engine: &'static str,
    durability: &'static str,
    ratio_to_memory: Option<Spread>,
    #[serde(flatten)]
    phase: Phase,
}

/// A temporary file system; dropping it stops it.
pub struct System {
    pub state: PathBuf,
}

impl System {
    /// Starts it with these arguments of `weft up`.
    ///
    /// # Errors
    /// If that fails.
    pub fn start(state: PathBuf, arguments: &[&str]) -> Result<System> {
        let system = System { state };
        system.weft(["up"].iter().chain(arguments).map(OsString::from))?;
        Ok(system)
    }

    fn weft(&self, words: impl IntoIterator<Item = OsString>) -> Result<()> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(&program);
        command.args(words).arg("--state").arg(&self.state).stdin(Stdio::null());
        // The servers must not hold pipes of this process open.
        let ended = command.stdout(Stdio::null()).status().with_context(|| format!("cannot start {}", program.display()))?;
        if !ended.success() {
            bail!("a temporary file system in {} could not be started or stopped", self.state.display());
        }
        Ok(())
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if let Err(error) = self.weft(["down".into()]) {
            weft_host::output::tell(&format!("{error:#}"));
        }
    }
}

/// Measures in a temporary directory below `dir`, and prints the results: what comparisons of
/// temporary file systems have in common.
///
/// # Errors
/// Of the measurement.
pub fn measured<T: Serialize>(
    dir: Option<&Path>,
    json: bool,
    measure: impl FnOnce(&Path, &Stop) -> Result<Vec<T>>,
    table: impl FnOnce(&[T]) -> String,
) -> Result<ExitCode> {
    let stop = Stop::at_signals()?;
    let place = temporary_dir(dir)?;
    let rows = measure(place.path(), &stop)?;
    if json {
        print_json(&rows)?;
    } else {
        print(&table(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Every system once, then all again: whatever else happens on the machine meets all alike. `one`
/// gets the system and the number of the repetition, from 1.
///
/// # Errors
/// The first one of `one`, or if the user wants it to end.
pub fn in_turns<S>(stop: &Stop, repetitions: u32, systems: &mut [S], mut one: impl FnMut(&mut S, u32) -> Result<()>) -> Result<()> {
    for repetition in 1..=repetitions {
        for system in &mut *systems {
            stop.check()?;
            one(system, repetition)?;
        }
    }
    Ok(())
}

impl Args {
    /// Measures and prints.
    ///
    /// # Errors
    /// If a file system cannot be started or fails.
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        measured(self.creates.dir.as_deref(), self.creates.json, |place, stop| self.measure(place, stop, common), table)
    }

    fn measure(&self, place: &Path, stop: &Stop, common: &Common) -> Result<Vec<Row>> {
        let mut systems = Vec::new();
        for (engine, durability, name) in SYSTEMS {
            stop.check()?;
            let meta = self.creates.meta.to_string();
            let arguments = ["--engine", engine, "--durability", durability, "--data", "1", "--meta", &meta];
            systems.push(System::start(place.join(name.replace(' ', "-")), &arguments)?);
        }
        let sites = systems.iter().map(|system| Site::in_file_system(system.state.as_os_str(), common)).collect::<Result<Vec<Site>>>()?;
        let work = self.creates.work();
        let mut runs = Vec::new();
        for (site, (_, _, name)) in sites.iter().zip(SYSTEMS) {
            site.make_dirs(&work)?;
            let observer = site.fs().map(|fs| Observer::new(fs, None));
            let bench = Bench { site, observer, yardstick: None, stop, common, reps: self.reps, pause: std::time::Duration::ZERO };
            let crew = bench.crew(&work)?;
            runs.push((bench, crew, Measurement { phase: name.into(), step: Step::Create, work: work.clone(), repetitions: Vec::new() }));
        }
        in_turns(stop, self.reps, &mut runs, |(bench, crew, measurement), repetition| {
            let one = bench.timed(crew, Step::Create, &work)?;
            say(&measurement.phase, repetition, self.reps, &one);
            measurement.repetitions.push(one);
            crew.run(Step::Remove, &work, || Ok(())).map(drop)
        })?;
        let measurements: Vec<Measurement> = runs.into_iter().map(|(_, _, measurement)| measurement).collect();
        drop(sites);
        Ok(rows(&measurements))
    }
}

/// Each repetition is compared with the one of `memory` just before it.
fn rows(measurements: &[Measurement]) -> Vec<Row> {
    let rates =
        |one: &Measurement| one.repetitions.iter().map(|one| one.outcome.tally.ops as f64 / one.outcome.seconds).collect::<Vec<f64>>();
    let bound = measurements.first().map(rates).unwrap_or_default();
    let rows = measurements.iter().zip(SYSTEMS).filter_map(|(measurement, (engine, durability, _))| {
        let ratios = rates(measurement).into_iter().zip(&bound).map(|(rate, bound)| rate / bound);
        Some(Row { engine, durability, ratio_to_memory: Spread::of(ratios), phase: measurement.summary()? })
    });
    rows.collect()
}

fn table(rows: &[Row]) -> String {
    let mut table =
        Table::new(&["file system", ">creates/s", "min - max", ">of memory", "min - max", ">servers us/create", ">client us/create"]);
    let spread = |spread: Spread| format!("{} - {}", report::number(spread.min), report::number(spread.max));
    for row in rows {
        table.row(vec![
            row.phase.phase.clone(),
            report::number(row.phase.ops_per_s.median),
            spread(row.phase.ops_per_s),
            row.ratio_to_memory.map(|ratio| report::number(ratio.median)).unwrap_or_default(),
            row.ratio_to_memory.map(spread).unwrap_or_default(),
            row.phase.server_cpu_us_per_op.map(report::number).unwrap_or_default(),
            report::number(row.phase.client_cpu_us_per_op),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::Outcome;
    use crate::meter::Tally;
    use crate::report::Repetition;
    use crate::work::tests::small;

    #[test]
    fn each_repetition_is_compared_with_its_own_bound() {
        let measurement = |seconds: [f64; 2]| {
            let repetition = |seconds| Repetition {
                outcome: Outcome { seconds, tally: Tally { ops: 100, ..Tally::default() }, progress: vec![], cpu_us: 0, traffic: None },
                usage: None,
                ceiling: None,
            };
            Measurement { phase: "x".into(), step: Step::Create, work: small(), repetitions: seconds.map(repetition).into() }
        };
        let rows = rows(&[measurement([1.0, 2.0]), measurement([2.0, 2.0])]);
        assert_eq!(rows[0].ratio_to_memory, Some(Spread { median: 1.0, min: 1.0, max: 1.0 }));
        assert_eq!(rows[1].ratio_to_memory, Some(Spread { median: 0.75, min: 0.5, max: 1.0 }));
        assert_eq!(table(&rows).lines().count(), 3);
    }
}
