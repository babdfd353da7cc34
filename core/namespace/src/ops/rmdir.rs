//! Rmdir: the name is here, the directory perhaps elsewhere.

use weft_base::{FileKind, Result, Status};
use weft_wire::ops::{RmdirRequest, TxPart};

use crate::{ServerPart, State};

impl State {
    /// The parts of the removal of a directory.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::NotDirectory`], [`Status::AccessDenied`], [`Status::Busy`],
    /// and as [`State::directory`].
    pub fn plan_rmdir(&self, request: &RmdirRequest) -> Result<Vec<ServerPart>> {
        let RmdirRequest { at, name, who } = request;
        let (handle, kind, must_own) = self.removable(at, name, who)?;
        if kind != FileKind::Directory {
            return Err(Status::NotDirectory);
        }
        let remove = TxPart::RemoveEntry { dir: at.dir, name: name.clone(), handle };
        let mut parts = vec![ServerPart { server: self.settings().server, part: remove }];
        parts.extend(self.removal_parts(handle, must_own));
        Ok(parts)
    }
}
