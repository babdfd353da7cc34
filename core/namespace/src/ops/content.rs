//! Contents that come whole with a create, and go whole to data servers.

use bytes::Bytes;
use weft_base::{DataTime, FileKind, Handle, MODE_INLINE, Result, Status, whole_blocks};
use weft_wire::Rights;
use weft_wire::ops::CreateRequest;

use crate::contents::ContentRoom;
use crate::{Change, Inode, InodeFlags, Record, RequestContext, State};

/// What of a file is to be written to its first datafile, so that all of it is at data servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovePlan {
    /// A record says that it may have a datafile; when that is on stable storage, plan again.
    Announce,
    /// All of its content; when that is on stable storage: [`State::prepare_moved_out`].
    Copy,
}

impl State {
    /// How many bytes of a file in this directory may stay here, all that it has; 0: none.
    pub(super) fn content_limit(&self, dir: Handle, inode: &Inode) -> u32 {
        let may_stay = inode.kind == FileKind::File && !inode.layout.is_varstrip() && !inode.has_no_metafile();
        if may_stay { self.inline_limit(dir).min(inode.layout.stripe_bytes) } else { 0 }
    }

    /// How many bytes a file of this directory may have that stays here: what its hint says, or
    /// that of the file system; 0: none does.
    pub fn inline_limit(&self, dir: Handle) -> u32 {
        self.hints(dir).inline_limit.unwrap_or(self.settings.inline_limit)
    }

    /// The content that comes with a create, if it can stay here; then the inode says so.
    ///
    /// # Errors
    /// [`Status::Busy`]: it can, in a while.
    pub(super) fn take_content(&self, request: &CreateRequest, inode: &mut Inode) -> Result<Option<Bytes>> {
        let Some(content) = &request.content else { return Ok(None) };
        let limit = self.content_limit(request.at.dir, inode);
        // What is more than is left is written to data servers, under a ceiling.
        let has_room =
            self.bytes_left(inode.charged()).is_none_or(|(left, _)| whole_blocks(content.len() as u64) <= left + inode.taken_bytes());
        if limit == 0 || content.len() > limit as usize || !has_room {
            return Ok(None);
        }
        let block = match self.contents().room(content.len()) {
            ContentRoom::At(block) => block,
            ContentRoom::Soon => return Err(Status::Busy),
            ContentRoom::None => return Ok(None),
        };
        (inode.size, inode.of_kind) = (content.len() as u64, block);
        inode.mode |= MODE_INLINE;
        Ok(Some(content.clone()))
    }

    /// The file of a name with the content that comes with a create in place of its own, which is
    /// here; `None` if that or the new one is not to be here.
    ///
    /// # Errors
    /// As an open for writing.
    pub(super) fn replace_content(
        &self,
        cx: &RequestContext<'_>,
        request: &CreateRequest,
        handle: Handle,
        inode: &Inode,
        record: &mut Record,
    ) -> Result<Option<Inode>> {
        // What is on its way out will be out.
        if request.content.is_none() || !inode.is_inline() || inode.flags.has(InodeFlags::HAS_DATA) {
            return Ok(None);
        }
        self.check_open(handle, inode, Rights::WRITE, &request.who)?;
        self.check_kept(handle, inode)?;
        self.check_writable(handle, inode)?;
        self.check_readable(handle, inode)?;
        let mut changed = inode.changed(cx.now);
        if self.take_content(request, &mut changed)?.is_none() {
            return Ok(None);
        }
        if changed.size < inode.size {
            changed.truncate_epoch += 1;
        }
        changed.written_here(cx.now);
        self.drop_privileges(&request.who, handle, &mut changed, record);
        Ok(Some(changed))
    }

    /// The next step of moving a content to data servers; `None`: it is there, or the file is gone.
    pub fn plan_move_out(&self, handle: Handle, record: &mut Record) -> Option<MovePlan> {
        let inode = self.peek(handle).filter(|inode| inode.is_inline())?;
        if inode.flags.has(InodeFlags::HAS_DATA) {
            return Some(MovePlan::Copy);
        }
        let flags = inode.flags.with(InodeFlags::HAS_DATA);
        record.changes.push(Change::PutInode { handle, inode: Inode { flags, ..inode.clone() } });
        Some(MovePlan::Announce)
    }

    /// Data servers have the content on stable storage, and it is not here any more. The copy has
    /// the time at which it was made: the time of the last change stands against it like one that
    /// was set.
    ///
    /// # Errors
    /// [`Status::Busy`] while a transaction is at the file.
    pub fn prepare_moved_out(&self, handle: Handle, record: &mut Record) -> Result<()> {
        let Some(inode) = self.peek(handle).filter(|inode| inode.is_inline() && inode.flags.has(InodeFlags::HAS_DATA)) else {
            return Ok(());
        };
        self.check_writable(handle, inode)?;
        let mut out = Inode { mode: inode.mode & !MODE_INLINE, of_kind: 0, version: inode.version + 1, ..inode.clone() };
        if out.mtime_epoch == 0 {
            out.mtime_epoch = DataTime::epoch_of_setting(0);
        }
        record.changes.push(Change::PutInode { handle, inode: out });
        Ok(())
    }
}
