//! The engines `db` and `dbpf`: yardsticks that keep what a server knows as rows of embedded
//! databases, as the modules ALT and DBPF of PVFS2 did (Kunkel 2006, chapters 3.3 and 5.5). The
//! state in memory is the same as that of the other engines; rows are written for every change and
//! read at a start.
//!
//! ```text
//!            turn: records ─┬─▶ tail, one frame ─(flush: `batch` now and then)      not: `db` under `sync`
//!                           └─▶ rows of databases, in memory ─▶ their files         each turn: `sync`
//!                                                               tail a quarter full: else
//! ```
//! The tail makes a record one change although it concerns several databases, and survives the
//! process. No database is written before the tail is flushed. A database on a full disk waits; the
//! tail is preallocated and takes the records meanwhile.

mod database;
mod databases;
mod image;
mod row;
mod tail;
mod told;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use weft_journal::{Journal, JournalError, JournalStats, Lsn};
use weft_namespace::{Change, Record};
use weft_rt::{Disk, Signal};
use weft_serving::ServingConfig;

use self::databases::Databases;
use self::tail::{TAIL_BYTES, Tail};
use super::{Engine, Room};
use crate::Durability;

pub(crate) use self::databases::Plan;
pub use self::told::{Row, each_row, tail_records};

/// A turn's records are written when they reach this many bytes.
const TURN_BYTES_MAX: usize = 512 << 10;

/// Databases and their tail.
#[derive(Debug)]
pub(crate) struct RowEngine<D: Disk>(Rc<Inner<D>>);

#[derive(Debug)]
struct Inner<D> {
    disk: D,
    plan: Plan,
    durability: Cell<Durability>,
    batch_interval_ns: u64,
    /// Whoever works with the files has them; the others wait.
    files: RefCell<Option<Files>>,
    /// Somebody has given the files back, or has failed.
    progress: Signal,
    pending: RefCell<Vec<Bytes>>,
    pending_bytes: Cell<usize>,
    last: Cell<Lsn>,
    written: Cell<Lsn>,
    durable: Cell<Lsn>,
    room: Cell<Room>,
    failure: RefCell<Option<JournalError>>,
    stats: Cell<JournalStats>,
}

#[derive(Debug)]
struct Files {
    databases: Databases,
    tail: Tail,
    /// The databases found no room: the tail has what they lack.
    is_full: bool,
}

impl Files {
    fn room(&self) -> Room {
        let used = self.tail.used_bytes();
        match () {
            () if used >= TAIL_BYTES / 4 * 3 => Room::None,
            () if used >= TAIL_BYTES / 2 => Room::Low,
            () => Room::Plenty,
        }
    }
}

impl<D> Clone for RowEngine<D>
where
    D: Disk,
{
    fn clone(&self) -> Self {
        RowEngine(Rc::clone(&self.0))
    }
}

impl<D: Disk> RowEngine<D> {
    /// An empty one.
    ///
    /// # Errors
    /// [`JournalError::NoSpaceToBegin`], [`JournalError::Disk`].
    pub(crate) async fn make(disk: &D, plan: Plan, config: &ServingConfig) -> Result<RowEngine<D>, JournalError> {
        let tail = Tail::make(disk).await?;
        let databases = Databases::make(disk, plan, config.server).await?;
        Ok(RowEngine::of(disk, plan, config, Files { databases, tail, is_full: false }))
    }

    /// That of an earlier life; `take` hears of everything in it.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if it cannot be trusted, [`JournalError::Disk`].
    pub(crate) async fn recover(
        disk: &D,
        plan: Plan,
        config: &ServingConfig,
        mut take: impl FnMut(Change),
    ) -> Result<RowEngine<D>, JournalError> {
        let mut databases = Databases::open(disk, plan, config.server, &mut take).await?;
        let (mut tail, records) = Tail::open(disk).await?;
        let (known, newest) = (databases.last, records.last().map_or(Lsn::NONE, |(last, _)| *last));
        if newest <= known {
            tail.is_void();
        } else {
            let (first, _) = records[0];
            if first > known.next() {
                return Err(JournalError::Damaged(format!("the tail begins with record {first}, the databases end with {known}")));
            }
            // From the first one on, since databases of objects may be ahead of what the server's
            // says.
            let mut again = Vec::with_capacity(records.len());
            for (_, record) in records {
                Record::decode(record.clone()).map_err(tail::damaged)?.changes.into_iter().for_each(&mut take);
                again.push(record);
            }
            databases.apply(disk, first, &again).await?;
        }
        Ok(RowEngine::of(disk, plan, config, Files { databases, tail, is_full: false }))
    }

    fn of(disk: &D, plan: Plan, config: &ServingConfig, files: Files) -> RowEngine<D> {
        let last = Cell::new(files.databases.last);
        RowEngine(Rc::new(Inner {
            room: Cell::new(files.room()),
            disk: disk.clone(),
            plan,
            durability: Cell::new(config.durability),
            batch_interval_ns: config.batch_interval_ns,
            files: RefCell::new(Some(files)),
            progress: Signal::new(),
            pending: RefCell::default(),
            pending_bytes: Cell::new(0),
            written: last.clone(),
            durable: last.clone(),
            last,
            failure: RefCell::default(),
            stats: Cell::default(),
        }))
    }

    /// Works with the files when nobody else does. An error but a full disk is the last one.
    async fn with_files<T>(&self, work: impl AsyncFnOnce(&Self, &mut Files) -> Result<T, JournalError>) -> Result<T, JournalError> {
        let mut files = loop {
            if let Some(error) = self.0.failure.borrow().clone() {
                return Err(error);
            }
            let free = self.0.files.borrow_mut().take();
            match free {
                Some(files) => break files,
                None => self.0.progress.wait().await,
            }
        };
        let result = work(self, &mut files).await;
        if let Err(error) = &result
            && *error != JournalError::NoSpace
        {
            self.0.failure.borrow_mut().get_or_insert(error.clone());
        }
        self.0.room.set(files.room());
        let accesses = std::mem::take(&mut files.databases.accesses);
        self.count(accesses.writes, accesses.bytes, accesses.syncs);
        *self.0.files.borrow_mut() = Some(files);
        self.0.progress.notify();
        result
    }

    fn count(&self, writes: u64, bytes: u64, syncs: u64) {
        let stats = self.0.stats.get();
        let (writes, bytes, syncs) = (stats.writes + writes, stats.bytes + bytes, stats.syncs + syncs);
        self.0.stats.set(JournalStats { writes, bytes, syncs, ..stats });
    }

    async fn write_tail(&self, files: &mut Files, first: Lsn, records: &[Bytes]) -> Result<(), JournalError> {
        let bytes = files.tail.write(&self.0.disk, first, records).await?;
        self.count(1, bytes, 0);
        if self.0.durability.get() == Durability::Sync { self.sync_tail(files).await } else { Ok(()) }
    }

    async fn sync_tail(&self, files: &mut Files) -> Result<(), JournalError> {
        let is_synced = files.tail.sync(&self.0.disk).await?;
        self.count(0, 0, u64::from(is_synced));
        Ok(())
    }

    /// Writes the pending records.
    async fn write(&self, files: &mut Files) -> Result<(), JournalError> {
        let records = self.0.pending.borrow().clone();
        if records.is_empty() {
            return Ok(());
        }
        let first = self.0.written.get().next();
        let (is_sync, last) = (self.0.durability.get() == Durability::Sync, Lsn(self.0.written.get().0 + records.len() as u64));
        let by_database = is_sync && self.0.plan == Plan::One && !files.is_full;
        if !by_database {
            self.write_tail(files, first, &records).await?;
        }
        // From here on they are taken; what the disk has no room for now waits in memory.
        self.0.pending.borrow_mut().drain(..records.len());
        let bytes: usize = records.iter().map(Bytes::len).sum();
        self.0.pending_bytes.set(self.0.pending_bytes.get() - bytes);
        files.databases.apply(&self.0.disk, first, &records).await?;
        self.0.written.set(last);
        let is_due = is_sync || files.databases.are_many() || files.tail.used_bytes() >= TAIL_BYTES / 4;
        let stored = if is_due && !files.is_full { self.store(files).await } else { Ok(()) };
        if by_database && stored == Err(JournalError::NoSpace) {
            self.write_tail(files, first, &records).await?;
        }
        if is_sync {
            self.0.durable.set(last);
        }
        match stored {
            Err(JournalError::NoSpace) => Ok(()),
            result => result,
        }
    }

    /// Brings databases to the disk: all of them if that is due, else those that nobody uses.
    async fn store(&self, files: &mut Files) -> Result<(), JournalError> {
        if self.0.durability.get() == Durability::Sync || files.tail.used_bytes() >= TAIL_BYTES / 4 {
            return self.store_all(files).await;
        }
        self.sync_tail(files).await?;
        let closed = files.databases.close_some(&self.0.disk).await;
        files.is_full = closed == Err(JournalError::NoSpace);
        closed
    }

    /// Brings all databases to the disk; then nobody needs the tail.
    async fn store_all(&self, files: &mut Files) -> Result<(), JournalError> {
        self.sync_tail(files).await?;
        let stored = files.databases.store(&self.0.disk).await;
        files.is_full = stored == Err(JournalError::NoSpace);
        stored?;
        files.tail.is_void();
        self.0.durable.set(self.0.written.get());
        files.databases.close_some(&self.0.disk).await
    }

    async fn wait_for(&self, reached: &Cell<Lsn>, lsn: Lsn) -> Result<(), JournalError> {
        while reached.get() < lsn {
            if let Some(error) = self.0.failure.borrow().clone() {
                return Err(error);
            }
            self.0.progress.wait().await;
        }
        Ok(())
    }
}

impl<D: Disk> Engine for RowEngine<D> {
    type Disk = D;

    fn append(&self, record: &[u8]) -> Lsn {
        self.0.pending.borrow_mut().push(Bytes::copy_from_slice(record));
        self.0.pending_bytes.set(self.0.pending_bytes.get() + record.len());
        self.0.last.set(self.0.last.get().next());
        let stats = self.0.stats.get();
        self.0.stats.set(JournalStats { records: stats.records + 1, ..stats });
        self.last()
    }
    fn last(&self) -> Lsn {
        self.0.last.get()
    }
    fn has_pending(&self) -> bool {
        self.0.pending_bytes.get() > 0
    }
    fn is_full(&self) -> bool {
        self.0.pending_bytes.get() >= TURN_BYTES_MAX
    }
    async fn commit(&self) -> Result<(), JournalError> {
        if !self.has_pending() {
            return Ok(());
        }
        self.with_files(async |this, files| this.write(files).await).await
    }
    async fn wait_committed(&self, lsn: Lsn) -> Result<(), JournalError> {
        let reached = if self.0.durability.get() == Durability::Sync { &self.0.durable } else { &self.0.written };
        self.wait_for(reached, lsn).await
    }
    async fn make_durable(&self, lsn: Lsn) -> Result<(), JournalError> {
        match self.0.durability.get() {
            Durability::Sync | Durability::Batch => self.sync_through(lsn).await,
            Durability::None => self.wait_for(&self.0.written, lsn).await,
        }
    }
    async fn sync_through(&self, lsn: Lsn) -> Result<(), JournalError> {
        self.wait_for(&self.0.written, lsn).await?;
        if self.0.durable.get() >= lsn {
            return Ok(());
        }
        self.with_files(async |this, files| {
            let written = this.0.written.get();
            this.sync_tail(files).await?;
            this.0.durable.set(written.max(this.0.durable.get()));
            Ok(())
        })
        .await
    }
    async fn promise(&self, durability: Durability) -> Result<(), JournalError> {
        // A commit works under one contract from its beginning to its end.
        self.with_files(async |this, _| {
            this.0.durability.set(durability);
            Ok(())
        })
        .await
    }
    fn flush_interval(&self) -> Option<u64> {
        (self.0.durability.get() == Durability::Batch).then_some(self.0.batch_interval_ns)
    }
    fn needs_flush(&self) -> bool {
        self.0.durable.get() < self.0.written.get()
    }
    fn room(&self) -> Room {
        self.0.room.get()
    }
    async fn ensure_room(&self) -> Result<(), JournalError> {
        self.with_files(async |this, files| if files.tail.used_bytes() > 0 || files.is_full { this.store_all(files).await } else { Ok(()) })
            .await
    }
    async fn rest(&self) -> Result<(), JournalError> {
        // Is there room again for what waits?
        let stored = self.with_files(async |this, files| if files.is_full { this.store_all(files).await } else { Ok(()) });
        match stored.await {
            Err(JournalError::NoSpace) => Ok(()),
            result => result,
        }
    }
    async fn bring_to_rest(&self) -> Result<(), JournalError> {
        self.commit().await?;
        let closed = self.with_files(async |this, files| {
            this.store_all(files).await?;
            files.databases.close(&this.0.disk).await
        });
        match closed.await {
            // The tail has what the databases lack.
            Err(JournalError::NoSpace) => self.with_files(async |this, files| this.sync_tail(files).await).await,
            result => result,
        }
    }
    fn journal(&self) -> Option<&Journal<D>> {
        None
    }
    fn stats(&self) -> JournalStats {
        self.0.stats.get()
    }
}
