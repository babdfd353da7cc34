//! Whole trees with many requests in flight: their sums, their end, whether their names are right,
//! and what changes in them. A
//! tree is walked in rounds: of the steps that are due, the newest few are done at once, one
//! request each. So it goes deep before it goes wide, and what is remembered are the directories
//! between the root and where the work is, with their neighbours.

mod names;
mod remove;
mod setting;
mod sums;
mod trash;
mod watch;

use bytes::Bytes;
use weft_base::Handle;

use crate::Error;

pub use names::{NameFault, NameFaultKind, NameSums};
pub use remove::TreeRemoved;
pub use setting::{TreeOutcome, TreeSetting};
pub use sums::{SumNews, TreeSums};
pub use trash::{Discarded, TRASH, TrashFault};
pub use watch::{TreeChange, WatchedTree};

/// What work on a tree tells on the way.
#[derive(Debug)]
pub enum TreeNews<'a, T> {
    /// So much is done by now.
    Progress(&'a T),
    /// It could not be done for a name.
    Failed {
        /// Its path below the root of the tree, which has the empty one.
        path: &'a [u8],
        /// Why.
        error: Error,
    },
}

/// Steps of one round.
const AT_ONCE: usize = 64;

/// A directory on the way.
struct Node<T> {
    /// The one above it; `None`: the root of the tree.
    above: Option<usize>,
    name: Bytes,
    dir: Handle,
    /// Steps of it that are not done, and directories in it that are not finished.
    open: usize,
    value: T,
}

/// The directories on the way.
struct Nodes<T> {
    slots: Vec<Node<T>>,
    free: Vec<usize>,
}

impl<T> Nodes<T> {
    /// The root, with one step to do.
    fn new(dir: Handle, value: T) -> Nodes<T> {
        Nodes { slots: vec![Node { above: None, name: Bytes::new(), dir, open: 1, value }], free: Vec::new() }
    }

    /// A directory in another, with one step to do.
    fn add(&mut self, above: usize, name: Bytes, dir: Handle, value: T) -> usize {
        self.slots[above].open += 1;
        let node = Node { above: Some(above), name, dir, open: 1, value };
        match self.free.pop() {
            Some(at) => {
                self.slots[at] = node;
                at
            }
            None => {
                self.slots.push(node);
                self.slots.len() - 1
            }
        }
    }

    /// A step of a directory is done. What is finished with it is told to `finished`, from below,
    /// and forgotten.
    fn done(&mut self, node: usize, mut finished: impl FnMut(&mut Nodes<T>, usize)) {
        let mut at = Some(node);
        while let Some(node) = at {
            self.slots[node].open -= 1;
            if self.slots[node].open > 0 {
                return;
            }
            finished(self, node);
            at = self.slots[node].above;
            if at.is_some() {
                self.forget(node);
            }
        }
    }

    /// Nothing asks for this directory any more.
    fn forget(&mut self, at: usize) {
        self.slots[at].name = Bytes::new();
        self.free.push(at);
    }

    fn depth(&self, at: usize) -> usize {
        std::iter::successors(self.slots[at].above, |above| self.slots[*above].above).count()
    }

    /// The path of a name in this directory from the root of the tree on; of the directory itself
    /// without one.
    fn path(&self, at: usize, name: Option<&[u8]>) -> Vec<u8> {
        let ancestors = std::iter::successors(Some(at), |node| self.slots[*node].above);
        let mut names: Vec<&[u8]> =
            ancestors.filter(|node| self.slots[*node].above.is_some()).map(|node| &self.slots[node].name[..]).collect();
        names.reverse();
        names.extend(name);
        names.join(&b'/')
    }
}

/// Takes the steps of the next round.
fn next_round<S>(due: &mut Vec<S>) -> Vec<S> {
    due.split_off(due.len().saturating_sub(AT_ONCE))
}
