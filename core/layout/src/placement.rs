//! Where new objects go. A hash of the parent and the name spreads them evenly without anybody
//! counting, and the same name in the same directory always goes to the same place.

use weft_base::{Handle, ServerId};

/// The position, in its generation, of the data server that gets datafile 0 of a new file.
/// `name_hash` is any hash of its name; `data_servers` is the number of data servers, at least 1.
pub fn first_data_server(parent: Handle, name_hash: u64, data_servers: usize) -> u16 {
    spread(parent, name_hash, FIRST_DATA_SALT, data_servers) as u16
}

/// The metadata server, of at least one, that gets a new directory. `name_hash` is any hash of its
/// name.
pub fn directory_server(parent: Handle, name_hash: u64, meta_servers: &[ServerId]) -> ServerId {
    meta_servers[spread(parent, name_hash, DIRECTORY_SALT, meta_servers.len())]
}

/// Keeps the choices for a file and for a directory of the same name independent.
const FIRST_DATA_SALT: u64 = 0x6461_7461;
const DIRECTORY_SALT: u64 = 0x6d65_7461;

/// One of `count` places.
fn spread(parent: Handle, name_hash: u64, salt: u64, count: usize) -> usize {
    assert!(count > 0, "a file system has at least one server of each role");
    let hash = mix(mix(parent.0 ^ salt) ^ name_hash);
    // The high half of a product maps evenly onto 0..count (Lemire 2019); a remainder would favour
    // low numbers.
    ((u128::from(hash) * count as u128) >> 64) as usize
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit changes every output bit
/// with probability 1/2.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chi-square of the counts against an even spread.
    fn chi_square(counts: &[u32]) -> f64 {
        let expected = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum()
    }

    #[test]
    fn places_are_even_for_the_worst_inputs() {
        // Consecutive numbers instead of hashes, in one directory and as directories: what a weak
        // mix would not spread.
        for servers in [2, 3, 4, 7, 16] {
            let metas: Vec<ServerId> = (0..servers as u16).map(|index| ServerId(3 * index)).collect();
            let by_name = (0..20_000).map(|i| (Handle(1), i));
            let by_parent = (0..20_000).map(|i| (Handle(i), 0));
            for inputs in [by_name.collect::<Vec<_>>(), by_parent.collect()] {
                let (mut data, mut meta) = (vec![0; servers], vec![0; servers]);
                for (parent, hash) in inputs {
                    data[usize::from(first_data_server(parent, hash, servers))] += 1;
                    meta[directory_server(parent, hash, &metas).index() / 3] += 1;
                }
                // 15 degrees of freedom: 37.7 is exceeded once in a thousand; the inputs are fixed,
                // so this cannot flicker.
                assert!(chi_square(&data) < 38.0 && chi_square(&meta) < 38.0, "{servers}: {data:?} {meta:?}");
            }
        }
    }

    #[test]
    fn files_and_directories_are_placed_independently() {
        let metas = [ServerId(0), ServerId(1), ServerId(2), ServerId(3)];
        let same = (0..10_000u64).filter(|i| first_data_server(Handle(9), *i, 4) == directory_server(Handle(9), *i, &metas).0);
        let same = same.count();
        assert!((2300..2700).contains(&same), "{same} of 10000");
    }
}
