//! The journal of a running server: append, commit, sync.

mod segments;

use std::cell::RefCell;
use std::rc::Rc;

use bytes::BytesMut;
use weft_base::{FsId, Payload, ServerId};
use weft_rt::{Disk, FaultPoint, Signal};
use weft_store::Lsn;
use weft_store::journal::{JournalWriter, SegmentHeader};

use self::segments::salt;
pub(crate) use self::segments::{Segment, Spare};
use crate::config::bytes_to_begin;
use crate::room::CheckpointRoom;
use crate::{JournalConfig, JournalError, JournalStats, names};

/// The journal. Cheap to clone: a handle for all flows of one server, on one thread.
///
/// Records are appended at once and written together by [`Journal::commit`]; several flows may wait
/// for the same commit or sync.
#[derive(Clone, Debug)]
pub struct Journal<D> {
    pub(crate) disk: D,
    pub(crate) inner: Rc<RefCell<Inner>>,
    /// Something was written, synced, finished or failed.
    changed: Signal,
}

#[derive(Debug)]
pub(crate) struct Inner {
    config: JournalConfig,
    writer: JournalWriter,
    /// The segments that hold records, oldest first; the last is the one that is written.
    pub(crate) segments: Vec<Segment>,
    /// Files that are allocated and wait to become segments.
    spares: Vec<Spare>,
    next_spare: u64,
    written: Lsn,
    durable: Lsn,
    /// A mark behind the last frame says that all records are durable.
    is_marked: bool,
    committing: bool,
    syncing: bool,
    failed: Option<JournalError>,
    stats: JournalStats,
    /// Number of the newest finished checkpoint, 0 if there is none.
    pub(crate) generation: u64,
    /// Bytes written since the newest checkpoint began.
    pub(crate) bytes_since_checkpoint: u64,
    pub(crate) room: CheckpointRoom,
}

/// The end of a journal that recovery found.
pub(crate) struct End {
    /// Where the frames of the newest segment end, in bytes.
    pub(crate) offset: u64,
    /// Length of its file.
    pub(crate) file_bytes: u64,
    pub(crate) is_marked: bool,
}

/// What recovery or creation hands to a new journal.
#[derive(Default)]
pub(crate) struct Start {
    pub(crate) next_lsn: Lsn,
    /// Of a segment that must be begun.
    pub(crate) sequence: u64,
    pub(crate) segments: Vec<Segment>,
    /// Where the newest of these goes on; `None` if there is none.
    pub(crate) end: Option<End>,
    pub(crate) spares: Vec<Spare>,
    pub(crate) generation: u64,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) bytes_since_checkpoint: u64,
}

impl<D: Disk> Journal<D> {
    /// Makes an empty journal in a directory that has none.
    ///
    /// # Errors
    /// [`JournalError::NoSpace`] or [`JournalError::Disk`]; left-over files are used by the next
    /// attempt.
    pub async fn create(disk: &D, config: JournalConfig) -> Result<Journal<D>, JournalError> {
        let listed = disk.list().await.map_err(JournalError::during("list the server's directory"))?;
        for (prefix, name) in [("journal", names::segment as fn(u64) -> String), ("checkpoint", names::checkpoint)] {
            for number in names::numbers(&listed, prefix) {
                disk.remove(&name(number)).await.map_err(JournalError::during(format!("remove {prefix}.{number}")))?;
            }
        }
        for number in names::numbers(&listed, "spare") {
            let name = names::spare(number);
            disk.remove(&name).await.map_err(JournalError::during(format!("remove {name}")))?;
        }
        config.check();
        let needed_bytes = bytes_to_begin(config.segment_bytes);
        if let Ok((_, free_bytes)) = disk.space().await
            && free_bytes < needed_bytes
        {
            return Err(JournalError::NoSpaceToBegin { needed_bytes, free_bytes });
        }
        let start = Start { next_lsn: Lsn::FIRST, sequence: 1, ..Start::default() };
        Journal::start(disk, config, start).await
    }

    /// Goes on behind the end that recovery found, or begins the first segment.
    pub(crate) async fn start(disk: &D, config: JournalConfig, start: Start) -> Result<Journal<D>, JournalError> {
        config.check();
        let segment_bytes = config.segment_bytes;
        let new = SegmentHeader {
            fs_id: config.fs_id,
            server_id: config.server,
            salt: salt(config.salt, start.sequence),
            sequence: start.sequence,
            first_lsn: start.next_lsn,
        };
        let writer = match (&start.end, start.segments.last()) {
            (Some(end), Some(newest)) => JournalWriter::resume(newest.header, segment_bytes, end.file_bytes, end.offset, start.next_lsn),
            _ => JournalWriter::start(new, segment_bytes),
        };
        let inner = Inner {
            writer,
            config,
            segments: start.segments,
            next_spare: start.spares.iter().map(|spare| spare.number + 1).max().unwrap_or(1),
            spares: start.spares,
            written: start.next_lsn.prev(),
            durable: start.next_lsn.prev(),
            is_marked: false,
            committing: false,
            syncing: false,
            failed: None,
            stats: JournalStats::default(),
            generation: start.generation,
            bytes_since_checkpoint: start.bytes_since_checkpoint,
            room: CheckpointRoom::new(start.checkpoint_bytes, start.bytes_since_checkpoint),
        };
        let journal = Journal { disk: disk.clone(), inner: Rc::new(RefCell::new(inner)), changed: Signal::new() };
        let Some(end) = start.end else {
            journal.ensure_spare().await?;
            journal.begin_segment(new).await?;
            journal.ensure_spare().await?;
            return Ok(journal);
        };
        journal.clear_behind(end).await?;
        journal.reserve_again().await?;
        match journal.ensure_room().await {
            // A restart on a full disk: reading and removing go on, and whoever wants to change
            // more asks for room first.
            Err(JournalError::NoSpace) => Ok(journal),
            outcome => outcome.map(|()| journal),
        }
    }

    /// Appends a record (at most 16 MiB, and [`Journal::accepts`] it) to the open frame; the next
    /// commit writes it.
    pub fn append(&self, record: &[u8]) -> Lsn {
        self.append_with(|out| out.extend_from_slice(record))
    }

    /// Appends what `encode` writes as one record, without a copy. `encode` must only append.
    pub fn append_with(&self, encode: impl FnOnce(&mut BytesMut)) -> Lsn {
        let mut inner = self.inner.borrow_mut();
        inner.stats.records += 1;
        let lsn = inner.writer.push_with(encode);
        assert!(lsn > inner.written, "a record is appended behind everything that is written");
        lsn
    }

    /// True if another record of so many bytes fits the open frame; if not, commit first.
    pub fn accepts(&self, record_bytes: usize) -> bool {
        self.inner.borrow().writer.accepts(record_bytes)
    }

    /// Bytes of the open frame.
    pub fn pending_bytes(&self) -> usize {
        self.inner.borrow().writer.pending_bytes()
    }

    /// True if everything is on stable storage and nothing behind the last frame says so yet.
    pub fn wants_mark(&self) -> bool {
        let inner = self.inner.borrow();
        !inner.is_marked && inner.rests()
    }

    /// Writes behind the last frame that everything is on stable storage, if it is and nothing is
    /// under way: then damage to that frame is not taken for a write that never ended. Worth it
    /// when nothing has come for a while, and at the end. The mark itself needs no sync.
    ///
    /// # Errors
    /// [`JournalError::Disk`], for good.
    pub async fn mark_end(&self) -> Result<(), JournalError> {
        let (file, mark) = {
            let mut inner = self.inner.borrow_mut();
            if inner.is_marked || !inner.rests() {
                return Ok(());
            }
            let Some(mark) = inner.writer.mark(inner.durable) else { return Ok(()) };
            // The next frame goes to the same place and must not be overtaken.
            inner.committing = true;
            (inner.current().file, mark)
        };
        let (offset, bytes) = mark;
        let result = self.disk.write(file, offset, Payload::Real(bytes)).await.map_err(JournalError::during("mark the end of the journal"));
        {
            let mut inner = self.inner.borrow_mut();
            inner.committing = false;
            inner.is_marked = result.is_ok();
            inner.note_failure(&result);
        }
        self.changed.notify();
        result
    }

    /// Before an orderly end: brings everything that was appended to stable storage, and the mark
    /// that says so.
    ///
    /// # Errors
    /// As [`Journal::commit`] and [`Journal::sync_through`].
    pub async fn bring_to_rest(&self) -> Result<(), JournalError> {
        self.commit().await?;
        self.sync().await?;
        self.mark_end().await?;
        let file = self.inner.borrow().current().file;
        self.disk.sync(file).await.map_err(JournalError::during("sync the journal"))
    }

    /// Writes everything that was appended, as one frame; returns the newest record that is
    /// written. Flows that commit at the same time wait for each other.
    ///
    /// # Errors
    /// [`JournalError::NoSpace`]: nothing was written, the records still wait, try again.
    /// [`JournalError::Disk`]: for good.
    pub async fn commit(&self) -> Result<Lsn, JournalError> {
        loop {
            let finished = {
                let mut inner = self.inner.borrow_mut();
                if let Some(error) = &inner.failed {
                    return Err(error.clone());
                }
                if !inner.committing {
                    if inner.writer.is_empty() {
                        return Ok(inner.written);
                    }
                    inner.committing = true;
                    break;
                }
                self.changed.wait()
            };
            finished.await;
        }
        let result = self.write_frame().await;
        {
            let mut inner = self.inner.borrow_mut();
            inner.committing = false;
            inner.note_failure(&result);
        }
        self.changed.notify();
        result
    }

    /// Waits until the record `lsn` is written (by somebody's commit).
    ///
    /// # Errors
    /// The failure that stopped the journal.
    pub async fn wait_written(&self, lsn: Lsn) -> Result<(), JournalError> {
        loop {
            let changed = {
                let inner = self.inner.borrow();
                if inner.written >= lsn {
                    return Ok(());
                }
                if let Some(error) = &inner.failed {
                    return Err(error.clone());
                }
                assert!(lsn < inner.writer.next_lsn(), "who waits for a record that nobody has appended waits for ever");
                self.changed.wait()
            };
            changed.await;
        }
    }

    /// Brings the journal to stable storage at least through the record `lsn`, which somebody
    /// commits. One flush serves everybody who waits; commits go on meanwhile.
    ///
    /// # Errors
    /// The failure that stopped the journal; after a failed flush nothing is trusted any more.
    pub async fn sync_through(&self, lsn: Lsn) -> Result<(), JournalError> {
        self.wait_written(lsn).await?;
        loop {
            let (file, target) = {
                let mut inner = self.inner.borrow_mut();
                if inner.durable >= lsn {
                    return Ok(());
                }
                if let Some(error) = &inner.failed {
                    return Err(error.clone());
                }
                if inner.syncing {
                    (None, lsn)
                } else {
                    inner.syncing = true;
                    (Some(inner.current().file), inner.written)
                }
            };
            let Some(file) = file else {
                self.changed.wait().await;
                continue;
            };
            let waited = weft_trace::span(weft_trace::event::JOURNAL_SYNC);
            let traced = weft_trace::span(weft_trace::event::DISK_SYNC);
            self.disk.pass(FaultPoint::JournalFlush).await;
            let result = self.disk.sync(file).await.map_err(JournalError::during("sync the journal"));
            drop((traced, waited));
            {
                let mut inner = self.inner.borrow_mut();
                inner.syncing = false;
                inner.stats.syncs += 1;
                inner.note_failure(&result);
                if result.is_ok() {
                    assert!(target <= inner.written, "only what is written becomes durable");
                    // Earlier segments were synced before this one began, so the file carries
                    // everything up to `target`.
                    inner.durable = inner.durable.max(target);
                    assert!(inner.durable >= lsn || target < lsn, "a flush covers what was written when it began");
                }
            }
            self.changed.notify();
        }
    }

    /// Brings everything that is written now to stable storage.
    ///
    /// # Errors
    /// As [`Journal::sync_through`].
    pub async fn sync(&self) -> Result<(), JournalError> {
        let written = self.written_lsn();
        self.sync_through(written).await
    }

    /// The newest appended record.
    pub fn last_lsn(&self) -> Lsn {
        self.inner.borrow().writer.next_lsn().prev()
    }

    /// The newest written record.
    pub fn written_lsn(&self) -> Lsn {
        self.inner.borrow().written
    }

    /// The newest record that is on stable storage.
    pub fn durable_lsn(&self) -> Lsn {
        self.inner.borrow().durable
    }

    /// What stopped the journal, if anything did.
    pub fn failure(&self) -> Option<JournalError> {
        self.inner.borrow().failed.clone()
    }

    /// Counters.
    pub fn stats(&self) -> JournalStats {
        self.inner.borrow().stats
    }

    /// Bytes that a recovery would have to replay now: written since the newest checkpoint began.
    pub fn bytes_since_checkpoint(&self) -> u64 {
        self.inner.borrow().bytes_since_checkpoint
    }

    /// True if that is much: as long as the newest checkpoint, and `least_bytes` at least. So over
    /// the life of a server its checkpoints are at most twice as many bytes as its journal, however
    /// large the state grows, and a recovery replays about as much as it reads of the checkpoint.
    pub fn is_long(&self, least_bytes: u64) -> bool {
        let inner = self.inner.borrow();
        inner.bytes_since_checkpoint >= least_bytes.max(inner.room.state_bytes)
    }

    pub(crate) fn identity(&self) -> (FsId, ServerId) {
        let inner = self.inner.borrow();
        (inner.config.fs_id, inner.config.server)
    }

    async fn write_frame(&self) -> Result<Lsn, JournalError> {
        while !self.inner.borrow().writer.fits() {
            self.roll().await?;
        }
        let (file, append) = {
            let mut inner = self.inner.borrow_mut();
            let durable = inner.durable;
            let append = inner.writer.seal(durable).expect("commit found records, and nobody else takes them");
            assert_eq!(append.sequence, inner.current().header.sequence, "the writer and the files agree on the segment");
            (inner.current().file, append)
        };
        let bytes = append.bytes.len() as u64;
        let waited = weft_trace::span(weft_trace::event::JOURNAL_COMMIT);
        let mut traced = weft_trace::span(weft_trace::event::DISK_WRITE);
        traced.range(append.offset, bytes);
        self.disk.pass(FaultPoint::JournalWrite).await;
        self.disk.write(file, append.offset, Payload::Real(append.bytes)).await.map_err(|error| JournalError::Disk {
            // The space was allocated, so even "no space" is a broken promise of the disk here.
            action: "write the journal".into(),
            error,
        })?;
        drop((traced, waited));
        let mut inner = self.inner.borrow_mut();
        assert!(append.last_lsn > inner.written, "a frame has records, behind those that are written");
        inner.written = append.last_lsn;
        inner.is_marked = false;
        inner.stats.writes += 1;
        inner.stats.bytes += bytes;
        inner.bytes_since_checkpoint += bytes;
        inner.room.grown_bytes += bytes;
        Ok(append.last_lsn)
    }
}

impl Inner {
    fn current(&self) -> &Segment {
        self.segments.last().expect("a started journal has a segment")
    }

    /// Everything is on stable storage, and nothing is under way.
    fn rests(&self) -> bool {
        self.failed.is_none() && !self.committing && self.writer.is_empty() && self.durable == self.written
    }

    fn note_failure<T>(&mut self, result: &Result<T, JournalError>) {
        if let Err(error) = result
            && *error != JournalError::NoSpace
            && self.failed.is_none()
        {
            self.failed = Some(error.clone());
        }
    }
}
