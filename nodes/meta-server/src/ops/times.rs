//! A time that is set while others may be writing: their writes from now on come after it, and only
//! the data servers see these. So they are told before it is answered
//! (`docs/decisions/0010-order-of-times.md`).

use std::rc::Rc;

use weft_base::{DataTime, Handle, Layout, MILLISECOND, Nanos, Status};
use weft_rt::{ServerRuntime, join_all};
use weft_wire::ops::ObjectEpochRequest;

use super::truncate::ASK_NS;
use crate::engine::Engine;
use crate::server::Server;

/// The pause before a data server is told again, in nanoseconds.
const AGAIN_NS: u64 = 100 * MILLISECOND;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// Tells the data servers of a file that writes from now on come after the time that was set
    /// last. A data server that does not answer soon is told when it does; until then its writes
    /// count as earlier ones.
    pub(crate) async fn tell_epoch(self: &Rc<Self>, handle: Handle) {
        // An epoch that a power cut takes back here must not have begun there.
        self.settle().await;
        if !self.kept(self.engine.make_durable(self.engine.last()).await) {
            return;
        }
        let (layout, epoch) = {
            let state = self.state.borrow();
            let Some(inode) = state.peek(handle) else { return };
            (inode.layout, DataTime::epoch_of_writes(inode.mtime_epoch))
        };
        *self.background.telling.borrow_mut().entry(handle).or_default() += 1;
        let soon = self.rt.now() + ASK_NS;
        let told = join_all((0..u32::from(layout.width)).map(|index| self.tell_datafile(handle, &layout, index, epoch, soon))).await;
        for (index, told) in (0..).zip(told) {
            if !told {
                let this = Rc::clone(self);
                self.rt.spawn(async move {
                    this.tell_datafile(handle, &layout, index, epoch, Nanos::NEVER).await;
                });
            }
        }
        let mut telling = self.background.telling.borrow_mut();
        if let Some(flows) = telling.get_mut(&handle) {
            *flows -= 1;
            if *flows == 0 {
                telling.remove(&handle);
            }
        }
        drop(telling);
        self.shell.release();
    }

    /// Tells one data server, until `until`. False if it has not heard.
    async fn tell_datafile(&self, handle: Handle, layout: &Layout, index: u32, mtime_epoch: u32, until: Nanos) -> bool {
        while self.rt.now() < until && self.state.borrow().peek(handle).is_some() {
            let request = ObjectEpochRequest { handle, index, capability: self.manage(handle), mtime_epoch };
            match self.call_datafile(layout, index, &request, (self.rt.now() + ASK_NS).min(until)).await {
                // A datafile that is removed is written by nobody.
                Ok(()) | Err(Status::Stale) => return true,
                Err(_) => self.rt.sleep_until(self.rt.now() + AGAIN_NS).await,
            }
        }
        false
    }
}
