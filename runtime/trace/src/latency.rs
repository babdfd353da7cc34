//! Latency distributions with the 50 bins of Vef's thesis (Analyzing file create performance in IBM
//! Spectrum Scale, 2016, section 3.3.2): "50 bins that range non-linearly from 1 microsecond to 500
//! milliseconds", "each entry is matched to its bin, determined by rounding".
//!
//! The thesis does not list the bins; one significant digit is the only scheme with exactly 50 of
//! them that holds all bins which it names: 1..9 us, 10..90 us, 100..900 us, 1..9 ms, 10..90 ms in
//! steps of one leading digit, and 100..500 ms. Rounding puts the edges half-way between two bins:
//! 0.5, 1.5, ... 9.5, 15, 25, ... 95, 150, ... 450 000, 550 000 us. What lies outside is counted
//! too, in a slot below and a slot above, and every chart says so if they are not empty.

use std::array;

/// Bins of the thesis.
pub const BINS: usize = 50;
/// With the slots below and above.
pub const SLOTS: usize = BINS + 2;
/// The slot below the first bin.
pub const BELOW: usize = 0;
/// The slot above the last bin.
pub const ABOVE: usize = SLOTS - 1;

/// The value that bin `bin` (0-based) stands for, in nanoseconds.
pub const fn bin_value_ns(bin: usize) -> u64 {
    assert!(bin < BINS);
    (bin as u64 % 9 + 1) * 10u64.pow(3 + bin as u32 / 9)
}

/// The first nanosecond of each slot; slot 0 begins at 0.
const EDGES_NS: [u64; SLOTS] = {
    let mut edges = [0; SLOTS];
    let mut bin = 0;
    while bin < BINS {
        // Half a step below the bin; below 1, 10, 100 ... the step is that of the decade before.
        let value = bin_value_ns(bin);
        let step = if bin % 9 == 0 { value / 10 } else { value / (bin as u64 % 9 + 1) };
        edges[bin + 1] = if bin == 0 { 500 } else { value - step / 2 };
        bin += 1;
    }
    edges[ABOVE] = 550_000_000;
    edges
};

/// For each power of two of nanoseconds the slot of its first value: a slot is then found with at
/// most four comparisons.
const FIRST_SLOT: [u8; 65] = {
    let mut first = [0; 65];
    let mut power = 0;
    while power < 65 {
        let value = if power == 0 { 0 } else { 1u64 << (power - 1) };
        let mut slot = 0;
        while slot + 1 < SLOTS && EDGES_NS[slot + 1] <= value {
            slot += 1;
        }
        first[power] = slot as u8;
        power += 1;
    }
    first
};

/// The slot of a latency.
#[inline]
pub fn slot_of(ns: u64) -> usize {
    let mut slot = FIRST_SLOT[(u64::BITS - ns.leading_zeros()) as usize] as usize;
    while slot + 1 < SLOTS && EDGES_NS[slot + 1] <= ns {
        slot += 1;
    }
    slot
}

/// The bounds of a slot in nanoseconds: the first value in it and the first above it (`u64::MAX`
/// for the last).
pub fn slot_bounds_ns(slot: usize) -> (u64, u64) {
    (EDGES_NS[slot], EDGES_NS.get(slot + 1).copied().unwrap_or(u64::MAX))
}

/// The name of a slot on an axis: `70 us`, `4 ms`.
pub fn slot_label(slot: usize) -> String {
    match slot {
        BELOW => "<0.5 us".to_string(),
        ABOVE => ">550 ms".to_string(),
        _ => match bin_value_ns(slot - 1) {
            ns if ns >= 1_000_000 => format!("{} ms", ns / 1_000_000),
            ns => format!("{} us", ns / 1_000),
        },
    }
}

/// One slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Entries.
    pub count: u64,
    /// Sum of the entries in nanoseconds: the slot's share of the total time needs it.
    pub sum_ns: u64,
}

/// A latency distribution. To record costs a few nanoseconds and no memory, so servers and clients
/// keep one for every kind of operation at all times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    slots: [Slot; SLOTS],
    min_ns: u64,
    max_ns: u64,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { slots: [Slot::default(); SLOTS], min_ns: u64::MAX, max_ns: 0 }
    }
}

impl Latency {
    /// Counts one entry.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let slot = &mut self.slots[slot_of(ns)];
        slot.count += 1;
        slot.sum_ns = slot.sum_ns.saturating_add(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// A distribution as it was told by its slots (missing ones are empty) and its smallest and
    /// largest entry in nanoseconds: what [`Latency::slots`], [`Latency::min_ns`] and
    /// [`Latency::max_ns`] of another process said.
    pub fn from_slots(slots: impl IntoIterator<Item = Slot>, min_ns: u64, max_ns: u64) -> Latency {
        let mut latency = Latency::default();
        latency.slots.iter_mut().zip(slots).for_each(|(slot, told)| *slot = told);
        if latency.count() > 0 {
            (latency.min_ns, latency.max_ns) = (min_ns, max_ns);
        }
        latency
    }

    /// Adds another distribution: as if its entries had been recorded here.
    pub fn merge(&mut self, other: &Latency) {
        for (slot, more) in self.slots.iter_mut().zip(&other.slots) {
            slot.count += more.count;
            slot.sum_ns = slot.sum_ns.saturating_add(more.sum_ns);
        }
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The slots: below, the 50 bins, above.
    pub fn slots(&self) -> &[Slot; SLOTS] {
        &self.slots
    }

    /// Entries.
    pub fn count(&self) -> u64 {
        self.slots.iter().map(|slot| slot.count).sum()
    }

    /// Sum of all entries in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.slots.iter().fold(0, |sum, slot| sum.saturating_add(slot.sum_ns))
    }

    /// The smallest entry in nanoseconds; 0 without entries.
    pub fn min_ns(&self) -> u64 {
        if self.max_ns < self.min_ns { 0 } else { self.min_ns }
    }

    /// The largest entry in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The mean in nanoseconds; 0 without entries.
    pub fn mean_ns(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum_ns() as f64 / self.count() as f64 }
    }

    /// Share of the total time that the entries of each slot took: the line of figures 4.12 to 4.15
    /// of the thesis.
    pub fn time_shares(&self) -> [f64; SLOTS] {
        let total = self.sum_ns().max(1) as f64;
        array::from_fn(|slot| self.slots[slot].sum_ns as f64 / total)
    }

    /// Entries and time of everything that is at least `from_ns`, which should be the lower bound
    /// of a slot: "10 % of the operations took 62 % of the time". Returns (share of the entries,
    /// share of the time).
    pub fn tail(&self, from_ns: u64) -> (f64, f64) {
        let tail = &self.slots[slot_of(from_ns)..];
        let count: u64 = tail.iter().map(|slot| slot.count).sum();
        let sum = tail.iter().fold(0u64, |sum, slot| sum.saturating_add(slot.sum_ns));
        (count as f64 / self.count().max(1) as f64, sum as f64 / self.sum_ns().max(1) as f64)
    }

    /// The quantile `q` (0 to 1) in nanoseconds, 0 without entries: the entry of rank ceil(q n),
    /// where the entries of a slot are taken to lie evenly around their mean. The error is at most
    /// the width of the slot.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let count = self.count();
        if count == 0 {
            return 0;
        }
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count);
        if rank == count {
            return self.max_ns;
        }
        let mut before = 0;
        for (number, slot) in self.slots.iter().enumerate() {
            if rank <= before + slot.count {
                return self.within(number, rank - before);
            }
            before += slot.count;
        }
        self.max_ns
    }

    /// The entry of this rank (from 1) within a slot: on a straight line through the slot's mean
    /// that stays inside its bounds.
    fn within(&self, number: usize, rank: u64) -> u64 {
        let slot = self.slots[number];
        let (from, to) = slot_bounds_ns(number);
        let (from, to) = (from.max(self.min_ns) as f64, to.min(self.max_ns.saturating_add(1)) as f64);
        let mean = slot.sum_ns as f64 / slot.count as f64;
        let half = (mean - from).min(to - mean).max(0.0);
        let position = (rank as f64 - 0.5) / slot.count as f64;
        ((mean + (2.0 * position - 1.0) * half) as u64).clamp(self.min_ns(), self.max_ns)
    }

    /// The empirical distribution function: for every slot that has entries its upper bound in
    /// nanoseconds (the largest entry for the last) and the share of entries up to there.
    pub fn ecdf(&self) -> Vec<(u64, f64)> {
        let count = self.count().max(1) as f64;
        let mut before = 0;
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| slot.count > 0);
        slots
            .map(|(number, slot)| {
                before += slot.count;
                (slot_bounds_ns(number).1.min(self.max_ns), before as f64 / count)
            })
            .collect()
    }
}

/// Distributions side by side, for stacking: one for each client, server, or task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stacked {
    parts: Vec<(String, Latency)>,
}

impl Stacked {
    /// The distribution of this name, made if it is not there.
    pub fn part(&mut self, name: &str) -> &mut Latency {
        let position = self.parts.iter().position(|(other, _)| other == name).unwrap_or_else(|| {
            self.parts.push((name.to_string(), Latency::default()));
            self.parts.len() - 1
        });
        &mut self.parts[position].1
    }

    /// All parts, in the order in which they were made.
    pub fn parts(&self) -> &[(String, Latency)] {
        &self.parts
    }

    /// All parts together.
    pub fn total(&self) -> Latency {
        let mut total = Latency::default();
        self.parts.iter().for_each(|(_, part)| total.merge(part));
        total
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn there_are_fifty_bins_of_one_digit_from_a_microsecond_to_half_a_second() {
        let values: Vec<u64> = (0..BINS).map(bin_value_ns).collect();
        assert_eq!((values[0], values[49]), (1_000, 500_000_000));
        assert!(values.is_sorted());
        // Bins that the thesis names: 1, 60, 70, 200, 300, 400, 800 us, 1, 20, 60, 70, 500 ms.
        for us in [1, 60, 70, 200, 300, 400, 800, 1_000, 20_000, 60_000, 70_000, 500_000] {
            assert!(values.contains(&(us * 1000)), "{us}");
        }
        assert_eq!((slot_label(1), slot_label(28), slot_label(50)), ("1 us".into(), "1 ms".into(), "500 ms".into()));
    }

    #[test]
    fn an_entry_goes_into_the_bin_of_its_rounded_value() {
        let bin_of = |ns| bin_value_ns(slot_of(ns) - 1);
        for (below, edge_ns, above) in [
            (1, 1_500, 2),
            (8, 8_500, 9),
            (9, 9_500, 10),
            (10, 15_000, 20),
            (90, 95_000, 100),
            (900, 950_000, 1_000),
            (400_000, 450_000_000, 500_000),
        ] {
            assert_eq!(bin_of(edge_ns - 1), below * 1000, "below {edge_ns}");
            assert_eq!(bin_of(edge_ns), above * 1000, "at {edge_ns}");
        }
        assert_eq!((slot_of(0), slot_of(499), slot_of(500)), (BELOW, BELOW, 1));
        assert_eq!((slot_of(549_999_999), slot_of(550_000_000), slot_of(u64::MAX)), (BINS, ABOVE, ABOVE));
    }

    #[test]
    fn shares_of_time_differ_from_shares_of_entries() {
        let mut latency = Latency::default();
        (0..90).for_each(|_| latency.record(100_000));
        (0..10).for_each(|_| latency.record(9_000_000));
        let (entries, time) = latency.tail(slot_bounds_ns(28).0);
        assert!((entries - 0.1).abs() < 1e-9 && (time - 90.0 / 99.0).abs() < 1e-9);
        assert_eq!(latency.quantile_ns(0.5), 100_000);
        assert_eq!(latency.quantile_ns(0.99), 9_000_000);
        assert_eq!(latency.ecdf(), [(149_999 + 1, 0.9), (9_000_000, 1.0)]);
    }

    #[test]
    fn nothing_recorded_is_no_reason_to_fail() {
        let empty = Latency::default();
        assert_eq!((empty.count(), empty.quantile_ns(0.5), empty.min_ns(), empty.max_ns()), (0, 0, 0, 0));
        assert_eq!((empty.ecdf(), empty.tail(0), empty.mean_ns()), (vec![], (0.0, 0.0), 0.0));
    }

    proptest! {
        #[test]
        fn slots_are_those_of_a_plain_search(ns in prop_oneof![0u64..2_000_000, any::<u64>(), 0u64..700_000_000]) {
            let plain = (0..SLOTS).rev().find(|slot| slot_bounds_ns(*slot).0 <= ns);
            prop_assert_eq!(Some(slot_of(ns)), plain);
        }

        #[test]
        fn merged_is_recorded_together(
            a in prop::collection::vec(0u64..1_000_000_000, 0..200),
            b in prop::collection::vec(0u64..1_000_000_000, 0..200),
        ) {
            let of = |values: &[u64]| { let mut latency = Latency::default(); values.iter().for_each(|ns| latency.record(*ns)); latency };
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged, of(&[a.clone(), b.clone()].concat()));
        }

        /// A quantile lies in the slot of the true entry, so it is wrong by a slot's width at most.
        #[test]
        fn quantiles_lie_in_the_right_slot(mut values in prop::collection::vec(0u64..600_000_000, 1..300), q in 0.0f64..=1.0) {
            let mut latency = Latency::default();
            values.iter().for_each(|ns| latency.record(*ns));
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            prop_assert_eq!(slot_of(latency.quantile_ns(q)), slot_of(values[rank - 1]));
        }
    }
}
