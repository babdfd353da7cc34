//! The end of files: unlinked, open nowhere. Their datafiles are removed, then their inodes. Which
//! files these are is journaled state (a link count of 0), so a crash at any point is continued.

use std::rc::Rc;

use weft_base::{Handle, MILLISECOND, Result, SECOND, Status};
use weft_call::run_window;
use weft_namespace::{InodeFlags, Record};
use weft_rt::{ServerRuntime, join_all};
use weft_wire::ops::ObjectRemoveRequest;

use crate::engine::{Engine, Room};
use crate::server::Server;

/// Files that are removed at the same time.
const AT_ONCE: usize = 512;
/// How long files are gathered before they are removed, in nanoseconds. Each group costs a flush
/// here and at the data servers, and flushes hold up the requests of others.
const GATHER_NS: u64 = 50 * MILLISECOND;
/// How long a data server may take, in nanoseconds.
const REMOVE_NS: u64 = 10 * SECOND;
/// The pause after a failure, in nanoseconds.
const AGAIN_NS: u64 = 500 * MILLISECOND;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// Removes what can be removed, for ever.
    pub(crate) async fn reap_flow(self: Rc<Self>) {
        loop {
            let news = self.background.reap.wait();
            let mut failed = false;
            let mut from = Handle(0);
            loop {
                let files = self.state.borrow().reapable(from, AT_ONCE);
                let Some(last) = files.last() else { break };
                from = Handle(last.0 + 1);
                // Data is gone for good: what removed its last name and its last opener must not be
                // undone by a power cut.
                if !self.kept(self.engine.sync_through(self.engine.last()).await) {
                    return;
                }
                let results = run_window(files.iter().map(|handle| self.reap(*handle)), AT_ONCE).await;
                failed |= results.iter().any(Result::is_err);
            }
            if failed {
                self.rt.sleep_until(self.rt.now() + AGAIN_NS).await;
            } else {
                news.await;
                self.rt.sleep_until(self.rt.now() + GATHER_NS).await;
            }
        }
    }

    async fn reap(&self, handle: Handle) -> Result<()> {
        if self.background.contents.is_moving(handle) {
            return Err(Status::Busy);
        }
        let (layout, datafiles) = {
            let state = self.state.borrow();
            let inode = state.inode(handle)?;
            (inode.layout, state.datafiles(handle, inode))
        };
        let removals = (0..datafiles).map(|index| {
            let request = ObjectRemoveRequest { handle, index, capability: self.manage(handle) };
            async move { self.call_datafile(&layout, index, &request, self.rt.now() + REMOVE_NS).await }
        });
        join_all(removals).await.into_iter().collect::<Result<()>>()?;
        if self.engine.room() == Room::None {
            return Err(Status::NoSpace);
        }
        let mut record = Record::default();
        {
            let state = self.state.borrow();
            // Somebody may have told that he has it open meanwhile; its data is gone all the same,
            // as after any unlink that he missed.
            if state.peek(handle).is_some_and(|inode| !inode.flags.has(InodeFlags::TRUNCATING)) {
                state.prepare_reaped(handle, &mut record);
            }
        }
        self.change_in_flow(&mut record);
        Ok(())
    }
}
