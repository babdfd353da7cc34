//! The files of a journal: segments that hold records, spare files that wait to become segments,
//! and whether the disk has room for more of them.

use bytes::BytesMut;
use weft_base::Payload;
use weft_rt::{Disk, DiskError, FileId};
use weft_store::Lsn;
use weft_store::journal::{MARK_BYTES, SegmentHeader, first_segment_for};

use super::{End, Inner, Journal};
use crate::room::Room;
use crate::{JournalError, names};

/// Allocated files that are kept for future segments; more are given back to the disk.
const SPARES_MAX: usize = 4;

/// What lies behind the end of a journal is compared and overwritten in pieces of so many bytes.
const TAIL_BYTES: u64 = 64 << 10;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    pub(crate) file: FileId,
}

/// A file `spare.<number>`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

impl<D: Disk> Journal<D> {
    /// Makes sure that the next commits find room on the disk, by keeping an allocated file for the
    /// next segment; in a journal that [`crate::JournalConfig::keeps_checkpoint_room`] beside that
    /// of the next checkpoint. To be asked before changes are made: refuse them on
    /// [`JournalError::NoSpace`], then no commit will ever meet a full disk.
    ///
    /// # Errors
    /// [`JournalError::NoSpace`] if there is no such room, [`JournalError::Disk`].
    pub async fn ensure_room(&self) -> Result<(), JournalError> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        if self.has_room() {
            return Ok(());
        }
        self.look_at_disk().await;
        self.give_spares_back().await?;
        let for_spare_bytes = {
            let mut inner = self.inner.borrow_mut();
            inner.keep_checkpoint_room();
            inner.spares.is_empty().then(|| inner.for_spare_bytes())
        };
        if let Some(bytes) = for_spare_bytes {
            self.allocate_spare(bytes).await?;
        }
        if self.has_room() { Ok(()) } else { Err(JournalError::NoSpace) }
    }

    /// True if [`Journal::ensure_room`] would answer at once that there is room.
    pub fn has_room(&self) -> bool {
        let inner = self.inner.borrow();
        inner.failed.is_none() && !inner.spares.is_empty() && (inner.room.is_kept || inner.has_checkpoint_room())
    }

    /// How much room there is, as far as the disk has been looked at.
    pub fn room(&self) -> Room {
        let bytes_left = self.segment_bytes_left();
        let inner = self.inner.borrow();
        let segment_bytes = inner.config.segment_bytes;
        if self.has_room() {
            Room::Plenty
        } else if inner.failed.is_none() && inner.lacks_segment_only() && bytes_left > segment_bytes / 2 {
            // Enough until a checkpoint has given segments back.
            Room::Plenty
        } else if bytes_left > segment_bytes / 4 {
            Room::Low
        } else {
            Room::None
        }
    }

    /// True if a checkpoint should be written for the room that it makes, in a journal that
    /// [`crate::JournalConfig::keeps_checkpoint_room`].
    pub fn wants_room(&self) -> bool {
        let inner = self.inner.borrow();
        if !inner.looks_after_room() {
            return false;
        }
        let frees_segments = inner.segments.len() > 1 && inner.lacks_segment_only();
        // The state is not written, or measured, again and again for little.
        let segment_bytes = inner.config.segment_bytes;
        let worth_bytes = (inner.room.state_bytes / 4).clamp(segment_bytes / 64, segment_bytes / 8);
        frees_segments || inner.is_short() && inner.room.grown_bytes >= worth_bytes
    }

    /// Bytes of the disk that are kept for the next checkpoint, so not for records.
    pub fn kept_bytes(&self) -> u64 {
        let inner = self.inner.borrow();
        if inner.config.keeps_checkpoint_room { inner.room.next_bytes() } else { 0 }
    }

    /// True if a checkpoint, written now and then, could make room although little was written
    /// since the last one: what that has removed may have been large.
    pub fn may_gain_room(&self) -> bool {
        let inner = self.inner.borrow();
        inner.looks_after_room() && inner.is_short() && inner.room.grown_bytes > 0
    }

    /// Bytes that still fit the segments that there are, for records that must be written although
    /// [`Journal::has_room`] says no.
    pub fn segment_bytes_left(&self) -> u64 {
        let inner = self.inner.borrow();
        let used_bytes = inner.writer.end_offset() + (inner.writer.pending_bytes() + MARK_BYTES) as u64;
        inner.spare_bytes() + inner.writer.segment_bytes().saturating_sub(used_bytes)
    }

    /// Gives the free bytes of the disk, and remembers them.
    pub(crate) async fn look_at_disk(&self) -> u64 {
        // A disk that cannot tell refuses what does not fit.
        let free_bytes = self.disk.space().await.map_or(u64::MAX / 4, |(_, free_bytes)| free_bytes);
        self.inner.borrow_mut().room.free_bytes = Some(free_bytes);
        free_bytes
    }

    /// Makes sure that there is a file for the next segment, of what is kept for a checkpoint if
    /// there is nothing else.
    pub(super) async fn ensure_spare(&self) -> Result<(), JournalError> {
        if self.inner.borrow().spares.is_empty() {
            let free_bytes = self.look_at_disk().await;
            self.allocate_spare(free_bytes).await?;
        }
        Ok(())
    }

    /// Keeps an allocated file for the next segment, of a disk that has so many bytes for it.
    ///
    /// # Errors
    /// [`JournalError::NoSpace`], [`JournalError::Disk`].
    pub(super) async fn allocate_spare(&self, free_bytes: u64) -> Result<(), JournalError> {
        let (number, sizes) = {
            let mut inner = self.inner.borrow_mut();
            inner.next_spare += 1;
            (inner.next_spare - 1, [inner.next_segment_bytes(), inner.config.segment_bytes])
        };
        // An attempt may fill the disk to the last block before it fails, and whoever is short of
        // room asks often.
        let Some(bytes) = sizes.into_iter().find(|bytes| *bytes <= free_bytes) else { return Err(JournalError::NoSpace) };
        let name = names::spare(number);
        let file = self.disk.open(&name, true).await.map_err(JournalError::during(format!("create {name}")))?;
        let allocated = self.disk.allocate(file, 0, bytes).await;
        self.disk.close(file);
        if let Err(error) = allocated {
            // Half an allocation would keep space from everybody else.
            self.disk.remove(&name).await.map_err(JournalError::during(format!("remove {name}")))?;
            return Err(JournalError::during(format!("allocate {name}"))(error));
        }
        let mut inner = self.inner.borrow_mut();
        assert!(inner.next_spare > number, "numbers of spare files are given out once");
        inner.spares.push(Spare { number, bytes });
        inner.room.took(bytes);
        inner.room.is_kept = true;
        Ok(())
    }

    /// Reserves again what an earlier life had reserved: in a copy of a store there is nothing
    /// behind what was never written. What finds no room is given up, so that
    /// [`Journal::ensure_room`] asks for it before it is needed.
    pub(super) async fn reserve_again(&self) -> Result<(), JournalError> {
        let (Segment { header, file }, end, bytes) = {
            let inner = self.inner.borrow();
            (*inner.current(), inner.writer.end_offset(), inner.writer.segment_bytes())
        };
        let failed = || JournalError::during(format!("reserve room for {}", names::segment(header.sequence)));
        match self.disk.allocate(file, 0, bytes).await {
            Err(DiskError::NoSpace) => {
                self.inner.borrow_mut().writer.end_segment();
                // Half of it would keep space from everybody else.
                let from = end + MARK_BYTES as u64;
                self.disk.punch(file, from, bytes.saturating_sub(from)).await.map_err(failed())?;
            }
            outcome => outcome.map_err(failed())?,
        }
        let spares = std::mem::take(&mut self.inner.borrow_mut().spares);
        for spare in spares {
            let name = names::spare(spare.number);
            let failed = || JournalError::during(format!("reserve room for {name}"));
            let file = self.disk.open(&name, false).await.map_err(failed())?;
            let reserved = self.disk.allocate(file, 0, spare.bytes).await;
            self.disk.close(file);
            match reserved {
                Err(DiskError::NoSpace) => self.disk.remove(&name).await.map_err(failed())?,
                outcome => outcome.map(|()| self.inner.borrow_mut().spares.push(spare)).map_err(failed())?,
            }
        }
        Ok(())
    }

    /// Turns to the next segment. Everything before is synced first, the new header before any
    /// frame.
    pub(super) async fn roll(&self) -> Result<(), JournalError> {
        self.ensure_spare().await?;
        let written = self.written_lsn();
        self.sync_through(written).await?;
        let header = {
            let mut inner = self.inner.borrow_mut();
            let salt = salt(inner.config.salt, inner.writer.segment().sequence + 1);
            let bytes = inner.spares.last().expect("there is room").bytes;
            inner.writer.roll(salt, bytes)
        };
        // From here on the writer points into the new segment: a failure is for good, even "no
        // space".
        self.begin_segment(header).await.map_err(|error| match error {
            JournalError::NoSpace => JournalError::Disk { action: "begin a journal segment".into(), error: DiskError::NoSpace },
            error => error,
        })
    }

    pub(super) async fn begin_segment(&self, header: SegmentHeader) -> Result<(), JournalError> {
        let name = names::segment(header.sequence);
        let failed = || JournalError::during(format!("begin {name}"));
        let spare = self.inner.borrow_mut().spares.pop().expect("ensure_room was asked before");
        self.disk.rename(&names::spare(spare.number), &name).await.map_err(failed())?;
        let file = self.disk.open(&name, false).await.map_err(failed())?;
        self.disk.write(file, 0, Payload::Real(header.encode())).await.map_err(failed())?;
        self.disk.sync(file).await.map_err(failed())?;
        let mut inner = self.inner.borrow_mut();
        inner.stats.syncs += 1;
        assert!(inner.segments.last().is_none_or(|last| last.header.sequence < header.sequence), "segments follow one another");
        inner.segments.push(Segment { header, file });
        Ok(())
    }

    /// Makes the rest of the newest segment what the writer expects: a mark, where there is room
    /// for one, and zeros. What else lies there (a torn frame, frames that a power cut has
    /// separated from those before, an earlier life of the file) must never be taken for a
    /// continuation of what is written from now on. The file was synced before it was checked, so
    /// zeros there are on stable storage.
    pub(super) async fn clear_behind(&self, end: End) -> Result<(), JournalError> {
        let (Segment { header, file }, mark) = {
            let inner = self.inner.borrow();
            (*inner.current(), inner.writer.mark(inner.durable))
        };
        let failed = || JournalError::during(format!("go on in {}", names::segment(header.sequence)));
        let (_, mark) = mark.unwrap_or_default();
        let mut is_changed = false;
        let mut at = end.offset;
        while at < end.file_bytes {
            let read = self.disk.read(file, at, TAIL_BYTES.min(end.file_bytes - at)).await;
            let found = read.map_err(failed())?.to_bytes();
            let mut wanted = BytesMut::zeroed(found.len());
            if at == end.offset {
                let len = mark.len().min(wanted.len());
                wanted[..len].copy_from_slice(&mark[..len]);
            }
            if found != wanted {
                let wanted = Payload::Real(wanted.freeze());
                self.disk.write(file, at, wanted).await.map_err(failed())?;
                is_changed = true;
            }
            at += TAIL_BYTES;
        }
        assert!(!end.is_marked || !mark.is_empty(), "what was found as a mark had room");
        if is_changed {
            self.disk.sync(file).await.map_err(failed())?;
        }
        self.inner.borrow_mut().is_marked = true;
        Ok(())
    }

    /// Removes spare files, down to one, while the next checkpoint would not fit if they were
    /// filled.
    pub(super) async fn give_spares_back(&self) -> Result<(), JournalError> {
        loop {
            let spare = {
                let mut inner = self.inner.borrow_mut();
                let wanted = inner.spares.len() <= 1 || inner.has_room_to_keep(0);
                if wanted { None } else { inner.spares.pop() }
            };
            let Some(Spare { number, bytes }) = spare else { return Ok(()) };
            let name = names::spare(number);
            self.disk.remove(&name).await.map_err(JournalError::during(format!("remove {name}")))?;
            self.inner.borrow_mut().room.gave(bytes);
        }
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
            assert!(keep_from < inner.segments.len(), "the segment that is written stays");
            inner.segments.drain(..keep_from).collect()
        };
        for segment in dropped {
            let name = names::segment(segment.header.sequence);
            let len = self.disk.len(segment.file).await.map_err(JournalError::during(format!("look at {name}")))?;
            self.disk.close(segment.file);
            let spare = {
                let mut inner = self.inner.borrow_mut();
                let fits = inner.spares.is_empty() || inner.spares.len() < SPARES_MAX && inner.has_room_to_keep(len);
                let wanted = inner.config.segment_sizes().contains(&len) && fits;
                inner.next_spare += u64::from(wanted);
                wanted.then(|| Spare { number: inner.next_spare - 1, bytes: len })
            };
            match spare {
                Some(spare) => {
                    self.disk.rename(&name, &names::spare(spare.number)).await.map_err(JournalError::during(format!("recycle {name}")))?;
                    self.inner.borrow_mut().spares.push(spare);
                }
                None => {
                    self.disk.remove(&name).await.map_err(JournalError::during(format!("remove {name}")))?;
                    self.inner.borrow_mut().room.gave(len);
                }
            }
        }
        self.give_spares_back().await
    }
}

impl Inner {
    /// True if the next checkpoint finds room, or none is kept for it.
    pub(crate) fn has_checkpoint_room(&self) -> bool {
        !self.config.keeps_checkpoint_room || self.room.free_bytes.is_some() && self.room.has_room_beside(0)
    }

    /// True if a checkpoint may be written for the room that it makes.
    fn looks_after_room(&self) -> bool {
        self.config.keeps_checkpoint_room && self.failed.is_none() && self.room.free_bytes.is_some()
    }

    /// True if there is hardly room for more than the next checkpoint.
    fn is_short(&self) -> bool {
        !self.room.has_room_beside(self.config.segment_bytes / 4)
    }

    /// What the disk has for another segment.
    fn for_spare_bytes(&self) -> u64 {
        let free_bytes = self.room.free_bytes.unwrap_or(0);
        if !self.config.keeps_checkpoint_room {
            return free_bytes;
        }
        // The records of a segment make the checkpoint larger, too: by less than they take
        // themselves, and removing what they made takes less still.
        let beside_bytes = self.room.room_bytes().saturating_sub(self.room.next_bytes());
        free_bytes.min(beside_bytes / 5 * 4)
    }

    fn spare_bytes(&self) -> u64 {
        self.spares.iter().map(|spare| spare.bytes).sum()
    }

    /// True if the next checkpoint fits even if the spare segments, and so many bytes more, are
    /// filled.
    pub(crate) fn has_room_to_keep(&self, more_bytes: u64) -> bool {
        !self.config.keeps_checkpoint_room || self.room.has_room_beside(self.spare_bytes() + more_bytes)
    }

    /// May the spare segments be filled? To be asked when the disk has been looked at.
    pub(crate) fn keep_checkpoint_room(&mut self) {
        self.room.is_kept = self.has_room_to_keep(0);
    }

    /// True if the disk has room for the checkpoint that is kept for it, but none for another
    /// segment beside, as far as it has been looked at.
    fn lacks_segment_only(&self) -> bool {
        let is_checkpoint_kept = self.config.keeps_checkpoint_room && self.has_checkpoint_room();
        is_checkpoint_kept && self.spares.is_empty() && self.for_spare_bytes() < self.config.segment_bytes
    }

    /// A journal that grows takes larger segments: each costs some syncs, and an idle server needs
    /// little room.
    fn next_segment_bytes(&self) -> u64 {
        let (sizes, unit) = (self.config.segment_sizes(), self.config.segment_bytes);
        (self.bytes_since_checkpoint / unit * unit).clamp(*sizes.start(), *sizes.end())
    }
}

/// The salt of a segment: a different one for every life of every file (finalizer of SplitMix64,
/// Steele et al. 2014).
pub(super) fn salt(random: u64, sequence: u64) -> u32 {
    let mut z = random.wrapping_add(sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) as u32
}
