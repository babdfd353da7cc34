//! Strips: where the bytes of a file with the distribution `varstrip` are.

use std::sync::Arc;

use weft_base::{Handle, Layout, Result, Status};
use weft_layout::{Distribution, Strips};
use weft_wire::ops::StripsReply;

use crate::State;

impl State {
    /// The strips of a file, as it was made with.
    ///
    /// # Errors
    /// [`Status::Invalid`] for anything without strips, and as [`State::inode`].
    pub fn strips(&self, handle: Handle) -> Result<StripsReply> {
        let inode = self.inode(handle)?;
        if !inode.layout.is_varstrip() {
            return Err(Status::Invalid);
        }
        Ok(StripsReply { strips: self.targets.get(&handle).cloned().unwrap_or_default() })
    }

    /// How the bytes of a file of this server are distributed.
    ///
    /// # Errors
    /// [`Status::Io`] if what is stored of it makes no sense.
    pub fn distribution(&self, handle: Handle, layout: &Layout) -> Result<Distribution> {
        if let Some(distribution) = Distribution::of(layout) {
            return Ok(distribution);
        }
        let text = self.targets.get(&handle).map(|text| String::from_utf8_lossy(text));
        let strips = text.and_then(|text| Strips::parse(&text).ok()).filter(|strips| strips.width() == layout.width);
        Ok(Distribution::Strips(Arc::new(strips.ok_or(Status::Io)?)))
    }
}
