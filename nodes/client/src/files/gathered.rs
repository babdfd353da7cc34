//! Writes to a file that are more than the server of its inode keeps: they are gathered here, as
//! the first ones were (`delayed.rs`), and go to data servers in few large messages: when there are
//! many (`behind.rs`), the last of them before a close of the file returns
//! ([`Client::bring_gathered`]), so that its program hears if they do not fit. Of a new file of
//! which no part was sent nobody waits for that: it leaves when the file is closed together with
//! others ([`Client::close_many`]), unless data servers have little room, or have not taken what
//! came so. Attributes that were set meanwhile follow with the close itself.

use std::sync::Arc;

use weft_base::Nanos;
use weft_call::run_window;
use weft_layout::FileRange;
use weft_rt::Runtime;
use weft_wire::Rights;

use super::delay::Leaves;
use super::delayed::{Content, Delayed, Taken};
use super::gathered_share::Room;
use super::open_inode::OpenInode;
use crate::{Client, OpenFile, Result};

/// More than so many times what is gathered and then sent does not stay here of one file.
const SENDS_MAX: u64 = 4;

impl Content {
    /// What becomes of a write of these ranges.
    pub(super) fn takes(&mut self, ranges: &[FileRange], now: Nanos) -> Taken {
        let end = ranges.iter().map(|range| range.offset + range.bytes).max().unwrap_or(0);
        if end > self.inline_bytes as u64 {
            match self.inline_bytes {
                0 if self.tail.is_empty() => {}
                0 => self.share.all.again.came(),
                _ => self.share.all.large.came(),
            }
        } else if self.stays_whole(ranges) {
            return Taken::Here;
        }
        // Of holes only data servers know, too.
        let room = self.share.all.room(now);
        if self.gather_bytes == 0 || room == Room::Scarce {
            return Taken::TooMuch;
        }
        if room == Room::Unknown {
            // The first message says.
            return if self.tail.is_empty() { self.passes() } else { Taken::Full };
        }
        if ranges.iter().any(|range| self.tail.is_on_its_way(range.offset, range.bytes)) {
            return Taken::Full;
        }
        let new: u64 = ranges.iter().map(|range| range.bytes).sum();
        if self.goes_through(new) {
            return self.passes();
        }
        let bytes = (self.tail.bytes() + self.tail.bytes_sent()) as u64 + new;
        match bytes <= SENDS_MAX * self.gather_bytes as u64 && !self.tail.is_scattered() {
            true if self.share.grow(bytes as usize) => Taken::Here,
            true => Taken::TooMuch,
            false if self.tail.is_empty() => self.passes(),
            false => Taken::Full,
        }
    }

    /// A write goes past what is here.
    fn passes(&mut self) -> Taken {
        self.tail.is_begun = true;
        Taken::Through
    }

    /// True if all of the file is here, and is its beginning without a gap after such a write.
    fn stays_whole(&self, ranges: &[FileRange]) -> bool {
        let goes_on = |end: u64, range: &FileRange| (range.offset <= end).then_some(end.max(range.offset + range.bytes));
        self.tail.whole().is_some_and(|whole| ranges.iter().try_fold(whole.len() as u64, goes_on).is_some())
    }

    /// True if it can only go to data servers.
    pub(super) fn is_gathered(&self) -> bool {
        self.tail.whole().is_none_or(|whole| whole.len() > self.inline_bytes)
    }
}

impl OpenInode {
    /// True if there are bytes here for data servers, and nothing yet to show them.
    pub(super) fn wants_capability(&self) -> bool {
        let is_gathered = || self.lock().delayed.content().is_some_and(Content::is_gathered);
        self.is_delayed() && is_gathered() && self.granted(Rights::WRITE).is_none()
    }

    /// True if a close need not wait for what was gathered of it.
    fn leaves_later(&self, now: Nanos) -> bool {
        let may_wait = |content: &Content| content.leaves_later() && content.share.all.room(now) == Room::Plenty;
        self.is_delayed() && matches!(&self.lock().delayed, Delayed::Here(content) if may_wait(content))
    }

    /// True if nobody writes to it any more.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().writers == 0
    }

    /// True if what was gathered of it is to leave since all who wrote to it have closed it.
    pub(super) fn leaves_now(&self) -> bool {
        self.is_delayed() && {
            let state = self.lock();
            state.writers == 0 && matches!(&state.delayed, Delayed::Here(content) if content.is_gathered())
        }
    }

    fn is_gathered(&self) -> bool {
        self.is_delayed()
            && match &self.lock().delayed {
                // A shell closes a copy of its descriptor before anything is written to the file.
                Delayed::Here(content) => content.is_gathered() && content.tail.is_written,
                Delayed::Leaving(content) | Delayed::Refused(content) => content.is_gathered(),
                Delayed::Nothing | Delayed::Closing(_) => false,
            }
    }
}

impl OpenFile {
    /// True if what is written to it is gathered: its closes are to be heard.
    pub fn gathers(&self) -> bool {
        let inode = self.inode();
        inode.is_delayed() && inode.lock().delayed.content().is_some_and(|content| content.gather_bytes > 0)
    }

    /// True if writes to it were gathered that no server has yet.
    pub fn has_gathered(&self) -> bool {
        self.inode().is_gathered()
    }
}

impl<R: Runtime> Client<R> {
    /// True if files that are made now are likely to become larger than their server keeps: it is
    /// worth the trouble to hear their closes.
    pub fn expects_large_files(&self) -> bool {
        self.inner.gathered.large.expects()
    }

    /// The same of files that were there before, and are opened for writing now: they are likely to
    /// be written in several pieces.
    pub fn expects_pieces(&self) -> bool {
        self.inner.gathered.again.expects()
    }

    /// To be called before a close of a file returns that was made with
    /// [`crate::DelayWrites::Gathered`]: what was gathered of it goes to data servers, or will with
    /// [`Client::close_many`].
    ///
    /// # Errors
    /// As [`Client::write`]; what could not be brought stays here, and is tried again.
    pub async fn bring_gathered(&self, file: &OpenFile) -> Result<()> {
        let inode = file.inode();
        if !inode.is_gathered() || inode.leaves_later(self.rt().now()) {
            return Ok(());
        }
        let flow = self.flow("close", file.handle());
        let _op = weft_trace::operation(weft_trace::event::CLIENT_WRITE);
        let outcome = self.bring_delayed(flow, inode, Leaves::BeforeClose).await;
        self.tell_of_loss(flow, inode)?;
        outcome
    }

    /// Brings what was gathered of files that are closed, many at a time; one result for each. What
    /// does not arrive stays here, and closes wait again for a while.
    pub(super) async fn bring_closed<'a>(&self, files: impl Iterator<Item = &'a Arc<OpenFile>>, leave_ns: u64) -> Vec<Result<()>> {
        let bring = async |file: &Arc<OpenFile>| {
            let client = self.for_at_most(leave_ns);
            let flow = client.flow("close", file.handle());
            let _op = weft_trace::operation(weft_trace::event::CLIENT_WRITE);
            client.bring_delayed(flow, file.inode(), Leaves::BeforeClose).await
        };
        let outcomes = run_window(files.map(bring), self.options().window).await;
        if outcomes.iter().any(Result::is_err) {
            self.inner.gathered.told(false, self.rt().now());
        }
        outcomes
    }
}
