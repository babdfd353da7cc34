//! The table of inodes: pages of neighbouring handles. Handles are given out in sequence, so pages
//! are dense: a million inodes need a map of 33 thousand pages, growth moves only their addresses,
//! and the order for a walk is kept per page, not per inode.

use std::collections::BTreeSet;

use weft_base::{FastMap, Handle};

use crate::Inode;

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;
const PAGE_SLOTS: usize = PAGE_BYTES / size_of::<Option<Inode>>();

/// Inodes by handle.
#[derive(Debug, Default)]
pub(crate) struct InodeTable {
    pages: FastMap<u64, Page>,
    /// Numbers of all pages.
    order: BTreeSet<u64>,
    len: u64,
}

#[derive(Debug)]
struct Page {
    slots: Box<Slots>,
    used: usize,
}

/// In memory that is aligned as that of names and inodes is ([`weft_base::PAGE_ALIGN`]).
#[repr(align(256))]
#[derive(Debug)]
struct Slots([Option<Inode>; PAGE_SLOTS]);
const _: () = assert!(size_of::<Slots>() <= PAGE_BYTES && align_of::<Slots>() == weft_base::PAGE_ALIGN);

fn place(handle: Handle) -> (u64, usize) {
    (handle.0 / PAGE_SLOTS as u64, (handle.0 % PAGE_SLOTS as u64) as usize)
}

impl InodeTable {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<&Inode> {
        let (page, slot) = place(handle);
        self.pages.get(&page)?.slots.0[slot].as_ref()
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut Inode> {
        let (page, slot) = place(handle);
        self.pages.get_mut(&page)?.slots.0[slot].as_mut()
    }

    pub(crate) fn insert(&mut self, handle: Handle, inode: Inode) -> Option<Inode> {
        let (number, slot) = place(handle);
        let page = self.pages.entry(number).or_insert_with(|| {
            self.order.insert(number);
            Page { slots: Box::new(Slots([const { None }; PAGE_SLOTS])), used: 0 }
        });
        let old = page.slots.0[slot].replace(inode);
        page.used += usize::from(old.is_none());
        self.len += u64::from(old.is_none());
        assert!(page.used <= PAGE_SLOTS, "a page holds no more than its slots");
        old
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Inode> {
        let (number, slot) = place(handle);
        let page = self.pages.get_mut(&number)?;
        let old = page.slots.0[slot].take()?;
        assert!(page.used >= 1 && self.len >= 1, "what is removed was counted");
        page.used -= 1;
        self.len -= 1;
        if page.used == 0 {
            self.pages.remove(&number);
            self.order.remove(&number);
            // A map does not become smaller by itself.
            if self.pages.len() < self.pages.capacity() / 8 {
                self.pages.shrink_to(2 * self.pages.len());
            }
        }
        Some(old)
    }

    /// All inodes with handles from `first` on, in order.
    pub(crate) fn from(&self, first: Handle) -> impl Iterator<Item = (Handle, &Inode)> {
        let (page, _) = place(first);
        let all = self.order.range(page..).flat_map(|number| {
            let base = number * PAGE_SLOTS as u64;
            self.pages[number]
                .slots
                .0
                .iter()
                .enumerate()
                .filter_map(move |(slot, inode)| Some((Handle(base + slot as u64), inode.as_ref()?)))
        });
        all.skip_while(move |(handle, _)| *handle < first)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use weft_base::{FileKind, Layout, WallTime};

    #[test]
    fn a_table_that_was_large_becomes_small() {
        let layout = Layout { stripe_bytes: 1 << 20, width: 1, first: 0, generation: 1 };
        let inode = Inode::new(FileKind::File, 0o644, 1, 0, layout, WallTime(0));
        let mut table = InodeTable::default();
        for number in 0..100_000 {
            table.insert(Handle(number), inode.clone());
        }
        let most = table.pages.capacity();
        for number in 0..99_000 {
            table.remove(Handle(number));
        }
        assert!(table.pages.capacity() * 8 < most, "{} of {most}", table.pages.capacity());
        assert_eq!((table.len(), table.from(Handle(0)).count()), (1000, 1000));
    }

    #[test]
    fn behaves_like_a_map() {
        let layout = Layout { stripe_bytes: 1 << 20, width: 1, first: 0, generation: 1 };
        let inode = |n: u64| Inode::new(FileKind::File, 0o644, n as u32, 0, layout, WallTime(0));
        let (mut table, mut model) = (InodeTable::default(), BTreeMap::new());
        for step in 0..2000u64 {
            let handle = Handle(step * 7919 % 301);
            if step % 3 == 0 {
                assert_eq!(table.remove(handle), model.remove(&handle));
            } else {
                assert_eq!(table.insert(handle, inode(step)), model.insert(handle, inode(step)));
            }
            assert_eq!(table.len(), model.len() as u64);
        }
        for first in 0..301 {
            let got: Vec<_> = table.from(Handle(first)).map(|(handle, inode)| (handle, inode.uid)).collect();
            let want: Vec<_> = model.range(Handle(first)..).map(|(handle, inode)| (*handle, inode.uid)).collect();
            assert_eq!(got, want);
            assert_eq!(table.get(Handle(first)), model.get(&Handle(first)));
        }
    }
}
