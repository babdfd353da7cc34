//! What a tree holds.

use weft_base::{Credentials, FastSet, FileKind, Handle};
use weft_rt::Runtime;

use super::{Nodes, next_round};
use crate::names::Wanted;
use crate::{Client, DirPage, Error, Result, run_window};

/// Bytes of one page of a listing: the most that a server gives.
const PAGE_BYTES: u32 = 512 << 10;

/// Sums over a directory and all below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeSums {
    /// Sizes of files and symlinks, as `stat` says them. What has several names in the tree counts
    /// once.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// Directories, the first one too.
    pub directories: u64,
    /// Symlinks, pipes, sockets and devices.
    pub others: u64,
    /// Files that others are writing to a data server that does not answer: their sizes are those
    /// known last.
    pub inexact: u64,
}

impl TreeSums {
    fn add(&mut self, other: &TreeSums) {
        self.bytes += other.bytes;
        self.files += other.files;
        self.directories += other.directories;
        self.others += other.others;
        self.inexact += other.inexact;
    }
}

/// What [`Client::sum_tree`] tells on the way. Paths begin below the root of the tree, which has
/// the empty one.
#[derive(Debug)]
pub enum SumNews<'a> {
    /// A directory is summed up, with all below it; those below were told before it.
    Directory {
        /// Its path.
        path: &'a [u8],
        /// Names in its path.
        depth: usize,
        /// Its sums.
        sums: &'a TreeSums,
    },
    /// A directory could not be listed, or an object not asked: it is missing in the sums.
    Failed {
        /// Its path.
        path: &'a [u8],
        /// Why.
        error: Error,
    },
}

/// A page of a listing that is due.
struct Page {
    node: usize,
    cookie: u64,
}

impl<R: Runtime> Client<R> {
    /// Sums up a directory and all below it: one request for a page of a directory, some thousand
    /// names with their attributes, and many pages at once. Directories that a user may not list,
    /// and servers that do not answer, are told and left out. Others may change the tree meanwhile:
    /// what is moved can be missed or count twice.
    pub async fn sum_tree(&self, who: &Credentials, dir: Handle, mut tell: impl FnMut(SumNews<'_>)) -> TreeSums {
        let empty = TreeSums { directories: 1, ..TreeSums::default() };
        let mut nodes = Nodes::new(dir, empty);
        let mut seen = FastSet::default();
        let mut due = vec![Page { node: 0, cookie: 0 }];
        while !due.is_empty() {
            let round = next_round(&mut due);
            let flows = round.iter().map(|page| self.sizes(who, nodes.slots[page.node].dir, page.cookie));
            let listed = run_window(flows, round.len()).await;
            for (Page { node, .. }, listed) in round.into_iter().zip(listed) {
                match listed {
                    Ok(page) => {
                        if let Some(last) = page.entries.last().filter(|_| !page.end) {
                            nodes.slots[node].open += 1;
                            due.push(Page { node, cookie: last.cookie });
                        }
                        for entry in page.entries {
                            if entry.kind == FileKind::Directory {
                                let child = nodes.add(node, entry.name, entry.handle, empty);
                                due.push(Page { node: child, cookie: 0 });
                                continue;
                            }
                            // Without attributes it was removed meanwhile, or its server fails.
                            let Some(attr) = entry.attr else {
                                nodes.slots[node].value.inexact += u64::from(!entry.is_exact);
                                continue;
                            };
                            if attr.nlink > 1 && !seen.insert(attr.handle) {
                                continue;
                            }
                            let sums = &mut nodes.slots[node].value;
                            match attr.kind {
                                FileKind::File => sums.files += 1,
                                _ => sums.others += 1,
                            }
                            if matches!(attr.kind, FileKind::File | FileKind::Symlink) {
                                sums.bytes += attr.size;
                            }
                            sums.inexact += u64::from(!entry.is_exact);
                        }
                    }
                    // Removed since its name was read.
                    Err(error) if error.is_gone() && node > 0 => {}
                    Err(error) => tell(SumNews::Failed { path: &nodes.path(node, None), error }),
                }
                nodes.done(node, |nodes, node| {
                    let sums = nodes.slots[node].value;
                    tell(SumNews::Directory { path: &nodes.path(node, None), depth: nodes.depth(node), sums: &sums });
                    if let Some(above) = nodes.slots[node].above {
                        nodes.slots[above].value.add(&sums);
                    }
                });
            }
        }
        nodes.slots[0].value
    }

    async fn sizes(&self, who: &Credentials, dir: Handle, cookie: u64) -> Result<DirPage> {
        self.list(who, dir, cookie, PAGE_BYTES, Wanted::SizesSoon).await
    }
}
