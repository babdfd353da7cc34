//! What the state knows of open files, and of those that were open when somebody was lost.
//!
//! After a restart:
//! ```text
//! Lost ──▶ (clients have told) ──▶ Over      power was cut: opens for writing may be unknown
//! Kept ──▶ (clients have told) ──▶ Over      the process died: the inodes say who was writing
//! ```

use weft_base::{ClientId, Handle, Result, Status};
use weft_wire::Rights;

use crate::opens::Grace;
use crate::{Inode, InodeFlags, OpenChange, State};

/// What was known of a file when its data servers were asked for its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedSize {
    truncate_epoch: u32,
    version: u64,
    doubts: u64,
}

impl State {
    /// Changes the table of open files outside a record: reclaimed opens.
    pub fn apply_open(&mut self, change: OpenChange) {
        let (OpenChange::Open { handle, .. } | OpenChange::Keep { handle, .. }) = change;
        let was_open = self.flagged.orphans.contains(&handle) && self.opens.is_open(handle);
        self.opens.apply(change);
        self.opened_or_closed(handle, was_open);
    }

    /// A file without a name is about to go when nobody has it open any more.
    fn opened_or_closed(&mut self, handle: Handle, was_open: bool) {
        if !self.flagged.orphans.contains(&handle) {
            return;
        }
        let is_open = self.opens.is_open(handle);
        if let (true, Some(inode)) = (was_open != is_open, self.inodes.get(handle)) {
            let charged = inode.charged();
            self.accounts_mut().leaves(charged, !is_open);
        }
    }

    /// What the client has open of this file, with the sequence of its newest open.
    pub fn opened_by(&self, client: ClientId, handle: Handle) -> Option<(Rights, u64)> {
        self.opens.of(client, handle)
    }

    /// True if an open later than this one has given the client the right to delay what it writes.
    pub fn delays_by_later(&self, client: ClientId, handle: Handle, sequence: u64) -> bool {
        self.delays(client, handle) && !self.opens.delayed_by(client, handle, sequence)
    }

    /// Clients other than this one that append to the file as if they were alone.
    pub fn other_appenders(&self, client: ClientId, handle: Handle) -> impl Iterator<Item = ClientId> {
        self.opens.others_with(handle, client, Rights::APPEND)
    }

    /// True if a client that has not told yet what it had open before a restart may have had
    /// something open for more than reading, or programs with locks.
    pub fn may_have_kept_others_out(&self, client: ClientId) -> bool {
        // A power cut may have taken that, too.
        self.opens.grace == Grace::Lost || self.lockers().contains(&client)
    }

    /// True if the client has something open for more than reading.
    pub fn keeps_others_out(&self, client: ClientId) -> bool {
        self.opens.has_more_than_reads(client)
    }

    /// True if another client, which has not told yet what it had open before a restart, may have
    /// had this file open in a way that excludes these rights of this one.
    pub fn may_be_excluded(&self, client: ClientId, handle: Handle, rights: Rights) -> bool {
        let Some(inode) = self.peek(handle) else { return false };
        let had = self.opened_by(client, handle).map_or(Rights::default(), |(rights, _)| rights);
        // Who delays what it writes is alone with the file.
        if had.contains(Rights::DELAY) || had.contains(Rights::APPEND) && had.contains(rights) {
            return false;
        }
        let appends = rights.contains(Rights::APPEND) && self.may_be_written(handle);
        let appended = rights.contains(Rights::WRITE) && inode.flags.has(InodeFlags::APPENDING) && self.may_be_written(handle);
        self.is_in_grace() && (rights.contains(Rights::LOCK) || appends || appended)
    }

    /// What of the rights that a client says it has can be true: another one may have got them
    /// while it was away.
    pub fn reclaimable(&self, client: ClientId, handle: Handle, rights: Rights) -> Rights {
        let mut rights = rights.and(Rights::OF_CLIENTS);
        let flags = self.peek(handle).map_or(InodeFlags::default(), |inode| inode.flags);
        // A power cut may have taken the open that gave it: then it is as it was, if nobody else
        // has the file open by now.
        let may_be_lost = || {
            let is_out = self.peek(handle).is_some_and(|inode| !inode.is_inline());
            self.opens.grace == Grace::Lost && is_out && !self.opens.others_have(handle, client, Rights::default())
        };
        if rights.contains(Rights::DELAY) && !flags.is_delayed() && !may_be_lost() {
            rights = rights.without(Rights::DELAY);
            // The close with the content was faster.
            if !flags.has(InodeFlags::WRITING) {
                rights = rights.without(Rights::WRITE).without(Rights::APPEND);
            }
        }
        // Nobody who wants to write to a file is answered before it is moved out.
        if self.peek(handle).is_some_and(Inode::is_inline) {
            rights = rights.without(Rights::WRITE).without(Rights::APPEND);
        }
        let lost = |right: Rights, by: Rights| rights.contains(right) && self.opens.others_have(handle, client, by);
        let rights = if lost(Rights::LOCK, Rights::LOCK) { rights.without(Rights::LOCK) } else { rights };
        let is_read = lost(Rights::DELAY, Rights::READ);
        if is_read && flags.is_delayed() {
            // Who read the file before the right was given was given up, and tells it all the same.
            self.opens.asked_back.borrow_mut().insert(handle);
        }
        let has_lost_delay = lost(Rights::DELAY, Rights::WRITE) || is_read && !flags.is_delayed();
        let rights = if has_lost_delay { rights.without(Rights::DELAY) } else { rights };
        if lost(Rights::APPEND, Rights::WRITE) { rights.without(Rights::APPEND) } else { rights }
    }

    /// Drops everything that a lost client had open. Sizes of files that it had open for writing
    /// become uncertain.
    pub fn drop_client(&mut self, client: ClientId) {
        for (handle, rights) in self.opens.drop_client(client) {
            self.opened_or_closed(handle, true);
            if rights.contains(Rights::WRITE) && self.inodes.get(handle).is_some_and(|inode| inode.flags.has(InodeFlags::WRITING)) {
                self.flagged.uncertain.insert(handle);
                self.flagged.doubts += 1;
            }
        }
    }

    /// After a restart: nobody is known to have anything open, so unlinked files are kept and sizes
    /// of files that were being written are uncertain. `opens_lost`: some that were opened for
    /// writing may not even be known as such.
    pub fn begin_grace(&mut self, opens_lost: bool) {
        self.opens.grace = if opens_lost { Grace::Lost } else { Grace::Kept };
        self.flagged.all_writing_are_uncertain();
    }

    /// True until clients have had the time to tell what they have open.
    pub fn is_in_grace(&self) -> bool {
        self.opens.grace != Grace::Over
    }

    /// Clients have had the time to tell what they have open.
    pub fn end_grace(&mut self) {
        self.opens.grace = Grace::Over;
        self.flagged.all_are_claimed();
    }

    /// Files whose writers were lost and that nobody has asked the data servers about yet.
    pub fn uncertain_files(&self) -> Vec<Handle> {
        if self.is_in_grace() { Vec::new() } else { self.flagged.uncertain.iter().copied().collect() }
    }

    /// True if the size of the file must be asked at the data servers because a writer was lost.
    pub fn is_uncertain(&self, handle: Handle) -> bool {
        self.flagged.uncertain.contains(&handle)
    }

    /// True if somebody may be writing to the file of whom nothing is known. Of one whose content
    /// is here it is known that nobody does: before anybody may, it stands in the journal, on
    /// stable storage, that it is not.
    pub(crate) fn may_be_written(&self, handle: Handle) -> bool {
        let may_have_been = || !self.peek(handle).is_some_and(Inode::is_inline);
        self.opens.grace == Grace::Lost && may_have_been() || self.has_lost_writers(handle)
    }

    /// True if a power cut may have taken the open of a writer of this file, or its close: who asks
    /// is sent to the data servers, and what these have is settled as soon as clients have told
    /// what they have open.
    pub(crate) fn shows_what_may_be_lost(&self, handle: Handle) -> bool {
        let is_shown = self.may_be_written(handle);
        if is_shown {
            self.flagged.shown_elsewhere.borrow_mut().insert(handle);
        }
        is_shown
    }

    /// True if somebody was writing to the file of whom nothing is known.
    pub fn has_lost_writers(&self, handle: Handle) -> bool {
        self.is_uncertain(handle) || self.flagged.unclaimed.contains(&handle)
    }

    /// A file that nobody but its maker can have written to was closed by it.
    pub fn closed_by_its_only_writer(&mut self, handle: Handle) {
        self.flagged.uncertain.remove(&handle);
        self.flagged.unclaimed.remove(&handle);
    }

    /// To be kept while the data servers are asked for the size of a file.
    ///
    /// # Errors
    /// As [`State::inode`].
    pub fn asks_size(&self, handle: Handle) -> Result<AskedSize> {
        let inode = self.inode(handle)?;
        Ok(AskedSize { truncate_epoch: inode.truncate_epoch, version: inode.version, doubts: self.flagged.doubts })
    }

    /// True if the answers may be older than what is known by now: the file was truncated, somebody
    /// has reported who leaves its size to the data servers, or a writer was lost.
    ///
    /// # Errors
    /// As [`State::inode`].
    pub fn must_ask_size_again(&self, handle: Handle, asked: AskedSize) -> Result<bool> {
        let inode = self.inode(handle)?;
        let is_left_to_them = inode.version != asked.version && inode.hole_bytes() > 0;
        let is_in_doubt = self.flagged.doubts != asked.doubts && self.is_uncertain(handle);
        Ok(inode.truncate_epoch != asked.truncate_epoch || is_left_to_them || is_in_doubt)
    }

    /// The size of the file is certain again.
    pub fn made_certain(&mut self, handle: Handle) {
        self.flagged.uncertain.remove(&handle);
    }

    /// Files without a name that nobody has open: to be removed for good, at most `max` from
    /// `first` on.
    pub fn reapable(&self, first: Handle, max: usize) -> Vec<Handle> {
        if self.is_in_grace() {
            return Vec::new();
        }
        let orphans = self.flagged.orphans.range(first..).copied().filter(|handle| !self.opens.is_open(*handle));
        // One that never had a name may be about to get it.
        let is_free = |handle: &Handle| self.transactions.locks.check_write_inode(*handle).is_ok();
        orphans.filter(|handle| !self.flagged.truncating.contains(handle) && is_free(handle)).take(max).collect()
    }

    /// Checks that the datafiles of a file do not go, and have not gone.
    ///
    /// # Errors
    /// [`Status::Stale`] if it has no name and nobody has it open; [`Status::Busy`] as long as
    /// somebody is waited for who might say that he has.
    pub(crate) fn check_kept(&self, handle: Handle, inode: &Inode) -> Result<()> {
        let is_kept = inode.nlink > 0 || inode.flags.has(crate::InodeFlags::CLASSIC) || self.opens.is_open(handle);
        match self.opens.grace {
            _ if is_kept => Ok(()),
            Grace::Over => Err(Status::Stale),
            Grace::Kept | Grace::Lost => Err(Status::Busy),
        }
    }

    /// True if there is such a file.
    pub fn has_reapable(&self) -> bool {
        !self.flagged.orphans.is_empty() && !self.reapable(Handle(0), 1).is_empty()
    }

    /// Files that are open for writing, or were when somebody was lost.
    pub(crate) fn writing_files(&self) -> impl Iterator<Item = Handle> {
        self.flagged.writing.iter().copied()
    }

    /// Files with a truncation under way.
    pub fn truncating_files(&self) -> Vec<Handle> {
        self.flagged.truncating.iter().copied().collect()
    }
}
