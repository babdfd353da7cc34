//! Bulk data between processes of one machine: memory that a client shares with a server, so that
//! data crosses no socket.
//!
//! The client makes the memory, one region for each connection, and gives places of it ([`Slot`])
//! to its requests: to a write with the data in it, to a read as room for the data of the reply.
//! The server only ever touches the place that a request names, and only between the request and
//! its reply. Frames on the socket carry the place instead of the bytes; see `docs/wire.md`.
//!
//! # Who may use a place, and when
//! - A place belongs to one request from its first sending to its reply. Then the client uses it
//!   again.
//! - Only the first sending of a request names a place; what is sent again carries its data itself.
//!   So no late copy of a request can make the server read or fill a place that belongs to somebody
//!   else by then.
//! - A request that is given up before its reply leaves its place unused until the connection ends
//!   ([`Slot::lose`]).
//! - A region ends with its connection; a new connection has a new one. The memory goes when both
//!   processes have let go of it, however they end.
//!
//! # What the server trusts
//! Nothing: places are checked against the region, whose length cannot change, and the bytes are
//! only handed to the disk. A client that changes them under the server's hands stores other bytes
//! than it meant to, in its own file. There is no checksum because there is no wire: the bytes that
//! the client wrote are the bytes that the disk gets.

mod memory;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use weft_wire::REGION_PAGE_BYTES;

use crate::locked;

pub(crate) use memory::Memory;

/// Bytes of a client's region: room for 32 requests of a mebibyte on one connection. Untouched
/// pages take no memory.
pub(crate) const REGION_BYTES: usize = 32 << 20;
/// Bulk data from this size on goes through the region: below, two copies through the socket cost
/// less than a place.
pub(crate) const SHARED_BYTES_MIN: u64 = 16 << 10;

/// The client's side of a region: which places are free.
#[derive(Debug)]
pub(crate) struct Region {
    memory: Memory,
    /// Runs of free pages: first page and number.
    free: Mutex<BTreeMap<u32, u32>>,
}

impl Region {
    /// All of it is free.
    pub(crate) fn new(memory: Memory) -> Region {
        let pages = (memory.len() / REGION_PAGE_BYTES) as u32;
        Region { memory, free: Mutex::new(BTreeMap::from([(0, pages)])) }
    }

    /// A free place for `bytes` bytes: the first that fits, so that the same memory, still in the
    /// cache, is used again and again.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<Slot> {
        let pages = u32::try_from(bytes.div_ceil(REGION_PAGE_BYTES as u64)).ok().filter(|pages| *pages > 0)?;
        let mut free = locked(&self.free);
        let (first, there) = free.iter().find(|(_, there)| **there >= pages).map(|(first, there)| (*first, *there))?;
        free.remove(&first);
        if there > pages {
            free.insert(first + pages, there - pages);
        }
        Some(Slot { region: self.clone(), page: first, pages })
    }

    fn give_back(&self, page: u32, pages: u32) {
        let mut free = locked(&self.free);
        let (mut first, mut count) = (page, pages);
        if let Some((before, there)) = free.range(..page).next_back().map(|(before, there)| (*before, *there))
            && before + there == page
        {
            free.remove(&before);
            (first, count) = (before, there + count);
        }
        if let Some(there) = free.remove(&(page + pages)) {
            count += there;
        }
        free.insert(first, count);
    }
}

/// A place of a region, for one request; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    region: Arc<Region>,
    page: u32,
    pages: u32,
}

impl Slot {
    /// Where it begins.
    pub(crate) fn page(&self) -> u32 {
        self.page
    }

    fn offset(&self) -> usize {
        self.page as usize * REGION_PAGE_BYTES
    }

    /// Copies data in; it must fit.
    pub(crate) fn fill(&mut self, pieces: &[&[u8]]) {
        assert!(pieces.iter().map(|piece| piece.len()).sum::<usize>() <= self.pages as usize * REGION_PAGE_BYTES, "a slot fits its data");
        self.region.memory.fill(self.offset(), pieces);
    }

    /// True if this is the place that a reply names.
    pub(crate) fn is_at(&self, offset: usize, len: usize) -> bool {
        offset == self.offset() && len <= self.pages as usize * REGION_PAGE_BYTES
    }

    /// The first `len` bytes, without a copy; the place is free again when the last reference is
    /// dropped.
    pub(crate) fn into_bytes(self, len: usize) -> Bytes {
        Bytes::from_owner(Filled { slot: self, len })
    }

    /// The server may still use the place: nobody else gets it as long as the region lives.
    pub(crate) fn lose(mut self) {
        self.pages = 0;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.pages > 0 {
            self.region.give_back(self.page, self.pages);
        }
    }
}

/// A place with the data of a reply.
struct Filled {
    slot: Slot,
    len: usize,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        self.slot.region.memory.part(self.slot.offset(), self.len)
    }
}

/// A place that a request has named, as the server's bulk data: the memory stays mapped as long as
/// this lives.
pub(crate) fn shared_bytes(memory: &Arc<Memory>, offset: usize, len: usize) -> Bytes {
    struct Place {
        memory: Arc<Memory>,
        offset: usize,
        len: usize,
    }
    impl AsRef<[u8]> for Place {
        fn as_ref(&self) -> &[u8] {
            self.memory.part(self.offset, self.len)
        }
    }
    Bytes::from_owner(Place { memory: memory.clone(), offset, len })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    fn region(pages: usize) -> (Arc<Region>, OwnedFd) {
        let (memory, fd) = Memory::create(pages * REGION_PAGE_BYTES).expect("a memory file");
        (Arc::new(Region::new(memory)), fd)
    }

    #[test]
    fn places_do_not_overlap_and_come_back_whole() {
        let (region, _fd) = region(16);
        let page = REGION_PAGE_BYTES as u64;
        let slots: Vec<_> = [1, page, page + 1, 5 * page, 7 * page].map(|bytes| region.take(bytes).expect("there is room")).into();
        let places: Vec<_> = slots.iter().map(|slot| (slot.page, slot.pages)).collect();
        assert_eq!(places, [(0, 1), (1, 1), (2, 2), (4, 5), (9, 7)]);
        assert!(region.take(1).is_none(), "all is taken");
        drop(slots);
        assert_eq!(*locked(&region.free), BTreeMap::from([(0, 16)]));
        // Whatever the order of giving back, one run is left.
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [1, 3, 0, 4, 2]] {
            let mut slots: Vec<_> = places.iter().map(|(_, pages)| region.take(u64::from(*pages) * page)).collect();
            order.iter().for_each(|at| drop(slots[*at].take()));
            assert_eq!(*locked(&region.free), BTreeMap::from([(0, 16)]), "{order:?}");
        }
        assert!(region.take(0).is_none() && region.take(17 * page).is_none());
    }

    #[test]
    fn a_lost_place_is_used_by_nobody_else() {
        let (region, _fd) = region(2);
        region.take(1).expect("there is room").lose();
        let next = region.take(1).expect("there is room");
        assert_eq!(next.page(), 1);
        drop(next);
        assert!(region.take(2 * REGION_PAGE_BYTES as u64).is_none());
    }

    #[test]
    fn both_sides_see_the_same_bytes() {
        let (region, fd) = region(4);
        let _first = region.take(1);
        let mut slot = region.take(6000).expect("there is room");
        slot.fill(&[&[1; 1000], &[2; 5000]]);
        let theirs = Arc::new(Memory::adopt(&fd, 4 * REGION_PAGE_BYTES as u64).expect("it is sealed"));
        let bytes = shared_bytes(&theirs, REGION_PAGE_BYTES, 6000);
        assert!(bytes[..1000] == [1; 1000] && bytes[1000..] == [2; 5000]);
        assert_eq!(theirs.place_of(&bytes[1000..]), Some(REGION_PAGE_BYTES + 1000));
        assert_eq!(theirs.place_of(&[0; 10]), None);
        assert!(slot.is_at(REGION_PAGE_BYTES, 8192) && !slot.is_at(REGION_PAGE_BYTES, 8193) && !slot.is_at(0, 1));
        drop(theirs); // the bytes keep it mapped
        assert_eq!(bytes[5999], 2);
        assert_eq!(slot.into_bytes(1001)[1000], 2);
        assert!(region.take(3 * REGION_PAGE_BYTES as u64).is_some(), "the place came back with its bytes");
    }

    #[test]
    fn only_sealed_memory_of_the_stated_length_is_adopted() {
        let (_, fd) = region(4);
        let page = REGION_PAGE_BYTES as u64;
        assert!(Memory::adopt(&fd, 4 * page).is_ok());
        for bytes in [0, 3 * page, 5 * page, 4 * page - 1, u64::MAX, u64::MAX - page + 1] {
            assert!(Memory::adopt(&fd, bytes).is_err(), "{bytes}");
        }
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(4 * page).expect("it grows");
        assert!(Memory::adopt(&file.into(), 4 * page).is_err(), "a plain file can shrink under our hands");
    }

    #[test]
    fn no_arithmetic_leads_outside() {
        let (memory, _fd) = Memory::create(REGION_PAGE_BYTES).expect("a memory file");
        assert!(memory.holds(0, REGION_PAGE_BYTES) && memory.holds(REGION_PAGE_BYTES, 0));
        for (offset, len) in
            [(1, REGION_PAGE_BYTES), (REGION_PAGE_BYTES, 1), (usize::MAX, 1), (1, usize::MAX), (u32::MAX as usize * 4096, 1)]
        {
            assert!(!memory.holds(offset, len), "{offset}+{len}");
        }
    }
}
