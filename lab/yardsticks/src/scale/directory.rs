//! A directory: its blocks by extendible hashing (section 2.5.3), who holds which tokens of them,
//! and how it is locked now. Pure: nothing here waits.

/// Nodes as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes(u128);

impl Nodes {
    pub fn add(&mut self, node: u32) {
        self.0 |= 1 << node;
    }

    pub fn has(self, node: u32) -> bool {
        self.0 & (1 << node) != 0
    }

    pub fn without(self, node: u32) -> Nodes {
        Nodes(self.0 & !(1 << node))
    }

    pub fn with_all(self, others: Nodes) -> Nodes {
        Nodes(self.0 | others.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    pub fn first(self) -> Option<u32> {
        (self.0 != 0).then(|| self.0.trailing_zeros())
    }
}

/// How a directory is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One byte-range token, `holder`'s; so many conflicts about it since the mode began.
    ByteRange { holder: Option<u32>, conflicts: u64, is_first: bool },
    /// Tokens for names (FGDL); so many creates since the mode began.
    Fine { creates: u64 },
}

/// A directory block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    /// Bits of the hash that its entries share.
    depth: u32,
    /// Hash and bytes of each entry.
    entries: Vec<(u64, u32)>,
    pub used_bytes: u64,
    /// Who holds FGDL tokens of it.
    pub holders: Nodes,
    /// The one holder has a token for all names: nobody else has asked since.
    pub is_whole: bool,
    /// Who has a valid copy of its entries; the metanode needs none.
    pub cached: Nodes,
    /// Who has entries in it that are not on disk.
    pub is_dirty: bool,
    /// Counts the invalidations of its tokens.
    pub generation: u32,
}

/// A directory.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Block of each value of the first `depth` bits of a hash.
    places: Vec<u32>,
    depth: u32,
    pub blocks: Vec<Block>,
    pub mode: Mode,
    /// Who they are, the first toucher first.
    pub metanodes: Vec<u32>,
    /// Entries of each node that its metanode has not taken over.
    pub unmerged: Vec<u64>,
}

impl Directory {
    /// An empty one, for so many nodes.
    pub fn new(nodes: u32) -> Directory {
        Directory {
            places: vec![0],
            depth: 0,
            blocks: vec![Block::default()],
            mode: Mode::ByteRange { holder: None, conflicts: 0, is_first: true },
            metanodes: Vec::new(),
            unmerged: vec![0; nodes as usize],
        }
    }

    /// The block where the entry with this hash belongs.
    pub fn block_of(&self, hash: u64) -> usize {
        let place = if self.depth == 0 { 0 } else { hash >> (64 - self.depth) };
        self.places[place as usize] as usize
    }

    /// The metanode of a block (section 4.5.1: blocks in turns, where there are several).
    pub fn metanode_of(&self, block: usize) -> u32 {
        self.metanodes[block % self.metanodes.len()]
    }

    /// Adds an entry, unless its block is full: then `false`.
    pub fn insert(&mut self, hash: u64, bytes: u32, block_bytes: u64) -> bool {
        let index = self.block_of(hash);
        let block = &mut self.blocks[index];
        if block.used_bytes + u64::from(bytes) > block_bytes {
            return false;
        }
        block.entries.push((hash, bytes));
        block.used_bytes += u64::from(bytes);
        block.is_dirty = true;
        true
    }

    /// Splits a block in two by the next bit of the hashes.
    pub fn split(&mut self, index: usize) {
        if self.blocks[index].depth == self.depth {
            self.places = self.places.iter().flat_map(|&block| [block, block]).collect();
            self.depth += 1;
        }
        let old = &mut self.blocks[index];
        old.depth += 1;
        let bit = 64 - old.depth;
        let (stay, leave): (Vec<_>, Vec<_>) = old.entries.drain(..).partition(|(hash, _)| (hash >> bit) & 1 == 0);
        let bytes = |entries: &[(u64, u32)]| entries.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
        (old.used_bytes, old.entries) = (bytes(&stay), stay);
        old.is_dirty = true;
        let new = Block { used_bytes: bytes(&leave), entries: leave, ..old.clone_tokens() };
        let number = u32::try_from(self.blocks.len()).expect("at most 2^20 blocks");
        let shift = self.depth - self.blocks[index].depth;
        for (place, block) in self.places.iter_mut().enumerate() {
            if *block as usize == index && (place >> shift) & 1 == 1 {
                *block = number;
            }
        }
        self.blocks.push(new);
    }

    /// Everybody's tokens and copies of all blocks become void.
    pub fn forget_tokens(&mut self) {
        for block in &mut self.blocks {
            block.forget_tokens();
        }
    }

    /// Who holds tokens of it.
    pub fn holders(&self) -> Nodes {
        self.blocks.iter().fold(Nodes::default(), |all, block| all.with_all(block.holders))
    }

    /// Blocks that are not on disk as they are in memory; they count as written from now on.
    pub fn take_dirty(&mut self) -> u64 {
        self.blocks.iter_mut().map(|block| u64::from(std::mem::take(&mut block.is_dirty))).sum()
    }
}

impl Block {
    /// Everybody's tokens and copies become void.
    pub fn forget_tokens(&mut self) {
        (self.holders, self.cached, self.is_whole) = (Nodes::default(), Nodes::default(), false);
        self.generation += 1;
    }

    /// A block without entries and with the same tokens.
    fn clone_tokens(&self) -> Block {
        let Block { depth, holders, is_whole, cached, is_dirty, generation, .. } = *self;
        Block { depth, holders, is_whole, cached, is_dirty, generation, ..Block::default() }
    }
}

/// The hash of a name, from the numbers in it: the output function of SplitMix64 (Steele, Lea,
/// Flood, OOPSLA 2014).
pub(crate) fn hash(rank: u32, index: u64) -> u64 {
    let number = (u64::from(rank) << 40 | index).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_keep_every_entry_in_the_block_of_its_hash() {
        let mut directory = Directory::new(1);
        for index in 0..20_000 {
            let hash = hash(3, index);
            while !directory.insert(hash, 64, 64 * 100) {
                directory.split(directory.block_of(hash));
            }
        }
        assert_eq!(directory.blocks.iter().map(|block| block.entries.len()).sum::<usize>(), 20_000);
        for (number, block) in directory.blocks.iter().enumerate() {
            assert!(block.entries.iter().all(|(hash, _)| directory.block_of(*hash) == number), "block {number}");
            assert_eq!(block.used_bytes, block.entries.len() as u64 * 64);
        }
        assert!((200..400).contains(&directory.blocks.len()), "{} blocks of 100 entries", directory.blocks.len());
    }
}
