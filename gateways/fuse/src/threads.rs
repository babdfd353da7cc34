//! How many threads serve the kernel's requests: as few as keep up with it, and however many wait
//! for servers, some more.
//!
//! The kernel gives a request to the thread that has waited longest. With four threads and one
//! program, each request therefore wakes another thread, with a cold stack, a cold buffer and often
//! on another processor: a create through the mount took a fifth longer than with one thread. So
//! threads that are not needed rest, and come back when requests have to wait.
//!
//! A thread rests only after it has answered; what it would do is to wait for the next request.
//! [`Demand`] decides how many serve, from samples of how many requests are in service and whether
//! one waits that nobody has taken. A sample every millisecond while there is work, every 20 ms
//! otherwise: so much later does a sudden crowd get all threads. A rest ends by itself after a
//! second, so that nothing depends on the samples but speed.
//!
//! A thread whose request has been in service for some samples waits for a server. It does not
//! count: others take its place, new ones if need be, up to `THREADS_MAX`. So a server that does
//! not answer holds up only those who want something of it. A thread beyond the usual number ends
//! when it has rested for a second, which it does after a request that it has served.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use weft_trace::event;

use crate::kernel::ServingThread;
use crate::waits::Waits;

/// Requests in service at once at most: far more than programs wait at a time. The next one waits
/// until one of these has its answer.
const THREADS_MAX: usize = 4096;
/// Addresses that a mount needs beside what it has before it serves, in bytes: of all threads that
/// keep something for it, and of each that serves and the others that then wait for servers.
const ADDRESS_BYTES: usize = 96 << 20;
const ADDRESS_BYTES_OF_THREAD: usize = 8 << 20;
/// The longest rest.
const REST_MAX: Duration = Duration::from_secs(1);
/// A request that is in service for so many samples waits for a server.
pub const WAITING_SAMPLES: u32 = 5;
/// While requests wait for servers, at most so many threads more are at hand at once.
pub const AT_HAND_MAX: usize = 64;

/// The threads of one mount.
#[derive(Debug)]
pub struct Threads {
    base: usize,
    max: usize,
    /// How many shall serve.
    wanted: AtomicUsize,
    /// How many do not rest. Changed under the lock.
    serving: AtomicUsize,
    /// How many there are. Changed under the lock.
    total: AtomicUsize,
    /// The number of the present sample.
    now: AtomicU32,
    /// What is asked from now on is refused.
    are_over: AtomicBool,
    services: Mutex<Vec<Arc<ServingThread>>>,
    changed: Condvar,
    waits: Waits,
}

/// What a thread that has answered shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// Serve the next request.
    Serve,
    /// End.
    Leave,
}

/// What the threads do at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests in service.
    pub busy: usize,
    /// Those among them that wait for servers.
    pub waiting: usize,
}

/// A request in service.
pub struct Turn<'a> {
    threads: &'a Threads,
    program: Option<u32>,
}

impl Turn<'_> {
    /// What follows is the answer.
    pub fn answers(&self) {
        if let Some(program) = self.program.filter(|_| weft_trace::is_on(event::LOAD_MOUNT)) {
            self.threads.waits.answers(program);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if weft_trace::is_on(event::LOAD_MOUNT) {
            self.threads.waits.free();
        }
    }
}

impl Threads {
    /// For so many threads while no server keeps them waiting; all of them serve until samples know
    /// better.
    pub fn new(base: usize) -> Arc<Threads> {
        let base = base.max(1);
        Arc::new(Threads {
            base,
            max: threads_max().max(base),
            wanted: AtomicUsize::new(base),
            serving: AtomicUsize::new(0),
            total: AtomicUsize::new(0),
            now: AtomicU32::new(1),
            are_over: AtomicBool::new(false),
            services: Mutex::default(),
            changed: Condvar::new(),
            waits: Waits::new(),
        })
    }

    /// From now on what is asked is refused.
    pub fn refuse(&self) {
        self.are_over.store(true, Ordering::Release);
    }

    /// True behind [`Threads::refuse`].
    pub fn are_over(&self) -> bool {
        self.are_over.load(Ordering::Acquire)
    }

    /// Threads while no server keeps them waiting.
    pub fn base(&self) -> usize {
        self.base
    }

    /// There may be so many.
    pub fn max(&self) -> usize {
        self.max
    }

    /// All threads.
    pub fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Those that do not rest.
    pub fn serving(&self) -> usize {
        self.serving.load(Ordering::Relaxed)
    }

    /// The bound on the time that requests have waited.
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// The number of the present sample.
    pub fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }

    /// What the threads serve.
    pub fn services(&self) -> Vec<Arc<ServingThread>> {
        self.locked().clone()
    }

    /// One more thread begins.
    pub fn add(&self, service: ServingThread) -> Arc<ServingThread> {
        let service = Arc::new(service);
        let mut services = self.locked();
        services.push(service.clone());
        self.serving.fetch_add(1, Ordering::Relaxed);
        self.total.store(services.len(), Ordering::Relaxed);
        service
    }

    /// A thread ends; nothing if that is known.
    pub fn remove(&self, service: &Arc<ServingThread>) {
        self.remove_from(&mut self.locked(), service);
    }

    fn remove_from(&self, services: &mut Vec<Arc<ServingThread>>, service: &Arc<ServingThread>) {
        let Some(at) = services.iter().position(|other| Arc::ptr_eq(other, service)) else { return };
        services.swap_remove(at);
        self.serving.fetch_sub(1, Ordering::Relaxed);
        self.total.store(services.len(), Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// To be called by a thread that has taken a request, before anything else.
    /// `program` is the thread of a program that waits for the answer, if one does.
    pub fn turn(&self, program: Option<u32>) -> Turn<'_> {
        if weft_trace::is_on(event::LOAD_MOUNT) {
            self.waits.taken(program);
        }
        Turn { threads: self, program }
    }

    /// Begins the next sample.
    pub fn sample(&self) -> Load {
        let now = self.now.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let services = self.locked();
        let ages = services.iter().filter_map(|service| service.began()).map(|began| now.wrapping_sub(began));
        ages.fold(Load::default(), |load, age| Load { busy: load.busy + 1, waiting: load.waiting + usize::from(age >= WAITING_SAMPLES) })
    }

    /// So many shall serve, or as many as there may be.
    pub fn want(&self, wanted: usize) -> usize {
        let wanted = wanted.min(self.max);
        if self.wanted.swap(wanted, Ordering::Relaxed) < wanted {
            drop(self.locked());
            self.changed.notify_all();
        }
        wanted
    }

    /// To be called by a thread that has answered: rests if it is not needed.
    pub fn stays(&self, service: &Arc<ServingThread>) -> Stay {
        match self.serving() > self.wanted.load(Ordering::Relaxed) {
            true => self.rest(service),
            false => Stay::Serve,
        }
    }

    fn rest(&self, service: &Arc<ServingThread>) -> Stay {
        let until = Instant::now() + REST_MAX;
        let mut services = self.locked();
        let is_needed = |others: usize| others < self.wanted.load(Ordering::Relaxed);
        let others = self.serving() - 1;
        // At least one always serves.
        if others == 0 || is_needed(others) {
            return Stay::Serve;
        }
        self.serving.fetch_sub(1, Ordering::Relaxed);
        while !is_needed(self.serving()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            services = self.changed.wait_timeout(services, left).expect("no code panics while it holds this lock").0;
        }
        self.serving.fetch_add(1, Ordering::Relaxed);
        if is_needed(self.serving() - 1) || services.len() <= self.base {
            return Stay::Serve;
        }
        self.remove_from(&mut services, service);
        Stay::Leave
    }

    /// Waits until all threads have ended, but not longer than `patience`; false if some have not.
    pub fn wait_for_end(&self, patience: Duration) -> bool {
        let services = self.locked();
        let waited = self.changed.wait_timeout_while(services, patience, |services| !services.is_empty());
        waited.expect("no code panics while it holds this lock").0.is_empty()
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Arc<ServingThread>>> {
        self.services.lock().expect("no code panics while it holds this lock")
    }
}

/// Each thread that waits for a server has a descriptor to be woken by, perhaps one for its ring,
/// and other things need some too.
fn threads_max() -> usize {
    // SAFETY: an all-zero limit is valid; the call fills it.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: as above, and the pointer is live.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } < 0 {
        return THREADS_MAX;
    }
    THREADS_MAX.min(usize::try_from(limit.rlim_cur / 4).unwrap_or(THREADS_MAX))
}

/// Refuses to begin with so few addresses (`ulimit -v`) that the process would end as soon as
/// programs have much to do.
///
/// # Errors
/// How many are needed.
pub fn check_addresses(threads: usize) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it writes to a structure of ours.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    if asked < 0 || limit.rlim_cur == libc::RLIM_INFINITY {
        return Ok(());
    }
    let bytes = ADDRESS_BYTES + threads * ADDRESS_BYTES_OF_THREAD;
    let mut room: Vec<u8> = Vec::new();
    let had = room.try_reserve_exact(bytes);
    // Else it might not be asked for at all.
    std::hint::black_box(&mut room);
    had.map_err(|_| {
        let words = format!("{threads} threads need {} MiB of addresses: raise the limit (`ulimit -v`), or give -o threads=1", bytes >> 20);
        io::Error::new(io::ErrorKind::OutOfMemory, words)
    })
}

/// From samples to a number of threads: moving averages with some distance between the marks for
/// more and for fewer.
#[derive(Debug)]
pub struct Demand {
    max: usize,
    threads: usize,
    /// Requests in service on average, those left out that wait for servers.
    busy: f64,
    /// How often a request waited.
    waits: f64,
}

/// Weight of a new sample.
const WEIGHT: f64 = 0.125;
/// One more thread when requests wait more often than this. A single program's request is seen on
/// its way in a third of the samples.
const MORE_ABOVE: f64 = 0.6;
/// One thread fewer only when requests wait less often than this, and ...
const FEWER_BELOW: f64 = 0.45;
/// ... on average one thread and this share of another have nothing to do.
const SPARE: f64 = 0.3;

impl Demand {
    /// At most so many threads, those left out that wait for servers.
    pub fn new(max: usize) -> Demand {
        Demand { max, threads: max, busy: max as f64, waits: 0.0 }
    }

    /// How many threads shall serve; `waits`: a request waits that nobody has taken.
    pub fn sample(&mut self, load: Load, waits: bool) -> usize {
        let busy = load.busy - load.waiting;
        self.busy += WEIGHT * (busy as f64 - self.busy);
        self.waits += WEIGHT * (f64::from(u8::from(waits)) - self.waits);
        if self.waits > MORE_ABOVE && self.threads < self.max {
            self.threads += 1;
            // Whether this is enough shows in new samples.
            self.waits = FEWER_BELOW;
        } else if self.threads > 1 && self.waits < FEWER_BELOW && self.busy < self.threads as f64 - 1.0 - SPARE {
            self.threads -= 1;
        }
        // A crowd that wants something of a server that does not answer comes at once: as many more
        // as there are already, so that the one behind it that wants something else waits for a few
        // samples only.
        let at_hand = if waits { load.waiting.min(AT_HAND_MAX) } else { 0 };
        load.waiting + self.threads.max(at_hand)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::kernel::test_service;

    fn busy(busy: usize) -> Load {
        Load { busy, waiting: 0 }
    }

    /// The number of threads after so many equal samples.
    fn after(demand: &mut Demand, samples: usize, busy: usize, waits: bool) -> usize {
        (0..samples).map(|_| demand.sample(self::busy(busy), waits)).last().expect("at least one sample")
    }

    #[test]
    fn one_program_gets_one_thread_and_a_crowd_all() {
        let mut demand = Demand::new(4);
        for sample in 0..2000 {
            // In service two times of three, seen waiting one time of three.
            demand.sample(busy(usize::from(sample % 3 > 0)), sample % 3 == 0);
        }
        assert_eq!(demand.threads, 1);
        for _ in 0..40 {
            demand.sample(busy(demand.threads), true);
        }
        assert_eq!(demand.threads, 4, "within 40 ms");
        assert_eq!(after(&mut demand, 1000, 4, false), 4, "as many as are busy");
        assert_eq!(after(&mut demand, 1000, 2, false), 3, "two busy ones keep a third at hand");
        assert_eq!(after(&mut demand, 1000, 0, false), 1);
    }

    #[test]
    fn whoever_waits_for_a_server_is_replaced() {
        let mut demand = Demand::new(4);
        for _ in 0..2000 {
            demand.sample(busy(1), false);
        }
        assert_eq!(demand.sample(Load { busy: 1, waiting: 1 }, false), 1 + demand.threads, "as many as before beside the one that waits");
        // A crowd of 1,000 that wants something of the same server: whatever is taken begins to
        // wait.
        let (mut threads, mut samples) = (2, 0);
        while threads < 1000 {
            threads = demand.sample(Load { busy: threads, waiting: threads }, true);
            samples += 1;
        }
        assert!(samples < 30, "{samples} steps");
        assert_eq!(demand.sample(Load { busy: 1000, waiting: 1000 }, false) - 1000, demand.threads);
    }

    #[test]
    fn a_request_that_stays_in_service_counts_as_waiting() {
        let threads = Threads::new(2);
        let service = threads.add(test_service());
        assert_eq!(threads.sample(), busy(0));
        service.begin(8, 1, threads.now());
        assert_eq!(threads.sample(), busy(1));
        let loads: Vec<Load> = (0..WAITING_SAMPLES).map(|_| threads.sample()).collect();
        assert_eq!(loads.last(), Some(&Load { busy: 1, waiting: 1 }));
        service.end();
        assert_eq!(threads.sample(), busy(0));
        threads.remove(&service);
        assert!(threads.wait_for_end(Duration::ZERO));
    }

    #[test]
    fn threads_rest_and_come_back_and_those_too_many_end() {
        let threads = Threads::new(3);
        let stop = Arc::new(AtomicBool::new(false));
        let services: Vec<_> = (0..5).map(|_| threads.add(test_service())).collect();
        threads.want(1);
        let workers: Vec<_> = services
            .into_iter()
            .map(|service| {
                let (threads, stop) = (threads.clone(), stop.clone());
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) && threads.stays(&service) == Stay::Serve {}
                    threads.remove(&service);
                })
            })
            .collect();
        let limit = Instant::now() + Duration::from_secs(20);
        while threads.serving() > 1 || threads.total() > 3 {
            assert!(Instant::now() < limit, "two of five end, two rest");
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        threads.want(3);
        workers.into_iter().for_each(|worker| worker.join().expect("nobody rests any more"));
        assert_eq!((threads.serving(), threads.total()), (0, 0));
    }
}
