//! Open by handle.

use weft_base::{ClientId, Credentials, FileKind, Handle, MODE_INLINE, READ, Result, Status, WRITE};
use weft_wire::Rights;
use weft_wire::ops::{OpenDelay, OpenReply, OpenRequest, RoomWanted};

use crate::{Change, Inode, InodeFlags, OpenChange, Record, RequestContext, State};

impl State {
    /// Opens a file. The request's wish to truncate is not looked at: the server truncates first.
    ///
    /// # Errors
    /// [`Status::AccessDenied`], [`Status::IsDirectory`], [`Status::Invalid`] (no file, or rights
    /// that nobody has), [`Status::Sealed`], [`Status::Busy`], [`Status::QuotaExceeded`] (its
    /// ceiling cannot rise as it wants), and as [`State::inode`].
    pub fn prepare_open(&self, cx: &RequestContext<'_>, request: &OpenRequest, record: &mut Record) -> Result<OpenReply> {
        let inode = self.inode(request.handle)?;
        check_judgement(inode, request)?;
        let (handle, rights, room) = (request.handle, request.rights, request.room.as_ref());
        let mut reply = self.prepare_open_inode(cx, handle, inode, rights, request.open_sequence, &request.who, room, record)?;
        check_out(inode, request.rights, request.inline == Some(true))?;
        if let Some(bytes) = self.delay_bytes_of_open(cx.client, request, inode) {
            self.let_delay(handle, inode, record);
            reply.delay = Some(OpenDelay { bytes, now: cx.now });
        }
        Ok(reply)
    }

    /// Checks that the file may be opened so.
    ///
    /// # Errors
    /// As [`State::prepare_open`].
    pub fn check_open(&self, handle: Handle, inode: &Inode, rights: Rights, who: &Credentials) -> Result<()> {
        match inode.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(Status::IsDirectory),
            _ => return Err(Status::Invalid),
        }
        if rights.and(Rights::READ.with(Rights::WRITE)) == Rights::default() || !Rights::OF_CLIENTS.contains(rights) {
            return Err(Status::Invalid);
        }
        let read = if rights.contains(Rights::READ) { READ } else { 0 };
        let write = if rights.contains(Rights::WRITE) { WRITE } else { 0 };
        if write != 0 {
            inode.check_unsealed()?;
        }
        self.may_access(who, handle, inode, read | write)
    }

    /// Checks that what other clients have open does not exclude this.
    ///
    /// # Errors
    /// [`Status::LockedElsewhere`]; [`Status::SharedAppend`] if another client appends as if it
    /// were alone; [`Status::OthersWrite`] if this one wants to, and is not;
    /// [`Status::CapabilityRefused`] if it says that it delays writes, and may not any more;
    /// [`Status::Busy`] if it may have to say so first.
    pub(super) fn check_others(&self, client: ClientId, handle: Handle, rights: Rights) -> Result<()> {
        if rights.contains(Rights::DELAY) && !self.delays(client, handle) {
            // After a restart it may have yet to say that it does.
            let may_tell = self.peek(handle).is_some_and(|inode| self.tells_again(client, handle, inode));
            return Err(if may_tell { Status::Busy } else { Status::CapabilityRefused });
        }
        if rights.contains(Rights::LOCK) && self.opens.others_have(handle, client, Rights::LOCK) {
            return Err(Status::LockedElsewhere);
        }
        if rights.contains(Rights::WRITE) && self.opens.others_have(handle, client, Rights::APPEND) {
            return Err(Status::SharedAppend);
        }
        if rights.contains(Rights::APPEND) && self.opens.others_have(handle, client, Rights::WRITE) {
            return Err(Status::OthersWrite);
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // what an open is, from two kinds of requests
    pub(crate) fn prepare_open_inode(
        &self,
        cx: &RequestContext<'_>,
        handle: Handle,
        inode: &Inode,
        rights: Rights,
        sequence: u64,
        who: &Credentials,
        room: Option<&RoomWanted>,
        record: &mut Record,
    ) -> Result<OpenReply> {
        // Also if the client has it open already: that was perhaps another of its users. Its
        // renewals of a capability ask as the kernel.
        self.check_open(handle, inode, rights, who)?;
        self.check_kept(handle, inode)?;
        self.check_others(cx.client, handle, rights)?;
        self.check_tellable(cx.client, handle, inode)?;
        record.open = Some(OpenChange::Open { client: cx.client, handle, rights, sequence });
        let flags = written_with(inode.flags, rights);
        if rights.contains(Rights::WRITE) {
            let drops = self.drop_capabilities(handle, record);
            if drops || inode.flags != flags {
                self.check_writable(handle, inode)?;
                // Else no visible attribute changes, so neither do times and version.
                let inode = if drops { inode.changed(cx.now) } else { inode.clone() };
                record.changes.push(Change::PutInode { handle, inode: Inode { flags, ..inode } });
            }
        }
        let (capability, ceiling, change) = self.grant(cx, (handle, inode), rights, room)?;
        record.changes.extend(change);
        Ok(OpenReply { state: self.file_state(cx, handle, inode), capability, content_bytes: None, ceiling, delay: None })
    }
}

/// Checks that a kernel has judged an open by what is true now: it remembers names and rights for a
/// while.
///
/// # Errors
/// [`Status::Stale`].
pub(super) fn check_judgement(inode: &Inode, request: &OpenRequest) -> Result<()> {
    let Some(judged) = &request.judged else { return Ok(()) };
    // Where the bytes are says nothing about rights.
    let is_true = (judged.mode | MODE_INLINE, judged.uid, judged.gid) == (inode.mode | MODE_INLINE, inode.uid, inode.gid);
    if is_true && inode.nlink > 0 { Ok(()) } else { Err(Status::Stale) }
}

/// Checks that the bytes of a file are where an open of it needs them: at data servers, unless it
/// is one for reading by a client that `knows` of contents that are not.
///
/// # Errors
/// [`Status::Busy`]: it is to be moved there first.
pub(super) fn check_out(inode: &Inode, rights: Rights, knows: bool) -> Result<()> {
    let may_stay = knows && !rights.contains(Rights::WRITE);
    if inode.is_inline() && !may_stay { Err(Status::Busy) } else { Ok(()) }
}

/// The conditions of a file that is opened for writing.
pub(super) fn written_with(flags: InodeFlags, rights: Rights) -> InodeFlags {
    // Its client goes on to keep what it writes, however often it opens the file.
    if flags.is_delayed() {
        return flags;
    }
    let flags = flags.with(InodeFlags::HAS_DATA).with(InodeFlags::WRITING);
    if rights.contains(Rights::APPEND) { flags.with(InodeFlags::APPENDING) } else { flags }
}
