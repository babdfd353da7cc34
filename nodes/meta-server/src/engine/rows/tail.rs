//! Records that are not yet in their databases on the disk: one preallocated file that is written
//! from its beginning again and again.
//!
//! ```text
//! frame = magic u32 │ crc32c u32 of what follows │ bytes u32 of the records │ first record u64 │ records (length u32, bytes)*
//! ```
//! Numbers are little-endian. What follows the last frame is zeros, or older frames of this life: a
//! frame counts only if its first record follows the last one of the frame before.

use bytes::Bytes;
use weft_base::{Status, crc32c};
use weft_journal::{JournalError, Lsn};
use weft_rt::{Disk, FileId};

/// Name of the file.
pub(crate) const TAIL_NAME: &str = "tail";
/// Its size in bytes: 8 times a full turn.
pub(crate) const TAIL_BYTES: u64 = 4 << 20;
const MAGIC: u32 = 0x4C41_5457;
const HEADER_BYTES: usize = 20;

/// The file.
#[derive(Debug)]
pub(crate) struct Tail {
    file: FileId,
    /// Where the next frame goes.
    end: u64,
    /// Something was written and not flushed.
    is_unsynced: bool,
}

impl Tail {
    /// A new, empty one.
    ///
    /// # Errors
    /// [`JournalError::NoSpaceToBegin`], [`JournalError::Disk`].
    pub(crate) async fn make<D: Disk>(disk: &D) -> Result<Tail, JournalError> {
        let failed = || JournalError::during("make the tail");
        let (_, free_bytes) = disk.space().await.map_err(failed())?;
        let needed_bytes = TAIL_BYTES + (1 << 20);
        if free_bytes < needed_bytes {
            return Err(JournalError::NoSpaceToBegin { needed_bytes, free_bytes });
        }
        let file = disk.open(TAIL_NAME, true).await.map_err(failed())?;
        // What a failed attempt has left is void.
        disk.set_len(file, 0).await.map_err(failed())?;
        disk.allocate(file, 0, TAIL_BYTES).await.map_err(failed())?;
        disk.sync(file).await.map_err(failed())?;
        Ok(Tail { file, end: 0, is_unsynced: false })
    }

    /// That of an earlier life, and its records with their numbers.
    ///
    /// # Errors
    /// [`JournalError::Disk`].
    pub(crate) async fn open<D: Disk>(disk: &D) -> Result<(Tail, Vec<(Lsn, Bytes)>), JournalError> {
        let failed = || JournalError::during(format!("read {TAIL_NAME}"));
        let file = disk.open(TAIL_NAME, false).await.map_err(failed())?;
        let bytes = disk.read(file, 0, TAIL_BYTES).await.map_err(failed())?.to_bytes();
        let (records, end) = records_of(&bytes);
        // Frames behind the end that a power cut has spared must never follow a new one.
        if bytes[end..].iter().any(|byte| *byte != 0) {
            disk.write(file, end as u64, vec![0; bytes.len() - end].into()).await.map_err(failed())?;
        }
        // A process that was killed has written what a power cut may still take.
        disk.sync(file).await.map_err(failed())?;
        Ok((Tail { file, end: end as u64, is_unsynced: false }, records))
    }

    /// Bytes that are taken.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.end
    }

    /// Writes records as one frame.
    ///
    /// # Errors
    /// [`JournalError::NoSpace`] if it is full, [`JournalError::Disk`].
    pub(crate) async fn write<D: Disk>(&mut self, disk: &D, first: Lsn, records: &[Bytes]) -> Result<u64, JournalError> {
        let frame = frame_of(first, records);
        let len = frame.len() as u64;
        if self.end + len > TAIL_BYTES {
            return Err(JournalError::NoSpace);
        }
        self.is_unsynced = true;
        disk.write(self.file, self.end, frame.into()).await.map_err(JournalError::during(format!("write {TAIL_NAME}")))?;
        self.end += len;
        Ok(len)
    }

    /// Flushes what was written. True if there was something.
    ///
    /// # Errors
    /// [`JournalError::Disk`].
    pub(crate) async fn sync<D: Disk>(&mut self, disk: &D) -> Result<bool, JournalError> {
        if !self.is_unsynced {
            return Ok(false);
        }
        disk.sync(self.file).await.map_err(JournalError::during(format!("flush {TAIL_NAME}")))?;
        self.is_unsynced = false;
        Ok(true)
    }

    /// The databases on the disk have all records: the next frame goes to the beginning.
    pub(crate) fn is_void(&mut self) {
        self.end = 0;
    }
}

/// The records of a tail with their numbers, and where its frames end.
pub(crate) fn records_of(bytes: &Bytes) -> (Vec<(Lsn, Bytes)>, usize) {
    let (mut end, mut records) = (0, Vec::<(Lsn, Bytes)>::new());
    while let Some((first, frame, len)) = frame_at(bytes, end) {
        if records.last().is_some_and(|(last, _)| last.next() != first) {
            break;
        }
        records.extend(frame.into_iter().enumerate().map(|(index, record)| (Lsn(first.0 + index as u64), record)));
        end += len;
    }
    (records, end)
}

fn frame_of(first: Lsn, records: &[Bytes]) -> Vec<u8> {
    let bytes: usize = records.iter().map(|record| record.len() + 4).sum();
    let mut frame = Vec::with_capacity(HEADER_BYTES + bytes);
    frame.extend(MAGIC.to_le_bytes());
    frame.extend([0; 4]);
    frame.extend((bytes as u32).to_le_bytes());
    frame.extend(first.0.to_le_bytes());
    for record in records {
        frame.extend((record.len() as u32).to_le_bytes());
        frame.extend_from_slice(record);
    }
    let crc = crc32c(&frame[8..]);
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
    frame
}

/// The frame at this place: its first record, its records, its length; `None` if there is none.
fn frame_at(bytes: &Bytes, at: usize) -> Option<(Lsn, Vec<Bytes>, usize)> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let len = HEADER_BYTES + word(at + 8)? as usize;
    let checked = bytes.get(at + 8..at.checked_add(len)?)?;
    if word(at)? != MAGIC || word(at + 4)? != crc32c(checked) {
        return None;
    }
    let first = u64::from_le_bytes(bytes[at + 12..at + HEADER_BYTES].try_into().ok()?);
    let (mut records, mut next) = (Vec::new(), at + HEADER_BYTES);
    while next < at + len {
        let record = word(next)? as usize;
        (record <= at + len - next - 4).then(|| records.push(bytes.slice(next + 4..next + 4 + record)))?;
        next += 4 + record;
    }
    (!records.is_empty()).then_some((Lsn(first), records, len))
}

/// For errors of records that make no sense.
pub(crate) fn damaged(status: Status) -> JournalError {
    JournalError::Damaged(format!("{TAIL_NAME}: a record is not understood: {status}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_whole_or_none() {
        let records = [Bytes::from_static(b"one"), Bytes::from_static(b""), Bytes::from_static(b"three")];
        let frame = frame_of(Lsn(7), &records);
        let read = |bytes: &[u8]| frame_at(&Bytes::copy_from_slice(bytes), 0);
        assert_eq!(read(&frame), Some((Lsn(7), records.to_vec(), frame.len())));
        for end in 0..frame.len() {
            assert_eq!(read(&frame[..end]), None, "cut at {end}");
            let mut changed = frame.clone();
            changed[end] ^= 1;
            assert_eq!(read(&changed), None, "changed at {end}");
        }
        assert_eq!(read(&[0; 64]), None);
    }
}
