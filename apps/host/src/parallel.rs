//! Work by several threads. A user, or a control group, may have no more of them: then whatever can
//! be done without is done.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};

/// Pieces that are worked on at the same time, at most.
const WORKERS_MAX: usize = 16;

/// Calls `work` once with each number below `count`, small ones first, as many at the same time as
/// there are processors (`weft_trace::merge::Each`).
pub fn at_once(count: usize, work: &(dyn Fn(usize) + Sync)) {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    by_threads(processors.min(WORKERS_MAX), count, work);
}

/// Starts a thread that nothing can be done without.
///
/// # Errors
/// If there may be no more of them.
pub fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    let started = thread::Builder::new().spawn(work);
    started.context("cannot start a thread; `ulimit -u`, or the control group, says how many there may be")
}

/// The same as [`at_once`] by so many threads.
pub fn by_threads(threads: usize, count: usize, work: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    let worker = || {
        loop {
            match next.fetch_add(1, Ordering::Relaxed) {
                number if number < count => work(number),
                _ => break,
            }
        }
    };
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, worker).is_ok();
        if !(0..threads.min(count)).all(start) {
            worker();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_called_once() {
        for count in [0, 1, 100] {
            let calls: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            at_once(count, &|number| {
                calls[number].fetch_add(1, Ordering::Relaxed);
            });
            assert!(calls.iter().all(|calls| calls.load(Ordering::Relaxed) == 1));
        }
    }
}
