//! The thread that brings records from the rings to files while a recording is on, and looks for
//! what calls for a dump.
//!
//! ```text
//! bench:   nothing until the end, then everything
//! stream:  every 20 ms what is new
//! flight:  at a slow operation, a failure, SIGUSR1 or a command what the rings hold; and at the end
//! ```

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use weft_trace::event::{LOAD_DEVICES, LOAD_HOST, LOAD_LIMIT, LOAD_MEMORY, LOAD_PROCESSOR};
use weft_trace::record::Body;
use weft_trace::{Anchor, Drain, EventId, Mask, Mode, TraceRecord, Tracer};

use crate::host::Host;
use crate::limit::Limit;
use crate::output::{Output, anchor};
use crate::processor::Processor;

/// How often it looks around.
const TICK: Duration = Duration::from_millis(20);
/// After the call for a dump, and after the end, what runs gets so long to leave its record.
const AFTERMATH: Duration = Duration::from_millis(40);
/// Between two dumps that operations call for: a slow server would otherwise fill the disk with
/// them.
const DUMP_PAUSE: Duration = Duration::from_secs(5);

/// Gauges that wait for a file, at most: of the last minutes.
const GAUGES_MAX: usize = 1 << 13;

/// So many dumps of one recording are called for by operations; then only people get more.
const DUMPS_MAX: u32 = 32;

/// What the thread and the commands share.
#[derive(Debug, Default)]
pub struct Progress {
    /// No more records: the files are to be completed.
    pub stop: bool,
    /// Write what the rings hold, because somebody asked for it.
    pub dump: bool,
    /// All files are complete.
    pub is_over: bool,
    /// Files so far.
    pub files: Vec<PathBuf>,
    /// Of these, dumps before the end.
    pub dumps: u32,
    /// Records that were fetched too late, of a mode that fetches.
    pub overwritten: u64,
    /// Why a file could not be written.
    pub problem: Option<String>,
}

/// A recording with its thread.
#[derive(Debug)]
pub struct Keeper {
    /// What is recorded.
    pub tracer: Tracer,
    progress: Arc<Mutex<Progress>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Begins to look after the rings of `tracer`, until it is stopped or, if `ends_after` says so,
    /// ends by itself.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(tracer: Tracer, folder: PathBuf, ends_after: Option<Duration>) -> Result<Keeper> {
        let progress = Arc::new(Mutex::new(Progress::default()));
        let work = Work {
            drain: Drain::new(&tracer),
            begun: anchor(&tracer),
            tracer: tracer.clone(),
            folder,
            // Never, where that is further away than the clock can say.
            ends_at: ends_after.and_then(|time| Instant::now().checked_add(time)),
            stream: None,
            progress: progress.clone(),
            signals: dump_signals(),
            last_dump: None,
            processor: Processor::default(),
            limit: Limit::default(),
            host: None,
            has_gauges: false,
            gauges: VecDeque::new(),
        };
        let thread = std::thread::Builder::new().name("weft-trace".into()).spawn(move || work.run());
        Ok(Keeper { tracer, progress, thread: Some(thread.context("cannot start the thread that writes traces")?) })
    }

    /// What has come of it.
    pub fn progress(&self) -> MutexGuard<'_, Progress> {
        locked(&self.progress)
    }

    /// Ends the recording; the thread completes the files by itself.
    pub fn stop(&self) {
        self.tracer.set_mask(Mask::NONE);
        self.progress().stop = true;
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Waits until the files are complete.
    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported; there is nothing left to write.
            let _ = thread.join();
        }
    }
}

struct Work {
    tracer: Tracer,
    drain: Drain,
    begun: Anchor,
    folder: PathBuf,
    ends_at: Option<Instant>,
    stream: Option<Output>,
    progress: Arc<Mutex<Progress>>,
    signals: Option<SignalFd>,
    last_dump: Option<Instant>,
    processor: Processor,
    limit: Limit,
    /// The machine, and when it was looked at; nothing as long as nobody has wanted it.
    host: Option<(Host, u64)>,
    /// Gauges of this process are wanted.
    has_gauges: bool,
    /// Gauges that no file has yet.
    gauges: VecDeque<TraceRecord>,
}

impl Work {
    fn run(mut self) {
        // This thread may be older than the one that waits for these signals; where nobody blocks
        // them they would end the process at once.
        let _ = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect::<SigSet>().thread_block();
        // Signals from before are not meant.
        self.take_signal();
        let outcome = self.keep();
        let mut progress = locked(&self.progress);
        if let Err(error) = outcome {
            // What cannot be kept is not worth its cost either.
            self.tracer.set_mask(Mask::NONE);
            progress.problem = Some(format!("{error:#}"));
        }
        progress.is_over = true;
    }

    fn keep(&mut self) -> Result<()> {
        let mode = self.tracer.config().mode;
        loop {
            let is_over = self.is_stopped();
            // The last time when it is over: a process that stood still may have heard of the end
            // first.
            self.look_at_processors();
            self.look_at_host();
            if is_over {
                break;
            }
            match mode {
                Mode::Stream => self.stream()?,
                Mode::Flight => self.look_for_calls()?,
                // The rings are left alone: reading them would take memory bandwidth from what is
                // measured.
                Mode::Bench => drop(self.called()),
            }
            std::thread::park_timeout(TICK);
        }
        std::thread::sleep(AFTERMATH);
        match mode {
            Mode::Stream => {
                self.stream()?;
                let mut output = self.stream.take().context("the file was begun just now")?;
                output.append_own(&self.tracer.in_flight_records());
                output.end()
            }
            Mode::Bench | Mode::Flight => self.dump().map(drop),
        }
    }

    /// Nobody wants more records, or nobody has come to end a recording that has its time.
    fn is_stopped(&self) -> bool {
        let mut progress = locked(&self.progress);
        if !progress.stop && self.ends_at.is_some_and(|end| Instant::now() >= end) {
            self.tracer.set_mask(Mask::NONE);
            progress.stop = true;
        }
        progress.stop
    }

    fn stream(&mut self) -> Result<()> {
        let (batches, gauges) = (self.fetch(), self.take_gauges());
        let output = match &mut self.stream {
            Some(output) => output,
            None => {
                let output = Output::begin(&self.folder, &self.tracer, self.begun)?;
                locked(&self.progress).files.push(output.path().to_path_buf());
                self.stream.insert(output)
            }
        };
        output.append_own(&gauges);
        if batches.is_empty() && gauges.is_empty() { Ok(()) } else { output.append(&batches, &self.tracer) }
    }

    /// A flight recorder: is there a reason to write?
    fn look_for_calls(&mut self) -> Result<()> {
        let asked = self.called();
        let is_early = self.last_dump.is_some_and(|last| last.elapsed() < DUMP_PAUSE);
        let has_enough = locked(&self.progress).dumps >= DUMPS_MAX;
        let troubled = !asked && !is_early && !has_enough && self.tracer.take_dump_wanted();
        if !asked && !troubled {
            return Ok(());
        }
        std::thread::sleep(AFTERMATH);
        if troubled {
            crate::dump_of_others();
        }
        self.dump()?;
        // What was called for meanwhile is in it.
        self.tracer.take_dump_wanted();
        self.last_dump = Some(Instant::now());
        locked(&self.progress).dumps += 1;
        Ok(())
    }

    fn look_at_processors(&mut self) {
        self.has_gauges |= self.tracer.mask().contains(LOAD_PROCESSOR);
        if !self.has_gauges {
            return;
        }
        if let Some(gauges) = self.processor.look() {
            let [.., interval_ns] = gauges;
            let now = self.tracer.ticks();
            self.keep_gauge(now, LOAD_PROCESSOR, gauges);
            if let Some(gauges) = self.limit.look(interval_ns) {
                self.keep_gauge(now, LOAD_LIMIT, gauges);
            }
        }
    }

    /// Every process does it, as nobody knows which of them will be there to the end.
    fn look_at_host(&mut self) {
        let mask = self.tracer.mask();
        if ![LOAD_HOST, LOAD_MEMORY, LOAD_DEVICES].into_iter().any(|event| mask.contains(event)) {
            return;
        }
        let now = self.tracer.ticks();
        let (host, before) = self.host.get_or_insert_with(|| (Host::default(), now));
        let Some(gauges) = host.look() else { return };
        let begin = std::mem::replace(before, now);
        // What was between two looks holds from the first of them on.
        let all = [(LOAD_HOST, begin, gauges.host), (LOAD_MEMORY, now, Some(gauges.memory)), (LOAD_DEVICES, now, Some(gauges.devices))];
        for (event, at, values) in all {
            if let Some(values) = values.filter(|_| mask.contains(event)) {
                self.keep_gauge(at, event, values);
            }
        }
    }

    fn keep_gauge(&mut self, at: u64, event: EventId, values: [u64; 5]) {
        while self.gauges.len() >= GAUGES_MAX {
            self.gauges.pop_front();
        }
        self.gauges.push_back(TraceRecord::new(at, event, Body::Counter(values)));
    }

    fn take_gauges(&mut self) -> Vec<TraceRecord> {
        self.gauges.drain(..).collect()
    }

    /// A person asked for a dump.
    fn called(&mut self) -> bool {
        let signalled = self.take_signal();
        std::mem::take(&mut locked(&self.progress).dump) || signalled
    }

    fn take_signal(&mut self) -> bool {
        let mut any = false;
        if let Some(signals) = &mut self.signals {
            while let Ok(Some(_)) = signals.read_signal() {
                any = true;
            }
        }
        any
    }

    /// A file with everything that was not fetched before.
    fn dump(&mut self) -> Result<PathBuf> {
        let batches = self.fetch();
        let mut output = Output::begin(&self.folder, &self.tracer, self.begun)?;
        let path = output.path().to_path_buf();
        output.append_own(&self.take_gauges());
        output.append(&batches, &self.tracer)?;
        output.append_own(&self.tracer.in_flight_records());
        output.end()?;
        locked(&self.progress).files.push(path.clone());
        Ok(path)
    }

    fn fetch(&mut self) -> Vec<weft_trace::Batch> {
        let batches = self.drain.fetch();
        locked(&self.progress).overwritten = self.drain.overwritten();
        batches
    }
}

fn locked(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().expect("no code panics while it holds this lock")
}

fn dump_set() -> SigSet {
    [Signal::SIGUSR1].into_iter().collect()
}

/// From now on SIGUSR1 does not end this process: it asks a flight recorder for a dump. Before any
/// other thread is started.
///
/// # Errors
/// Of the operating system.
pub fn block_dump_signal() -> Result<()> {
    dump_set().thread_block().context("cannot block SIGUSR1")
}

/// Where SIGUSR1 arrives, if this process has blocked it.
fn dump_signals() -> Option<SignalFd> {
    let blocked = SigSet::thread_get_mask().is_ok_and(|mask| mask.contains(Signal::SIGUSR1));
    let open = || SignalFd::with_flags(&dump_set(), SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).ok();
    if blocked { open() } else { None }
}

/// The files of a folder that end in `.wtrace`, by name.
///
/// # Errors
/// It cannot be read.
pub fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "wtrace")).collect();
    files.sort();
    Ok(files)
}
