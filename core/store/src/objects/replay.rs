//! Recovery of the object table: checkpoint records, then journal records, then one look at the
//! result.

use super::state::{Object, Objects};
use super::{BlockRun, CONTAINER_HEADER_BYTES, ObjectKey, ObjectRecord, ObjectTable, SpaceAllocator, block_of};
use std::fmt;

/// An object table while it is being recovered. It has no allocator: in the middle of a replay two
/// objects may claim a block.
#[derive(Debug, Default)]
pub struct ObjectReplay {
    objects: Objects,
}

/// Why the recovered records make no sense together. The disk or an earlier program damaged them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryError {
    /// A local block of this object lies in two disk blocks.
    TwoPlaces {
        /// The object.
        key: ObjectKey,
        /// Which of its blocks.
        local_block: u64,
    },
    /// Blocks of this object also belong to another one, or to the container's header.
    TwoOwners {
        /// The object.
        key: ObjectKey,
        /// The blocks.
        run: BlockRun,
    },
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoveryError::TwoPlaces { key, local_block } => {
                write!(f, "block {local_block} of object {}/{} lies in two places", key.handle, key.index)
            }
            RecoveryError::TwoOwners { key, run } => {
                write!(f, "container blocks {}+{} of object {}/{} have two owners", run.start, run.blocks, key.handle, key.index)
            }
        }
    }
}
impl std::error::Error for RecoveryError {}

impl ObjectReplay {
    /// Without objects.
    pub fn new() -> ObjectReplay {
        ObjectReplay::default()
    }

    /// The next record of the checkpoint or of the journal.
    pub fn apply(&mut self, record: &ObjectRecord) {
        match record {
            ObjectRecord::Put { key, size_bytes, mtime, truncate_epoch, extents } => {
                let object = self.objects.entry(*key).or_insert_with(Object::new);
                object.join(*size_bytes, *mtime, *truncate_epoch);
                extents.iter().for_each(|put| object.put(put));
            }
            ObjectRecord::Truncate { key, size_bytes, mtime, truncate_epoch } => {
                self.objects.entry(*key).or_insert_with(Object::new).truncate(*size_bytes, *mtime, *truncate_epoch);
            }
            ObjectRecord::Punch { key, mtime, local_offset, len } => {
                self.objects.entry(*key).or_insert_with(Object::new).punch(*local_offset, *len, *mtime);
            }
            ObjectRecord::Remove { key } => {
                self.objects.remove(key);
            }
        }
    }

    /// Ends the replay: everything that is in no extent is free. `capacity_bytes` is what the
    /// container may grow to.
    pub fn finish(mut self, capacity_bytes: u64) -> Result<ObjectTable, RecoveryError> {
        let mut used: Vec<(BlockRun, ObjectKey)> = Vec::new();
        for (key, object) in &mut self.objects {
            let runs = object.extents.blocks(0, u64::MAX).map_err(|local_block| RecoveryError::TwoPlaces { key: *key, local_block })?;
            object.mapped_blocks = runs.iter().map(|run| run.blocks).sum();
            used.extend(runs.iter().map(|run| (BlockRun { start: run.disk, blocks: run.blocks }, *key)));
        }
        used.sort_unstable();
        let header = block_of(CONTAINER_HEADER_BYTES as u64);
        let space = SpaceAllocator::with_used(header, block_of(capacity_bytes), used.iter().map(|(run, _)| *run));
        let space = space.map_err(|run| {
            let owner = used.iter().rev().find(|(other, _)| *other == run).expect("the run came from this list");
            RecoveryError::TwoOwners { key: owner.1, run }
        })?;
        Ok(ObjectTable::recovered(self.objects, space))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ExtentPut;
    use super::*;
    use weft_base::{DataTime, Handle};

    fn put(handle: u64, local_offset: u64, disk_offset: u64, len: u64) -> ObjectRecord {
        let key = ObjectKey { handle: Handle(handle), index: 0 };
        let extents = vec![ExtentPut { local_offset, disk_offset, len }];
        ObjectRecord::Put { key, size_bytes: local_offset + len, mtime: DataTime::NONE, truncate_epoch: 0, extents }
    }

    fn replay(records: &[ObjectRecord]) -> Result<ObjectTable, RecoveryError> {
        let mut replay = ObjectReplay::new();
        records.iter().for_each(|record| replay.apply(record));
        replay.finish(1 << 30)
    }

    #[test]
    fn two_owners_are_refused_at_the_end_only() {
        let clash = [put(1, 0, 8192, 4096), put(2, 0, 8192, 100)];
        assert!(matches!(replay(&clash), Err(RecoveryError::TwoOwners { run: BlockRun { start: 2, blocks: 1 }, .. })));
        let removed = ObjectRecord::Remove { key: clash[0].key() };
        assert!(replay(&[clash[0].clone(), clash[1].clone(), removed]).is_ok());
        assert!(matches!(replay(&[put(1, 0, 0, 10)]), Err(RecoveryError::TwoOwners { .. })), "the header block");
    }

    #[test]
    fn a_block_in_two_places_is_refused() {
        let key = put(1, 0, 0, 1).key();
        let error = replay(&[put(1, 0, 8192, 10), put(1, 20, 12308, 10)]).unwrap_err();
        assert_eq!(error, RecoveryError::TwoPlaces { key, local_block: 0 });
    }

    #[test]
    fn free_space_is_what_is_in_no_extent() {
        let table = replay(&[put(1, 0, 8192, 4096), put(2, 5000, 20480 + 904, 10)]).unwrap();
        let usage = table.usage();
        assert_eq!((usage.mapped_bytes, usage.reserved_bytes, usage.quarantined_bytes), (8192, 0, 0));
        assert_eq!(usage.free_bytes, (1 << 30) - 4096 - 8192);
        assert_eq!(usage.high_water_bytes, 24576);
    }
}
