//! Writes to a new file that are more than the server of its inode keeps: they are gathered here,
//! as the first ones were (`delayed.rs`), and go to data servers in few large messages: before a
//! close of the file returns ([`Client::bring_gathered`]), so that its program hears if they do not
//! fit. Attributes that were set meanwhile follow with the close itself.

use weft_base::Nanos;
use weft_rt::Runtime;
use weft_wire::Rights;

use super::delayed::{Content, Delayed};
use super::open_inode::OpenInode;
use crate::{Client, OpenFile, Result};

impl Content {
    /// True if the file may become so long here.
    pub(super) fn may_grow(&mut self, bytes: u64, now: Nanos) -> bool {
        if bytes <= self.inline_bytes as u64 {
            return true;
        }
        self.share.all.outgrown();
        bytes <= self.bytes_max as u64 && self.share.all.has_room(now) && self.share.grow(bytes as usize)
    }

    /// True if it can only go to data servers.
    pub(super) fn is_gathered(&self) -> bool {
        self.bytes.len() > self.inline_bytes
    }
}

impl OpenInode {
    /// True if there are bytes here for data servers, and nothing yet to show them.
    pub(super) fn wants_capability(&self) -> bool {
        let is_gathered = || self.lock().delayed.content().is_some_and(Content::is_gathered);
        self.is_delayed() && is_gathered() && self.granted(Rights::WRITE).is_none()
    }

    fn is_gathered(&self) -> bool {
        self.is_delayed() && matches!(&self.lock().delayed, Delayed::Here(content) if content.is_gathered())
    }
}

impl OpenFile {
    /// True if writes to it were gathered that no server has yet.
    pub fn has_gathered(&self) -> bool {
        self.inode().is_gathered()
    }
}

impl<R: Runtime> Client<R> {
    /// True if files that are made now are likely to become larger than their server keeps: it is
    /// worth the trouble to hear their closes.
    pub fn expects_large_files(&self) -> bool {
        self.inner.gathered.expects()
    }

    /// To be called before a close of a file returns that was made with
    /// [`crate::CreateOptions::can_gather`]: what was gathered of it goes to data servers.
    ///
    /// # Errors
    /// As [`Client::write`]; what could not be brought stays here, and is tried again.
    pub async fn bring_gathered(&self, file: &OpenFile) -> Result<()> {
        let inode = file.inode();
        if !inode.is_gathered() {
            return Ok(());
        }
        let flow = self.flow("close", file.handle());
        let _op = weft_trace::operation(weft_trace::event::CLIENT_WRITE);
        let outcome = self.bring_delayed(flow, inode, true).await;
        self.tell_of_loss(flow, inode)?;
        outcome
    }
}
