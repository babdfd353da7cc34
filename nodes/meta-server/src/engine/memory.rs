//! The engine that keeps nothing.

use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;

use weft_journal::{Journal, JournalError, JournalStats, Lsn};
use weft_rt::Disk;

use super::{Engine, Room};
use crate::Durability;

/// Counts records and forgets them.
#[derive(Debug)]
pub(crate) struct MemoryEngine<D> {
    last: Rc<Cell<u64>>,
    disk: PhantomData<D>,
}

impl<D> MemoryEngine<D> {
    pub(crate) fn new() -> MemoryEngine<D> {
        MemoryEngine { last: Rc::default(), disk: PhantomData }
    }
}

impl<D> Clone for MemoryEngine<D> {
    fn clone(&self) -> Self {
        MemoryEngine { last: Rc::clone(&self.last), disk: PhantomData }
    }
}

impl<D: Disk> Engine for MemoryEngine<D> {
    type Disk = D;

    fn append(&self, _: &[u8]) -> Lsn {
        self.last.set(self.last.get() + 1);
        self.last()
    }
    fn last(&self) -> Lsn {
        Lsn(self.last.get())
    }
    fn has_pending(&self) -> bool {
        false
    }
    fn is_full(&self) -> bool {
        false
    }
    async fn commit(&self) -> Result<(), JournalError> {
        Ok(())
    }
    async fn wait_committed(&self, _: Lsn) -> Result<(), JournalError> {
        Ok(())
    }
    async fn make_durable(&self, _: Lsn) -> Result<(), JournalError> {
        Ok(())
    }
    async fn sync_through(&self, _: Lsn) -> Result<(), JournalError> {
        Ok(())
    }
    async fn promise(&self, _: Durability) -> Result<(), JournalError> {
        Ok(())
    }
    fn flush_interval(&self) -> Option<u64> {
        None
    }
    fn needs_flush(&self) -> bool {
        false
    }
    fn room(&self) -> Room {
        Room::Plenty
    }
    async fn ensure_room(&self) -> Result<(), JournalError> {
        Ok(())
    }
    async fn rest(&self) -> Result<(), JournalError> {
        Ok(())
    }
    async fn bring_to_rest(&self) -> Result<(), JournalError> {
        Ok(())
    }
    fn journal(&self) -> Option<&Journal<D>> {
        None
    }
    fn stats(&self) -> JournalStats {
        JournalStats { records: self.last.get(), ..JournalStats::default() }
    }
}
