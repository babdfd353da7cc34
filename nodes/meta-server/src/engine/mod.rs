//! Engines: what keeps the records of a metadata server. The ordered state in memory is the same
//! for all; an engine decides what outlives the process, and when an answer may leave. Chosen when
//! the file system is made.

mod journal;
mod memory;
mod rows;

use std::future::Future;

use weft_journal::{Journal, JournalError, JournalStats, Lsn};
use weft_rt::Disk;

use crate::Durability;

pub(crate) use journal::JournalEngine;
pub(crate) use weft_journal::Room;

pub(crate) use memory::MemoryEngine;
pub(crate) use rows::{Plan, RowEngine};
pub use rows::{Row, each_row, tail_records};

/// Keeps records. Cheap to clone.
pub(crate) trait Engine: Clone + 'static {
    /// The disk below.
    type Disk: Disk;

    /// Takes an encoded record; the next commit writes it.
    fn append(&self, record: &[u8]) -> Lsn;

    /// The newest appended record.
    fn last(&self) -> Lsn;

    /// True if records wait for a commit.
    fn has_pending(&self) -> bool;

    /// True if so much waits that a commit should come before more is appended.
    fn is_full(&self) -> bool;

    /// Writes what waits, as safely as the durability contract demands before answers leave.
    fn commit(&self) -> impl Future<Output = Result<(), JournalError>>;

    /// Waits until the record is as safe as a commit makes it; somebody else commits.
    fn wait_committed(&self, lsn: Lsn) -> impl Future<Output = Result<(), JournalError>>;

    /// Waits until the record survives a power cut, if anything is promised to do so: for what
    /// other servers will rely on.
    fn make_durable(&self, lsn: Lsn) -> impl Future<Output = Result<(), JournalError>>;

    /// Waits until the record survives a power cut, whatever is promised.
    fn sync_through(&self, lsn: Lsn) -> impl Future<Output = Result<(), JournalError>>;

    /// Commits are as safe as this contract demands from now on.
    fn promise(&self, durability: Durability) -> impl Future<Output = Result<(), JournalError>>;

    /// If written records may wait for a flush: how long, in nanoseconds.
    fn flush_interval(&self) -> Option<u64>;

    /// True if written records are not flushed.
    fn needs_flush(&self) -> bool;

    /// How much room there is.
    fn room(&self) -> Room;

    /// Tries to make room.
    fn ensure_room(&self) -> impl Future<Output = Result<(), JournalError>>;

    /// To be called now and then: an engine that has had nothing to do since the last time sees to
    /// it that damage to its end is noticed.
    fn rest(&self) -> impl Future<Output = Result<(), JournalError>>;

    /// Before an orderly end: everything is on stable storage.
    fn bring_to_rest(&self) -> impl Future<Output = Result<(), JournalError>>;

    /// The journal, of an engine that has one.
    fn journal(&self) -> Option<&Journal<Self::Disk>>;

    /// Counters.
    fn stats(&self) -> JournalStats;
}
