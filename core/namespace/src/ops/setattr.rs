//! SetAttr: mode, owner, group, times; with `truncate.rs` the size.

use bytes::Bytes;
use weft_base::{
    Credentials, DataTime, FileKind, Handle, MODE_INLINE, MODE_MASK, MODE_SEALED, MODE_SETGID, Result, Status, WRITE, WallTime, set_id_bits,
};
use weft_layout::FILE_BYTES_MAX;
use weft_wire::Rights;
use weft_wire::ops::{FileState, OpenDelay, OpenReply, OpenRequest, SetAttrRequest, SetTime};

use super::open::{check_judgement, check_out, written_with};
use super::truncate::truncated;
use crate::access::owns;
use crate::{Change, Inode, InodeFlags, OpenChange, Record, RequestContext, State};

/// How a change that may concern the size is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizePlan<T> {
    /// It is done with the record.
    Done(T),
    /// The record announces a truncation, and this will be its answer. When it is journaled, cut
    /// the datafiles, then finish with [`State::prepare_truncated`](State::prepare_truncated).
    Truncate(T),
}

impl State {
    /// Changes what is given; everything or nothing.
    ///
    /// # Errors
    /// [`Status::NotPermitted`], [`Status::AccessDenied`], [`Status::IsDirectory`] and
    /// [`Status::Invalid`] (size of something that has none, a seal with something else),
    /// [`Status::FileTooBig`], [`Status::Sealed`], [`Status::BeingWritten`] (it was to be sealed),
    /// [`Status::NotSupported`] (another owner, mode or time of a file whose directory had the hint
    /// `no_metafile`), [`Status::Busy`], and as [`State::inode`].
    pub fn prepare_setattr(&self, cx: &RequestContext<'_>, request: &SetAttrRequest, record: &mut Record) -> Result<SizePlan<FileState>> {
        let (handle, who) = (request.handle, &request.who);
        let inode = self.inode(handle)?;
        self.check_writable(handle, inode)?;
        // The answer tells all attributes: of a directory also how many entries it has.
        self.check_tellable(cx.client, handle, inode)?;
        let mut changed = inode.changed(cx.now);
        match request.seal {
            Some(seals) => self.change_seal(handle, &mut changed, seals, request)?,
            None => inode.check_unsealed()?,
        }
        if let Some(mode) = request.mode {
            // With a truncation by somebody else than the owner, the kernel asks for what the
            // truncation does anyway.
            let only_drops = request.size.is_some() && (mode ^ inode.mode) & MODE_MASK & !set_id_bits(inode.mode) == 0;
            if !only_drops || owns(who, inode) {
                change_mode(who, inode, &mut changed, mode)?;
            }
        }
        if request.uid.is_some() || request.gid.is_some() {
            change_owner(who, inode, &mut changed, request)?;
        }
        self.check_times(who, inode, request)?;
        let mut plan = None;
        if let Some(size) = request.size {
            self.check_size_change(request, inode, size)?;
            self.drop_privileges(who, handle, &mut changed, record);
            // Whoever appends goes by the size that he knows.
            self.check_others(cx.client, handle, Rights::WRITE)?;
            check_out(inode, Rights::WRITE, false)?;
            plan = self.plan_size(handle, inode, &mut changed, size, cx.now);
        }
        if let Some(atime) = &request.atime {
            changed.atime = atime.at.unwrap_or(cx.now);
        }
        if let Some(mtime) = &request.mtime {
            self.set_mtime(cx, handle, &mut changed, mtime.at.unwrap_or(cx.now));
        }
        if inode.has_no_metafile() {
            keep_nothing(inode, &mut changed, request)?;
        }
        let result = match plan {
            Some(()) => SizePlan::Truncate(self.file_state(cx, handle, &truncated(&changed))),
            None => SizePlan::Done(self.file_state(cx, handle, &changed)),
        };
        record.changes.push(Change::PutInode { handle, inode: changed });
        Ok(result)
    }

    /// Seals an object or takes the seal away. A file that somebody may be writing to has no last
    /// content yet.
    fn change_seal(&self, handle: Handle, changed: &mut Inode, seals: bool, request: &SetAttrRequest) -> Result<()> {
        let SetAttrRequest { mode, uid, gid, size, atime, mtime, .. } = request;
        let asks_more = mode.is_some() || uid.is_some() || gid.is_some() || size.is_some() || atime.is_some() || mtime.is_some();
        if asks_more {
            return Err(Status::Invalid);
        }
        if !owns(&request.who, changed) {
            return Err(Status::NotPermitted);
        }
        if changed.has_no_metafile() {
            return Err(Status::NotSupported);
        }
        if seals && changed.is_directory() {
            // What another server is deciding about a name would be done to what is sealed.
            self.transactions.locks.check_entries(handle)?;
        }
        let is_file = changed.kind == FileKind::File;
        if seals && is_file && (self.opens.has_writer(handle, None) || !self.size_is_exact(handle, changed)) {
            return Err(Status::BeingWritten);
        }
        changed.mode = if seals { changed.mode | MODE_SEALED } else { changed.mode & !MODE_SEALED };
        Ok(())
    }

    /// Sets the time of the last change: it stands against all writes before it, also against those
    /// that are reported later, and against none after it.
    fn set_mtime(&self, cx: &RequestContext<'_>, handle: Handle, changed: &mut Inode, at: WallTime) {
        changed.mtime = at;
        if changed.kind != FileKind::File {
            return;
        }
        // A time that was set and not written over since is just replaced.
        let is_set = changed.mtime_epoch % 2 == 1 && self.size_is_exact(handle, changed);
        if !is_set {
            changed.mtime_epoch = DataTime::epoch_of_setting(changed.mtime_epoch);
        }
        if self.others_may_write(cx, handle) {
            changed.flags = changed.flags.with(InodeFlags::TOLD);
        }
    }

    /// True if somebody else than the asking client may be writing to the file: the data servers
    /// must be told of a time that is set, so that writes from then on count as later.
    pub fn others_may_write(&self, cx: &RequestContext<'_>, handle: Handle) -> bool {
        let is_file = self.peek(handle).is_some_and(|inode| inode.kind == FileKind::File);
        let others = || self.opens.has_writer(handle, Some(cx.client)) || self.may_be_written(handle);
        // Who delays what it writes is alone.
        is_file && !self.delays(cx.client, handle) && others()
    }

    /// Files whose data servers may not have heard yet of a time that was set, after a restart.
    pub fn files_to_tell(&self) -> Vec<Handle> {
        let is_set = |inode: &Inode| inode.flags.has(InodeFlags::TOLD) && inode.mtime_epoch % 2 == 1;
        self.writing_files().filter(|handle| self.peek(*handle).is_some_and(is_set)).collect()
    }

    /// A program that is changed has no longer the rights that it was given: a truncation by a
    /// plain user clears set-id bits, one by anybody removes capabilities of programs.
    pub(super) fn drop_privileges(&self, who: &Credentials, handle: Handle, changed: &mut Inode, record: &mut Record) {
        if who.uid != 0 {
            changed.mode &= !set_id_bits(changed.mode);
        }
        self.drop_capabilities(handle, record);
    }

    /// Whoever opens a file for writing or cuts it removes the capabilities that it has as a
    /// program. True if there were any.
    pub(crate) fn drop_capabilities(&self, handle: Handle, record: &mut Record) -> bool {
        let has_any = self.xattrs.get(handle, CAPABILITIES).is_some();
        if has_any {
            record.changes.push(Change::DeleteXattr { handle, name: Bytes::from_static(CAPABILITIES) });
        }
        has_any
    }

    /// Opens a file and cuts it to nothing, as one.
    ///
    /// # Errors
    /// As [`State::prepare_open`].
    pub fn prepare_open_truncate(
        &self,
        cx: &RequestContext<'_>,
        request: &OpenRequest,
        record: &mut Record,
    ) -> Result<SizePlan<OpenReply>> {
        let (handle, rights, who) = (request.handle, request.rights, &request.who);
        let inode = self.inode(handle)?;
        check_judgement(inode, request)?;
        self.check_others(cx.client, handle, rights.with(Rights::WRITE))?;
        self.check_open(handle, inode, rights, who)?;
        inode.check_unsealed()?;
        self.may_access(who, handle, inode, WRITE)?;
        self.check_writable(handle, inode)?;
        self.check_tellable(cx.client, handle, inode)?;
        let mut changed = inode.changed(cx.now);
        if inode.is_inline() && !inode.flags.has(InodeFlags::HAS_DATA) {
            // What would be moved out is cut off.
            (changed.mode, changed.of_kind) = (inode.mode & !MODE_INLINE, 0);
        } else {
            check_out(inode, Rights::WRITE, false)?;
        }
        self.drop_privileges(who, handle, &mut changed, record);
        let plan = self.plan_size(handle, inode, &mut changed, 0, cx.now);
        if rights.contains(Rights::WRITE) {
            changed.flags = written_with(changed.flags, rights);
        }
        record.open = Some(OpenChange::Open { client: cx.client, handle, rights, sequence: request.open_sequence });
        let opened = |inode: &Inode| {
            let (capability, ceiling, reserves) = self.grant(cx, (handle, inode), rights, None)?;
            Ok((OpenReply { state: self.file_state(cx, handle, inode), capability, content_bytes: None, ceiling, delay: None }, reserves))
        };
        let (mut result, reserves) = match plan {
            Some(()) => opened(&truncated(&changed)).map(|(reply, reserves)| (SizePlan::Truncate(reply), reserves))?,
            None => opened(&changed).map(|(reply, reserves)| (SizePlan::Done(reply), reserves))?,
        };
        record.changes.push(Change::PutInode { handle, inode: changed });
        record.changes.extend(reserves);
        if let Some(bytes) = self.delay_bytes_of_open(cx.client, request, inode) {
            self.let_delay(handle, inode, record);
            let (SizePlan::Done(reply) | SizePlan::Truncate(reply)) = &mut result;
            reply.delay = Some(OpenDelay { bytes, now: cx.now });
        }
        Ok(result)
    }
}

/// A file of a directory with the hint `no_metafile` keeps neither owner nor mode nor times. What
/// comes with a change of its size, or sets its times to now as a write does, has no effect.
///
/// # Errors
/// [`Status::NotSupported`] if more than that is asked for.
fn keep_nothing(inode: &Inode, changed: &mut Inode, request: &SetAttrRequest) -> Result<()> {
    let explicit = |time: &Option<SetTime>| matches!(time, Some(SetTime { at: Some(_) }));
    let others = (changed.mode, changed.uid, changed.gid) != (inode.mode, inode.uid, inode.gid);
    if request.size.is_none() && (others || explicit(&request.atime) || explicit(&request.mtime)) {
        return Err(Status::NotSupported);
    }
    (changed.mode, changed.uid, changed.gid) = (inode.mode, inode.uid, inode.gid);
    (changed.atime, changed.mtime, changed.mtime_epoch) = (inode.atime, inode.mtime, inode.mtime_epoch);
    Ok(())
}

/// The capabilities of a program.
const CAPABILITIES: &[u8] = b"security.capability";

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
    // What is not a permission stays.
    changed.mode = changed.mode & !MODE_MASK | mode;
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
    // A program that ran with its owner's rights must not run with the new owner's. A set-group-id
    // bit without execute permission means mandatory locking and stays. A mode given in the same
    // request is the caller's last word.
    if !inode.is_directory() && request.mode.is_none() {
        changed.mode &= !set_id_bits(changed.mode);
    }
    Ok(())
}

impl State {
    fn check_times(&self, who: &Credentials, inode: &Inode, request: &SetAttrRequest) -> Result<()> {
        let given = [&request.atime, &request.mtime];
        if given.iter().all(|time| time.is_none()) {
            return Ok(());
        }
        if !owns(who, inode) {
            // "Now" needs write permission, anything else ownership. A truncation sets the time as
            // a side effect.
            let explicit = given.iter().any(|time| matches!(time, Some(SetTime { at: Some(_) })));
            if explicit && !(request.size.is_some() && request.opened_for_write) {
                return Err(Status::NotPermitted);
            }
            if !request.opened_for_write {
                self.may_access(who, request.handle, inode, WRITE)?;
            }
        }
        Ok(())
    }

    fn check_size_change(&self, request: &SetAttrRequest, inode: &Inode, size: u64) -> Result<()> {
        match inode.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(Status::IsDirectory),
            _ => return Err(Status::Invalid),
        }
        if size > FILE_BYTES_MAX {
            return Err(Status::FileTooBig);
        }
        if request.opened_for_write { Ok(()) } else { self.may_access(&request.who, request.handle, inode, WRITE) }
    }
}
