//! A request of the kernel as a value.

use super::abi::{IN_HEADER_BYTES, InHeader, Malformed, fixed_bytes, opcode};

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    header: InHeader,
}

impl Request {
    /// Who asks for this.
    pub fn of(pieces: &Pieces<'_>) -> Request {
        Request { header: pieces.header }
    }

    /// The user.
    pub fn uid(&self) -> u32 {
        self.header.uid
    }

    /// Its group.
    pub fn gid(&self) -> u32 {
        self.header.gid
    }

    /// The thread.
    pub fn pid(&self) -> u32 {
        self.header.pid
    }
}

/// A request in pieces: header, record of the operation, and the rest.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'a> {
    /// The header.
    pub header: InHeader,
    /// The record; may be longer than it.
    pub fixed: &'a [u8],
    /// Names, a value, data.
    pub rest: &'a [u8],
}

impl<'a> Pieces<'a> {
    /// Of a request that is whole, as the device gives it.
    ///
    /// # Errors
    /// If it is cut short, or does not have the length that it says.
    pub fn of_whole(bytes: &'a [u8]) -> Result<Pieces<'a>, Malformed> {
        let header = InHeader::parse(bytes)?;
        if header.len as usize != bytes.len() {
            return Err(Malformed);
        }
        let body = &bytes[IN_HEADER_BYTES..];
        // One that is not known is refused later, by its number.
        let bytes = match fixed_bytes(header.opcode).unwrap_or(0) {
            // The name of an attribute begins here, and with a letter, if the record is the short
            // one.
            _ if header.opcode == opcode::SETXATTR && body.get(8).is_some_and(|byte| *byte >= b' ') => 8,
            bytes => bytes,
        };
        let (fixed, rest) = body.split_at_checked(bytes).ok_or(Malformed)?;
        Ok(Pieces { header, fixed, rest })
    }
}
