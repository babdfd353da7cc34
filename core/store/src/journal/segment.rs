//! The header block of a segment file.

use super::{JOURNAL_VERSION, Lsn};
use crate::header::{Format, HEADER_BYTES, HeaderError};
use bytes::{BufMut, Bytes};
use weft_base::{FsId, ServerId};

/// Bytes of the header block; the first frame begins here.
pub const SEGMENT_HEADER_BYTES: usize = HEADER_BYTES;

const FORMAT: Format = Format { magic: b"WEFTJSEG", version: JOURNAL_VERSION, extensions_at: 42 };

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

impl SegmentHeader {
    /// The header block, [`SEGMENT_HEADER_BYTES`] long.
    pub fn encode(&self) -> Bytes {
        FORMAT.encode(|block| {
            block.put_u32_le(self.salt);
            block.put_u64_le(self.fs_id.0);
            block.put_u64_le(self.sequence);
            block.put_u64_le(self.first_lsn.0);
            block.put_u16_le(self.server_id.0);
        })
    }

    /// Reads the header at the beginning of `bytes` (a whole segment or its first block).
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, HeaderError> {
        FORMAT.decode(bytes, |fields| {
            Some(SegmentHeader {
                salt: fields.u32()?,
                fs_id: FsId(fields.u64()?),
                sequence: fields.u64()?,
                first_lsn: Lsn(fields.u64()?),
                server_id: ServerId(fields.u16()?),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::CRC_AT;

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
            let want = if at < 8 { HeaderError::OtherKind } else { HeaderError::Damaged };
            assert_eq!(SegmentHeader::decode(&bad), Err(want), "byte {at}");
            assert_eq!(SegmentHeader::decode(&good[..at]), Err(HeaderError::TooShort));
        }
    }

    #[test]
    fn extensions_are_skipped_or_refused_by_number() {
        let with = |tag: u8| {
            let mut block = header().encode().to_vec();
            block[FORMAT.extensions_at..FORMAT.extensions_at + 7].copy_from_slice(&[tag, 0, 1, 0, 0, 0, 9]);
            let crc = weft_base::crc32c(&block[..CRC_AT]);
            block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            SegmentHeader::decode(&block)
        };
        assert_eq!(with(2), Ok(header()));
        assert_eq!(with(1), Err(HeaderError::Newer(1)));
        assert_eq!(with(0), Err(HeaderError::Damaged), "no list of extensions");
    }

    #[test]
    fn another_version_is_named() {
        let mut block = header().encode().to_vec();
        block[8..12].copy_from_slice(&9u32.to_le_bytes());
        let crc = weft_base::crc32c(&block[..CRC_AT]);
        block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&block), Err(HeaderError::Version { found: 9, known: JOURNAL_VERSION }));
    }
}
