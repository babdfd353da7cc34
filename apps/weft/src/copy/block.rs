//! Bytes between reading and writing.

use bytes::Bytes;
use weft_base::Payload;

/// Bytes on their way.
pub enum Block<'a> {
    /// In the worker's buffer.
    Buffer(&'a [u8]),
    /// As they came from the servers.
    Pieces(Vec<Payload>),
}

impl Block<'_> {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Block::Buffer(bytes) => bytes.len() as u64,
            Block::Pieces(pieces) => pieces.iter().map(Payload::len).sum(),
        }
    }

    /// The bytes in one piece.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Block::Buffer(bytes) => Bytes::copy_from_slice(bytes),
            Block::Pieces(pieces) => Payload::concat(&pieces).into(),
        }
    }
}
