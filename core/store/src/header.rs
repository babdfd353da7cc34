//! Header blocks: how segments of the journal and containers begin, so that a server never reads
//! the file of another one. What kind of file, the version, fields, extensions as far as there are
//! any, and at the end the checksum of all before it.

use crate::codec::Reader;
use bytes::{BufMut, Bytes, BytesMut};
use std::fmt;
use weft_base::{ExtensionError, Extensions};

/// Bytes of a header block.
pub(crate) const HEADER_BYTES: usize = 4096;
/// Where the checksum is.
pub(crate) const CRC_AT: usize = HEADER_BYTES - 4;

/// The header of one kind of file.
pub(crate) struct Format {
    pub magic: &'static [u8; 8],
    pub version: u32,
    /// Behind the fixed fields.
    pub extensions_at: usize,
}

/// Why a block is not the header of such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Fewer bytes than a header has.
    TooShort,
    /// A file of another kind, or a preallocated one that was never begun.
    OtherKind,
    /// A format that this version cannot read.
    Version {
        /// What is there.
        found: u32,
        /// What this version reads.
        known: u32,
    },
    /// It needs this extension, which this version does not know.
    Newer(u16),
    /// The checksum does not match: torn or damaged.
    Damaged,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeaderError::TooShort => write!(f, "it is shorter than its header"),
            HeaderError::OtherKind => write!(f, "it does not begin as such a file"),
            HeaderError::Version { found, known } => write!(f, "it has format {found}, this version reads {known}"),
            HeaderError::Newer(tag) => write!(f, "its header {}", ExtensionError::Unknown(*tag)),
            HeaderError::Damaged => write!(f, "its header fails its checksum"),
        }
    }
}
impl std::error::Error for HeaderError {}

impl Format {
    /// A block with these fields.
    pub fn encode(&self, fields: impl FnOnce(&mut BytesMut)) -> Bytes {
        let mut block = BytesMut::with_capacity(HEADER_BYTES);
        block.put_slice(self.magic);
        block.put_u32_le(self.version);
        fields(&mut block);
        block.resize(CRC_AT, 0);
        let crc = weft_base::crc32c(&block);
        block.put_u32_le(crc);
        block.freeze()
    }

    /// Reads the header at the beginning of `bytes`; `fields` reads what follows the version.
    pub fn decode<T>(&self, bytes: &[u8], fields: impl FnOnce(&mut Reader<'_>) -> Option<T>) -> Result<T, HeaderError> {
        let block = bytes.get(..HEADER_BYTES).ok_or(HeaderError::TooShort)?;
        let rest = block.strip_prefix(self.magic).ok_or(HeaderError::OtherKind)?;
        if Reader::new(&block[CRC_AT..]).u32() != Some(weft_base::crc32c(&block[..CRC_AT])) {
            return Err(HeaderError::Damaged);
        }
        let mut rest = Reader::new(rest);
        match rest.u32() {
            Some(found) if found != self.version => return Err(HeaderError::Version { found, known: self.version }),
            _ => {}
        }
        let value = fields(&mut rest).ok_or(HeaderError::Damaged)?;
        match Extensions::in_block(&block[self.extensions_at..CRC_AT]).and_then(|list| list.check(&[])) {
            Ok(()) => Ok(value),
            Err(ExtensionError::Unknown(tag)) => Err(HeaderError::Newer(tag)),
            Err(ExtensionError::Malformed) => Err(HeaderError::Damaged),
        }
    }
}
