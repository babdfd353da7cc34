//! Link: the new name is here, the inode perhaps elsewhere.

use weft_base::{EXECUTE, FileKind, Handle, MODE_UNNAMED, Result, Status, WallTime, check_name};
use weft_wire::ops::{FileState, LinkRequest, TxPart};

use crate::{Change, Inode, InodeFlags, Record, RequestContext, ServerPart, State};

impl State {
    /// The parts of a new name for an object.
    ///
    /// # Errors
    /// [`Status::Exists`], [`Status::NotPermitted`] for a directory, [`Status::AccessDenied`],
    /// [`Status::NameTooLong`], [`Status::Invalid`], [`Status::Busy`], and as [`State::directory`].
    /// Into the directory of another project the parts are refused ([`Status::CrossDevice`]).
    pub fn plan_link(&self, request: &LinkRequest) -> Result<Vec<ServerPart>> {
        let dir = self.directory(&request.to, &request.to_name)?;
        check_name(&request.to_name)?;
        self.may_access(&request.who, request.to.dir, dir, EXECUTE)?;
        self.transactions.locks.check_write_name(request.to.dir, &request.to_name)?;
        if self.entry(request.to.dir, &request.to_name).is_some() {
            return Err(Status::Exists);
        }
        if request.kind == FileKind::Directory {
            return Err(Status::NotPermitted);
        }
        let (handle, kind) = (request.handle, request.kind);
        let insert = TxPart::InsertEntry { dir: request.to.dir, name: request.to_name.clone(), handle, kind, replaces: None };
        let mut parts = vec![
            ServerPart { server: self.settings().server, part: insert },
            ServerPart { server: handle.server(), part: TxPart::ChangeLinks { handle, kind, delta: 1, must_own: false } },
        ];
        parts.extend(expect_project(handle, self.hints(request.to.dir).project));
        Ok(parts)
    }

    /// The new state of the object, given the record that makes the link, if the inode is here.
    pub fn linked_state(&self, cx: &RequestContext<'_>, request: &LinkRequest, record: &Record) -> Option<FileState> {
        let changed = record.changes.iter().find_map(|change| match change {
            Change::PutInode { handle, inode } if *handle == request.handle => Some(inode),
            _ => None,
        });
        let told = changed.filter(|inode| !self.is_delayed_elsewhere(cx.client, request.handle, inode));
        told.map(|inode| self.file_state(cx, request.handle, inode))
    }

    /// What happens to a file that is no directory when its link count changes by `delta`.
    pub(crate) fn change_links(&self, handle: Handle, inode: &Inode, delta: i64, now: WallTime) -> Change {
        let nlink = (i64::from(inode.nlink) + delta).clamp(0, i64::from(u32::MAX)) as u32;
        let has_data = self.datafiles(handle, inode) > 0;
        let kept = inode.kind == FileKind::File && (has_data || self.opens.is_open(handle) || self.is_in_grace());
        if nlink == 0 && !kept {
            return Change::DeleteInode { handle };
        }
        let (flags, mode) = (inode.flags.without(InodeFlags::CLASSIC), inode.mode & !MODE_UNNAMED);
        Change::PutInode { handle, inode: Inode { nlink, flags, mode, ..inode.changed(now) } }
    }
}

/// What must be true of an object that gets a name in a directory of this project (0: of none): as
/// on XFS what is in the directory counts for it.
pub(super) fn expect_project(handle: Handle, project: u32) -> Option<ServerPart> {
    (project != 0).then(|| ServerPart { server: handle.server(), part: TxPart::ExpectProject { handle, project } })
}
