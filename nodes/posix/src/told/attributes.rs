//! What may be believed of the attributes of a file.

use weft_base::{Attr, MODE_ACL, MODE_INLINE, Nanos, WallTime};
use weft_wire::ops::Judged;

/// Attributes that were told, as far as an open compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Written through this gateway since: it is known above that size and times are others.
    pub written: bool,
    /// Told then, and since no own change of extended attributes: whether it has none, and whether
    /// it has an access control list.
    pub told_at: Option<Nanos>,
    /// It has no extended attributes.
    pub bare: bool,
    /// Told for the moment only: see [`super::Told::tell`].
    pub is_momentary: bool,
    version: u64,
    size: u64,
    mtime: WallTime,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Known {
    /// What is told with these attributes.
    pub fn of(attr: &Attr) -> Known {
        let Attr { version, size, mtime, mode, uid, gid, bare, .. } = *attr;
        // Where its bytes are says nothing of them.
        let mode = mode & !MODE_INLINE;
        Known { written: false, told_at: None, bare, is_momentary: false, version, size, mtime, mode, uid, gid }
    }

    /// True if whoever believes this goes on rightly when these are the attributes.
    pub fn is_true(&self, attr: &Attr) -> bool {
        let is = Known::of(attr);
        let data = self.written || (self.version, self.size, self.mtime) == (is.version, is.size, is.mtime);
        data && (self.mode, self.uid, self.gid) == (is.mode, is.uid, is.gid)
    }

    /// True if it has no access control list.
    pub fn has_no_list(&self) -> bool {
        self.mode & MODE_ACL == 0
    }

    /// What opens are allowed by.
    pub fn judged(self) -> Judged {
        let Known { mode, uid, gid, .. } = self;
        Judged { mode, uid, gid }
    }
}
