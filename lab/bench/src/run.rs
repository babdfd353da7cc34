//! Does what a plan says: places, processes, repetitions, counters.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weft_analysis::results::Phase;
use weft_host::connect::{Common, Fs};
use weft_host::fs_arg::FsPath;
use weft_host::output::{print, print_json};
use weft_host::units::human_bytes;

use crate::crew::{Crew, Stop};
use crate::options::{Options, Phases};
use crate::progress::HEADING;
use crate::report;
use crate::report::{Measurement, Repetition};
use crate::site::Site;
use crate::usage::Observer;
use crate::worker;
use crate::yardstick::Yardstick;
use weft_workload::{WorkStep, Workload};

/// Runs a measuring subcommand.
///
/// # Errors
/// If options do not fit together, or the file system fails; what was made is removed all the same.
pub fn run(options: &Options, phases: Phases, common: &Common) -> Result<ExitCode> {
    let plan = options.plan(phases)?;
    let stop = Stop::at_signals()?;
    // Before anything is measured: a long run must not end with this.
    let progress = match &options.progress {
        Some(path) => Some((std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?, path)),
        None => None,
    };
    let measurements = measure(options, &plan, &stop, common)?;
    if let Some((mut file, path)) = progress {
        let lines: String = measurements.iter().map(Measurement::progress_csv).collect();
        file.write_all(format!("{HEADING}{lines}").as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let phases: Vec<Phase> = measurements.iter().filter_map(Measurement::summary).collect();
    match &options.markdown {
        _ if options.json => print_json(&phases)?,
        Some(label) => print(&report::markdown(label, &phases))?,
        None => print(&report::table(&phases))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(options: &Options, plan: &[Workload], stop: &Stop, common: &Common) -> Result<Vec<Measurement>> {
    let site = match (&options.path, &options.fs) {
        (Some(path), _) => Site::in_directory(path)?,
        (None, Some(fs)) => Site::in_file_system(fs, common)?,
        (None, None) => bail!("give --fs or --path"),
    };
    check_space(&site, plan)?;
    let servers = match (&options.path, &options.fs) {
        (Some(_), Some(fs)) => Some(Fs::open(&FsPath::split(fs).map_or_else(|| fs.clone(), |at| at.fs), common)?),
        _ => None,
    };
    let observer = match (&servers, site.fs()) {
        (Some(fs), _) => Some(Observer::new(fs, options.path.as_deref())),
        (None, Some(fs)) => Some(Observer::new(fs, None)),
        (None, None) => None,
    };
    let yardstick =
        options.ceiling.map(|kind| Yardstick::start(kind, site.fs())).transpose().context("there is no ceiling to compare with")?;
    let pause = Duration::from_secs_f64(options.pause);
    let mut bench = Bench { site: &site, observer, yardstick, stop, common, pause };
    let mut measurements = Vec::new();
    for work in plan {
        measurements.extend(bench.workload(work)?);
    }
    Ok(measurements)
}

/// A run must not fill a file system that others use, and then fail.
fn check_space(site: &Site, plan: &[Workload]) -> Result<()> {
    let wanted = plan.iter().map(Workload::bytes).max().unwrap_or(0);
    if wanted == 0 {
        return Ok(());
    }
    let free = site.free_bytes()?;
    if wanted > u128::from(free) {
        let wanted = human_bytes(u64::try_from(wanted).unwrap_or(u64::MAX));
        bail!(
            "the files of this run have {wanted} together, and {} has {} free: give a smaller --size, or fewer --files, --procs or --clients",
            site.root().display(),
            human_bytes(free)
        );
    }
    Ok(())
}

/// Everything that the workloads of one run share.
pub struct Bench<'a> {
    /// Where files are made.
    pub site: &'a Site,
    /// Who knows what servers spend.
    pub observer: Option<Observer<'a>>,
    /// Measures ceilings.
    pub yardstick: Option<Yardstick>,
    /// Notices Ctrl-C.
    pub stop: &'a Stop,
    /// For the processes.
    pub common: &'a Common,
    /// Rest before each phase.
    pub pause: Duration,
}

impl Bench<'_> {
    /// Starts the processes for some work.
    ///
    /// # Errors
    /// If they cannot be started.
    pub fn crew(&self, work: &Workload) -> Result<Crew> {
        let root = self.site.root();
        Crew::start(self.common, work.procs, |process| worker::Args::words(self.site.fs_arg(), &root, process, work.depth), self.stop)
    }

    fn workload(&mut self, work: &Workload) -> Result<Vec<Measurement>> {
        let steps = &work.steps;
        let mut crew = self.crew(work)?;
        self.site.make_dirs(work)?;
        for step in &steps.before {
            crew.run(*step, work, || Ok(()))?;
        }
        let mut measurements = Measurement::of(work);
        for repetition in 1..=work.repetitions {
            for (step, told) in &steps.cycle {
                std::thread::sleep(self.pause);
                if !told {
                    crew.run(*step, work, || Ok(()))?;
                    continue;
                }
                let one = self.timed(&mut crew, *step, work)?;
                let measurement = measurements.iter_mut().find(|one| one.step == *step).expect("one for each step that is told");
                say(&measurement.phase, repetition, work.repetitions, &one);
                measurement.repetitions.push(one);
            }
        }
        for step in &steps.after {
            crew.run(*step, work, || Ok(()))?;
        }
        drop(crew);
        self.site.remove_dirs(work)?;
        Ok(measurements)
    }

    /// One repetition of one step, with everything that is measured around it.
    ///
    /// # Errors
    /// Of the file system, the ceiling or a server that does not answer.
    pub fn timed(&self, crew: &mut Crew, step: WorkStep, work: &Workload) -> Result<Repetition> {
        let ceiling = match &self.yardstick {
            Some(yardstick) => yardstick.measure(step, work)?,
            None => None,
        };
        let mut before = None;
        let outcome = crew.run(step, work, || {
            before = self.observer.as_ref().map(Observer::look).transpose()?;
            Ok(())
        })?;
        let usage = match (&self.observer, before) {
            (Some(observer), Some(before)) => Some(observer.since(before)?),
            _ => None,
        };
        Ok(Repetition { outcome, usage, ceiling })
    }
}

/// Tells a person who waits how it goes.
pub fn say(phase: &str, repetition: u32, repetitions: u32, one: &Repetition) {
    if std::io::stderr().is_terminal() {
        let rate = report::number(one.outcome.tally.ops as f64 / one.outcome.seconds);
        weft_host::output::tell_plainly(&format!(
            "{phase} {repetition} of {repetitions}: {rate} operations/s in {:.2} s",
            one.outcome.seconds
        ));
    }
}

/// A temporary directory inside `parent`, or where temporary files are.
///
/// # Errors
/// Of the operating system.
pub fn temporary_dir(parent: Option<&Path>) -> Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("weft-bench-");
    match parent {
        Some(parent) => builder.tempdir_in(parent).with_context(|| format!("cannot make a directory in {}", parent.display())),
        None => builder.tempdir().context("cannot make a temporary directory"),
    }
}
