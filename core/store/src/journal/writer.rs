//! The writing end: where does the next frame go, and when must a new segment be begun?

use super::frame::{MARK_BYTES, encode_mark};
use super::{FRAME_ALIGN, FrameBuilder, Lsn, SEGMENT_HEADER_BYTES, SegmentHeader};
use bytes::{Bytes, BytesMut};

/// Keeps the place of a journal's writer. Records are pushed during a turn; at its end
/// [`Self::seal`] says what to write where:
///
/// ```
/// # use weft_base::{FsId, ServerId};
/// # use weft_store::journal::*;
/// # let header = SegmentHeader { fs_id: FsId(1), server_id: ServerId(0), salt: 1, sequence: 1, first_lsn: Lsn::FIRST };
/// # let next_salt = 2;
/// let mut writer = JournalWriter::start(header, SEGMENT_BYTES_DEFAULT); // the header block is written and synced
/// let lsn = writer.push(b"what was decided");
/// if !writer.fits() {
///     // Sync the old segment file, then write and sync this header at the beginning of the next one.
///     let next = writer.roll(next_salt, SEGMENT_BYTES_DEFAULT);
/// }
/// let append = writer.seal(Lsn::NONE).expect("a record waits");
/// // Write append.bytes at append.offset of segment append.sequence; after a sync, append.last_lsn is durable.
/// assert_eq!((append.offset, append.last_lsn), (4096, lsn));
/// ```
#[derive(Debug)]
pub struct JournalWriter {
    segment: SegmentHeader,
    /// Size of this segment.
    segment_bytes: u64,
    /// Size of the smallest segment: frames fit any.
    segment_bytes_min: u64,
    end_offset: u64,
    frame: FrameBuilder,
}

/// One write to a segment file.
#[derive(Clone, Debug)]
pub struct Append {
    /// Sequence number of the segment.
    pub sequence: u64,
    /// Where in the segment file, in bytes.
    pub offset: u64,
    /// What to write.
    pub bytes: Bytes,
    /// The newest record that it carries.
    pub last_lsn: Lsn,
}

impl JournalWriter {
    /// Begins with an empty segment of `segment_bytes` whose header the caller writes and syncs
    /// before any frame. Later segments may be larger, but not smaller.
    pub fn start(header: SegmentHeader, segment_bytes: u64) -> JournalWriter {
        assert!(segment_bytes > (SEGMENT_HEADER_BYTES + MARK_BYTES) as u64, "a segment needs room for frames");
        JournalWriter {
            segment: header,
            segment_bytes,
            segment_bytes_min: segment_bytes,
            end_offset: SEGMENT_HEADER_BYTES as u64,
            frame: FrameBuilder::new(header.first_lsn, 256 << 10),
        }
    }

    /// Goes on in a segment of `segment_bytes` whose frames end at `end_offset`, where nothing of
    /// this segment follows; the next record is `next_lsn`. Segments have at least
    /// `segment_bytes_min`, this one perhaps not: then the first frame goes into the next.
    pub fn resume(header: SegmentHeader, segment_bytes_min: u64, segment_bytes: u64, end_offset: u64, next_lsn: Lsn) -> JournalWriter {
        assert!(end_offset.is_multiple_of(FRAME_ALIGN as u64), "frames are aligned");
        let frame = FrameBuilder::new(next_lsn, 256 << 10);
        JournalWriter { segment_bytes, end_offset, frame, ..JournalWriter::start(header, segment_bytes_min) }
    }

    /// Appends a record to the open frame. Panics if the frame would not fit even an empty segment:
    /// ask [`Self::accepts`] first where records or turns may be large.
    pub fn push(&mut self, record: &[u8]) -> Lsn {
        self.push_with(|buf| buf.extend_from_slice(record))
    }

    /// Appends what `encode` writes as one record; see [`Self::push`].
    pub fn push_with(&mut self, encode: impl FnOnce(&mut BytesMut)) -> Lsn {
        let lsn = self.frame.push_with(encode);
        assert!(self.frame.frame_bytes() as u64 <= self.frame_bytes_max(), "a frame larger than a segment");
        lsn
    }

    /// True if the open frame with another record of `record_bytes` would still fit an empty
    /// segment. If not, seal first.
    pub fn accepts(&self, record_bytes: usize) -> bool {
        self.frame.frame_bytes_with(record_bytes) as u64 <= self.frame_bytes_max()
    }

    /// True if the open frame fits the current segment; else [`Self::roll`] before [`Self::seal`].
    pub fn fits(&self) -> bool {
        self.end_offset + (self.frame.frame_bytes() + MARK_BYTES) as u64 <= self.segment_bytes
    }

    /// What to write at the end of the frames when no record waits: that they end there, and that
    /// everything up to `durable_lsn` is on stable storage. The next frame takes its place. `None`
    /// if the segment has no room for it, as one of another configuration may.
    pub fn mark(&self, durable_lsn: Lsn) -> Option<(u64, Bytes)> {
        assert!(self.is_empty(), "what waits goes where the mark would");
        let mark = encode_mark(&self.segment, self.next_lsn(), durable_lsn);
        (self.end_offset + MARK_BYTES as u64 <= self.segment_bytes).then(|| (self.end_offset, Bytes::copy_from_slice(&mark)))
    }

    /// Size of the current segment in bytes.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// True if no record waits.
    pub fn is_empty(&self) -> bool {
        self.frame.is_empty()
    }

    /// Bytes that [`Self::seal`] would write now.
    pub fn pending_bytes(&self) -> usize {
        self.frame.frame_bytes()
    }

    /// The number that the next record gets.
    pub fn next_lsn(&self) -> Lsn {
        self.frame.next_lsn()
    }

    /// The current segment.
    pub fn segment(&self) -> &SegmentHeader {
        &self.segment
    }

    /// Bytes of the current segment that are used.
    pub fn end_offset(&self) -> u64 {
        self.end_offset
    }

    /// The current segment takes nothing more, not even a mark: the next frame goes into the next
    /// one.
    pub fn end_segment(&mut self) {
        self.segment_bytes = self.end_offset;
    }

    /// Turns to the next segment and returns its header. The caller syncs the old segment, then
    /// writes and syncs the new header, before it writes the next frame. Records that wait go into
    /// the new segment. `salt` is a fresh random number, `segment_bytes` the size of the new
    /// segment.
    pub fn roll(&mut self, salt: u32, segment_bytes: u64) -> SegmentHeader {
        assert!(segment_bytes >= self.segment_bytes_min, "a frame that was accepted fits the next segment");
        let first_lsn = Lsn(self.frame.next_lsn().0 - u64::from(self.frame.record_count()));
        self.segment = SegmentHeader { salt, sequence: self.segment.sequence + 1, first_lsn, ..self.segment };
        self.end_offset = SEGMENT_HEADER_BYTES as u64;
        self.segment_bytes = segment_bytes;
        self.segment
    }

    /// Seals the open frame; `None` if no record waits. `durable_lsn` is the newest record that a
    /// finished sync covers. Panics if the frame does not fit: see [`Self::fits`].
    pub fn seal(&mut self, durable_lsn: Lsn) -> Option<Append> {
        if self.is_empty() {
            return None;
        }
        assert!(self.fits(), "the segment is full: roll before sealing");
        let bytes = self.frame.finish(&self.segment, durable_lsn);
        let offset = self.end_offset;
        self.end_offset += bytes.len() as u64;
        Some(Append { sequence: self.segment.sequence, offset, bytes, last_lsn: self.frame.next_lsn().prev() })
    }

    fn frame_bytes_max(&self) -> u64 {
        self.segment_bytes_min - (SEGMENT_HEADER_BYTES + MARK_BYTES) as u64
    }
}
