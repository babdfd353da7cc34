//! The pieces of a file, and the distribution `simple_stripe`: stripes of equal size go round the
//! datafiles. Stripe `n` of the file is stripe `n / width` of datafile `n % width`.

use weft_base::StripeIndex;

use crate::Distribution;

/// A part of a file range that lies in one piece in one datafile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripePiece {
    /// The datafile.
    pub index: StripeIndex,
    /// First byte in the datafile.
    pub local_offset: u64,
    /// First byte in the file.
    pub file_offset: u64,
    /// Number of bytes, at least 1.
    pub bytes: u64,
}

/// The pieces of a file range in the order of the file; see [`pieces`].
#[derive(Clone, Debug)]
pub struct StripePieces<'a> {
    distribution: &'a Distribution,
    offset: u64,
    end: u64,
}

/// Cuts the range of `bytes` bytes at `offset` of a file at the borders of its stripes. A file with
/// one datafile has one piece. A range that would end beyond `u64::MAX` ends there.
pub fn pieces(distribution: &Distribution, offset: u64, bytes: u64) -> StripePieces<'_> {
    StripePieces { distribution, offset, end: offset.saturating_add(bytes) }
}

impl Iterator for StripePieces<'_> {
    type Item = StripePiece;

    fn next(&mut self) -> Option<StripePiece> {
        if self.offset >= self.end {
            return None;
        }
        let piece = piece_at(self.distribution, self.offset, self.end);
        self.offset += piece.bytes;
        Some(piece)
    }
}

/// The piece that begins at `offset` and ends at the border of its stripe or at `end`.
fn piece_at(distribution: &Distribution, offset: u64, end: u64) -> StripePiece {
    if distribution.width() == 1 {
        return StripePiece { index: StripeIndex(0), local_offset: offset, file_offset: offset, bytes: end - offset };
    }
    let (stripe_bytes, width) = match distribution {
        Distribution::Stripes { stripe_bytes, width } => (u64::from(*stripe_bytes), u64::from(*width)),
        Distribution::Strips(strips) => {
            let place = strips.place(offset);
            let (index, bytes) = (StripeIndex(place.datafile), place.bytes.min(end - offset));
            return StripePiece { index, local_offset: place.local_offset, file_offset: offset, bytes };
        }
    };
    let (stripe, within) = (offset / stripe_bytes, offset % stripe_bytes);
    StripePiece {
        index: StripeIndex((stripe % width) as u32),
        local_offset: stripe / width * stripe_bytes + within,
        file_offset: offset,
        bytes: (stripe_bytes - within).min(end - offset),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::varstrip::tests::{places, tiny, tiny_strips};
    use proptest::prelude::*;
    use weft_base::Layout;

    /// A distribution with its definition, the datafile and the position in it for each byte.
    pub(crate) type Model = (Distribution, Vec<(u32, u64)>);

    /// Bytes of which models know the places.
    pub(crate) const MODEL_BYTES: u64 = 500;

    /// Stripes and strips far below what is allowed, so that byte-by-byte models stay small.
    pub(crate) fn tiny_distribution() -> impl Strategy<Value = Model> {
        let stripes = (1u32..9, 1u16..6).prop_map(|(stripe_bytes, width)| {
            let list: Vec<_> = (0..width).map(|datafile| (datafile, stripe_bytes)).collect();
            (Distribution::Stripes { stripe_bytes, width }, places(&list, MODEL_BYTES))
        });
        let strips = tiny_strips().prop_map(|list| (Distribution::Strips(Arc::new(tiny(&list))), places(&list, MODEL_BYTES)));
        prop_oneof![stripes, strips]
    }

    fn of(layout: Layout) -> Distribution {
        Distribution::of(&layout).unwrap()
    }

    #[test]
    fn a_range_over_four_datafiles() {
        let distribution = of(Layout { stripe_bytes: 65536, width: 4, first: 2, generation: 1 });
        let got: Vec<_> =
            pieces(&distribution, 65536 * 3 + 10, 65536 + 20).map(|p| (p.index.0, p.local_offset, p.file_offset, p.bytes)).collect();
        assert_eq!(got, [(3, 10, 196618, 65526), (0, 65536, 262144, 30)]);
    }

    #[test]
    fn one_datafile_is_one_piece() {
        let distribution = of(Layout { stripe_bytes: 4096, width: 1, first: 0, generation: 1 });
        assert_eq!(pieces(&distribution, 5, 1 << 40).count(), 1);
    }

    #[test]
    fn nothing_has_no_pieces_and_the_end_of_numbers_is_no_trap() {
        let distribution = of(Layout { stripe_bytes: 4096, width: 3, first: 0, generation: 1 });
        assert_eq!(pieces(&distribution, 7, 0).count(), 0);
        let last: Vec<_> = pieces(&distribution, u64::MAX - 1, 100).collect();
        assert_eq!(last.iter().map(|piece| piece.bytes).sum::<u64>(), 1);
    }

    proptest! {
        #[test]
        fn pieces_agree_with_the_byte_model((distribution, places) in tiny_distribution(), offset in 0u64..200, bytes in 0u64..200) {
            let mut next = offset;
            for piece in pieces(&distribution, offset, bytes) {
                prop_assert_eq!(piece.file_offset, next);
                prop_assert!(piece.bytes > 0);
                for i in 0..piece.bytes {
                    prop_assert_eq!(places[(next + i) as usize], (piece.index.0, piece.local_offset + i));
                }
                next += piece.bytes;
            }
            prop_assert_eq!(next, offset + bytes);
        }
    }
}
