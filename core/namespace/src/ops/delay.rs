//! Writes that their client delays. Who makes a small file ([`CreateRequest::can_delay`]), or cuts
//! one that is here to nothing, may keep what it writes to it until it closes it: then all of it
//! comes with the close, and stays here as if it had come with the create. Until then nobody else
//! is told anything of the file. Who opens another file for writing that nobody else has open
//! ([`OpenRequest::can_delay`]) may keep for a while what data servers shall have.
//!
//! ```text
//!     create, open ──▶ delayed ── closed, with the content ──▶ here (`content.rs`)
//!                           │
//!   it grows, or its client │ asked back, or its client is silent
//!   writes it to stable     ▼
//!   storage          like any file that is written to
//! ```
//! Somebody else who asks waits ([`Status::Busy`]), and the client is asked back. A client that
//! hears no notices any more loses the right, and with it what it has kept: others may have looked.

use bytes::Bytes;
use weft_base::{ClientId, DataTime, Handle, MODE_INLINE, MODE_MASK, Result, Status, whole_blocks};
use weft_layout::INLINE_BYTES_MAX;
use weft_wire::Rights;
use weft_wire::ops::{CloseRequest, CreateRequest, DelayedAttributes, OpenRequest};

use super::close::ClosePlan;
use crate::contents::ContentRoom;
use crate::opens::Grace;
use crate::{Change, Inode, InodeFlags, OpenChange, Record, RequestContext, State};

impl State {
    /// How many bytes of a new file the client that makes it may keep; `None`: it may not.
    pub(super) fn delay_bytes(&self, request: &CreateRequest, inode: &Inode) -> Option<u32> {
        // What a user with a limit of bytes writes is refused when it is written, not when it is
        // closed.
        let is_limited = self.bytes_left(inode.charged()).is_some();
        if request.can_delay != Some(true) || !request.open.contains(Rights::WRITE) || is_limited {
            return None;
        }
        let limit = self.content_limit(request.at.dir, inode);
        (limit > 0 && self.has_delay_room()).then_some(limit)
    }

    /// How many bytes the client that opens this file may keep of it, of those that stay here then;
    /// `None`: it may delay nothing.
    pub(super) fn delay_bytes_of_open(&self, client: ClientId, request: &OpenRequest, inode: &Inode) -> Option<u32> {
        let handle = request.handle;
        let is_wanted = request.can_delay == Some(true) && request.rights.contains(Rights::WRITE);
        // Who has the file open, or may have had it before a restart, reads where it has read.
        let is_alone = || !self.opens.others_have(handle, client, Rights::default()) && !self.is_in_grace();
        let may_delay = || self.bytes_left(inode.charged()).is_none() && !inode.has_no_metafile() && !inode.flags.is_delayed();
        if !is_wanted || !is_alone() || !may_delay() || self.has_lost_writers(handle) || self.check_writable(handle, inode).is_err() {
            return None;
        }
        // Of what directory it is nobody knows here; as many blocks as it has had, it may have
        // again.
        let limit = self.settings.inline_limit.max(whole_blocks(inode.size) as u32).min(inode.layout.stripe_bytes);
        let is_cut_here = inode.is_inline() && request.truncate;
        Some(if is_cut_here && self.has_delay_room() { limit } else { 0 })
    }

    /// The client that opens a file with this record delays what it writes to it.
    pub(super) fn let_delay(&self, handle: Handle, inode: &Inode, record: &mut Record) {
        if let Some(OpenChange::Open { rights, .. }) = &mut record.open {
            *rights = rights.with(Rights::DELAY);
        }
        let of_file = |change: &&mut Change| matches!(change, Change::PutInode { handle: of, .. } if *of == handle);
        match record.changes.iter_mut().rev().find(of_file) {
            Some(Change::PutInode { inode, .. }) => inode.flags = inode.flags.delayed(),
            _ => record.changes.push(Change::PutInode { handle, inode: Inode { flags: inode.flags.delayed(), ..inode.clone() } }),
        }
    }

    /// True if there is room for one content more, if the largest one comes for each file to which
    /// writes are delayed: who has closed such a file is told of no full disk any more.
    pub fn has_delay_room(&self) -> bool {
        self.contents().has_room_for(self.flagged.delayed.len() as u64 + 1)
    }

    /// True if what is written to the file is, or may be, with a client other than this one.
    pub(crate) fn is_delayed_elsewhere(&self, client: ClientId, handle: Handle, inode: &Inode) -> bool {
        if !inode.flags.is_delayed() {
            return false;
        }
        // After a restart its client has yet to say that it has it.
        !self.delays(client, handle) && (self.is_in_grace() || self.opens.others_have(handle, client, Rights::DELAY))
    }

    /// True if the client has the right to delay what it writes to the file.
    pub(crate) fn delays(&self, client: ClientId, handle: Handle) -> bool {
        self.opens.of(client, handle).is_some_and(|(has, _)| has.contains(Rights::DELAY))
    }

    /// True if a close by this client says that it has delayed writes to the file, which it had no
    /// time yet to tell after a restart: nobody else can have opened it.
    pub(super) fn tells_again(&self, client: ClientId, handle: Handle, inode: &Inode) -> bool {
        inode.flags.is_delayed() && self.is_in_grace() && !self.opens.others_have(handle, client, Rights::DELAY)
    }

    /// Checks that what is known of an object here may be told to a client.
    ///
    /// # Errors
    /// [`Status::Busy`], as [`State::check_readable`] and while another client delays writes: it is
    /// noted as one to be asked back ([`State::take_asked_back`]).
    pub fn check_tellable(&self, client: ClientId, handle: Handle, inode: &Inode) -> Result<()> {
        self.check_readable(handle, inode)?;
        if inode.is_directory() && self.is_delegated_elsewhere(Some(client), handle) {
            return Err(Status::Busy);
        }
        if self.is_delayed_elsewhere(client, handle, inode) {
            self.opens.asked_back.borrow_mut().insert(handle);
            return Err(Status::Busy);
        }
        Ok(())
    }

    /// Files that somebody was not told of because another client delays writes to them, since this
    /// was asked last; each with that client. After a restart a file stays to be asked for until
    /// its client has said that it has it.
    pub fn take_asked_back(&self) -> Vec<(ClientId, Handle)> {
        let (mut asked_back, mut known) = (self.opens.asked_back.borrow_mut(), Vec::new());
        if asked_back.is_empty() {
            return known;
        }
        asked_back.retain(|handle| match self.opens.holders(*handle, Rights::DELAY).next() {
            Some(client) => {
                known.push((client, *handle));
                false
            }
            None => self.is_in_grace(),
        });
        known
    }

    /// True if somebody has asked for a file whose client has not said since a restart that it has
    /// it. After a power cut such a client may have the file again whatever others were told.
    pub fn awaits_delayers(&self) -> bool {
        self.opens.grace == Grace::Kept && !self.opens.asked_back.borrow().is_empty()
    }

    /// The clients of [`State::awaits_delayers`] hear no notices any more: what they have kept
    /// counts as not written.
    pub fn prepare_end_of_awaited_delays(&self, record: &mut Record) {
        for handle in self.opens.asked_back.take() {
            if let Some(inode) = self.peek(handle).filter(|inode| inode.flags.is_delayed()) {
                record.changes.push(Change::PutInode { handle, inode: Inode { flags: inode.flags.not_delayed(false), ..inode.clone() } });
            }
        }
    }

    /// A client that delays writes hears no notices any more: what it has kept counts as not
    /// written.
    pub fn prepare_end_of_delay(&self, client: ClientId, handle: Handle, record: &mut Record) {
        let Some(inode) = self.peek(handle) else { return };
        let Some((has, sequence)) = self.opens.of(client, handle) else { return };
        record.open = Some(OpenChange::Keep { client, handle, rights: has.without(Rights::DELAY), sequence });
        let flags = inode.flags.not_delayed(has.contains(Rights::APPEND));
        record.changes.push(Change::PutInode { handle, inode: Inode { flags, ..inode.clone() } });
    }

    /// True if this client has the right to delay what it tells of with this close.
    ///
    /// # Errors
    /// [`Status::Conflict`], [`Status::Busy`] as of [`State::prepare_delayed_close`].
    pub(super) fn may_close_delayed(&self, cx: &RequestContext<'_>, request: &CloseRequest, inode: &Inode) -> Result<bool> {
        let (client, handle) = (cx.client, request.handle);
        let (has, sequence) = match self.opens.of(client, handle) {
            Some((has, sequence)) if has.contains(Rights::DELAY) => (has, sequence),
            // It says so with this close.
            _ if self.tells_again(client, handle, inode) => (Rights::WRITE.with(Rights::DELAY), 0),
            _ => return Ok(false),
        };
        self.check_writable(handle, inode)?;
        let writes_on = request.keeps.and(has).contains(Rights::WRITE);
        if sequence > request.open_sequence || writes_on || !inode.flags.is_delayed() { Err(Status::Conflict) } else { Ok(true) }
    }

    /// Closes a file with all that its client has kept of it. True if nobody else can have written
    /// to it.
    ///
    /// # Errors
    /// [`Status::CapabilityRefused`]: it has not the right to delay any more. [`Status::Conflict`]:
    /// it has opened the file once more, or goes on to write to it. [`Status::NotSupported`]: it
    /// has kept what only a change of its own may set, or does not know what it has left.
    /// [`Status::NoSpace`], [`Status::TooBig`], [`Status::Busy`], and as [`State::inode`].
    pub fn prepare_delayed_close(
        &self,
        cx: &RequestContext<'_>,
        request: &CloseRequest,
        content: &Bytes,
        attributes: Option<&DelayedAttributes>,
        record: &mut Record,
    ) -> Result<bool> {
        let handle = request.handle;
        let inode = self.inode(handle)?;
        if !self.may_close_delayed(cx, request, inode)? {
            if content.is_empty() {
                // Nothing of it can be lost.
                return match self.prepare_close(cx, request, attributes, record)? {
                    ClosePlan::Done => Ok(false),
                    // A close alone asks.
                    ClosePlan::AskData => Err(Status::NotSupported),
                };
            }
            let is_here = inode.is_inline() && inode.size == content.len() as u64;
            if !is_here || attributes.is_some_and(|attributes| !inode.is_as_told(attributes)) {
                return Err(Status::CapabilityRefused);
            }
            // It came before, and its answer did not get out. A server that has restarted since was
            // told that the file is open still.
            record.open = self.reduced(cx.client, request);
            return Ok(true);
        }
        let is_written_elsewhere = request.written.as_ref().is_some_and(|written| written.end_bytes > content.len() as u64);
        if inode.size > 0 || is_written_elsewhere {
            // Data servers have some of it.
            return Err(Status::Conflict);
        }
        if content.len() > INLINE_BYTES_MAX.min(inode.layout.stripe_bytes) as usize {
            return Err(Status::TooBig);
        }
        let flags = inode.flags.without(InodeFlags::DELAYED);
        // Also without a name: its client may go on to read it.
        let stays = !content.is_empty();
        // That nobody writes any more is no change.
        let version = inode.version + u64::from(stays || request.written.is_some() || attributes.is_some());
        let mut changed = Inode { flags, version, ..inode.clone() };
        if let Some(attributes) = attributes {
            changed.set_as_told(cx, attributes)?;
        }
        if let Some(written) = &request.written {
            // The time is an estimate of the client's: of the clock of this server, which none of
            // its writes is before.
            changed.written(DataTime { at: written.mtime.at.min(cx.now), ..written.mtime });
        }
        if stays {
            let block = match self.contents().room(content.len()) {
                ContentRoom::At(block) => block,
                ContentRoom::Soon => return Err(Status::Busy),
                ContentRoom::None => return Err(Status::NoSpace),
            };
            (changed.size, changed.of_kind) = (content.len() as u64, block);
            changed.mode |= MODE_INLINE;
        }
        record.open = Some(OpenChange::Keep {
            client: cx.client,
            handle,
            rights: request.keeps.without(Rights::DELAY),
            sequence: request.open_sequence,
        });
        record.changes.push(Change::PutInode { handle, inode: changed });
        record.changes.extend(stays.then(|| Change::PutContent { handle, content: content.clone() }));
        Ok(true)
    }
}

impl Inode {
    /// Takes in what its owner has set while its client delayed writes to it. Nobody else has seen
    /// the file since it was made, and who made it owns it, so there is nothing to be judged but
    /// what not even an owner may set without being looked at.
    ///
    /// # Errors
    /// [`Status::NotSupported`]
    pub(super) fn set_as_told(&mut self, cx: &RequestContext<'_>, attributes: &DelayedAttributes) -> Result<()> {
        let DelayedAttributes { mode, atime, mtime, at, .. } = *attributes;
        if !DelayedAttributes::may_set(self.mode, mode) || self.has_no_metafile() {
            return Err(Status::NotSupported);
        }
        if let Some(mode) = mode {
            self.mode = self.mode & !MODE_MASK | mode;
        }
        self.atime = atime.unwrap_or(self.atime);
        if let Some(mtime) = mtime {
            (self.mtime, self.mtime_epoch) = (mtime, DataTime::epoch_of_setting(self.mtime_epoch));
        }
        self.ctime = self.ctime.max(at.min(cx.now));
        Ok(())
    }

    /// True if they were taken in already, and nothing has come since.
    pub(super) fn is_as_told(&self, attributes: &DelayedAttributes) -> bool {
        let DelayedAttributes { mode, atime, mtime, .. } = *attributes;
        let is_mode = mode.is_none_or(|mode| self.mode & MODE_MASK == mode);
        let is_mtime = mtime.is_none_or(|mtime| self.mtime == mtime && self.mtime_epoch > 0);
        is_mode && is_mtime && atime.is_none_or(|atime| self.atime == atime)
    }
}
