//! Bulk data beside a message: real bytes, or in a simulation only their length and a tag.

use bytes::{Bytes, BytesMut};

/// Bulk data. A simulated cluster of a thousand nodes must not copy real megabytes, so data may be
/// synthetic: a length and a tag that says which bytes they would be. Code that only moves data
/// treats both alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Real bytes, shared by reference.
    Real(Bytes),
    /// `len` bytes that exist only by name.
    Synthetic {
        /// Length in bytes.
        len: u64,
        /// Identity of the content.
        tag: u64,
    },
}

impl Payload {
    /// No data.
    pub const EMPTY: Payload = Payload::Real(Bytes::new());

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Payload::Real(bytes) => bytes.len() as u64,
            Payload::Synthetic { len, .. } => *len,
        }
    }

    /// True if there is no data.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part that begins at `start` and has `len` bytes, without copying. Panics if it is not
    /// inside.
    pub fn slice(&self, start: u64, len: u64) -> Payload {
        assert!(start + len <= self.len(), "slice {start}+{len} of a payload of {} bytes", self.len());
        match self {
            Payload::Real(bytes) => Payload::Real(bytes.slice(start as usize..(start + len) as usize)),
            Payload::Synthetic { tag, .. } => Payload::Synthetic { len, tag: *tag },
        }
    }

    /// The bytes; synthetic data reads as zeros.
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Payload::Real(bytes) => bytes.clone(),
            Payload::Synthetic { len, .. } => BytesMut::zeroed(*len as usize).freeze(),
        }
    }

    /// The bytes of all pieces, one behind the other.
    pub fn concat(pieces: &[Payload]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(pieces.iter().map(Payload::len).sum::<u64>() as usize);
        pieces.iter().for_each(|piece| bytes.extend_from_slice(&piece.to_bytes()));
        bytes
    }
}

impl Default for Payload {
    fn default() -> Self {
        Payload::EMPTY
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Payload::Real(bytes.into())
    }
}
impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Payload::Real(bytes)
    }
}
