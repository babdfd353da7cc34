//! How a thread waits for the next request of the kernel: before it sleeps, it looks for one.
//!
//! A program that works with many files makes its next request some microseconds after an answer.
//! To wake a thread for it, mostly on another processor that sleeps as well, costs more than that.
//! So one thread at a time looks, as long as requests come so soon. It keeps a processor busy that
//! nobody else wants: where more threads of the machine are ready to run than it has processors,
//! none looks.

use std::fs::File;
use std::hint;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::waits::request_waits;

/// How long a thread looks.
const LOOK: Duration = Duration::from_micros(60);
/// So long the answer holds whether others want the processors.
const CHECK: Duration = Duration::from_millis(10);
/// Between two looks: a system call each is enough.
const HINTS: u32 = 8;

/// What the threads of a mount share to look for requests.
#[derive(Debug)]
pub struct Looks {
    processors: usize,
    /// What the kernel says of the load; `None`: nothing.
    load: Option<File>,
    is_looking: AtomicBool,
    began: Instant,
    /// Nobody looks before that, and until then the answer of the last one holds, both in
    /// nanoseconds since it began.
    not_before: AtomicU64,
    checked_until: AtomicU64,
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
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Looks::on(processors, File::open("/proc/loadavg").ok())
    }

    fn on(processors: usize, load: Option<File>) -> Looks {
        let [not_before, checked_until] = [0, 0].map(AtomicU64::new);
        Looks { processors, load, is_looking: AtomicBool::new(false), began: Instant::now(), not_before, checked_until }
    }

    /// To be called by a thread that waits for a request from now on: returns when there is one, or
    /// if it is time to sleep until there is.
    pub fn look(&self, device: &OwnedFd, pace: &mut Pace) {
        pace.since = Instant::now();
        let now_ns = pace.since.saturating_duration_since(self.began).as_nanos() as u64;
        let is_time = pace.is_soon && self.processors > 1 && now_ns >= self.not_before.load(Ordering::Relaxed);
        if !is_time || self.is_looking.swap(true, Ordering::Acquire) {
            return;
        }
        if self.is_free(now_ns) {
            while request_waits(device) == Some(false) && pace.since.elapsed() <= LOOK {
                (0..HINTS).for_each(|_| hint::spin_loop());
            }
        }
        self.is_looking.store(false, Ordering::Release);
    }

    /// True if nobody else wants the processor of this thread, as far as was known lately. One
    /// thread at a time calls this.
    fn is_free(&self, now_ns: u64) -> bool {
        if now_ns < self.checked_until.load(Ordering::Relaxed) {
            return true;
        }
        let until = now_ns + CHECK.as_nanos() as u64;
        let mut line = [0; 128];
        let bytes = self.load.as_ref().and_then(|load| load.read_at(&mut line, 0).ok()).unwrap_or(0);
        let is_free = ready(&line[..bytes]).is_some_and(|ready| ready <= self.processors);
        let noted = if is_free { &self.checked_until } else { &self.not_before };
        noted.store(until, Ordering::Relaxed);
        is_free
    }
}

/// Threads that run or are ready to, of a line of `loadavg`.
fn ready(line: &[u8]) -> Option<usize> {
    std::str::from_utf8(line).ok()?.split_ascii_whitespace().nth(3)?.split('/').next()?.parse().ok()
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

    /// Looks on four processors while so many threads are ready to run, a device without a request
    /// (a socket stands for it), and who makes one.
    fn looks(ready: usize) -> (Looks, OwnedFd, UnixStream) {
        let mut load = tempfile::tempfile().expect("a file");
        writeln!(load, "0.50 2.51 4.00 {ready}/213 4711").expect("it is written");
        let (kernel, mount) = UnixStream::pair().expect("sockets");
        (Looks::on(4, Some(load)), mount.into(), kernel)
    }

    fn soon() -> Pace {
        Pace { is_soon: true, ..Pace::new() }
    }

    /// Whether it was looked, and nobody looks now.
    fn looked(looks: &Looks, device: &OwnedFd, mut pace: Pace) -> bool {
        looks.look(device, &mut pace);
        assert!(!looks.is_looking.load(Ordering::Relaxed));
        looks.checked_until.load(Ordering::Relaxed) > 0
    }

    #[test]
    fn who_looks_finds_a_request_or_goes_to_sleep() {
        let (looks, device, mut kernel) = looks(4);
        let begun = Instant::now();
        assert!(looked(&looks, &device, soon()));
        assert!(begun.elapsed() > LOOK && request_waits(&device) == Some(false));
        kernel.write_all(&[0]).expect("a request");
        assert!(looked(&looks, &device, soon()));
        drop(kernel);
        // Reading says so.
        assert!(looked(&looks, &device, soon()));
    }

    #[test]
    fn nobody_looks_who_need_not_or_takes_a_processor_from_others() {
        let (looks, device, _kernel) = looks(4);
        assert!(!looked(&looks, &device, Pace::new()), "requests are rare");
        looks.is_looking.store(true, Ordering::Relaxed);
        looks.look(&device, &mut soon());
        assert_eq!((looks.is_looking.swap(false, Ordering::Relaxed), looks.checked_until.load(Ordering::Relaxed)), (true, 0));

        let (busy, ..) = self::looks(5);
        assert!(!looked(&busy, &device, soon()) && busy.not_before.load(Ordering::Relaxed) > 0);
        assert!(!looked(&Looks::on(4, None), &device, soon()), "nobody says how many are ready");
        assert!(!looked(&Looks::on(1, looks.load), &device, soon()), "a single processor");
        assert_eq!((ready(b"0.1 0.2 0.3 2/99 1\n"), ready(b""), ready(b"1 2 3 x/4")), (Some(2), None, None));
    }

    #[test]
    fn a_pace_is_that_of_the_last_request() {
        let mut pace = Pace { since: Instant::now() + LOOK, ..Pace::new() };
        pace.taken();
        assert!(pace.is_soon);
        pace.since = Instant::now().checked_sub(2 * LOOK).expect("the machine has run for longer");
        pace.taken();
        assert!(!pace.is_soon);
    }
}
