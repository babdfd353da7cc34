//! List I/O: many ranges of a file at once, sorted by datafile, so that each server gets one
//! message with the whole pattern.

use weft_base::{Result, Status, StripeIndex};

use crate::{Distribution, FileRange, file_end, pieces};

/// A contiguous range of a datafile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes, at least 1.
    pub bytes: u64,
}

/// A contiguous part of the caller's buffer, which holds all ranges of the file one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSlice {
    /// First byte.
    pub start: u64,
    /// Number of bytes, at least 1.
    pub bytes: u64,
}

/// What goes to (or comes from) one datafile. The ranges and the slices cut the same bytes, in the
/// same order, at different places: two stripes that follow each other in the datafile are one
/// range, but are apart in the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatafileList {
    /// The datafile.
    pub index: StripeIndex,
    /// Ordered, disjoint, no two touch.
    pub ranges: Vec<LocalRange>,
    /// Where the bytes are in the buffer, in the order of the ranges.
    pub slices: Vec<BufferSlice>,
}

/// Distributes ordered, disjoint ranges of a file over its datafiles. The result is ordered by
/// index and names only datafiles that are concerned. Empty ranges are skipped.
///
/// # Errors
/// [`Status::Invalid`] if the ranges overlap or are out of order, [`Status::FileTooBig`] if one
/// ends beyond the longest file.
pub fn split(distribution: &Distribution, ranges: &[FileRange]) -> Result<Vec<DatafileList>> {
    let mut lists: Vec<DatafileList> = Vec::with_capacity(usize::from(distribution.width()).min(64));
    let (mut file_end_before, mut buffer_start) = (0, 0);
    for range in ranges {
        if range.offset < file_end_before {
            return Err(Status::Invalid);
        }
        file_end_before = file_end(range.offset, range.bytes)?;
        for piece in pieces(distribution, range.offset, range.bytes) {
            let at = match lists.binary_search_by_key(&piece.index, |list| list.index) {
                Ok(at) => at,
                Err(at) => {
                    lists.insert(at, DatafileList { index: piece.index, ranges: Vec::new(), slices: Vec::new() });
                    at
                }
            };
            lists[at].push(piece.local_offset, buffer_start, piece.bytes);
            buffer_start += piece.bytes;
        }
    }
    Ok(lists)
}

impl DatafileList {
    /// Number of bytes in all ranges.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.bytes).sum()
    }

    /// Cuts the list into lists of at most `bytes_max` bytes, `ranges_max` ranges and `slices_max`
    /// slices each (all at least 1), for messages of bounded size.
    pub fn cut(self, bytes_max: u64, ranges_max: usize, slices_max: usize) -> Vec<DatafileList> {
        assert!(bytes_max > 0 && ranges_max > 0 && slices_max > 0, "a message needs room for something");
        if self.bytes() <= bytes_max && self.ranges.len() <= ranges_max && self.slices.len() <= slices_max {
            return vec![self];
        }
        let mut cut = Cut { done: Vec::new(), open: self.empty(), bytes_left: bytes_max, bytes_max, ranges_max, slices_max };
        let mut slices = self.slices.into_iter();
        let mut slice = BufferSlice { start: 0, bytes: 0 };
        for range in self.ranges {
            let (mut offset, end) = (range.offset, range.offset + range.bytes);
            while offset < end {
                if slice.bytes == 0 {
                    slice = slices.next().expect("ranges and slices cut the same bytes");
                }
                let taken = cut.take(offset, slice.start, slice.bytes.min(end - offset));
                offset += taken;
                slice = BufferSlice { start: slice.start + taken, bytes: slice.bytes - taken };
            }
        }
        cut.done.push(cut.open);
        cut.done
    }

    fn empty(&self) -> DatafileList {
        DatafileList { index: self.index, ranges: Vec::new(), slices: Vec::new() }
    }

    /// Appends bytes, merging them with what they touch.
    fn push(&mut self, local_offset: u64, start: u64, bytes: u64) {
        match self.ranges.last_mut() {
            Some(last) if last.offset + last.bytes == local_offset => last.bytes += bytes,
            _ => self.ranges.push(LocalRange { offset: local_offset, bytes }),
        }
        match self.slices.last_mut() {
            Some(last) if last.start + last.bytes == start => last.bytes += bytes,
            _ => self.slices.push(BufferSlice { start, bytes }),
        }
    }
}

/// A list being cut.
struct Cut {
    done: Vec<DatafileList>,
    open: DatafileList,
    bytes_left: u64,
    bytes_max: u64,
    ranges_max: usize,
    slices_max: usize,
}

impl Cut {
    /// Takes up to `bytes` bytes and says how many.
    fn take(&mut self, local_offset: u64, start: u64, bytes: u64) -> u64 {
        if self.is_full(local_offset, start) {
            let next = self.open.empty();
            self.done.push(std::mem::replace(&mut self.open, next));
            self.bytes_left = self.bytes_max;
        }
        let taken = bytes.min(self.bytes_left);
        self.open.push(local_offset, start, taken);
        self.bytes_left -= taken;
        taken
    }

    fn is_full(&self, local_offset: u64, start: u64) -> bool {
        let new_range = self.open.ranges.last().is_none_or(|last| last.offset + last.bytes != local_offset);
        let new_slice = self.open.slices.last().is_none_or(|last| last.start + last.bytes != start);
        self.bytes_left == 0
            || (new_range && self.open.ranges.len() == self.ranges_max)
            || (new_slice && self.open.slices.len() == self.slices_max)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stripe::tests::tiny_distribution;
    use super::*;
    use proptest::prelude::*;

    /// Every byte of a list as (datafile, local offset, buffer position).
    fn bytes_of(list: &DatafileList) -> Vec<(u32, u64, u64)> {
        let locals = list.ranges.iter().flat_map(|range| range.offset..range.offset + range.bytes);
        let starts = list.slices.iter().flat_map(|slice| slice.start..slice.start + slice.bytes);
        assert_eq!(locals.clone().count(), starts.clone().count(), "ranges and slices differ");
        locals.zip(starts).map(|(local, start)| (list.index.0, local, start)).collect()
    }

    #[test]
    fn stripes_of_one_datafile_become_one_range() {
        let distribution = Distribution::Stripes { stripe_bytes: 4096, width: 2 };
        let lists = split(&distribution, &[FileRange { offset: 0, bytes: 16384 }]).unwrap();
        assert_eq!(lists.len(), 2);
        assert_eq!(lists[1].ranges, [LocalRange { offset: 0, bytes: 8192 }]);
        assert_eq!(lists[1].slices, [BufferSlice { start: 4096, bytes: 4096 }, BufferSlice { start: 12288, bytes: 4096 }]);
    }

    #[test]
    fn disorder_is_refused() {
        let distribution = Distribution::Stripes { stripe_bytes: 4096, width: 2 };
        let range = |offset, bytes| FileRange { offset, bytes };
        assert_eq!(split(&distribution, &[range(10, 5), range(14, 1)]), Err(Status::Invalid));
        assert_eq!(split(&distribution, &[range(10, 5), range(0, 1)]), Err(Status::Invalid));
        assert_eq!(split(&distribution, &[range(u64::MAX, 1)]), Err(Status::FileTooBig));
        assert_eq!(split(&distribution, &[range(10, 0), range(10, 0)]), Ok(vec![]));
    }

    /// Ordered, disjoint ranges from gaps and lengths.
    fn ranges(parts: Vec<(u64, u64)>) -> Vec<FileRange> {
        let mut offset = 0;
        parts
            .into_iter()
            .map(|(gap, bytes)| {
                let range = FileRange { offset: offset + gap, bytes };
                offset = range.offset + bytes;
                range
            })
            .collect()
    }

    proptest! {
        #[test]
        fn lists_agree_with_the_byte_model((distribution, places) in tiny_distribution(), parts in proptest::collection::vec((0u64..20, 0u64..30), 0..12)) {
            let ranges = ranges(parts);
            let file_bytes = ranges.iter().flat_map(|range| range.offset..range.offset + range.bytes);
            let mut expected: Vec<_> = file_bytes.zip(0u64..).map(|(byte, start)| {
                let (datafile, local) = places[byte as usize];
                (datafile, local, start)
            }).collect();
            expected.sort_unstable();
            let lists = split(&distribution, &ranges).unwrap();
            for list in &lists {
                prop_assert!(list.ranges.windows(2).all(|pair| pair[0].offset + pair[0].bytes < pair[1].offset));
            }
            let got: Vec<_> = lists.iter().flat_map(bytes_of).collect();
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn cutting_keeps_every_byte_within_the_bounds(
            (distribution, _) in tiny_distribution(),
            parts in proptest::collection::vec((0u64..5, 0u64..30), 0..12),
            (bytes_max, ranges_max, slices_max) in (1u64..20, 1usize..4, 1usize..4),
        ) {
            for list in split(&distribution, &ranges(parts)).unwrap() {
                let before = bytes_of(&list);
                let cut = list.cut(bytes_max, ranges_max, slices_max);
                for part in &cut {
                    prop_assert!(part.bytes() > 0 && part.bytes() <= bytes_max);
                    prop_assert!(part.ranges.len() <= ranges_max && part.slices.len() <= slices_max);
                }
                prop_assert_eq!(cut.iter().flat_map(bytes_of).collect::<Vec<_>>(), before);
            }
        }
    }
}
