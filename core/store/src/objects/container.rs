//! The header block of the container file, so that a server never serves the container of another
//! one.

use crate::codec::Reader;
use bytes::{BufMut, Bytes, BytesMut};
use std::fmt;
use weft_base::{ExtensionError, Extensions, FsId, ServerId};

/// Bytes of the header block; objects begin behind it.
pub const CONTAINER_HEADER_BYTES: usize = 4096;

const MAGIC: &[u8; 8] = b"WEFTDATA";
const VERSION: u32 = 2;
const CRC_AT: usize = CONTAINER_HEADER_BYTES - 4;
/// Behind the fixed fields: extensions, as far as there are any.
const EXTENSIONS_AT: usize = 26;

/// What a container says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerHeader {
    /// The file system.
    pub fs_id: FsId,
    /// The data server.
    pub server_id: ServerId,
}

/// Why a block is not the header of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerError {
    /// It does not begin like one, or is too short.
    NotAContainer,
    /// A format that this version cannot read.
    Version(u32),
    /// It needs this extension, which this version does not know.
    Newer(u16),
    /// The checksum does not match.
    Damaged,
}

impl fmt::Display for ContainerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContainerError::NotAContainer => write!(f, "not a data container"),
            ContainerError::Version(v) => write!(f, "container format {v}, this version reads {VERSION}"),
            ContainerError::Newer(tag) => write!(f, "container {}", ExtensionError::Unknown(*tag)),
            ContainerError::Damaged => write!(f, "the container header fails its checksum"),
        }
    }
}
impl std::error::Error for ContainerError {}

impl ContainerHeader {
    /// The header block, [`CONTAINER_HEADER_BYTES`] long.
    pub fn encode(&self) -> Bytes {
        let mut block = BytesMut::with_capacity(CONTAINER_HEADER_BYTES);
        block.put_slice(MAGIC);
        block.put_u32_le(VERSION);
        block.put_u32_le(super::BLOCK_BYTES as u32);
        block.put_u64_le(self.fs_id.0);
        block.put_u16_le(self.server_id.0);
        block.resize(CRC_AT, 0);
        let crc = weft_base::crc32c(&block);
        block.put_u32_le(crc);
        block.freeze()
    }

    /// Reads the header at the beginning of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<ContainerHeader, ContainerError> {
        let block = bytes.get(..CONTAINER_HEADER_BYTES).ok_or(ContainerError::NotAContainer)?;
        let fields = block.strip_prefix(MAGIC).ok_or(ContainerError::NotAContainer)?;
        if Reader::new(&block[CRC_AT..]).u32() != Some(weft_base::crc32c(&block[..CRC_AT])) {
            return Err(ContainerError::Damaged);
        }
        let mut fields = Reader::new(fields);
        let mut parse = || {
            let (version, block_bytes) = (fields.u32()?, fields.u32()?);
            Some((version, block_bytes, ContainerHeader { fs_id: FsId(fields.u64()?), server_id: ServerId(fields.u16()?) }))
        };
        match parse().ok_or(ContainerError::NotAContainer)? {
            (VERSION, block_bytes, header) if u64::from(block_bytes) == super::BLOCK_BYTES => {
                match Extensions::in_block(&block[EXTENSIONS_AT..CRC_AT]).and_then(|list| list.check(&[])) {
                    Ok(()) => Ok(header),
                    Err(ExtensionError::Unknown(tag)) => Err(ContainerError::Newer(tag)),
                    Err(ExtensionError::Malformed) => Err(ContainerError::Damaged),
                }
            }
            (VERSION, ..) => Err(ContainerError::Damaged),
            (version, ..) => Err(ContainerError::Version(version)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(ContainerHeader::decode(&block[1..]), Err(ContainerError::NotAContainer));
        let with = |tag: u8| {
            let mut block = block.to_vec();
            block[EXTENSIONS_AT..EXTENSIONS_AT + 7].copy_from_slice(&[tag, 0, 1, 0, 0, 0, 9]);
            let crc = weft_base::crc32c(&block[..CRC_AT]);
            block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            ContainerHeader::decode(&block)
        };
        assert_eq!((with(2), with(1)), (Ok(header), Err(ContainerError::Newer(1))));
    }
}
