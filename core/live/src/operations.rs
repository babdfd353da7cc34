//! Counters by operation, and how long its requests took in slots that double: enough for a
//! percentile with an error below a factor of two at the price of one more addition.

use weft_wire::Op;
use weft_wire::ops::{LatencySlot, OperationUse};

/// Slots of latencies.
pub const SLOTS: usize = 26;
/// The first slot ends at 2 to this power, in nanoseconds.
const FIRST_BITS: u32 = 10;
/// Places for operations: by number, below all of which the place of unknown ones is.
const PLACES: usize = Op::ALL[Op::ALL.len() - 1].code() as usize + 1;

/// What was asked for, by the number of the operation.
#[derive(Debug)]
pub struct Operations {
    rows: Box<[Row]>,
    /// Neighbours mostly are alike, as those of one turn have waited equally long: they are counted
    /// here first.
    run: Run,
}

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    op: Option<Op>,
    is_error: bool,
    ns: u64,
    count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    count: u64,
    failed: u64,
    total_ns: u64,
    slots: [u64; SLOTS],
}

const EMPTY: Row = Row { count: 0, failed: 0, total_ns: 0, slots: [0; SLOTS] };

impl Default for Operations {
    fn default() -> Operations {
        Operations { rows: vec![EMPTY; PLACES].into_boxed_slice(), run: Run::default() }
    }
}

impl Operations {
    /// A request was answered.
    #[inline]
    pub fn add(&mut self, op: Option<Op>, is_error: bool, ns: u64) {
        if (op, is_error, ns) != (self.run.op, self.run.is_error, self.run.ns) {
            self.settle();
            self.run = Run { op, is_error, ns, count: 0 };
        }
        self.run.count += 1;
    }

    fn settle(&mut self) {
        let Run { op, is_error, ns, count } = std::mem::take(&mut self.run);
        // No operation has the number 0.
        let row = &mut self.rows[op.map_or(0, |op| usize::from(op.code()))];
        row.count += count;
        row.failed += if is_error { count } else { 0 };
        row.total_ns += ns * count;
        row.slots[slot_of(ns)] += count;
    }

    /// Operations that were asked for, by number.
    pub fn used(&mut self) -> Vec<OperationUse> {
        self.settle();
        let rows = self.rows.iter().enumerate().filter(|(_, row)| row.count > 0);
        rows.map(|(op, row)| {
            let slots = row.slots.iter().enumerate().filter(|(_, count)| **count > 0);
            let slots = slots.map(|(slot, count)| LatencySlot { slot: slot as u8, count: *count }).collect();
            OperationUse { op: op as u16, count: row.count, failed: row.failed, total_ns: row.total_ns, slots }
        })
        .collect()
    }
}

/// The slot of a latency.
#[inline]
pub fn slot_of(ns: u64) -> usize {
    ((u64::BITS - (ns >> FIRST_BITS).leading_zeros()) as usize).min(SLOTS - 1)
}

/// Where a slot ends, in nanoseconds, exclusive; `None`: the last one does not, and none follows.
pub fn slot_upper_ns(slot: usize) -> Option<u64> {
    (slot + 1 < SLOTS).then(|| 1 << (FIRST_BITS as usize + slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_double_and_every_latency_has_one() {
        assert_eq!((slot_of(0), slot_of(1023), slot_of(1024), slot_of(2047), slot_of(2048)), (0, 0, 1, 1, 2));
        for slot in 0..SLOTS - 1 {
            let upper = slot_upper_ns(slot).expect("only the last slot has no end");
            assert_eq!((slot_of(upper - 1), slot_of(upper)), (slot, slot + 1));
        }
        assert_eq!((slot_of(u64::MAX), slot_upper_ns(SLOTS - 1), slot_upper_ns(99)), (SLOTS - 1, None, None));
    }

    #[test]
    fn every_request_is_counted_once_and_unknown_numbers_share_a_row() {
        let mut operations = Operations::default();
        operations.add(Some(Op::Create), false, 5_000);
        operations.add(Some(Op::Create), true, 1_000);
        operations.add(Some(Op::Write), false, 70_000_000_000);
        for _ in 0..5 {
            operations.add(None, true, 10);
        }
        let used = operations.used();
        let brief: Vec<_> = used.iter().map(|row| (row.op, row.count, row.failed, row.total_ns)).collect();
        let expected = [(0, 5, 5, 50), (Op::Create.code(), 2, 1, 6_000), (Op::Write.code(), 1, 0, 70_000_000_000)];
        assert_eq!(brief, expected);
        for row in &used {
            assert_eq!(row.slots.iter().map(|slot| slot.count).sum::<u64>(), row.count);
        }
        assert_eq!(used[2].slots, [LatencySlot { slot: SLOTS as u8 - 1, count: 1 }]);
    }

    #[test]
    fn a_run_of_equal_answers_counts_as_many() {
        let mut operations = Operations::default();
        for (is_error, ns) in [(false, 2000), (false, 2000), (false, 2000), (true, 2000), (true, 2000), (false, 500), (false, 2000)] {
            operations.add(Some(Op::Lookup), is_error, ns);
        }
        let used = operations.used();
        assert_eq!((used[0].count, used[0].failed, used[0].total_ns), (7, 2, 6 * 2000 + 500));
        assert_eq!(used[0].slots, [LatencySlot { slot: 0, count: 1 }, LatencySlot { slot: 1, count: 6 }]);
        assert_eq!(operations.used(), used, "asking changes nothing");
    }
}
