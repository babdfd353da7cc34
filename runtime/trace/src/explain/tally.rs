//! Some operations of one kind added up: what their reports are made from. Everything is gone
//! through once; quantiles come from selection, not from sorting.

use weft_base::FastMap;

use super::paths::{Paths, StorageNs};
use super::{ClientOperation, Storage};
use crate::Stage;

pub(super) const STAGES: usize = Stage::ALL.len();

/// Nanoseconds in each stage.
pub(super) type Stages = [u64; STAGES];

/// Operations of one kind.
#[derive(Default)]
pub(super) struct Tally<'a> {
    pub operations: Vec<&'a ClientOperation>,
    pub failed: u64,
    pub dur_ns: u64,
    /// All of them together.
    pub stages: Stages,
    /// By stage the times of those operations that came there.
    pub stage_times: [Vec<u64>; STAGES],
    /// By spot.
    pub spots: Vec<Visits>,
    /// By spot and what the server did meanwhile: nanoseconds.
    pub blocked: FastMap<(u32, Stage), u64>,
}

/// Segments that are alike.
#[derive(Clone, Default)]
pub(super) struct Visits {
    pub total_ns: u64,
    pub storage_ns: StorageNs,
    pub times: Vec<u64>,
}

impl<'a> Tally<'a> {
    pub fn new(paths: &Paths, operations: Vec<&'a ClientOperation>) -> Tally<'a> {
        let mut tally = Tally { spots: vec![Visits::default(); paths.spots().len()], ..Tally::default() };
        operations.iter().for_each(|operation| tally.add(paths, operation));
        Tally { operations, ..tally }
    }

    fn add(&mut self, paths: &Paths, operation: &ClientOperation) {
        let mut stages = Stages::default();
        for (spot, ns) in paths.segments(operation.segments.clone()) {
            stages[paths.spots()[spot as usize].stage as usize] += ns;
            let visits = &mut self.spots[spot as usize];
            visits.total_ns += ns;
            visits.times.push(ns);
        }
        for (spot, ns) in paths.storage(operation.segments.clone()) {
            let sum = &mut self.spots[spot as usize].storage_ns;
            Storage::ALL.iter().for_each(|kind| sum[*kind as usize] += ns[*kind as usize]);
        }
        for (spot, by, ns) in paths.blocked(operation.segments.clone()) {
            *self.blocked.entry((spot, by)).or_default() += ns;
        }
        for (stage, ns) in stages.into_iter().enumerate().filter(|(_, ns)| *ns > 0) {
            self.stages[stage] += ns;
            self.stage_times[stage].push(ns);
        }
        self.dur_ns += operation.dur_ns;
        self.failed += u64::from(operation.result != 0);
    }

    /// The durations of the operations, sorted only as far as needed: `quantile` of them.
    pub fn order(&self) -> Order {
        Order(self.operations.iter().zip(0u32..).map(|(operation, number)| (operation.dur_ns, number)).collect())
    }

    /// Time and stages of the operations whose place in the order of durations lies in [from, to).
    pub fn part(&self, paths: &Paths, order: &mut Order, from: usize, to: usize) -> (u64, Stages) {
        let (first, end) = (order.at(from), order.at(to));
        let is_inside = |key: &(u64, u32)| first.is_some_and(|first| *key >= first) && end.is_none_or(|end| *key < end);
        let (mut dur_ns, mut stages) = (0, Stages::default());
        for key in order.0.iter().filter(|key| is_inside(key)) {
            let operation = self.operations[key.1 as usize];
            dur_ns += operation.dur_ns;
            for (spot, ns) in paths.segments(operation.segments.clone()) {
                stages[paths.spots()[spot as usize].stage as usize] += ns;
            }
        }
        (dur_ns, stages)
    }
}

/// Durations with the numbers of their operations; of equal ones the earlier operation comes first.
pub(super) struct Order(Vec<(u64, u32)>);

impl Order {
    /// The one at this place of the order.
    pub fn at(&mut self, place: usize) -> Option<(u64, u32)> {
        (place < self.0.len()).then(|| *self.0.select_nth_unstable(place).1)
    }

    /// The quantile of the durations in nanoseconds; 0 of nothing.
    pub fn quantile_ns(&mut self, q: f64) -> u64 {
        self.at(rank(self.0.len(), q)).map_or(0, |(ns, _)| ns)
    }
}

/// The position of the quantile in `count` sorted values: the value of rank ceil(q n).
pub(super) fn rank(count: usize, q: f64) -> usize {
    ((q * count as f64).ceil() as usize).clamp(1, count.max(1)) - 1
}

/// The quantile of so many numbers in any order, of which those that are not given are 0; 0 of
/// nothing. The numbers may change places.
pub(super) fn quantile(given: &mut [u64], count: usize, q: f64) -> u64 {
    let zeros = count - given.len();
    match rank(count, q).checked_sub(zeros) {
        Some(place) if place < given.len() => *given.select_nth_unstable(place).1,
        _ => 0,
    }
}

/// Nanoseconds as seconds.
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// `part / whole`, 0 for nothing of nothing.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Nanoseconds as microseconds.
pub(super) fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_those_of_a_sorted_list(mut given in prop::collection::vec(1u64..90, 0..40), zeros in 0usize..40, q in 0.0f64..=1.0) {
            let mut all = vec![0; zeros];
            all.extend(&given);
            all.sort_unstable();
            let plain = all.get(rank(all.len(), q)).copied().unwrap_or(0);
            prop_assert_eq!(quantile(&mut given, all.len(), q), plain);
        }
    }
}
