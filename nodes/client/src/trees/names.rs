//! Whether all names are right: each leads to something, and what is counted of names (links of
//! files, entries of directories) is what a walk finds.

use std::collections::BTreeMap;

use weft_base::{Attr, Credentials, FastMap, FastSet, FileKind, Handle, ROOT_HANDLE, SECOND, ServerId};
use weft_rt::Runtime;

use super::{Nodes, next_round};
use crate::names::Wanted;
use crate::{Client, DirPage, Error, Result, run_window};

/// Bytes of one page of a listing: the most that a server gives.
const PAGE_BYTES: u32 = 512 << 10;
/// The pause before a second look at what seems wrong, in nanoseconds.
const AGAIN_NS: u64 = 2 * SECOND;

/// What a walk over all names has met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSums {
    /// Names.
    pub names: u64,
    /// Directories, the root too.
    pub directories: u64,
    /// Files.
    pub files: u64,
    /// Symlinks, pipes, sockets and devices.
    pub others: u64,
    /// How many of all these have their inode on a metadata server.
    pub inodes: BTreeMap<ServerId, u64>,
}

/// Something wrong about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameFault {
    /// Its path below the root, which has the empty one; of a file with several names one of them.
    pub path: Vec<u8>,
    /// What it leads to.
    pub handle: Handle,
    /// What is wrong.
    pub kind: NameFaultKind,
}

/// What is wrong about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFaultKind {
    /// It leads to nothing.
    Nowhere,
    /// What it leads to has so many names, but counts others.
    Links {
        /// Names that were met.
        names: u64,
        /// Its count.
        nlink: u32,
    },
    /// The directory has so many entries, but counts others.
    Entries {
        /// Names that were met in it.
        names: u64,
        /// Directories among them.
        directories: u64,
        /// Its size: names by its count.
        size: u64,
        /// Its links: two more than directories by its count.
        nlink: u32,
    },
    /// It could not be looked at: the answer of a server, or that there was none.
    Unknown(Error),
}

/// A directory on the way.
#[derive(Default)]
struct Met {
    names: u64,
    directories: u64,
    attr: Option<Attr>,
}

/// One walk.
#[derive(Default)]
struct Walk {
    sums: NameSums,
    faults: Vec<NameFault>,
    /// Objects with one link.
    single: FastSet<Handle>,
    /// The others, and those of them that were met more than once.
    counted: FastMap<Handle, Counted>,
}

struct Counted {
    names: u64,
    nlink: u32,
    path: Vec<u8>,
}

impl<R: Runtime> Client<R> {
    /// Walks over all names as root and tells what is wrong about them. Others may change names
    /// meanwhile: what seems wrong is looked at once more, by a second walk, and told if it is as
    /// wrong then. It remembers some 16 bytes for each file.
    pub async fn check_names(&self, mut tell: impl FnMut(&NameFault)) -> NameSums {
        let mut walk = self.walk_names().await;
        if walk.faults.iter().any(|fault| !matches!(fault.kind, NameFaultKind::Unknown(_))) {
            self.rt().sleep_until(self.rt().now() + AGAIN_NS).await;
            let first = std::mem::replace(&mut walk, self.walk_names().await).faults;
            let is_told_twice = |fault: &NameFault| first.iter().any(|first| (first.handle, first.kind) == (fault.handle, fault.kind));
            walk.faults.retain(|fault| matches!(fault.kind, NameFaultKind::Unknown(_)) || is_told_twice(fault));
        }
        walk.faults.iter().for_each(&mut tell);
        walk.sums
    }

    async fn walk_names(&self) -> Walk {
        let mut walk = Walk::default();
        walk.met(ROOT_HANDLE, FileKind::Directory);
        let mut nodes = Nodes::new(ROOT_HANDLE, Met::default());
        let mut due = vec![(0, 0)];
        while !due.is_empty() {
            let round = next_round(&mut due);
            let flows = round.iter().map(|(node, cookie)| self.names_of(nodes.slots[*node].dir, *cookie));
            let listed = run_window(flows, round.len()).await;
            for ((node, _), listed) in round.into_iter().zip(listed) {
                let dir = nodes.slots[node].dir;
                match listed {
                    Ok((attr, page)) => {
                        nodes.slots[node].value.attr = nodes.slots[node].value.attr.or(attr);
                        if let Some(last) = page.entries.last().filter(|_| !page.end) {
                            nodes.slots[node].open += 1;
                            due.push((node, last.cookie));
                        }
                        walk.sums.names += page.entries.len() as u64;
                        nodes.slots[node].value.names += page.entries.len() as u64;
                        for entry in page.entries {
                            if entry.kind == FileKind::Directory {
                                nodes.slots[node].value.directories += 1;
                                walk.met(entry.handle, entry.kind);
                                due.push((nodes.add(node, entry.name, entry.handle, Met::default()), 0));
                                continue;
                            }
                            let path = || nodes.path(node, Some(&entry.name));
                            match entry.attr {
                                Some(attr) => walk.counts((entry.handle, attr.kind), attr.nlink, path),
                                None if entry.is_exact => walk.fault(path(), entry.handle, NameFaultKind::Nowhere),
                                None => {
                                    let why = Error::local(weft_base::Status::TimedOut, "getattr", entry.handle);
                                    walk.fault(path(), entry.handle, NameFaultKind::Unknown(why));
                                }
                            }
                        }
                    }
                    Err(error) => {
                        // What is not known of it counts for nothing.
                        nodes.slots[node].value.attr = None;
                        let kind = if error.is_gone() { NameFaultKind::Nowhere } else { NameFaultKind::Unknown(error) };
                        walk.fault(nodes.path(node, None), dir, kind);
                    }
                }
                nodes.done(node, |nodes, node| {
                    let Met { names, directories, attr: Some(attr) } = nodes.slots[node].value else { return };
                    if (attr.size, u64::from(attr.nlink)) != (names, 2 + directories) {
                        let kind = NameFaultKind::Entries { names, directories, size: attr.size, nlink: attr.nlink };
                        walk.fault(nodes.path(node, None), attr.handle, kind);
                    }
                });
            }
        }
        walk.end()
    }

    /// A page of a directory, with its attributes before the first one.
    async fn names_of(&self, dir: Handle, cookie: u64) -> Result<(Option<Attr>, DirPage)> {
        let attr = if cookie == 0 { Some(self.getattr(dir).await?) } else { None };
        Ok((attr, self.list(&Credentials::ROOT, dir, cookie, PAGE_BYTES, Wanted::SizesSoon).await?))
    }
}

impl Walk {
    fn met(&mut self, handle: Handle, kind: FileKind) {
        *self.sums.inodes.entry(handle.server()).or_default() += 1;
        match kind {
            FileKind::Directory => self.sums.directories += 1,
            FileKind::File => self.sums.files += 1,
            _ => self.sums.others += 1,
        }
    }

    /// A name leads to this.
    fn counts(&mut self, (handle, kind): (Handle, FileKind), nlink: u32, path: impl FnOnce() -> Vec<u8>) {
        let is_new = match self.counted.get_mut(&handle) {
            Some(counted) => {
                counted.names += 1;
                false
            }
            None if nlink == 1 && self.single.insert(handle) => true,
            None => {
                let names = if nlink == 1 { 2 } else { 1 };
                self.counted.insert(handle, Counted { names, nlink, path: path() });
                names == 1
            }
        };
        if is_new {
            self.met(handle, kind);
        }
    }

    fn fault(&mut self, path: Vec<u8>, handle: Handle, kind: NameFaultKind) {
        self.faults.push(NameFault { path, handle, kind });
    }

    fn end(mut self) -> Walk {
        let is_whole = !self.faults.iter().any(|fault| matches!(fault.kind, NameFaultKind::Unknown(_)));
        for (handle, Counted { names, nlink, path }) in std::mem::take(&mut self.counted) {
            // Names may be where nobody could look.
            if names > u64::from(nlink) || is_whole && names < u64::from(nlink) {
                self.fault(path, handle, NameFaultKind::Links { names, nlink });
            }
        }
        self.faults.sort_by(|a, b| (&a.path, a.handle).cmp(&(&b.path, b.handle)));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(names: &[(u64, u32)], failed: bool) -> Walk {
        let mut walk = Walk::default();
        for (number, (handle, nlink)) in names.iter().enumerate() {
            walk.counts((Handle(*handle), FileKind::File), *nlink, || format!("{number}").into_bytes());
        }
        if failed {
            let why = Error::local(weft_base::Status::TimedOut, "readdir", Handle(9));
            walk.fault(b"dir".to_vec(), Handle(9), NameFaultKind::Unknown(why));
        }
        walk.end()
    }

    #[test]
    fn links_are_the_names_that_were_met() {
        let right = walk(&[(1, 1), (2, 2), (3, 1), (2, 2)], false);
        assert!(right.faults.is_empty() && right.sums.files == 3, "{:?}", right.faults);
        let told = |walk: Walk| walk.faults.into_iter().map(|fault| (fault.path, fault.handle, fault.kind)).collect::<Vec<_>>();
        let links = |names, nlink| NameFaultKind::Links { names, nlink };
        let twice = walk(&[(1, 1), (1, 1), (1, 1)], false);
        assert_eq!((twice.sums.files, told(twice)), (1, vec![(b"1".to_vec(), Handle(1), links(3, 1))]));
        assert_eq!(told(walk(&[(4, 3), (4, 3)], false)), [(b"0".to_vec(), Handle(4), links(2, 3))]);
        assert_eq!(told(walk(&[(4, 0)], false)), [(b"0".to_vec(), Handle(4), links(1, 0))]);
        // The third name may be in the directory that could not be listed.
        assert_eq!(told(walk(&[(4, 3), (4, 3)], true)).len(), 1);
        assert_eq!(told(walk(&[(1, 1), (1, 1)], true)).len(), 2);
    }
}
