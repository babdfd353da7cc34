//! Unlink: the name is here, the inode nearly always too.

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, Result, Status, check_name};
use weft_wire::ops::{DirTarget, TxPart, UnlinkRequest};

use crate::access::must_own_entries;
use crate::{Change, Record, ServerPart, State};

impl State {
    /// The parts of the removal of a name, and the object that it leads to.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::IsDirectory`], [`Status::AccessDenied`], [`Status::Busy`],
    /// and as [`State::directory`].
    pub fn plan_unlink(&self, request: &UnlinkRequest) -> Result<(Handle, Vec<ServerPart>)> {
        let UnlinkRequest { at, name, who, .. } = request;
        let (handle, kind, must_own) = self.removable(at, name, who)?;
        if kind == FileKind::Directory {
            return Err(Status::IsDirectory);
        }
        let [remove, unlink] = removal(at.dir, name.clone(), (handle, kind), must_own);
        let server = self.settings().server;
        Ok((handle, vec![ServerPart { server, part: remove }, ServerPart { server: handle.server(), part: unlink }]))
    }

    /// What a name leads to that this user may remove, and whether he must own that.
    pub(super) fn removable(&self, at: &DirTarget, name: &Bytes, who: &Credentials) -> Result<(Handle, FileKind, bool)> {
        let dir = self.directory(at, name)?;
        check_name(name)?;
        self.check_directory(who, at.dir, dir, false)?;
        self.transactions.locks.check_write_name(at.dir, name)?;
        let (handle, kind) = self.entry(at.dir, name).ok_or(Status::NotFound)?;
        Ok((handle, kind, must_own_entries(who, dir)))
    }

    /// The end of a file that has no name, that nobody has open and whose datafiles are removed.
    pub fn prepare_reaped(&self, handle: Handle, record: &mut Record) {
        if self.peek(handle).is_some_and(|inode| inode.nlink == 0 && !inode.is_directory()) {
            record.changes.push(Change::DeleteInode { handle });
        }
    }
}

/// What takes a name away, and what it led to with it.
pub(super) fn removal(dir: Handle, name: Bytes, (handle, kind): (Handle, FileKind), must_own: bool) -> [TxPart; 2] {
    let object = match kind {
        FileKind::Directory => TxPart::RemoveDirectory { dir: handle, must_own },
        _ => TxPart::ChangeLinks { handle, kind, delta: -1, must_own },
    };
    [TxPart::RemoveEntry { dir, name, handle }, object]
}
