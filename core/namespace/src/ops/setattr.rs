//! SetAttr: mode, owner, group, times; with `truncate.rs` the size.

use weft_base::{Credentials, FileKind, Result, Status, WallTime};
use weft_layout::FILE_BYTES_MAX;
use weft_wire::Rights;
use weft_wire::ops::{FileState, OpenReply, OpenRequest, SetAttrRequest, SetTime};

use super::open::check_judgement;
use super::truncate::truncated;
use crate::access::owns;
use crate::{Change, Context, Inode, InodeFlags, MODE_MASK, MODE_SETGID, MODE_SETUID, OpenChange, Record, State, WRITE, may_access};

/// How a change that may concern the size is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizePlan<T> {
    /// It is done with the record.
    Done(T),
    /// The record announces a truncation, and this will be its answer. When it is journaled, cut the datafiles, then finish with
    /// [`State::prepare_truncated`](State::prepare_truncated).
    Truncate(T),
}

impl State {
    /// Changes what is given; everything or nothing.
    ///
    /// # Errors
    /// [`Status::NotPermitted`], [`Status::AccessDenied`], [`Status::IsDirectory`] and [`Status::Invalid`] (size of something that has
    /// none), [`Status::FileTooBig`], [`Status::Busy`], and as [`State::inode`].
    pub fn prepare_setattr(&self, cx: &Context<'_>, request: &SetAttrRequest, record: &mut Record) -> Result<SizePlan<FileState>> {
        let (handle, who) = (request.handle, &request.who);
        let inode = self.inode(handle)?;
        self.check_writable(handle, inode)?;
        // The answer tells all attributes: of a directory also how many entries it has.
        self.check_readable(handle, inode)?;
        let mut changed = inode.changed(cx.now);
        if let Some(mode) = request.mode {
            change_mode(who, inode, &mut changed, mode)?;
        }
        if request.uid.is_some() || request.gid.is_some() {
            change_owner(who, inode, &mut changed, request)?;
        }
        change_times(who, inode, &mut changed, request, cx.now)?;
        let mut plan = None;
        if let Some(size) = request.size {
            check_size_change(request, inode, size)?;
            plan = self.plan_size(handle, inode, &mut changed, size, cx.now);
        }
        let result = match plan {
            Some(()) => SizePlan::Truncate(self.file_state(cx, handle, &truncated(&changed))),
            None => SizePlan::Done(self.file_state(cx, handle, &changed)),
        };
        record.changes.push(Change::PutInode { handle, inode: changed });
        Ok(result)
    }

    /// Opens a file and cuts it to nothing, as one.
    ///
    /// # Errors
    /// As [`State::prepare_open`].
    pub fn prepare_open_truncate(&self, cx: &Context<'_>, request: &OpenRequest, record: &mut Record) -> Result<SizePlan<OpenReply>> {
        let (handle, rights, who) = (request.handle, request.rights, &request.who);
        let inode = self.inode(handle)?;
        check_judgement(inode, request)?;
        self.check_open(inode, rights, who)?;
        may_access(who, inode, WRITE)?;
        self.check_writable(handle, inode)?;
        let mut changed = inode.changed(cx.now);
        let plan = self.plan_size(handle, inode, &mut changed, 0, cx.now);
        if rights.contains(Rights::WRITE) {
            changed.flags = changed.flags.with(InodeFlags::HAS_DATA).with(InodeFlags::WRITING);
        }
        record.open = Some(OpenChange::Open { client: cx.client, handle, rights, sequence: request.open_sequence });
        let opened = |inode: &Inode| OpenReply { state: self.file_state(cx, handle, inode), capability: cx.capability(handle, rights) };
        let result = match plan {
            Some(()) => SizePlan::Truncate(opened(&truncated(&changed))),
            None => SizePlan::Done(opened(&changed)),
        };
        record.changes.push(Change::PutInode { handle, inode: changed });
        Ok(result)
    }
}

fn change_mode(who: &Credentials, inode: &Inode, changed: &mut Inode, mode: u32) -> Result<()> {
    if !owns(who, inode) {
        return Err(Status::NotPermitted);
    }
    if inode.kind == FileKind::Symlink {
        return Err(Status::NotSupported);
    }
    let mut mode = mode & MODE_MASK;
    if who.uid != 0 && !who.in_group(inode.gid) && !who.checked_by_kernel {
        mode &= !MODE_SETGID;
    }
    changed.mode = mode;
    Ok(())
}

fn change_owner(who: &Credentials, inode: &Inode, changed: &mut Inode, request: &SetAttrRequest) -> Result<()> {
    let uid = request.uid.unwrap_or(inode.uid);
    let gid = request.gid.unwrap_or(inode.gid);
    if who.uid != 0 {
        let gives_away = uid != inode.uid;
        // The kernel knows all groups of the caller, we are told of 32.
        let foreign_group = gid != inode.gid && !who.in_group(gid) && !who.checked_by_kernel;
        if who.uid != inode.uid || gives_away || foreign_group {
            return Err(Status::NotPermitted);
        }
    }
    (changed.uid, changed.gid) = (uid, gid);
    // A program that ran with its owner's rights must not run with the new owner's. A set-group-id bit without execute permission
    // means mandatory locking and stays. A mode given in the same request is the caller's last word.
    if !inode.is_directory() && request.mode.is_none() {
        changed.mode &= !MODE_SETUID;
        if changed.mode & 0o010 != 0 {
            changed.mode &= !MODE_SETGID;
        }
    }
    Ok(())
}

fn change_times(who: &Credentials, inode: &Inode, changed: &mut Inode, request: &SetAttrRequest, now: WallTime) -> Result<()> {
    let given = [&request.atime, &request.mtime];
    if given.iter().all(|time| time.is_none()) {
        return Ok(());
    }
    if !owns(who, inode) {
        // "Now" needs write permission, anything else ownership. A truncation sets the time as a side effect.
        let explicit = given.iter().any(|time| matches!(time, Some(SetTime { at: Some(_) })));
        if explicit && !(request.size.is_some() && request.opened_for_write) {
            return Err(Status::NotPermitted);
        }
        if !request.opened_for_write {
            may_access(who, inode, WRITE)?;
        }
    }
    if let Some(atime) = &request.atime {
        changed.atime = atime.at.unwrap_or(now);
    }
    if let Some(mtime) = &request.mtime {
        changed.mtime = mtime.at.unwrap_or(now);
    }
    Ok(())
}

fn check_size_change(request: &SetAttrRequest, inode: &Inode, size: u64) -> Result<()> {
    match inode.kind {
        FileKind::File => {}
        FileKind::Directory => return Err(Status::IsDirectory),
        _ => return Err(Status::Invalid),
    }
    if size > FILE_BYTES_MAX {
        return Err(Status::FileTooBig);
    }
    if request.opened_for_write { Ok(()) } else { may_access(&request.who, inode, WRITE) }
}
