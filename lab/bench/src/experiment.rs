//! File systems side by side, and what is done on them in turns.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use weft_host::connect::{Common, Fs};
use weft_recording::nodes::Traced;
use weft_recording::{RING_BYTES_MAX_SERVER, files_in};
use weft_trace::file::TraceFile;
use weft_wire::Rights;
use weft_wire::ops::{DiskUse, TraceAction, TraceMode, TraceRequest};
use weft_workload::{BlockOrder, Sharing, WorkStep, Workload};

use crate::crew::{Crew, Stop};
use crate::report::Measurement;
use crate::run::{Bench, say};
use crate::setup::{Setup, Variant};
use crate::site::Site;
use crate::system::System;
use crate::usage::Observer;
use crate::worker;

/// A server's ring in bytes for each file: one record, and if each create has a turn of its own,
/// that and its part of the journal.
const RING_BYTES_PER_FILE: u64 = 512;
/// Operations of all disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Used {
    /// Accesses.
    pub operations: u64,
    /// Read or written.
    pub bytes: u64,
    /// Accesses that continue the one before.
    pub sequential: u64,
    /// Accesses near the one before.
    pub near: u64,
    /// All others.
    pub far: u64,
}

/// Records that were taken.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Records {
    /// In trace files.
    pub taken: u64,
    /// What a full ring refused.
    pub lost: u64,
}

/// File systems side by side.
pub struct Experiment<'a> {
    /// The file systems.
    pub variants: Vec<Variant>,
    /// Where they lie.
    pub place: &'a Path,
    /// Notices Ctrl-C.
    pub stop: &'a Stop,
    /// For the processes.
    pub common: &'a Common,
}

impl Experiment<'_> {
    /// Does each workload on each of them; `tell` is given what came out.
    ///
    /// # Errors
    /// If a file system cannot be started or fails, or gives other bytes than were written.
    pub fn run<'w>(
        &self,
        loads: impl Iterator<Item = &'w Workload>,
        mut tell: impl FnMut(&'w Workload, Vec<Done>) -> Result<()>,
    ) -> Result<()> {
        let ups: Vec<Vec<String>> = self.variants.iter().map(|(_, setup)| setup.up()).collect();
        if self.variants.iter().any(|(_, setup)| setup.restart) {
            return self.run_apart(&ups, loads, tell);
        }
        let mut systems: Vec<(&[String], System)> = Vec::new();
        for (number, up) in ups.iter().enumerate() {
            // What differs only in what is recorded is one file system.
            if !systems.iter().any(|(known, _)| *known == up) {
                self.stop.check()?;
                systems.push((up, System::start(self.place.join(format!("fs{number}")), up)?));
            }
        }
        let sites: Vec<Site> =
            systems.iter().map(|(_, system)| Site::in_file_system(system.state.as_os_str(), self.common)).collect::<Result<_>>()?;
        let place_of = |up: &[String]| systems.iter().position(|(known, _)| *known == up).expect("each was started");
        for work in loads {
            sites.iter().try_for_each(|site| site.make_dirs(work))?;
            let works: Vec<Workload> = self.variants.iter().map(|(_, setup)| setup.by(work)).collect();
            let series = ups.iter().zip(&self.variants).zip(&works).map(|((up, (_, setup)), work)| {
                let place = place_of(up);
                Series::new(self, setup, &sites[place], &systems[place].1, work)
            });
            let mut series = series.collect::<Result<Vec<Series<'_>>>>()?;
            for repetition in 1..=work.repetitions {
                // There and back, so that nobody is always the second.
                let there = 0..series.len();
                let order: Vec<usize> = if repetition % 2 == 1 { there.collect() } else { there.rev().collect() };
                order.into_iter().try_for_each(|number| series[number].repeat(repetition))?;
            }
            let done = series.into_iter().map(Series::end).collect::<Result<Vec<_>>>()?;
            tell(work, done)?;
            sites.iter().try_for_each(|site| site.remove_dirs(work))?;
        }
        Ok(())
    }

    /// The same, but every repetition has servers and a file system that were just made, and no
    /// other ones beside them.
    fn run_apart<'w>(
        &self,
        ups: &[Vec<String>],
        loads: impl Iterator<Item = &'w Workload>,
        mut tell: impl FnMut(&'w Workload, Vec<Done>) -> Result<()>,
    ) -> Result<()> {
        for work in loads {
            let mut done: Vec<Option<Done>> = self.variants.iter().map(|_| None).collect();
            for repetition in 1..=work.repetitions {
                let there = 0..ups.len();
                let order: Vec<usize> = if repetition % 2 == 1 { there.collect() } else { there.rev().collect() };
                for number in order {
                    self.stop.check()?;
                    let system = System::start(self.place.join(format!("fs{number}")), &ups[number])?;
                    let site = Site::in_file_system(system.state.as_os_str(), self.common)?;
                    site.make_dirs(work)?;
                    let mut series = Series::new(self, &self.variants[number].1, &site, &system, work)?;
                    series.repeat(repetition)?;
                    let one = series.end()?;
                    done[number] = Some(match done[number].take() {
                        Some(before) => before.and(one),
                        None => one,
                    });
                    // What is to be thrown away whole is not removed file by file.
                    site.leave();
                    let state = system.state.clone();
                    drop(system);
                    std::fs::remove_dir_all(&state).with_context(|| format!("cannot remove {}", state.display()))?;
                }
            }
            tell(work, done.into_iter().flatten().collect())?;
        }
        Ok(())
    }

    fn is_recorded(&self) -> bool {
        self.variants.iter().any(|(_, setup)| setup.record.is_some())
    }
}

/// One file system and what is done on it.
struct Series<'a> {
    bench: Bench<'a>,
    work: &'a Workload,
    crew: Crew,
    done: Done,
    /// The file system, if processes are started anew for each repetition; and the events, if they
    /// are recorded in this series.
    recorded: Option<(Traced, Option<&'a str>)>,
    place: &'a Path,
}

/// What was measured of it.
pub struct Done {
    /// For each step that is told, and what the disks did in each repetition.
    pub steps: Vec<(Measurement, Vec<Used>)>,
    /// Of all repetitions.
    pub records: Records,
}

impl Done {
    /// With the repetitions of another series of the same work.
    fn and(mut self, other: Done) -> Done {
        for ((measurement, disks), (more, more_disks)) in self.steps.iter_mut().zip(other.steps) {
            measurement.repetitions.extend(more.repetitions);
            disks.extend(more_disks);
        }
        self.records.taken += other.records.taken;
        self.records.lost += other.records.lost;
        self
    }
}

impl<'a> Series<'a> {
    fn new(experiment: &Experiment<'a>, setup: &'a Setup, site: &'a Site, system: &System, work: &'a Workload) -> Result<Series<'a>> {
        let observer = site.fs().map(|fs| Observer::new(fs, None));
        let pause = std::time::Duration::ZERO;
        let bench = Bench {
            site,
            observer,
            yardstick: None,
            stop: experiment.stop,
            common: experiment.common,
            pause,
            warm_up: 0,
            before_each: None,
        };
        let mut crew = bench.crew(work)?;
        ensure!(work.order == BlockOrder::Ascending, "clients on this machine go over their blocks from the first to the last");
        let recorded = if experiment.is_recorded() {
            ensure!(work.steps.before.is_empty(), "records are taken of steps that need nothing before them");
            Some((Traced::find(system.state.as_os_str(), "*", experiment.common)?, setup.record.as_deref()))
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
        let steps = Measurement::of(work).into_iter().map(|measurement| (measurement, Vec::new())).collect();
        Ok(Series { bench, work, crew, done: Done { steps, records: Records::default() }, recorded, place: experiment.place })
    }

    /// Where something is recorded, the steps that are told are done by processes of their own, so
    /// that their rings and their memory are new each time.
    fn repeat(&mut self, repetition: u32) -> Result<()> {
        self.bench.stop.check()?;
        let mut fresh = match &self.recorded {
            Some(_) => Some(self.begin()?),
            None => None,
        };
        for (step, is_told) in &self.work.steps.cycle {
            if !is_told {
                fresh.take().map_or(Ok(()), |fresh| self.record(fresh))?;
                self.crew.run(*step, self.work, || Ok(()))?;
                continue;
            }
            let fs = self.bench.site.fs().context("experiments use the library")?;
            let before = Used::look(fs)?;
            let crew = fresh.as_mut().map_or(&mut self.crew, |(crew, _)| crew);
            let one = self.bench.timed(crew, *step, self.work)?;
            if *step == WorkStep::Write && self.work.sharing != Sharing::Own {
                // What was answered early counts as operations of this step.
                self.sync(fs)?;
            }
            let disk = Used::look(fs)?.since(&before);
            let (measurement, disks) =
                self.done.steps.iter_mut().find(|(one, _)| one.step == *step).expect("one for each step that is told");
            say(&measurement.phase, repetition, self.work.repetitions, &one);
            measurement.repetitions.push(one);
            disks.push(disk);
        }
        fresh.take().map_or(Ok(()), |fresh| self.record(fresh))
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
        let crew = Crew::start_traced(self.bench.common, work.procs, words, self.bench.stop, events.map(|_| folder.path()))?;
        Ok((crew, folder))
    }

    /// Ends what [`Series::begin`] began, and counts.
    fn record(&mut self, (crew, folder): (Crew, tempfile::TempDir)) -> Result<()> {
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
            self.done.records.taken += file.records.len() as u64;
            self.done.records.lost += file.lost();
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

    fn end(mut self) -> Result<Done> {
        for step in &self.work.steps.after {
            self.crew.run(*step, self.work, || Ok(()))?;
        }
        Ok(self.done)
    }
}

impl Used {
    /// What all data servers have asked of their disks.
    fn look(fs: &Fs) -> Result<Used> {
        let mut sum = Used::default();
        for (server, answer) in fs.ping_all() {
            let info = answer.map_err(|error| fs.explain(b"/", error)).with_context(|| format!("{} does not answer", server.name))?;
            if let Some(DiskUse { reads, writes, read_bytes, written_bytes, sequential, near, far, .. }) = info.disk {
                sum.operations += reads + writes;
                sum.bytes += read_bytes + written_bytes;
                (sum.sequential, sum.near, sum.far) = (sum.sequential + sequential, sum.near + near, sum.far + far);
            }
        }
        Ok(sum)
    }

    fn since(&self, before: &Used) -> Used {
        Used {
            operations: self.operations - before.operations,
            bytes: self.bytes - before.bytes,
            sequential: self.sequential - before.sequential,
            near: self.near - before.near,
            far: self.far - before.far,
        }
    }
}
