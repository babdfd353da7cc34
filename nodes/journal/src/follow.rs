//! Reading what a running journal has on stable storage, as long as its segments are there.

use bytes::Bytes;
use weft_rt::Disk;
use weft_store::Lsn;
use weft_store::journal::{FRAME_HEADER_BYTES, FrameAt, SEGMENT_HEADER_BYTES, SegmentHeader, frame_at};

use crate::journal::Journal;
use crate::{JournalError, names};

/// Bytes that are read at once.
const PIECE_BYTES: u64 = 256 << 10;
/// No frame is longer: a record of 16 MiB, and a full turn before it.
const FRAME_BYTES_MAX: usize = 32 << 20;

/// Where a reader is: a hint, which is looked at before it is believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadPlace {
    /// The segment.
    pub sequence: u64,
    /// Bytes from its beginning to the frame with the next record.
    pub offset: u64,
}

/// Records of a journal, in order.
#[derive(Clone, Debug)]
pub struct Followed {
    /// At most some hundred KiB, or one frame.
    pub records: Vec<(Lsn, Bytes)>,
    /// All records up to this one were given, now or before.
    pub until: Lsn,
    /// Where it goes on.
    pub place: ReadPlace,
}

impl<D: Disk> Journal<D> {
    /// Records behind `after` that are on stable storage, a piece of them. `None`: the journal does
    /// not have the next one any more, since a checkpoint has made its segment unnecessary.
    ///
    /// # Errors
    /// [`JournalError::Disk`].
    pub async fn follow(&self, after: Lsn, place: ReadPlace) -> Result<Option<Followed>, JournalError> {
        let durable = self.durable_lsn();
        let mut followed = Followed { records: Vec::new(), until: after, place };
        while followed.until < durable && followed.records.is_empty() {
            let Some(header) = self.segment_of(followed.until.next()) else { return Ok(None) };
            if followed.place.sequence != header.sequence {
                followed.place = ReadPlace { sequence: header.sequence, offset: SEGMENT_HEADER_BYTES as u64 };
            }
            let name = names::segment(header.sequence);
            let (before, begun_at) = (followed.until, followed.place.offset);
            // Opened anew: whoever drops the segment meanwhile closes only its own.
            let read = match self.disk.open(&name, false).await {
                Ok(file) => {
                    let read = self.read_frames(file, &header, durable, &mut followed).await;
                    self.disk.close(file);
                    read
                }
                Err(error) => Err(error),
            };
            match read.map_err(JournalError::during(format!("follow {name}"))) {
                // Dropped meanwhile, and perhaps begun anew.
                _ if self.segment_of(before.next()).is_none_or(|now| now.sequence != header.sequence) => return Ok(None),
                Err(error) => return Err(error),
                // The hint was wrong: from the beginning of the segment.
                Ok(()) if followed.until == before && begun_at > SEGMENT_HEADER_BYTES as u64 => {
                    followed.place = ReadPlace::default();
                }
                Ok(()) if followed.until == before => {
                    return Err(JournalError::Damaged(format!("{name} does not have record {}", before.next())));
                }
                Ok(()) => {}
            }
        }
        Ok(Some(followed))
    }

    /// The segment that has, or had, this record, if it was not dropped.
    fn segment_of(&self, lsn: Lsn) -> Option<SegmentHeader> {
        let inner = self.inner.borrow();
        inner.segments.iter().rev().map(|segment| segment.header).find(|header| header.first_lsn <= lsn)
    }

    /// Reads frames until there are records, or no frames.
    async fn read_frames(
        &self,
        file: weft_rt::FileId,
        header: &SegmentHeader,
        durable: Lsn,
        followed: &mut Followed,
    ) -> Result<(), weft_rt::DiskError> {
        let mut len = PIECE_BYTES;
        while followed.records.is_empty() {
            let bytes = self.disk.read(file, followed.place.offset, len).await?.to_bytes();
            let mut at = 0;
            loop {
                match frame_at(&bytes[at.min(bytes.len())..], header) {
                    // A hint leads to the frame with the next record, or before it.
                    FrameAt::Whole { first, .. } if first > followed.until.next() || first > durable => return Ok(()),
                    FrameAt::Whole { records, bytes: frame, .. } => {
                        for (lsn, record) in records {
                            if lsn > followed.until {
                                followed.records.push((lsn, Bytes::copy_from_slice(record)));
                                followed.until = lsn;
                            }
                        }
                        at += frame;
                    }
                    FrameAt::Longer { bytes: frame } if at == 0 && frame > len as usize && frame <= FRAME_BYTES_MAX => {
                        len = frame as u64;
                        break;
                    }
                    FrameAt::Longer { .. } if at > 0 => break,
                    // A piece may end within a header, which says nothing then.
                    FrameAt::Longer { .. } | FrameAt::Nothing if at + FRAME_HEADER_BYTES <= bytes.len() || at == 0 => {
                        followed.place.offset += at as u64;
                        return Ok(());
                    }
                    FrameAt::Longer { .. } | FrameAt::Nothing => break,
                }
            }
            followed.place.offset += at as u64;
        }
        Ok(())
    }
}
