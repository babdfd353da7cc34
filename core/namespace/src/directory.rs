//! The entries of one directory, ordered by the hash of their names. The hash is the cookie of a
//! listing: a position that stays valid while entries come and go.

use std::collections::BTreeMap;

use weft_base::{FileKind, Handle};

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Box<[u8]>,
    pub(crate) handle: Handle,
    pub(crate) kind: FileKind,
}

/// Entries whose names have the same hash: nearly always one.
#[derive(Debug)]
enum Bucket {
    One(Entry),
    /// At least two, sorted by name.
    Many(Vec<Entry>),
}

impl Bucket {
    fn entries(&self) -> &[Entry] {
        match self {
            Bucket::One(entry) => std::slice::from_ref(entry),
            Bucket::Many(entries) => entries,
        }
    }
}

/// A directory's entries.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    buckets: BTreeMap<u64, Bucket>,
    len: u64,
    subdirectories: u32,
}

impl Directory {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Entries that are directories.
    pub(crate) fn subdirectories(&self) -> u32 {
        self.subdirectories
    }

    pub(crate) fn get(&self, hash: u64, name: &[u8]) -> Option<&Entry> {
        self.buckets.get(&hash)?.entries().iter().find(|entry| *entry.name == *name)
    }

    /// Adds an entry or replaces the one of the same name.
    pub(crate) fn put(&mut self, hash: u64, entry: Entry) {
        self.subdirectories += u32::from(entry.kind == FileKind::Directory);
        self.len += 1;
        let old = match self.buckets.entry(hash) {
            std::collections::btree_map::Entry::Vacant(vacant) => {
                vacant.insert(Bucket::One(entry));
                None
            }
            std::collections::btree_map::Entry::Occupied(mut occupied) => match occupied.get_mut() {
                Bucket::One(present) if present.name == entry.name => Some(std::mem::replace(present, entry)),
                Bucket::One(present) => {
                    let mut both = vec![present.clone(), entry];
                    both.sort_by(|a, b| a.name.cmp(&b.name));
                    occupied.insert(Bucket::Many(both));
                    None
                }
                Bucket::Many(entries) => match entries.binary_search_by(|present| present.name.cmp(&entry.name)) {
                    Ok(at) => Some(std::mem::replace(&mut entries[at], entry)),
                    Err(at) => {
                        entries.insert(at, entry);
                        None
                    }
                },
            },
        };
        self.forget(old);
    }

    /// Removes an entry if it is there.
    pub(crate) fn remove(&mut self, hash: u64, name: &[u8]) {
        let old = match self.buckets.get_mut(&hash) {
            Some(Bucket::One(entry)) if *entry.name == *name => match self.buckets.remove(&hash) {
                Some(Bucket::One(entry)) => Some(entry),
                _ => None,
            },
            Some(Bucket::Many(entries)) => match entries.iter().position(|entry| *entry.name == *name) {
                Some(at) => {
                    let old = entries.remove(at);
                    if let [last] = entries.as_slice() {
                        let last = last.clone();
                        self.buckets.insert(hash, Bucket::One(last));
                    }
                    Some(old)
                }
                None => None,
            },
            _ => None,
        };
        self.forget(old);
    }

    /// All entries behind the cookie in groups of equal hash: the order of a listing.
    pub(crate) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &[Entry])> {
        let behind = (std::ops::Bound::Excluded(cookie), std::ops::Bound::Unbounded);
        self.buckets.range(behind).map(|(hash, bucket)| (*hash, bucket.entries()))
    }

    /// All entries with these hashes in groups of equal hash, from the highest down.
    pub(crate) fn down_from(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, &[Entry])> {
        self.buckets.range(first..=last).rev().map(|(hash, bucket)| (*hash, bucket.entries()))
    }

    fn forget(&mut self, old: Option<Entry>) {
        if let Some(old) = old {
            assert!(self.len >= 1 && self.subdirectories >= u32::from(old.kind == FileKind::Directory), "what is removed was counted");
            self.len -= 1;
            self.subdirectories -= u32::from(old.kind == FileKind::Directory);
            assert!((self.len == 0) == self.buckets.is_empty(), "entries that are there are counted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, handle: u64, kind: FileKind) -> Entry {
        Entry { name: name.as_bytes().into(), handle: Handle(handle), kind }
    }

    #[test]
    fn equal_hashes_stay_together_and_apart() {
        let mut dir = Directory::default();
        for (name, handle) in [("b", 2), ("c", 3), ("a", 1)] {
            dir.put(9, entry(name, handle, FileKind::File));
        }
        dir.put(10, entry("d", 4, FileKind::Directory));
        assert_eq!((dir.len(), dir.subdirectories()), (4, 1));
        let groups: Vec<_> = dir.after(0).map(|(hash, entries)| (hash, entries.len())).collect();
        assert_eq!(groups, [(9, 3), (10, 1)]);
        assert_eq!(dir.after(9).count(), 1);
        let names: Vec<_> = dir.after(0).next().unwrap().1.iter().map(|entry| entry.name.to_vec()).collect();
        assert_eq!(names, [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
        dir.put(9, entry("b", 22, FileKind::Directory));
        assert_eq!((dir.get(9, b"b").unwrap().handle, dir.len(), dir.subdirectories()), (Handle(22), 4, 2));
        for name in ["a", "b", "x", "c", "c"] {
            dir.remove(9, name.as_bytes());
        }
        assert_eq!((dir.len(), dir.subdirectories(), dir.after(0).count()), (1, 1, 1));
        assert_eq!(dir.get(9, b"a"), None);
    }
}
