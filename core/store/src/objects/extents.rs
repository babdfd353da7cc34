//! The extents of one object: an ordered map from local bytes to bytes of the container.

use super::reservations::BackedRun;
use super::{BLOCK_BYTES, block_of};
use std::collections::BTreeMap;

/// Where a range of local bytes lies. Its local offset is the key in the [`ExtentMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Byte offset in the container; equal to the local offset modulo [`BLOCK_BYTES`].
    pub disk_offset: u64,
    /// Length in bytes, at least 1.
    pub len: u64,
}

/// The extents of an object by local offset. They do not overlap; neighbours that touch locally and
/// in the container are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentMap {
    extents: BTreeMap<u64, Extent>,
}

impl ExtentMap {
    /// Number of extents.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// The local byte behind the last extent; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.extents.last_key_value().map_or(0, |(offset, extent)| offset + extent.len)
    }

    /// The last extent that begins before local byte `offset`.
    pub fn before(&self, offset: u64) -> Option<(u64, Extent)> {
        self.extents.range(..offset).next_back().map(|(at, extent)| (*at, *extent))
    }

    /// Maps `len` local bytes at `offset` to `disk_offset`, whatever was there.
    pub fn put(&mut self, offset: u64, disk_offset: u64, len: u64) {
        debug_assert!(len > 0 && offset % BLOCK_BYTES == disk_offset % BLOCK_BYTES);
        let (mut start, mut disk, mut end) = (offset, disk_offset, offset + len);
        self.cut(start, end);
        if let Some((&before, extent)) = self.extents.range(..start).next_back()
            && before + extent.len == start
            && extent.disk_offset + extent.len == disk
        {
            (start, disk) = (before, extent.disk_offset);
        }
        if let Some(extent) = self.extents.get(&end)
            && extent.disk_offset == disk + (end - start)
        {
            let behind = end;
            end += extent.len;
            self.extents.remove(&behind);
        }
        self.extents.insert(start, Extent { disk_offset: disk, len: end - start });
    }

    /// Makes a hole of the local bytes from `start` to `end`.
    pub fn cut(&mut self, start: u64, end: u64) {
        if let Some((&before, extent)) = self.extents.range_mut(..start).next_back()
            && before + extent.len > start
        {
            let (whole, disk) = (extent.len, extent.disk_offset);
            extent.len = start - before;
            if before + whole > end {
                let rest = Extent { disk_offset: disk + (end - before), len: before + whole - end };
                self.extents.insert(end, rest);
            }
        }
        while let Some((&at, &extent)) = self.extents.range(start..end).next() {
            self.extents.remove(&at);
            if at + extent.len > end {
                let rest = Extent { disk_offset: extent.disk_offset + (end - at), len: at + extent.len - end };
                self.extents.insert(end, rest);
            }
        }
    }

    /// The extents that hold bytes between `start` and `end`, clipped to them, in order.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, Extent)> {
        let first = match self.extents.range(..start).next_back() {
            Some((&before, extent)) if before + extent.len > start => before,
            _ => start,
        };
        // An empty range would panic if its end lay before its beginning.
        self.extents.range(first..end.max(first)).filter(move |_| start < end).map(move |(&at, extent)| {
            let from = at.max(start);
            let to = (at + extent.len).min(end);
            (from, Extent { disk_offset: extent.disk_offset + (from - at), len: to - from })
        })
    }

    /// The block runs that the extents occupy between local blocks `first` and `last` (inclusive),
    /// in order. Extents that share a block or touch in both spaces give one run. `Err` names a
    /// local block that lies in two disk blocks, which [`Self::put`] alone can bring about during a
    /// replay.
    pub(super) fn blocks(&self, first: u64, last: u64) -> Result<Vec<BackedRun>, u64> {
        let mut runs: Vec<BackedRun> = Vec::new();
        let end = last.saturating_add(1).saturating_mul(BLOCK_BYTES);
        for (offset, extent) in self.within(first * BLOCK_BYTES, end) {
            let (from, to) = (block_of(offset), block_of(offset + extent.len - 1) + 1);
            let disk = block_of(extent.disk_offset);
            match runs.last_mut() {
                Some(run) if run.local_end() > from => {
                    if run.disk_of(from) != disk {
                        return Err(from);
                    }
                    run.blocks = to - run.local;
                }
                Some(run) if run.local_end() == from && run.disk_of(from) == disk => run.blocks = to - run.local,
                _ => runs.push(BackedRun { local: from, disk, blocks: to - from }),
            }
        }
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(map: &ExtentMap) -> Vec<(u64, u64, u64)> {
        map.within(0, u64::MAX).map(|(at, e)| (at, e.disk_offset, e.len)).collect()
    }

    #[test]
    fn neighbours_merge_only_if_they_touch_twice() {
        let mut map = ExtentMap::default();
        map.put(0, 8192, 4096);
        map.put(4096, 12288, 100);
        assert_eq!(list(&map), [(0, 8192, 4196)]);
        map.put(8192, 4096, 4096);
        map.put(4196, 12388, 3996);
        assert_eq!(list(&map), [(0, 8192, 8192), (8192, 4096, 4096)]);
        assert_eq!((map.len(), map.end()), (2, 12288));
    }

    #[test]
    fn shared_blocks_are_one_run_and_contradictions_are_named() {
        let mut map = ExtentMap::default();
        map.put(10, 40970, 20);
        map.put(100, 41060, 4000);
        map.put(9000, 9000, 1);
        let run = |local, disk, blocks| BackedRun { local, disk, blocks };
        assert_eq!(map.blocks(0, u64::MAX), Ok(vec![run(0, 10, 2), run(2, 2, 1)]));
        assert_eq!(map.blocks(1, 1), Ok(vec![run(1, 11, 1)]));
        map.put(8200, 4104, 5);
        assert_eq!(map.blocks(0, u64::MAX), Err(2));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn agrees_with_a_plain_array(ops in proptest::collection::vec((0u8..4, 0u64..200, 1u64..60, 0u64..4), 1..60)) {
            let mut map = ExtentMap::default();
            let mut model = [None; 300];
            for (op, at, len, shift) in ops {
                let range = at as usize..(at + len) as usize;
                if op == 0 {
                    map.cut(at, at + len);
                    model[range].fill(None);
                } else {
                    let disk = at + shift * BLOCK_BYTES;
                    map.put(at, disk, len);
                    for i in range {
                        model[i] = Some(i as u64 + shift * BLOCK_BYTES);
                    }
                }
                let mut seen = [None; 300];
                let mut last: Option<(u64, u64)> = None;
                for (at, extent) in map.within(0, 300) {
                    prop_assert!(last != Some((at, extent.disk_offset)), "neighbours were not merged");
                    last = Some((at + extent.len, extent.disk_offset + extent.len));
                    for i in 0..extent.len {
                        prop_assert_eq!(seen[(at + i) as usize].replace(extent.disk_offset + i), None);
                    }
                }
                prop_assert_eq!(&seen[..], &model[..]);
            }
        }
    }
}
