//! Repetitions, medians, and the one loop that every measurement runs through.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

/// How long and how often a measurement runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reps {
    /// Length of one repetition.
    pub time: Duration,
    /// Number of repetitions; the median is taken over these. Zero counts as one.
    pub count: usize,
}

impl Reps {
    /// `count` repetitions of `time` each.
    pub const fn new(time: Duration, count: usize) -> Self {
        Self { time, count }
    }

    /// Three repetitions of 300 ms: good to about 10 % on a quiet machine.
    pub const fn standard() -> Self {
        Self::new(Duration::from_millis(300), 3)
    }

    pub(crate) fn runs(&self) -> usize {
        self.count.max(1)
    }
}

/// One ceiling: the median over the repetitions, and how far they spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Median repetition.
    pub median: f64,
    /// Smallest repetition.
    pub min: f64,
    /// Greatest repetition.
    pub max: f64,
    /// Unit of the three numbers, for example `requests/s`, `us`, `GiB/s`.
    pub unit: &'static str,
}

impl Measured {
    /// Median, minimum and maximum of `samples`, one sample per repetition.
    ///
    /// # Errors
    /// When there is no sample, or one that is not a number: then nothing was measured.
    pub fn of(samples: &[f64], unit: &'static str) -> Result<Self> {
        ensure!(samples.iter().all(|sample| sample.is_finite()), "a repetition gave no number");
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = sorted.first().zip(sorted.last()).context("nothing was measured: no repetition ran")?;
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Ok(Self { median, min: *min, max: *max, unit })
    }
}

/// Runs `workers` threads side by side for every repetition and gives the sum of their rates, times
/// `scale`.
///
/// `setup(repetition, worker)` prepares the state of a thread before the clock starts;
/// `work(state, deadline)` runs in the thread until the deadline and returns how many units it did;
/// `finish` receives the states of a repetition afterwards.
pub(crate) fn rate<S: Send>(
    reps: Reps,
    workers: usize,
    scale: f64,
    unit: &'static str,
    mut setup: impl FnMut(usize, usize) -> Result<S>,
    work: impl Fn(&mut S, Instant) -> Result<u64> + Sync,
    mut finish: impl FnMut(Vec<S>) -> Result<()>,
) -> Result<Measured> {
    ensure!(workers > 0, "a measurement needs at least one thread");
    let mut samples = Vec::with_capacity(reps.runs());
    for repetition in 0..reps.runs() {
        let states = (0..workers).map(|worker| setup(repetition, worker)).collect::<Result<Vec<S>>>()?;
        // Threads meet here, so that no rate is taken while another thread still starts.
        let gate = Barrier::new(workers);
        let run = |mut state: S| -> Result<(S, f64)> {
            gate.wait();
            let start = Instant::now();
            let units = work(&mut state, start + reps.time)?;
            Ok((state, units as f64 / start.elapsed().as_secs_f64()))
        };
        let results: Vec<Result<(S, f64)>> = std::thread::scope(|scope| {
            let threads: Vec<_> = states.into_iter().map(|state| scope.spawn(|| run(state))).collect();
            threads
                .into_iter()
                .map(|thread| match thread.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect()
        });
        let mut sum = 0.0;
        let mut done = Vec::with_capacity(workers);
        for result in results {
            let (state, rate) = result?;
            sum += rate;
            done.push(state);
        }
        samples.push(sum * scale);
        finish(done)?;
    }
    Measured::of(&samples, unit)
}

/// [`rate`] for states that are just dropped afterwards.
pub(crate) fn plain_rate<S: Send>(
    reps: Reps,
    workers: usize,
    scale: f64,
    unit: &'static str,
    setup: impl FnMut(usize, usize) -> Result<S>,
    work: impl Fn(&mut S, Instant) -> Result<u64> + Sync,
) -> Result<Measured> {
    rate(reps, workers, scale, unit, setup, work, |_| Ok(()))
}

/// A rate, and how long single operations took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TimedRate {
    /// Operations a second.
    pub rate: Measured,
    /// Median time of one in us, where each was timed.
    pub p50_us: Option<Measured>,
    /// 99th percentile in us.
    pub p99_us: Option<Measured>,
}

/// [`rate`] with the latencies that the states have kept.
pub(crate) fn timed_rate<S: Send>(
    reps: Reps,
    workers: usize,
    unit: &'static str,
    setup: impl FnMut(usize, usize) -> Result<S>,
    work: impl Fn(&mut S, Instant) -> Result<u64> + Sync,
    latencies: impl Fn(S) -> Latencies,
) -> Result<TimedRate> {
    let (mut p50s_us, mut p99s_us) = (Vec::new(), Vec::new());
    let rate = rate(reps, workers, 1.0, unit, setup, work, |states| {
        let mut all = Latencies::default();
        states.into_iter().for_each(|state| all.nanos.extend(latencies(state).nanos));
        p50s_us.extend(all.percentile_us(0.5));
        p99s_us.extend(all.percentile_us(0.99));
        Ok(())
    })?;
    Ok(TimedRate { rate, p50_us: Measured::of(&p50s_us, "us").ok(), p99_us: Measured::of(&p99s_us, "us").ok() })
}

/// Does `step` until the deadline; the sum of what it gives.
pub(crate) fn until(deadline: Instant, mut step: impl FnMut() -> Result<u64>) -> Result<u64> {
    let mut done = 0;
    while Instant::now() < deadline {
        done += step()?;
    }
    Ok(done)
}

/// Latencies of single operations, in nanoseconds, for percentiles.
#[derive(Default)]
pub(crate) struct Latencies {
    nanos: Vec<u32>,
}

impl Latencies {
    fn record(&mut self, taken: Duration) {
        self.nanos.push(u32::try_from(taken.as_nanos()).unwrap_or(u32::MAX));
    }

    /// Times `operation`, one after the other until the deadline; how many.
    pub(crate) fn time_until(&mut self, deadline: Instant, mut operation: impl FnMut() -> Result<()>) -> Result<u64> {
        let mut done = 0;
        let mut now = Instant::now();
        while now < deadline {
            operation()?;
            let after = Instant::now();
            self.record(after - now);
            now = after;
            done += 1;
        }
        Ok(done)
    }

    /// The latency in microseconds that `fraction` of the operations do not exceed; `None` without
    /// operations.
    fn percentile_us(&mut self, fraction: f64) -> Option<f64> {
        let last = self.nanos.len().checked_sub(1)?;
        let rank = (last as f64 * fraction).round() as usize;
        let (_, nanos, _) = self.nanos.select_nth_unstable(rank.min(last));
        Some(f64::from(*nanos) / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_and_spread_the_ends() {
        let odd = Measured::of(&[3.0, 1.0, 9.0], "x").expect("three samples");
        assert_eq!((odd.median, odd.min, odd.max), (3.0, 1.0, 9.0));
        let even = Measured::of(&[4.0, 1.0, 2.0, 9.0], "x").expect("four samples");
        assert_eq!(even.median, 3.0);
        assert!(Measured::of(&[], "x").is_err());
        assert!(Measured::of(&[1.0, f64::NAN], "x").is_err());
    }

    #[test]
    fn percentiles_of_known_latencies() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.percentile_us(0.5), None);
        for micros in (0..=100).rev() {
            latencies.record(Duration::from_micros(micros));
        }
        assert_eq!(latencies.percentile_us(0.5), Some(50.0));
        assert_eq!(latencies.percentile_us(0.99), Some(99.0));
        assert_eq!(latencies.percentile_us(1.0), Some(100.0));
    }

    #[test]
    fn rates_of_all_workers_are_added() {
        let reps = Reps::new(Duration::from_millis(5), 2);
        let mut finished = 0;
        let mut sleeper = |workers| {
            rate(
                reps,
                workers,
                1.0,
                "sleeps/s",
                |_, worker| Ok(worker),
                |_, deadline| {
                    let mut count = 0;
                    while Instant::now() < deadline {
                        std::thread::sleep(Duration::from_millis(1));
                        count += 1;
                    }
                    Ok(count)
                },
                |states| {
                    finished += states.len();
                    Ok(())
                },
            )
        };
        let four = sleeper(4).expect("sleeping cannot fail");
        assert_eq!(finished, 8);
        // A sleep of 1 ms never ends early, so one worker reaches at most 1000/s; the sum of four
        // is above that unless the machine stalls for most of the run, and never above 4000/s.
        assert!(four.median > 0.0 && four.max <= 4000.0, "{four:?}");
    }

    #[test]
    fn an_error_of_a_worker_is_reported() {
        let reps = Reps::new(Duration::from_millis(1), 1);
        let result = plain_rate(
            reps,
            2,
            1.0,
            "x",
            |_, worker| Ok(worker),
            |worker, _| {
                ensure!(*worker == 0, "worker 1 fails");
                Ok(1)
            },
        );
        assert!(result.is_err());
    }
}
