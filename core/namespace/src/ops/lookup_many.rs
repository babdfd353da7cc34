//! LookupMany: what do many names lead to, and may their files be read?

use bytes::Bytes;
use weft_base::{Result, Status};
use weft_wire::Rights;
use weft_wire::ops::{FoundName, LOOKUPS_MAX, LookupManyReply, LookupManyRequest, LookupReply, NamesInDir, READABLE_NS};

use super::lookup::Searched;
use crate::{Inode, RequestContext, State};

impl State {
    /// Finds many names, each with its own result: as [`State::lookup`], and for a file whose inode
    /// is here and that the user may read, a capability. Opens nothing.
    ///
    /// # Errors
    /// [`Status::TooBig`] for more than [`LOOKUPS_MAX`] names or directories.
    pub fn lookup_many(&self, cx: &RequestContext<'_>, request: &LookupManyRequest) -> Result<LookupManyReply> {
        let names: usize = request.dirs.iter().map(|dir| dir.names.len()).sum();
        if names > LOOKUPS_MAX || request.dirs.len() > LOOKUPS_MAX {
            return Err(Status::TooBig);
        }
        let cx = RequestContext { capability_ns: cx.capability_ns.min(READABLE_NS), ..*cx };
        let mut found = Vec::with_capacity(names);
        for NamesInDir { at, names } in &request.dirs {
            match self.search(&request.who, at) {
                Ok(dir) => found.extend(names.iter().map(|name| self.find_to_read(&cx, request, &dir, name))),
                Err(status) => found.extend(names.iter().map(|_| Err(status))),
            }
        }
        Ok(LookupManyReply { found, contents: None })
    }

    fn find_to_read(&self, cx: &RequestContext<'_>, request: &LookupManyRequest, dir: &Searched, name: &Bytes) -> Result<FoundName> {
        let LookupReply { handle, kind, state } = self.lookup_in(cx, dir, name)?;
        let inode = self.peek(handle);
        // Whoever would ask data servers for its bytes must open it.
        if inode.is_some_and(Inode::is_inline) && request.contents != Some(true) {
            return Ok(FoundName { handle, kind, state: None, read: None });
        }
        let is_readable = inode.is_some_and(|inode| self.check_open(handle, inode, Rights::READ, &request.who).is_ok());
        let read = is_readable.then(|| cx.capability(handle, Rights::READ));
        Ok(FoundName { handle, kind, state, read })
    }
}
