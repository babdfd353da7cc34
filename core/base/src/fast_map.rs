//! Hash maps with a fixed, fast hash: the same input gives the same order in every run, which
//! simulations rely on. Not for keys that an attacker chooses; use a `BTreeMap` there.

use std::hash::{BuildHasherDefault, Hasher};

/// A hash map over trusted keys (handles, numbers) with a deterministic order.
#[allow(clippy::disallowed_types)] // the fixed hasher is what makes it allowed
pub type FastMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FastHasher>>;
/// A hash set over trusted keys with a deterministic order.
#[allow(clippy::disallowed_types)] // as above
pub type FastSet<K> = std::collections::HashSet<K, BuildHasherDefault<FastHasher>>;

/// Multiplicative hashing (Knuth, The Art of Computer Programming 3, 6.4) with a final mix so that
/// low bits are good too.
#[derive(Default, Clone, Copy)]
pub struct FastHasher(u64);

impl FastHasher {
    fn mix(&mut self, word: u64) {
        let product = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ (product >> 32);
    }
}

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }
    fn write_u8(&mut self, n: u8) {
        self.mix(u64::from(n));
    }
    fn write_u16(&mut self, n: u16) {
        self.mix(u64::from(n));
    }
    fn write_u32(&mut self, n: u32) {
        self.mix(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        self.mix(n);
    }
    fn write_usize(&mut self, n: usize) {
        self.mix(n as u64);
    }
}
