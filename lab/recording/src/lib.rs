//! Trace records of this process. A recording begins with the process, if the environment asks for
//! it (`WEFT_TRACE` names a folder, `WEFT_TRACE_MASK` chooses events), or while it runs, by
//! [`command`]: servers get it over the wire, mounts over a socket ([`weft_host::command_socket`]).
//! Threads record into rings of fixed size; what does not fit is counted in the file.
//!
//! It never makes a thread wait for the file, and never decides what an event means.
// A full disk or a reader who has gone must not end a process, and these macros panic then: see
// `write_line` of `weft-rt-real`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod beside;
mod fetch;
mod host;
mod keeper;
mod limit;
pub mod mpi;
mod names;
pub mod nodes;
mod output;
mod pieces;
mod processor;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use anyhow::{Result, anyhow};
use weft_trace::clock::tsc_is_sound;
use weft_trace::{Clock, EventTable, Mask, Mode, Tracer, TracerConfig, set_process_tracer};
use weft_wire::ops::{TraceAction, TraceMode, TraceReply, TraceRequest};

use keeper::Keeper;
pub use keeper::{block_dump_signal, files_in};
pub use output::identify;
pub use pieces::read;

/// Bytes of one record.
const RECORD_BYTES: u64 = weft_trace::record::RECORD_BYTES as u64;
/// Ring of one thread, in bytes, if nobody says otherwise: large enough for a run of seconds.
pub const RING_BYTES_BENCH: u64 = 16 << 20;
/// The same for rings that are fetched while they fill, or hold only the last moments.
pub const RING_BYTES: u64 = 4 << 20;
/// The smallest and the largest ring.
const RING_BYTES_RANGE: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;
/// The largest ring of a server: whoever holds the key may ask for it, and it has one for each
/// thread.
pub const RING_BYTES_MAX_SERVER: u64 = 128 << 20;
/// What a process says that records.
const RECORDED_ALREADY: &str = "is being recorded already";
/// What is said of a ring of another size.
const RING_REFUSED: &str = "a ring has between 64 KiB and 1 GiB";
/// What is said of a ring that is too large for a server.
const RING_REFUSED_SERVER: &str = "a ring of a server has at most 128 MiB; give a smaller --ring, or --nodes 'mount*'";
/// Recordings of one process that are still being written; no new one is begun before they are
/// through.
const WRITING_MAX: usize = 4;

/// The recording of this process, or the last one.
static RECORDING: Mutex<Option<State>> = Mutex::new(None);
/// See [`on_dump`].
static ON_DUMP: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

#[derive(Debug)]
struct State {
    keeper: Keeper,
    /// Recordings before it that may still be writing.
    earlier: Vec<Keeper>,
}

/// A recording that goes on until the process ends.
pub struct Recording(());

impl Recording {
    /// Begins to record if the environment says so.
    ///
    /// # Errors
    /// A mask with unknown events.
    pub fn begin() -> Result<Recording> {
        if let Some(folder) = std::env::var_os("WEFT_TRACE").filter(|folder| !folder.is_empty()) {
            let mask = std::env::var("WEFT_TRACE_MASK").unwrap_or_else(|_| "*".to_string());
            let mask = Mask::parse(&mask, &EventTable::builtin()).map_err(|problem| anyhow!("WEFT_TRACE_MASK: {problem}"))?;
            let folder = std::path::absolute(folder)?;
            let (mode, ring_bytes) = (Mode::Bench, RING_BYTES_BENCH);
            start(Settings { mask, mode, ring_bytes, sampling_bits: 0, slow_ns: 0, folder, ends_after: None })?;
        }
        Ok(Recording(()))
    }

    /// Completes the files, however the recording began.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn end(self) -> Result<()> {
        finish()
    }
}

/// Ends the recording of this process, if there is one, and waits until its files are complete.
///
/// # Errors
/// They cannot be written.
pub fn finish() -> Result<()> {
    let mut guard = state();
    let Some(state) = guard.as_mut() else { return Ok(()) };
    state.keeper.stop();
    state.earlier.iter_mut().chain([&mut state.keeper]).for_each(Keeper::join);
    let problem = state.keeper.progress().problem.clone();
    problem.map_or(Ok(()), |problem| Err(anyhow!(problem)))
}

/// What is recorded, and how.
#[derive(Clone, Debug)]
struct Settings {
    mask: Mask,
    mode: Mode,
    ring_bytes: u64,
    sampling_bits: u32,
    /// 0: no operation is slow.
    slow_ns: u64,
    folder: PathBuf,
    /// It ends by itself then.
    ends_after: Option<Duration>,
}

fn state() -> MutexGuard<'static, Option<State>> {
    RECORDING.lock().expect("no code panics while it holds this lock")
}

impl State {
    /// Nobody has ended it, and it has not ended by itself.
    fn is_on(&self) -> bool {
        !self.keeper.progress().stop
    }

    fn is_writing(&self) -> bool {
        let progress = self.keeper.progress();
        progress.stop && !progress.is_over
    }
}

fn start(settings: Settings) -> Result<()> {
    let mut guard = state();
    let mut earlier = Vec::new();
    // Whoever asks has looked before, but another may have begun since.
    if guard.as_ref().is_some_and(State::is_on) {
        return Err(anyhow!(RECORDED_ALREADY));
    }
    if guard.as_ref().is_some_and(|state| state.earlier.iter().filter(|keeper| !keeper.progress().is_over).count() >= WRITING_MAX) {
        return Err(anyhow!("{WRITING_MAX} recordings before this one are still being written; begin again in a moment"));
    }
    if let Some(before) = guard.take() {
        earlier = before.earlier;
        earlier.retain(|keeper: &Keeper| !keeper.progress().is_over);
        earlier.push(before.keeper);
    }
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let clocksource = text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let clock = if tsc_is_sound(&clocksource, &text("/proc/cpuinfo")) { Clock::Tsc } else { Clock::Function(output::monotonic_ns) };
    let ring_records = (settings.ring_bytes / RECORD_BYTES) as usize;
    let tracer = Tracer::new(TracerConfig { ring_records, ..TracerConfig::new(settings.mode, clock) });
    tracer.set_sampling(settings.sampling_bits);
    if settings.mode == Mode::Flight {
        tracer.set_dump_on_error(true);
        if settings.slow_ns > 0 {
            tracer.set_slow(ticks_of(&tracer, settings.slow_ns));
        }
    }
    let keeper = Keeper::start(tracer.clone(), settings.folder, settings.ends_after)?;
    set_process_tracer(Some(&tracer));
    // A thread that could not make its file has switched the events off already.
    let progress = keeper.progress();
    if !progress.is_over {
        tracer.set_mask(settings.mask);
    }
    drop(progress);
    *guard = Some(State { keeper, earlier });
    Ok(())
}

/// So many ticks are `ns` nanoseconds: measured over a moment, which is exact enough for a limit.
fn ticks_of(tracer: &Tracer, ns: u64) -> u64 {
    if tracer.config().clock.is_nanoseconds() {
        return ns;
    }
    let begin = output::anchor(tracer);
    std::thread::sleep(Duration::from_millis(2));
    let end = output::anchor(tracer);
    let (ticks, passed) = (end.ticks - begin.ticks, (end.mono_ns - begin.mono_ns).max(1));
    (u128::from(ns) * u128::from(ticks) / u128::from(passed)) as u64
}

/// At a dump that an operation of this process calls for, `others` is called, to ask servers for
/// theirs. Once per process.
pub fn on_dump(others: impl Fn() + Send + Sync + 'static) {
    // A second call would be the same process.
    let _ = ON_DUMP.set(Box::new(others));
}

fn dump_of_others() {
    if let Some(others) = ON_DUMP.get() {
        others();
    }
}

/// Who commands a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commander {
    /// Its user, or root, on its machine.
    Owner,
    /// Anybody in the network who holds the cluster key.
    KeyHolder,
}

/// Does what a person wants with the recording of this process; `home` is the folder for files if
/// the request names none. Completing files goes on after the answer: [`TraceReply::is_writing`].
pub fn command(request: &TraceRequest, home: &std::path::Path, from: Commander) -> TraceReply {
    let outcome = match request.action {
        TraceAction::Status => Ok(()),
        TraceAction::On => settings(request, home, from).and_then(start),
        TraceAction::Off => {
            state().as_ref().into_iter().for_each(|state| state.keeper.stop());
            Ok(())
        }
        TraceAction::Dump => dump(),
    };
    let mut reply = report();
    if let Err(error) = outcome {
        reply.problem = format!("{error:#}");
        // Those of the recording before have nothing to do with it.
        reply.files.clear();
    }
    reply
}

fn dump() -> Result<()> {
    let guard = state();
    let running = guard.as_ref().filter(|state| state.is_on() && state.keeper.tracer.config().mode == Mode::Flight);
    running.ok_or_else(|| anyhow!("no flight recorder is on"))?.keeper.progress().dump = true;
    Ok(())
}

fn settings(request: &TraceRequest, home: &std::path::Path, from: Commander) -> Result<Settings> {
    let mask = Mask::parse(&request.mask, &EventTable::builtin()).map_err(|problem| anyhow!(problem))?;
    let mode = match request.mode {
        TraceMode::Bench => Mode::Bench,
        TraceMode::Flight => Mode::Flight,
        TraceMode::Stream => Mode::Stream,
        TraceMode::Off => return Err(anyhow!("a mode is needed: bench, flight or stream")),
    };
    let usual = if mode == Mode::Bench { RING_BYTES_BENCH } else { RING_BYTES };
    let ring_bytes = if request.ring_bytes == 0 { usual } else { request.ring_bytes };
    if !RING_BYTES_RANGE.contains(&ring_bytes) {
        return Err(anyhow!(RING_REFUSED));
    }
    if from == Commander::KeyHolder && ring_bytes > RING_BYTES_MAX_SERVER {
        return Err(anyhow!(RING_REFUSED_SERVER));
    }
    if from == Commander::KeyHolder && !request.folder.is_empty() {
        return Err(anyhow!(
            "a server writes traces into its own folder only ({}); `weft trace off --into DIR` brings them elsewhere",
            home.display()
        ));
    }
    let folder = if request.folder.is_empty() { home.to_path_buf() } else { PathBuf::from(&request.folder) };
    if !folder.is_absolute() {
        return Err(anyhow!("the folder for traces must be an absolute path, {} is not", folder.display()));
    }
    let (sampling_bits, slow_ns) = (request.sampling_bits.into(), request.slow_ns);
    Ok(Settings { mask, mode, ring_bytes, sampling_bits, slow_ns, folder, ends_after: request.ends_after_ms.map(Duration::from_millis) })
}

fn report() -> TraceReply {
    let mut reply = TraceReply { name: output::name(), process: std::process::id(), ..TraceReply::default() };
    let guard = state();
    let Some(state) = guard.as_ref() else { return reply };
    let (tracer, is_on) = (&state.keeper.tracer, state.is_on());
    if is_on {
        reply.mode = match tracer.config().mode {
            Mode::Bench => TraceMode::Bench,
            Mode::Flight => TraceMode::Flight,
            Mode::Stream => TraceMode::Stream,
        };
        reply.mask = tracer.mask().describe(&EventTable::builtin());
    }
    reply.is_writing = state.is_writing();
    let (stats, progress) = (tracer.stats(), state.keeper.progress());
    reply.written = stats.written;
    reply.lost = stats.dropped + progress.overwritten;
    // A flight recorder is meant to forget; that is no loss.
    if tracer.config().mode == Mode::Flight {
        (reply.lost, reply.forgotten) = (stats.dropped, stats.overwritten);
    }
    reply.threads = stats.rings as u32;
    reply.threads_without_ring = stats.threads_without_ring;
    reply.in_flight = stats.in_flight as u32;
    reply.dumps = progress.dumps;
    // Whoever asked for the last recording may have moved its files. They are read by their
    // numbers, so the list is whole or empty.
    if is_on || progress.files.iter().any(|file| file.exists()) {
        reply.files = progress.files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
    }
    reply.problem = progress.problem.clone().unwrap_or_default();
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_recording_that_runs_is_not_begun_anew() {
        let home = tempfile::tempdir().unwrap();
        let asked = |action| {
            let request = TraceRequest { mask: "*".into(), mode: TraceMode::Flight, ..TraceRequest::new(action) };
            let reply = command(&request, home.path(), Commander::Owner);
            (reply.mode, reply.problem)
        };
        assert_eq!(asked(TraceAction::On), (TraceMode::Flight, String::new()));
        assert_eq!(asked(TraceAction::On), (TraceMode::Flight, RECORDED_ALREADY.to_string()));
        assert_eq!(asked(TraceAction::Off), (TraceMode::Off, String::new()));
        assert_eq!(asked(TraceAction::On), (TraceMode::Flight, String::new()));
        finish().expect("the file is written");
    }

    #[test]
    fn a_holder_of_the_key_chooses_neither_folder_nor_much_memory() {
        let asked = |folder: &str, ring_bytes: u64, from| {
            let request = TraceRequest {
                mask: "*".into(),
                mode: TraceMode::Stream,
                folder: folder.into(),
                ring_bytes,
                ..TraceRequest::new(TraceAction::On)
            };
            settings(&request, Path::new("/home/of/server"), from).map(|settings| settings.folder).map_err(|error| error.to_string())
        };
        let (owner, key) = (Commander::Owner, Commander::KeyHolder);
        assert_eq!(asked("", 0, key).unwrap(), Path::new("/home/of/server"));
        assert_eq!(asked("/any/where", 1 << 30, owner).unwrap(), Path::new("/any/where"));
        for folder in ["/any/where", "/home/of/server/../../..", "/home/of/server", "relative"] {
            assert!(asked(folder, 0, key).unwrap_err().contains("own folder"), "{folder}");
        }
        assert!(asked("", RING_BYTES_MAX_SERVER, key).is_ok());
        assert!(asked("", RING_BYTES_MAX_SERVER + 1, key).unwrap_err().contains("at most 128 MiB"));
    }
}
