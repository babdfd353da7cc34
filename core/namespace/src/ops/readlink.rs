//! Readlink: the target of a symlink.

use weft_base::{FileKind, Handle, Result, Status};
use weft_wire::ops::ReadlinkReply;

use crate::State;

impl State {
    /// The target.
    ///
    /// # Errors
    /// [`Status::Invalid`] for anything but a symlink, and as [`State::inode`].
    pub fn readlink(&self, handle: Handle) -> Result<ReadlinkReply> {
        let inode = self.inode(handle)?;
        if inode.kind != FileKind::Symlink {
            return Err(Status::Invalid);
        }
        let target = self.targets.get(&handle).cloned().unwrap_or_default();
        Ok(ReadlinkReply { target })
    }
}
