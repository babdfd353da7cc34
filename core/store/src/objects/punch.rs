//! Holes: bytes of an object that read as zeros from now on, and the blocks that nobody needs then.

use super::space::bytes_of;
use super::state::Object;
use super::{BlockRun, ExtentPut, OBJECT_BYTES_MAX, ObjectError, ObjectKey, ObjectRecord, ObjectTable, block_of};
use weft_base::DataTime;

impl ObjectTable {
    /// The record that makes a hole of `len` bytes at `local_offset`; `None` if the bytes are a
    /// hole already: then only the time changes ([`Self::plan_time`]).
    ///
    /// # Errors
    /// [`ObjectError::TooLarge`].
    pub fn plan_punch(&self, key: ObjectKey, local_offset: u64, len: u64, mtime: DataTime) -> Result<Option<ObjectRecord>, ObjectError> {
        let end = local_offset.checked_add(len).filter(|end| *end <= OBJECT_BYTES_MAX).ok_or(ObjectError::TooLarge)?;
        let object = self.objects.get(&key);
        let has_bytes = object.is_some_and(|object| object.extents.within(local_offset, end).next().is_some());
        Ok(has_bytes.then_some(ObjectRecord::Punch { key, mtime, local_offset, len }))
    }

    /// The record of a change that changes no byte of an object that there is; `None` if it needs
    /// none ([`Self::note_mtime`]). As with writes, the first change after a time was set decides
    /// whose time is shown.
    pub fn plan_time(&self, key: ObjectKey, mtime: DataTime) -> Option<ObjectRecord> {
        let object = self.objects.get(&key)?;
        let is_first = mtime.epoch > object.mtime.epoch || !object.mtime.is_of_a_change();
        let (size_bytes, truncate_epoch) = (object.size_bytes, object.truncate_epoch);
        is_first.then_some(ObjectRecord::Put { key, size_bytes, mtime, truncate_epoch, extents: Vec::new() })
    }

    /// The blocks that a hole of `len` bytes at `local_offset` frees, in the order of the object:
    /// those that no byte outside of the hole lies in.
    pub fn freed_by_punch(&self, key: ObjectKey, local_offset: u64, len: u64) -> Vec<BlockRun> {
        self.objects.get(&key).map_or_else(Vec::new, |object| freed(object, local_offset, local_offset + len))
    }

    /// The first holes, `most` at most, from local byte `start` to `end`, as (offset, length) in
    /// order.
    pub fn holes(&self, key: ObjectKey, start: u64, end: u64, most: usize) -> Vec<(u64, u64)> {
        let ends = [ExtentPut { local_offset: end, disk_offset: 0, len: 0 }];
        let gaps = self.extents_within(key, start, end).chain(ends).scan(start, |at, put| {
            let gap = (*at, put.local_offset.saturating_sub(*at));
            *at = put.local_offset + put.len;
            Some(gap)
        });
        gaps.filter(|(_, len)| *len > 0).take(most).collect()
    }

    /// The first byte at or behind `local_offset` that was written.
    pub fn next_data(&self, key: ObjectKey, local_offset: u64) -> Option<u64> {
        self.extents_within(key, local_offset, u64::MAX).next().map(|put| put.local_offset)
    }

    /// The first byte at or behind `local_offset` that was not written.
    pub fn next_hole(&self, key: ObjectKey, local_offset: u64) -> u64 {
        let mut end = local_offset;
        for put in self.extents_within(key, local_offset, u64::MAX) {
            if put.local_offset > end {
                break;
            }
            end = put.local_offset + put.len;
        }
        end
    }

    pub(super) fn punch(&mut self, key: ObjectKey, local_offset: u64, len: u64, mtime: DataTime) {
        let object = self.objects.entry(key).or_insert_with(Object::new);
        let freed = freed(object, local_offset, local_offset + len);
        object.punch(local_offset, len, mtime);
        let freed_blocks: u64 = freed.iter().map(|run| run.blocks).sum();
        assert!(freed_blocks <= object.mapped_blocks, "what is freed was counted");
        object.mapped_blocks -= freed_blocks;
        self.unmap_blocks(freed_blocks);
        for run in freed {
            self.space.free(run);
        }
    }
}

/// The blocks of a live object that hold bytes between `start` and `end` and no others.
fn freed(object: &Object, start: u64, end: u64) -> Vec<BlockRun> {
    if start >= end {
        return Vec::new();
    }
    let is_used = |from: u64, to: u64| from < to && object.extents.within(from, to).next().is_some();
    let (first, last) = (block_of(start), block_of(end - 1));
    // Only the blocks at both ends can hold other bytes.
    let keeps_first = is_used(bytes_of(first), start) || (first == last && is_used(end, bytes_of(first + 1)));
    let keeps_last = is_used(end, bytes_of(last + 1)) || (first == last && keeps_first);
    let (from, to) = (first + u64::from(keeps_first), last + u64::from(!keeps_last));
    let runs = super::placing::mapped(object, first, last);
    let freed = runs.iter().filter_map(|run| run.clip(from, to));
    freed.map(|run| BlockRun { start: run.disk, blocks: run.blocks }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::BLOCK_BYTES;
    use super::*;
    use weft_base::Handle;

    const KEY: ObjectKey = ObjectKey { handle: Handle(1), index: 0 };

    fn write(table: &mut ObjectTable, offset: u64, len: u64) {
        let plan = table.plan_write(KEY, offset, len).expect("there is space");
        if let Some(record) = table.record_for(&plan, DataTime::NONE).expect("nothing came between") {
            table.apply(&record);
        }
    }

    fn punch(table: &mut ObjectTable, offset: u64, len: u64) -> u64 {
        let freed: u64 = table.freed_by_punch(KEY, offset, len).iter().map(|run| run.blocks).sum();
        let before = table.used_bytes();
        if let Some(record) = table.plan_punch(KEY, offset, len, DataTime::NONE).expect("within bounds") {
            table.apply(&record);
        }
        assert_eq!(before - table.used_bytes(), freed * BLOCK_BYTES);
        freed
    }

    #[test]
    fn a_hole_frees_the_blocks_in_which_nothing_else_lies() {
        let mut table = ObjectTable::new(1 << 30);
        write(&mut table, 0, 10 * BLOCK_BYTES);
        assert_eq!(punch(&mut table, 100, 200), 0, "a part of a block");
        assert_eq!(punch(&mut table, BLOCK_BYTES - 1, BLOCK_BYTES + 2), 1, "both ends are in use");
        assert_eq!(punch(&mut table, 0, BLOCK_BYTES), 1, "what was left of the first");
        assert_eq!(punch(&mut table, 0, 2 * BLOCK_BYTES), 0, "a hole already");
        assert_eq!(table.holes(KEY, 0, 4 * BLOCK_BYTES, 9), [(0, 2 * BLOCK_BYTES + 1)]);
        assert_eq!(table.stat(KEY).expect("it exists").size_bytes, 10 * BLOCK_BYTES);
        let (begin, end) = (2 * BLOCK_BYTES + 1, 10 * BLOCK_BYTES);
        assert_eq!([0, begin, end - 1, end].map(|at| table.next_data(KEY, at)), [Some(begin), Some(begin), Some(end - 1), None]);
        assert_eq!([0, begin - 1, begin, end, end + 9].map(|at| table.next_hole(KEY, at)), [0, begin - 1, end, end, end + 9]);
        assert_eq!(punch(&mut table, 9 * BLOCK_BYTES, OBJECT_BYTES_MAX - 9 * BLOCK_BYTES), 1, "up to the largest object");
        assert_eq!(table.stat(KEY).expect("it exists").size_bytes, 10 * BLOCK_BYTES, "a hole never cuts");
        let never_written = ObjectKey { index: 1, ..KEY };
        assert_eq!(
            (table.plan_punch(never_written, 0, 9, DataTime::NONE), table.plan_time(never_written, DataTime::NONE)),
            (Ok(None), None)
        );
        assert_eq!(table.plan_punch(KEY, u64::MAX, 2, DataTime::NONE), Err(ObjectError::TooLarge));
        assert_eq!(table.plan_punch(KEY, OBJECT_BYTES_MAX, 1, DataTime::NONE), Err(ObjectError::TooLarge));
    }

    #[test]
    fn a_write_under_way_in_a_block_that_a_hole_frees_is_planned_again() {
        let mut table = ObjectTable::new(1 << 30);
        write(&mut table, 0, 100);
        let late = table.plan_write(KEY, 200, 100).expect("in the same block");
        assert_eq!(punch(&mut table, 0, 100), 1);
        assert!(table.record_for(&late, DataTime::NONE).is_err());
    }
}
