//! Truncation: a file that has data is cut at its data servers, too. First the intent is journaled (flag, new size, new epoch), then
//! the datafiles are cut, then the new size counts. A crash in between is continued by the flag.

use weft_base::{Handle, WallTime};
use weft_wire::ops::FileState;

use crate::{Change, Context, Inode, InodeFlags, Record, State};

impl State {
    /// Puts a new size into `changed`: `None` if that is all, `Some` if datafiles must be cut.
    pub(crate) fn plan_size(&self, handle: Handle, inode: &Inode, changed: &mut Inode, size: u64, now: WallTime) -> Option<()> {
        changed.mtime = changed.mtime.max(now);
        let exact = self.size_is_exact(handle, inode);
        if exact && size >= inode.size || !inode.flags.has(InodeFlags::HAS_DATA) {
            // Nothing is cut: within one epoch sizes only grow.
            if size < inode.size {
                changed.truncate_epoch += 1;
            }
            changed.size = size;
            return None;
        }
        changed.truncate_epoch += 1;
        changed.flags = changed.flags.with(InodeFlags::TRUNCATING);
        changed.truncating_to = size;
        Some(())
    }

    /// The datafiles of a file are cut: the new size counts.
    pub fn prepare_truncated(&self, cx: &Context<'_>, handle: Handle, record: &mut Record) -> Option<FileState> {
        let inode = self.peek(handle).filter(|inode| inode.flags.has(InodeFlags::TRUNCATING))?;
        let changed = Inode {
            flags: inode.flags.without(InodeFlags::TRUNCATING),
            size: inode.truncating_to,
            truncating_to: 0,
            mtime: inode.mtime.max(cx.now),
            ..inode.changed(cx.now)
        };
        let state = self.file_state(cx, handle, &changed);
        record.changes.push(Change::PutInode { handle, inode: changed });
        Some(state)
    }

    /// Number of datafiles, from index 0, that may exist: for a file of known size that was never cut only as many as its size reaches.
    pub fn datafiles(&self, handle: Handle, inode: &Inode) -> u32 {
        if !inode.flags.has(InodeFlags::HAS_DATA) {
            return 0;
        }
        let width = u32::from(inode.layout.width);
        if inode.truncate_epoch > 0 || !self.size_is_exact(handle, inode) {
            return width;
        }
        let stripes = inode.size.div_ceil(u64::from(inode.layout.stripe_bytes));
        stripes.min(u64::from(width)) as u32
    }

    /// True if nobody can have written behind the size in the inode.
    fn size_is_exact(&self, handle: Handle, inode: &Inode) -> bool {
        let unknown = InodeFlags::WRITING.0 | InodeFlags::TRUNCATING.0;
        inode.flags.0 & unknown == 0 && !self.is_uncertain(handle)
    }
}
