//! Distribution functions of spans, finer than the 50 bins: known at the edges of bins whose width
//! is at most 1/64 of their value, so a line between two of them is nowhere more than that away
//! from the truth. The first and the last point are exact.

use crate::run::Run;

/// A value keeps so many bits behind its first one.
const BITS: u32 = 6;

/// Durations in nanoseconds, counted.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    /// By [`bin`].
    counts: Vec<u64>,
    count: u64,
    least_ns: u64,
    largest_ns: u64,
}

impl Durations {
    /// Counts one more.
    pub fn record(&mut self, ns: u64) {
        let bin = bin(ns, BITS);
        if self.counts.len() <= bin {
            self.counts.resize(bin + 1, 0);
        }
        self.counts[bin] += 1;
        self.least_ns = if self.count == 0 { ns } else { self.least_ns.min(ns) };
        self.largest_ns = self.largest_ns.max(ns);
        self.count += 1;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Nanoseconds and the share of the durations that are not longer, rising; empty without any
    /// duration.
    pub fn points(&self) -> Vec<(u64, f64)> {
        let mut points: Vec<(u64, f64)> = Vec::new();
        let (mut sum, mut next) = (0, usize::MAX);
        for (bin, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let share = sum as f64 / self.count as f64;
            // Over empty bins the line is level.
            if bin != next {
                points.push((edge(bin, BITS).max(self.least_ns), share));
            }
            sum += count;
            points.push((edge(bin + 1, BITS).min(self.largest_ns).max(self.least_ns), sum as f64 / self.count as f64));
            next = bin + 1;
        }
        points.dedup();
        points
    }
}

/// The number of the bin of a value: values below 2^`bits` have their own, above it each power of
/// two has 2^`bits` of them.
pub fn bin(ns: u64, bits: u32) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(bits + 1);
    ((u64::from(shift) << bits) + (ns >> shift)) as usize
}

/// The smallest value of a bin.
pub fn edge(bin: usize, bits: u32) -> u64 {
    let shift = (bin >> bits).saturating_sub(1);
    let (steps, shift) = (bin - (shift << bits), shift as u32);
    u64::try_from((steps as u128) << shift).unwrap_or(u64::MAX)
}

/// Durations of the spans of these kinds that begin in a window, by node.
pub fn by_node(run: &Run, from: u64, to: u64, kinds: &[u16]) -> Vec<(String, Durations)> {
    let mut nodes: Vec<(String, Durations)> = Vec::new();
    for lane in &run.lanes.lanes {
        let all = run.spans_of(lane.node);
        for (_, track) in lane.tracks.iter().filter(|(kind, _)| kinds.contains(kind)) {
            let name = &run.merged.nodes[lane.node].name;
            for (ns, _) in track.beginning_in(&all, from, to) {
                if nodes.last().is_none_or(|(last, _)| last != name) {
                    nodes.push((name.clone(), Durations::default()));
                }
                if let Some((_, durations)) = nodes.last_mut() {
                    durations.record(ns);
                }
            }
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bins_are_narrow_and_follow_one_another() {
        assert!((0..3_775).all(|number| bin(edge(number, BITS), BITS) == number && edge(number, BITS) < edge(number + 1, BITS)));
        for (ns, bits) in [0, 1, 63, 64, 127, 128, 129, 1_000_000, u64::MAX / 3, u64::MAX].into_iter().flat_map(|ns| [(ns, BITS), (ns, 4)])
        {
            let (low, high) = (edge(bin(ns, bits), bits), edge(bin(ns, bits) + 1, bits));
            assert!(low <= ns && (ns < high || high == u64::MAX) && high - low <= 1 + (low >> bits), "{ns}: {low} {high}");
        }
    }

    proptest! {
        /// At every point the share is that of a plain count, and the points rise.
        #[test]
        fn points_are_those_of_a_plain_count(values in proptest::collection::vec(0u64..5_000_000, 1..200)) {
            let mut durations = Durations::default();
            values.iter().for_each(|ns| durations.record(*ns));
            let points = durations.points();
            let (least, largest) = (*values.iter().min().unwrap(), *values.iter().max().unwrap());
            prop_assert_eq!((points[0].0, points[points.len() - 1]), (least, (largest, 1.0)));
            prop_assert!(points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
            for (ns, share) in &points[1..points.len() - 1] {
                let below = values.iter().filter(|value| *value < ns).count() as f64 / values.len() as f64;
                prop_assert!((share - below).abs() < 1e-12, "{} {} {}", ns, share, below);
            }
        }
    }
}
