//! How long requests of the kernel wait for a thread of the mount. The kernel does not say when a
//! request was made, so all that can be known is a bound. A request that a thread takes has waited
//! no longer than since the last moment at which none waited, or a thread had nothing to do; and,
//! if a program waits for its answer, no longer than since the program got its answer before.
//!
//! These moments are seen where it costs little: a thread that has answered looks whether another
//! request waits already (one system call, only while the load is recorded), and the thread that
//! watches the demand looks every millisecond. The sum of the bounds over all requests is recorded
//! (`load.mount`).

use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use weft_base::FastMap;

thread_local! {
    /// What this thread saw when it had answered its last request.
    static SEEN: Cell<Seen> = const { Cell::new(Seen::NotLooked) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    NotLooked,
    /// A request waited.
    Request,
    /// None did: from then on this thread had nothing to do.
    Nothing,
}

/// The bound of one mount. Times are in nanoseconds since it began, all of them relaxed: a request
/// more or less at the same moment is nobody's loss.
#[derive(Debug)]
pub struct Waits {
    device: OnceLock<OwnedFd>,
    began: Instant,
    /// The last moment at which none waited or a thread had nothing to do; 0: never seen.
    none_at: AtomicU64,
    at_most_ns: AtomicU64,
    /// When threads of programs got their last answers.
    answered: Mutex<FastMap<u32, u64>>,
}

/// Threads of programs that are remembered; then all are forgotten, which makes the bound of their
/// next requests wider.
const PROGRAMS_MAX: usize = 4096;

impl Waits {
    pub fn new() -> Waits {
        Waits {
            device: OnceLock::new(),
            began: Instant::now(),
            none_at: AtomicU64::new(0),
            at_most_ns: AtomicU64::new(0),
            answered: Mutex::default(),
        }
    }

    /// The connection to the kernel.
    pub fn watch(&self, device: OwnedFd) {
        // There is one in the life of a mount.
        let _ = self.device.set(device);
    }

    /// The calling thread has taken a request of this thread of a program, if one waits for the
    /// answer.
    pub fn taken(&self, program: Option<u32>) {
        let now = self.now();
        match SEEN.replace(Seen::NotLooked) {
            Seen::NotLooked => {}
            Seen::Nothing => drop(self.none_at.fetch_max(now, Ordering::Relaxed)),
            Seen::Request => {
                let none_at = self.none_at.load(Ordering::Relaxed);
                let answered = program.and_then(|program| self.answered().get(&program).copied()).unwrap_or(0);
                let since = none_at.max(answered);
                if since > 0 {
                    self.at_most_ns.fetch_add(now.saturating_sub(since), Ordering::Relaxed);
                }
            }
        }
    }

    /// A thread of a program is about to get its answer.
    pub fn answers(&self, program: u32) {
        let now = self.now();
        let mut answered = self.answered();
        if answered.len() >= PROGRAMS_MAX {
            answered.clear();
        }
        answered.insert(program, now);
    }

    /// The calling thread is about to wait for its next request.
    pub fn free(&self) {
        let Some(waits) = self.device.get().and_then(request_waits) else { return };
        SEEN.set(if waits { Seen::Request } else { Seen::Nothing });
        if !waits {
            self.none();
        }
    }

    /// No request waits now.
    pub fn none(&self) {
        self.none_at.fetch_max(self.now(), Ordering::Relaxed);
    }

    /// All requests together have waited so long at most.
    pub fn at_most_ns(&self) -> u64 {
        self.at_most_ns.load(Ordering::Relaxed)
    }

    fn answered(&self) -> MutexGuard<'_, FastMap<u32, u64>> {
        self.answered.lock().expect("no code panics while it holds this lock")
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

/// True if the kernel has a request that no thread has taken; `None` if the connection has ended.
pub fn request_waits(device: &OwnedFd) -> Option<bool> {
    let mut watched = libc::pollfd { fd: device.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `watched` is one valid pollfd; with time limit 0 the call does not wait.
    let result = unsafe { libc::poll(&raw mut watched, 1, 0) };
    if watched.revents & (libc::POLLERR | libc::POLLNVAL | libc::POLLHUP) != 0 {
        return None;
    }
    Some(result > 0 && watched.revents & libc::POLLIN != 0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    /// A socket stands for the connection to the kernel, a byte for a request.
    #[test]
    fn a_request_that_was_there_has_waited_since_none_was_at_most() {
        let (mut kernel, mut mount) = UnixStream::pair().expect("sockets");
        let waits = Waits::new();
        waits.watch(mount.try_clone().expect("a descriptor").into());
        let mut take = |waits: &Waits| {
            mount.read_exact(&mut [0]).expect("a request");
            waits.taken(Some(7));
        };
        // Before the first look nothing is known.
        kernel.write_all(b"r").expect("a request");
        take(&waits);
        waits.free();
        // The thread had nothing to do when this one came.
        std::thread::sleep(Duration::from_millis(5));
        kernel.write_all(b"r").expect("a request");
        take(&waits);
        assert_eq!(waits.at_most_ns(), 0);
        // This one comes while the thread serves.
        let begun = Instant::now();
        kernel.write_all(b"r").expect("a request");
        std::thread::sleep(Duration::from_millis(5));
        waits.free();
        take(&waits);
        let first = waits.at_most_ns();
        assert!((5_000_000..=begun.elapsed().as_nanos() as u64 + 1_000_000).contains(&first), "{first}");
        // Another thread takes what this one has seen; when somebody sees that none waits, the
        // bound begins anew.
        kernel.write_all(b"r").expect("a request");
        waits.free();
        std::thread::sleep(Duration::from_millis(5));
        let begun = Instant::now();
        waits.none();
        take(&waits);
        assert!(waits.at_most_ns() - first <= begun.elapsed().as_nanos() as u64);
        waits.free();
        // A program has not asked before it was answered, however long others have waited.
        let before = waits.at_most_ns();
        kernel.write_all(b"r").expect("a request");
        waits.free();
        std::thread::sleep(Duration::from_millis(5));
        let begun = Instant::now();
        waits.answers(7);
        take(&waits);
        assert!(waits.at_most_ns() - before <= begun.elapsed().as_nanos() as u64);
        waits.free();
        drop(kernel);
        waits.free();
        assert_eq!(waits.device.get().and_then(request_waits), None);
    }
}
