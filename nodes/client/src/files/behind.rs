//! Write-behind. What is gathered of a file (`gathered.rs`) is sent to data servers each time that
//! there is enough of it, while the program writes on: by a flow that works for all files, or by
//! the one that writes if that flow is busy. Of one file one part is under way at a time, so what
//! data servers have of one that is written in order has no gap. A part that they do not take stays
//! here with what was written since: the next write, or the close, brings both and hears why it
//! cannot.

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
        self.gather_bytes > 0 && (self.tail.bytes() >= self.gather_bytes || self.tail.is_scattered())
    }

    /// True for a large write, while a part of another file is sent: its writer would copy it and
    /// then wait for it all the same.
    pub(super) fn goes_through(&self, bytes: u64) -> bool {
        bytes >= self.gather_bytes as u64 && self.tail.is_begun && self.tail.is_empty() && self.share.all.is_sending()
    }
}

impl OpenInode {
    /// True if some of its bytes are here, and they are not all there are.
    pub(super) fn is_partly_here(&self) -> bool {
        let is_partly = |content: &Content| !content.tail.is_empty() && content.tail.whole().is_none();
        self.is_delayed() && self.lock().delayed.content().is_some_and(is_partly)
    }

    /// True if some of its bytes are here that get their time from data servers, and no other one
    /// was set since.
    pub(crate) fn has_no_time(&self) -> bool {
        let is_set = |content: &Content| content.mtime_epoch == 0 && content.attributes.is_some_and(|kept| kept.mtime.is_some());
        let is_for_them = |content: &Content| !content.tail.is_empty() && content.is_gathered() && !is_set(content);
        self.is_delayed() && self.lock().delayed.content().is_some_and(is_for_them)
    }

    /// True if it is sent while it is written.
    fn is_stream(&self) -> bool {
        self.is_delayed() && self.lock().delayed.content().is_some_and(|content| content.tail.whole().is_none())
    }

    /// What ends there went to data servers as it was.
    pub(super) fn went_through(&self, end: u64, now: Nanos) {
        if let Delayed::Here(content) = &mut self.lock().delayed {
            content.tail.end_at_servers = content.tail.end_at_servers.max(end);
            (content.tail.is_written, content.tail.since) = (true, now);
        }
    }
}

impl OpenFile {
    /// True if [`Client::send_gathered`] has something to do, and nobody does it yet.
    pub fn has_much_gathered(&self) -> bool {
        let inode = self.inode();
        inode.is_delayed() && matches!(&inode.lock().delayed, Delayed::Here(content) if content.is_full() && content.tail.bytes_sent() == 0)
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
        self.bring_delayed(flow, file.inode(), Leaves::Full).await
    }

    /// Sends what is here of a file, for a program that writes on.
    pub(super) async fn send_more(&self, flow: Flow, inode: &OpenInode) -> Result<()> {
        let outcome = Box::pin(self.bring_delayed(flow, inode, Leaves::Here)).await;
        self.tell_of_loss(flow, inode)?;
        outcome
    }

    /// A stream does not wait for a metadata server that falls silent: while this client may still
    /// bring what is here without asking it, it does, and what follows is written at once.
    pub(super) async fn settle_before_silence(&self, flow: Flow, inode: &OpenInode) -> Result<()> {
        if inode.is_stream() {
            let server = self.owner(flow, inode.handle).await?;
            if self.inner.knowledge.is_heard_in(server, self.rt().now() + SILENCE_NS).is_none() {
                return Box::pin(self.settle_delayed(flow, inode)).await;
            }
        }
        Ok(())
    }

    /// What of a file is here for data servers goes there, for who looks at it or tells of it.
    /// Attributes of one that is closed stay, to follow with that.
    pub(crate) async fn bring_what_is_here(&self, flow: Flow, inode: &OpenInode) -> Result<()> {
        let leaves = if inode.is_closed() { Leaves::BeforeClose } else { Leaves::Here };
        Box::pin(self.bring_delayed(flow, inode, leaves)).await
    }
}
