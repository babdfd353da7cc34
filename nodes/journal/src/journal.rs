//! The journal of a running server: append, commit, sync, and the life of segment files.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::BytesMut;
use weft_base::{FsId, Payload, ServerId};
use weft_rt::{Disk, Event, FaultPoint, FileId};
use weft_store::Lsn;
use weft_store::journal::{JournalWriter, SEGMENT_BYTES_DEFAULT, SegmentHeader, first_segment_for};

use crate::{JournalError, names};

/// Allocated files that are kept for future segments; more are given back to the disk.
const SPARES_MAX: usize = 4;

/// Bytes that are overwritten at once.
const ZERO_BYTES: usize = 1 << 20;

/// What a journal must know.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    /// The file system.
    pub fs_id: FsId,
    /// The server.
    pub server: ServerId,
    /// Size of new segments in bytes, at least 64 KiB. A frame (the records of one commit) must fit a segment.
    pub segment_bytes: u64,
    /// A random number; the salts of segments are derived from it.
    pub salt: u64,
    /// For a recovery: the machine has not restarted since the journal was written (the boot ids are the same), so nothing that was
    /// written can be missing, synced or not. What looks like the work of a power cut is damage then.
    pub same_boot: bool,
}

impl JournalConfig {
    /// With segments of the usual size.
    pub fn new(fs_id: FsId, server: ServerId, salt: u64) -> JournalConfig {
        JournalConfig { fs_id, server, segment_bytes: SEGMENT_BYTES_DEFAULT, salt, same_boot: false }
    }
}

/// Counters since the journal was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Records appended.
    pub records: u64,
    /// Frames written, one for each commit that had records.
    pub writes: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Flushes to stable storage.
    pub syncs: u64,
}

/// The journal. Cheap to clone: a handle for all flows of one server, on one thread.
///
/// Records are appended at once and written together by [`Journal::commit`]; several flows may wait for the same commit or sync.
#[derive(Clone, Debug)]
pub struct Journal<D> {
    pub(crate) disk: D,
    pub(crate) inner: Rc<RefCell<Inner>>,
    /// Something was written, synced, finished or failed.
    changed: Event,
}

#[derive(Debug)]
pub(crate) struct Inner {
    config: JournalConfig,
    writer: JournalWriter,
    /// The segments that hold records, oldest first; the last is the one that is written.
    pub(crate) segments: Vec<Segment>,
    /// Numbers of files that are allocated and wait to become segments.
    spares: Vec<u64>,
    next_spare: u64,
    written: Lsn,
    durable: Lsn,
    committing: bool,
    syncing: bool,
    failed: Option<JournalError>,
    stats: JournalStats,
    /// Number of the newest finished checkpoint, 0 if there is none.
    pub(crate) generation: u64,
    /// Bytes written since the newest checkpoint began.
    pub(crate) bytes_since_checkpoint: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    pub(crate) file: FileId,
}

/// What recovery or creation hands to a new journal.
pub(crate) struct Start {
    pub(crate) next_lsn: Lsn,
    pub(crate) sequence: u64,
    pub(crate) older: Vec<Segment>,
    /// Where the frames of the newest of these end, in bytes.
    pub(crate) last_end: Option<u64>,
    pub(crate) spares: Vec<u64>,
    pub(crate) generation: u64,
    pub(crate) bytes_since_checkpoint: u64,
}

impl<D: Disk> Journal<D> {
    /// Makes an empty journal in a directory that has none.
    ///
    /// # Errors
    /// [`JournalError::NoSpace`] or [`JournalError::Disk`]; left-over files are used by the next attempt.
    pub async fn create(disk: &D, config: JournalConfig) -> Result<Journal<D>, JournalError> {
        let listed = disk.list().await.map_err(JournalError::during("list the server's directory"))?;
        for (prefix, name) in [("journal", names::segment as fn(u64) -> String), ("checkpoint", names::checkpoint)] {
            for number in names::numbers(&listed, prefix) {
                disk.remove(&name(number)).await.map_err(JournalError::during(format!("remove {prefix}.{number}")))?;
            }
        }
        let spares = names::numbers(&listed, "spare");
        let start = Start {
            next_lsn: Lsn::FIRST,
            sequence: 1,
            older: Vec::new(),
            last_end: None,
            spares,
            generation: 0,
            bytes_since_checkpoint: 0,
        };
        Journal::start(disk, config, start).await
    }

    /// Begins a new segment behind what recovery found; goes on in the newest if the disk has no room for another.
    pub(crate) async fn start(disk: &D, config: JournalConfig, start: Start) -> Result<Journal<D>, JournalError> {
        assert!(config.segment_bytes >= 64 << 10, "a segment of {} bytes is too small", config.segment_bytes);
        let header = SegmentHeader {
            fs_id: config.fs_id,
            server_id: config.server,
            salt: salt(config.salt, start.sequence),
            sequence: start.sequence,
            first_lsn: start.next_lsn,
        };
        let inner = Inner {
            writer: JournalWriter::start(header, config.segment_bytes),
            config,
            segments: start.older,
            next_spare: start.spares.last().map_or(1, |last| last + 1),
            spares: start.spares,
            written: start.next_lsn.prev(),
            durable: start.next_lsn.prev(),
            committing: false,
            syncing: false,
            failed: None,
            stats: JournalStats::default(),
            generation: start.generation,
            bytes_since_checkpoint: start.bytes_since_checkpoint,
        };
        let is_new = inner.segments.is_empty();
        let journal = Journal { disk: disk.clone(), inner: Rc::new(RefCell::new(inner)), changed: Event::new() };
        match (journal.ensure_room().await, start.last_end) {
            (Err(JournalError::NoSpace), Some(end_offset)) => return journal.resume_segment(end_offset, start.next_lsn).await,
            (outcome, _) => outcome?,
        }
        journal.begin_segment(header).await?;
        match journal.ensure_room().await {
            // A restart on a full disk has taken the file that was kept for it: reading and removing go on, and whoever wants to
            // change more asks for room first.
            Err(JournalError::NoSpace) if !is_new => {}
            outcome => outcome?,
        }
        Ok(journal)
    }

    /// Appends a record (at most 16 MiB, and [`Journal::accepts`] it) to the open frame; the next commit writes it.
    pub fn append(&self, record: &[u8]) -> Lsn {
        self.append_with(|out| out.extend_from_slice(record))
    }

    /// Appends what `encode` writes as one record, without a copy. `encode` must only append.
    pub fn append_with(&self, encode: impl FnOnce(&mut BytesMut)) -> Lsn {
        let mut inner = self.inner.borrow_mut();
        inner.stats.records += 1;
        inner.writer.push_with(encode)
    }

    /// True if another record of so many bytes fits the open frame; if not, commit first.
    pub fn accepts(&self, record_bytes: usize) -> bool {
        self.inner.borrow().writer.accepts(record_bytes)
    }

    /// Bytes of the open frame.
    pub fn pending_bytes(&self) -> usize {
        self.inner.borrow().writer.pending_bytes()
    }

    /// Makes sure that the next commits find room on the disk, by keeping an allocated file for the next segment. To be asked before
    /// changes are made: refuse them on [`JournalError::NoSpace`], then no commit will ever meet a full disk.
    ///
    /// # Errors
    /// [`JournalError::NoSpace`] if there is no such file and the disk is full, [`JournalError::Disk`].
    pub async fn ensure_room(&self) -> Result<(), JournalError> {
        let (number, bytes) = {
            let mut inner = self.inner.borrow_mut();
            if let Some(error) = &inner.failed {
                return Err(error.clone());
            }
            if !inner.spares.is_empty() {
                return Ok(());
            }
            let number = inner.next_spare;
            inner.next_spare += 1;
            (number, inner.config.segment_bytes)
        };
        // Asked first: an attempt may fill the disk to the last block before it fails, and whoever is short of room asks often.
        if self.disk.space().await.is_ok_and(|(_, free)| free < bytes) {
            return Err(JournalError::NoSpace);
        }
        let name = names::spare(number);
        let file = self.disk.open(&name, true).await.map_err(JournalError::during(format!("create {name}")))?;
        let allocated = self.disk.allocate(file, 0, bytes).await;
        self.disk.close(file);
        if let Err(error) = allocated {
            // Half an allocation would keep space from everybody else.
            self.disk.remove(&name).await.map_err(JournalError::during(format!("remove {name}")))?;
            return Err(JournalError::during(format!("allocate {name}"))(error));
        }
        self.inner.borrow_mut().spares.push(number);
        Ok(())
    }

    /// True if [`Journal::ensure_room`] would answer at once that there is room.
    pub fn has_room(&self) -> bool {
        let inner = self.inner.borrow();
        inner.failed.is_none() && !inner.spares.is_empty()
    }

    /// Bytes that still fit the current segment, for records that must be written although [`Journal::has_room`] says no.
    pub fn segment_bytes_left(&self) -> u64 {
        let inner = self.inner.borrow();
        inner.config.segment_bytes.saturating_sub(inner.writer.end_offset() + inner.writer.pending_bytes() as u64)
    }

    /// Writes everything that was appended, as one frame; returns the newest record that is written. Flows that commit at the same time
    /// wait for each other.
    ///
    /// # Errors
    /// [`JournalError::NoSpace`]: nothing was written, the records still wait, try again. [`JournalError::Disk`]: for good.
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
                self.changed.wait()
            };
            changed.await;
        }
    }

    /// Brings the journal to stable storage at least through the record `lsn`, which somebody commits. One flush serves everybody who
    /// waits; commits go on meanwhile.
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
                    // Earlier segments were synced before this one began, so the file carries everything up to `target`.
                    inner.durable = inner.durable.max(target);
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
        inner.written = append.last_lsn;
        inner.stats.writes += 1;
        inner.stats.bytes += bytes;
        inner.bytes_since_checkpoint += bytes;
        Ok(append.last_lsn)
    }

    /// Turns to the next segment. Everything before is synced first, the new header before any frame.
    async fn roll(&self) -> Result<(), JournalError> {
        self.ensure_room().await?;
        let written = self.written_lsn();
        self.sync_through(written).await?;
        let header = {
            let mut inner = self.inner.borrow_mut();
            let salt = salt(inner.config.salt, inner.writer.segment().sequence + 1);
            inner.writer.roll(salt)
        };
        // From here on the writer points into the new segment: a failure is for good, even "no space".
        self.begin_segment(header).await.map_err(|error| match error {
            JournalError::NoSpace => JournalError::Disk { action: "begin a journal segment".into(), error: weft_rt::DiskError::NoSpace },
            error => error,
        })
    }

    async fn begin_segment(&self, header: SegmentHeader) -> Result<(), JournalError> {
        let name = names::segment(header.sequence);
        let failed = || JournalError::during(format!("begin {name}"));
        let spare = self.inner.borrow_mut().spares.pop().expect("ensure_room was asked before");
        self.disk.rename(&names::spare(spare), &name).await.map_err(failed())?;
        let file = self.disk.open(&name, false).await.map_err(failed())?;
        self.disk.write(file, 0, Payload::Real(header.encode())).await.map_err(failed())?;
        self.disk.sync(file).await.map_err(failed())?;
        let mut inner = self.inner.borrow_mut();
        inner.stats.syncs += 1;
        inner.segments.push(Segment { header, file });
        Ok(())
    }

    /// Goes on in the newest segment behind its last whole frame, which needs no room on the disk. What lies there (a torn frame, frames that a
    /// power cut has separated from those before) is overwritten first: it must never be taken for a continuation of what is written now.
    async fn resume_segment(self, end_offset: u64, next_lsn: Lsn) -> Result<Journal<D>, JournalError> {
        let (Segment { header, file }, segment_bytes) = {
            let inner = self.inner.borrow();
            (*inner.current(), inner.config.segment_bytes)
        };
        let name = names::segment(header.sequence);
        let failed = || JournalError::during(format!("go on in {name}"));
        if self.disk.len(file).await.map_err(failed())? != segment_bytes {
            // Made under another configuration: it ends where frames of today may not.
            return Err(JournalError::NoSpace);
        }
        let mut offset = end_offset;
        while offset < segment_bytes {
            let bytes = ZERO_BYTES.min((segment_bytes - offset) as usize);
            let zeros = Payload::Real(BytesMut::zeroed(bytes).freeze());
            self.disk.write(file, offset, zeros).await.map_err(failed())?;
            offset += bytes as u64;
        }
        self.disk.sync(file).await.map_err(failed())?;
        self.inner.borrow_mut().writer = JournalWriter::resume(header, segment_bytes, end_offset, next_lsn);
        Ok(self)
    }

    /// Turns segments that hold only records before `start_lsn` into spare files, or removes them.
    pub(crate) async fn drop_segments_before(&self, start_lsn: Lsn) -> Result<(), JournalError> {
        // A flush that began before the last roll may still hold its file.
        while self.inner.borrow().syncing {
            self.changed.wait().await;
        }
        let dropped: Vec<Segment> = {
            let mut inner = self.inner.borrow_mut();
            let headers: Vec<SegmentHeader> = inner.segments.iter().map(|segment| segment.header).collect();
            let keep_from = first_segment_for(&headers, start_lsn).unwrap_or(0);
            inner.segments.drain(..keep_from).collect()
        };
        for segment in dropped {
            let name = names::segment(segment.header.sequence);
            let len = self.disk.len(segment.file).await.map_err(JournalError::during(format!("look at {name}")))?;
            self.disk.close(segment.file);
            let spare = {
                let mut inner = self.inner.borrow_mut();
                let wanted = len == inner.config.segment_bytes && inner.spares.len() < SPARES_MAX;
                inner.next_spare += u64::from(wanted);
                wanted.then(|| inner.next_spare - 1)
            };
            match spare {
                Some(number) => {
                    self.disk.rename(&name, &names::spare(number)).await.map_err(JournalError::during(format!("recycle {name}")))?;
                    self.inner.borrow_mut().spares.push(number);
                }
                None => self.disk.remove(&name).await.map_err(JournalError::during(format!("remove {name}")))?,
            }
        }
        Ok(())
    }
}

impl Inner {
    fn current(&self) -> &Segment {
        self.segments.last().expect("a started journal has a segment")
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

/// The salt of a segment: a different one for every life of every file (finalizer of SplitMix64, Steele et al. 2014).
fn salt(random: u64, sequence: u64) -> u32 {
    let mut z = random.wrapping_add(sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) as u32
}
