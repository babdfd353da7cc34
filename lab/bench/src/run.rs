//! Does what a plan says: places, processes, repetitions, counters.

use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::resource::UsageWho;
use weft_analysis::results::Phase;
use weft_host::connect::{Common, Fs};
use weft_host::fs_arg::FsPath;
use weft_host::output::print_as;
use weft_host::units::human_bytes;

use crate::crew::{Crew, Outcome, Over, Stop};
use crate::meter::Tally;
use crate::options::{Options, Phases};
use crate::progress::HEADING;
use crate::report;
use crate::report::{Measurement, Repetition};
use crate::setup::Rest;
use crate::site::Site;
use crate::usage::Observer;
use crate::worker;
use crate::yardstick::Yardstick;
use weft_workload::{WorkStep, Workload};

/// Phases of this beginning make and remove the tree of directories.
const TREE: &str = "tree-";

/// Runs a measuring subcommand.
///
/// # Errors
/// If options do not fit together, or the file system fails; what was made is removed all the same.
pub fn run(options: &Options, kind: Phases, common: &Common) -> Result<()> {
    let plan = options.plan(kind)?;
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
    let table = if kind == Phases::Mdtest { report::summary_table } else { report::table };
    Ok(print_as(options.json, &phases, || table(&phases))?)
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
    let rest = Rest { pause: Duration::from_secs_f64(options.pause), drop_caches: false };
    let (warm_up, before_each) = (options.warm_up, options.before_each.as_deref());
    let mut bench = Bench { site: &site, observer, yardstick, stop, common, rest, warm_up, before_each, over: None, program: None };
    let mut measurements: Vec<Measurement> = Vec::new();
    for work in plan {
        for found in bench.workload(work)? {
            // The tree of directories and that of files are told together.
            match measurements.iter_mut().find(|known| known.phase == found.phase && known.phase.starts_with(TREE)) {
                Some(known) => known.repetitions.extend(found.repetitions),
                None => measurements.push(found),
            }
        }
    }
    Ok(measurements)
}

/// A run must not fill a file system that others use, and then fail.
///
/// # Errors
/// It would, or nobody can tell.
pub fn check_space(site: &Site, plan: &[Workload]) -> Result<()> {
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
    /// Before each phase.
    pub rest: Rest,
    /// Repetitions that do not count, before the others.
    pub warm_up: u32,
    /// Run by the shell before each repetition.
    pub before_each: Option<&'a OsStr>,
    /// Hosts of the processes, if not this one.
    pub over: Option<&'a Over>,
    /// Their program, if not this one.
    pub program: Option<&'a Path>,
}

impl Bench<'_> {
    /// Starts the processes for some work.
    ///
    /// # Errors
    /// If they cannot be started.
    pub fn crew(&self, work: &Workload) -> Result<Crew> {
        let root = self.site.root();
        let words = |process| worker::Args::words(self.site.fs_arg(), &root, process, work.depth);
        match self.over {
            Some(over) => Crew::start_over(over, self.common, work.procs, words, self.stop),
            None => Crew::start_traced(self.program, self.common, work.procs, words, self.stop, None),
        }
    }

    fn workload(&mut self, work: &Workload) -> Result<Vec<Measurement>> {
        let steps = &work.steps;
        let mut crew = self.crew(work)?;
        let has_tree = work.items.depth > 0;
        let mut measurements = Measurement::of(work);
        let made = alone(work, WorkStep::Create, || self.site.make_dirs(work))?;
        measurements.extend(has_tree.then_some(made));
        for step in &steps.before {
            crew.run(*step, work, || Ok(()))?;
        }
        for number in 1..=self.warm_up + work.repetitions {
            let repetition = number.saturating_sub(self.warm_up);
            if let Some(command) = self.before_each {
                drop(crew);
                shell(command, "", self.stop)?;
                crew = self.crew(work)?;
            }
            for (step, told) in &steps.cycle {
                self.rest.take()?;
                if !told || repetition == 0 {
                    crew.run(*step, work, || Ok(()))?;
                    continue;
                }
                let one = self.timed(&mut crew, *step, work)?;
                let measurement = measurements.iter_mut().find(|one| one.step == Some(*step)).expect("one for each step that is told");
                say(&measurement.phase, repetition, work.repetitions, &one);
                measurement.repetitions.push(one);
            }
        }
        for step in &steps.after {
            crew.run(*step, work, || Ok(()))?;
        }
        drop(crew);
        let removed = alone(work, WorkStep::Remove, || self.site.remove_dirs(work))?;
        measurements.extend(has_tree.then_some(removed));
        Ok(measurements)
    }

    /// One repetition of one step, with everything that is measured around it.
    ///
    /// # Errors
    /// Of the file system, the ceiling or a server that does not answer.
    pub fn timed(&self, crew: &mut Crew, step: WorkStep, work: &Workload) -> Result<Repetition> {
        let ceiling = self.yardstick.as_ref().map_or(Ok(None), |yardstick| yardstick.measure(step, work))?;
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

/// The directories of a work made or removed by this process alone, as mdtest tells it.
fn alone(work: &Workload, step: WorkStep, act: impl FnOnce() -> Result<()>) -> Result<Measurement> {
    let (cpu_us, began) = (worker::cpu_us(UsageWho::RUSAGE_SELF)?, Instant::now());
    act()?;
    let tally = Tally { ops: work.dir_names().len() as u64, ..Tally::default() };
    let cpu_us = worker::cpu_us(UsageWho::RUSAGE_SELF)?.saturating_sub(cpu_us);
    let outcome = Outcome { seconds: began.elapsed().as_secs_f64(), tally, progress: Vec::new(), cpu_us, traffic: None };
    let repetitions = vec![Repetition { outcome, usage: None, ceiling: None }];
    let work = Workload { procs: 1, clients: 1, depth: 1, progress: None, ..work.clone() };
    Ok(Measurement { phase: format!("{TREE}{}", step.name()), step: Some(step), work, repetitions })
}

/// Runs a command by the shell; `name` says for which file system, if there are several.
///
/// # Errors
/// The command cannot be started, or fails; or the person wants to stop.
pub fn shell(command: &OsStr, name: &str, stop: &Stop) -> Result<()> {
    let mut sh = Command::new("sh");
    sh.arg("-c").arg(command).env("WEFT_PLACE", name).stdin(Stdio::null()).stdout(Stdio::null());
    let ended = stop.status(&mut sh)?;
    if !ended.success() {
        bail!("{}: {ended}", command.display());
    }
    Ok(())
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
