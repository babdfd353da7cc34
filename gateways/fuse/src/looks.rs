//! How a thread waits for the next request of the kernel: before it sleeps, it looks for one.
//!
//! A program that works with many files makes its next request some microseconds after an answer.
//! To wake a thread for it, mostly on another processor that sleeps as well, costs more than that.
//! So one thread at a time looks, as long as requests come so soon, and lets others run meanwhile.
//! If these keep its processor for long, the machine is busy: for a while no thread looks then,
//! since one that sleeps is woken at once, and one that has let others run is not.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::waits::request_waits;

/// How long a thread looks.
const LOOK: Duration = Duration::from_micros(60);
/// Others that run longer than this at a stretch keep the processor.
const OTHERS_RUN: Duration = Duration::from_micros(500);
/// How long nobody looks then.
const PAUSE: Duration = Duration::from_millis(100);

/// What the threads of a mount share to look for requests.
#[derive(Debug)]
pub struct Looks {
    /// There are processors for a program and for who looks.
    pays: bool,
    is_looking: AtomicBool,
    began: Instant,
    /// Nobody looks before that, in nanoseconds since it began.
    not_before: AtomicU64,
}

/// Whether requests come so soon to one thread that it is worth looking for them.
#[derive(Debug)]
pub struct Pace {
    /// When the thread began to wait.
    since: Instant,
    is_soon: bool,
}

impl Looks {
    /// For a mount that begins.
    pub fn new() -> Looks {
        let pays = thread::available_parallelism().is_ok_and(|processors| processors.get() > 1);
        Looks { pays, is_looking: AtomicBool::new(false), began: Instant::now(), not_before: AtomicU64::new(0) }
    }

    /// To be called by a thread that waits for a request from now on: returns when there is one, or
    /// if it is time to sleep until there is.
    pub fn look(&self, device: &OwnedFd, pace: &mut Pace) {
        pace.since = Instant::now();
        self.look_since(device, pace);
    }

    fn look_since(&self, device: &OwnedFd, pace: &Pace) {
        let begun = pace.since;
        let is_time = || begun.saturating_duration_since(self.began).as_nanos() as u64 >= self.not_before.load(Ordering::Relaxed);
        if !self.pays || !pace.is_soon || !is_time() || self.is_looking.swap(true, Ordering::Acquire) {
            return;
        }
        let mut last = begun;
        while request_waits(device) == Some(false) {
            thread::yield_now();
            let now = Instant::now();
            if now.saturating_duration_since(last) > OTHERS_RUN {
                self.not_before.store((self.began.elapsed() + PAUSE).as_nanos() as u64, Ordering::Relaxed);
                break;
            }
            if now.saturating_duration_since(begun) > LOOK {
                break;
            }
            last = now;
        }
        self.is_looking.store(false, Ordering::Release);
    }
}

impl Pace {
    /// A thread begins to serve.
    pub fn new() -> Pace {
        Pace { since: Instant::now(), is_soon: false }
    }

    /// The thread has the next request.
    pub fn taken(&mut self) {
        self.is_soon = self.since.elapsed() <= LOOK;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Looks that pay on any machine, a device without a request (a socket stands for it), and who
    /// makes one.
    fn looks() -> (Looks, OwnedFd, UnixStream) {
        let (kernel, mount) = UnixStream::pair().expect("sockets");
        (Looks { pays: true, ..Looks::new() }, mount.into(), kernel)
    }

    #[test]
    fn who_looks_finds_a_request_or_goes_to_sleep() {
        let (looks, device, mut kernel) = looks();
        let mut pace = Pace { is_soon: true, ..Pace::new() };
        looks.look(&device, &mut pace);
        assert_eq!((request_waits(&device), looks.is_looking.load(Ordering::Relaxed)), (Some(false), false));
        kernel.write_all(&[0]).expect("a request");
        looks.look(&device, &mut pace);
        assert_eq!((request_waits(&device), looks.is_looking.load(Ordering::Relaxed)), (Some(true), false));
        drop(kernel);
        // Reading says so.
        looks.look(&device, &mut pace);
    }

    #[test]
    fn others_that_keep_the_processor_end_it_for_a_while() {
        let (looks, device, _kernel) = looks();
        let before = |ago: Duration| Instant::now().checked_sub(ago).expect("the machine has run for some seconds");
        let looks = Looks { began: before(Duration::from_secs(1)), ..looks };
        let not_before = || looks.not_before.load(Ordering::Relaxed);
        // As if what was let run had taken so long.
        let late = |is_soon| Pace { since: before(Duration::from_millis(10)), is_soon };
        // Nobody looks while another one does, nor where requests are rare.
        looks.look_since(&device, &late(false));
        looks.is_looking.store(true, Ordering::Relaxed);
        looks.look_since(&device, &late(true));
        assert!(not_before() == 0 && looks.is_looking.swap(false, Ordering::Relaxed));

        looks.look_since(&device, &late(true));
        let until = not_before();
        assert!(until > Duration::from_secs(1).as_nanos() as u64, "{until}");
        looks.not_before.store(u64::MAX, Ordering::Relaxed);
        looks.look_since(&device, &late(true));
        assert_eq!((not_before(), looks.is_looking.load(Ordering::Relaxed)), (u64::MAX, false), "nobody has looked again");
    }

    #[test]
    fn a_pace_is_that_of_the_last_request() {
        let mut pace = Pace { since: Instant::now(), is_soon: false };
        pace.since += LOOK;
        pace.taken();
        assert!(pace.is_soon);
        pace.since = Instant::now().checked_sub(2 * LOOK).expect("the machine has run for longer");
        pace.taken();
        assert!(!pace.is_soon);
    }
}
