//! Close: what was written, and which rights remain.

use weft_base::{ATIME_DUE_NS, ClientId, DataTime, FileKind, Handle, Result, Status};
use weft_layout::FILE_BYTES_MAX;
use weft_wire::Rights;
use weft_wire::ops::{CloseRequest, DelayedAttributes};

use crate::{Change, Inode, InodeFlags, OpenChange, Record, RequestContext, State};

/// What is to be done for a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosePlan {
    /// It is done with the record.
    Done,
    /// Its client does not know what it has left (a truncation came between, or there are gaps),
    /// and nobody else writes: the size must be asked at the data servers first, then close again
    /// with the time of the writes and without their end.
    AskData,
}

/// What the data servers say of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataState {
    /// Bytes of the file.
    pub size: u64,
    /// Bytes that it takes, in whole blocks.
    pub allocated_bytes: u64,
    /// When it was written last.
    pub mtime: DataTime,
    /// Its truncation epoch when they were asked.
    pub truncate_epoch: u32,
}

impl State {
    /// Takes a report of writes in and reduces rights. The last writer's close makes size and times
    /// exact. `attributes` are those that its client has kept, beside bytes that it has brought to
    /// data servers.
    ///
    /// # Errors
    /// [`Status::Busy`], [`Status::FileTooBig`], [`Status::CapabilityRefused`] if writes are told
    /// of a file that nobody can have written to, and as [`State::inode`]. With attributes as
    /// [`State::prepare_delayed_close`].
    pub fn prepare_close(
        &self,
        cx: &RequestContext<'_>,
        request: &CloseRequest,
        attributes: Option<&DelayedAttributes>,
        record: &mut Record,
    ) -> Result<ClosePlan> {
        let handle = request.handle;
        let inode = self.inode(handle)?;
        let mut changed = inode.clone();
        let (client, rights) = (cx.client, request.keeps);
        let open = self.reduced(client, request);
        let applies = open.is_some();
        if let Some(attributes) = attributes {
            if !self.may_close_delayed(cx, request, inode)? {
                if !inode.is_as_told(attributes) {
                    return Err(Status::CapabilityRefused);
                }
                // They came before a crash, and their answer did not get out. What was opened since
                // is closed all the same.
                record.open = open;
                return Ok(ClosePlan::Done);
            }
            changed.set_as_told(cx, attributes)?;
        }
        if let Some(written) = &request.written {
            if written.end_bytes > FILE_BYTES_MAX {
                return Err(Status::FileTooBig);
            }
            // Nobody who wants to write to a file is answered before it is moved out.
            if inode.is_inline() {
                return Err(Status::CapabilityRefused);
            }
            if inode.flags.has(InodeFlags::TRUNCATING) {
                return Err(Status::Busy);
            }
            if written.truncate_epoch == inode.truncate_epoch {
                changed.size = changed.size.max(written.end_bytes);
            } else if self.opens.has_writer(handle, Some(cx.client)) {
                // Each of many that fill one file leaves something out. The last one's close asks.
                changed.is_to_be_asked();
            } else {
                return Ok(ClosePlan::AskData);
            }
            changed.written(written.mtime);
        }
        record.open = open;
        // What it has kept is at data servers now, unless a later open has given it the right anew.
        match self.opens.of(client, handle) {
            _ if rights.contains(Rights::DELAY) => {}
            Some((has, sequence)) if self.opens.delayed_by(client, handle, request.open_sequence) => {
                changed.flags = changed.flags.not_delayed(if applies { rights } else { has }.contains(Rights::APPEND));
                if !applies {
                    record.open = Some(OpenChange::Keep { client, handle, rights: has.without(Rights::DELAY), sequence });
                }
            }
            Some(_) => {}
            None if self.tells_again(client, handle, inode) => {
                changed.flags = changed.flags.not_delayed(rights.contains(Rights::APPEND));
            }
            None => {}
        }
        let writes_on = match self.opens.of(client, handle) {
            Some((has, _)) if applies => has.contains(Rights::WRITE) && rights.contains(Rights::WRITE),
            Some((has, _)) => has.contains(Rights::WRITE),
            None => false,
        };
        let others_write = self.opens.has_writer(handle, Some(client));
        if !writes_on && !others_write && !self.has_lost_writers(handle) {
            changed.flags = changed.flags.not_delayed(false).without(InodeFlags::WRITING).without(InodeFlags::APPENDING);
        }
        // Written bytes are a change even if size and times are the same: caches go by the version.
        // That nobody writes any more is none.
        if changed != *inode || request.written.is_some() {
            self.check_writable(handle, inode)?;
            changed.version += u64::from(request.written.is_some() || attributes.is_some());
            record.changes.push(Change::PutInode { handle, inode: changed });
        }
        Ok(ClosePlan::Done)
    }

    /// What a close leaves of what its client has open, unless that was opened anew since.
    pub(super) fn reduced(&self, client: ClientId, request: &CloseRequest) -> Option<OpenChange> {
        let CloseRequest { handle, open_sequence: sequence, keeps: rights, .. } = *request;
        let applies = self.opens.of(client, handle).is_some_and(|(_, newest)| newest <= sequence);
        applies.then_some(OpenChange::Keep { client, handle, rights, sequence })
    }

    /// A file has been read by somebody who had it open. As `relatime` of Linux has it, the time of
    /// the last access becomes now if the file was changed since, or if it is a day old. That is no
    /// change of the file: no other time tells of it, caches of it are as good as before, and
    /// nobody need hear of it. What is locked or sealed, or keeps no times, is left as it is.
    pub fn prepare_read(&self, cx: &RequestContext<'_>, handle: Handle, record: &mut Record) {
        let Some(inode) = self.peek(handle) else { return };
        let is_due = inode.atime <= inode.mtime.max(inode.ctime) || cx.now.0.saturating_sub(inode.atime.0) >= ATIME_DUE_NS;
        let may = inode.kind == FileKind::File && inode.nlink > 0 && !inode.is_sealed() && !inode.has_no_metafile();
        if is_due && may && inode.atime < cx.now && self.check_writable(handle, inode).is_ok() {
            record.changes.push(Change::PutInode { handle, inode: Inode { atime: cx.now, ..inode.clone() } });
        }
    }

    /// True if with this close nobody writes any more to a file that has holes: how many are left,
    /// the data servers must be asked.
    pub fn leaves_holes(&self, cx: &RequestContext<'_>, request: &CloseRequest) -> bool {
        let (client, handle) = (cx.client, request.handle);
        let ends_writing = || {
            let (has, sequence) = self.opens.of(client, handle)?;
            Some(has.contains(Rights::WRITE) && !request.keeps.contains(Rights::WRITE) && sequence <= request.open_sequence)
        };
        let has_holes = self.peek(handle).is_some_and(|inode| inode.hole_bytes() > 0);
        has_holes && ends_writing() == Some(true) && !self.opens.has_writer(handle, Some(client))
    }

    /// Takes in what the data servers say of a file. With this its size is certain again, and how
    /// much of it is holes; nothing happens if a truncation came between, nor to one that is here.
    pub fn prepare_sizes(&self, handle: Handle, told: &DataState, record: &mut Record) {
        let Some(inode) = self.peek(handle).filter(|inode| inode.truncate_epoch == told.truncate_epoch && !inode.is_inline()) else {
            return;
        };
        let mut changed: Inode = inode.clone();
        changed.size = changed.size.max(told.size);
        changed.set_allocated(told.allocated_bytes);
        changed.written(told.mtime);
        if !self.opens.has_writer(handle, None) {
            changed.flags = changed.flags.not_delayed(false).without(InodeFlags::WRITING).without(InodeFlags::APPENDING);
        }
        // As above: what a lost writer wrote is not known.
        if changed != *inode || inode.flags.has(InodeFlags::WRITING) {
            changed.version += 1;
            // They were asked because a writer does not know what has arrived, or was lost: some of
            // it may arrive later.
            changed.flags = changed.flags.with(InodeFlags::TOLD);
            record.changes.push(Change::PutInode { handle, inode: changed });
        }
    }
}
