//! Unlink: the name is here, the inode nearly always too.

use weft_base::{FileKind, Handle, Result, Status, check_name};
use weft_wire::ops::{TxPart, UnlinkRequest};

use crate::access::must_own_entries;
use crate::{Change, Record, ServerPart, State};

impl State {
    /// The parts of the removal of a name, and the object that it leads to.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::IsDirectory`], [`Status::AccessDenied`], [`Status::Busy`],
    /// and as [`State::directory`].
    pub fn plan_unlink(&self, request: &UnlinkRequest) -> Result<(Handle, Vec<ServerPart>)> {
        let dir = self.directory(&request.at, &request.name)?;
        check_name(&request.name)?;
        self.check_directory(&request.who, request.at.dir, dir, false)?;
        self.transactions.locks.check_write_name(request.at.dir, &request.name)?;
        let (handle, kind) = self.entry(request.at.dir, &request.name).ok_or(Status::NotFound)?;
        if kind == FileKind::Directory {
            return Err(Status::IsDirectory);
        }
        let must_own = must_own_entries(&request.who, dir);
        let remove = TxPart::RemoveEntry { dir: request.at.dir, name: request.name.clone(), handle };
        let parts = vec![
            ServerPart { server: self.settings().server, part: remove },
            ServerPart { server: handle.server(), part: TxPart::ChangeLinks { handle, kind, delta: -1, must_own } },
        ];
        Ok((handle, parts))
    }

    /// The end of a file that has no name, that nobody has open and whose datafiles are removed.
    pub fn prepare_reaped(&self, handle: Handle, record: &mut Record) {
        if self.peek(handle).is_some_and(|inode| inode.nlink == 0 && !inode.is_directory()) {
            record.changes.push(Change::DeleteInode { handle });
        }
    }
}
