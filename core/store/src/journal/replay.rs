//! Replay: the segments of a journal in order, with every rule of the module header checked between
//! them.

use super::frame::looks_like_frame;
use super::scan::{EndReason, scan};
use super::{FRAME_ALIGN, Lsn, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::header::HeaderError;
use std::fmt;
use weft_base::{FsId, ServerId};

/// Why a journal cannot be trusted. All of these stop the server: going on would silently drop
/// acknowledged records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// The segment belongs to another file system or server.
    Foreign {
        /// Sequence number from the file's name.
        sequence: u64,
        /// Whom the segment names.
        fs_id: FsId,
        /// Whom the segment names.
        server_id: ServerId,
    },
    /// A segment that holds frames has no readable header.
    Header {
        /// Sequence number from the file's name.
        sequence: u64,
        /// What is wrong with it.
        error: HeaderError,
    },
    /// Records are missing between two segments, or before the first one.
    Gap {
        /// The segment after the gap.
        sequence: u64,
        /// The record that should come next.
        expected: Lsn,
        /// The first record of that segment.
        found: Lsn,
    },
    /// Durable records within a segment are unreadable.
    Damage {
        /// Sequence number of the segment.
        sequence: u64,
        /// Byte offset of the first unreadable frame.
        offset: usize,
        /// The first record that is lost.
        lost: Lsn,
    },
    /// The journal ends before the record up to which the checkpoint needs it.
    MissingTail {
        /// The last record found.
        last: Lsn,
        /// The record that must be there.
        needed: Lsn,
    },
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Foreign { sequence, fs_id, server_id } => {
                write!(f, "journal segment {sequence} belongs to server {server_id} of file system {fs_id}")
            }
            ReplayError::Header { sequence, error } => write!(f, "journal segment {sequence} holds frames, but {error}"),
            ReplayError::Gap { sequence, expected, found } => {
                write!(f, "journal segment {sequence} begins with {found}, but {expected} should come next: a segment is missing")
            }
            ReplayError::Damage { sequence, offset, lost } => {
                write!(f, "journal segment {sequence} is damaged at byte {offset}: acknowledged records from {lost} on are unreadable")
            }
            ReplayError::MissingTail { last, needed } => write!(f, "the journal ends with {last}, but the checkpoint needs {needed}"),
        }
    }
}
impl std::error::Error for ReplayError {}

/// Index in `headers` (ascending sequence numbers) of the segment where a replay from `start_lsn`
/// begins: the last one that begins at or before it. Earlier segments can be recycled once the
/// checkpoint with this `start_lsn` is durable. `None` if there is none.
pub fn first_segment_for(headers: &[SegmentHeader], start_lsn: Lsn) -> Option<usize> {
    headers.partition_point(|header| header.first_lsn <= start_lsn).checked_sub(1)
}

/// Reads a journal segment by segment.
#[derive(Debug)]
pub struct Replay {
    fs_id: FsId,
    server_id: ServerId,
    start_lsn: Lsn,
    next_lsn: Option<Lsn>,
    /// Where the last segment with records ended: its sequence number and the byte offset.
    last_end: Option<(u64, usize)>,
    sequence_max: Option<u64>,
    end: EndReason,
    is_marked: bool,
}

/// Where a replay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayEnd {
    /// The number for the next record.
    pub next_lsn: Lsn,
    /// The sequence number for the next segment.
    pub next_sequence: u64,
    /// Where the frames of the last segment end that has any life: its sequence number and the
    /// offset in bytes.
    pub last_end: Option<(u64, u64)>,
    /// Why the last segment ended where it did; worth a line in the log unless it is
    /// [`EndReason::Clean`].
    pub end: EndReason,
    /// A mark at this end says that all records are on stable storage.
    pub is_marked: bool,
}

impl Replay {
    /// A replay of the journal of this server from record `start_lsn` on.
    pub fn new(fs_id: FsId, server_id: ServerId, start_lsn: Lsn) -> Replay {
        Replay { fs_id, server_id, start_lsn, next_lsn: None, sequence_max: None, last_end: None, end: EndReason::Clean, is_marked: false }
    }

    /// Takes the image of the next segment, in ascending order of `sequence` (the number in the
    /// file's name), and returns its records from `start_lsn` on. A preallocated or recycled file
    /// whose new header was never written has none.
    pub fn segment<'a>(&mut self, sequence: u64, bytes: &'a [u8]) -> Result<impl Iterator<Item = (Lsn, &'a [u8])> + use<'a>, ReplayError> {
        assert!(Some(sequence) > self.sequence_max, "segments are replayed in ascending order");
        self.sequence_max = Some(sequence);
        let records = match scan(bytes) {
            Ok(found) if found.header.sequence == sequence => {
                self.check(&found.header, found.next_lsn, found.end)?;
                self.next_lsn = Some(found.next_lsn);
                self.end = found.end;
                self.is_marked = found.is_marked;
                self.last_end = Some((sequence, found.end_offset));
                Some(found.records())
            }
            Ok(found) if found.header.sequence < sequence => {
                never_begun(sequence, bytes, HeaderError::OtherKind)?;
                None
            }
            Ok(_) => return Err(ReplayError::Header { sequence, error: HeaderError::OtherKind }),
            Err(error) => {
                never_begun(sequence, bytes, error)?;
                None
            }
        };
        let start_lsn = self.start_lsn;
        Ok(records.into_iter().flatten().skip_while(move |(lsn, _)| *lsn < start_lsn))
    }

    /// Where the frames of the last segment end that has any life: its sequence number and the
    /// offset in bytes.
    pub fn last_end(&self) -> Option<(u64, u64)> {
        self.last_end.map(|(sequence, offset)| (sequence, offset as u64))
    }

    /// Ends the replay. `needed_lsn` is the checkpoint's `end_lsn`: the journal must reach that far
    /// ([`ReplayError::MissingTail`]).
    pub fn finish(self, needed_lsn: Lsn) -> Result<ReplayEnd, ReplayError> {
        let next_lsn = self.next_lsn.unwrap_or(self.start_lsn);
        if next_lsn <= needed_lsn {
            return Err(ReplayError::MissingTail { last: next_lsn.prev(), needed: needed_lsn });
        }
        Ok(ReplayEnd {
            next_lsn,
            next_sequence: self.sequence_max.map_or(1, |newest| newest + 1),
            last_end: self.last_end(),
            end: self.end,
            is_marked: self.is_marked,
        })
    }

    fn check(&self, header: &SegmentHeader, next_lsn: Lsn, end: EndReason) -> Result<(), ReplayError> {
        let sequence = header.sequence;
        if (header.fs_id, header.server_id) != (self.fs_id, self.server_id) {
            return Err(ReplayError::Foreign { sequence, fs_id: header.fs_id, server_id: header.server_id });
        }
        let expected = self.next_lsn.unwrap_or(self.start_lsn.min(header.first_lsn));
        if header.first_lsn != expected {
            // A segment is begun only when the one before it is durable: what is missing at its end
            // was damaged.
            if let Some((before, offset)) = self.last_end
                && before + 1 == sequence
                && header.first_lsn > expected
            {
                return Err(ReplayError::Damage { sequence: before, offset, lost: expected });
            }
            return Err(ReplayError::Gap { sequence, expected, found: header.first_lsn });
        }
        match end {
            EndReason::DamageInside { offset, .. } | EndReason::OutOfOrder { offset } => {
                Err(ReplayError::Damage { sequence, offset, lost: next_lsn })
            }
            EndReason::Clean | EndReason::TornFrame { .. } | EndReason::LostUnsynced { .. } => Ok(()),
        }
    }
}

/// Accepts a segment without a header of its own only if it holds no frame either: headers are
/// durable before frames follow.
fn never_begun(sequence: u64, bytes: &[u8], error: HeaderError) -> Result<(), ReplayError> {
    let frames = bytes.get(SEGMENT_HEADER_BYTES..).unwrap_or_default();
    let holds_frames = (0..frames.len()).step_by(FRAME_ALIGN).any(|at| looks_like_frame(&frames[at..], sequence));
    if holds_frames || matches!(error, HeaderError::Version { .. } | HeaderError::Newer(_)) {
        return Err(ReplayError::Header { sequence, error });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Append, JournalWriter};
    use super::*;

    const FS: FsId = FsId(0xabc);
    const SERVER: ServerId = ServerId(1);

    /// A journal in memory: segment images by sequence number.
    struct Images {
        writer: JournalWriter,
        images: Vec<(u64, Vec<u8>)>,
        size: usize,
    }

    impl Images {
        fn new(size: usize) -> Images {
            let header = SegmentHeader { fs_id: FS, server_id: SERVER, salt: 1, sequence: 1, first_lsn: Lsn::FIRST };
            let mut images = Images { writer: JournalWriter::start(header, size as u64), images: Vec::new(), size };
            images.begin(header);
            images
        }

        fn begin(&mut self, header: SegmentHeader) {
            let mut image = header.encode().to_vec();
            image.resize(self.size, 0);
            self.images.push((header.sequence, image));
        }

        fn commit(&mut self, records: u64, durable: Lsn) -> Append {
            for _ in 0..records {
                let lsn = self.writer.next_lsn();
                self.writer.push(&lsn.0.to_le_bytes());
            }
            if !self.writer.fits() {
                let header = self.writer.roll(self.writer.segment().salt + 1, self.size as u64);
                self.begin(header);
            }
            let append = self.writer.seal(durable).expect("records wait");
            let (_, image) = self.images.last_mut().expect("one segment at least");
            image[append.offset as usize..][..append.bytes.len()].copy_from_slice(&append.bytes);
            append
        }

        fn replay(&self, start: Lsn, needed: Lsn) -> Result<(Vec<u64>, ReplayEnd), ReplayError> {
            let mut replay = Replay::new(FS, SERVER, start);
            let mut seen = Vec::new();
            for (sequence, image) in &self.images {
                for (lsn, record) in replay.segment(*sequence, image)? {
                    assert_eq!(record, lsn.0.to_le_bytes());
                    seen.push(lsn.0);
                }
            }
            Ok((seen, replay.finish(needed)?))
        }
    }

    fn filled() -> Images {
        let mut journal = Images::new(4096 + 512);
        let mut durable = Lsn::NONE;
        for _ in 0..20 {
            durable = journal.commit(3, durable).last_lsn;
        }
        assert_eq!(journal.images.len(), 4, "the test wants several segments");
        journal
    }

    #[test]
    fn records_come_back_in_order_over_segments() {
        let journal = filled();
        let (seen, end) = journal.replay(Lsn::FIRST, Lsn(60)).unwrap();
        assert_eq!(seen, (1..=60).collect::<Vec<_>>());
        let last_end = Some((journal.writer.segment().sequence, journal.writer.end_offset()));
        assert_eq!(end, ReplayEnd { next_lsn: Lsn(61), next_sequence: 5, last_end, end: EndReason::Clean, is_marked: false });
        let (seen, _) = journal.replay(Lsn(20), Lsn(60)).unwrap();
        assert_eq!(seen, (20..=60).collect::<Vec<_>>());
    }

    #[test]
    fn recycled_segments_are_not_missed() {
        let mut journal = filled();
        let headers: Vec<_> = journal.images.iter().map(|(_, image)| SegmentHeader::decode(image).unwrap()).collect();
        let first = first_segment_for(&headers, headers[2].first_lsn).unwrap();
        assert_eq!(first, 2);
        assert_eq!(first_segment_for(&headers, headers[2].first_lsn.prev()), Some(1));
        assert_eq!(first_segment_for(&headers, Lsn::NONE), None);
        let recycled = journal.images.drain(..first).next_back().unwrap().1;
        // The file got its new name, but the server stopped before it wrote the new header.
        journal.images.push((5, recycled));
        let (seen, end) = journal.replay(headers[2].first_lsn, Lsn(60)).unwrap();
        assert_eq!(seen, (headers[2].first_lsn.0..=60).collect::<Vec<_>>());
        assert_eq!(end.next_sequence, 6);
    }

    #[test]
    fn a_missing_segment_is_a_gap() {
        let mut journal = filled();
        let (_, removed) = journal.images.remove(1);
        let expected = SegmentHeader::decode(&removed).unwrap().first_lsn;
        assert!(matches!(journal.replay(Lsn::FIRST, Lsn(60)), Err(ReplayError::Gap { sequence: 3, expected: e, .. }) if e == expected));
        journal.images.remove(0);
        assert!(matches!(journal.replay(Lsn(5), Lsn(60)), Err(ReplayError::Gap { expected: Lsn(5), .. })));
    }

    #[test]
    fn a_foreign_segment_is_refused() {
        let mut journal = filled();
        let header = SegmentHeader { fs_id: FsId(9), ..SegmentHeader::decode(&journal.images[0].1).unwrap() };
        journal.images[0].1[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
        assert!(matches!(journal.replay(Lsn::FIRST, Lsn::NONE), Err(ReplayError::Foreign { sequence: 1, fs_id: FsId(9), .. })));
    }

    #[test]
    fn frames_below_a_lost_header_are_damage() {
        let mut journal = filled();
        let last = journal.images.len() - 1;
        journal.images[last].1[100] ^= 1;
        let error = HeaderError::Damaged;
        assert_eq!(journal.replay(Lsn::FIRST, Lsn::NONE).unwrap_err(), ReplayError::Header { sequence: 4, error });
        journal.images[last].1[SEGMENT_HEADER_BYTES..].fill(0);
        let (seen, end) = journal.replay(Lsn::FIRST, Lsn::NONE).unwrap();
        assert_eq!(end.next_sequence, 5);
        assert_eq!(end.next_lsn, Lsn(seen.len() as u64 + 1));
        assert!(journal.replay(Lsn::FIRST, Lsn(60)).is_err(), "the checkpoint needs the records");
    }

    #[test]
    fn damage_stops_the_replay() {
        let mut journal = filled();
        journal.images[1].1[SEGMENT_HEADER_BYTES + 60] ^= 4;
        assert!(matches!(journal.replay(Lsn::FIRST, Lsn::NONE), Err(ReplayError::Damage { sequence: 2, offset: 4096, .. })));
    }

    #[test]
    fn a_new_life_follows_a_torn_tail() {
        let mut journal = filled();
        let append = journal.commit(2, Lsn(60));
        let (_, image) = journal.images.last_mut().unwrap();
        image[append.offset as usize + 50] ^= 1;
        let (_, end) = journal.replay(Lsn::FIRST, Lsn(60)).unwrap();
        assert!(matches!(end.end, EndReason::TornFrame { .. }));
        assert_eq!(end.next_lsn, Lsn(61));
        let header = SegmentHeader { fs_id: FS, server_id: SERVER, salt: 99, sequence: end.next_sequence, first_lsn: end.next_lsn };
        journal.writer = JournalWriter::start(header, journal.size as u64);
        journal.begin(header);
        journal.commit(4, Lsn(60));
        let (seen, end) = journal.replay(Lsn::FIRST, Lsn(64)).unwrap();
        assert_eq!(seen, (1..=64).collect::<Vec<_>>());
        assert_eq!(end.end, EndReason::Clean);
    }

    #[test]
    fn behind_a_mark_no_byte_of_the_last_frame_changes_unnoticed() {
        let mut journal = filled();
        let append = journal.commit(3, Lsn(60));
        let (at, mark) = journal.writer.mark(append.last_lsn).expect("frames leave room for a mark");
        let image = &mut journal.images.last_mut().expect("one segment at least").1;
        image[at as usize..][..mark.len()].copy_from_slice(&mark);
        let whole = journal.replay(Lsn::FIRST, Lsn::NONE).expect("nothing is damaged");
        assert!(whole.1.is_marked && whole.1.end == EndReason::Clean && whole.1.next_lsn == Lsn(64));
        let frame = append.offset as usize..at as usize;
        for bit in frame.start * 8..(at as usize + mark.len()) * 8 {
            let flip = |journal: &mut Images| journal.images.last_mut().expect("one").1[bit / 8] ^= 1 << (bit % 8);
            flip(&mut journal);
            match journal.replay(Lsn::FIRST, Lsn::NONE) {
                Err(error) => {
                    assert_eq!(error, ReplayError::Damage { sequence: 5, offset: frame.start, lost: Lsn(61) }, "bit {bit}");
                    assert!(frame.contains(&(bit / 8)));
                }
                // Padding means nothing, and a mark that is damaged hides no record.
                Ok((seen, end)) => assert_eq!((seen.len(), end.next_lsn), (63, Lsn(64)), "bit {bit}"),
            }
            flip(&mut journal);
        }
    }
}
