//! Parent: a step of the search for cycles, when a directory is moved.

use weft_base::{Handle, Result, Status};

use crate::State;

impl State {
    /// The directory that holds this directory's name.
    ///
    /// # Errors
    /// [`Status::Busy`] while another move of it may have been decided, [`Status::NotDirectory`],
    /// and as [`State::inode`].
    pub fn parent(&self, dir: Handle) -> Result<Handle> {
        let inode = self.inode(dir)?;
        if !inode.is_directory() {
            return Err(Status::NotDirectory);
        }
        Ok(inode.parent())
    }

    /// True if `dir` is `ancestor` or lies below it; all directories on the way must be here.
    ///
    /// # Errors
    /// As [`State::parent`].
    pub fn is_within(&self, dir: Handle, ancestor: Handle) -> Result<bool> {
        let mut at = dir;
        loop {
            if at == ancestor {
                return Ok(true);
            }
            let parent = self.parent(at)?;
            if parent == at {
                return Ok(false);
            }
            at = parent;
        }
    }
}
