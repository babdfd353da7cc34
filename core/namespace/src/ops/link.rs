//! Link: the new name is here, the inode perhaps elsewhere.

use weft_base::{FileKind, Result, Status, check_name};
use weft_wire::ops::{FileState, LinkRequest, TxPart};

use crate::{Change, EXECUTE, Record, RequestContext, ServerPart, State, may_access};

impl State {
    /// The parts of a new name for an object.
    ///
    /// # Errors
    /// [`Status::Exists`], [`Status::NotPermitted`] for a directory, [`Status::AccessDenied`],
    /// [`Status::NameTooLong`], [`Status::Invalid`], [`Status::Busy`], and as [`State::directory`].
    pub fn plan_link(&self, request: &LinkRequest) -> Result<Vec<ServerPart>> {
        let dir = self.directory(&request.to, &request.to_name)?;
        check_name(&request.to_name)?;
        may_access(&request.who, dir, EXECUTE)?;
        self.transactions.locks.check_write_name(request.to.dir, &request.to_name)?;
        if self.entry(request.to.dir, &request.to_name).is_some() {
            return Err(Status::Exists);
        }
        if request.kind == FileKind::Directory {
            return Err(Status::NotPermitted);
        }
        let (handle, kind) = (request.handle, request.kind);
        let insert = TxPart::InsertEntry { dir: request.to.dir, name: request.to_name.clone(), handle, kind, replaces: None };
        Ok(vec![
            ServerPart { server: self.settings().server, part: insert },
            ServerPart { server: handle.server(), part: TxPart::ChangeLinks { handle, kind, delta: 1, must_own: false } },
        ])
    }

    /// The new state of the object, given the record that makes the link, if the inode is here.
    pub fn linked_state(&self, cx: &RequestContext<'_>, request: &LinkRequest, record: &Record) -> Option<FileState> {
        let changed = record.changes.iter().find_map(|change| match change {
            Change::PutInode { handle, inode } if *handle == request.handle => Some(inode),
            _ => None,
        });
        changed.map(|inode| self.file_state(cx, request.handle, inode))
    }
}
