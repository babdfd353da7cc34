//! Whether what was read of a file is in it still, without a question.

use weft_base::Handle;
use weft_rt::Runtime;

use super::open_inode::OpenInode;
use crate::knowledge::TellingId;
use crate::{Client, OpenFile};

/// A time in which nobody changes what is in a file. Two that are equal are of the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// What was told under a lease goes on to be believed, so no other client has opened the file
    /// for writing.
    pub(super) since: TellingId,
    /// Opens for writing by this client; all that they wrote is told.
    own_writers: u64,
}

impl OpenInode {
    /// How often this client has opened it for writing; `None`: it writes, or has written what its
    /// server does not know.
    fn past_writers(&self) -> Option<u64> {
        let state = self.lock();
        (state.writers == 0 && !state.has_news()).then_some(state.writers_ever)
    }
}

impl<R: Runtime> Client<R> {
    /// Given if nobody can change what is in the file at this moment. What was read between two
    /// moments that have the same is in it still.
    pub fn content_hold(&self, file: &OpenFile) -> Option<Hold> {
        self.hold_of(file.inode())
    }

    pub(super) fn hold_of(&self, inode: &OpenInode) -> Option<Hold> {
        let own_writers = inode.past_writers()?;
        let since = self.inner.knowledge.told_since(inode.handle, self.rt().now())?;
        Some(Hold { since, own_writers })
    }

    /// True if what is believed of a file has not changed since then, and this client writes
    /// nothing to it.
    pub(super) fn holds_content(&self, file: Handle, since: TellingId) -> bool {
        let is_written = self.inner.opens.get(file).is_some_and(|inode| inode.past_writers().is_none());
        !is_written && self.inner.knowledge.told_since(file, self.rt().now()) == Some(since)
    }
}
