//! The entries of one directory, ordered by the hash of their names. The hash is the cookie of a
//! listing: a position that stays valid while entries come and go.

use std::collections::BTreeMap;
use std::ops::Bound;

use weft_base::{FileKind, Handle};

use crate::leaf::{Group, LEAF_BYTES_MAX, Leaf};

/// Two leaves that together have no more than this become one, in bytes.
const MERGED_BYTES_MAX: usize = LEAF_BYTES_MAX / 2;

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) handle: Handle,
    pub(crate) kind: FileKind,
}

/// A directory's entries, in leaves. Entries with one hash are in one leaf.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Those with the lowest hashes. A small directory has no others.
    first: Leaf,
    /// The others, by the hash from which on entries are theirs. None is empty.
    others: BTreeMap<u64, Leaf>,
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

    pub(crate) fn get(&self, hash: u64, name: &[u8]) -> Option<Entry<'_>> {
        let (_, leaf) = self.leaf(hash);
        leaf.find(hash, name).ok().map(|at| leaf.entry(at))
    }

    /// The leaf of a hash, and from which hash on it is.
    fn leaf(&self, hash: u64) -> (u64, &Leaf) {
        self.others.range(..=hash).next_back().map_or((0, &self.first), |(from, leaf)| (*from, leaf))
    }

    fn leaf_mut(&mut self, hash: u64) -> (u64, &mut Leaf) {
        self.others.range_mut(..=hash).next_back().map_or((0, &mut self.first), |(from, leaf)| (*from, leaf))
    }

    /// Adds an entry or replaces the one of the same name.
    pub(crate) fn put(&mut self, hash: u64, entry: Entry<'_>) {
        let (from, leaf) = self.leaf_mut(hash);
        let old = match leaf.find(hash, entry.name) {
            Ok(at) => {
                let old = leaf.entry(at).kind;
                leaf.set(at, entry.handle, entry.kind);
                Some(old)
            }
            Err(at) if leaf.has_room(entry.name.len()) => {
                leaf.insert(at, hash, entry);
                None
            }
            Err(at) => {
                let is_behind = at > 0 && at == leaf.len() && leaf.hash(at - 1) != hash;
                let is_last = self.others.last_key_value().is_none_or(|(last, _)| *last == from);
                match is_behind && is_last {
                    // In the order of hashes, as a checkpoint is read: the leaf stays full.
                    true => self.others.entry(hash).or_default().insert(0, hash, entry),
                    false => self.split_and_insert(hash, entry),
                }
                None
            }
        };
        self.subdirectories += u32::from(entry.kind == FileKind::Directory);
        self.len += 1;
        self.forget(old);
    }

    fn split_and_insert(&mut self, hash: u64, entry: Entry<'_>) {
        if let Some(upper) = self.leaf_mut(hash).1.split() {
            self.others.insert(upper.hash(0), upper);
        }
        let (_, leaf) = self.leaf_mut(hash);
        let at = leaf.find(hash, entry.name).unwrap_or_else(|at| at);
        leaf.insert(at, hash, entry);
    }

    /// Removes an entry if it is there.
    pub(crate) fn remove(&mut self, hash: u64, name: &[u8]) {
        let (from, leaf) = self.leaf_mut(hash);
        let Ok(at) = leaf.find(hash, name) else { return };
        let old = leaf.entry(at).kind;
        leaf.remove(at);
        let used = leaf.used();
        if used == 0 && from > 0 {
            self.others.remove(&from);
        } else if used <= MERGED_BYTES_MAX / 2 {
            self.merge(from);
        }
        self.forget(Some(old));
    }

    /// Has this leaf take the next one in, if both are small.
    fn merge(&mut self, from: u64) {
        let Some((next, leaf)) = self.others.range((Bound::Excluded(from), Bound::Unbounded)).next() else { return };
        let (next, bytes) = (*next, leaf.used());
        let (_, leaf) = self.leaf_mut(from);
        if leaf.used() + bytes <= MERGED_BYTES_MAX
            && let Some(upper) = self.others.remove(&next)
        {
            self.leaf_mut(from).1.take_in(&upper);
        }
    }

    /// All entries behind the cookie in groups of equal hash: the order of a listing.
    pub(crate) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, Group<'_>)> {
        cookie.checked_add(1).into_iter().flat_map(|first| {
            let (from, leaf) = self.leaf(first);
            let others = self.others.range((Bound::Excluded(from), Bound::Unbounded)).map(|(_, leaf)| leaf);
            std::iter::once(leaf).chain(others).flat_map(move |leaf| leaf.groups(first, u64::MAX))
        })
    }

    /// All entries with these hashes in groups of equal hash, from the highest down.
    pub(crate) fn down_from(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, Group<'_>)> {
        let (from, leaf) = self.leaf(first);
        let others = self.others.range((Bound::Excluded(from), Bound::Included(last.max(from)))).rev().map(|(_, leaf)| leaf);
        others.chain(std::iter::once(leaf)).flat_map(move |leaf| leaf.groups(first, last).rev())
    }

    /// What was there before is not counted any more.
    fn forget(&mut self, old: Option<FileKind>) {
        if let Some(old) = old {
            assert!(self.len >= 1 && self.subdirectories >= u32::from(old == FileKind::Directory), "what is removed was counted");
            self.len -= 1;
            self.subdirectories -= u32::from(old == FileKind::Directory);
            assert!((self.len == 0) == (self.first.len() == 0 && self.others.is_empty()), "entries that are there are counted");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(name: &str, handle: u64, kind: FileKind) -> Entry<'_> {
        Entry { name: name.as_bytes(), handle: Handle(handle), kind }
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

    /// More names of one hash than a leaf holds stay together, whatever else comes and goes.
    #[test]
    fn a_leaf_is_as_large_as_names_of_one_hash_need() {
        let mut dir = Directory::default();
        let name = |number: u64| format!("{number:0>200}");
        for number in 0..100 {
            dir.put(7, entry(&name(number), number, FileKind::File));
            dir.put(1 + number % 20, entry(&name(1000 + number), number, FileKind::File));
        }
        let sizes: Vec<_> = dir.after(0).map(|(hash, group)| (hash, group.len())).collect();
        let expected: Vec<_> = (1..=20).map(|hash| (hash, if hash == 7 { 105 } else { 5 })).collect();
        assert_eq!(sizes, expected);
        for number in 0..100 {
            assert_eq!(dir.get(7, name(number).as_bytes()).unwrap().handle, Handle(number));
            dir.remove(7, name(number).as_bytes());
        }
        assert_eq!((dir.len(), dir.after(0).count()), (100, 20));
    }

    /// Each name takes its bytes, those of its head and less than a third more; in the order of a
    /// checkpoint next to nothing more.
    #[test]
    fn leaves_are_full() {
        let (mut dir, names) = (Directory::default(), 20_000u64);
        let hash = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        for number in 0..names {
            dir.put(hash(number), entry(&format!("file.{number:08}"), number, FileKind::File));
        }
        let bytes = |dir: &Directory| std::iter::once(&dir.first).chain(dir.others.values()).map(Leaf::bytes).sum::<usize>() as u64;
        assert!(bytes(&dir) < names * (22 + 13) * 13 / 10, "{} bytes a name", bytes(&dir) / names);
        let mut again = Directory::default();
        for (hash, group) in dir.after(0) {
            group.iter().for_each(|entry| again.put(hash, entry));
        }
        assert!(bytes(&again) < names * (22 + 13) * 11 / 10, "{} bytes a name", bytes(&again) / names);
        for number in (0..names).filter(|number| number % 10 != 0) {
            dir.remove(hash(number), format!("file.{number:08}").as_bytes());
        }
        assert_eq!(dir.len(), names / 10);
        assert!(bytes(&dir) < names / 10 * (22 + 13) * 2, "{} bytes a name", bytes(&dir) * 10 / names);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u64, String, u64, bool),
        Remove(u64, String),
    }

    fn step() -> impl Strategy<Value = Step> {
        // Few hashes and names, so that they meet; some of the greatest, too.
        let hash = prop_oneof![1..40u64, (u64::MAX - 3)..=u64::MAX];
        let name = (0..30u32, prop_oneof![Just(3usize), Just(255)]).prop_map(|(number, length)| format!("{number:0>length$}"));
        prop_oneof![
            3 => (hash.clone(), name.clone(), any::<u64>(), any::<bool>()).prop_map(|(hash, name, handle, is)| Step::Put(hash, name, handle, is)),
            2 => (hash, name).prop_map(|(hash, name)| Step::Remove(hash, name)),
        ]
    }

    proptest! {
        #[test]
        fn is_like_a_map(steps in proptest::collection::vec(step(), 0..600), first in 0..40u64, last in 0..40u64) {
            let (mut dir, mut model) = (Directory::default(), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Put(hash, name, handle, is_directory) => {
                        let kind = if is_directory { FileKind::Directory } else { FileKind::File };
                        dir.put(hash, entry(&name, handle, kind));
                        model.insert((hash, name.into_bytes()), (Handle(handle), kind));
                    }
                    Step::Remove(hash, name) => {
                        dir.remove(hash, name.as_bytes());
                        model.remove(&(hash, name.into_bytes()));
                    }
                }
                prop_assert_eq!(dir.len(), model.len() as u64);
            }
            let flat = |groups: Vec<(u64, Group<'_>)>| -> Vec<_> {
                groups.into_iter().flat_map(|(hash, group)| group.iter().map(move |of| ((hash, of.name.to_vec()), (of.handle, of.kind))).collect::<Vec<_>>()).collect()
            };
            let of_model = |first: u64, last: u64| -> Vec<_> {
                model.iter().filter(|((hash, _), _)| (first..=last).contains(hash)).map(|(key, value)| (key.clone(), *value)).collect()
            };
            for cookie in [0, first, u64::MAX - 2, u64::MAX] {
                let expected = cookie.checked_add(1).map_or(Vec::new(), |first| of_model(first, u64::MAX));
                prop_assert_eq!(flat(dir.after(cookie).collect()), expected);
            }
            for (first, last) in [(first.min(last), first.max(last)), (first, u64::MAX), (0, u64::MAX), (first, first)] {
                let mut groups: Vec<_> = dir.down_from(first, last).collect();
                prop_assert!(groups.is_sorted_by(|a, b| a.0 > b.0));
                groups.reverse();
                prop_assert_eq!(flat(groups), of_model(first, last));
            }
            for ((hash, name), (handle, kind)) in &model {
                prop_assert_eq!(dir.get(*hash, name), Some(Entry { name, handle: *handle, kind: *kind }));
            }
            prop_assert_eq!(u64::from(dir.subdirectories()), model.values().filter(|(_, kind)| *kind == FileKind::Directory).count() as u64);
        }
    }
}
