//! Lookup: what does a name lead to?

use bytes::Bytes;
use weft_base::{Credentials, Handle, Result, Status, check_name};
use weft_wire::ops::{DirTarget, LookupReply, LookupRequest};

use crate::{RequestContext, State};

/// A directory, of which names are here, that the user may search.
pub(super) struct Searched(Handle);

impl State {
    /// Finds a name; with the state of the object if its inode is here.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::AccessDenied`], [`Status::Busy`], and as
    /// [`State::directory`].
    pub fn lookup(&self, cx: &RequestContext<'_>, request: &LookupRequest) -> Result<LookupReply> {
        self.lookup_in(cx, &self.search(&request.who, &request.at)?, &request.name)
    }

    pub(super) fn search(&self, who: &Credentials, at: &DirTarget) -> Result<Searched> {
        self.check_directory(who, at.dir, self.known_directory(at)?, false)?;
        Ok(Searched(at.dir))
    }

    pub(super) fn lookup_in(&self, cx: &RequestContext<'_>, dir: &Searched, name: &Bytes) -> Result<LookupReply> {
        check_name(name)?;
        self.check_holds(dir.0, name)?;
        self.transactions.locks.check_read_name(dir.0, name)?;
        let (handle, kind) = self.entry(dir.0, name).ok_or(Status::NotFound)?;
        let state = match self.peek(handle) {
            Some(inode) => {
                self.check_tellable(cx.client, handle, inode)?;
                Some(self.file_state(cx, handle, inode))
            }
            None => None,
        };
        Ok(LookupReply { handle, kind, state })
    }
}
