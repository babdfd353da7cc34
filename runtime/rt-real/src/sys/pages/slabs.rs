//! Which memory of the region of pages is in use. Only counts: the memory itself is the business of
//! the module above.
//!
//! The region is cut into slabs of one size, and a slab into blocks of one size, when the first of
//! them is wanted. What is in use stands here and not in the slabs, so that nobody looks into
//! memory that may be on a disk.

/// Bytes of a slab.
pub(super) const SLAB_BYTES: usize = 64 << 10;
/// Sizes of blocks are multiples of this, in bytes.
pub(super) const UNIT_BYTES: usize = weft_base::PAGE_ALIGN;
/// Largest block, in bytes.
pub(super) const BLOCK_BYTES_MAX: usize = 4096;
const SIZES: usize = BLOCK_BYTES_MAX / UNIT_BYTES;
const NONE: u32 = u32::MAX;

/// Where the memory of a slab is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    /// In the machine's memory alone.
    Memory = 0,
    /// In the page file, as far as the machine's memory has no room for it.
    File = 1,
}

#[derive(Debug)]
struct Slab {
    backing: Backing,
    /// Its memory has been given back.
    is_given_back: bool,
    /// Of how many units its blocks are; 0: it has none.
    units: u8,
    /// Blocks that are in use.
    used: u16,
    /// A bit of each block; set: it is in use.
    bits: [u64; 4],
    /// Neighbours in its list: slabs with blocks of one size and backing that have a free one, or
    /// slabs without blocks.
    before: u32,
    behind: u32,
}

/// All slabs, by their place in the region.
#[derive(Debug)]
pub(super) struct Slabs {
    slabs: Vec<Slab>,
    /// First slabs of the lists; in the list of size 0 are slabs without blocks.
    lists: [[u32; SIZES + 1]; 2],
    /// Slabs without blocks, and those of them whose memory is there.
    empty: [usize; 2],
    idle: [usize; 2],
}

impl Slabs {
    pub(super) const fn new() -> Slabs {
        Slabs { slabs: Vec::new(), lists: [[NONE; SIZES + 1]; 2], empty: [0; 2], idle: [0; 2] }
    }

    pub(super) fn len(&self) -> usize {
        self.slabs.len()
    }

    /// How many slabs have no blocks.
    pub(super) fn without_blocks(&self, backing: Backing) -> usize {
        self.empty[backing as usize]
    }

    /// How many of these have memory.
    pub(super) fn idle(&self, backing: Backing) -> usize {
        self.idle[backing as usize]
    }

    /// The next slab of the region has this backing.
    pub(super) fn add(&mut self, backing: Backing) {
        let number = u32::try_from(self.slabs.len()).expect("a region has fewer slabs");
        self.slabs.push(Slab { backing, is_given_back: false, units: 0, used: 0, bits: [0; 4], before: NONE, behind: NONE });
        self.empty[backing as usize] += 1;
        self.idle[backing as usize] += 1;
        self.enlist(number);
    }

    /// Takes a block of this size in a slab that has such blocks: its slab and its place there, in
    /// bytes.
    pub(super) fn take(&mut self, backing: Backing, bytes: usize) -> Option<(usize, usize)> {
        let number = self.lists[backing as usize][units(bytes)];
        let slab = self.slabs.get_mut(number as usize)?;
        let block =
            slab.bits.iter().enumerate().find_map(|(at, bits)| (*bits != u64::MAX).then(|| at * 64 + bits.trailing_ones() as usize));
        let block = block.expect("a slab of this list has a free block");
        assert!(block < blocks_of(slab.units), "a block lies within its slab");
        slab.bits[block / 64] |= 1 << (block % 64);
        slab.used += 1;
        if usize::from(slab.used) == blocks_of(slab.units) {
            self.unlist(number);
        }
        Some((number as usize, block * bytes))
    }

    /// The slab without blocks that is to be cut next; true: its memory was given back.
    pub(super) fn empty(&self, backing: Backing) -> Option<(usize, bool)> {
        let number = self.lists[backing as usize][0] as usize;
        self.slabs.get(number).map(|slab| (number, slab.is_given_back))
    }

    /// Cuts a slab without blocks, whose memory is there, into blocks of this size.
    pub(super) fn cut(&mut self, number: usize, bytes: usize) {
        let slab = &self.slabs[number];
        assert!(slab.units == 0, "a slab is cut once");
        self.empty[slab.backing as usize] -= 1;
        self.idle[slab.backing as usize] -= usize::from(!slab.is_given_back);
        self.unlist(number as u32);
        let slab = &mut self.slabs[number];
        (slab.units, slab.is_given_back) = (units(bytes) as u8, false);
        self.enlist(number as u32);
    }

    /// Gives a block back. True: its slab has none in use any more.
    pub(super) fn give(&mut self, number: usize, place: usize, bytes: usize) -> bool {
        let slab = &mut self.slabs[number];
        let block = place / bytes;
        assert!(usize::from(slab.units) == units(bytes) && place == block * bytes, "a block is given back as it was taken");
        assert!(slab.bits[block / 64] & 1 << (block % 64) != 0, "a block is given back once");
        let was_full = usize::from(slab.used) == blocks_of(slab.units);
        slab.bits[block / 64] &= !(1 << (block % 64));
        slab.used -= 1;
        if slab.used > 0 {
            if was_full {
                self.enlist(number as u32);
            }
            return false;
        }
        if !was_full {
            self.unlist(number as u32);
        }
        let slab = &mut self.slabs[number];
        slab.units = 0;
        self.empty[slab.backing as usize] += 1;
        self.idle[slab.backing as usize] += 1;
        self.enlist(number as u32);
        true
    }

    /// The memory of a slab without blocks was given back to the system.
    pub(super) fn note_given_back(&mut self, number: usize) {
        let slab = &mut self.slabs[number];
        assert!(slab.units == 0 && !slab.is_given_back, "only memory that nobody uses is given back");
        slab.is_given_back = true;
        self.idle[slab.backing as usize] -= 1;
    }

    pub(super) fn backing(&self, number: usize) -> Backing {
        self.slabs[number].backing
    }

    fn enlist(&mut self, number: u32) {
        let slab = &self.slabs[number as usize];
        let list = &mut self.lists[slab.backing as usize][usize::from(slab.units)];
        let behind = std::mem::replace(list, number);
        let slab = &mut self.slabs[number as usize];
        (slab.before, slab.behind) = (NONE, behind);
        if let Some(next) = self.slabs.get_mut(behind as usize) {
            next.before = number;
        }
    }

    fn unlist(&mut self, number: u32) {
        let Slab { backing, units, before, behind, .. } = self.slabs[number as usize];
        match self.slabs.get_mut(before as usize) {
            Some(slab) => slab.behind = behind,
            None => self.lists[backing as usize][usize::from(units)] = behind,
        }
        if let Some(slab) = self.slabs.get_mut(behind as usize) {
            slab.before = before;
        }
    }
}

fn units(bytes: usize) -> usize {
    assert!(bytes > 0 && bytes <= BLOCK_BYTES_MAX && bytes.is_multiple_of(UNIT_BYTES), "blocks are of whole units");
    bytes / UNIT_BYTES
}

fn blocks_of(units: u8) -> usize {
    SLAB_BYTES / (usize::from(units) * UNIT_BYTES)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn blocks_of_all_sizes_never_overlap() {
        let mut slabs = Slabs::new();
        let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize
        };
        for step in 0..60_000 {
            // It grows, and shrinks, and grows.
            if next() % 10 < if (step / 20_000) % 2 == 0 { 6 } else { 3 } {
                let (bytes, backing) = ((1 + next() % SIZES) * UNIT_BYTES, if next() % 2 == 0 { Backing::Memory } else { Backing::File });
                let (slab, place) = slabs.take(backing, bytes).unwrap_or_else(|| {
                    if slabs.empty(backing).is_none() {
                        slabs.add(backing);
                    }
                    let (empty, _) = slabs.empty(backing).unwrap();
                    slabs.cut(empty, bytes);
                    slabs.take(backing, bytes).unwrap()
                });
                assert_eq!(slabs.backing(slab), backing);
                let begin = slab * SLAB_BYTES + place;
                assert!(place + bytes <= SLAB_BYTES);
                assert!(taken.range(..begin).next_back().is_none_or(|(before, bytes)| before + bytes <= begin));
                assert!(taken.range(begin..).next().is_none_or(|(behind, _)| begin + bytes <= *behind));
                taken.insert(begin, bytes);
            } else if let Some((begin, bytes)) =
                taken.range(next() % (slabs.len() * SLAB_BYTES + 1)..).next().map(|(begin, bytes)| (*begin, *bytes))
            {
                taken.remove(&begin);
                let (slab, place) = (begin / SLAB_BYTES, begin % SLAB_BYTES);
                let is_empty = slabs.give(slab, place, bytes);
                assert_eq!(is_empty, taken.range(slab * SLAB_BYTES..(slab + 1) * SLAB_BYTES).next().is_none());
                if is_empty && next() % 2 == 0 {
                    slabs.note_given_back(slab);
                }
            }
        }
        for (begin, bytes) in taken {
            slabs.give(begin / SLAB_BYTES, begin % SLAB_BYTES, bytes);
        }
        let empty = |backing| slabs.slabs.iter().filter(|slab| slab.backing == backing && slab.units == 0).count();
        assert_eq!(empty(Backing::Memory) + empty(Backing::File), slabs.len());
        let there = slabs.slabs.iter().filter(|slab| !slab.is_given_back).count();
        assert_eq!(slabs.idle(Backing::Memory) + slabs.idle(Backing::File), there);
    }
}
