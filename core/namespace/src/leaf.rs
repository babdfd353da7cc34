//! Some entries of a directory in one piece of memory, ordered by hash and name. In front are their
//! heads, all of one size; from the end grow their names.

use std::cmp::Ordering;
use std::ops::Range;

use weft_base::{FileKind, Handle};

use crate::directory::Entry;

/// A leaf becomes no larger than this, in bytes, unless all its names have one hash.
pub(crate) const LEAF_BYTES_MAX: usize = 4096;
/// Hash and handle, 8 bytes each; in the lower three of 4 bytes how far before the end of the
/// memory the name begins, in the highest the kind; 2 bytes for the length of the name.
const HEAD_BYTES: usize = 22;
type Head = [u8; HEAD_BYTES];

/// Bytes in memory that is aligned as that of names and inodes is ([`weft_base::PAGE_ALIGN`]).
#[repr(C, align(256))]
#[derive(Debug)]
struct Aligned<const BYTES: usize>([u8; BYTES]);
const _: () = assert!(align_of::<Aligned<256>>() == weft_base::PAGE_ALIGN);

/// The memory of a leaf, of one of a few sizes.
#[derive(Debug, Default)]
enum Memory {
    #[default]
    None,
    B256(Box<Aligned<256>>),
    B512(Box<Aligned<512>>),
    B1024(Box<Aligned<1024>>),
    B2048(Box<Aligned<2048>>),
    B3072(Box<Aligned<3072>>),
    B4096(Box<Aligned<4096>>),
    /// Names of one hash that are more than a leaf holds.
    #[expect(clippy::box_collection, reason = "all others are one pointer")]
    Larger(Box<Vec<u8>>),
}

impl Memory {
    /// The least that has so many bytes.
    fn of(bytes: usize) -> Memory {
        match bytes {
            0 => Memory::None,
            1..=256 => Memory::B256(Box::new(Aligned([0; 256]))),
            257..=512 => Memory::B512(Box::new(Aligned([0; 512]))),
            513..=1024 => Memory::B1024(Box::new(Aligned([0; 1024]))),
            1025..=2048 => Memory::B2048(Box::new(Aligned([0; 2048]))),
            2049..=3072 => Memory::B3072(Box::new(Aligned([0; 3072]))),
            3073..=4096 => Memory::B4096(Box::new(Aligned([0; 4096]))),
            _ => Memory::Larger(Box::new(vec![0; bytes])),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Memory::None => &[],
            Memory::B256(memory) => &memory.0,
            Memory::B512(memory) => &memory.0,
            Memory::B1024(memory) => &memory.0,
            Memory::B2048(memory) => &memory.0,
            Memory::B3072(memory) => &memory.0,
            Memory::B4096(memory) => &memory.0,
            Memory::Larger(memory) => memory,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::None => &mut [],
            Memory::B256(memory) => &mut memory.0,
            Memory::B512(memory) => &mut memory.0,
            Memory::B1024(memory) => &mut memory.0,
            Memory::B2048(memory) => &mut memory.0,
            Memory::B3072(memory) => &mut memory.0,
            Memory::B4096(memory) => &mut memory.0,
            Memory::Larger(memory) => memory,
        }
    }
}

/// Entries, ordered by hash and name.
#[derive(Debug, Default)]
pub(crate) struct Leaf {
    memory: Memory,
    count: u32,
    /// Bytes of all names.
    names: u32,
}

impl Leaf {
    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    /// Bytes that its entries take.
    pub(crate) fn used(&self) -> usize {
        self.len() * HEAD_BYTES + self.names as usize
    }

    /// Bytes of its memory.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.memory.bytes().len()
    }

    fn heads(&self) -> &[Head] {
        &self.memory.bytes().as_chunks().0[..self.len()]
    }

    fn head_mut(&mut self, at: usize) -> &mut Head {
        &mut self.memory.bytes_mut().as_chunks_mut().0[at]
    }

    /// The hash of the entry at this place.
    pub(crate) fn hash(&self, at: usize) -> u64 {
        hash_of(&self.heads()[at])
    }

    pub(crate) fn entry(&self, at: usize) -> Entry<'_> {
        let head = &self.heads()[at];
        let handle = u64::from_le_bytes(*head[8..].first_chunk().expect("8 bytes"));
        let kind = FileKind::from_code(head[19]).expect("kinds are written by `set`");
        Entry { name: self.name(head), handle: Handle(handle), kind }
    }

    fn name(&self, head: &Head) -> &[u8] {
        let bytes = self.memory.bytes();
        &bytes[bytes.len() - before_end(head)..][..length(head)]
    }

    /// The place of the first entry with this hash or a higher one.
    fn from(&self, hash: u64) -> usize {
        self.heads().partition_point(|head| hash_of(head) < hash)
    }

    /// The place of an entry, or where it would be.
    pub(crate) fn find(&self, hash: u64, name: &[u8]) -> Result<usize, usize> {
        let first = self.from(hash);
        for (number, head) in self.heads()[first..].iter().enumerate() {
            let order = if hash_of(head) == hash { self.name(head).cmp(name) } else { Ordering::Greater };
            match order {
                Ordering::Less => {}
                Ordering::Equal => return Ok(first + number),
                Ordering::Greater => return Err(first + number),
            }
        }
        Err(self.len())
    }

    /// Has the name at this place lead elsewhere.
    pub(crate) fn set(&mut self, at: usize, handle: Handle, kind: FileKind) {
        let head = self.head_mut(at);
        head[8..16].copy_from_slice(&handle.0.to_le_bytes());
        head[19] = kind as u8;
    }

    /// True if an entry with a name of so many bytes makes it no larger than it should become.
    pub(crate) fn has_room(&self, name_bytes: usize) -> bool {
        self.used() + HEAD_BYTES + name_bytes <= LEAF_BYTES_MAX
    }

    /// Puts an entry at the place that [`Leaf::find`] has named.
    pub(crate) fn insert(&mut self, at: usize, hash: u64, entry: Entry<'_>) {
        let (length, wanted) = (entry.name.len(), self.used() + HEAD_BYTES + entry.name.len());
        if self.memory.bytes().len() < wanted {
            self.resize(wanted);
        }
        let (heads, names) = (self.len() * HEAD_BYTES, self.names as usize + length);
        let bytes = self.memory.bytes_mut();
        bytes.copy_within(at * HEAD_BYTES..heads, (at + 1) * HEAD_BYTES);
        let begin = bytes.len() - names;
        bytes[begin..begin + length].copy_from_slice(entry.name);
        (self.count, self.names) = (self.count + 1, names as u32);
        let head = self.head_mut(at);
        head[..8].copy_from_slice(&hash.to_le_bytes());
        set_before_end(head, names);
        head[20..].copy_from_slice(&u16::try_from(length).expect("names are short").to_le_bytes());
        self.set(at, entry.handle, entry.kind);
    }

    pub(crate) fn remove(&mut self, at: usize) {
        let (gone, length) = (before_end(&self.heads()[at]), length(&self.heads()[at]));
        let (heads, names) = (self.len() * HEAD_BYTES, self.names as usize);
        let bytes = self.memory.bytes_mut();
        bytes.copy_within((at + 1) * HEAD_BYTES..heads, at * HEAD_BYTES);
        let end = bytes.len();
        bytes.copy_within(end - names..end - gone, end - names + length);
        (self.count, self.names) = (self.count - 1, (names - length) as u32);
        let count = self.len();
        for head in &mut self.memory.bytes_mut().as_chunks_mut().0[..count] {
            if before_end(head) > gone {
                set_before_end(head, before_end(head) - length);
            }
        }
        if self.used() <= self.memory.bytes().len() / 4 {
            self.resize(self.used() * 2);
        }
    }

    /// Moves all to memory with room for so many bytes.
    fn resize(&mut self, bytes: usize) {
        let mut memory = Memory::of(bytes);
        let (heads, names) = (self.len() * HEAD_BYTES, self.names as usize);
        let (from, to) = (self.memory.bytes(), memory.bytes_mut());
        to[..heads].copy_from_slice(&from[..heads]);
        let (begin, end) = (to.len() - names, from.len() - names);
        to[begin..].copy_from_slice(&from[end..]);
        self.memory = memory;
    }

    /// Some of its entries, in memory with room for so many bytes.
    fn copy(&self, range: Range<usize>, bytes: usize) -> Leaf {
        let mut copy = Leaf { memory: Memory::of(bytes), ..Leaf::default() };
        copy.append(self, range);
        copy
    }

    /// Puts some entries of a leaf behind its own.
    fn append(&mut self, other: &Leaf, range: Range<usize>) {
        range.for_each(|at| self.insert(self.len(), other.hash(at), other.entry(at)));
    }

    /// Takes the entries of the leaf behind it.
    pub(crate) fn take_in(&mut self, next: &Leaf) {
        self.resize(self.used() + next.used());
        self.append(next, 0..next.len());
    }

    /// Gives the upper half away, if not all have one hash.
    pub(crate) fn split(&mut self) -> Option<Leaf> {
        let middle = self.len() / 2;
        let is_boundary = |at: &usize| self.hash(at - 1) != self.hash(*at);
        let below = (1..=middle).rev().find(is_boundary);
        let at = below.or_else(|| (middle + 1..self.len()).find(is_boundary))?;
        let used = |range: Range<usize>| self.heads()[range].iter().map(|head| HEAD_BYTES + length(head)).sum();
        let upper = self.copy(at..self.len(), used(at..self.len()));
        *self = self.copy(0..at, used(0..at));
        Some(upper)
    }

    /// Its entries with these hashes, in groups of equal hash.
    pub(crate) fn groups(&self, first: u64, last: u64) -> Groups<'_> {
        let end = last.checked_add(1).map_or(self.len(), |end| self.from(end));
        Groups { leaf: self, places: self.from(first)..end }
    }
}

fn hash_of(head: &Head) -> u64 {
    u64::from_le_bytes(*head.first_chunk().expect("8 of 22 bytes"))
}

/// How far before the end of the memory the name begins, in bytes.
fn before_end(head: &Head) -> usize {
    u32::from_le_bytes([head[16], head[17], head[18], 0]) as usize
}

fn set_before_end(head: &mut Head, bytes: usize) {
    assert!(bytes < 1 << 24, "more names have one hash than a leaf may hold");
    head[16..19].copy_from_slice(&(bytes as u32).to_le_bytes()[..3]);
}

/// Bytes of the name.
fn length(head: &Head) -> usize {
    u16::from_le_bytes([head[20], head[21]]).into()
}

/// Groups of equal hash of a leaf.
#[derive(Debug)]
pub(crate) struct Groups<'a> {
    leaf: &'a Leaf,
    places: Range<usize>,
}

/// Entries whose names have one hash: nearly always one.
#[derive(Clone, Debug)]
pub(crate) struct Group<'a> {
    leaf: &'a Leaf,
    places: Range<usize>,
}

impl<'a> Group<'a> {
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let leaf = self.leaf;
        self.places.clone().map(move |at| leaf.entry(at))
    }
}

impl<'a> Iterator for Groups<'a> {
    type Item = (u64, Group<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.places.next()?;
        let hash = self.leaf.hash(first);
        while !self.places.is_empty() && self.leaf.hash(self.places.start) == hash {
            self.places.start += 1;
        }
        Some((hash, Group { leaf: self.leaf, places: first..self.places.start }))
    }
}

impl DoubleEndedIterator for Groups<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let last = self.places.next_back()?;
        let hash = self.leaf.hash(last);
        while !self.places.is_empty() && self.leaf.hash(self.places.end - 1) == hash {
            self.places.end -= 1;
        }
        Some((hash, Group { leaf: self.leaf, places: self.places.end..last + 1 }))
    }
}
