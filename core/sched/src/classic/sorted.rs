//! The queue of one file and kind in the server-directed layer: entries in the order of their
//! offsets, merged before one is taken.
//!
//! The original merges the whole list before each pick, from the left: an entry joins the one
//! before it if they touch or overlap and the union keeps to the granularity. Merging a merged list
//! changes nothing, so only what is new since then is looked at here, together with its neighbours
//! (which holds as long as no piece exceeds the granularity by itself); each entry is merged away
//! at most once, which makes the cost of an insertion O(log n) altogether.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::chain::{Chain, Chains};

/// Offset, then arrival: reads may share an offset.
pub type SortKey = (u64, u64);

/// A queue.
#[derive(Clone, Debug, Default)]
pub struct Sorted {
    entries: BTreeMap<SortKey, Entry>,
    /// The settled ones, largest last, lowest last among equals.
    by_size: BTreeSet<(u64, Reverse<SortKey>)>,
    /// Where something is new since the last merge.
    fresh: Vec<SortKey>,
    bytes: u64,
    number: u64,
}

/// An entry: one or several pieces.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// One past the last byte.
    pub end: u64,
    /// The original pieces.
    pub parts: Chain,
    /// Merged with its neighbours as far as it can be.
    settled: bool,
}

/// What an overwriting insertion did away with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replaced {
    /// Queued bytes that newer ones replaced.
    pub overwritten: u64,
    /// Queued bytes that vanished with nothing in their place.
    pub lost: u64,
}

impl Sorted {
    /// Queued bytes; where reads overlap, each byte counts once after they are merged.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a read.
    pub fn append(&mut self, offset: u64, bytes: u64, parts: Chain) {
        self.number += 1;
        self.put((offset, self.number), offset + bytes, parts);
    }

    /// Adds a write: what is queued for the same bytes is cut or removed. Parts of writes are not
    /// kept.
    pub fn overwrite(&mut self, offset: u64, bytes: u64, loses_tails: bool) -> Replaced {
        let end = offset + bytes;
        let before = self.bytes;
        let mut lost = 0;
        while let Some((&key, &entry)) = self.entries.range((offset, 0)..(end, 0)).next_back() {
            self.remove(key, entry);
            if entry.end > end {
                self.put((end, 0), entry.end, Chain::EMPTY);
            }
        }
        if let Some((&key, &entry)) = self.entries.range(..(offset, 0)).next_back()
            && entry.end > offset
        {
            self.remove(key, entry);
            self.put(key, offset, Chain::EMPTY);
            match loses_tails {
                true => lost = entry.end.saturating_sub(end),
                false if entry.end > end => self.put((end, 0), entry.end, Chain::EMPTY),
                false => {}
            }
        }
        let gone = before - self.bytes;
        self.put((offset, 0), end, Chain::EMPTY);
        Replaced { overwritten: gone - lost, lost }
    }

    fn put(&mut self, key: SortKey, end: u64, parts: Chain) {
        self.entries.insert(key, Entry { end, parts, settled: false });
        self.fresh.push(key);
        self.bytes += end - key.0;
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: SortKey, entry: Entry) {
        self.entries.remove(&key);
        if entry.settled {
            self.by_size.remove(&(entry.end - key.0, Reverse(key)));
        }
        self.bytes -= entry.end - key.0;
    }

    /// Merges what can be merged.
    pub fn settle(&mut self, granularity: u64, chains: &mut Chains) {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.sort_unstable();
        for key in fresh.drain(..) {
            match self.entries.get(&key) {
                Some(entry) if !entry.settled => self.settle_around(key, granularity, chains),
                // Merged into another one, or overwritten.
                _ => {}
            }
        }
        self.fresh = fresh;
    }

    /// Merges from the entry before `key` to the right, until nothing changes any more.
    fn settle_around(&mut self, key: SortKey, granularity: u64, chains: &mut Chains) {
        let before = self.entries.range(..key).next_back();
        let mut key = before.map_or(key, |(&before, _)| before);
        loop {
            let mut entry = self.entries[&key];
            if entry.settled {
                self.by_size.remove(&(entry.end - key.0, Reverse(key)));
            }
            let next = loop {
                let Some((&next_key, &next)) = self.entries.range((key.0, key.1 + 1)..).next() else { break None };
                let union_end = entry.end.max(next.end);
                if next_key.0 > entry.end || union_end - key.0 > granularity {
                    break Some((next_key, next.settled));
                }
                self.remove(next_key, next);
                self.bytes += union_end - entry.end;
                entry.end = union_end;
                entry.parts = chains.join(entry.parts, next.parts);
            };
            entry.settled = true;
            self.entries.insert(key, entry);
            self.by_size.insert((entry.end - key.0, Reverse(key)));
            match next {
                Some((next_key, false)) => key = next_key,
                _ => return,
            }
        }
    }

    /// The entry with the lowest offset.
    pub fn lowest(&self) -> Option<(SortKey, Entry)> {
        self.entries.first_key_value().map(|(&key, &entry)| (key, entry))
    }

    /// The largest entry except one, the lowest among equals. Everything must be settled.
    pub fn largest_except(&self, except: SortKey) -> Option<(SortKey, Entry)> {
        let (_, Reverse(key)) = self.by_size.iter().rev().find(|(_, Reverse(key))| *key != except)?;
        Some((*key, self.entries[key]))
    }

    /// Entries from an offset on, in order.
    pub fn from(&self, offset: u64) -> impl Iterator<Item = (SortKey, Entry)> {
        self.entries.range((offset, 0)..).map(|(&key, &entry)| (key, entry))
    }

    /// The last entry before an offset.
    pub fn last_before(&self, offset: u64) -> Option<(SortKey, Entry)> {
        self.entries.range(..(offset, 0)).next_back().map(|(&key, &entry)| (key, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The list of the original with its walks, literally: (offset, end).
    #[derive(Default)]
    struct Walked(Vec<(u64, u64)>);

    impl Walked {
        fn overwrite(&mut self, offset: u64, end: u64, loses_tails: bool) {
            let list = &mut self.0;
            let mut at = list.len();
            while at > 0 {
                let (start, stop) = list[at - 1];
                if start >= offset {
                    if stop <= end {
                        list.remove(at - 1);
                    } else if start < end {
                        list[at - 1].0 = end;
                    }
                    at -= 1;
                    continue;
                }
                if offset < stop {
                    list[at - 1].1 = offset;
                    if stop > end && !loses_tails {
                        list.insert(at, (end, stop));
                    }
                }
                break;
            }
            list.insert(at, (offset, end));
        }

        fn settle(&mut self, granularity: u64) {
            let mut sorted = std::mem::take(&mut self.0);
            sorted.sort_by_key(|entry| entry.0);
            for (start, end) in sorted {
                match self.0.last_mut() {
                    Some(last) if last.1 >= start && last.1.max(end) - last.0 <= granularity => last.1 = last.1.max(end),
                    _ => self.0.push((start, end)),
                }
            }
        }
    }

    fn compare(sorted: &Sorted, walked: &Walked) {
        assert_eq!(sorted.from(0).map(|(key, entry)| (key.0, entry.end)).collect::<Vec<_>>(), walked.0);
        assert_eq!(sorted.bytes(), walked.0.iter().map(|(start, end)| end - start).sum::<u64>());
        let mut sizes: Vec<_> = walked.0.iter().map(|&(start, end)| (Reverse(end - start), start)).collect();
        sizes.sort_unstable();
        let lowest = sorted.lowest().map(|(key, _)| key);
        if let Some(lowest) = lowest {
            let expected = sizes.iter().find(|(_, start)| *start != lowest.0).map(|entry| entry.1);
            let found = sorted.largest_except(lowest).map(|(key, _)| key.0);
            // Reads may share an offset; then only sizes compare.
            assert!(found == expected || sorted.from(0).filter(|(key, _)| key.0 == lowest.0).count() > 1);
        }
    }

    proptest! {
        #[test]
        fn merging_what_is_new_equals_merging_everything(
            steps in prop::collection::vec((any::<bool>(), 0u64..40, 1u64..9, 0u8..4), 1..80),
            granularity in 8u64..20,
            reads in any::<bool>(),
            loses_tails in any::<bool>(),
        ) {
            let (mut sorted, mut walked, mut chains) = (Sorted::default(), Walked::default(), Chains::default());
            for (take_lowest, offset, bytes, settle) in steps {
                if reads {
                    sorted.append(offset, bytes, Chain::EMPTY);
                    walked.0.push((offset, offset + bytes));
                } else {
                    let replaced = sorted.overwrite(offset, bytes, loses_tails);
                    walked.overwrite(offset, offset + bytes, loses_tails);
                    prop_assert!(loses_tails || replaced.lost == 0);
                }
                if settle == 0 {
                    sorted.settle(granularity, &mut chains);
                    walked.settle(granularity);
                    compare(&sorted, &walked);
                    let taken = if take_lowest { sorted.lowest() } else { sorted.lowest().and_then(|(key, _)| sorted.largest_except(key)) };
                    if let Some((key, entry)) = taken {
                        sorted.remove(key, entry);
                        let at = walked.0.iter().position(|&(start, end)| (start, end) == (key.0, entry.end)).expect("in both");
                        walked.0.remove(at);
                    }
                }
            }
        }
    }
}
