//! The header block of the container file, so that a server never serves the container of another
//! one.

use crate::header::{Format, HEADER_BYTES, HeaderError};
use bytes::{BufMut, Bytes};
use weft_base::{FsId, ServerId};

/// Bytes of the header block; objects begin behind it.
pub const CONTAINER_HEADER_BYTES: usize = HEADER_BYTES;

const FORMAT: Format = Format { magic: b"WEFTDATA", version: 2, extensions_at: 26 };

/// What a container says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerHeader {
    /// The file system.
    pub fs_id: FsId,
    /// The data server.
    pub server_id: ServerId,
}

impl ContainerHeader {
    /// The header block, [`CONTAINER_HEADER_BYTES`] long.
    pub fn encode(&self) -> Bytes {
        FORMAT.encode(|block| {
            block.put_u32_le(super::BLOCK_BYTES as u32);
            block.put_u64_le(self.fs_id.0);
            block.put_u16_le(self.server_id.0);
        })
    }

    /// Reads the header at the beginning of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<ContainerHeader, HeaderError> {
        FORMAT.decode(bytes, |fields| {
            let block_bytes = fields.u32()?;
            let header = ContainerHeader { fs_id: FsId(fields.u64()?), server_id: ServerId(fields.u16()?) };
            (u64::from(block_bytes) == super::BLOCK_BYTES).then_some(header)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::CRC_AT;

    #[test]
    fn round_trip_and_damage() {
        let header = ContainerHeader { fs_id: FsId(5), server_id: ServerId::data(2) };
        let block = header.encode();
        assert_eq!(ContainerHeader::decode(&block), Ok(header));
        for at in 0..block.len() {
            let mut bad = block.to_vec();
            bad[at] ^= 2;
            assert!(ContainerHeader::decode(&bad).is_err(), "byte {at}");
        }
        assert_eq!(ContainerHeader::decode(&block[1..]), Err(HeaderError::TooShort));
        let with = |tag: u8| {
            let mut block = block.to_vec();
            block[FORMAT.extensions_at..FORMAT.extensions_at + 7].copy_from_slice(&[tag, 0, 1, 0, 0, 0, 9]);
            let crc = weft_base::crc32c(&block[..CRC_AT]);
            block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            ContainerHeader::decode(&block)
        };
        assert_eq!((with(2), with(1)), (Ok(header), Err(HeaderError::Newer(1))));
    }
}
