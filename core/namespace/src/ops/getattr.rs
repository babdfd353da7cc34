//! GetAttr, for one object or many.

use weft_base::{Handle, Result, Status};
use weft_wire::ops::{FileState, GetAttrManyReply, GetAttrManyRequest};

use crate::{RequestContext, State};

/// Objects that may be asked for at once.
const MANY_MAX: usize = 4096;

impl State {
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
        self.check_readable(handle, inode)?;
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
}
