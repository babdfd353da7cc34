//! What is written, so that a reader can tell whether a block is the one that belongs there.

use weft_workload::Block;

/// Bytes at the start of a block that say which one it is.
pub const MARK_BYTES: usize = 16;

/// What a block begins with (cut off if it is shorter).
pub fn mark(client: u64, number: u64, block: Block) -> [u8; MARK_BYTES] {
    let mut mark = [0; MARK_BYTES];
    mark[..8].copy_from_slice(&block.offset.to_le_bytes());
    mark[8..12].copy_from_slice(&(client as u32).to_le_bytes());
    mark[12..].copy_from_slice(&(number as u32).to_le_bytes());
    mark
}

/// Data without pattern, so that nobody can save it shortened.
pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut data = vec![0; bytes];
    for chunk in data.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_differs_by_seed_and_has_any_length() {
        assert_eq!(noise(13, 1).len(), 13);
        assert_ne!(noise(64, 1), noise(64, 2));
    }
}
