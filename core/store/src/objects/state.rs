//! One object in memory and the effects of records on it, shared by the live table and by replay.

use super::{ExtentMap, ExtentPut, ObjectKey};
use std::collections::BTreeMap;
use weft_base::DataTime;

pub(super) type Objects = BTreeMap<ObjectKey, Object>;

#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) size_bytes: u64,
    pub(super) mtime: DataTime,
    pub(super) truncate_epoch: u32,
    /// Blocks that the extents touch; kept by the live table only.
    pub(super) mapped_blocks: u64,
    pub(super) extents: ExtentMap,
}

impl Object {
    /// An object of which nothing is known yet; every attribute joins by maximum.
    pub(super) fn new() -> Object {
        Object { size_bytes: 0, mtime: DataTime::NONE, truncate_epoch: 0, mapped_blocks: 0, extents: ExtentMap::default() }
    }

    pub(super) fn join(&mut self, size_bytes: u64, mtime: DataTime, truncate_epoch: u32) {
        self.size_bytes = self.size_bytes.max(size_bytes);
        self.mtime = self.mtime.max(mtime);
        self.truncate_epoch = self.truncate_epoch.max(truncate_epoch);
    }

    pub(super) fn put(&mut self, put: &ExtentPut) {
        self.extents.put(put.local_offset, put.disk_offset, put.len);
    }

    pub(super) fn punch(&mut self, local_offset: u64, len: u64, mtime: DataTime) {
        self.join(0, mtime, 0);
        self.extents.cut(local_offset, local_offset + len);
    }

    pub(super) fn truncate(&mut self, size_bytes: u64, mtime: DataTime, truncate_epoch: u32) {
        self.join(0, mtime, truncate_epoch);
        self.size_bytes = size_bytes;
        self.extents.cut(size_bytes, u64::MAX);
    }
}
