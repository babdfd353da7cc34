//! Whole trees: many names of a directory are removed at once.

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, Status};

use super::names::{DirChange, DirTarget};
use crate::wire_struct;

wire_struct! {
    /// Removes names behind a cookie: a bounded number of them, as one change.
    pub struct RemoveEntriesRequest {
        /// Of which directory.
        pub at: DirTarget,
        /// 0, or [`RemoveEntriesReply::until`] of the slice before.
        pub cookie: u64,
        /// Most names that are looked at; the server takes [`REMOVALS_MAX`] at most.
        pub entries_max: u32,
        /// Who asks.
        pub who: Credentials,
    }

    /// A name that was not removed.
    pub struct LeftEntry {
        /// The name.
        pub name: Bytes,
        /// What it leads to.
        pub handle: Handle,
        /// What that is.
        pub kind: FileKind,
        /// Why, as the number of a status: `NotEmpty`: a directory; `WrongServer`: what it leads to
        /// is on another server, so it is removed by a request of its own; anything else: as the
        /// removal of that name alone is refused.
        pub why: u16,
    }

    /// What became of the names up to a cookie.
    pub struct RemoveEntriesReply {
        /// Names that led to anything but a directory, and are gone.
        pub files: u32,
        /// Names of empty directories that are gone, with the directories.
        pub directories: u32,
        /// Those that are left.
        pub left: Vec<LeftEntry>,
        /// Where it goes on: all names up to this cookie were looked at. `u64::MAX`: no name
        /// follows.
        pub until: u64,
        /// The directory after the change.
        pub dir: DirChange,
    }
}

/// Most names that one request looks at: a server that does this does nothing else meanwhile.
pub const REMOVALS_MAX: usize = 512;

impl LeftEntry {
    /// Why it was not removed.
    pub fn status(&self) -> Status {
        Status::from_code(self.why)
    }
}
