//! Ceilings of processor and memory: copying, entering the kernel, handing over to another thread.

use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use anyhow::{Context, Result};

use crate::measure::{Measured, Reps, plain_rate, rate, until};
use crate::sys::{Affinity, PageBuf};

/// While it lives, this thread and all threads and processes that it starts run on some processors
/// only.
///
/// Where two sides take turns, the scheduler's choice between one processor and two decides by a
/// factor of two to ten, and it changes from run to run. On one processor the figures repeat
/// within a few percent: use it to compare two programs, or to see what an operation costs in
/// processor time.
#[derive(Debug)]
pub struct Pinned {
    before: Affinity,
    /// Affinity belongs to a thread, so the guard must not move to another.
    _this_thread: PhantomData<*const ()>,
}

impl Pinned {
    /// Pins the calling thread to the first processor that it may use.
    ///
    /// # Errors
    /// When the system refuses to tell or to change the affinity of this thread.
    pub fn to_one() -> Result<Self> {
        Self::to(0, 1)
    }

    /// Pins it to `count` of the processors that it may use, after the first `skipped`.
    ///
    /// # Errors
    /// As [`Pinned::to_one`]; or it may not use so many.
    pub fn to(skipped: usize, count: usize) -> Result<Self> {
        let before = Affinity::current().context("cannot tell the processors of this thread")?;
        let some = before.some(skipped, count).with_context(|| format!("this thread may not run on {} processors", skipped + count))?;
        some.apply().context("cannot pin this thread to some processors")?;
        Ok(Self { before, _this_thread: PhantomData })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Going back to what was allowed before fails only if those processors have gone since:
        // then stay.
        let _ = self.before.apply();
    }
}

/// Memory copy by `threads` threads, each between two own buffers of `block_bytes`; GB/s (10^9
/// bytes copied).
///
/// A block of 1 MiB stays in a private cache, one of 64 MiB does not stay in any.
///
/// # Errors
/// When `threads` or `block_bytes` is 0.
pub fn memcpy(threads: usize, block_bytes: usize, reps: Reps) -> Result<Measured> {
    anyhow::ensure!(block_bytes > 0, "cannot copy blocks of 0 bytes");
    plain_rate(
        reps,
        threads,
        1e-9,
        "GB/s",
        |_, _| Ok((PageBuf::new(block_bytes, 1), PageBuf::new(block_bytes, 2))),
        |(source, target), deadline| {
            until(deadline, || {
                black_box(&mut *target).bytes_mut().copy_from_slice(black_box(&*source).bytes());
                Ok(block_bytes as u64)
            })
        },
    )
}

/// Cost of the cheapest system call (`getppid`), in ns.
///
/// # Errors
/// None in practice; the type is that of every measurement.
pub fn syscall(reps: Reps) -> Result<Measured> {
    const CALLS_PER_LOOK: u64 = 256;
    let calls = plain_rate(
        reps,
        1,
        1.0,
        "calls/s",
        |_, _| Ok(()),
        |(), deadline| {
            until(deadline, || {
                for _ in 0..CALLS_PER_LOOK {
                    black_box(rustix::process::getppid());
                }
                Ok(CALLS_PER_LOOK)
            })
        },
    )?;
    Ok(invert(calls, 1e9, "ns"))
}

/// Round trip between two threads through a mutex and a condition variable: both sleep in turn; us
/// per round trip.
///
/// # Errors
/// When a thread cannot be started.
pub fn handover_condvar(reps: Reps) -> Result<Measured> {
    handover(reps, || Arc::new(CondvarTurn::default()))
}

/// Round trip between two threads by park and unpark (one futex each way); us per round trip.
///
/// # Errors
/// When a thread cannot be started.
pub fn handover_park(reps: Reps) -> Result<Measured> {
    handover(reps, || Arc::new(ParkTurn::default()))
}

/// Whose turn it is: `false` the caller's, `true` the echo thread's.
trait Turn: Send + Sync + 'static {
    /// Makes it `whose` turn; `thread` is the one to wake.
    fn pass(&self, whose: bool, thread: &std::thread::Thread);
    /// Sleeps until it is `whose` turn.
    fn wait(&self, whose: bool);
}

#[derive(Default)]
struct CondvarTurn {
    turn: Mutex<bool>,
    changed: Condvar,
}

impl Turn for CondvarTurn {
    fn pass(&self, whose: bool, _: &std::thread::Thread) {
        // A poisoned lock only says that the other thread panicked; the flag itself is always
        // valid.
        *self.turn.lock().unwrap_or_else(|lock| lock.into_inner()) = whose;
        self.changed.notify_one();
    }

    fn wait(&self, whose: bool) {
        let mut turn = self.turn.lock().unwrap_or_else(|lock| lock.into_inner());
        while *turn != whose {
            turn = self.changed.wait(turn).unwrap_or_else(|lock| lock.into_inner());
        }
    }
}

#[derive(Default)]
struct ParkTurn {
    turn: AtomicBool,
}

impl Turn for ParkTurn {
    fn pass(&self, whose: bool, thread: &std::thread::Thread) {
        self.turn.store(whose, Ordering::Release);
        thread.unpark();
    }

    fn wait(&self, whose: bool) {
        while self.turn.load(Ordering::Acquire) != whose {
            std::thread::park();
        }
    }
}

/// The measuring thread starts this for itself at its first step, so that it knows whom the echo
/// thread must wake.
struct Pair<T> {
    turn: Arc<T>,
    stop: Arc<AtomicBool>,
    echo: Option<JoinHandle<()>>,
}

fn handover<T: Turn>(reps: Reps, new_turn: impl Fn() -> Arc<T>) -> Result<Measured> {
    let trips = rate(
        reps,
        1,
        1.0,
        "round trips/s",
        |_, _| Ok(Pair { turn: new_turn(), stop: Arc::new(AtomicBool::new(false)), echo: None }),
        |pair, deadline| {
            let caller = std::thread::current();
            let (turn, stop) = (pair.turn.clone(), pair.stop.clone());
            let echo = std::thread::Builder::new().spawn(move || {
                loop {
                    turn.wait(true);
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    turn.pass(false, &caller);
                }
            })?;
            let partner = echo.thread().clone();
            pair.echo = Some(echo);
            let trips = until(deadline, || {
                pair.turn.pass(true, &partner);
                pair.turn.wait(false);
                Ok(1)
            })?;
            pair.stop.store(true, Ordering::Release);
            pair.turn.pass(true, &partner);
            Ok(trips)
        },
        |pairs| {
            for echo in pairs.into_iter().filter_map(|pair| pair.echo) {
                if let Err(panic) = echo.join() {
                    std::panic::resume_unwind(panic);
                }
            }
            Ok(())
        },
    )?;
    Ok(invert(trips, 1e6, "us"))
}

/// Turns a rate per second into a time per operation; the fastest repetition becomes the smallest
/// time.
fn invert(rate: Measured, per_second: f64, unit: &'static str) -> Measured {
    Measured { median: per_second / rate.median, min: per_second / rate.max, max: per_second / rate.min, unit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SHORT: Reps = Reps::new(Duration::from_millis(5), 3);

    fn plausible(measured: Measured) {
        assert!(measured.min > 0.0, "{measured:?}");
        assert!(measured.min <= measured.median && measured.median <= measured.max);
    }

    #[test]
    fn a_pin_is_inherited_and_ends() {
        let count = || Affinity::current().expect("always known").count();
        let before = count();
        let pin = Pinned::to_one().expect("a thread may pin itself");
        assert_eq!(count(), 1);
        assert_eq!(std::thread::scope(|scope| scope.spawn(count).join()).ok(), Some(1));
        drop(pin);
        assert_eq!(count(), before);
    }

    #[test]
    fn memory_is_copied() {
        plausible(memcpy(1, 1 << 20, SHORT).expect("memory can be copied"));
        plausible(memcpy(2, 1 << 20, SHORT).expect("memory can be copied"));
        assert!(memcpy(1, 0, SHORT).is_err());
        assert!(memcpy(0, 4096, SHORT).is_err());
    }

    #[test]
    fn a_system_call_costs_something() {
        let cost = syscall(SHORT).expect("getppid cannot fail");
        plausible(cost);
        // No processor enters and leaves its kernel within a nanosecond: the loop must not have
        // been optimised away.
        assert!(cost.min > 1.0, "{cost:?}");
    }

    #[test]
    fn threads_hand_over_and_end() {
        plausible(handover_condvar(SHORT).expect("two threads can be started"));
        plausible(handover_park(SHORT).expect("two threads can be started"));
    }
}
