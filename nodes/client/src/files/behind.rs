//! Write-behind. What is gathered of a new file (`gathered.rs`) is sent to data servers each time
//! that there is enough of it, while the program writes on: by a flow that works for all files, or
//! by the one that writes if that flow is busy. Of one file one part is under way at a time, so
//! what data servers have of it has no gap. A part that they do not take stays here with what was
//! written behind it: the next write, or the close, brings both and hears why it cannot.

use weft_base::{Nanos, SECOND};
use weft_rt::Runtime;

use super::delay::Leaves;
use super::delayed::{Content, Delayed};
use super::open_inode::OpenInode;
use crate::flow::Flow;
use crate::{Client, OpenFile, Result};

/// A server that has said nothing when so much of its term is left is silent, in nanoseconds. One
/// that answers says something three times in a term of five seconds.
const SILENCE_NS: u64 = SECOND;

impl Content {
    /// True if there is enough to be sent.
    pub(super) fn is_full(&self) -> bool {
        self.gather_bytes > 0 && self.tail.bytes.len() >= self.gather_bytes
    }

    /// True for a large write, after which the file ends there, while a part of another file is
    /// sent: its writer would copy it and then wait for it all the same.
    pub(super) fn goes_through(&self, end: u64) -> bool {
        let is_large = end - self.tail.start >= self.gather_bytes as u64;
        is_large && self.tail.start > 0 && self.tail.is_empty() && self.share.all.is_sending()
    }
}

impl OpenInode {
    /// True if some of its bytes are here, and others are not.
    pub(super) fn is_partly_here(&self) -> bool {
        self.is_delayed() && self.lock().delayed.content().is_some_and(|content| content.tail.start > 0)
    }

    /// True if data servers have all bytes before this place, and none is here.
    pub(super) fn goes_on_at(&self, at: u64) -> bool {
        matches!(&self.lock().delayed, Delayed::Here(content) if content.tail.start == at && content.tail.is_empty())
    }

    /// The bytes between went to data servers as they were.
    pub(super) fn went_through(&self, from: u64, to: u64, now: Nanos) {
        if let Delayed::Here(content) = &mut self.lock().delayed
            && content.tail.start == from
            && content.tail.is_empty()
        {
            (content.tail.start, content.tail.since) = (to, now);
        }
    }
}

impl OpenFile {
    /// True if [`Client::send_gathered`] has something to do, and nobody does it yet.
    pub fn has_much_gathered(&self) -> bool {
        let inode = self.inode();
        inode.is_delayed() && matches!(&inode.lock().delayed, Delayed::Here(content) if content.is_full() && content.tail.sent.is_empty())
    }
}

impl<R: Runtime> Client<R> {
    /// Sends to data servers what was gathered of a file, if it is enough. What they do not take
    /// stays here, and is brought with the next write or before the close.
    ///
    /// # Errors
    /// As [`Client::write`].
    pub async fn send_gathered(&self, file: &OpenFile) -> Result<()> {
        let flow = self.flow("write", file.handle());
        let _op = weft_trace::operation(weft_trace::event::CLIENT_WRITE);
        self.send_on(flow, file.inode()).await
    }

    /// A stream does not wait for a metadata server that falls silent: while this client may still
    /// bring what is here without asking it, it does, and what follows is written at once.
    pub(super) async fn settle_before_silence(&self, flow: Flow, inode: &OpenInode) -> Result<()> {
        if inode.is_partly_here() {
            let server = self.owner(flow, inode.handle).await?;
            if self.inner.knowledge.is_heard_in(server, self.rt().now() + SILENCE_NS).is_none() {
                return Box::pin(self.settle_delayed(flow, inode)).await;
            }
        }
        Ok(())
    }

    pub(super) async fn send_on(&self, flow: Flow, inode: &OpenInode) -> Result<()> {
        self.bring_delayed(flow, inode, Leaves::Full).await
    }
}
