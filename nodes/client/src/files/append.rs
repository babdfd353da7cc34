//! Appends, alone or under a lock of the server (`appending.rs` says when): lock, ask for the size,
//! write, give back.

use std::sync::Arc;

use weft_base::{Handle, Nanos, Status};
use weft_rt::{Bulk, Runtime};
use weft_wire::Rights;
use weft_wire::ops::{Family, Lock, LockKind, LockOutcome, Unlock};

use super::appending::{AGAIN_NS, Appending};
use super::delayed::Taken;
use super::open_inode::OpenInode;
use crate::flow::Flow;
use crate::{Client, OpenFile, OpenWith, Result};

/// The owner of all locks for appends: a client does one append to a file at a time.
const OWNER: u64 = 1;

impl OpenInode {
    /// How often others wanted to write: to be noted before an open for appends.
    pub(super) fn shares(&self) -> u64 {
        self.lock().shares
    }

    /// An open for appends was granted and the size is known: this client is alone, unless others
    /// wanted to write since that count.
    pub(super) fn is_alone_since(&self, shares: u64) {
        let mut state = self.lock();
        if state.shares == shares && state.held.rights.contains(Rights::APPEND) {
            state.appending = Appending::Alone;
        }
    }

    /// Others want to write, or do, or look at a file to which writes are delayed. Until then it
    /// need not be asked whether they have gone.
    pub(super) fn share_appends(&self, until: Nanos) {
        let mut state = self.lock();
        state.shares += 1;
        state.appending = Appending::Shared(until);
        state.ask_delayed_back();
    }

    /// True if this client may be alone, and should ask the server.
    pub(super) fn may_ask_alone(&self, now: Nanos) -> bool {
        match self.lock().appending {
            Appending::Shared(until) => now >= until,
            Appending::Alone | Appending::Unsure => true,
        }
    }

    /// An append begins if this client is alone.
    pub(super) fn begin_alone(&self) -> bool {
        let mut state = self.lock();
        state.appends_alone = state.appending == Appending::Alone;
        state.appends_alone
    }

    pub(super) fn end_alone(&self) {
        self.lock().appends_alone = false;
    }

    /// True if others wait until the server hears that this client is not alone.
    pub(super) fn must_yield(&self) -> bool {
        let state = self.lock();
        state.held.noted().contains(Rights::APPEND) && !state.needed().contains(Rights::APPEND)
    }
}

impl<R: Runtime> Client<R> {
    /// Writes `data` at the end of the file as it is then. Appends of all clients come one after
    /// another. With `sync` the data is on stable storage when this returns, and what is needed to
    /// find it; with `Some(false)` all attributes, too.
    ///
    /// # Errors
    /// As [`Client::write`]; [`Status::SharedAppend`] if others append for so long that its turn
    /// does not come.
    pub async fn append(&self, file: &OpenFile, data: Bulk<'_>, sync: Option<bool>) -> Result<()> {
        let flow = self.flow("append", file.handle());
        let inode = file.inode();
        let _turn = inode.appends.enter().await;
        if sync.is_none() && self.append_delayed(flow, inode, &data).await? {
            return Ok(());
        }
        self.settle_delayed(flow, inode).await?;
        if !inode.begin_alone() {
            if inode.may_ask_alone(self.rt().now()) {
                let how = OpenWith { rights: Rights::WRITE.with(Rights::APPEND), ..OpenWith::default() };
                let (_, opened) = self.open_in(flow, &inode.renewer(), inode.handle, how).await?;
                self.close_in(flow, &opened).await?;
            }
            if !inode.begin_alone() {
                return self.append_locked(flow, file, data, sync).await;
            }
        }
        let outcome = self.write_at(file, inode.known_size().bytes, data, sync).await;
        inode.end_alone();
        if inode.must_yield() {
            // Others wait for that. If it fails, the server is told with the next message.
            let _ = self.report(flow, inode).await;
        }
        outcome
    }

    /// Keeps the data here if it can be delayed: nobody else has the file open, so its end is
    /// known.
    async fn append_delayed(&self, flow: Flow, inode: &OpenInode, data: &Bulk<'_>) -> Result<bool> {
        while inode.is_delayed() {
            self.settle_before_silence(flow, inode).await?;
            match inode.take_append(data, self.rt().now()) {
                Taken::Here => return Ok(true),
                Taken::Full => self.send_more(flow, inode).await?,
                Taken::Through | Taken::TooMuch | Taken::No => break,
            }
        }
        Ok(false)
    }

    /// [`Client::append`] without asking whether this client is alone: for clients that hear no
    /// notices, and could not be told that they are not alone any more.
    ///
    /// # Errors
    /// As [`Client::append`].
    pub async fn append_shared(&self, file: &OpenFile, data: Bulk<'_>, sync: Option<bool>) -> Result<()> {
        let flow = self.flow("append", file.handle());
        let _turn = file.inode().appends.enter().await;
        self.settle_delayed(flow, file.inode()).await?;
        self.append_locked(flow, file, data, sync).await
    }

    async fn append_locked(&self, flow: Flow, file: &OpenFile, data: Bulk<'_>, sync: Option<bool>) -> Result<()> {
        let (handle, family) = (file.handle(), Family::Append);
        let (start, end) = (0, u64::MAX);
        let lock = Lock { family, owner: OWNER, kind: LockKind::Exclusive, start, end, process: 0, file: 0 };
        let is_awaited = || self.rt().now() < flow.deadline;
        if self.lock(handle, lock, Some(&is_awaited)).await?.outcome != LockOutcome::Granted {
            return Err(flow.error(Status::SharedAppend));
        }
        let outcome = self.append_at_end(flow, file, data, sync).await;
        // A server that does not hear of it is told later.
        let _ = self.unlock(handle, &Unlock { family, owner: OWNER, start, end }).await;
        outcome
    }

    async fn append_at_end(&self, flow: Flow, file: &OpenFile, data: Bulk<'_>, sync: Option<bool>) -> Result<()> {
        let asked = self.asking();
        let state = self.get_state(flow, file.handle()).await?;
        let size = self.settle(flow, state, asked).await?.size;
        self.write_at(file, size, data, sync).await
    }

    async fn write_at(&self, file: &OpenFile, offset: u64, data: Bulk<'_>, sync: Option<bool>) -> Result<()> {
        match sync {
            None => self.write(file, offset, data).await,
            Some(data_only) => Box::pin(self.write_synced(file, offset, data, data_only)).await,
        }
    }

    /// Others want to write to a file to which this client appends alone, or look at one to which
    /// it delays writes. Returns what is to be
    /// closed soon ([`Client::close`]), so that the server hears that it is shared from now on.
    pub fn share_appends(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        let inode = self.inner.opens.get_or_ask(handle)?;
        inode.share_appends(self.rt().now() + AGAIN_NS);
        Some(OpenFile::without_rights(inode))
    }
}
