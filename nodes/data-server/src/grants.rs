//! Capabilities that were verified: a client shows the same one with every request, and checking a
//! signature costs more than looking it up.

use weft_base::{ClientId, FastMap, Handle, Result, Status, WallTime};
use weft_wire::{Capability, ClusterKey, Rights};

/// Capabilities in each of the two generations of the cache.
const GENERATION_MAX: usize = 16384;

/// Checks capabilities, and remembers genuine ones in bounded memory: when the young generation is
/// full it becomes the old one, and the old one is dropped.
#[derive(Debug)]
pub struct Grants {
    pub(crate) key: ClusterKey,
    young: FastMap<Fields, [u8; 16]>,
    old: FastMap<Fields, [u8; 16]>,
}

/// What a tag signs. Only genuine capabilities are kept, so no peer chooses what the map holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Fields {
    handle: Handle,
    client: ClientId,
    rights: u8,
    expires: WallTime,
}

impl Grants {
    /// Checks under this key.
    pub fn new(key: ClusterKey) -> Grants {
        Grants { key, young: FastMap::default(), old: FastMap::default() }
    }

    /// Checks that `capability` lets `client` do `rights` to `handle` at the time `now`.
    ///
    /// # Errors
    /// [`Status::CapabilityRefused`] or [`Status::CapabilityExpired`].
    pub fn check(&mut self, capability: &Capability, handle: Handle, client: ClientId, rights: Rights, now: WallTime) -> Result<()> {
        let Capability { rights: granted, expires, tag, .. } = *capability;
        let fields = Fields { handle: capability.handle, client: capability.client, rights: granted.0, expires };
        if self.young.get(&fields) != Some(&tag) {
            if self.old.get(&fields) != Some(&tag) {
                capability.verify(&self.key, handle, client, rights, now)?;
            }
            self.remember(fields, tag);
        }
        debug_assert!(
            capability.verify(&self.key, capability.handle, capability.client, granted, WallTime(i64::MIN)).is_ok(),
            "only genuine ones are remembered"
        );
        if capability.handle != handle || capability.client != client || !granted.contains(rights) {
            return Err(Status::CapabilityRefused);
        }
        if now > expires {
            return Err(Status::CapabilityExpired);
        }
        Ok(())
    }

    /// As [`Grants::check`], of a capability that will hardly come again.
    ///
    /// # Errors
    /// [`Status::CapabilityRefused`] or [`Status::CapabilityExpired`].
    pub fn check_once(&self, capability: &Capability, client: ClientId, rights: Rights, now: WallTime) -> Result<()> {
        capability.verify(&self.key, capability.handle, client, rights, now)
    }

    fn remember(&mut self, fields: Fields, tag: [u8; 16]) {
        if self.young.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(fields, tag);
        assert!(self.young.len() <= GENERATION_MAX && self.old.len() <= GENERATION_MAX, "memory is bounded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ClusterKey = ClusterKey([7; 32]);
    const NOW: WallTime = WallTime(100);

    #[test]
    fn a_remembered_capability_opens_nothing_more() {
        let (handle, client) = (Handle(5), ClientId(9));
        let good = Capability::sign(&KEY, handle, client, Rights::READ, WallTime(200));
        let mut grants = Grants::new(KEY);
        for _ in 0..2 {
            assert_eq!(grants.check(&good, handle, client, Rights::READ, NOW), Ok(()));
            let refused = Err(Status::CapabilityRefused);
            assert_eq!(grants.check(&good, Handle(6), client, Rights::READ, NOW), refused);
            assert_eq!(grants.check(&good, handle, ClientId(8), Rights::READ, NOW), refused);
            assert_eq!(grants.check(&good, handle, client, Rights::WRITE, NOW), refused);
            for forged in [
                Capability { rights: Rights::READ.with(Rights::WRITE), ..good },
                Capability { expires: WallTime(300), ..good },
                Capability { tag: [0; 16], ..good },
                Capability { handle: Handle(6), ..good },
            ] {
                assert_eq!(grants.check(&forged, forged.handle, client, Rights::READ, NOW), refused);
            }
            assert_eq!(grants.check(&good, handle, client, Rights::READ, WallTime(201)), Err(Status::CapabilityExpired));
        }
    }

    #[test]
    fn memory_is_bounded_and_refused_ones_take_none() {
        let mut grants = Grants::new(KEY);
        for n in 0..3 * GENERATION_MAX as u64 {
            let capability = Capability::sign(&KEY, Handle(n), ClientId(1), Rights::READ, WallTime(200));
            assert_eq!(grants.check(&capability, Handle(n), ClientId(1), Rights::READ, NOW), Ok(()));
        }
        assert!(grants.young.len() + grants.old.len() <= 2 * GENERATION_MAX);
        let before = grants.young.len();
        let forged = Capability { handle: Handle(1), client: ClientId(2), rights: Rights::READ, expires: NOW, tag: [3; 16] };
        assert!(grants.check(&forged, Handle(1), ClientId(2), Rights::READ, NOW).is_err());
        assert_eq!(grants.young.len(), before);
    }
}
