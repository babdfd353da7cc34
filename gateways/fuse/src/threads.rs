//! How many threads serve the kernel's requests: as few as keep up with it.
//!
//! The kernel gives a request to the thread that has waited longest. With four threads and one program, each request therefore wakes
//! another thread, with a cold stack, a cold buffer and often on another processor: a create through the mount took a fifth longer than
//! with one thread. So threads that are not needed rest, and come back when requests have to wait.
//!
//! A thread rests only after it has answered; what it would do is to wait for the next request. [`Demand`] decides how many serve, from
//! samples of how many requests are in service and whether one waits that nobody has taken. A sample every millisecond while there is
//! work, every 20 ms otherwise: so much later does a sudden crowd get all threads. A rest ends by itself after a second, so that nothing
//! depends on the samples but speed.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use weft_trace::event;

use crate::waits::{Waits, request_waits};

/// Between two samples while there is work.
const TICK: Duration = Duration::from_millis(1);
/// Between two samples of a mount that is idle.
const TICK_IDLE: Duration = Duration::from_millis(20);
/// So many samples without work, and the mount counts as idle.
const IDLE_SAMPLES: u32 = 50;
/// The longest rest.
const REST_MAX: Duration = Duration::from_secs(1);

/// The load is recorded at most so often.
const LOAD_INTERVAL: Duration = Duration::from_millis(10);

/// The threads of one mount.
#[derive(Debug)]
pub struct Threads {
    max: usize,
    /// How many shall serve.
    wanted: AtomicUsize,
    /// How many do not rest. Changed under the lock.
    serving: AtomicUsize,
    /// Requests in service.
    busy: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
    waits: Waits,
}

/// A request in service; its thread may rest when this is dropped.
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

impl Threads {
    /// For so many threads; all of them serve until [`Threads::watch`] knows better.
    pub fn new(max: usize) -> Arc<Threads> {
        let max = max.max(1);
        Arc::new(Threads {
            max,
            wanted: AtomicUsize::new(max),
            serving: AtomicUsize::new(max),
            busy: AtomicUsize::new(0),
            lock: Mutex::default(),
            changed: Condvar::new(),
            waits: Waits::new(),
        })
    }

    /// To be called by a thread that has taken a request, before anything else.
    /// `program` is the thread of a program that waits for the answer, if one does.
    pub fn turn(&self, program: Option<u32>) -> Turn<'_> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        if weft_trace::is_on(event::LOAD_MOUNT) {
            self.waits.taken(program);
        }
        Turn { threads: self, program }
    }

    /// Adapts the number of threads until the connection `device` to the kernel ends; then all threads come back, to notice it.
    pub fn watch(self: &Arc<Self>, device: OwnedFd) {
        if let Ok(copy) = device.try_clone() {
            self.waits.watch(copy);
        }
        let threads = self.clone();
        let spawned = std::thread::Builder::new().name("weft-threads".into()).spawn(move || threads.sample(&device));
        // Without it all threads serve, which is only slower.
        drop(spawned);
    }

    fn sample(&self, device: &OwnedFd) {
        let mut demand = Demand::new(self.max);
        let mut idle = 0;
        let mut recorded = Instant::now();
        loop {
            std::thread::sleep(if idle < IDLE_SAMPLES { TICK } else { TICK_IDLE });
            let Some(waits) = request_waits(device) else { break };
            let busy = self.busy.load(Ordering::Relaxed);
            if !waits {
                self.waits.none();
            }
            idle = if busy > 0 || waits { 0 } else { idle + 1 };
            self.want(demand.sample(busy, waits));
            if weft_trace::is_on(event::LOAD_MOUNT) && recorded.elapsed() >= LOAD_INTERVAL {
                recorded = Instant::now();
                let (serving, wanted) = (self.serving.load(Ordering::Relaxed), self.wanted.load(Ordering::Relaxed));
                weft_trace::counters(
                    event::LOAD_MOUNT,
                    [u64::from(waits), busy as u64, serving as u64, wanted as u64, self.waits.at_most_ns()],
                );
            }
        }
        self.want(self.max);
    }

    fn want(&self, wanted: usize) {
        if self.wanted.swap(wanted, Ordering::Relaxed) < wanted {
            drop(self.locked());
            self.changed.notify_all();
        }
    }

    fn rest(&self) {
        let until = Instant::now() + REST_MAX;
        let mut lock = self.locked();
        let is_needed = |others: usize| others < self.wanted.load(Ordering::Relaxed);
        let others = self.serving.load(Ordering::Relaxed) - 1;
        // At least one always serves.
        if others == 0 || is_needed(others) {
            return;
        }
        self.serving.fetch_sub(1, Ordering::Relaxed);
        while !is_needed(self.serving.load(Ordering::Relaxed)) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            lock = self.changed.wait_timeout(lock, left).expect("no code panics while it holds this lock").0;
        }
        self.serving.fetch_add(1, Ordering::Relaxed);
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, ()> {
        self.lock.lock().expect("no code panics while it holds this lock")
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.threads.busy.fetch_sub(1, Ordering::Relaxed);
        if self.threads.serving.load(Ordering::Relaxed) > self.threads.wanted.load(Ordering::Relaxed) {
            self.threads.rest();
        }
        if weft_trace::is_on(event::LOAD_MOUNT) {
            self.threads.waits.free();
        }
    }
}

/// From samples to a number of threads: moving averages with some distance between the marks for more and for fewer.
#[derive(Debug)]
struct Demand {
    max: usize,
    threads: usize,
    /// Requests in service on average.
    busy: f64,
    /// How often a request waited.
    waits: f64,
}

/// Weight of a new sample.
const WEIGHT: f64 = 0.125;
/// One more thread when requests wait more often than this. A single program's request is seen on its way in a third of the samples.
const MORE_ABOVE: f64 = 0.6;
/// One thread fewer only when requests wait less often than this, and ...
const FEWER_BELOW: f64 = 0.45;
/// ... on average one thread and this share of another have nothing to do.
const SPARE: f64 = 0.3;

impl Demand {
    fn new(max: usize) -> Demand {
        Demand { max, threads: max, busy: max as f64, waits: 0.0 }
    }

    fn sample(&mut self, busy: usize, waits: bool) -> usize {
        self.busy += WEIGHT * (busy as f64 - self.busy);
        self.waits += WEIGHT * (f64::from(u8::from(waits)) - self.waits);
        if self.waits > MORE_ABOVE && self.threads < self.max {
            self.threads += 1;
            // Whether this is enough shows in new samples.
            self.waits = FEWER_BELOW;
        } else if self.threads > 1 && self.waits < FEWER_BELOW && self.busy < self.threads as f64 - 1.0 - SPARE {
            self.threads -= 1;
        }
        self.threads
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// The number of threads after so many equal samples.
    fn after(demand: &mut Demand, samples: usize, busy: usize, waits: bool) -> usize {
        (0..samples).map(|_| demand.sample(busy, waits)).last().expect("at least one sample")
    }

    #[test]
    fn one_program_gets_one_thread_and_a_crowd_all() {
        let mut demand = Demand::new(4);
        for sample in 0..2000 {
            // In service two times of three, seen waiting one time of three.
            demand.sample(usize::from(sample % 3 > 0), sample % 3 == 0);
        }
        assert_eq!(demand.threads, 1);
        for _ in 0..40 {
            demand.sample(demand.threads, true);
        }
        assert_eq!(demand.threads, 4, "within 40 ms");
        assert_eq!(after(&mut demand, 1000, 4, false), 4, "as many as are busy");
        assert_eq!(after(&mut demand, 1000, 2, false), 3, "two busy ones keep a third at hand");
        assert_eq!(after(&mut demand, 1000, 0, false), 1);
    }

    #[test]
    fn threads_rest_and_come_back() {
        let threads = Threads::new(3);
        threads.want(1);
        let stop = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let (threads, stop) = (threads.clone(), stop.clone());
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        drop(threads.turn(None));
                    }
                })
            })
            .collect();
        let limit = Instant::now() + Duration::from_secs(20);
        while threads.serving.load(Ordering::Relaxed) > 1 {
            assert!(Instant::now() < limit, "two of three rest");
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        threads.want(3);
        workers.into_iter().for_each(|worker| worker.join().expect("nobody rests any more"));
        assert_eq!((threads.serving.load(Ordering::Relaxed), threads.busy.load(Ordering::Relaxed)), (3, 0));
    }
}
