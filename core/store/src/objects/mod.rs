//! The objects (datafiles) of a data server: which bytes of which object lie where in the one
//! container file.
//!
//! [`ObjectTable`] holds the map in memory; [`ObjectRecord`]s in the journal and in checkpoints
//! make it durable. Space comes from a [`SpaceAllocator`] in blocks of [`BLOCK_BYTES`]. The
//! invariants that everything rests on:
//!
//! - **An extent covers exactly the bytes that were written.** The rest of its blocks is a hole and
//!   reads as zeros, so no stale byte of the container is ever shown and nothing needs to be
//!   zeroed.
//! - **Within an object, a local block lies in one disk block**, at the same place inside it:
//!   `disk_offset` and `local_offset` of an extent are equal modulo the block size. So two extents
//!   that meet in a block share it, and a block has one owner.
//! - **Only [`ObjectTable::apply`] changes what is durable.** Planning a write takes space into a
//!   *reservation*, which is volatile: after a restart everything that is not in an extent is free.
//! - **Space is given in the order of the object.** Who writes on at the end of an object gets what
//!   follows it on the disk. Who leaves a hole at the end is one of several who write out of order;
//!   then the whole *window* around the write is reserved (`windows.rs`), so that neighbours in the
//!   object become neighbours on the disk whoever comes first.
//! - **Freed space rests in quarantine** until the journal that freed it is durable and every
//!   transfer begun before has ended.
//!
//! The order for the node, per write: [`ObjectTable::begin_io`], [`ObjectTable::plan_write`], write
//! the pieces, [`ObjectTable::record_for`] (plan again if it is stale), append the record to the
//! journal and `apply` it in the same turn, [`ObjectTable::end_io`]. **After a power cut a record
//! counts only if its data was synced before**: a record without its data would show what lay there
//! earlier. The node sees to it either by syncing the container before it writes the frame, or by
//! marks in the journal that say up to which record the data is durable, with a recovery that drops
//! what no mark covers. Freed space: [`ObjectTable::quarantine_mark`] when the records that freed
//! it are written, before the syncs that make them count begin; [`ObjectTable::release_quarantine`]
//! when these are done.
//!
//! Writes within existing extents go in place and need no record. They are not ordered against a
//! truncation that is not durable yet: a power cut may keep the bytes of such a write and lose the
//! truncation before it.
//!
//! Replay and fuzzy checkpoints: a record maps byte ranges absolutely, cuts or removes absolutely,
//! and joins size, mtime and truncation count by maximum; so the argument in [`crate::checkpoint`]
//! holds for every byte of an object. During a replay the map may pass through states in which two
//! objects claim a block; therefore [`ObjectReplay`] keeps no allocator, and
//! [`ObjectReplay::finish`] builds it from the final map and proves that no block has two owners.

mod container;
mod extents;
mod placing;
mod punch;
mod record;
mod replay;
mod reservations;
mod space;
mod state;
mod table;
mod windows;

use std::fmt;
use weft_base::{DataTime, Handle};

pub use container::{CONTAINER_HEADER_BYTES, ContainerHeader};
pub use extents::{Extent, ExtentMap};
pub use record::{ExtentPut, ObjectRecord, RecordError};
pub use replay::{ObjectReplay, RecoveryError};
pub use space::{BlockRun, IoTicket, QuarantineMark, SpaceAllocator};
pub use table::{ObjectCursor, ObjectTable, StalePlan, WritePlan};
pub use windows::WindowLimits;

/// Bytes of a block, the unit of allocation in the container.
pub use weft_base::BLOCK_BYTES;

/// The largest local size of an object in bytes.
pub const OBJECT_BYTES_MAX: u64 = 1 << 60;

/// An object that grows at its end takes space in pieces of at most this many bytes.
pub const PIECE_BYTES_MAX: u64 = 1 << 20;

/// Names an object: the file's handle and the index of the datafile within the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectKey {
    /// The file.
    pub handle: Handle,
    /// Which of its datafiles.
    pub index: u32,
}

/// What is known of an object besides its extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectStat {
    /// Local size: the end of its last written byte or what a truncation set, in bytes.
    pub size_bytes: u64,
    /// Time of the last write or truncation. Never moves back.
    pub mtime: DataTime,
    /// The highest truncation count that a truncation carried.
    pub truncate_epoch: u32,
    /// Bytes of the container that it occupies (whole blocks, without reservations).
    pub allocated_bytes: u64,
    /// Number of its extents.
    pub extent_count: usize,
}

/// A contiguous part of the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPiece {
    /// Byte offset in the container.
    pub disk_offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A part of what a read asked for, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPiece {
    /// Bytes of the container.
    Data {
        /// Byte offset in the container.
        disk_offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Zeros.
    Hole {
        /// Length in bytes.
        len: u64,
    },
}

impl ReadPiece {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            ReadPiece::Data { len, .. } | ReadPiece::Hole { len } => *len,
        }
    }

    /// True if it has no bytes; plans contain no such piece.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How the space of the container is used, in bytes. The five parts add up to the capacity, unless
/// the capacity was set below what is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceUsage {
    /// What the container may grow to.
    pub capacity_bytes: u64,
    /// The container's header block.
    pub header_bytes: u64,
    /// Blocks of objects.
    pub mapped_bytes: u64,
    /// Taken for writes in flight and for growth; volatile.
    pub reserved_bytes: u64,
    /// Freed, but not yet reusable.
    pub quarantined_bytes: u64,
    /// Can be taken at once.
    pub free_bytes: u64,
    /// Everything in use lies below this byte offset of the container.
    pub high_water_bytes: u64,
}

/// Why a write cannot be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectError {
    /// Not enough free space.
    NoSpace {
        /// Bytes (whole blocks) that the write would take.
        needed_bytes: u64,
        /// Bytes that may become free without removing anything: quarantine (after a sync) and idle
        /// reservations (release them, then sync).
        recoverable_bytes: u64,
    },
    /// The object would grow beyond [`OBJECT_BYTES_MAX`].
    TooLarge,
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectError::NoSpace { needed_bytes, .. } => write!(f, "no space for {needed_bytes} bytes"),
            ObjectError::TooLarge => write!(f, "an object may have at most {OBJECT_BYTES_MAX} bytes"),
        }
    }
}
impl std::error::Error for ObjectError {}

/// The block in which byte `offset` lies.
fn block_of(offset: u64) -> u64 {
    offset / BLOCK_BYTES
}
