//! What one client has done, and when.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weft_trace::latency::{Latency, Slot};

use crate::stats::Latencies;

/// Length of one interval of the recorded progress.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Intervals that have their place before the first operation: ten minutes. A longer step makes the
/// list grow.
const INTERVALS_AT_FIRST: usize = 6000;

/// Counts operations of one client while they happen.
#[derive(Debug)]
pub struct Meter {
    start: Instant,
    last: Instant,
    tally: Tally,
    bins: Latency,
    /// Every place is written to at the start, so that no page is fetched while operations are
    /// timed; cut to its length at the end.
    intervals: Vec<(u64, u64)>,
    progress: bool,
}

/// A latency distribution on its way between processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bins {
    /// Number and nanoseconds of the entries of each slot (`weft_trace::latency`); empty without
    /// entries.
    slots: Vec<(u64, u64)>,
    min_ns: u64,
    max_ns: u64,
}

/// What was counted; sums up over clients and processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Operations.
    pub ops: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// Operations and bytes of each interval since the start, if progress was to be recorded.
    pub intervals: Vec<(u64, u64)>,
    /// How long operations took, where one followed the other.
    pub latencies: Latencies,
    /// The same in the 50 bins, if progress was to be recorded.
    pub bins: Bins,
}

impl Meter {
    /// A meter that starts now.
    pub fn start(progress: bool) -> Meter {
        let now = Instant::now();
        let mut intervals = Vec::with_capacity(if progress { INTERVALS_AT_FIRST } else { 0 });
        // Not zero, or the memory would only be promised.
        intervals.resize(intervals.capacity(), (1, 1));
        intervals.clear();
        Meter { start: now, last: now, tally: Tally::default(), bins: Latency::default(), intervals, progress }
    }

    /// Counts one operation that began when the one before it ended.
    pub fn done(&mut self, bytes: u64) {
        let now = Instant::now();
        let ns = (now - self.last).as_nanos() as u64;
        self.tally.latencies.record(ns);
        if self.progress {
            self.bins.record(ns);
        }
        self.last = now;
        self.count(now, 1, bytes);
    }

    /// Counts operations of which several were under way at once.
    pub fn done_among_others(&mut self, ops: u64, bytes: u64) {
        let now = if self.progress { Instant::now() } else { self.last };
        self.count(now, ops, bytes);
    }

    /// The sums.
    pub fn finish(self) -> Tally {
        Tally { intervals: self.intervals, bins: Bins::of(&self.bins), ..self.tally }
    }

    fn count(&mut self, now: Instant, ops: u64, bytes: u64) {
        self.tally.ops += ops;
        self.tally.bytes += bytes;
        if self.progress {
            let interval = ((now - self.start).as_nanos() / INTERVAL.as_nanos()) as usize;
            if self.intervals.len() <= interval {
                self.intervals.resize(interval + 1, (0, 0));
            }
            let (ops_before, bytes_before) = &mut self.intervals[interval];
            *ops_before += ops;
            *bytes_before += bytes;
        }
    }
}

impl Tally {
    /// Adds what another client has done at the same time.
    pub fn absorb(&mut self, other: &Tally) {
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.latencies.absorb(&other.latencies);
        let mut bins = self.bins.latency();
        bins.merge(&other.bins.latency());
        self.bins = Bins::of(&bins);
        if self.intervals.len() < other.intervals.len() {
            self.intervals.resize(other.intervals.len(), (0, 0));
        }
        for ((ops, bytes), (more_ops, more_bytes)) in self.intervals.iter_mut().zip(&other.intervals) {
            *ops += more_ops;
            *bytes += more_bytes;
        }
    }
}

impl Bins {
    fn of(latency: &Latency) -> Bins {
        let slots = if latency.count() == 0 { Vec::new() } else { latency.slots().iter().map(|slot| (slot.count, slot.sum_ns)).collect() };
        Bins { slots, min_ns: latency.min_ns(), max_ns: latency.max_ns() }
    }

    /// The distribution.
    pub fn latency(&self) -> Latency {
        Latency::from_slots(self.slots.iter().map(|(count, sum_ns)| Slot { count: *count, sum_ns: *sum_ns }), self.min_ns, self.max_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_hold_everything_that_was_counted() {
        let mut meter = Meter::start(true);
        meter.done(10);
        meter.done_among_others(4, 40);
        let first = meter.finish();
        assert_eq!((first.ops, first.bytes), (5, 50));
        let sum = |tally: &Tally| tally.intervals.iter().fold((0, 0), |sum, (ops, bytes)| (sum.0 + ops, sum.1 + bytes));
        assert_eq!(sum(&first), (5, 50));
        let mut all = Tally { intervals: vec![(1, 1); 3], ops: 3, bytes: 3, ..Tally::default() };
        all.absorb(&first);
        assert_eq!((all.ops, all.bytes), (8, 53));
        assert_eq!(sum(&all), (8, 53));
        assert!(all.latencies.summary().is_some(), "one operation had a latency of its own");
        all.absorb(&first);
        let bins = all.bins.latency();
        assert_eq!((bins.count(), bins.max_ns()), (2, first.bins.latency().max_ns()), "those among others have none");
    }

    #[test]
    fn nothing_is_recorded_that_nobody_wants() {
        let mut meter = Meter::start(false);
        meter.done(1);
        let tally = meter.finish();
        assert!(tally.intervals.is_empty() && tally.bins == Bins::default());
    }
}
