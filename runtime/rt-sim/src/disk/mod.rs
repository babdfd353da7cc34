//! Disks: the handle that servers use, and when operations are over.
//!
//! An operation takes effect when it is over. If its process dies before, it has happened wholly,
//! in part, or not at all. Calls that touch only memory (writes, cached reads, lengths) take time
//! of a core; syncs, durable changes of the directory and uncached reads queue at the disk. So a
//! write overtakes a sync that is under way, as on a real machine.

mod behind;
mod extents;
mod file;
mod ranges;
mod volume;

mod operations;

use std::collections::BTreeMap;

pub use behind::DiskCopy;
pub use operations::SimDisk;
pub use volume::DiskFaultKind;
pub(crate) use volume::{DiskOp, DiskValue, Volume};

use crate::ids::SlotId;
use crate::models::{SeekProfile, Station};

/// The disk of a node as the simulator holds it.
#[derive(Debug, Default)]
pub(crate) struct NodeDisk {
    pub(crate) volume: Volume,
    pub(crate) station: Station,
    running: BTreeMap<u64, (SlotId, DiskOp)>,
    last_operation: u64,
    /// Operations on a core end in the order in which they began.
    calls_end_at: u64,
    /// Where the head is: the file, and the end of the last access to it.
    head: Option<(u64, u64)>,
    pub(crate) counts: DiskCounts,
}

/// Counters of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Reads.
    pub reads: u64,
    /// Bytes asked by reads.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes given to writes.
    pub written_bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Everything else.
    pub others: u64,
    /// Accesses of a disk with a head that went on where the last one ended.
    pub sequential: u64,
    /// Those that needed a short move of the head.
    pub near: u64,
    /// Those that needed a long one.
    pub far: u64,
}

impl NodeDisk {
    pub(crate) fn new(capacity: u64) -> NodeDisk {
        NodeDisk { volume: Volume::new(capacity), ..NodeDisk::default() }
    }
}

impl DiskOp {
    fn name(&self) -> &'static str {
        match self {
            DiskOp::Open { .. } => "open",
            DiskOp::Read { .. } => "read",
            DiskOp::Write { .. } => "write",
            DiskOp::Sync { .. } => "sync",
            DiskOp::Len { .. } => "len",
            DiskOp::SetLen { .. } => "set_len",
            DiskOp::Allocate { .. } => "allocate",
            DiskOp::Punch { .. } => "punch",
            DiskOp::Remove { .. } => "remove",
            DiskOp::Rename { .. } => "rename",
            DiskOp::List => "list",
            DiskOp::Space => "space",
        }
    }
}

impl NodeDisk {
    /// Moves the head for an access to `start..end` of a file; gives what that takes in
    /// nanoseconds.
    fn move_head(&mut self, seek: &SeekProfile, file: u64, start: u64, end: u64) -> u64 {
        let before = self.head.replace((file, end));
        match before {
            Some((last_file, last_end)) if last_file == file && last_end == start => {
                self.counts.sequential += 1;
                0
            }
            Some((last_file, last_end)) if last_file == file && last_end.abs_diff(start) < seek.near_bytes => {
                self.counts.near += 1;
                seek.near_ns
            }
            _ => {
                self.counts.far += 1;
                seek.far_ns
            }
        }
    }

    /// Moves the head to where the disk keeps its directory.
    fn move_away(&mut self, seek: &SeekProfile) -> u64 {
        self.head = None;
        self.counts.far += 1;
        seek.far_ns
    }

    fn count(&mut self, op: &DiskOp) {
        let counts = &mut self.counts;
        match op {
            DiskOp::Read { len, .. } => {
                counts.reads += 1;
                counts.read_bytes += len;
            }
            DiskOp::Write { data, .. } => {
                counts.writes += 1;
                counts.written_bytes += data.len();
            }
            DiskOp::Sync { .. } => counts.syncs += 1,
            _ => counts.others += 1,
        }
    }
}
