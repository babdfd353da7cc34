//! CRC32C (Castagnoli), the one checksum of headers, bodies, bulk data, journals and checkpoints.

use crc_fast::{CrcAlgorithm, Digest};

/// Every bit of the register, in which the check of the standard begins and with which it ends.
const ONES: u32 = u32::MAX;

/// CRC32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC32C of the concatenation of what `crc` was computed over and `bytes`.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(crc ^ ONES));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_standard_one() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn appending_is_concatenating() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for cut in [0, 1, 7, 64, 255, 1000, 4096, 5000] {
            assert_eq!(crc32c_append(crc32c(&bytes[..cut]), &bytes[cut..]), crc32c(&bytes), "cut at {cut}");
        }
    }
}
