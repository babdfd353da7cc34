//! The server: what its flows share.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use weft_base::{ClientId, FastSet, Handle, Nanos, Result, SECOND, Status};
use weft_journal::{Journal, Superblock};
use weft_rt::{Event, FileId, ServerRuntime};
use weft_serving::{Identity, Introduction, Shell};
use weft_store::objects::{BLOCK_BYTES, ObjectKey, ObjectRecord, ObjectTable};
use weft_wire::{Capability, Rights};

use crate::cache::Cache;
use crate::clients::Clients;
use crate::flights::Flights;
use crate::freed::SpaceState;
use crate::grants::Grants;
use crate::progress::Progress;
use crate::record::Record;
use crate::{DataServerConfig, DataServerError};

/// Removed objects are remembered for so many nanoseconds: longer than any capability for them lives.
const REMOVED_FOR: u64 = 2 * 3600 * SECOND;
/// Bytes of a journal segment that are kept for a mark when the disk has no room for another segment.
const LAST_ROOM: usize = 4096;
/// Most removed objects that are remembered.
const REMOVED_MAX: usize = 1 << 18;

/// One data server. Flows share it by reference; nothing in it is borrowed across a wait.
pub struct Server<R: ServerRuntime> {
    pub rt: R,
    pub config: DataServerConfig,
    pub shell: Shell<R, DataServerError>,
    pub container: FileId,
    pub cache: Cache,
    pub flights: Flights,
    /// `None` with engine `memory`.
    pub journal: Option<Journal<R::Disk>>,
    pub table: RefCell<ObjectTable>,
    pub clients: RefCell<Clients>,
    pub grants: RefCell<Grants>,
    pub removed: RefCell<Removed>,
    pub progress: Progress,
    pub space: RefCell<SpaceState>,
    /// The disk had little free space when it was last looked at.
    pub disk_is_short: Cell<bool>,
    /// There is space to give back to the disk.
    pub reclaim: Event,
    /// The journal has become long enough for a checkpoint.
    pub checkpoint_due: Event,
}

/// What recovery hands to a server.
pub struct Foundation<D> {
    pub boot: u32,
    /// Of the engine `journal`.
    pub superblock: Option<Superblock>,
    pub container: FileId,
    pub journal: Option<Journal<D>>,
    pub table: ObjectTable,
    pub removed: Removed,
}

impl<R: ServerRuntime> Server<R> {
    pub fn new(rt: R, config: DataServerConfig, foundation: Foundation<R::Disk>) -> Rc<Server<R>> {
        let now = rt.now();
        let client = (ClientId(rt.random()), 1);
        let identity = Identity {
            server: config.server,
            name: config.name.clone(),
            map: config.map.clone(),
            boot: foundation.boot,
            engine: config.engine,
            durability: config.durability,
            trace: config.trace,
        };
        Rc::new(Server {
            shell: Shell::new(rt.clone(), identity, client, Introduction::new(foundation.superblock, config.meets_others)),
            container: foundation.container,
            cache: Cache::new(config.cache),
            flights: Flights::default(),
            journal: foundation.journal,
            table: RefCell::new(foundation.table),
            clients: RefCell::default(),
            grants: RefCell::new(Grants::new(config.key.clone())),
            removed: RefCell::new(foundation.removed),
            progress: Progress::default(),
            space: RefCell::new(SpaceState::new(now)),
            disk_is_short: Cell::new(false),
            reclaim: Event::new(),
            checkpoint_due: Event::new(),
            rt,
            config,
        })
    }

    /// Stops the server: no reply leaves any more that was not decided before.
    pub fn fail(&self, error: DataServerError) {
        self.shell.note_failure(error);
        for flow in [&self.progress.reached, &self.progress.work, &self.reclaim, &self.checkpoint_due] {
            flow.notify();
        }
    }

    pub fn has_stopped(&self) -> bool {
        self.shell.has_failed()
    }

    /// Checks the capability of a request.
    pub fn authorize(&self, capability: &Capability, handle: Handle, client: ClientId, rights: Rights) -> Result<()> {
        self.grants.borrow_mut().check(capability, handle, client, rights, self.rt.wall())
    }

    /// True if the object was removed: late writes must not bring it back.
    pub fn is_removed(&self, key: ObjectKey) -> bool {
        self.removed.borrow().keys.contains(&key)
    }

    /// Makes sure that the record can be appended to the journal and will be written even if the disk fills up. Changes that free
    /// space may use the last of the room.
    ///
    /// # Errors
    /// [`Status::NoSpace`], or [`Status::Io`] if the journal has failed.
    pub async fn make_room(&self, record: &ObjectRecord, frees_space: bool) -> Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        if !journal.has_room() && journal.ensure_room().await.is_err() {
            // The frame takes a header and padding besides its records, and a mark must still fit afterwards.
            let needed = (record_bytes_max(record) + LAST_ROOM) as u64;
            if !frees_space || journal.segment_bytes_left() < needed {
                return Err(Status::NoSpace);
            }
        }
        while !journal.accepts(record_bytes_max(record)) {
            journal.commit().await?;
        }
        Ok(())
    }

    /// True if the journal has no room beyond its current segment.
    pub fn is_short_of_room(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| !journal.has_room())
    }

    /// Freed runs of at least so many bytes are given back to the disk. When there is little room, every block counts: free places in the
    /// container may never have been written, and then need room on the disk.
    pub fn punch_bytes(&self) -> u64 {
        if self.is_short_of_room() || self.disk_is_short.get() { BLOCK_BYTES } else { self.config.punch_bytes }
    }

    /// True if the record may be given to [`Server::change`] now; else [`Server::make_room`] first and look at everything again.
    pub fn accepts(&self, record: &ObjectRecord) -> bool {
        let room = |journal: &Journal<R::Disk>| {
            let needed = (record_bytes_max(record) + LAST_ROOM) as u64;
            let enough = journal.has_room() || journal.segment_bytes_left() >= needed;
            enough && journal.accepts(record_bytes_max(record))
        };
        self.journal.as_ref().is_none_or(room)
    }

    /// Appends the record to the journal and makes it true. In one go: no other flow sees one without the other.
    pub fn change(&self, record: &ObjectRecord) {
        if let Some(journal) = &self.journal {
            journal.append_with(|out| Record::encode_object(record, out));
            self.progress.records.set(self.progress.records.get() + 1);
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

/// Objects that were removed lately. Handles are never used again, so nothing may be written under these names; but a client that
/// the metadata server has given up may still hold a capability.
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
