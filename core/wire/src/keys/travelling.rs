//! The list of keys on its way from metadata server 0 to the other servers.

use super::{KeyId, KeyRing};

/// Bytes of a list that a server gives and takes, at most.
pub const LIST_BYTES_MAX: usize = 8 << 20;
/// Bytes of it in one message, at most.
pub const LIST_PIECE_BYTES: usize = 256 << 10;

impl KeyRing {
    /// By what servers see that they have the same list: a part of its HMAC under their key. Never
    /// 0.
    pub fn fingerprint(&self, list: &str) -> u64 {
        let mac = self.server.mac(b"weft key list", &[list.as_bytes()]);
        let (first, _) = mac.split_first_chunk().expect("an HMAC has 32 bytes");
        u64::from_le_bytes(*first).max(1)
    }

    /// These keys, but none comes back that `known` has as revoked or replaced: with an old copy of
    /// the list nobody opens anything. Gives the numbers of the keys for which `known` holds.
    pub fn without_return_of(mut self, known: &KeyRing) -> (KeyRing, Vec<KeyId>) {
        let mut kept = Vec::new();
        for (id, before) in &known.clients {
            let returns = self.clients.get(id).map_or(before.is_revoked, |now| {
                now.generation < before.generation || now.generation == before.generation && before.is_revoked && !now.is_revoked
            });
            if returns {
                kept.push(*id);
                self.clients.insert(*id, before.clone());
            }
        }
        (self, kept)
    }
}
