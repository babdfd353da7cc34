//! The durable engine: a journal under one of three contracts.

use std::cell::Cell;
use std::rc::Rc;

use weft_journal::{Journal, JournalError, JournalStats, Lsn};
use weft_rt::Disk;
use weft_serving::ServingConfig;

use super::{Engine, Room};
use crate::{Durability, MetaServerConfig};

/// A turn's records are written when they reach this many bytes, even if more requests wait.
const TURN_BYTES_MAX: usize = 1 << 20;

/// A journal and when to flush it.
#[derive(Clone, Debug)]
pub(crate) struct JournalEngine<D: Disk> {
    journal: Journal<D>,
    durability: Rc<Cell<Durability>>,
    batch_interval_ns: u64,
    segment_bytes: u64,
    /// See [`crate::MetaServerConfig::flush_each`].
    flush_each: bool,
    /// The newest record when the engine was last asked to rest.
    seen: Rc<Cell<Lsn>>,
}

impl<D: Disk> JournalEngine<D> {
    pub(crate) fn new(journal: Journal<D>, config: &MetaServerConfig) -> JournalEngine<D> {
        let ServingConfig { durability, batch_interval_ns, journal_segment_bytes: segment_bytes, .. } = config.serving;
        let durability = Rc::new(Cell::new(durability));
        JournalEngine { journal, durability, batch_interval_ns, segment_bytes, flush_each: config.flush_each, seen: Rc::default() }
    }
}

impl<D: Disk> Engine for JournalEngine<D> {
    type Disk = D;

    fn append(&self, record: &[u8]) -> Lsn {
        self.journal.append(record)
    }
    fn last(&self) -> Lsn {
        self.journal.last_lsn()
    }
    fn has_pending(&self) -> bool {
        self.journal.pending_bytes() > 0
    }
    fn is_full(&self) -> bool {
        let alone = self.flush_each && self.durability.get() == Durability::Sync;
        let most = if alone { 1 } else { TURN_BYTES_MAX.min(self.segment_bytes as usize / 8) };
        self.journal.pending_bytes() >= most
    }
    async fn commit(&self) -> Result<(), JournalError> {
        let written = self.journal.commit().await?;
        match self.durability.get() {
            Durability::Sync => self.journal.sync_through(written).await,
            Durability::Batch | Durability::None => Ok(()),
        }
    }
    async fn wait_committed(&self, lsn: Lsn) -> Result<(), JournalError> {
        match self.durability.get() {
            Durability::Sync => self.journal.sync_through(lsn).await,
            Durability::Batch | Durability::None => self.journal.wait_written(lsn).await,
        }
    }
    async fn make_durable(&self, lsn: Lsn) -> Result<(), JournalError> {
        match self.durability.get() {
            Durability::Sync | Durability::Batch => self.journal.sync_through(lsn).await,
            Durability::None => self.journal.wait_written(lsn).await,
        }
    }
    async fn sync_through(&self, lsn: Lsn) -> Result<(), JournalError> {
        self.journal.sync_through(lsn).await
    }
    async fn promise(&self, durability: Durability) -> Result<(), JournalError> {
        self.durability.set(durability);
        Ok(())
    }
    fn flush_interval(&self) -> Option<u64> {
        match self.durability.get() {
            Durability::Batch => Some(self.batch_interval_ns),
            Durability::Sync | Durability::None => None,
        }
    }
    fn needs_flush(&self) -> bool {
        self.journal.durable_lsn() < self.journal.written_lsn()
    }
    fn room(&self) -> Room {
        self.journal.room()
    }
    async fn ensure_room(&self) -> Result<(), JournalError> {
        self.journal.ensure_room().await
    }
    async fn rest(&self) -> Result<(), JournalError> {
        let last = self.journal.last_lsn();
        if self.seen.replace(last) == last && self.journal.wants_mark() { self.journal.mark_end().await } else { Ok(()) }
    }
    async fn bring_to_rest(&self) -> Result<(), JournalError> {
        self.journal.bring_to_rest().await
    }
    fn journal(&self) -> Option<&Journal<D>> {
        Some(&self.journal)
    }
    fn stats(&self) -> JournalStats {
        self.journal.stats()
    }
}
