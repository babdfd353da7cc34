//! Lengths: of a datafile from that of the file, and of the file from those of its datafiles. Which
//! layouts are allowed.

use weft_base::{Layout, Result, Status, StripeIndex};

use crate::Distribution;

/// Smallest stripe in bytes.
pub const STRIPE_BYTES_MIN: u32 = 4 << 10;
/// Largest stripe in bytes.
pub const STRIPE_BYTES_MAX: u32 = 64 << 20;
/// Most datafiles of one file.
pub const WIDTH_MAX: u16 = 4096;
/// Longest file in bytes: what one datafile may have, as all of a file may lie in one.
pub const FILE_BYTES_MAX: u64 = 1 << 60;

/// Checks what a user asked for: stripes of a power of two from 4 KiB to 64 MiB, 1 to 4096
/// datafiles.
///
/// # Errors
/// [`Status::Invalid`].
pub fn check(layout: &Layout) -> Result<()> {
    let stripes = layout.stripe_bytes.is_power_of_two() && (STRIPE_BYTES_MIN..=STRIPE_BYTES_MAX).contains(&layout.stripe_bytes);
    if stripes && (1..=WIDTH_MAX).contains(&layout.width) { Ok(()) } else { Err(Status::Invalid) }
}

/// The end of a range of a file, in bytes from its beginning.
///
/// # Errors
/// [`Status::FileTooBig`] if it lies beyond [`FILE_BYTES_MAX`].
pub fn file_end(offset: u64, bytes: u64) -> Result<u64> {
    offset.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Status::FileTooBig)
}

/// Length in bytes of datafile `index` of a file of `file_bytes` bytes that has no holes at the
/// ends of its datafiles. A truncation to `file_bytes` cuts the datafile to this length.
pub fn local_bytes(distribution: &Distribution, index: StripeIndex, file_bytes: u64) -> u64 {
    let (stripe_bytes, width) = match distribution {
        Distribution::Stripes { stripe_bytes, width } => (u64::from(*stripe_bytes), *width),
        Distribution::Strips(strips) => return strips.local_bytes(index.0, file_bytes),
    };
    let round_bytes = u128::from(stripe_bytes) * u128::from(width);
    let rounds = (u128::from(file_bytes) / round_bytes) as u64;
    let rest = (u128::from(file_bytes) % round_bytes) as u64;
    let before = stripe_bytes.saturating_mul(u64::from(index.0));
    rounds * stripe_bytes + rest.saturating_sub(before).min(stripe_bytes)
}

/// Length of a file in bytes, given the local length of every datafile in the order of their
/// indexes: the byte behind the last one that exists. Saturates at `u64::MAX` for lengths that no
/// file can have.
pub fn file_bytes(distribution: &Distribution, local_bytes: impl IntoIterator<Item = u64>) -> u64 {
    local_bytes.into_iter().zip(0..).map(|(local, index)| end_in_file(distribution, index, local)).max().unwrap_or(0)
}

/// Where the end of datafile `index`, `local` bytes long, lies in the file. Saturates as
/// [`file_bytes`].
pub fn end_in_file(distribution: &Distribution, index: u64, local: u64) -> u64 {
    let (stripe_bytes, width) = match distribution {
        Distribution::Stripes { stripe_bytes, width } => (u128::from(*stripe_bytes), u128::from(*width)),
        Distribution::Strips(strips) => return strips.end_in_file(index, local),
    };
    let Some(last) = local.checked_sub(1) else { return 0 };
    let (round, within) = (u128::from(last) / stripe_bytes, u128::from(last) % stripe_bytes);
    let end = (round * width + u128::from(index)) * stripe_bytes + within + 1;
    u64::try_from(end).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::stripe::tests::tiny_distribution;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_sensible_layouts() {
        for (stripe_bytes, width, good) in [
            (4096, 1, true),
            (1 << 20, 4, true),
            (64 << 20, WIDTH_MAX, true),
            (2048, 1, false),
            (128 << 20, 1, false),
            (5000, 1, false),
            (4096, 0, false),
            (4096, WIDTH_MAX + 1, false),
            (0, 1, false),
        ] {
            assert_eq!(check(&Layout { stripe_bytes, width, first: 0, generation: 1 }).is_ok(), good, "{stripe_bytes} {width}");
        }
    }

    #[test]
    fn ends_of_files() {
        assert_eq!(file_end(10, 5), Ok(15));
        assert_eq!(file_end(FILE_BYTES_MAX, 0), Ok(FILE_BYTES_MAX));
        assert_eq!(file_end(FILE_BYTES_MAX, 1), Err(Status::FileTooBig));
        assert_eq!(file_end(u64::MAX, 1), Err(Status::FileTooBig));
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let distribution = Distribution::Stripes { stripe_bytes: STRIPE_BYTES_MAX, width: WIDTH_MAX };
        assert_eq!(file_bytes(&distribution, [u64::MAX; 3]), u64::MAX);
        let locals = (0..u32::from(WIDTH_MAX)).map(|index| local_bytes(&distribution, StripeIndex(index), FILE_BYTES_MAX));
        assert_eq!(file_bytes(&distribution, locals), FILE_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn lengths_agree_with_the_byte_model((distribution, places) in tiny_distribution(), size in 0u64..300) {
            let mut expected = vec![0; usize::from(distribution.width())];
            for byte in 0..size {
                let (datafile, local) = places[byte as usize];
                expected[datafile as usize] = expected[datafile as usize].max(local + 1);
            }
            let got: Vec<_> = (0..u32::from(distribution.width())).map(|index| local_bytes(&distribution, StripeIndex(index), size)).collect();
            prop_assert_eq!(&got, &expected);
            prop_assert_eq!(file_bytes(&distribution, got), size);
        }

        #[test]
        fn a_sparse_file_ends_behind_its_last_byte((distribution, places) in tiny_distribution(), bytes in proptest::collection::vec(0u64..300, 0..5)) {
            let mut locals = vec![0; usize::from(distribution.width())];
            for byte in &bytes {
                let (datafile, local) = places[*byte as usize];
                locals[datafile as usize] = locals[datafile as usize].max(local + 1);
            }
            prop_assert_eq!(file_bytes(&distribution, locals), bytes.iter().max().map_or(0, |last| last + 1));
        }
    }
}
