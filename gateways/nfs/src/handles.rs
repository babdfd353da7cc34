//! File handles: what an NFS client keeps of an object. They name the object and the export through
//! which it was reached, and nothing of the gateway that made them, so that every gateway with the
//! same key takes them, for ever. The numbers of objects are never used again, so no generation is
//! needed beside them.
//!
//! ```text
//! version u32 = 1 | file system u64 | root of the export u64 | object u64 | check 16 bytes
//! ```
//!
//! The check is a MAC under a key that clients do not know: whoever was not told of an object
//! through an export cannot make a handle of it by counting.

use weft_base::{FsId, Handle};
use weft_wire::ClusterKey;

use crate::types::NfsStatus;
use crate::xdr::Writer;

/// Bytes of a handle; NFSv3 allows 64.
pub const HANDLE_BYTES: usize = 44;
/// Longest handle that a message may have, in bytes.
pub const HANDLE_BYTES_MAX: usize = 64;
const VERSION: u32 = 1;
const LABEL: &[u8] = b"weft nfs handle 1";

/// An object as a client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsHandle {
    /// The directory that is exported.
    pub root: Handle,
    /// The object.
    pub object: Handle,
}

/// Makes handles and checks them.
#[derive(Debug)]
pub struct Seals {
    fs_id: FsId,
    key: ClusterKey,
}

impl Seals {
    /// For a file system and the key by which the gateway uses it. Without one anybody can make
    /// handles: then everything must be exported to whoever reaches the gateway.
    pub fn new(fs_id: FsId, key: Option<ClusterKey>) -> Seals {
        Seals { fs_id, key: key.unwrap_or(ClusterKey([0; 32])) }
    }

    /// The bytes of a handle.
    pub fn seal(&self, handle: NfsHandle) -> [u8; HANDLE_BYTES] {
        let mut out = Writer(Vec::with_capacity(HANDLE_BYTES));
        out.u32(VERSION).u64(self.fs_id.0).u64(handle.root.0).u64(handle.object.0);
        let check = self.key.mac(LABEL, &[&out.0]);
        out.fixed(&check[..16]);
        out.0.try_into().expect("the fields have so many bytes")
    }

    /// The handle of these bytes.
    ///
    /// # Errors
    /// [`NfsStatus::BAD_HANDLE`] for what has not its form, [`NfsStatus::STALE`] for what belongs
    /// to another file system or was made under another key.
    pub fn open(&self, bytes: &[u8]) -> Result<NfsHandle, NfsStatus> {
        if bytes.len() != HANDLE_BYTES || bytes[..4] != VERSION.to_be_bytes() {
            return Err(NfsStatus::BAD_HANDLE);
        }
        let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let handle = NfsHandle { root: Handle(number(12)), object: Handle(number(20)) };
        let is_ours = number(4) == self.fs_id.0 && self.key.proves(LABEL, &[&bytes[..28]], &bytes[28..]);
        if is_ours { Ok(handle) } else { Err(NfsStatus::STALE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_the_same_for_ever() {
        let seals = Seals::new(FsId(0x1122_3344_5566_7788), Some(ClusterKey([9; 32])));
        let handle = NfsHandle { root: Handle(1), object: Handle(0x0007_0000_0000_002a) };
        let bytes = seals.seal(handle);
        // Golden: clients keep handles over every restart and update of gateways.
        let golden = "00000001112233445566778800000000000000010007000000 00002a".replace(' ', "");
        let hex: String = bytes[..28].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden);
        let check: String = bytes[28..].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(check, GOLDEN_CHECK);
        assert_eq!(seals.open(&bytes), Ok(handle));
    }

    /// Of the handle above.
    const GOLDEN_CHECK: &str = "9d2e74e0fbeac83764413dbbf1528e1e";

    #[test]
    fn nobody_makes_a_handle_himself() {
        let key = |byte| Some(ClusterKey([byte; 32]));
        let seals = Seals::new(FsId(5), key(1));
        let good = seals.seal(NfsHandle { root: Handle(1), object: Handle(77) });
        for bit in 0..HANDLE_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(seals.open(&bad).is_err(), "bit {bit}");
        }
        assert_eq!(seals.open(&good[1..]), Err(NfsStatus::BAD_HANDLE));
        assert_eq!(seals.open(&[]), Err(NfsStatus::BAD_HANDLE));
        assert_eq!(Seals::new(FsId(5), key(2)).open(&good), Err(NfsStatus::STALE));
        assert_eq!(Seals::new(FsId(6), key(1)).open(&good), Err(NfsStatus::STALE));
    }
}
