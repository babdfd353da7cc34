//! Programs that got a signal while they wait for a request.
//!
//! A program that the signal ends gets `EINTR` at once: it will not see it. One that catches the
//! signal gets it only if its request has been under way for a while, because few programs expect
//! `EINTR` from a file system, and a healthy server answers sooner. What does not end or divert the
//! program (stopping it, task work of the kernel) interrupts nothing. The request itself goes on to
//! its end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::answer::ServingThread;

/// A program that catches the signal gets `EINTR` this long after it.
const PATIENCE: Duration = Duration::from_millis(500);
/// An interrupt whose request is not seen for so long has come too late. It may come before its
/// request, by another thread.
const UNKNOWN_MAX: Duration = Duration::from_secs(1);
/// Between two looks at the signals of a program.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// What the signals of a thread mean for its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signals {
    /// It will end.
    Fatal,
    /// A handler waits to run.
    Caught,
    /// Nothing.
    Harmless,
}

/// Interrupts that are not honoured yet.
#[derive(Debug, Default)]
pub struct Interrupts {
    waiting: Mutex<Vec<Interrupt>>,
    /// How many, so that nobody else pays for them.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Interrupt {
    unique: u64,
    came: Instant,
    looked: Instant,
}

impl Interrupts {
    /// The kernel says that the program that waits for this request got a signal.
    /// `end` ends the wait for a request of a service.
    pub fn add(&self, unique: u64, services: &[Arc<ServingThread>], end: &dyn Fn(&Arc<ServingThread>, u64)) {
        let now = Instant::now();
        let interrupt = Interrupt { unique, came: now, looked: now };
        if keeps(&interrupt, services, true, now, end) {
            let mut waiting = self.waiting();
            waiting.push(interrupt);
            self.count.store(waiting.len(), Ordering::Relaxed);
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Honours what is due.
    pub fn honour(&self, services: &[Arc<ServingThread>], end: &dyn Fn(&Arc<ServingThread>, u64)) {
        let now = Instant::now();
        let mut waiting = self.waiting();
        waiting.retain_mut(|interrupt| {
            let looks = now.duration_since(interrupt.looked) >= LOOK_INTERVAL;
            if looks {
                interrupt.looked = now;
            }
            keeps(interrupt, services, looks, now, end)
        });
        self.count.store(waiting.len(), Ordering::Relaxed);
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Interrupt>> {
        self.waiting.lock().expect("no code panics while it holds this lock")
    }
}

/// Honours an interrupt if it is due; false if it is done with.
fn keeps(
    interrupt: &Interrupt,
    services: &[Arc<ServingThread>],
    looks: bool,
    now: Instant,
    end: &dyn Fn(&Arc<ServingThread>, u64),
) -> bool {
    let found = services.iter().find_map(|service| service.program_of(interrupt.unique).map(|program| (service, program)));
    let Some((service, program)) = found else {
        // Answered, or not taken yet.
        return now.duration_since(interrupt.came) < UNKNOWN_MAX;
    };
    let is_late = now.duration_since(interrupt.came) >= PATIENCE;
    if !looks {
        return true;
    }
    let is_due = match signals_of(program) {
        Signals::Fatal => true,
        Signals::Caught => is_late,
        Signals::Harmless => false,
    };
    if is_due {
        end(service, interrupt.unique);
    }
    !is_due
}

/// What waits for a thread. One that cannot be looked at, in another space of process numbers,
/// counts as one that catches.
fn signals_of(thread: u32) -> Signals {
    std::fs::read_to_string(format!("/proc/{thread}/status")).map_or(Signals::Caught, |status| parse_signals(&status))
}

fn parse_signals(status: &str) -> Signals {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
    };
    let (Some(own), Some(shared)) = (mask("SigPnd"), mask("ShdPnd")) else { return Signals::Caught };
    let (blocked, ignored, caught) = (mask("SigBlk").unwrap_or(0), mask("SigIgn").unwrap_or(0), mask("SigCgt").unwrap_or(0));
    let bit = |signal: i32| 1u64 << (signal - 1);
    // What the system does with these unless a program says otherwise ends none.
    let harmless = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH, libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    let harmless = harmless.iter().fold(0, |all, signal| all | bit(*signal));
    let pending = (own | shared) & !blocked;
    // A fatal signal of a process reaches its threads as SIGKILL.
    if own & bit(libc::SIGKILL) != 0 || pending & !ignored & !caught & !harmless != 0 {
        Signals::Fatal
    } else if pending & caught != 0 {
        Signals::Caught
    } else {
        Signals::Harmless
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::answer::Way;

    fn status(own: u64, shared: u64, blocked: u64, ignored: u64, caught: u64) -> String {
        format!(
            "Name:\tcat\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
        )
    }

    #[test]
    fn signals_that_end_a_program_are_told_from_those_that_it_catches() {
        let int = 1 << (libc::SIGINT - 1);
        let kill = 1 << (libc::SIGKILL - 1);
        let stop = 1 << (libc::SIGTSTP - 1);
        assert_eq!(parse_signals(&status(0, int, 0, 0, 0)), Signals::Fatal);
        assert_eq!(parse_signals(&status(kill, 0, !0, 0, 0)), Signals::Fatal);
        assert_eq!(parse_signals(&status(0, int, 0, 0, int)), Signals::Caught);
        assert_eq!(parse_signals(&status(0, int, 0, int, 0)), Signals::Harmless);
        assert_eq!(parse_signals(&status(0, int, int, 0, int)), Signals::Harmless, "blocked");
        assert_eq!(parse_signals(&status(0, stop, 0, 0, 0)), Signals::Harmless);
        assert_eq!(parse_signals(&status(0, 0, 0, 0, 0)), Signals::Harmless);
        assert_eq!(parse_signals("Name: gone"), Signals::Caught);
    }

    #[test]
    fn an_interrupt_waits_for_its_request_and_ends_it_once() {
        let service = Arc::new(ServingThread::new(Way::Memory(std::sync::Mutex::default())));
        let services = [service.clone()];
        let interrupts = Interrupts::default();
        let end = |service: &Arc<ServingThread>, unique| assert!(service.interrupt(unique));
        interrupts.add(8, &services, &end);
        assert!(!interrupts.is_empty(), "its request may come yet");
        // No such thread: it counts as one that catches the signal, which has patience.
        service.begin(8, u32::MAX, 1);
        interrupts.honour(&services, &end);
        assert!(service.answers().is_empty() && !interrupts.is_empty());
        let limit = Instant::now() + Duration::from_secs(20);
        while !interrupts.is_empty() {
            assert!(Instant::now() < limit);
            std::thread::sleep(Duration::from_millis(1));
            interrupts.honour(&services, &end);
        }
        let answers = service.answers();
        assert_eq!((answers.len(), &answers[0][4..8]), (1, &(-libc::EINTR).to_ne_bytes()[..]));
        assert!(!service.interrupt(8), "answered");
    }
}
