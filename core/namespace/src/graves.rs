//! Removed objects that somebody may still hold: a directory that is open or somebody's working
//! directory, an open pipe, a symlink held by `O_PATH`. No open of these comes to a server, so
//! nobody can say when the last holder lets go; instead the attributes of those that were removed
//! last are kept, without links, for whoever asks by handle. Regular files need no grave: their
//! opens are known.
//!
//! Volatile: after a restart such an object is just gone.

use std::collections::VecDeque;

use weft_base::{FastMap, Handle};

use crate::Inode;

/// Removed objects that are remembered: 2 MiB.
const GRAVES_MAX: usize = 1 << 14;

/// The objects that were removed last.
#[derive(Debug, Default)]
pub(crate) struct Graves {
    inodes: FastMap<Handle, Inode>,
    order: VecDeque<Handle>,
}

impl Graves {
    /// An object that is no regular file was removed.
    pub(crate) fn bury(&mut self, handle: Handle, inode: Inode) {
        if self.order.len() >= GRAVES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.inodes.remove(&oldest);
        }
        self.inodes.insert(handle, Inode { nlink: 0, ..inode });
        self.order.push_back(handle);
    }

    /// What is remembered of a removed object.
    pub(crate) fn get(&self, handle: Handle) -> Option<&Inode> {
        self.inodes.get(&handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::{FileKind, Layout, WallTime};

    #[test]
    fn the_last_ones_are_remembered_without_links() {
        let mut graves = Graves::default();
        let layout = Layout { stripe_bytes: 4096, width: 1, first: 0, generation: 1 };
        for number in 0..GRAVES_MAX as u64 + 10 {
            graves.bury(Handle(number), Inode::new(FileKind::Fifo, 0o600, 1, 1, layout, WallTime(5)));
        }
        assert_eq!((graves.inodes.len(), graves.order.len()), (GRAVES_MAX, GRAVES_MAX));
        assert!(graves.get(Handle(9)).is_none());
        assert_eq!(graves.get(Handle(10)).map(|inode| inode.nlink), Some(0));
    }
}
