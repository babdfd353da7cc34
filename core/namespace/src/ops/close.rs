//! Close: what was written, and which rights remain.

use weft_base::{Result, Status};
use weft_layout::FILE_BYTES_MAX;
use weft_wire::Rights;
use weft_wire::ops::CloseRequest;

use crate::{Change, Inode, InodeFlags, OpenChange, Record, RequestContext, State};

/// What is to be done for a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosePlan {
    /// It is done with the record.
    Done,
    /// A truncation came between: the size must be asked at the data servers first, then close
    /// again with the time of the writes and without their end.
    AskData,
}

impl State {
    /// Takes a report of writes in and reduces rights. The last writer's close makes size and times
    /// exact.
    ///
    /// # Errors
    /// [`Status::Busy`], [`Status::FileTooBig`], and as [`State::inode`].
    pub fn prepare_close(&self, cx: &RequestContext<'_>, request: &CloseRequest, record: &mut Record) -> Result<ClosePlan> {
        let handle = request.handle;
        let inode = self.inode(handle)?;
        let mut changed = inode.clone();
        if let Some(written) = &request.written {
            if written.end_bytes > FILE_BYTES_MAX {
                return Err(Status::FileTooBig);
            }
            if inode.flags.has(InodeFlags::TRUNCATING) {
                return Err(Status::Busy);
            }
            if written.truncate_epoch != inode.truncate_epoch {
                return Ok(ClosePlan::AskData);
            }
            changed.size = changed.size.max(written.end_bytes);
            changed.written(written.mtime);
        }
        let (client, rights) = (cx.client, request.keeps);
        let applies = self.opens.of(client, handle).is_some_and(|(_, sequence)| sequence <= request.open_sequence);
        if applies {
            record.open = Some(OpenChange::Keep { client, handle, rights, sequence: request.open_sequence });
        }
        let writes_on = match self.opens.of(client, handle) {
            Some((has, _)) if applies => has.contains(Rights::WRITE) && rights.contains(Rights::WRITE),
            Some((has, _)) => has.contains(Rights::WRITE),
            None => false,
        };
        let others_write = self.opens.has_writer(handle, Some(client));
        if !writes_on && !others_write && !self.is_uncertain(handle) {
            changed.flags = changed.flags.without(InodeFlags::WRITING).without(InodeFlags::APPENDING);
        }
        // Written bytes are a change even if size and times are the same: caches go by the version.
        // That nobody writes any more is none.
        if changed != *inode || request.written.is_some() {
            self.check_writable(handle, inode)?;
            changed.version += u64::from(request.written.is_some());
            record.changes.push(Change::PutInode { handle, inode: changed });
        }
        Ok(ClosePlan::Done)
    }

    /// Takes in what the data servers say of a file: its size and the time of its last write, asked
    /// for when its truncation epoch was `truncate_epoch`. With this the size is certain again;
    /// nothing happens if a truncation came between.
    pub fn prepare_sizes(
        &self,
        handle: weft_base::Handle,
        truncate_epoch: u32,
        size: u64,
        mtime: weft_base::DataTime,
        record: &mut Record,
    ) {
        let Some(inode) = self.peek(handle).filter(|inode| inode.truncate_epoch == truncate_epoch) else { return };
        let mut changed: Inode = inode.clone();
        changed.size = changed.size.max(size);
        changed.written(mtime);
        if !self.opens.has_writer(handle, None) {
            changed.flags = changed.flags.without(InodeFlags::WRITING).without(InodeFlags::APPENDING);
        }
        // As above: what a lost writer wrote is not known.
        if changed != *inode || inode.flags.has(InodeFlags::WRITING) {
            changed.version += 1;
            record.changes.push(Change::PutInode { handle, inode: changed });
        }
    }
}
