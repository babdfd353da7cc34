//! Where the blocks of an object lie, and where new ones go: behind what the object has, in its
//! order.

use super::record::push_merged;
use super::reservations::BackedRun;
use super::space::bytes_of;
use super::state::Object;
use super::{BLOCK_BYTES, DiskPiece, ExtentPut, ObjectError, ObjectKey, ObjectTable, PIECE_BYTES_MAX, block_of};

/// A hole of at most so many windows at the end of an object gets its space as a whole.
const HOLE_WINDOWS: u64 = 8;

impl ObjectTable {
    /// Gives every block from `first` to `last` of the object a place.
    pub(super) fn reserve(&mut self, key: ObjectKey, first: u64, last: u64) -> Result<(), ObjectError> {
        let gaps = gaps(first, last, &self.backing(key, first, last));
        let needed: u64 = gaps.iter().map(|(_, blocks)| blocks).sum();
        if needed == 0 {
            return Ok(());
        }
        if needed > self.space.available_blocks() {
            let recoverable = self.space.quarantined_blocks() + self.reservations.blocks();
            return Err(ObjectError::NoSpace { needed_bytes: bytes_of(needed), recoverable_bytes: bytes_of(recoverable) });
        }
        for (start, blocks) in gaps {
            if let Some(run) = self.take_window(key, start, blocks, needed) {
                self.reservations.add(key, run);
                continue;
            }
            let goal = self.goal(key, start);
            let grows = self.is_tail(key, start + blocks) && self.end_before(key, start).map_or(0, |(local, _)| local) == start;
            let most = if grows { blocks.max(self.piece_blocks(key, blocks)) } else { blocks };
            let runs = match self.space.take(blocks, most, goal) {
                Some(run) => vec![run],
                None => self.space.take_scattered(blocks, goal).expect("enough blocks were free for all gaps together"),
            };
            let mut local = start;
            for run in runs {
                self.reservations.add(key, BackedRun { local, disk: run.start, blocks: run.blocks });
                local += run.blocks;
            }
        }
        Ok(())
    }

    /// The places that local blocks `first` to `last` have, in order.
    pub(super) fn backing(&self, key: ObjectKey, first: u64, last: u64) -> Vec<BackedRun> {
        let mut runs = match self.objects.get(&key) {
            Some(object) => mapped(object, first, last),
            None => Vec::new(),
        };
        let reserved = self.reservations.runs(key);
        let from = reserved.partition_point(|run| run.local_end() <= first);
        let before = runs.len();
        runs.extend(reserved[from..].iter().map_while(|run| run.clip(first, last + 1)));
        if before > 0 && runs.len() > before {
            runs.sort_unstable_by_key(|run| run.local);
        }
        runs
    }

    /// Where the local bytes from `start` to `end` lie; `None` if some have no place.
    pub(super) fn places(&self, key: ObjectKey, start: u64, end: u64) -> Option<Vec<DiskPiece>> {
        let mut pieces: Vec<DiskPiece> = Vec::new();
        let mut at = start;
        if start < end {
            for run in self.backing(key, block_of(start), block_of(end - 1)) {
                if block_of(at) != run.local {
                    return None;
                }
                let disk_offset = bytes_of(run.disk) + at % BLOCK_BYTES;
                let len = bytes_of(run.local_end()).min(end) - at;
                match pieces.last_mut() {
                    Some(last) if last.disk_offset + last.len == disk_offset => last.len += len,
                    _ => pieces.push(DiskPiece { disk_offset, len }),
                }
                at += len;
            }
        }
        (at == end).then_some(pieces)
    }

    /// The local bytes from `start` to `end` that have a place but are in no extent.
    pub(super) fn unmapped(&self, key: ObjectKey, start: u64, end: u64) -> Vec<ExtentPut> {
        let mut holes: Vec<(u64, u64)> = Vec::new();
        let mut at = start;
        for (offset, extent) in self.objects.get(&key).into_iter().flat_map(|object| object.extents.within(start, end)) {
            if offset > at {
                holes.push((at, offset));
            }
            at = offset + extent.len;
        }
        if at < end {
            holes.push((at, end));
        }
        let mut extents = Vec::with_capacity(holes.len());
        for (from, to) in holes {
            for run in self.backing(key, block_of(from), block_of(to - 1)) {
                let (local_offset, end) = (from.max(bytes_of(run.local)), to.min(bytes_of(run.local_end())));
                let disk_offset = bytes_of(run.disk) + (local_offset - bytes_of(run.local));
                push_merged(&mut extents, ExtentPut { local_offset, disk_offset, len: end - local_offset });
            }
        }
        extents
    }

    /// Takes space for the blocks from `start` on and for what is likely to be written around them:
    /// somebody has written beyond the end of the object and left a hole, so pieces of this part of
    /// it come out of order, and all of them shall lie in its order. `None` if that is not so, or
    /// not to be had within the limits.
    fn take_window(&mut self, key: ObjectKey, start: u64, blocks: u64, needed: u64) -> Option<BackedRun> {
        let end = self.end_before(key, start).map_or(0, |(local, _)| local);
        if end == start || !self.is_tail(key, start + blocks) {
            return None;
        }
        let window = block_of(self.windows.window_bytes).max(1);
        let from = if start - end <= HOLE_WINDOWS * window { end } else { start - start % window };
        let to = (start + blocks).next_multiple_of(window);
        let more = to - from - blocks;
        if more == 0 || !self.windows.allow(&self.reservations, key, more, self.space.available_blocks().checked_sub(needed)?) {
            return None;
        }
        let run = self.space.take(start + blocks - from, to - from, self.goal(key, from))?;
        Some(BackedRun { local: from, disk: run.start, blocks: run.blocks })
    }

    /// A good disk block for local block `local`: as far behind the blocks before it as it is in
    /// the object, so that what is missing between them still has its place; at the end of the
    /// object directly behind them.
    fn goal(&self, key: ObjectKey, local: u64) -> Option<u64> {
        let (end, disk) = self.end_before(key, local)?;
        let hole = local - end;
        if self.is_tail(key, local) || hole > HOLE_WINDOWS * block_of(self.windows.window_bytes) { Some(disk) } else { Some(disk + hole) }
    }

    /// Where the last blocks before local block `local` end, in the object and on the disk.
    fn end_before(&self, key: ObjectKey, local: u64) -> Option<(u64, u64)> {
        let reserved = self.reservations.runs(key);
        let at = reserved.partition_point(|run| run.local_end() <= local);
        let reserved = at.checked_sub(1).map(|before| reserved[before]).map(|run| (run.local_end(), run.disk_end()));
        let extent = self.objects.get(&key).and_then(|object| object.extents.before(bytes_of(local)));
        let mapped =
            extent.map(|(offset, extent)| (block_of(offset + extent.len - 1) + 1, block_of(extent.disk_offset + extent.len - 1) + 1));
        reserved.max(mapped)
    }

    /// True if the object holds no block at or behind local block `local`.
    fn is_tail(&self, key: ObjectKey, local: u64) -> bool {
        let mapped_end = self.objects.get(&key).map_or(0, |object| object.extents.end());
        let reserved_end = self.reservations.runs(key).last().map_or(0, BackedRun::local_end);
        mapped_end <= bytes_of(local) && reserved_end <= local
    }

    /// How many blocks a growing object takes at once: what it holds with the `wanted` blocks,
    /// rounded up to a power of two, within bounds.
    fn piece_blocks(&self, key: ObjectKey, wanted: u64) -> u64 {
        let mapped = self.objects.get(&key).map_or(0, |object| object.mapped_blocks);
        (mapped + self.reservations.blocks_of(key) + wanted).next_power_of_two().min(block_of(PIECE_BYTES_MAX))
    }
}

/// The block runs of a live object between local blocks `first` and `last`.
pub(super) fn mapped(object: &Object, first: u64, last: u64) -> Vec<BackedRun> {
    object.extents.blocks(first, last).expect("a live object has each block in one place: apply checks it, and so does the end of a replay")
}

/// The blocks from `first` to `last` that are not in `runs` (ascending), as (start, count).
pub(super) fn gaps(first: u64, last: u64, runs: &[BackedRun]) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut at = first;
    for run in runs {
        if run.local > at {
            gaps.push((at, run.local - at));
        }
        at = run.local_end();
    }
    if at <= last {
        gaps.push((at, last + 1 - at));
    }
    gaps
}
