//! Deterministic damage: the same seed and bytes give the same result.

use crate::Random;

/// Numbers at the edges of what lengths, counts and kinds may be.
const EDGES: [u64; 12] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, i64::MAX as u64, u64::MAX];

/// Damages byte strings.
#[derive(Debug)]
pub struct Mutator {
    random: Random,
}

impl Mutator {
    /// Begins the sequence of this seed.
    pub fn new(seed: u64) -> Mutator {
        Mutator { random: Random::new(seed) }
    }

    /// The bytes with one to four damages. They may by chance come out as they were.
    pub fn damage(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = bytes.to_vec();
        for _ in 0..=self.random.below(4) {
            self.hit(&mut out);
        }
        out
    }

    fn hit(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            let len = self.random.below(40) as usize;
            *bytes = self.random.bytes(len);
            return;
        }
        let at = self.random.below(bytes.len() as u64) as usize;
        let len = (1 + self.random.below(16) as usize).min(bytes.len() - at);
        match self.random.below(8) {
            0 => bytes[at] ^= 1 << self.random.below(8),
            1 => bytes[at] = self.random.next() as u8,
            2 | 3 => {
                let edge = EDGES[self.random.below(EDGES.len() as u64) as usize].to_le_bytes();
                let width = [1, 2, 4, 8][self.random.below(4) as usize].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&edge[..width]);
            }
            4 => bytes.truncate(at),
            5 => drop(bytes.drain(at..at + len)),
            6 => {
                let piece = bytes[at..at + len].to_vec();
                let to = self.random.below(bytes.len() as u64 + 1) as usize;
                bytes.splice(to..to, piece);
            }
            _ => {
                let piece = self.random.bytes(len);
                bytes.splice(at..at, piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_reproducible_and_mostly_damage() {
        let good: Vec<u8> = (0..100).collect();
        let damaged: Vec<_> = (0..100).map(|seed| Mutator::new(seed).damage(&good)).collect();
        assert_eq!(damaged, (0..100).map(|seed| Mutator::new(seed).damage(&good)).collect::<Vec<_>>());
        assert!(damaged.iter().filter(|bytes| **bytes != good).count() > 95);
        Mutator::new(1).damage(&[]);
    }
}
