//! Writes to a new file that are more than the server of its inode keeps: they are gathered here,
//! as the first ones were (`delayed.rs`), and go to data servers in few large messages: when there
//! are many (`behind.rs`), the last of them before a close of the file returns
//! ([`Client::bring_gathered`]), so that its program hears if they do not fit. Attributes that were
//! set meanwhile follow with the close itself.

use weft_base::Nanos;
use weft_rt::Runtime;
use weft_wire::Rights;

use super::delay::Leaves;
use super::delayed::{Content, Delayed, Taken};
use super::open_inode::OpenInode;
use crate::{Client, OpenFile, Result};

/// More than so many times what is gathered and then sent does not stay here of one file.
const SENDS_MAX: u64 = 4;

impl Content {
    /// What becomes of a write after which the file ends there.
    pub(super) fn grows(&mut self, end: u64, now: Nanos) -> Taken {
        if self.tail.start == 0 && end <= self.inline_bytes as u64 {
            return Taken::Here;
        }
        self.share.all.outgrown();
        if self.gather_bytes == 0 || !self.share.all.has_room(now) {
            return Taken::TooMuch;
        }
        if self.goes_through(end) {
            return Taken::Through;
        }
        let bytes = end - self.tail.start + self.tail.sent.len() as u64;
        match bytes <= SENDS_MAX * self.gather_bytes as u64 {
            true if self.share.grow(bytes as usize) => Taken::Here,
            false if self.is_full() || !self.tail.sent.is_empty() => Taken::Full,
            _ => Taken::TooMuch,
        }
    }

    /// True if it can only go to data servers.
    pub(super) fn is_gathered(&self) -> bool {
        self.tail.start > 0 || self.tail.bytes.len() > self.inline_bytes
    }
}

impl OpenInode {
    /// True if there are bytes here for data servers, and nothing yet to show them.
    pub(super) fn wants_capability(&self) -> bool {
        let is_gathered = || self.lock().delayed.content().is_some_and(Content::is_gathered);
        self.is_delayed() && is_gathered() && self.granted(Rights::WRITE).is_none()
    }

    fn is_gathered(&self) -> bool {
        self.is_delayed()
            && match &self.lock().delayed {
                Delayed::Here(content) | Delayed::Leaving(content) | Delayed::Refused(content) => content.is_gathered(),
                Delayed::Nothing | Delayed::Closing(_) => false,
            }
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
        let outcome = self.bring_delayed(flow, inode, Leaves::BeforeClose).await;
        self.tell_of_loss(flow, inode)?;
        outcome
    }
}
