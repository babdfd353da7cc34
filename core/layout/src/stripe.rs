//! The distribution `simple_stripe`: stripes of equal size go round the datafiles. Stripe `n` of
//! the file is stripe `n / width` of datafile `n % width`.

use weft_base::{Layout, StripeIndex};

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
pub struct StripePieces {
    layout: Layout,
    offset: u64,
    end: u64,
}

/// Cuts the range of `bytes` bytes at `offset` of a file at the borders of its stripes. Neighbours
/// of one datafile are merged, so a file with one datafile has one piece. A range that would end
/// beyond `u64::MAX` ends there.
pub fn pieces(layout: &Layout, offset: u64, bytes: u64) -> StripePieces {
    StripePieces { layout: *layout, offset, end: offset.saturating_add(bytes) }
}

impl Iterator for StripePieces {
    type Item = StripePiece;

    fn next(&mut self) -> Option<StripePiece> {
        if self.offset >= self.end {
            return None;
        }
        let piece = piece_at(&self.layout, self.offset, self.end);
        self.offset += piece.bytes;
        Some(piece)
    }
}

/// The piece that begins at `offset` and ends at the border of its stripe or at `end`.
fn piece_at(layout: &Layout, offset: u64, end: u64) -> StripePiece {
    if layout.width == 1 {
        return StripePiece { index: StripeIndex(0), local_offset: offset, file_offset: offset, bytes: end - offset };
    }
    let (stripe_bytes, width) = (u64::from(layout.stripe_bytes), u64::from(layout.width));
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
    use super::*;
    use proptest::prelude::*;

    /// The definition, one byte at a time: datafile and position in it.
    pub(crate) fn place(layout: &Layout, byte: u64) -> (u32, u64) {
        let (mut datafile, mut local, mut within) = (0, 0, 0);
        for _ in 0..byte {
            within += 1;
            local += 1;
            if within == layout.stripe_bytes {
                within = 0;
                datafile += 1;
                local -= u64::from(layout.stripe_bytes);
                if datafile == u32::from(layout.width) {
                    datafile = 0;
                    local += u64::from(layout.stripe_bytes);
                }
            }
        }
        (datafile, local)
    }

    /// Layouts with stripes far below what is allowed, so that byte-by-byte models stay small.
    pub(crate) fn tiny_layout() -> impl Strategy<Value = Layout> {
        (1u32..9, 1u16..6).prop_map(|(stripe_bytes, width)| Layout { stripe_bytes, width, first: 0, generation: 1 })
    }

    #[test]
    fn a_range_over_four_datafiles() {
        let layout = Layout { stripe_bytes: 65536, width: 4, first: 2, generation: 1 };
        let got: Vec<_> =
            pieces(&layout, 65536 * 3 + 10, 65536 + 20).map(|p| (p.index.0, p.local_offset, p.file_offset, p.bytes)).collect();
        assert_eq!(got, [(3, 10, 196618, 65526), (0, 65536, 262144, 30)]);
    }

    #[test]
    fn one_datafile_is_one_piece() {
        let layout = Layout { stripe_bytes: 4096, width: 1, first: 0, generation: 1 };
        assert_eq!(pieces(&layout, 5, 1 << 40).count(), 1);
    }

    #[test]
    fn nothing_has_no_pieces_and_the_end_of_numbers_is_no_trap() {
        let layout = Layout { stripe_bytes: 4096, width: 3, first: 0, generation: 1 };
        assert_eq!(pieces(&layout, 7, 0).count(), 0);
        let last: Vec<_> = pieces(&layout, u64::MAX - 1, 100).collect();
        assert_eq!(last.iter().map(|piece| piece.bytes).sum::<u64>(), 1);
    }

    proptest! {
        #[test]
        fn pieces_agree_with_the_byte_model(layout in tiny_layout(), offset in 0u64..200, bytes in 0u64..200) {
            let mut next = offset;
            for piece in pieces(&layout, offset, bytes) {
                prop_assert_eq!(piece.file_offset, next);
                prop_assert!(piece.bytes > 0);
                for i in 0..piece.bytes {
                    prop_assert_eq!(place(&layout, next + i), (piece.index.0, piece.local_offset + i));
                }
                next += piece.bytes;
            }
            prop_assert_eq!(next, offset + bytes);
        }
    }
}
