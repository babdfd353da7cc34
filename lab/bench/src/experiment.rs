//! File systems side by side, and what is done on them in turns.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use weft_host::connect::{Common, Fs};
use weft_recording::nodes::Traced;
use weft_recording::{RING_BYTES_MAX_SERVER, files_in};
use weft_trace::file::TraceFile;
use weft_wire::Rights;
use weft_wire::ops::{TraceAction, TraceMode, TraceRequest};
use weft_workload::{BlockOrder, Sharing, WorkStep, Workload};

use crate::commands::Shell;
use crate::crew::{Crew, Over, Stop};
use crate::order::{Done, Written};
use crate::report::Measurement;
use crate::results::Records;
use crate::run::{Bench, check_space, shell};
use crate::setup::{Place, Rest, Variant};
use crate::site::Site;
use crate::system::System;
use crate::usage::{Observer, Used};
use crate::worker;

/// A server's ring in bytes for each file: one record, and if each create has a turn of its own,
/// that and its part of the journal.
const RING_BYTES_PER_FILE: u64 = 512;

/// File systems side by side.
pub struct Experiment<'a> {
    /// The file systems.
    pub variants: Vec<Variant>,
    /// Where temporary ones lie.
    pub place: &'a Path,
    /// Notices Ctrl-C.
    pub stop: &'a Stop,
    /// For the processes.
    pub common: &'a Common,
    /// Before each step.
    pub rest: Rest,
    /// Run by the shell before each repetition, with the name of what is next in `WEFT_PLACE`.
    pub before_each: Option<&'a OsStr>,
    /// Hosts of the processes, if not this one.
    pub over: Option<&'a Over>,
}

/// The file system that failed: errors of experiments have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// Its number, from 0.
    pub number: usize,
    name: String,
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "place {}", self.name)
    }
}

impl Experiment<'_> {
    fn culprit(&self, number: usize) -> Culprit {
        Culprit { number, name: self.variants[number].name() }
    }

    /// Does the workloads of these cases on each of them.
    ///
    /// # Errors
    /// If a file system cannot be started or fails, or gives other bytes than were written; then
    /// the error has a [`Culprit`].
    pub fn run(&self, cases: &[usize], schedule: &mut Written<'_>) -> Result<()> {
        let ups: Vec<Vec<String>> = self.variants.iter().map(|variant| variant.setup.up()).collect();
        if self.variants.iter().any(|variant| variant.setup.restart) {
            return self.run_apart(&ups, cases, schedule);
        }
        let mut systems: Vec<(usize, System)> = Vec::new();
        let mut sites: Vec<Site> = Vec::new();
        for (number, (variant, up)) in self.variants.iter().zip(&ups).enumerate() {
            self.stop.check()?;
            // What differs only in what is recorded or in how files are made has one file system,
            // but directories of its own: a client is told less of one that others have just
            // changed.
            let is_temporary = |number: usize| self.variants[number].place == Place::Temporary;
            let shared = systems.iter().find(|(before, _)| is_temporary(number) && is_temporary(*before) && ups[*before] == *up);
            let site = match (&variant.place, shared) {
                (_, Some((_, system))) => Site::in_file_system(system.state.as_os_str(), self.common),
                (Place::Directory(path), _) => Site::in_directory(path),
                (Place::FileSystem(fs), _) => Site::in_file_system(fs, self.common),
                (Place::Word(_), _) => Site::in_directory(self.place),
                (place, _) => System::start(self.place.join(format!("fs{number}")), up, place.program()).and_then(|system| {
                    let site = Site::in_file_system(system.state.as_os_str(), self.common);
                    systems.push((number, system));
                    site
                }),
            };
            sites.push(site.context(self.culprit(number))?);
        }
        for &case in cases {
            let work = &schedule.loads[case].1;
            for (number, site) in sites.iter().enumerate() {
                check_space(site, std::slice::from_ref(work)).context(self.culprit(number))?;
                site.make_dirs(work).context(self.culprit(number))?;
            }
            let works: Vec<Workload> = self.variants.iter().map(|variant| variant.by(work)).collect::<Result<_>>()?;
            if let Some(commands) = &work.steps.commands {
                let shell = Shell::prepare(self, commands)?;
                while let Some(order) = schedule.next(case) {
                    for number in order {
                        let one = shell.repeat(&self.variants[number], &sites[number], work);
                        schedule.told(case, number, one.context(self.culprit(number))?)?;
                    }
                }
            } else {
                let series = self.variants.iter().zip(&works).zip(&sites).enumerate();
                let series =
                    series.map(|(number, ((variant, work), site))| Series::new(self, variant, site, work).context(self.culprit(number)));
                let mut series = series.collect::<Result<Vec<Series<'_>>>>()?;
                while let Some(order) = schedule.next(case) {
                    for number in order {
                        let one = series[number].repeat().context(self.culprit(number))?;
                        schedule.told(case, number, one)?;
                    }
                }
                series.into_iter().enumerate().try_for_each(|(number, series)| series.end().context(self.culprit(number)))?;
            }
            sites.iter().try_for_each(|site| site.remove_dirs(work))?;
        }
        Ok(())
    }

    /// The same, but every repetition has servers and a file system that were just made, and no
    /// other ones beside them.
    fn run_apart(&self, ups: &[Vec<String>], cases: &[usize], schedule: &mut Written<'_>) -> Result<()> {
        for &case in cases {
            let work = &schedule.loads[case].1;
            while let Some(order) = schedule.next(case) {
                for number in order {
                    self.stop.check()?;
                    let own = self.variants[number].by(work)?;
                    let system =
                        System::start(self.place.join(format!("fs{number}")), &ups[number], self.variants[number].place.program())?;
                    let site = Site::in_file_system(system.state.as_os_str(), self.common)?;
                    check_space(&site, std::slice::from_ref(work))?;
                    site.make_dirs(work)?;
                    let mut series = Series::new(self, &self.variants[number], &site, &own).context(self.culprit(number))?;
                    let one = series.repeat().context(self.culprit(number))?;
                    series.end()?;
                    schedule.told(case, number, one)?;
                    // What is to be thrown away whole is not removed file by file.
                    site.leave();
                    let state = system.state.clone();
                    drop(system);
                    std::fs::remove_dir_all(&state).with_context(|| format!("cannot remove {}", state.display()))?;
                }
            }
        }
        Ok(())
    }

    fn is_recorded(&self) -> bool {
        self.variants.iter().any(|variant| variant.setup.record.is_some())
    }
}

/// One file system and what is done on it.
struct Series<'a> {
    bench: Bench<'a>,
    work: &'a Workload,
    /// None before the first repetition, if something is run before each.
    crew: Option<Crew>,
    /// The file system, if processes are started anew for each repetition; and the events, if they
    /// are recorded in this series.
    recorded: Option<(Traced, Option<&'a str>)>,
    place: &'a Path,
    /// As [`Experiment::before_each`] is told.
    name: String,
}

impl<'a> Series<'a> {
    fn new(experiment: &Experiment<'a>, variant: &'a Variant, site: &'a Site, work: &'a Workload) -> Result<Series<'a>> {
        let Experiment { stop, common, rest, before_each, over, .. } = *experiment;
        let setup = &variant.setup;
        let observer = site.fs().map(|fs| Observer::new(fs, None));
        let program = variant.place.program();
        let bench = Bench { site, observer, yardstick: None, stop, common, rest, warm_up: 0, before_each, over, program };
        let mut crew = bench.crew(work)?;
        ensure!(work.order == BlockOrder::Ascending, "clients on this machine go over their blocks from the first to the last");
        let recorded = if experiment.is_recorded() {
            ensure!(work.steps.before.is_empty(), "records are taken of steps that need nothing before them");
            let state = site.fs_arg().context("records are taken of temporary file systems")?;
            Some((Traced::find(state, "*", experiment.common)?, setup.record.as_deref()))
        } else {
            None
        };
        for step in &work.steps.before {
            crew.run(*step, work, || Ok(()))?;
        }
        // A warm-up and a measured repetition have the same servers (Vef 2016, figure 4.1).
        for _ in 0..setup.warm_up {
            for (step, _) in &work.steps.cycle {
                crew.run(*step, work, || Ok(()))?;
            }
        }
        Ok(Series { bench, work, crew: Some(crew), recorded, place: experiment.place, name: variant.name() })
    }

    /// Where something is recorded, the steps that are told are done by processes of their own, so
    /// that their rings and their memory are new each time.
    fn repeat(&mut self) -> Result<Done> {
        self.bench.stop.check()?;
        if let Some(command) = self.bench.before_each {
            // Nothing may be open then.
            drop(self.crew.take());
            shell(command, &self.name, self.bench.stop)?;
        }
        let mut all = self.crew.take().map_or_else(|| self.bench.crew(self.work), Ok)?;
        let steps = Measurement::of(self.work).into_iter().map(|measurement| (measurement, Used::default())).collect();
        let mut done = Done { steps, records: Records::default() };
        let mut fresh = self.recorded.is_some().then(|| self.begin()).transpose()?;
        for (step, is_told) in &self.work.steps.cycle {
            if !is_told {
                fresh.take().map_or(Ok(()), |fresh| self.record(fresh, &mut done.records))?;
                all.run(*step, self.work, || Ok(()))?;
                continue;
            }
            self.bench.rest.take()?;
            // Of other file systems nobody can tell.
            let fs = self.bench.site.fs();
            let before = fs.map(Used::look).transpose()?.unwrap_or_default();
            let crew = fresh.as_mut().map_or(&mut all, |(crew, _)| crew);
            let one = self.bench.timed(crew, *step, self.work)?;
            if let Some(fs) = fs.filter(|_| *step == WorkStep::Write && self.work.sharing != Sharing::Own) {
                // What was answered early counts as operations of this step.
                self.sync(fs)?;
            }
            let (measurement, disk) =
                done.steps.iter_mut().find(|(one, _)| one.step == Some(*step)).expect("one for each step that is told");
            measurement.repetitions.push(one);
            *disk = fs.map(Used::look).transpose()?.unwrap_or_default().since(&before);
        }
        fresh.take().map_or(Ok(()), |fresh| self.record(fresh, &mut done.records))?;
        self.crew = Some(all);
        Ok(done)
    }

    fn begin(&self) -> Result<(Crew, tempfile::TempDir)> {
        let folder = tempfile::Builder::new().prefix("records-").tempdir_in(self.place).context("cannot make a folder for records")?;
        let events = self.recorded.as_ref().and_then(|(servers, events)| Some((servers, (*events)?)));
        if let Some((servers, events)) = events {
            let files = self.work.files * self.work.clients_in_all();
            servers.ask_all(&TraceRequest {
                mask: events.to_string(),
                mode: TraceMode::Bench,
                ring_bytes: (files * RING_BYTES_PER_FILE + (1 << 20)).min(RING_BYTES_MAX_SERVER),
                ..TraceRequest::new(TraceAction::On)
            })?;
        }
        let (site, root, work) = (self.bench.site, self.bench.site.root(), self.work);
        let words = |process| worker::Args::words(site.fs_arg(), &root, process, work.depth);
        let crew =
            Crew::start_traced(self.bench.program, self.bench.common, work.procs, words, self.bench.stop, events.map(|_| folder.path()))?;
        Ok((crew, folder))
    }

    /// Ends what [`Series::begin`] began, and counts.
    fn record(&self, (crew, folder): (Crew, tempfile::TempDir), records: &mut Records) -> Result<()> {
        // The processes write their records when they end.
        drop(crew);
        let Some((servers, Some(_))) = &self.recorded else { return Ok(()) };
        let problems = servers.gather(&mut servers.end()?, Some(folder.path()), true);
        if !problems.is_empty() {
            bail!("the records of the servers are not here: {}", problems.join("; "));
        }
        let files = files_in(folder.path())?;
        if files.len() < 3 {
            bail!("clients and servers have written {} trace files, not all", files.len());
        }
        for path in files {
            let file = TraceFile::read(&std::fs::read(&path)?).with_context(|| path.display().to_string())?;
            records.taken += file.records.len() as u64;
            records.lost += file.lost();
        }
        Ok(())
    }

    /// Brings the one file of a shared stream to the disks.
    fn sync(&self, fs: &Fs) -> Result<()> {
        let (root, name) = (self.bench.site.root(), self.work.file_name(0, 0));
        let path = [root.as_encoded_bytes(), b"/", self.work.dir_name(0).as_bytes(), b"/", name.as_bytes()].concat();
        let handle = fs.stat(&path, false)?.handle;
        let (_, file, ..) = fs.run_at(&path, fs.client.open(&fs.who, handle, Rights::WRITE, false))?;
        fs.run_at(&path, fs.client.fsync(&file, true))?;
        fs.run_at(&path, fs.client.close(file))
    }

    fn end(self) -> Result<()> {
        let mut crew = self.crew.map_or_else(|| self.bench.crew(self.work), Ok)?;
        self.work.steps.after.iter().try_for_each(|step| crew.run(*step, self.work, || Ok(())).map(drop))
    }
}
