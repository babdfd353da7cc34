//! Shares of the time on the wall: for how much of a recording at least one operation was under
//! way, and for how much of it at least one waited at a place. What many operations wait for at
//! once counts once, so the share of a place bounds what can be won there.

use serde::Serialize;

use super::paths::{Paths, Spot};
use super::suspect::{Place, places};
use super::tally::{ratio, seconds};
use super::{Analysis, ClientOperation};
use crate::Stage;

/// How much was recorded, and how much of it operations were under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Wall {
    /// How long was recorded, in seconds of the clock on the wall.
    pub recorded_seconds: f64,
    /// Of these, seconds in which at least one operation was under way.
    pub busy_seconds: f64,
    /// Operations that were under way at once, on the mean of these seconds.
    pub at_once: f64,
}

impl Wall {
    /// From the intervals of all operations of a window, by beginning.
    pub(super) fn new((first, last): (i64, i64), intervals: impl Iterator<Item = (i64, i64)>) -> Wall {
        let (mut union, mut sum_ns) = (Union::default(), 0);
        for (from, to) in intervals.map(|(from, to)| (from, to.min(last))) {
            sum_ns += (to - from).max(0) as u64;
            union.add(from, to);
        }
        let busy_ns = union.end();
        Wall {
            recorded_seconds: seconds(last.saturating_sub(first).max(0) as u64),
            busy_seconds: seconds(busy_ns),
            at_once: ratio(sum_ns, busy_ns),
        }
    }

    /// Seconds as a share of the recording, 0 to 1.
    pub fn share(&self, seconds: f64) -> f64 {
        (seconds / self.recorded_seconds.max(f64::MIN_POSITIVE)).min(1.0)
    }
}

/// What is waited for: one stage of a place, or all work of a server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    Stage(Stage, Place),
    Work(usize),
}

impl Wanted {
    fn is_there(self, spot: &Spot) -> bool {
        match self {
            Wanted::Stage(stage, place) => stage == spot.stage && places(spot).any(|one| one == place),
            Wanted::Work(node) => spot.node == node && is_work(spot.stage),
        }
    }
}

/// Something that a server does for requests.
pub(super) fn is_work(stage: Stage) -> bool {
    matches!(stage, Stage::ServerQueue | Stage::Cpu | Stage::Lock | Stage::Journal | Stage::DiskNoSeek | Stage::DiskNear | Stage::DiskFar)
}

/// Seconds in which at least one of these operations waited for each of these.
pub(super) fn waits(paths: &Paths, operations: &[ClientOperation], wanted: &[Wanted]) -> Vec<f64> {
    let mut found: Vec<Union> = wanted.iter().map(|_| Union::default()).collect();
    let of_spot = |spot: &Spot| (0..wanted.len()).filter(|number| wanted[*number].is_there(spot)).collect();
    let of_spots: Vec<Vec<usize>> = paths.spots().iter().map(of_spot).collect();
    for operation in operations {
        let mut at = operation.start_ns;
        for (spot, ns) in paths.segments(operation.segments.clone()) {
            let end = at.saturating_add_unsigned(ns);
            of_spots[spot as usize].iter().for_each(|number| found[*number].add(at, end));
            at = end;
        }
        found.iter_mut().for_each(|union| union.settle_some(operation.start_ns));
    }
    found.into_iter().map(|union| seconds(union.end())).collect()
}

impl Analysis<'_> {
    /// Seconds in which at least one request that began in the window waited for a server that did
    /// not answer it.
    pub(super) fn silence(&self, server: &str, from_ns: i64, to_ns: i64) -> f64 {
        let is_asked = |call: &&super::unfinished::Unanswered| self.server_name(call.server) == server;
        let mut union = Union::default();
        for call in self.unanswered.iter().filter(|call| call.start_ns >= from_ns && call.start_ns < to_ns).filter(is_asked) {
            union.add(call.start_ns, call.end_ns);
        }
        seconds(union.end())
    }
}

/// Time that any of some intervals covers.
#[derive(Default)]
pub(super) struct Union {
    /// Not yet counted.
    pending: Vec<(i64, i64)>,
    counted_ns: u64,
    /// Everything before is counted, or free.
    until: Option<i64>,
}

/// Intervals that are kept before they are counted.
const PENDING: usize = 1 << 12;

impl Union {
    pub(super) fn add(&mut self, from: i64, to: i64) {
        self.pending.push((from, to));
    }

    /// Nothing that is added from now on begins before `ns`.
    fn settle_some(&mut self, ns: i64) {
        if self.pending.len() >= PENDING {
            self.settle(ns);
        }
    }

    fn settle(&mut self, before: i64) {
        self.pending.sort_unstable();
        let settled = self.pending.partition_point(|(from, _)| *from < before);
        for (from, to) in self.pending.drain(..settled) {
            let until = self.until.unwrap_or(from);
            self.counted_ns += (to - from.max(until)).max(0) as u64;
            self.until = Some(until.max(to));
        }
    }

    pub(super) fn end(mut self) -> u64 {
        self.settle(i64::MAX);
        self.counted_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a line of single nanoseconds.
        #[test]
        fn a_union_counts_each_moment_once(mut given in prop::collection::vec((0i64..200, 0i64..40), 0..60), settle in 1usize..9) {
            given.sort_unstable();
            let (mut union, mut line) = (Union::default(), [false; 256]);
            for (number, (from, length)) in given.into_iter().enumerate() {
                if number % settle == 0 {
                    union.settle(from);
                }
                union.add(from, from + length);
                line[from as usize..(from + length) as usize].fill(true);
            }
            prop_assert_eq!(union.end(), line.iter().filter(|covered| **covered).count() as u64);
        }
    }
}
