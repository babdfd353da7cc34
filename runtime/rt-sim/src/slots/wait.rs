//! The future of a wait.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Outcome;
use crate::ids::SlotId;
use crate::world::State;

/// The future of a wait.
pub(crate) struct Wait<'a> {
    state: &'a RefCell<State>,
    /// `None`: never ready (the process it belongs to is dead), or taken already.
    id: Option<SlotId>,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(state: &'a RefCell<State>, id: Option<SlotId>) -> Wait<'a> {
        Wait { state, id }
    }
}

impl Future for Wait<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let Some(id) = self.id else { return Poll::Pending };
        let removed = {
            let mut state = self.state.borrow_mut();
            let slot = state.clock.slots.get(id).expect("a wait lives until its future is dropped");
            if slot.outcome.is_none() {
                if !slot.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    slot.waker = Some(context.waker().clone());
                }
                return Poll::Pending;
            }
            state.end_wait(id)
        };
        self.id = None;
        weft_trace::note_way(removed.as_ref().map_or(0, |removed| removed.sent_at), 0);
        let outcome = removed.and_then(|removed| removed.outcome);
        Poll::Ready(outcome.expect("just seen, and nothing ran in between"))
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        // While a panic unwinds out of the simulator's own code the state may be borrowed; then
        // nothing matters any more.
        if let (Some(id), Ok(mut state)) = (self.id, self.state.try_borrow_mut()) {
            let removed = state.end_wait(id);
            drop(state);
            drop(removed);
        }
    }
}
