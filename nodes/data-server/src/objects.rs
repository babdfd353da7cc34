//! The objects of a server: where their bytes are (the table), the journal that remembers it, the
//! container that holds them, and how far all of that is on stable storage.
//!
//! A change is one record ([`Objects::change`]). Rounds bring changes to stable storage
//! (`durability.rs`), what they free comes back through quarantine (`space.rs`), and checkpoints
//! keep the journal short (`checkpoint.rs`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use weft_base::{DataTime, FastSet, Nanos, Result, SECOND, Status};
use weft_journal::{Journal, JournalStats};
use weft_rt::{ServerRuntime, Signal};
use weft_store::objects::{BLOCK_BYTES, ObjectKey, ObjectRecord, ObjectTable};
use weft_wire::Op;
use weft_wire::ops::Space;

use crate::container::Container;
use crate::freed::SpaceState;
use crate::progress::Progress;
use crate::record::{JournalRecord, is_growth};
use crate::{DataServerConfig, Durability};

/// Removed objects are remembered for so many nanoseconds: longer than any capability for them
/// lives.
const REMOVED_FOR: u64 = 2 * 3600 * SECOND;
/// Bytes of a journal segment that are kept for a mark when the disk has no room for another
/// segment.
const LAST_ROOM: usize = 4096;
/// Most removed objects that are remembered.
const REMOVED_MAX: usize = 1 << 18;

/// See above. Nothing in it is borrowed across a wait.
pub struct Objects<R: ServerRuntime> {
    pub rt: R,
    pub container: Container<R>,
    pub table: RefCell<ObjectTable>,
    pub progress: Progress,
    pub removed: RefCell<Removed>,
    pub(crate) config: DataServerConfig,
    /// What an acknowledged change has survived, at this moment.
    pub(crate) durability: Cell<Durability>,
    /// `None` with engine `memory`.
    pub(crate) journal: Option<Journal<R::Disk>>,
    pub(crate) space: RefCell<SpaceState>,
    /// The disk had little free space when it was last looked at.
    pub(crate) disk_is_short: Cell<bool>,
    /// There is space to give back to the disk.
    pub(crate) reclaim: Signal,
    /// The journal has become long enough for a checkpoint.
    pub(crate) checkpoint_due: Signal,
    has_stopped: Cell<bool>,
}

impl<R: ServerRuntime> Objects<R> {
    /// What recovery has found.
    pub fn new(
        rt: R,
        config: DataServerConfig,
        container: Container<R>,
        journal: Option<Journal<R::Disk>>,
        table: ObjectTable,
        removed: Removed,
    ) -> Objects<R> {
        Objects {
            container,
            table: RefCell::new(table),
            progress: Progress::default(),
            removed: RefCell::new(removed),
            durability: Cell::new(config.serving.durability),
            config,
            journal,
            space: RefCell::new(SpaceState::new(rt.now())),
            disk_is_short: Cell::new(false),
            reclaim: Signal::new(),
            checkpoint_due: Signal::new(),
            has_stopped: Cell::new(false),
            rt,
        }
    }

    /// The server stops: nobody waits any longer.
    pub fn stop(&self) {
        self.has_stopped.set(true);
        for flow in [&self.progress.reached, &self.progress.work, &self.reclaim, &self.checkpoint_due] {
            flow.notify();
        }
    }

    /// True if the server stops.
    pub fn has_stopped(&self) -> bool {
        self.has_stopped.get()
    }

    /// Counters of the journal.
    pub fn journal_stats(&self) -> JournalStats {
        self.journal.as_ref().map(Journal::stats).unwrap_or_default()
    }

    /// Makes the change that `plan` finds necessary for this operation, with room for its record.
    /// Waits may change the table, so it is planned again after each. False if nothing is to be
    /// recorded.
    ///
    /// # Errors
    /// Those of `plan`, [`Status::NoSpace`], or [`Status::Io`] if the journal has failed.
    pub async fn change(&self, op: Op, mut plan: impl FnMut(&ObjectTable) -> Result<Option<ObjectRecord>>) -> Result<bool> {
        loop {
            let record = plan(&self.table.borrow())?;
            let Some(record) = record else { return Ok(false) };
            if self.accepts(&record) {
                self.apply(&record);
                return Ok(true);
            }
            self.make_room(&record, op).await?;
        }
    }

    /// Notes a write that needs no record.
    pub fn wrote_in_place(&self, key: ObjectKey, mtime: DataTime) {
        self.table.borrow_mut().note_mtime(key, mtime);
        self.progress.changed();
    }

    /// True if the object was removed: late writes must not bring it back.
    pub fn is_removed(&self, key: ObjectKey) -> bool {
        self.removed.borrow().keys.contains(&key)
    }

    /// Makes sure that the record can be appended to the journal and will be written even if the
    /// disk fills up. Changes that free space may use the last of the room.
    ///
    /// # Errors
    /// [`Status::NoSpace`], or [`Status::Io`] if the journal has failed.
    pub async fn make_room(&self, record: &ObjectRecord, op: Op) -> Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        if !journal.has_room() && journal.ensure_room().await.is_err() {
            // The frame takes a header and padding besides its records, and a mark must still fit
            // afterwards.
            let needed = (record_bytes_max(record) + LAST_ROOM) as u64;
            if op.space() != Space::Freed || journal.segment_bytes_left() < needed {
                return Err(Status::NoSpace);
            }
        }
        while !journal.accepts(record_bytes_max(record)) {
            journal.commit().await?;
        }
        Ok(())
    }

    /// Tries to make room before a turn. Whoever needs it asks again, and learns why there is none.
    pub async fn look_for_room(&self) {
        if self.is_short_of_room()
            && let Some(journal) = &self.journal
        {
            let _ = journal.ensure_room().await;
        }
    }

    /// True if the journal has no room beyond its current segment.
    pub fn is_short_of_room(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| !journal.has_room())
    }

    /// Freed runs of at least so many bytes are given back to the disk. When there is little room,
    /// every block counts: free places in the container may never have been written, and then need
    /// room on the disk.
    pub fn punch_bytes(&self) -> u64 {
        if self.is_short_of_room() || self.disk_is_short.get() { BLOCK_BYTES } else { self.config.punch_bytes }
    }

    /// True if the record may be applied now; else [`Objects::make_room`] first and look at
    /// everything again.
    fn accepts(&self, record: &ObjectRecord) -> bool {
        let room = |journal: &Journal<R::Disk>| {
            let needed = (record_bytes_max(record) + LAST_ROOM) as u64;
            let enough = journal.has_room() || journal.segment_bytes_left() >= needed;
            enough && journal.accepts(record_bytes_max(record))
        };
        self.journal.as_ref().is_none_or(room)
    }

    /// Appends the record to the journal and makes it true. In one go: no other flow sees one
    /// without the other.
    fn apply(&self, record: &ObjectRecord) {
        if let Some(journal) = &self.journal {
            assert!(journal.accepts(record_bytes_max(record)), "room was made for what is recorded");
            journal.append_with(|out| JournalRecord::encode_object(record, out));
            self.progress.growth.set(self.progress.growth.get() + u64::from(is_growth(record)));
        }
        let mut table = self.table.borrow_mut();
        self.space.borrow_mut().note_change(&table, record, self.punch_bytes());
        table.apply(record);
        self.progress.changed();
    }
}

/// At least the bytes of an encoded record.
fn record_bytes_max(record: &ObjectRecord) -> usize {
    // Every number takes at most ten bytes.
    match record {
        ObjectRecord::Put { extents, .. } => 64 + 30 * extents.len(),
        _ => 64,
    }
}

/// Objects that were removed lately. Handles are never used again, so nothing may be written under
/// these names; but a client that the metadata server has given up may still hold a capability.
#[derive(Debug, Default)]
pub struct Removed {
    keys: FastSet<ObjectKey>,
    oldest_first: VecDeque<(Nanos, ObjectKey)>,
}

impl Removed {
    /// Remembers a removed object.
    pub fn note(&mut self, key: ObjectKey, now: Nanos) {
        if self.keys.insert(key) {
            self.oldest_first.push_back((now, key));
        }
        self.forget(now);
    }

    /// Forgets what nobody can write to any more.
    pub fn forget(&mut self, now: Nanos) {
        while let Some((since, key)) = self.oldest_first.front().copied() {
            if self.oldest_first.len() <= REMOVED_MAX && now.since(since) < REMOVED_FOR {
                break;
            }
            self.oldest_first.pop_front();
            self.keys.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::Handle;

    #[test]
    fn removed_objects_are_remembered_for_a_while_and_within_bounds() {
        let key = |n| ObjectKey { handle: Handle(n), index: 0 };
        let mut removed = Removed::default();
        (0..2 * REMOVED_MAX as u64).for_each(|n| removed.note(key(n), Nanos(n)));
        assert_eq!((removed.keys.len(), removed.oldest_first.len()), (REMOVED_MAX, REMOVED_MAX));
        let newest = 2 * REMOVED_MAX as u64 - 1;
        assert!(removed.keys.contains(&key(newest)));
        removed.forget(Nanos(newest + REMOVED_FOR - 1));
        assert_eq!(removed.keys.len(), 1);
        removed.forget(Nanos(newest + REMOVED_FOR));
        assert!(removed.keys.is_empty());
    }
}
