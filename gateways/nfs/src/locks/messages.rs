//! What NLM version 4 says (RFC 1813, appendix II; XNFS): locks, owners and statuses on their way
//! in and out.

use std::net::IpAddr;

use crate::types::{Failure, NfsStatus};
use crate::xdr::{Reader, Result, Writer};

/// Longest name of a client or opaque of the protocol, in bytes.
pub const OPAQUE_BYTES_MAX: usize = 1024;
/// What reaches at least so far reaches to the end of the file: the last offset of a kernel.
const FAR: u64 = i64::MAX as u64;

/// `nlm4_stats`: what became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NlmStatus(pub u32);

impl NlmStatus {
    /// Done.
    pub const GRANTED: NlmStatus = NlmStatus(0);
    /// Somebody is in the way.
    pub const DENIED: NlmStatus = NlmStatus(1);
    /// There is no room for one more.
    pub const NO_ROOM: NlmStatus = NlmStatus(2);
    /// Somebody is in the way, and the gateway waits for the client.
    pub const BLOCKED: NlmStatus = NlmStatus(3);
    /// Ask again later: what clients do in a grace period.
    pub const LATER: NlmStatus = NlmStatus(4);
    /// Whoever is in the way waits for the one who asks.
    pub const DEADLOCK: NlmStatus = NlmStatus(5);
    /// The export is read-only.
    pub const READ_ONLY: NlmStatus = NlmStatus(6);
    /// The file is gone.
    pub const STALE: NlmStatus = NlmStatus(7);
    /// The range goes beyond the last offset that there is.
    pub const TOO_FAR: NlmStatus = NlmStatus(8);
    /// There are no locks here for this caller.
    pub const FAILED: NlmStatus = NlmStatus(9);
}

impl From<NfsStatus> for NlmStatus {
    fn from(status: NfsStatus) -> NlmStatus {
        match status {
            NfsStatus::STALE | NfsStatus::BAD_HANDLE => NlmStatus::STALE,
            NfsStatus::LATER => NlmStatus::LATER,
            NfsStatus::READ_ONLY => NlmStatus::READ_ONLY,
            _ => NlmStatus::FAILED,
        }
    }
}

/// The status of what failed.
///
/// # Errors
/// If the call is not carried out at all.
pub fn status_of(outcome: std::result::Result<NlmStatus, Failure>) -> std::result::Result<NlmStatus, Failure> {
    match outcome {
        Err(Failure::Failed(status)) => Ok(status.into()),
        outcome => outcome,
    }
}

/// A client machine: where it calls from, and how it calls itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NlmHost {
    /// Its address.
    pub address: IpAddr,
    /// Its name.
    pub name: Vec<u8>,
}

/// Whose lock it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NlmOwner {
    /// The machine.
    pub host: NlmHost,
    /// The process, as its machine numbers it.
    pub svid: u32,
    /// What its machine calls it.
    pub oh: Vec<u8>,
}

/// `nlm4_lock`: a range of a file for an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NlmLock {
    /// The handle of the file.
    pub handle: Vec<u8>,
    /// Whose.
    pub owner: NlmOwner,
    /// First byte.
    pub offset: u64,
    /// How many; 0: all to the end.
    pub length: u64,
}

impl NlmLock {
    /// Reads one of a client at this address. Nothing of the message is kept alive by it.
    pub fn read(from: &mut Reader, address: IpAddr) -> Result<NlmLock> {
        let name = from.opaque(OPAQUE_BYTES_MAX)?.to_vec();
        let handle = from.opaque(OPAQUE_BYTES_MAX)?.to_vec();
        let oh = from.opaque(OPAQUE_BYTES_MAX)?.to_vec();
        let owner = NlmOwner { host: NlmHost { address, name }, svid: from.u32()?, oh };
        Ok(NlmLock { handle, owner, offset: from.u64()?, length: from.u64()? })
    }

    /// Writes it as it was read.
    pub fn put(&self, out: &mut Writer) {
        let NlmOwner { host, svid, oh } = &self.owner;
        out.opaque(&host.name).opaque(&self.handle).opaque(oh).u32(*svid).u64(self.offset).u64(self.length);
    }

    /// First byte and last byte.
    pub fn range(&self) -> std::result::Result<(u64, u64), NlmStatus> {
        match self.length {
            0 => Ok((self.offset, u64::MAX)),
            length => self.offset.checked_add(length - 1).map(|end| (self.offset, end)).ok_or(NlmStatus::TOO_FAR),
        }
    }
}

/// Offset and length of a range from its first byte to its last.
pub fn offset_and_length(start: u64, end: u64) -> (u64, u64) {
    (start, if end >= FAR { 0 } else { end - start + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(offset: u64, length: u64) -> NlmLock {
        let host = NlmHost { address: IpAddr::from([10, 0, 0, 1]), name: b"client".to_vec() };
        NlmLock { handle: vec![7; 44], owner: NlmOwner { host, svid: 5, oh: b"5@client".to_vec() }, offset, length }
    }

    #[test]
    fn a_lock_is_read_as_it_is_written() {
        let mut out = Writer::default();
        lock(1 << 40, 7).put(&mut out);
        let bytes = out.0.clone();
        let read = |bytes: Vec<u8>| NlmLock::read(&mut Reader::new(bytes.into()), IpAddr::from([10, 0, 0, 1]));
        assert_eq!(read(bytes.clone()), Ok(lock(1 << 40, 7)));
        for bytes_less in 1..bytes.len() {
            assert!(read(bytes[..bytes.len() - bytes_less].to_vec()).is_err());
        }
        let mut long = Writer::default();
        long.opaque(&[b'x'; OPAQUE_BYTES_MAX + 1]);
        assert!(read([long.0, bytes].concat()).is_err());
    }

    #[test]
    fn ranges_have_64_bits_and_may_have_no_end() {
        assert_eq!(lock(5, 10).range(), Ok((5, 14)));
        assert_eq!(lock(5, 0).range(), Ok((5, u64::MAX)));
        assert_eq!(lock(u64::MAX, 1).range(), Ok((u64::MAX, u64::MAX)));
        assert_eq!(lock(u64::MAX, 2).range(), Err(NlmStatus::TOO_FAR));
        assert_eq!(lock(2, u64::MAX).range(), Err(NlmStatus::TOO_FAR));
        assert_eq!(offset_and_length(5, 14), (5, 10));
        assert_eq!(offset_and_length(5, u64::MAX), (5, 0));
        assert_eq!(offset_and_length(0, i64::MAX as u64), (0, 0), "as kernels say to the end");
    }
}
