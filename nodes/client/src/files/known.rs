//! Opens without a message. What a client was told of a file under a lease says all that an open
//! for reading would: who may read it, its size, and that nobody writes to it. So the file is open
//! here, and its server does not know of it. Programs that open files for writing, too, mostly read
//! first, and often nothing else: for writing the file is open at its server from the first change
//! on. It must hear of the open before anybody removes the last name of the file, and data servers
//! want to see a capability. So the open is *announced*:
//!
//! * before this client changes the file;
//! * before data is read that is not in a cache above, or a lock is asked for;
//! * before this client has heard a notice about the file (whoever removes it waits for that);
//! * before this client itself removes a name that may lead to it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use weft_base::{Attr, Credentials, FileKind, Handle, MODE_INLINE, READ, SECOND, ServerId, Status, WRITE};
use weft_call::run_window;
use weft_rt::{Either, Runtime, race};
use weft_wire::Rights;
use weft_wire::ops::{Judged, LeaseNotice};

use super::open_inode::OpenInode;
use crate::flow::Flow;
use crate::knowledge::{Changing, Ended};
use crate::{Client, DelayWrites, OpenFile, OpenWith, Result};

/// Files that are open here and not announced, at most: all of them may have to be at once.
const UNANNOUNCED_MAX: usize = 1024;
/// What a file may be opened for without a message.
const READ_AND_WRITE: Rights = Rights(Rights::READ.0 | Rights::WRITE.0);
/// How long a message that announces may take, in nanoseconds: somebody may wait for a notice to be
/// heard, and does so until the lease ends.
const ANNOUNCE_NS: u64 = 2 * SECOND;

impl OpenInode {
    /// A local open that was for reading only, as far as the server needed to know, is for writing
    /// from now on, as it was allowed when it was opened: unless it is already, or is given up.
    pub(super) fn begins_to_write(&self, is_unwritten: &AtomicBool, is_released: &AtomicBool) -> bool {
        // Whoever gives it up looks at the first with the same lock, and has set the second before.
        let mut state = self.lock();
        let begins = !is_released.load(Ordering::Relaxed) && is_unwritten.swap(false, Ordering::Relaxed);
        if begins {
            state.writers += 1;
            if let Some(who) = &mut state.openers.untold {
                who.checked_by_kernel = true;
            }
        }
        begins
    }
}

impl<R: Runtime> Client<R> {
    /// Opens a file for reading, or for reading and writing, without a message, if what this client
    /// was told of it says that its server would let it: `judged` is what the caller has allowed
    /// the open by, and `who` opens it when it is announced.
    pub fn open_known(&self, who: &Credentials, handle: Handle, rights: Rights, judged: &Judged) -> Option<(Attr, Arc<OpenFile>)> {
        let writes = rights.contains(Rights::WRITE);
        if !rights.contains(Rights::READ) || !READ_AND_WRITE.contains(rights) || writes && !self.inner.opens.may_write() {
            return None;
        }
        let (state, asked) = self.inner.knowledge.state(handle, self.rt().now())?;
        let mode = state.attr.mode & !MODE_INLINE;
        let is_true = (judged.mode, judged.uid, judged.gid) == (mode, state.attr.uid, state.attr.gid);
        if state.attr.kind != FileKind::File || state.attr.nlink == 0 || !is_true || writes && state.attr.is_sealed() {
            return None;
        }
        let file = self.inner.opens.open_known(&state.attr, who, rights, UNANNOUNCED_MAX)?;
        let attr = self.settle_at_once(&state, asked);
        // A notice that was heard before the file was in the table has not found it there.
        let is_still_known = self.inner.knowledge.state(handle, self.rt().now()).is_some_and(|(now, _)| now == state);
        // Where its bytes are costs a message.
        let is_placed = file.inode().distribution.get().is_some();
        if attr.is_none() || !is_still_known || !is_placed {
            file.release();
            self.inner.opens.remove_if_idle(file.inode());
            return None;
        }
        Some((attr?, file))
    }

    /// [`Client::open_known`] for whoever has no kernel that allows opens: by the permission bits
    /// of which this client was told.
    pub fn open_told(&self, who: &Credentials, handle: Handle, rights: Rights) -> Option<(Attr, Arc<OpenFile>)> {
        let (state, _) = self.inner.knowledge.state(handle, self.rt().now())?;
        let Attr { mode, uid, gid, .. } = state.attr;
        let judged = Judged { mode: mode & !MODE_INLINE, uid, gid };
        let wanted = if rights.contains(Rights::WRITE) { READ | WRITE } else { READ };
        if state.attr.allows(who, wanted) { self.open_known(who, handle, rights, &judged) } else { None }
    }

    /// To be called before a file that is open for writing is changed: its server hears of that if
    /// it has not yet. `delays`: as of [`OpenWith`].
    ///
    /// # Errors
    /// As [`Client::open`].
    pub async fn begin_to_write(&self, file: &OpenFile, delays: DelayWrites) -> Result<()> {
        if file.begins_to_write() {
            let (flow, inode) = (self.flow("write", file.handle()), file.inode());
            if delays != DelayWrites::Gathered || !self.expects_pieces() {
                return Box::pin(self.announce_inode(flow, inode)).await;
            }
            let (rights, who) = inode.renewal();
            let how = OpenWith { rights, delays, ..OpenWith::default() };
            let (_, opened) = Box::pin(self.open_in(flow, &who.unwrap_or_else(|| inode.renewer()), inode.handle, how)).await?;
            Box::pin(self.close_in(flow, &opened)).await?;
        }
        Ok(())
    }

    /// Announces an open file, if it is not announced.
    ///
    /// # Errors
    /// [`weft_base::Status::Stale`] if it is gone; servers that do not answer.
    pub(crate) async fn announce(&self, flow: Flow, handle: Handle) -> Result<()> {
        match self.inner.opens.get(handle).filter(|inode| inode.is_unannounced()) {
            Some(inode) => self.announce_inode(flow, &inode).await,
            None => Ok(()),
        }
    }

    pub(super) async fn announce_inode(&self, flow: Flow, inode: &OpenInode) -> Result<()> {
        // Inside may be a close that waits until somebody has heard a notice, and that may be who
        // announces here before it says that it has.
        let entered = pin!(self.enter(inode));
        let Either::First(_passage) = race(entered, self.rt().sleep_until(flow.deadline)).await else {
            return Err(flow.error(Status::TimedOut));
        };
        if inode.is_unannounced() { self.renew_inside(flow, inode, None).await } else { Ok(()) }
    }

    /// Announces a file whose content its server has, and gives that, if it is not announced.
    pub(super) async fn announce_to_read(&self, flow: Flow, inode: &OpenInode) -> Result<Option<Bytes>> {
        if !inode.is_unannounced() {
            return Ok(None);
        }
        let _passage = self.enter(inode).await;
        if inode.is_unannounced() { self.renew_with_content(flow, inode).await } else { Ok(None) }
    }

    /// Before this client says that it has heard a notice: announces what it may be about.
    pub(crate) async fn announce_for(&self, server: ServerId, notice: &LeaseNotice) {
        let all = self.inner.opens.unannounced();
        let concerned = all.into_iter().filter(|inode| match notice {
            LeaseNotice::Object { handle } => inode.handle == *handle,
            // Changes are not told any more.
            LeaseNotice::Directory { .. } | LeaseNotice::Everything {} => inode.handle.server() == server,
            // A file that loses a name is told of itself.
            LeaseNotice::Name { .. } | LeaseNotice::Append { .. } | LeaseNotice::Delegation { .. } => false,
        });
        self.announce_all(concerned.collect()).await;
    }

    /// Before this client asks for a change: announces what it may remove.
    pub(crate) async fn announce_before(&self, change: &Changing<'_>) {
        let (all, ended) = (self.inner.opens.unannounced(), change.ended());
        if all.is_empty() {
            return;
        }
        let concerned = all.into_iter().filter(|inode| {
            ended.iter().any(|ended| match ended {
                Ended::Object(handle) => *handle == inode.handle,
                Ended::AnyObject | Ended::Directory(_) | Ended::Server(_) => true,
                Ended::Name(..) => false,
            })
        });
        Box::pin(self.announce_all(concerned.collect())).await;
    }

    /// Those that cannot be announced in time are read no more once they are removed.
    async fn announce_all(&self, inodes: Vec<Arc<OpenInode>>) {
        if inodes.is_empty() {
            return;
        }
        let until = self.rt().now() + ANNOUNCE_NS;
        let flows = inodes.iter().map(|inode| async move {
            let flow = self.flow("open", inode.handle);
            self.announce_inode(Flow { deadline: flow.deadline.min(until), ..flow }, inode).await
        });
        run_window(flows, self.options().window).await;
    }
}

#[cfg(test)]
mod tests {
    use weft_base::{Layout, WallTime};

    use super::super::open_table::OpenTable;
    use super::*;

    fn attr() -> Attr {
        let layout = Layout { stripe_bytes: 4096, width: 1, first: 0, generation: 1 };
        Attr { size: 3, ..Attr::new(Handle(7), FileKind::File, 0o644, layout, WallTime(0)) }
    }

    #[test]
    fn a_right_to_write_is_counted_once_and_given_back() {
        let table = OpenTable::default();
        let open = || table.open_known(&attr(), &Credentials::ROOT, READ_AND_WRITE, 8).expect("there is room");
        let file = open();
        assert_eq!(file.inode().renewal().0, Rights::READ, "nobody needs to know more");
        assert!(file.begins_to_write() && !file.begins_to_write());
        assert_eq!(file.inode().renewal().0, READ_AND_WRITE);
        file.release();
        assert!(file.inode().is_idle());
        // A write that meets a close of the same descriptor.
        let file = open();
        file.release();
        assert!(!file.begins_to_write() && file.inode().is_idle());
    }
}
