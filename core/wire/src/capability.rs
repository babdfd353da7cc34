//! Capabilities: what a metadata server signs and a data server checks, so that nobody reads or
//! writes a datafile without having opened its file.

use ring::hmac;
use weft_base::{ClientId, Handle, Result, Status, WallTime};

use crate::Wire;
use crate::codec::{wire_for_fields, wire_for_newtypes};

/// A secret of 32 bytes: the key of the servers of a file system, or one that follows from it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey(pub [u8; 32]);

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKey(secret)")
    }
}

impl ClusterKey {
    /// HMAC-SHA256 (RFC 2104) of the concatenated parts under this key, begun by a label that
    /// separates its uses.
    pub fn mac(&self, label: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        mac.update(&(label.len() as u64).to_le_bytes());
        mac.update(label);
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac.sign().as_ref().try_into().expect("an HMAC-SHA256 has 32 bytes")
    }

    /// True if `tag` is the beginning of [`ClusterKey::mac`], found out in a time that does not
    /// depend on where they differ.
    pub fn proves(&self, label: &[u8], parts: &[&[u8]], tag: &[u8]) -> bool {
        self.mac(label, parts).get(..tag.len()).is_some_and(|mac| equal_in_constant_time(mac, tag))
    }
}

/// Compares two byte strings of equal length in a time that does not depend on where they differ.
pub(crate) fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

/// What a capability allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rights(pub u8);

impl Rights {
    /// Read data.
    pub const READ: Rights = Rights(1);
    /// Write data.
    pub const WRITE: Rights = Rights(2);
    /// Truncate and remove: only metadata servers hold it.
    pub const MANAGE: Rights = Rights(4);
    /// Decide on locks of programs on the file: one client at a time. Only between clients and
    /// metadata servers.
    pub const LOCK: Rights = Rights(8);
    /// Append without a lock: nobody else writes meanwhile. Only between clients and metadata
    /// servers.
    pub const APPEND: Rights = Rights(16);
    /// Keep what is written to a new file until it is closed: nobody else looks at it before. Only
    /// between clients and metadata servers; it comes with a create that says so.
    pub const DELAY: Rights = Rights(32);
    /// A write or reservation needs a [`Ceiling`] beside the capability.
    pub const UNDER_CEILING: Rights = Rights(128);
    /// What data servers know of.
    pub const OF_DATA: Rights = Rights(1 | 2 | 4);
    /// What an open may ask for.
    pub const OF_OPENS: Rights = Rights(1 | 2 | 8 | 16);
    /// What a client may hold of a file.
    pub const OF_CLIENTS: Rights = Rights(1 | 2 | 8 | 16 | 32);

    /// True if something beside reading is allowed: others may have to wait.
    pub fn is_more_than_read(self) -> bool {
        self.without(Rights::READ) != Rights::default()
    }

    /// True if all of `other` is allowed.
    pub fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }
    /// What both allow.
    pub fn and(self, other: Rights) -> Rights {
        Rights(self.0 & other.0)
    }
    /// Both.
    pub fn with(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
    /// These, but not `other`.
    pub fn without(self, other: Rights) -> Rights {
        Rights(self.0 & !other.0)
    }
}

/// A signed permission of one client for the datafiles of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The file.
    pub handle: Handle,
    /// The client that may use it.
    pub client: ClientId,
    /// What it may do.
    pub rights: Rights,
    /// When it ends by the servers' wall clocks.
    pub expires: WallTime,
    /// First half of the HMAC-SHA256 of the fields above.
    pub tag: [u8; 16],
}

impl Capability {
    /// Issues a capability.
    pub fn sign(key: &ClusterKey, handle: Handle, client: ClientId, rights: Rights, expires: WallTime) -> Capability {
        let known = Rights::OF_DATA.with(Rights::UNDER_CEILING);
        assert!(known.contains(rights), "locks and appends are no business of data servers");
        let mut capability = Capability { handle, client, rights, expires, tag: [0; 16] };
        capability.tag = capability.expected_tag(key);
        capability
    }

    /// Checks that the capability is genuine, belongs to `client` and `handle`, gives `rights` and
    /// has not ended at `now`.
    ///
    /// # Errors
    /// [`Status::CapabilityRefused`] or [`Status::CapabilityExpired`].
    pub fn verify(&self, key: &ClusterKey, handle: Handle, client: ClientId, rights: Rights, now: WallTime) -> Result<()> {
        let fits = self.handle == handle && self.client == client && self.rights.contains(rights);
        if !fits || !equal_in_constant_time(&self.tag, &self.expected_tag(key)) {
            return Err(Status::CapabilityRefused);
        }
        if now > self.expires {
            return Err(Status::CapabilityExpired);
        }
        Ok(())
    }

    fn expected_tag(&self, key: &ClusterKey) -> [u8; 16] {
        let mut fields = Vec::with_capacity(32);
        self.put_fields(&mut fields);
        let mac = key.mac(b"weft capability", &[&fields]);
        mac[..16].try_into().expect("an HMAC-SHA256 has 32 bytes")
    }

    fn put_fields(&self, out: &mut Vec<u8>) {
        self.handle.put(out);
        self.client.put(out);
        self.rights.put(out);
        self.expires.put(out);
    }
}

/// How much of a file a capability lets be allocated: to each datafile as much as it has of a file
/// of [`Ceiling::file_bytes`] without holes. The owner of the file has a limit of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// Bytes of that file.
    pub file_bytes: u64,
    /// Bytes in one of its stripes.
    pub stripe_bytes: u32,
    /// Number of its datafiles; 1: each may be as long as the file.
    pub width: u16,
    /// First half of the HMAC-SHA256 of the fields above and the capability's.
    pub tag: [u8; 16],
}

impl Ceiling {
    /// Issues a ceiling for a capability.
    pub fn sign(key: &ClusterKey, capability: &Capability, file_bytes: u64, stripe_bytes: u32, width: u16) -> Ceiling {
        let mut ceiling = Ceiling { file_bytes, stripe_bytes, width, tag: [0; 16] };
        ceiling.tag = ceiling.expected_tag(key, capability);
        ceiling
    }

    /// Checks that the ceiling is genuine and belongs to this capability.
    ///
    /// # Errors
    /// [`Status::CapabilityRefused`].
    pub fn verify(&self, key: &ClusterKey, capability: &Capability) -> Result<()> {
        let is_genuine = equal_in_constant_time(&self.tag, &self.expected_tag(key, capability));
        if is_genuine && self.width > 0 && self.stripe_bytes > 0 { Ok(()) } else { Err(Status::CapabilityRefused) }
    }

    fn expected_tag(&self, key: &ClusterKey, capability: &Capability) -> [u8; 16] {
        let mut fields = Vec::with_capacity(16);
        self.put_fields(&mut fields);
        let mac = key.mac(b"weft ceiling", &[&fields, &capability.tag]);
        mac[..16].try_into().expect("an HMAC-SHA256 has 32 bytes")
    }

    fn put_fields(&self, out: &mut Vec<u8>) {
        self.file_bytes.put(out);
        self.stripe_bytes.put(out);
        self.width.put(out);
    }
}

wire_for_newtypes! { Rights; }

wire_for_fields! {
    Capability { handle, client, rights, expires, tag };
    Ceiling { file_bytes, stripe_bytes, width, tag };
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ClusterKey = ClusterKey([7; 32]);

    #[test]
    fn genuine_is_accepted_and_everything_else_refused() {
        let (handle, client, end) = (Handle(5), ClientId(9), WallTime(1000));
        let good = Capability::sign(&KEY, handle, client, Rights::READ, end);
        assert_eq!(Capability::from_bytes(good.to_bytes()), Ok(good));
        assert_eq!(good.verify(&KEY, handle, client, Rights::READ, WallTime(1000)), Ok(()));
        let refused = Err(Status::CapabilityRefused);
        assert_eq!(good.verify(&KEY, Handle(6), client, Rights::READ, end), refused);
        assert_eq!(good.verify(&KEY, handle, ClientId(8), Rights::READ, end), refused);
        assert_eq!(good.verify(&KEY, handle, client, Rights::WRITE, end), refused);
        assert_eq!(good.verify(&ClusterKey([8; 32]), handle, client, Rights::READ, end), refused);
        assert_eq!(good.verify(&KEY, handle, client, Rights::READ, WallTime(1001)), Err(Status::CapabilityExpired));
        let forged = Capability { rights: Rights::READ.with(Rights::WRITE), ..good };
        assert_eq!(forged.verify(&KEY, handle, client, Rights::WRITE, end), refused);
    }

    #[test]
    fn a_ceiling_belongs_to_one_capability() {
        let sign = |client| Capability::sign(&KEY, Handle(5), ClientId(client), Rights::WRITE.with(Rights::UNDER_CEILING), WallTime(1000));
        let ceiling = Ceiling::sign(&KEY, &sign(9), 5000, 4096, 2);
        assert_eq!(Ceiling::from_bytes(ceiling.to_bytes()), Ok(ceiling));
        assert_eq!(ceiling.verify(&KEY, &sign(9)), Ok(()));
        let refused = Err(Status::CapabilityRefused);
        assert_eq!(ceiling.verify(&KEY, &sign(8)), refused);
        assert_eq!(ceiling.verify(&ClusterKey([8; 32]), &sign(9)), refused);
        for forged in [Ceiling { file_bytes: 5001, ..ceiling }, Ceiling { stripe_bytes: 8192, ..ceiling }, Ceiling { width: 1, ..ceiling }]
        {
            assert_eq!(forged.verify(&KEY, &sign(9)), refused);
        }
        let nowhere = Ceiling::sign(&KEY, &sign(9), 5000, 0, 2);
        assert_eq!(nowhere.verify(&KEY, &sign(9)), refused);
    }
}
