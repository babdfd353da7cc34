//! Work by several threads. A user, or a control group, may have no more of them: then whatever can
//! be done without is done.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, ScopedJoinHandle};

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

/// Does this with each, all at the same time and in a thread each, for what waits for others; what
/// can have no thread is done one after another. The results are in their order.
pub fn each<I: Sync, T: Send>(items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let start = |item| (item, thread::Builder::new().spawn_scoped(scope, move || work(item)));
        let started: Vec<_> = items.iter().map(start).collect();
        let outcome = |(item, thread): (&I, std::io::Result<ScopedJoinHandle<'_, T>>)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => work(item),
        };
        started.into_iter().map(outcome).collect()
    })
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
    fn each_waits_beside_the_others() {
        let all = std::sync::Barrier::new(3);
        let waited = each(&[3, 1, 2], |number| {
            all.wait();
            number * 10
        });
        assert_eq!(waited, [30, 10, 20]);
    }

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
