//! One frame: the records of one group commit behind a checked header.

use super::{FRAME_ALIGN, Lsn, SegmentHeader};
use crate::RECORD_BYTES_MAX;
use crate::codec::{Reader, take_record};
use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 48;

/// Bytes of a mark: a frame header and nothing behind it.
pub const MARK_BYTES: usize = FRAME_HEADER_BYTES;

pub(super) const MAGIC: u32 = u32::from_le_bytes(*b"WFRM");
const RECORD_HEADER_BYTES: usize = 4;

/// Collects records and seals them into one frame. The buffer is used again as soon as the
/// [`Bytes`] of earlier frames are dropped.
#[derive(Debug)]
pub struct FrameBuilder {
    buf: BytesMut,
    next_lsn: Lsn,
    record_count: u32,
}

impl FrameBuilder {
    /// A builder whose first record gets `next_lsn`, with room for `capacity_bytes` before it must
    /// allocate.
    pub fn new(next_lsn: Lsn, capacity_bytes: usize) -> FrameBuilder {
        FrameBuilder { buf: BytesMut::with_capacity(capacity_bytes), next_lsn, record_count: 0 }
    }

    /// Appends a record of at most [`RECORD_BYTES_MAX`] bytes (panics above) and returns its
    /// number.
    pub fn push(&mut self, record: &[u8]) -> Lsn {
        self.push_with(|buf| buf.put_slice(record))
    }

    /// Appends what `encode` writes as one record, without a copy. `encode` only appends. Panics
    /// above [`RECORD_BYTES_MAX`] bytes.
    pub fn push_with(&mut self, encode: impl FnOnce(&mut BytesMut)) -> Lsn {
        if self.record_count == 0 {
            self.buf.put_bytes(0, FRAME_HEADER_BYTES);
        }
        let start = self.buf.len();
        self.buf.put_u32_le(0);
        encode(&mut self.buf);
        let len = self.buf.len() - start - RECORD_HEADER_BYTES;
        assert!(len <= RECORD_BYTES_MAX, "a journal record of {len} bytes is larger than the format allows");
        self.buf[start..start + RECORD_HEADER_BYTES].copy_from_slice(&(len as u32).to_le_bytes());
        self.record_count += 1;
        let lsn = self.next_lsn;
        self.next_lsn = lsn.next();
        lsn
    }

    /// True if no record waits.
    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Number of waiting records.
    pub fn record_count(&self) -> u32 {
        self.record_count
    }

    /// The number that the next record will get.
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// Size in bytes of the frame that [`Self::finish`] would return now; 0 if it is empty.
    pub fn frame_bytes(&self) -> usize {
        self.buf.len().next_multiple_of(FRAME_ALIGN)
    }

    /// Size in bytes of the frame if a record of `record_bytes` were pushed as well.
    pub fn frame_bytes_with(&self, record_bytes: usize) -> usize {
        let before = if self.is_empty() { FRAME_HEADER_BYTES } else { self.buf.len() };
        (before + RECORD_HEADER_BYTES + record_bytes).next_multiple_of(FRAME_ALIGN)
    }

    /// Seals the waiting records (at least one, else it panics) into a frame of `segment`.
    /// `durable_lsn` is the newest record known to be on stable storage at this moment,
    /// [`Lsn::NONE`] if none is.
    pub fn finish(&mut self, segment: &SegmentHeader, durable_lsn: Lsn) -> Bytes {
        assert!(self.record_count > 0, "an empty frame would carry no number");
        let header = FrameHeader {
            first_lsn: Lsn(self.next_lsn.0 - u64::from(self.record_count)),
            durable_lsn,
            record_count: self.record_count,
            payload_bytes: u32::try_from(self.buf.len() - FRAME_HEADER_BYTES).expect("a frame fits a segment, far below 4 GiB"),
            payload_crc: weft_base::crc32c(&self.buf[FRAME_HEADER_BYTES..]),
        };
        assert!(durable_lsn < header.first_lsn, "a record cannot be durable before it is written");
        let bytes = header.encode(segment);
        self.buf[..FRAME_HEADER_BYTES].copy_from_slice(&bytes);
        let padding = self.frame_bytes() - self.buf.len();
        self.buf.put_bytes(0, padding);
        self.record_count = 0;
        self.buf.split().freeze()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) first_lsn: Lsn,
    pub(super) durable_lsn: Lsn,
    pub(super) record_count: u32,
    pub(super) payload_bytes: u32,
    payload_crc: u32,
}

/// What lies at a position of a segment.
pub(super) enum FrameRead {
    /// A whole frame that passed its checksums.
    Whole { header: FrameHeader, end: usize },
    /// A frame without records: the writer rested here.
    Mark { header: FrameHeader },
    /// Something that begins like a frame of this segment, but is torn or damaged.
    Broken,
    /// Nothing of this segment.
    Absent,
}

/// A mark for the end of `segment`: the next record is `next_lsn`, and everything up to
/// `durable_lsn` is on stable storage. The next frame is written over it.
pub(super) fn encode_mark(segment: &SegmentHeader, next_lsn: Lsn, durable_lsn: Lsn) -> [u8; MARK_BYTES] {
    assert!(durable_lsn < next_lsn, "a record cannot be durable before it is written");
    let payload_crc = weft_base::crc32c(&[]);
    FrameHeader { first_lsn: next_lsn, durable_lsn, record_count: 0, payload_bytes: 0, payload_crc }.encode(segment)
}

impl FrameHeader {
    fn encode(&self, segment: &SegmentHeader) -> [u8; FRAME_HEADER_BYTES] {
        let mut out = [0u8; FRAME_HEADER_BYTES];
        let mut fields = &mut out[8..];
        fields.put_u64_le(segment.sequence);
        fields.put_u64_le(self.first_lsn.0);
        fields.put_u64_le(self.durable_lsn.0);
        fields.put_u32_le(self.record_count);
        fields.put_u32_le(self.payload_bytes);
        fields.put_u32_le(self.payload_crc);
        let crc = weft_base::crc32c_append(segment.salt, &out[8..]);
        out[..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header at the beginning of `bytes` if it passes its checksum and belongs to `segment`.
    pub(super) fn decode(bytes: &[u8], segment: &SegmentHeader) -> Option<FrameHeader> {
        let mut fields = Reader::new(bytes.get(..FRAME_HEADER_BYTES)?);
        if fields.u32()? != MAGIC || fields.u32()? != weft_base::crc32c_append(segment.salt, &bytes[8..FRAME_HEADER_BYTES]) {
            return None;
        }
        if fields.u64()? != segment.sequence {
            return None;
        }
        Some(FrameHeader {
            first_lsn: Lsn(fields.u64()?),
            durable_lsn: Lsn(fields.u64()?),
            record_count: fields.u32()?,
            payload_bytes: fields.u32()?,
            payload_crc: fields.u32()?,
        })
    }

    /// The number after the last record; of a mark, that of the next record. `None` if the header
    /// is nonsense.
    pub(super) fn next_lsn(&self) -> Option<Lsn> {
        let next = self.first_lsn.0.checked_add(u64::from(self.record_count))?;
        (self.first_lsn >= Lsn::FIRST).then_some(Lsn(next))
    }
}

/// True if `bytes` begin with the unprotected signs of a frame of segment `sequence`: magic and
/// sequence number.
pub(super) fn looks_like_frame(bytes: &[u8], sequence: u64) -> bool {
    let mut fields = Reader::new(bytes);
    fields.u32() == Some(MAGIC) && fields.u32().is_some() && fields.u64() == Some(sequence)
}

/// Reads the frame at `offset` of the segment image `bytes`.
pub(super) fn read_frame(bytes: &[u8], offset: usize, segment: &SegmentHeader) -> FrameRead {
    let Some(rest) = bytes.get(offset..) else { return FrameRead::Absent };
    let Some(header) = FrameHeader::decode(rest, segment) else {
        return if looks_like_frame(rest, segment.sequence) { FrameRead::Broken } else { FrameRead::Absent };
    };
    if header.record_count == 0 && header.payload_bytes == 0 {
        return FrameRead::Mark { header };
    }
    let payload = rest[FRAME_HEADER_BYTES..].get(..header.payload_bytes as usize);
    match payload {
        Some(payload) if weft_base::crc32c(payload) == header.payload_crc && records_fill(payload, header.record_count) => {
            let end = (offset + FRAME_HEADER_BYTES + payload.len()).next_multiple_of(FRAME_ALIGN);
            FrameRead::Whole { header, end }
        }
        _ => FrameRead::Broken,
    }
}

/// True if `payload` consists of exactly `count` records.
fn records_fill(payload: &[u8], count: u32) -> bool {
    let mut reader = Reader::new(payload);
    (0..count).all(|_| take_record(&mut reader).is_some()) && reader.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::{FsId, ServerId};

    fn segment() -> SegmentHeader {
        SegmentHeader { fs_id: FsId(1), server_id: ServerId(0), salt: 9, sequence: 2, first_lsn: Lsn(1) }
    }

    #[test]
    fn sizes_are_told_before_sealing() {
        let mut builder = FrameBuilder::new(Lsn::FIRST, 0);
        assert_eq!(builder.frame_bytes(), 0);
        assert_eq!(builder.frame_bytes_with(3), 56);
        assert_eq!(builder.push(b"abc"), Lsn(1));
        assert_eq!(builder.frame_bytes(), 56);
        assert_eq!(builder.frame_bytes_with(6), 72);
        assert_eq!(builder.push(b"sixsix"), Lsn(2));
        assert_eq!(builder.finish(&segment(), Lsn::NONE).len(), 72);
        assert!(builder.is_empty());
        assert_eq!(builder.next_lsn(), Lsn(3));
    }

    #[test]
    fn the_buffer_is_used_again() {
        let mut builder = FrameBuilder::new(Lsn::FIRST, 4096);
        builder.push(b"first");
        let base = builder.finish(&segment(), Lsn::NONE).as_ptr() as usize;
        for _ in 0..1000 {
            builder.push(&[7; 100]);
            let frame = builder.finish(&segment(), Lsn::NONE);
            let at = frame.as_ptr() as usize;
            assert!((base..base + 4096).contains(&at), "a new allocation");
        }
    }

    #[test]
    fn another_salt_or_sequence_is_another_life() {
        let mut builder = FrameBuilder::new(Lsn::FIRST, 0);
        builder.push(b"x");
        let frame = builder.finish(&segment(), Lsn::NONE);
        assert!(matches!(read_frame(&frame, 0, &segment()), FrameRead::Whole { .. }));
        let salted = SegmentHeader { salt: 10, ..segment() };
        assert!(matches!(read_frame(&frame, 0, &salted), FrameRead::Broken));
        let later = SegmentHeader { sequence: 3, ..segment() };
        assert!(matches!(read_frame(&frame, 0, &later), FrameRead::Absent));
    }

    #[test]
    fn a_frame_holds_exactly_its_records() {
        // Two records of two bytes; the checksums are right for every claimed count.
        let payload = [2, 0, 0, 0, 7, 7, 2, 0, 0, 0, 8, 8];
        for count in 0..5 {
            let payload_crc = weft_base::crc32c(&payload);
            let header = FrameHeader { first_lsn: Lsn(1), durable_lsn: Lsn::NONE, record_count: count, payload_bytes: 12, payload_crc };
            let frame = [&header.encode(&segment())[..], &payload, &[0; 4]].concat();
            assert_eq!(matches!(read_frame(&frame, 0, &segment()), FrameRead::Whole { .. }), count == 2, "{count} records");
        }
    }
}
