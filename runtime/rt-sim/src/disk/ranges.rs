//! A set of byte ranges: which parts of a file have space on the disk.

use std::collections::BTreeMap;

/// Disjoint ranges, each by its start and end.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSet {
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// All ranges, as start and end.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(&start, &end)| (start, end))
    }

    /// Bytes of `start..end` that are not in the set.
    pub(crate) fn missing(&self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let from = self.ranges.range(..=start).next_back().map_or(start, |(&at, _)| at);
        let present: u64 = self.ranges.range(from..end).map(|(&at, &to)| to.min(end).saturating_sub(at.max(start))).sum();
        end - start - present
    }

    /// Adds `start..end`; gives how many bytes are new.
    pub(crate) fn insert(&mut self, start: u64, end: u64) -> u64 {
        let added = self.missing(start, end);
        if added == 0 {
            return 0;
        }
        let (mut from, mut to) = (start, end);
        if let Some((&at, &piece_end)) = self.ranges.range(..=start).next_back()
            && piece_end >= start
        {
            from = at;
            to = to.max(piece_end);
        }
        while let Some((&at, &piece_end)) = self.ranges.range(from..=to).next() {
            to = to.max(piece_end);
            self.ranges.remove(&at);
        }
        self.ranges.insert(from, to);
        added
    }

    /// Removes `start..end`; gives how many bytes were in the set.
    pub(crate) fn remove(&mut self, start: u64, end: u64) -> u64 {
        let removed = end.saturating_sub(start) - self.missing(start, end);
        if removed == 0 {
            return 0;
        }
        if let Some((&at, &piece_end)) = self.ranges.range(..start).next_back()
            && piece_end > start
        {
            self.ranges.insert(at, start);
            if piece_end > end {
                self.ranges.insert(end, piece_end);
            }
        }
        while let Some((&at, &piece_end)) = self.ranges.range(start..end).next() {
            self.ranges.remove(&at);
            if piece_end > end {
                self.ranges.insert(end, piece_end);
            }
        }
        removed
    }

    /// Bytes in the set.
    pub(crate) fn total(&self) -> u64 {
        self.ranges.iter().map(|(at, to)| to - at).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn behaves_like_a_bitmap() {
        let mut random = Random::new(4);
        let mut set = RangeSet::default();
        let mut model = [false; 200];
        for _ in 0..4000 {
            let start = random.below(190);
            let end = start + random.below(11);
            let part = &mut model[start as usize..end as usize];
            let present = part.iter().filter(|bit| **bit).count() as u64;
            assert_eq!(set.missing(start, end), end - start - present);
            if random.coin() {
                assert_eq!(set.insert(start, end), end - start - present);
                part.fill(true);
            } else {
                assert_eq!(set.remove(start, end), present);
                part.fill(false);
            }
            assert_eq!(set.total(), model.iter().filter(|bit| **bit).count() as u64);
        }
    }
}
