//! Lookup: what does a name lead to?

use weft_base::{Result, Status, check_name};
use weft_wire::ops::{LookupReply, LookupRequest};

use crate::{RequestContext, State};

impl State {
    /// Finds a name; with the state of the object if its inode is here.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::AccessDenied`], [`Status::Busy`], and as
    /// [`State::directory`].
    pub fn lookup(&self, cx: &RequestContext<'_>, request: &LookupRequest) -> Result<LookupReply> {
        let dir = self.directory(&request.at)?;
        self.check_directory(&request.who, dir, false)?;
        check_name(&request.name)?;
        self.transactions.locks.check_read_name(request.at.dir, &request.name)?;
        let (handle, kind) = self.entry(request.at.dir, &request.name).ok_or(Status::NotFound)?;
        let state = match self.peek(handle) {
            Some(inode) => {
                self.check_readable(handle, inode)?;
                Some(self.file_state(cx, handle, inode))
            }
            None => None,
        };
        Ok(LookupReply { handle, kind, state })
    }
}
