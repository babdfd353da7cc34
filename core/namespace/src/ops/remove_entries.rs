//! RemoveEntries: a slice of a directory's names is removed as one change. What needs another
//! server, or is refused, is left and told.

use std::collections::BTreeMap;

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, READ, Result, Status, WallTime};
use weft_wire::ops::{DirChange, LeftEntry, REMOVALS_MAX, RemoveEntriesReply, RemoveEntriesRequest, TxId};

use super::unlink::removal;
use crate::access::must_own_entries;
use crate::directory::Entry;
use crate::{Change, Record, RequestContext, State};

/// A slice that is being removed.
struct Slice<'a> {
    dir: Handle,
    who: &'a Credentials,
    /// The directory is sticky: only owners remove names.
    must_own: bool,
    now: WallTime,
    /// Names that go, of objects that have more names: several may be in this slice.
    linked: BTreeMap<Handle, i64>,
}

impl State {
    /// Removes names behind a cookie with what they lead to: files, and directories that are empty.
    /// Never ends inside a group of equal hashes. What it takes are the permissions that listing
    /// the directory and removing each name alone take.
    ///
    /// # Errors
    /// [`Status::AccessDenied`], [`Status::Busy`] while a transaction is at the directory, and as
    /// [`State::directory`]. What is refused for one name is told with that name.
    pub fn prepare_remove_entries(
        &self,
        cx: &RequestContext<'_>,
        request: &RemoveEntriesRequest,
        record: &mut Record,
    ) -> Result<RemoveEntriesReply> {
        let RemoveEntriesRequest { at, cookie, entries_max, who } = request;
        let (inode, end) = self.directory_behind(at, *cookie)?;
        self.check_directory(who, at.dir, inode, true)?;
        self.may_access(who, at.dir, inode, READ)?;
        self.transactions.locks.check_read_inode(at.dir)?;
        let mut reply = RemoveEntriesReply { files: 0, directories: 0, left: Vec::new(), until: end, dir: DirChange::NONE };
        let Some(directory) = self.directories.get(&at.dir) else { return Ok(reply) };
        let must_own = must_own_entries(who, inode);
        let mut slice = Slice { dir: at.dir, who, must_own, now: cx.now, linked: BTreeMap::new() };
        let most = (*entries_max as usize).clamp(1, REMOVALS_MAX);
        let mut entries: Vec<Entry<'_>> = Vec::with_capacity(most);
        let mut last = *cookie;
        for (hash, group) in directory.after(*cookie).take_while(|(hash, _)| *hash <= end) {
            if !entries.is_empty() && entries.len() + group.len() > most {
                reply.until = last;
                break;
            }
            entries.extend(group.iter());
            last = hash;
        }
        // One piece of memory for all names, which everything that follows shares.
        let mut names = Bytes::from(entries.iter().flat_map(|entry| entry.name.iter().copied()).collect::<Vec<u8>>());
        for entry in entries {
            let name = names.split_to(entry.name.len());
            match (self.remove_one(&mut slice, &entry, &name, record), entry.kind) {
                (Ok(()), FileKind::Directory) => reply.directories += 1,
                (Ok(()), _) => reply.files += 1,
                (Err(why), _) => reply.left.push(LeftEntry { name, handle: entry.handle, kind: entry.kind, why: why.code() }),
            }
        }
        for (handle, names) in slice.linked {
            record.changes.push(self.change_links(handle, self.inode(handle)?, -names, cx.now));
        }
        if !record.changes.is_empty() {
            let touch = self.touch(at.dir, inode, cx.now);
            if let Change::Touch { version, mtime, .. } | Change::TouchPartition { version, mtime, .. } = touch {
                reply.dir = DirChange { version, time: mtime };
            }
            record.changes.push(touch);
        }
        Ok(reply)
    }

    fn remove_one(&self, slice: &mut Slice<'_>, entry: &Entry<'_>, name: &Bytes, record: &mut Record) -> Result<()> {
        let Entry { handle, kind, .. } = *entry;
        if handle.server() != self.settings.server {
            return Err(Status::WrongServer);
        }
        if kind == FileKind::Directory && self.is_delegated_elsewhere(None, handle) {
            return Err(Status::Busy);
        }
        let dir = slice.dir;
        let parts = removal(dir, name.clone(), (handle, kind), slice.must_own);
        // No transaction has this number.
        let tx = TxId { coordinator: self.settings.server, number: 0 };
        self.prepare_parts(tx, None, &parts, slice.who, Status::Busy)?;
        record.changes.push(Change::DeleteEntry { dir, name: name.clone() });
        match self.inode(handle)? {
            _ if kind == FileKind::Directory => self.remove_directory(handle, record),
            inode if inode.nlink <= 1 => record.changes.push(self.change_links(handle, inode, -1, slice.now)),
            _ => *slice.linked.entry(handle).or_default() += 1,
        }
        Ok(())
    }
}
