//! Who makes one file after the other in a directory learns its names, so that it may make more
//! without asking (`absorb.rs`). A listing says what the names are only if this client makes and
//! removes none meanwhile: so creates and removals wait here while names are learned, and that
//! waits for those that are under way.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use weft_base::{FastMap, Handle, MILLISECOND};
use weft_rt::{Either, Runtime, race};

use crate::Client;
use crate::flow::Flow;

/// How long a change waits for those that are asked for in its directory, in nanoseconds: some
/// round trips. Where some are all the time, waiting costs more than asking.
const QUIET_NS: u64 = 20 * MILLISECOND;

/// Directories in which servers are asked to make or remove files.
#[derive(Debug, Default)]
pub(crate) struct Learning(Mutex<FastMap<Handle, Asked>>);

#[derive(Debug, Default)]
struct Asked {
    /// Creates and removals that were sent and are not answered.
    under_way: u32,
    /// The names are learned, or soon are.
    learns: bool,
    waiting: Vec<Waker>,
}

impl Asked {
    fn wait(&mut self, context: &Context<'_>) -> Poll<()> {
        if !self.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            self.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}

/// A create or removal is under way until this is dropped.
pub(crate) struct UnderWay<'a>(&'a Learning, Handle);

/// None begins until this is dropped.
pub(super) struct Pause<'a>(&'a Learning, Handle);

impl Learning {
    fn lock(&self) -> MutexGuard<'_, FastMap<Handle, Asked>> {
        self.0.lock().expect("no code panics while it holds this lock")
    }

    /// Before a server is asked: waits while the names of the directory are learned.
    pub(super) async fn begin(&self, dir: Handle) -> UnderWay<'_> {
        poll_fn(|context| {
            let mut dirs = self.lock();
            let asked = dirs.entry(dir).or_default();
            if asked.learns {
                return asked.wait(context);
            }
            asked.under_way += 1;
            Poll::Ready(())
        })
        .await;
        UnderWay(self, dir)
    }

    /// Waits until nobody asks a server there.
    pub(super) async fn quiet(&self, dir: Handle) {
        poll_fn(|context| match self.lock().get_mut(&dir) {
            Some(asked) => asked.wait(context),
            None => Poll::Ready(()),
        })
        .await;
    }

    /// Names are to be learned. `None`: another flow learns them.
    pub(super) fn pause(&self, dir: Handle) -> Option<Pause<'_>> {
        let was_learning = std::mem::replace(&mut self.lock().entry(dir).or_default().learns, true);
        // Not `then_some`: a pause that is made and dropped ends that of the other.
        if was_learning { None } else { Some(Pause(self, dir)) }
    }

    fn end(&self, dir: Handle, what: impl FnOnce(&mut Asked)) {
        let waiting = {
            let mut dirs = self.lock();
            let asked = dirs.get_mut(&dir).expect("it is there as long as something goes on");
            what(asked);
            let waiting = std::mem::take(&mut asked.waiting);
            if asked.under_way == 0 && !asked.learns {
                dirs.remove(&dir);
            }
            waiting
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Pause<'_> {
    /// Waits until none is under way.
    pub(super) async fn is_alone(&self) {
        poll_fn(|context| match self.0.lock().get_mut(&self.1) {
            Some(asked) if asked.under_way > 0 => asked.wait(context),
            _ => Poll::Ready(()),
        })
        .await;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.end(self.1, |asked| asked.under_way -= 1);
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.end(self.1, |asked| asked.learns = false);
    }
}

impl<R: Runtime> Client<R> {
    /// Waits until names may be changed without asking in a delegated directory in which they could
    /// not just now: its server is told if too much is untold. As long as it is asked to change the
    /// directory, nobody changes it alone.
    pub(super) async fn may_soon_absorb(&self, flow: Flow, dir: Handle) {
        if self.inner.delegations.is_full(dir) {
            // What cannot be told now is told before the change is asked for, and fails it then.
            let _ = self.tell_server(flow, dir.server()).await;
        }
        let end = flow.deadline.min(self.rt().now() + QUIET_NS);
        race(self.inner.learning.quiet(dir), self.rt().sleep_until(end)).await;
    }

    /// Before a server is asked to make or remove a file. `None`: it is too late for that.
    pub(super) async fn begins_to_ask(&self, flow: Flow, dir: Handle) -> Option<UnderWay<'_>> {
        match race(self.inner.learning.begin(dir), self.rt().sleep_until(flow.deadline)).await {
            Either::First(begun) => Some(begun),
            Either::Second(()) => None,
        }
    }
}
