//! Many simulations on all cores, with a progress bar.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use weft_host::parallel::by_threads;
use weft_trace::merge::gathered;

/// Cores of this machine.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

/// The results of `work` for each job, in the order of the jobs.
///
/// # Errors
/// The error of the first job (in their order) that had one; jobs that have not begun by then are
/// left out.
pub fn all<J: Sync, R: Send>(jobs: &[J], threads: usize, work: impl Fn(&J) -> Result<R> + Sync) -> Result<Vec<R>> {
    let bar = progress_bar(jobs.len());
    let has_failed = AtomicBool::new(false);
    let results = gathered(&|count, work| by_threads(threads, count, work), jobs.len(), |number| {
        if has_failed.load(Ordering::Relaxed) {
            return None;
        }
        let result = work(&jobs[number]);
        has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
        bar.inc(1);
        Some(result)
    });
    bar.finish_and_clear();
    results.into_iter().flatten().collect()
}

fn progress_bar(jobs: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {pos}/{len} simulations {wide_bar} {elapsed} {eta}");
    let bar = ProgressBar::new(jobs as u64).with_style(style.expect("the template is a constant that parses"));
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u32> = (0..100).collect();
        assert_eq!(all(&jobs, 3, |job| Ok(job * 2)).expect("none fails"), (0..100).map(|job| job * 2).collect::<Vec<_>>());
        assert_eq!(all(&[], 3, |job: &u32| Ok(*job)).expect("none fails"), [0; 0]);
    }

    #[test]
    fn an_error_ends_the_work() {
        let jobs: Vec<u32> = (0..100).collect();
        let done = AtomicUsize::new(0);
        let error = all(&jobs, 1, |job| {
            done.fetch_add(1, Ordering::Relaxed);
            if *job == 5 { anyhow::bail!("job {job}") } else { Ok(()) }
        });
        assert_eq!((error.expect_err("job 5 fails").to_string().as_str(), done.into_inner()), ("job 5", 6));
    }
}
