//! Appends, alone or under a lock of the server (`appending.rs` says when): lock, ask for the size,
//! write, give back.

use std::sync::Arc;

use weft_base::{Handle, Status};
use weft_rt::{Bulk, Runtime};
use weft_wire::Rights;
use weft_wire::ops::{Family, Lock, LockKind, LockOutcome, Unlock};

use super::appending::AGAIN_NS;
use super::opens::RENEWAL;
use crate::flow::Flow;
use crate::{Client, OpenFile, Result};

/// The owner of all locks for appends: a client does one append to a file at a time.
const OWNER: u64 = 1;

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
        if !inode.begin_alone() {
            if inode.may_ask_alone(self.rt().now()) {
                let (_, opened) = self.open_in(flow, &RENEWAL, inode.handle, Rights::WRITE.with(Rights::APPEND), false, None).await?;
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

    /// [`Client::append`] without asking whether this client is alone: for clients that hear no
    /// notices, and could not be told that they are not alone any more.
    ///
    /// # Errors
    /// As [`Client::append`].
    pub async fn append_shared(&self, file: &OpenFile, data: Bulk<'_>, sync: Option<bool>) -> Result<()> {
        let flow = self.flow("append", file.handle());
        let _turn = file.inode().appends.enter().await;
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

    /// Others want to write to a file to which this client appends alone. Returns what is to be
    /// closed soon ([`Client::close`]), so that the server hears that it is shared from now on.
    pub fn share_appends(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        let inode = self.inner.opens.get(handle)?;
        inode.share_appends(self.rt().now() + AGAIN_NS);
        Some(OpenFile::without_rights(inode))
    }
}
