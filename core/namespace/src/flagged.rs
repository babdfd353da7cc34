//! Files that something is due to, by the flags of their inodes: found without a walk over all.

use std::cell::RefCell;
use std::collections::BTreeSet;

use weft_base::Handle;

use crate::{Inode, InodeFlags};

/// What of an inode decides in which set its file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    inode: InodeFlags,
    /// It has no name, and is removed for good when nobody has it open.
    pub(crate) is_orphan: bool,
}

impl Flags {
    pub(crate) fn of(inode: &Inode) -> Flags {
        Flags { inode: inode.flags, is_orphan: inode.nlink == 0 && !inode.is_directory() && !inode.flags.has(InodeFlags::CLASSIC) }
    }
}

/// The sets.
#[derive(Debug, Default)]
pub(crate) struct Flagged {
    /// Files without a name.
    pub(crate) orphans: BTreeSet<Handle>,
    /// Files with the flag WRITING.
    pub(crate) writing: BTreeSet<Handle>,
    /// Files to which somebody delays writes.
    pub(crate) delayed: BTreeSet<Handle>,
    /// Files with the flag TRUNCATING.
    pub(crate) truncating: BTreeSet<Handle>,
    /// Files whose writer was lost: their size must be asked at the data servers. Volatile.
    pub(crate) uncertain: BTreeSet<Handle>,
    /// How often files have become such.
    pub(crate) doubts: u64,
    /// Files that were being written when this server ended, until clients have had the time to
    /// tell that they write to them: one that has not told yet may, whatever is known of the size.
    pub(crate) unclaimed: BTreeSet<Handle>,
    /// Files of which clients were sent to the data servers because a power cut may have taken the
    /// open of a writer, or its close: what they have seen there shall stay. Volatile.
    pub(crate) shown_elsewhere: RefCell<BTreeSet<Handle>>,
}

impl Flagged {
    /// The flags of a file have become these; those of an inode that was not there are the default.
    #[inline]
    pub(crate) fn changed(&mut self, handle: Handle, before: Flags, now: Flags) {
        if before != now {
            self.note(handle, now);
        }
    }

    fn note(&mut self, handle: Handle, now: Flags) {
        keep(&mut self.orphans, handle, now.is_orphan);
        keep(&mut self.writing, handle, now.inode.has(InodeFlags::WRITING));
        keep(&mut self.delayed, handle, now.inode.is_delayed());
        keep(&mut self.truncating, handle, now.inode.has(InodeFlags::TRUNCATING));
    }

    /// The inode with these flags is gone.
    pub(crate) fn gone(&mut self, handle: Handle, flags: Flags) {
        self.uncertain.remove(&handle);
        self.shown_elsewhere.get_mut().remove(&handle);
        if flags != Flags::default() {
            self.note(handle, Flags::default());
            self.unclaimed.remove(&handle);
        }
    }

    /// After a restart.
    pub(crate) fn all_writing_are_uncertain(&mut self) {
        self.uncertain = self.writing.clone();
        self.unclaimed = self.writing.clone();
    }

    /// Clients have told. Who has not is gone, and may have written since the size was asked for.
    pub(crate) fn all_are_claimed(&mut self) {
        let unclaimed = std::mem::take(&mut self.unclaimed);
        self.uncertain.extend(unclaimed.intersection(&self.writing));
        self.uncertain.append(self.shown_elsewhere.get_mut());
        self.doubts += 1;
    }
}

fn keep(set: &mut BTreeSet<Handle>, handle: Handle, is_member: bool) {
    if is_member {
        set.insert(handle);
    } else {
        set.remove(&handle);
    }
}
