//! Rmdir: the name is here, the directory perhaps elsewhere.

use weft_base::{FileKind, Result, Status, check_name};
use weft_wire::ops::{RmdirRequest, TxPart};

use crate::access::must_own_entries;
use crate::{ServerPart, State};

impl State {
    /// The parts of the removal of a directory.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::NotDirectory`], [`Status::AccessDenied`], [`Status::Busy`],
    /// and as [`State::directory`].
    pub fn plan_rmdir(&self, request: &RmdirRequest) -> Result<Vec<ServerPart>> {
        let dir = self.directory(&request.at, &request.name)?;
        check_name(&request.name)?;
        self.check_directory(&request.who, request.at.dir, dir, false)?;
        self.transactions.locks.check_write_name(request.at.dir, &request.name)?;
        let (handle, kind) = self.entry(request.at.dir, &request.name).ok_or(Status::NotFound)?;
        if kind != FileKind::Directory {
            return Err(Status::NotDirectory);
        }
        let must_own = must_own_entries(&request.who, dir);
        let remove = TxPart::RemoveEntry { dir: request.at.dir, name: request.name.clone(), handle };
        let mut parts = vec![ServerPart { server: self.settings().server, part: remove }];
        parts.extend(self.removal_parts(handle, must_own));
        Ok(parts)
    }
}
