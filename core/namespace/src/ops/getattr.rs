//! GetAttr, for one object or many, and the question which of many are no more.

use weft_base::{Attr, FileKind, Handle, Result, Status};
use weft_wire::Rights;
use weft_wire::ops::{CheckGoneReply, CheckGoneRequest, FileState, GetAttrManyReply, GetAttrManyRequest};

use crate::{Inode, InodeFlags, RequestContext, State};

/// Objects that may be asked for at once.
const MANY_MAX: usize = 4096;

impl State {
    /// The attributes of an object whose inode is `inode`.
    pub fn attr(&self, handle: Handle, inode: &Inode) -> Attr {
        let directory = if inode.is_directory() { self.directories.get(&handle) } else { None };
        let attr = match directory {
            Some(directory) => Attr {
                layout: self.hints(handle).apply(inode.layout),
                ..inode.directory_attr(handle, directory.len(), directory.subdirectories())
            },
            None => inode.attr(handle),
        };
        Attr { bare: !self.xattrs.has_any(handle), ..attr }
    }

    /// The attributes, and how to ask the data servers where they know better.
    pub fn file_state(&self, cx: &RequestContext<'_>, handle: Handle, inode: &Inode) -> FileState {
        let attr = self.attr(handle, inode);
        let is_written = || self.opens.has_writer(handle, Some(cx.client)) || self.has_lost_writers(handle);
        let elsewhere = inode.kind == FileKind::File && (is_written() || self.shows_what_may_be_lost(handle));
        // How much of its holes is filled while it is written only its data servers know.
        let is_filled = inode.hole_bytes() > 0 && self.opens.has_writer(handle, None);
        let is_classic = inode.flags.has(InodeFlags::CLASSIC);
        // Its client removes what has no name.
        let rights = if is_classic && inode.nlink == 0 { Rights::READ.with(Rights::MANAGE) } else { Rights::READ };
        FileState {
            attr,
            ask_data: (elsewhere || is_filled || is_classic).then(|| cx.capability(handle, rights)),
            partitions: inode.is_directory().then(|| self.partitions(handle)),
        }
    }

    /// The attributes of an object; without links of one that was removed lately and that somebody
    /// may still hold.
    ///
    /// # Errors
    /// [`Status::Busy`], and as [`State::inode`].
    pub fn getattr(&self, cx: &RequestContext<'_>, handle: Handle) -> Result<FileState> {
        match (self.getattr_living(cx, handle), self.graves.get(handle)) {
            (Err(Status::Stale), Some(inode)) => Ok(FileState {
                attr: inode.attr(handle),
                ask_data: None,
                partitions: inode.is_directory().then(|| self.partitions(handle)),
            }),
            (state, _) => state,
        }
    }

    fn getattr_living(&self, cx: &RequestContext<'_>, handle: Handle) -> Result<FileState> {
        let inode = match self.inode(handle) {
            // Of a directory whose inode is elsewhere the names that are here are told, unless they
            // are still in the hands of the transaction that has made it.
            Err(Status::WrongServer) => {
                self.transactions.locks.check_decided(handle)?;
                self.transactions.locks.check_range(handle)?;
                self.prepare_partition(handle, Status::WrongServer)?
            }
            inode => inode?,
        };
        self.check_tellable(cx.client, handle, inode)?;
        Ok(self.file_state(cx, handle, inode))
    }

    /// The attributes of many objects, each with its own result.
    ///
    /// # Errors
    /// [`Status::TooBig`] for more than 4096.
    pub fn getattr_many(&self, cx: &RequestContext<'_>, request: &GetAttrManyRequest) -> Result<GetAttrManyReply> {
        if request.handles.len() > MANY_MAX {
            return Err(Status::TooBig);
        }
        Ok(GetAttrManyReply { states: request.handles.iter().map(|handle| self.getattr_living(cx, *handle)).collect() })
    }

    /// Says which of these objects are gone: they were here, or had a handle of here, and nobody
    /// can make them any more. The answer counts when all that was changed is on stable storage.
    ///
    /// # Errors
    /// [`Status::TooBig`] for more than 4096.
    pub fn check_gone(&self, cx: &RequestContext<'_>, request: &CheckGoneRequest) -> Result<CheckGoneReply> {
        if request.handles.len() > MANY_MAX {
            return Err(Status::TooBig);
        }
        let gone = |handle: &Handle| self.is_gone(*handle).then(|| cx.capability(*handle, Rights::MANAGE));
        Ok(CheckGoneReply { gone: request.handles.iter().map(gone).collect() })
    }

    fn is_gone(&self, handle: Handle) -> bool {
        // What was never given out, as far as is known here, is nothing that this server may judge.
        let was_given = handle.server() == self.settings.server && handle.counter() < self.next_counter;
        let may_come = || self.delegations().given_to(handle).is_some() || self.transactions.locks.check_write_inode(handle).is_err();
        was_given && self.peek(handle).is_none() && !may_come()
    }
}
