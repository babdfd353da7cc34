//! Lets one flow at a time through a sequence of messages. Waits end because the flow inside has a
//! deadline.

use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Poll, Waker};

#[derive(Debug, Default)]
pub(crate) struct Gate(Mutex<GateState>);

#[derive(Debug, Default)]
struct GateState {
    held: bool,
    waiting: Vec<Waker>,
}

/// Holds the gate until it is dropped.
pub(crate) struct Passage<'a>(&'a Gate);

impl Gate {
    /// Waits until nobody is inside, and goes in.
    pub(crate) async fn enter(&self) -> Passage<'_> {
        poll_fn(|context| {
            let mut state = self.lock();
            if !state.held {
                state.held = true;
                return Poll::Ready(());
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                state.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
        Passage(self)
    }

    /// Goes in if nobody is inside.
    pub(crate) fn try_enter(&self) -> Option<Passage<'_>> {
        let was_held = std::mem::replace(&mut self.lock().held, true);
        // Not `then_some`: a passage that is made and dropped lets somebody else in.
        if was_held { None } else { Some(Passage(self)) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, GateState> {
        self.0.lock().expect("no code panics while it holds this lock")
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.0.lock();
            state.held = false;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}
