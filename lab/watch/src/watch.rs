//! Asks servers again and again. Each has a thread of its own: the others go on while one is
//! silent, and what it said last grows old.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use weft_base::ServerEntry;
use weft_host::connect::Fs;
use weft_host::output::show_name;
use weft_host::parallel;
use weft_host::paths::Names;
use weft_wire::ops::LiveReply;

use crate::snapshot::{Rates, Seen, Snapshot, rates, snapshot};

/// Seconds of the past that are kept for each server.
const HISTORY_S: f64 = 620.0;
/// A server is silent if it has not answered for so many intervals, and at least [`PATIENCE_S`]
/// seconds.
const PATIENCE_INTERVALS: f64 = 3.0;
const PATIENCE_S: f64 = 3.0;
/// Words of a client's command that are shown, at most.
const COMMAND_WORDS: usize = 12;
/// Unknown handles are looked for so often.
const NAMES_EVERY: Duration = Duration::from_secs(1);

/// A file system that is watched until this is dropped.
pub struct Watch {
    shared: Arc<Shared>,
}

struct Shared {
    fs: Fs,
    began: Instant,
    interval: Duration,
    servers: Vec<Mutex<Track>>,
    names: Mutex<Names>,
    stop: AtomicBool,
}

struct Track {
    seen: Seen,
    history: VecDeque<Point>,
}

/// Rates of a server at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Seconds since the watching began.
    pub at: f64,
    /// What the server did.
    pub rates: Rates,
}

impl Watch {
    /// Starts to ask every server each `interval`.
    ///
    /// # Errors
    /// If there is no thread to be had for each of them.
    pub fn start(fs: Fs, interval: Duration) -> Result<Watch> {
        let watch = Watch { shared: Arc::new(Shared::new(fs, interval)) };
        for number in 0..watch.shared.servers.len() {
            let shared = watch.shared.clone();
            parallel::start(move || shared.ask_for_ever(number))?;
        }
        let shared = watch.shared.clone();
        parallel::start(move || {
            while !shared.stop.load(Ordering::Relaxed) {
                shared.find_names();
                thread::sleep(NAMES_EVERY);
            }
        })?;
        Ok(watch)
    }

    /// Asks every server twice, `interval` apart, and looks for the names of what is busy.
    pub fn once(fs: Fs, interval: Duration) -> Snapshot {
        let shared = Shared::new(fs, interval);
        let numbers: Vec<usize> = (0..shared.servers.len()).collect();
        let ask_all = || drop(parallel::each(&numbers, |number| shared.ask(*number)));
        ask_all();
        thread::sleep(interval);
        ask_all();
        // A name may be with a server that does not answer: that makes nobody else silent.
        let asked_s = shared.now_s();
        shared.find_names();
        shared.snapshot(asked_s)
    }

    /// What is known now.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.snapshot(self.shared.now_s())
    }

    /// Every server's points after this second.
    pub fn history(&self, after: f64) -> Vec<Vec<Point>> {
        let points = |track: MutexGuard<'_, Track>| track.history.iter().filter(|point| point.at > after).copied().collect();
        self.shared.tracks().map(points).collect()
    }

    /// The last answers, for counters; `None` for a server that is silent.
    pub fn replies(&self) -> Vec<(ServerEntry, Option<LiveReply>)> {
        self.shared.replies()
    }

    /// True once every server was asked, or so much time has passed.
    pub fn wait_for_first(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let asked = |track: MutexGuard<'_, Track>| track.seen.last.is_some() || track.seen.problem.is_some();
        while !self.shared.tracks().all(asked) && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// Asks every server once, all at the same time.
pub fn ask_once(fs: &Fs) -> Vec<(ServerEntry, weft_client::Result<LiveReply>)> {
    let servers: Vec<ServerEntry> = fs.client.map().servers().cloned().collect();
    let answers = parallel::each(&servers, |entry| fs.live(entry.id));
    servers.into_iter().zip(answers).collect()
}

impl Shared {
    fn new(fs: Fs, interval: Duration) -> Shared {
        let track = |entry: &ServerEntry| {
            let seen = Seen { entry: entry.clone(), last: None, before: None, problem: None };
            Mutex::new(Track { seen, history: VecDeque::new() })
        };
        let servers = fs.client.map().servers().map(track).collect();
        Shared { fs, began: Instant::now(), interval, servers, names: Mutex::default(), stop: AtomicBool::new(false) }
    }

    fn tracks(&self) -> impl Iterator<Item = MutexGuard<'_, Track>> {
        self.servers.iter().map(lock)
    }

    fn ask_for_ever(&self, number: usize) {
        let mut next = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            self.ask(number);
            next += self.interval;
            let now = Instant::now();
            // After a silence the questions that were missed are not made up for.
            next = next.max(now);
            thread::sleep(next - now);
        }
    }

    fn ask(&self, number: usize) {
        let server = lock(&self.servers[number]).seen.entry.id;
        let answer = self.fs.live(server).map_err(|error| self.fs.why(&error));
        let at = self.now_s();
        let mut track = lock(&self.servers[number]);
        match answer {
            Err(problem) => track.seen.problem = Some(problem),
            Ok(reply) => {
                let before = track.seen.last.take();
                if let Some((before_at, before)) = &before
                    && let Some(rates) = rates(before, &reply, at - before_at)
                {
                    while track.history.front().is_some_and(|point| point.at < at - HISTORY_S) {
                        track.history.pop_front();
                    }
                    track.history.push_back(Point { at, rates });
                }
                let entry = track.seen.entry.clone();
                track.seen = Seen { entry, last: Some((at, reply)), before, problem: None };
            }
        }
    }

    fn patience_s(&self) -> f64 {
        (self.interval.as_secs_f64() * PATIENCE_INTERVALS).max(PATIENCE_S)
    }

    /// Seconds since the watching began.
    fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// What is known, as of that second.
    fn snapshot(&self, now_s: f64) -> Snapshot {
        let seen: Vec<Seen> = self.tracks().map(|track| track.seen.clone()).collect();
        let names = lock(&self.names);
        let fs = (self.fs.client.map().fs_name.clone(), self.fs.id().to_string());
        let times = (now_s, self.interval.as_secs_f64(), self.patience_s());
        let mut now = snapshot(fs, &seen, times, |key| names.get(key));
        // Servers behind Unix sockets are on this machine, and so are the processes that they name.
        if seen.iter().all(|seen| seen.entry.address.starts_with("unix:")) {
            let clients = now.clients.iter_mut().map(|row| &mut row.name);
            for name in clients.chain(now.oldest.iter_mut().map(|row| &mut row.client_name)).flatten() {
                if let Some(command) = name.strip_prefix("pid ").and_then(command_of) {
                    name.push_str(&format!(" {command}"));
                }
            }
        }
        now
    }

    fn replies(&self) -> Vec<(ServerEntry, Option<LiveReply>)> {
        let now = self.now_s();
        let reply = |track: MutexGuard<'_, Track>| {
            let fresh = track.seen.last.as_ref().filter(|(at, _)| now - at <= self.patience_s());
            (track.seen.entry.clone(), fresh.map(|(_, reply)| reply.clone()))
        };
        self.tracks().map(reply).collect()
    }

    /// Looks for the paths of objects that are shown and not known, for a moment only: others may
    /// have them. The list is not locked meanwhile.
    fn find_names(&self) {
        let seen = self.snapshot(self.now_s());
        let keys: Vec<u64> = seen.objects.iter().map(|row| row.key).chain(seen.oldest.iter().map(|row| row.key)).collect();
        let mut names = lock(&self.names).clone();
        names.find(&self.fs, &keys, NAMES_EVERY);
        *lock(&self.names) = names;
    }
}

/// What a process of this machine was started as, if that can be seen.
fn command_of(pid: &str) -> Option<String> {
    let pid: u32 = pid.parse().ok()?;
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let program = words.next()?;
    // The folder of the program says less than what it was told.
    let program = program.rsplit(|byte| *byte == b'/').next().unwrap_or(program);
    let words = std::iter::once(program).chain(words).map(show_name);
    Some(words.take(COMMAND_WORDS).collect::<Vec<_>>().join(" "))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while it holds this lock")
}
