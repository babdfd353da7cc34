//! What one client has done, and when.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weft_trace::latency::{Latency, Slot};

use crate::stats::Latencies;
use weft_workload::Every;

/// Length of one interval of the recorded progress, unless somebody says otherwise.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Intervals that have their place before the first operation: ten minutes of them. A longer step
/// makes the list grow.
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
    progress: Option<Every>,
    /// Where intervals are of operations: those since the last mark, and their bytes.
    since_mark: (u64, u64),
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
    /// The same where intervals are of operations: when each ended, in nanoseconds since the start
    /// of its client, and its operations and bytes.
    #[serde(default)]
    pub marks: Vec<(u64, u64, u64)>,
    /// How long operations took, where one followed the other.
    pub latencies: Latencies,
    /// The same in the 50 bins, if progress was to be recorded.
    pub bins: Bins,
}

impl Meter {
    /// A meter that starts now.
    pub fn start(progress: Option<Every>) -> Meter {
        let now = Instant::now();
        let mut intervals = Vec::with_capacity(if matches!(progress, Some(Every::Nanos(_))) { INTERVALS_AT_FIRST } else { 0 });
        // Not zero, or the memory would only be promised.
        intervals.resize(intervals.capacity(), (1, 1));
        intervals.clear();
        Meter { start: now, last: now, tally: Tally::default(), bins: Latency::default(), intervals, progress, since_mark: (0, 0) }
    }

    /// Counts one operation that began when the one before it ended.
    pub fn done(&mut self, bytes: u64) {
        let now = Instant::now();
        let ns = (now - self.last).as_nanos() as u64;
        self.tally.latencies.record(ns);
        if self.progress.is_some() {
            self.bins.record(ns);
        }
        self.last = now;
        self.count(now, 1, bytes);
    }

    /// Counts operations of which several were under way at once.
    pub fn done_among_others(&mut self, ops: u64, bytes: u64) {
        let now = if self.progress.is_some() { Instant::now() } else { self.last };
        self.count(now, ops, bytes);
    }

    /// The sums.
    pub fn finish(mut self) -> Tally {
        if self.since_mark.0 > 0 {
            self.mark(Instant::now());
        }
        Tally { intervals: self.intervals, bins: Bins::of(&self.bins), ..self.tally }
    }

    fn count(&mut self, now: Instant, ops: u64, bytes: u64) {
        self.tally.ops += ops;
        self.tally.bytes += bytes;
        match self.progress {
            None => {}
            Some(Every::Nanos(length_ns)) => {
                let interval = ((now - self.start).as_nanos() / u128::from(length_ns.max(1))) as usize;
                if self.intervals.len() <= interval {
                    self.intervals.resize(interval + 1, (0, 0));
                }
                let (ops_before, bytes_before) = &mut self.intervals[interval];
                *ops_before += ops;
                *bytes_before += bytes;
            }
            Some(Every::Operations(count)) => {
                self.since_mark = (self.since_mark.0 + ops, self.since_mark.1 + bytes);
                if self.since_mark.0 >= count {
                    self.mark(now);
                }
            }
        }
    }

    fn mark(&mut self, now: Instant) {
        let (ops, bytes) = std::mem::take(&mut self.since_mark);
        self.tally.marks.push(((now - self.start).as_nanos() as u64, ops, bytes));
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
        self.marks.extend(&other.marks);
        self.marks.sort_unstable();
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
        let mut meter = Meter::start(Some(Every::Nanos(100_000_000)));
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
    fn intervals_of_operations_end_when_these_are_done() {
        let mut meter = Meter::start(Some(Every::Operations(2)));
        (0..5).for_each(|_| meter.done(10));
        let one = meter.finish();
        assert_eq!(one.marks.iter().map(|(_, ops, bytes)| (*ops, *bytes)).collect::<Vec<_>>(), [(2, 20), (2, 20), (1, 10)]);
        assert!(one.marks.is_sorted() && one.intervals.is_empty());
        let mut both = one.clone();
        both.absorb(&one);
        assert!(both.marks.len() == 6 && both.marks.is_sorted());
    }

    #[test]
    fn nothing_is_recorded_that_nobody_wants() {
        let mut meter = Meter::start(None);
        meter.done(1);
        let tally = meter.finish();
        assert!(tally.intervals.is_empty() && tally.bins == Bins::default());
    }
}
