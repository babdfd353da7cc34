//! How writes are delayed (`delayed.rs`), and how what was kept leaves this client.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use weft_base::{DataTime, Handle, Nanos, Payload, SECOND, Status};
use weft_layout::{FileRange, file_end, split};
use weft_rt::{Bulk, Runtime};
use weft_wire::Rights;
use weft_wire::ops::OpenRequest;

use super::delayed::{Content, Delayed, Taken};
use super::granted::Granted;
use super::noted::NotedRights;
use super::open_inode::{OpenInode, State};
use super::opens::OPEN_TRIES;
use super::read::cut_out;
use super::reports::DelayedReport;
use super::write::How;
use crate::flow::Flow;
use crate::{Client, Result};

/// Of a file that is older and still open nothing stays here when [`Client::keep_alive`] runs, in
/// nanoseconds: a program that does not close its file for hours would lose all of it with its
/// machine.
const KEPT_NS: u64 = 5 * SECOND;

/// What leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    /// All that is here.
    All,
    /// All that was gathered, of a file that is about to be closed: attributes may follow then.
    BeforeClose,
    /// What is here. What is written next stays, if it may.
    Here,
    /// The same, if it is enough to be sent.
    Full,
}

/// What is on its way to data servers.
struct Leaving {
    parts: Vec<(u64, Bytes)>,
    /// The epoch of its time.
    mtime_epoch: u32,
    session: u32,
    /// The bytes are there already.
    is_brought: bool,
    /// They may be with the server of the inode.
    is_in_doubt: bool,
    /// What is written next stays.
    goes_on: bool,
    /// Attributes go with the close that follows.
    leaves_attributes: bool,
}

impl OpenInode {
    /// This client may delay what it writes to this file: it stays here from now on. False if
    /// others have asked for the file already, or if the right is given back.
    pub(super) fn delay(&self, content: Content) -> bool {
        let mut state = self.lock();
        if !matches!(state.delayed, Delayed::Nothing)
            || state.shares > 0
            || state.told_again.is_some()
            || content.is_all() && state.writes_past_delay()
            || !state.held.rights.contains(Rights::DELAY)
        {
            return false;
        }
        state.delayed = Delayed::Here(content);
        self.is_delayed.store(true, Ordering::Release);
        true
    }

    /// The right to delay was given with an open that was overtaken.
    pub(super) fn need_not_delay(&self) {
        let mut state = self.lock();
        state.held.granted(Rights::DELAY);
    }

    /// True if something of it is with this client only.
    pub(crate) fn is_delayed(&self) -> bool {
        self.is_delayed.load(Ordering::Acquire)
    }

    /// True if what was written to it waits for a close that may not come soon.
    pub(super) fn is_kept_too_long(&self, now: Nanos) -> bool {
        self.is_delayed() && {
            let state = self.lock();
            let is_old =
                |content: &Content| (content.tail.bytes() > 0 || content.attributes.is_some()) && now.since(content.tail.since) >= KEPT_NS;
            state.writers > 0 && matches!(&state.delayed, Delayed::Here(content) if is_old(content))
        }
    }

    /// True if something must go to data servers before its server can be told anything.
    pub(super) fn must_leave(&self) -> bool {
        self.is_delayed() && {
            let state = self.lock();
            state.delayed.is_leaving() || state.writers > 0 && state.delayed.may_close()
        }
    }

    fn is_closing(&self) -> bool {
        matches!(self.lock().delayed, Delayed::Closing(_))
    }

    /// All bytes of the file, if they are with this client only.
    pub(super) fn delayed_content(&self) -> Option<Bytes> {
        if !self.is_delayed() {
            return None;
        }
        self.lock().delayed.bytes().map(Bytes::copy_from_slice)
    }

    /// What of them lies in these ranges.
    pub(super) fn read_delayed(&self, ranges: &[FileRange]) -> Option<Vec<Vec<Payload>>> {
        if !self.is_delayed() {
            return None;
        }
        let state = self.lock();
        let bytes = state.delayed.bytes()?;
        Some(ranges.iter().map(|range| cut_out(bytes.len(), range, |part| Bytes::copy_from_slice(&bytes[part]))).collect())
    }

    /// Keeps a write here if it can.
    pub(super) fn take_write(&self, ranges: &[FileRange], data: &Bulk<'_>, now: Nanos) -> Taken {
        if !self.is_delayed() {
            return Taken::No;
        }
        self.lock().take_write(ranges, data, now)
    }

    /// Keeps what is written at the end of the file, if it can.
    pub(super) fn take_append(&self, data: &Bulk<'_>, now: Nanos) -> Taken {
        let mut state = self.lock();
        let offset = state.known_size().bytes;
        state.take_write(&[FileRange { offset, bytes: data.len() }], data, now)
    }

    /// What is to be brought to data servers now. Called inside the gate `leaves`.
    fn begin_leaving(&self, leaves: Leaves, now: Nanos) -> Option<Leaving> {
        let mut state = self.lock();
        let (is_here, content) = match &mut state.delayed {
            Delayed::Nothing => return None,
            Delayed::Here(content) => (true, content),
            Delayed::Closing(content) | Delayed::Leaving(content) | Delayed::Refused(content) => (false, content),
        };
        // Who was here before has given up on its way.
        content.tail.take_back();
        let is_wanted = match leaves {
            Leaves::All => true,
            Leaves::BeforeClose => content.is_gathered(),
            Leaves::Here => is_here || content.is_gathered(),
            Leaves::Full => is_here && content.is_full(),
        };
        if !is_wanted {
            return None;
        }
        let parts = content.tail.send(now);
        let Content { mtime_epoch, session, is_brought, is_in_doubt, closes_with_attributes, .. } = *content;
        let leaves_attributes = leaves == Leaves::BeforeClose && is_here && closes_with_attributes;
        let goes_on = is_here && matches!(leaves, Leaves::Here | Leaves::Full);
        if !goes_on {
            state.delayed = std::mem::take(&mut state.delayed).into_leaving();
        }
        Some(Leaving { parts, mtime_epoch, session, is_brought, is_in_doubt, goes_on, leaves_attributes })
    }

    /// Data servers have it, with the time of that; `None`: they have not, and it stays here until
    /// they do.
    fn end_leaving(&self, leaving: Leaving, written: Option<DataTime>) {
        let Leaving { goes_on, leaves_attributes, .. } = leaving;
        // Not the last one any more who has these bytes, if they are taken back.
        drop(leaving);
        let mut state = self.lock();
        let Some(mtime) = written else {
            if let Some(content) = state.delayed.content_mut() {
                content.tail.take_back();
            }
            let delayed = std::mem::take(&mut state.delayed);
            state.delayed = match delayed {
                Delayed::Here(content) | Delayed::Leaving(content) => Delayed::Refused(content),
                delayed => delayed,
            };
            return;
        };
        if mtime.is_of_a_change() {
            let kept = state.delayed.content().and_then(|content| content.attributes);
            state.brought(kept.map_or(mtime, |kept| kept.of_earlier_write(mtime)));
        }
        if goes_on {
            if let Some(content) = state.delayed.content_mut() {
                content.tail.arrived();
            }
            return;
        }
        match std::mem::take(&mut state.delayed) {
            Delayed::Leaving(content) if leaves_attributes => state.delayed = Delayed::Here(content.brought()),
            _ => self.is_delayed.store(false, Ordering::Release),
        }
    }

    /// Others were told that nothing was written.
    fn lose_delayed(&self) {
        self.lose(&mut self.lock());
        self.is_delayed.store(false, Ordering::Release);
    }

    /// It was made here, and its server has not taken it in.
    pub(super) fn never_made(&self) {
        let mut state = self.lock();
        state.held = NotedRights::default();
        self.lose(&mut state);
        self.is_delayed.store(false, Ordering::Release);
    }

    /// What became of a close with all that was kept here is known: it was done, if the right to
    /// delay has ended, and this client hears its server still in the session in which it got that
    /// (`heard_in`): then nothing else ends it. True if so, and nothing is here any more.
    pub(super) fn end_doubt(&self, heard_in: Option<u32>) -> bool {
        let mut state = self.lock();
        let was_done = state.delayed.content().is_some_and(|content| content.is_in_doubt && heard_in == Some(content.session));
        if was_done {
            state.delayed = Delayed::Nothing;
            // All of it is told, and what has become of it since its server knows.
            state.lost_writes(0);
            self.is_inline.store(true, Ordering::Release);
            self.is_delayed.store(false, Ordering::Release);
        }
        was_done
    }

    fn lose(&self, state: &mut State) {
        let at_servers = state.delayed.content().map_or(0, |content| content.tail.end_at_servers);
        state.delayed = Delayed::Nothing;
        state.lost_writes(at_servers);
        self.has_lost.store(state.writers > 0, Ordering::Relaxed);
    }

    /// The outcome of a close with all that was kept here, for [`OpenInode::end_report`].
    pub(super) fn end_delayed_close(&self, state: &mut State, outcome: std::result::Result<(), Status>) {
        let mut content = match std::mem::take(&mut state.delayed) {
            Delayed::Closing(content) => content,
            // Another flow has begun to bring it meanwhile, and goes on to.
            delayed => return state.delayed = delayed,
        };
        match outcome {
            Ok(()) if content.tail.bytes() > 0 => self.is_inline.store(true, Ordering::Release),
            Ok(()) => {}
            // Alone it may wait for those who must hear of it.
            Err(Status::Busy) if content.is_brought && content.is_refused_first() => return state.delayed = Delayed::Here(content),
            // What is left is to be set alone, if the file is there.
            Err(Status::Busy | Status::CapabilityRefused) if content.is_brought => return state.delayed = Delayed::Refused(content),
            // It has not the right any more, or the file is gone.
            Err(Status::CapabilityRefused | Status::Stale) => self.lose(state),
            Err(status) if status.is_transient() && status != Status::Conflict => {
                content.is_in_doubt = true;
                return state.delayed = Delayed::Here(content);
            }
            Err(_) => return state.delayed = Delayed::Refused(content),
        }
        self.is_delayed.store(false, Ordering::Release);
    }
}

impl State {
    fn take_write(&mut self, ranges: &[FileRange], data: &Bulk<'_>, now: Nanos) -> Taken {
        let mtime_epoch = DataTime::epoch_of_writes(self.mtime_epoch);
        let (content, slices) = match (&mut self.delayed, data) {
            (Delayed::Nothing, _) => return Taken::No,
            (Delayed::Here(content), Bulk::Slices(slices)) if !content.is_in_doubt => (content, slices),
            _ => return Taken::TooMuch,
        };
        if std::mem::take(&mut content.is_brought) {
            // It was closed, but not by the last one who has it open.
            content.tail.is_begun = true;
        }
        if ranges.iter().any(|range| file_end(range.offset, range.bytes).is_err()) {
            return Taken::TooMuch;
        }
        let taken = content.takes(ranges, now);
        if taken != Taken::Here {
            return taken;
        }
        let written = ranges;
        let mut ranges = ranges.iter();
        let mut range = FileRange { offset: 0, bytes: 0 };
        for slice in slices {
            let mut slice: &[u8] = slice;
            while !slice.is_empty() {
                if range.bytes == 0 {
                    range = *ranges.next().expect("the data is as long as its ranges");
                    continue;
                }
                let (some, rest) = slice.split_at((range.bytes as usize).min(slice.len()));
                content.tail.put(range.offset, some, content.gather_bytes);
                slice = rest;
                range = FileRange { offset: range.offset + some.len() as u64, bytes: range.bytes - some.len() as u64 };
            }
        }
        let at = content.time_at_server(now);
        content.mtime_epoch = mtime_epoch;
        let mtime = DataTime { epoch: mtime_epoch, at };
        self.wrote(written, mtime);
        Taken::Here
    }

    /// What goes with a report that ends writing: all that is kept here.
    pub(super) fn take_delayed(&mut self) -> Option<DelayedReport> {
        if self.writers > 0 || !self.delayed.may_close() {
            return None;
        }
        // One that is closing already was given up on its way.
        let (Delayed::Here(content) | Delayed::Closing(content)) = std::mem::take(&mut self.delayed) else { return None };
        let whole = || Bytes::copy_from_slice(content.tail.whole().expect("what was gathered has left before"));
        let taken = DelayedReport { content: (!content.is_brought).then(whole), attributes: content.attributes };
        self.delayed = Delayed::Closing(content);
        Some(taken)
    }

    /// Others ask for the file. What was closed is on its way anyhow.
    pub(super) fn ask_delayed_back(&mut self) {
        if self.writers > 0 && matches!(self.delayed, Delayed::Here(_)) {
            let Delayed::Here(content) = std::mem::take(&mut self.delayed) else { return };
            self.delayed = Delayed::Refused(content);
        }
    }
}

impl<R: Runtime> Client<R> {
    /// True if something of the file is with this client only.
    pub(crate) fn is_delayed(&self, handle: Handle) -> bool {
        self.inner.opens.get(handle).is_some_and(|inode| inode.is_delayed())
    }

    /// Brings what is delayed of a file to data servers, where it stays.
    ///
    /// # Errors
    /// As [`Client::write`]; [`Status::WritesLost`] if this client was not heard of for so long
    /// that others were told that nothing had been written.
    pub(super) async fn stop_delaying(&self, flow: Flow, inode: &OpenInode) -> Result<()> {
        if !inode.is_delayed() {
            return Ok(());
        }
        Box::pin(async {
            if inode.is_closing() {
                // Where it goes will be known then.
                drop(self.enter(inode).await);
            }
            self.bring_delayed(flow, inode, Leaves::All).await
        })
        .await
    }

    /// Brings to data servers what is here.
    pub(super) async fn bring_delayed(&self, flow: Flow, inode: &OpenInode, leaves: Leaves) -> Result<()> {
        let _turn = inode.leaves.enter().await;
        let Some(leaving) = inode.begin_leaving(leaves, self.rt().now()) else { return Ok(()) };
        let _sending = self.inner.gathered.sends();
        let outcome = match self.may_bring(flow, inode, &leaving).await {
            Ok(true) => self.bring(flow, inode, &leaving).await,
            Ok(false) if inode.end_doubt(self.heard_in(inode)) => return Ok(()),
            Ok(false) => {
                inode.lose_delayed();
                return Err(flow.error_at(Status::WritesLost, inode.handle.server()));
            }
            Err(error) => Err(error),
        };
        inode.end_leaving(leaving, outcome.as_ref().ok().copied());
        outcome.map(drop)
    }

    /// [`Client::stop_delaying`] for a program that works on the file: what is lost it hears once,
    /// whoever found it out.
    pub(super) async fn settle_delayed(&self, flow: Flow, inode: &OpenInode) -> Result<()> {
        let outcome = self.stop_delaying(flow, inode).await;
        self.tell_of_loss(flow, inode)?;
        outcome
    }

    /// Tells a program of what was lost.
    pub(super) fn tell_of_loss(&self, flow: Flow, inode: &OpenInode) -> Result<()> {
        let is_lost = inode.has_lost.load(Ordering::Relaxed) && inode.has_lost.swap(false, Ordering::Relaxed);
        if is_lost { Err(flow.error_at(Status::WritesLost, inode.handle.server())) } else { Ok(()) }
    }

    async fn bring(&self, flow: Flow, inode: &OpenInode, leaving: &Leaving) -> Result<DataTime> {
        if !leaving.leaves_attributes && !leaving.goes_on {
            self.send_attributes_inside(flow, inode).await?;
        }
        let range = |(start, bytes): &(u64, Bytes)| FileRange { offset: *start, bytes: bytes.len() as u64 };
        let ranges: Vec<FileRange> = leaving.parts.iter().map(range).collect();
        let lists = split(self.distribution(flow, inode).await?, &ranges).map_err(|status| flow.error(status))?;
        let end = ranges.last().map_or(0, |last| last.offset + last.bytes);
        let how = How { mtime_epoch: leaving.mtime_epoch, sync: false, end };
        let data = Bulk::Slices(leaving.parts.iter().map(|(_, bytes)| &bytes[..]).collect());
        self.write_messages(flow, inode, lists, &data, how).await
    }

    /// The session in which this client hears the server of a file.
    fn heard_in(&self, inode: &OpenInode) -> Option<u32> {
        self.inner.knowledge.is_heard_in(inode.handle.server(), self.rt().now())
    }

    /// True if this outcome of a close, of a file of which all was kept here, says that an earlier
    /// one was done. What is open of it now is then to be told without that.
    pub(super) fn was_closed_before(&self, inode: &OpenInode, outcome: std::result::Result<(), Status>) -> bool {
        outcome == Err(Status::CapabilityRefused) && inode.end_doubt(self.heard_in(inode))
    }

    /// False if this client, which has not heard its server for a while, or not what became of a
    /// close, has lost the right to delay: what it brought then would come after what others have
    /// written since.
    async fn may_bring(&self, flow: Flow, inode: &OpenInode, leaving: &Leaving) -> Result<bool> {
        let server = self.owner(flow, inode.handle).await?;
        let is_heard = || self.heard_in(inode) == Some(leaving.session);
        if leaving.is_brought || !leaving.is_in_doubt && is_heard() {
            return Ok(true);
        }
        for _ in 0..OPEN_TRIES {
            let ticket = self.inner.opens.begin();
            let (handle, open_sequence, rights) = (inode.handle, ticket.sequence, Rights::WRITE.with(Rights::DELAY));
            inode.opens_again(open_sequence, rights);
            let request = OpenRequest::of(handle, rights, open_sequence, inode.renewer());
            match self.call(flow, server, &request).await {
                Ok(reply) => {
                    let granted = Granted { capability: reply.capability, ceiling: reply.ceiling };
                    if self.inner.opens.renewed(&ticket, inode, rights, granted) {
                        return Ok(true);
                    }
                }
                Err(error) if error.status == Status::CapabilityRefused => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Err(flow.error_at(Status::Busy, server))
    }
}
