//! ReadDir: entries in the order of their cookies.

use bytes::Bytes;
use weft_base::{EXECUTE, READ, Result};
use weft_wire::ops::{DirEntry, ReadDirReply, ReadDirRequest};

use crate::directory::Entry;
use crate::{RequestContext, State};

/// Encoded size of an entry without its name and state, in bytes.
const ENTRY_BYTES: usize = 4 + 8 + 1 + 8 + 1;
/// That of a short name, in bytes.
const NAME_BYTES: usize = 8;
/// Encoded size of a state, in bytes, about.
const STATE_BYTES: usize = 180;
/// No reply is much larger than this, in bytes, whatever is asked for.
const REPLY_BYTES_MAX: usize = 512 << 10;

impl State {
    /// Entries behind a cookie, until the reply is about as large as asked. A reply never ends
    /// inside a group of equal hashes, so that the cookie of its last entry leads to all that
    /// follow. At least one group is given.
    ///
    /// # Errors
    /// [`Status::AccessDenied`](weft_base::Status::AccessDenied),
    /// [`Status::Busy`](weft_base::Status::Busy) while a transaction changes the directory, and as
    /// [`State::directory`].
    pub fn readdir(&self, cx: &RequestContext<'_>, request: &ReadDirRequest) -> Result<ReadDirReply> {
        let (inode, last) = self.directory_behind(&request.at, request.cookie)?;
        self.may_access(&request.who, request.at.dir, inode, READ)?;
        self.transactions.locks.check_read_inode(request.at.dir)?;
        // Attributes of entries are for those who may search the directory.
        let with_state = request.with_state && self.may_access(&request.who, request.at.dir, inode, EXECUTE).is_ok();
        let bytes_max = (request.bytes_max as usize).min(REPLY_BYTES_MAX);
        let mut reply = ReadDirReply { entries: Vec::new(), until: last, parent: inode.parent() };
        let Some(directory) = self.directories.get(&request.at.dir) else { return Ok(reply) };
        let fit = bytes_max / (ENTRY_BYTES + NAME_BYTES + if with_state { STATE_BYTES } else { 0 });
        reply.entries.reserve(fit.min(directory.len() as usize));
        let mut bytes = 0;
        for (cookie, group) in directory.after(request.cookie).take_while(|(hash, _)| *hash <= last) {
            let group_bytes: usize = group.iter().map(|entry| entry_bytes(&entry, with_state)).sum();
            if bytes > 0 && bytes + group_bytes > bytes_max {
                reply.until = reply.entries.last().map_or(request.cookie, |entry| entry.cookie);
                break;
            }
            bytes += group_bytes;
            reply.entries.extend(group.iter().map(|entry| self.dir_entry(cx, cookie, &entry, with_state)));
        }
        Ok(reply)
    }

    fn dir_entry(&self, cx: &RequestContext<'_>, cookie: u64, entry: &Entry<'_>, with_state: bool) -> DirEntry {
        let inode = if with_state { self.peek(entry.handle) } else { None };
        // What is being changed is asked for again by whoever needs it.
        let inode = inode.filter(|inode| self.check_tellable(cx.client, entry.handle, inode).is_ok());
        DirEntry {
            name: Bytes::copy_from_slice(entry.name),
            handle: entry.handle,
            kind: entry.kind,
            cookie,
            state: inode.map(|inode| self.file_state(cx, entry.handle, inode)),
        }
    }
}

fn entry_bytes(entry: &Entry<'_>, with_state: bool) -> usize {
    ENTRY_BYTES + entry.name.len() + if with_state { STATE_BYTES } else { 0 }
}
