//! The content of a sparse file: pieces of data by offset. Writing shares the bytes of the payload,
//! it copies nothing.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use weft_base::Payload;

use crate::random::mix;

/// Zeros to share, so many bytes.
const ZEROS_BYTES: usize = 1 << 20;
/// Not constants: these would be a MiB of the program.
static ZEROS: LazyLock<Bytes> = LazyLock::new(|| BytesMut::zeroed(ZEROS_BYTES).freeze());

/// Content of a file; what has no piece reads as zeros. It knows no length.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    pieces: BTreeMap<u64, Payload>,
}

impl Extents {
    /// Puts `data` at `offset`, over what was there.
    pub(crate) fn write(&mut self, offset: u64, data: Payload) {
        if data.is_empty() {
            return;
        }
        self.cut(offset, offset + data.len());
        self.pieces.insert(offset, data);
    }

    /// Makes `start..end` a hole.
    pub(crate) fn cut(&mut self, start: u64, end: u64) {
        if let Some((&at, piece)) = self.pieces.range(..start).next_back() {
            let piece_end = at + piece.len();
            if piece_end > start {
                let piece = piece.clone();
                if piece_end > end {
                    self.pieces.insert(end, piece.slice(end - at, piece_end - end));
                }
                self.pieces.insert(at, piece.slice(0, start - at));
            }
        }
        while let Some((&at, piece)) = self.pieces.range(start..end).next() {
            let piece_end = at + piece.len();
            let tail = (piece_end > end).then(|| piece.slice(end - at, piece_end - end));
            self.pieces.remove(&at);
            if let Some(tail) = tail {
                self.pieces.insert(end, tail);
            }
        }
    }

    /// The content of `offset..offset + len`. A range that lies in one piece is shared, not copied.
    /// A range that is synthetic throughout (holes allowed beside it) stays synthetic: with the tag
    /// of its data if there is only one, otherwise with a tag that is computed from all of them and
    /// their places. In a mixture with real bytes synthetic data reads as zeros.
    pub(crate) fn read(&self, offset: u64, len: u64) -> Payload {
        let end = offset + len;
        let first = self.pieces.range(..=offset).next_back().map_or(offset, |(&at, _)| at);
        let parts = || {
            self.pieces.range(first..end).filter_map(move |(&at, piece)| {
                let (from, to) = (at.max(offset), (at + piece.len()).min(end));
                (from < to).then(|| (from - offset, piece.slice(from - at, to - from)))
            })
        };
        let mut summary = Summary::default();
        for (at, part) in parts() {
            if part.len() == len {
                return part;
            }
            summary.add(at, &part);
        }
        if let (false, Some(tag)) = (summary.has_real, summary.tag) {
            return Payload::Synthetic { len, tag };
        }
        if !summary.has_real {
            return zeros(len);
        }
        let mut out = BytesMut::zeroed(len as usize);
        for (at, part) in parts() {
            if let Payload::Real(bytes) = part {
                out[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
            }
        }
        Payload::Real(out.freeze())
    }

    /// All pieces by offset, as (offset, length).
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.pieces.iter().map(|(&at, piece)| (at, piece.len()))
    }
}

/// What kinds of data a range has.
#[derive(Default)]
struct Summary {
    has_real: bool,
    single: Option<u64>,
    tag: Option<u64>,
}

impl Summary {
    fn add(&mut self, at: u64, part: &Payload) {
        let Payload::Synthetic { tag, .. } = part else {
            self.has_real = true;
            return;
        };
        match (self.tag, self.single) {
            (None, _) => {
                self.tag = Some(*tag);
                self.single = Some(*tag);
            }
            (Some(_), Some(single)) if single == *tag => {}
            (Some(sum), _) => {
                self.single = None;
                self.tag = Some(mix(sum ^ mix(at ^ tag.rotate_left(17))));
            }
        }
    }
}

fn zeros(len: u64) -> Payload {
    if len <= ZEROS_BYTES as u64 {
        return Payload::Real(ZEROS.slice(..len as usize));
    }
    Payload::Real(BytesMut::zeroed(len as usize).freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn behaves_like_an_array() {
        let mut random = Random::new(3);
        let mut extents = Extents::default();
        let mut model = [0u8; 300];
        for round in 0..4000u64 {
            let start = random.below(280);
            let len = random.between(1, 20);
            let (from, to) = (start as usize, (start + len) as usize);
            match random.below(3) {
                0 => {
                    extents.cut(start, start + len);
                    model[from..to].fill(0);
                }
                1 => {
                    let data: Vec<u8> = (0..len).map(|index| (round + index) as u8).collect();
                    model[from..to].copy_from_slice(&data);
                    extents.write(start, data.into());
                }
                _ => assert_eq!(extents.read(start, len).to_bytes(), model[from..to], "round {round}"),
            }
        }
        assert_eq!(extents.read(0, 300).to_bytes(), model[..]);
    }

    #[test]
    fn synthetic_data_keeps_its_name() {
        let mut extents = Extents::default();
        extents.write(0, Payload::Synthetic { len: 1 << 40, tag: 5 });
        assert_eq!(extents.read(7, 1 << 20), Payload::Synthetic { len: 1 << 20, tag: 5 });
        extents.write(1 << 20, Payload::Synthetic { len: 4096, tag: 5 });
        assert_eq!(extents.read(0, 1 << 30), Payload::Synthetic { len: 1 << 30, tag: 5 });
        extents.write(1 << 20, Payload::Synthetic { len: 4096, tag: 6 });
        let mixed = extents.read(0, 1 << 30);
        assert_eq!(mixed, extents.read(0, 1 << 30));
        assert!(!matches!(mixed, Payload::Synthetic { tag: 5 | 6, .. }));
        extents.write(0, vec![9; 4].into());
        assert_eq!(extents.read(2, 4), Payload::from(vec![9, 9, 0, 0]));
    }
}
