//! Truncation: a file that has data is cut at its data servers, too. First the intent is journaled
//! (flag, new size, new epoch), then the datafiles are cut, then the new size counts. A crash in
//! between is continued by the flag.

use weft_base::{Handle, WallTime};

use crate::opens::Grace;
use crate::{Change, Inode, InodeFlags, Record, State};

/// A file after the truncation that it announces. Follows from the inode alone, so that the answer
/// is known, and can be journaled, together with the announcement: a request that is repeated after
/// a crash must not cut the file a second time. Its holes are those that it has at most.
pub fn truncated(inode: &Inode) -> Inode {
    let flags = inode.flags.without(InodeFlags::TRUNCATING);
    let mut cut = Inode { flags, truncating_to: 0, version: inode.version + 1, ..inode.clone() };
    cut.resize(inode.truncating_to);
    cut
}

impl State {
    /// Puts a new size into `changed`: `None` if that is all, `Some` if datafiles must be cut.
    pub(crate) fn plan_size(&self, handle: Handle, inode: &Inode, changed: &mut Inode, size: u64, now: WallTime) -> Option<()> {
        changed.written_here(now);
        let exact = self.size_is_exact(handle, inode);
        if exact && size >= inode.size || !inode.flags.may_have_data() {
            // Nothing is cut: within one epoch sizes only grow.
            if size < inode.size {
                changed.truncate_epoch += 1;
            }
            changed.resize(size);
            return None;
        }
        changed.truncate_epoch += 1;
        changed.flags = changed.flags.with(InodeFlags::TRUNCATING);
        changed.truncating_to = size;
        Some(())
    }

    /// The datafiles of a file are cut: the new size counts, and if they told it the bytes that
    /// they take now. False if no truncation was announced, or the file is gone.
    pub fn prepare_truncated(&self, handle: Handle, allocated_bytes: Option<u64>, record: &mut Record) -> bool {
        let Some(inode) = self.peek(handle).filter(|inode| inode.flags.has(InodeFlags::TRUNCATING)) else { return false };
        let mut inode = truncated(inode);
        if let Some(bytes) = allocated_bytes {
            inode.set_allocated(bytes);
        }
        record.changes.push(Change::PutInode { handle, inode });
        true
    }

    /// True while the datafiles of this file are being cut.
    pub fn is_truncating(&self, handle: Handle) -> bool {
        self.peek(handle).is_some_and(|inode| inode.flags.has(InodeFlags::TRUNCATING))
    }

    /// Number of datafiles, from index 0, that may exist: for a file of known size that was never
    /// cut only as many as its size reaches.
    pub fn datafiles(&self, handle: Handle, inode: &Inode) -> u32 {
        let may_have = inode.flags.may_have_data() || inode.flags.has(InodeFlags::TOLD);
        if !may_have && (self.opens.grace != Grace::Lost || inode.is_inline()) {
            return 0;
        }
        let width = u32::from(inode.layout.width);
        if inode.truncate_epoch > 0 || inode.flags.has(InodeFlags::TOLD) || inode.layout.is_varstrip() || !self.size_is_exact(handle, inode)
        {
            return width;
        }
        let stripes = inode.size.div_ceil(u64::from(inode.layout.stripe_bytes));
        stripes.min(u64::from(width)) as u32
    }

    /// True if nobody can have written behind the size in the inode.
    pub(crate) fn size_is_exact(&self, handle: Handle, inode: &Inode) -> bool {
        let unknown = InodeFlags::WRITING.0 | InodeFlags::TRUNCATING.0;
        inode.flags.0 & unknown == 0 && !self.may_be_written(handle)
    }
}
