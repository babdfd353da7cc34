//! The header block of a segment file.

use super::{JOURNAL_VERSION, Lsn};
use crate::codec::Reader;
use bytes::{BufMut, Bytes, BytesMut};
use std::fmt;
use weft_base::{ExtensionError, Extensions, FsId, ServerId};

/// Bytes of the header block; the first frame begins here.
pub const SEGMENT_HEADER_BYTES: usize = 4096;

const MAGIC: &[u8; 8] = b"WEFTJSEG";
const CRC_AT: usize = SEGMENT_HEADER_BYTES - 4;
/// Behind the fixed fields: extensions, as far as there are any.
const EXTENSIONS_AT: usize = 42;

/// What a segment says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The file system that the journal belongs to.
    pub fs_id: FsId,
    /// The server that writes it.
    pub server_id: ServerId,
    /// Random number of this life of the file; seeds the checksums of frame headers.
    pub salt: u32,
    /// Number of the segment, rising from 1, never used twice, also the number in the file's name.
    pub sequence: u64,
    /// Number of the first record that the segment holds or will hold.
    pub first_lsn: Lsn,
}

/// Why a block is not the header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// Fewer than [`SEGMENT_HEADER_BYTES`] bytes.
    TooShort,
    /// Not a segment, or a preallocated file that was never begun.
    NotASegment,
    /// A segment in a format that this version cannot read.
    Version(u32),
    /// It needs this extension, which this version does not know.
    Newer(u16),
    /// The checksum does not match: torn or damaged.
    Damaged,
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SegmentError::TooShort => write!(f, "shorter than a segment header"),
            SegmentError::NotASegment => write!(f, "not a journal segment"),
            SegmentError::Version(v) => write!(f, "journal format {v}, this version reads {JOURNAL_VERSION}"),
            SegmentError::Newer(tag) => write!(f, "journal segment {}", ExtensionError::Unknown(*tag)),
            SegmentError::Damaged => write!(f, "the segment header fails its checksum"),
        }
    }
}
impl std::error::Error for SegmentError {}

impl SegmentHeader {
    /// The header block, [`SEGMENT_HEADER_BYTES`] long.
    pub fn encode(&self) -> Bytes {
        let mut block = BytesMut::with_capacity(SEGMENT_HEADER_BYTES);
        block.put_slice(MAGIC);
        block.put_u32_le(JOURNAL_VERSION);
        block.put_u32_le(self.salt);
        block.put_u64_le(self.fs_id.0);
        block.put_u64_le(self.sequence);
        block.put_u64_le(self.first_lsn.0);
        block.put_u16_le(self.server_id.0);
        block.resize(CRC_AT, 0);
        let crc = weft_base::crc32c(&block);
        block.put_u32_le(crc);
        block.freeze()
    }

    /// Reads the header at the beginning of `bytes` (a whole segment or its first block).
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, SegmentError> {
        let block = bytes.get(..SEGMENT_HEADER_BYTES).ok_or(SegmentError::TooShort)?;
        if &block[..8] != MAGIC {
            return Err(SegmentError::NotASegment);
        }
        let mut crc = Reader::new(&block[CRC_AT..]);
        if crc.u32() != Some(weft_base::crc32c(&block[..CRC_AT])) {
            return Err(SegmentError::Damaged);
        }
        let mut fields = Reader::new(&block[8..]);
        let mut parse = || {
            Some((
                fields.u32()?,
                SegmentHeader {
                    salt: fields.u32()?,
                    fs_id: FsId(fields.u64()?),
                    sequence: fields.u64()?,
                    first_lsn: Lsn(fields.u64()?),
                    server_id: ServerId(fields.u16()?),
                },
            ))
        };
        match parse() {
            Some((JOURNAL_VERSION, header)) => match Extensions::in_block(&block[EXTENSIONS_AT..CRC_AT]).and_then(|list| list.check(&[])) {
                Ok(()) => Ok(header),
                Err(ExtensionError::Unknown(tag)) => Err(SegmentError::Newer(tag)),
                Err(ExtensionError::Malformed) => Err(SegmentError::Damaged),
            },
            Some((version, _)) => Err(SegmentError::Version(version)),
            None => Err(SegmentError::TooShort),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn header() -> SegmentHeader {
        SegmentHeader { fs_id: FsId(0xfeed), server_id: ServerId(3), salt: 77, sequence: 5, first_lsn: Lsn(1000) }
    }

    #[test]
    fn round_trip() {
        assert_eq!(SegmentHeader::decode(&header().encode()), Ok(header()));
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let good = header().encode();
        for at in 0..good.len() {
            let mut bad = good.to_vec();
            bad[at] ^= 0x10;
            let want = if at < 8 { SegmentError::NotASegment } else { SegmentError::Damaged };
            assert_eq!(SegmentHeader::decode(&bad), Err(want), "byte {at}");
            assert_eq!(SegmentHeader::decode(&good[..at]), Err(SegmentError::TooShort));
        }
    }

    #[test]
    fn extensions_are_skipped_or_refused_by_number() {
        let with = |tag: u8| {
            let mut block = header().encode().to_vec();
            block[EXTENSIONS_AT..EXTENSIONS_AT + 7].copy_from_slice(&[tag, 0, 1, 0, 0, 0, 9]);
            let crc = weft_base::crc32c(&block[..CRC_AT]);
            block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            SegmentHeader::decode(&block)
        };
        assert_eq!(with(2), Ok(header()));
        assert_eq!(with(1), Err(SegmentError::Newer(1)));
        assert_eq!(with(0), Err(SegmentError::Damaged), "no list of extensions");
    }

    #[test]
    fn another_version_is_named() {
        let mut block = header().encode().to_vec();
        block[8..12].copy_from_slice(&9u32.to_le_bytes());
        let crc = weft_base::crc32c(&block[..CRC_AT]);
        block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&block), Err(SegmentError::Version(9)));
    }
}
