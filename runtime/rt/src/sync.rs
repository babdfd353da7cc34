//! The one primitive by which flows of one server wait for each other.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Something that happens again and again ("the journal was written", "a lock was released"). Flows
/// look at the state, and if it is not yet what they need, wait for the event and look again.
/// Single-threaded, as every server is.
#[derive(Clone, Default, Debug)]
pub struct Signal(Rc<RefCell<SignalState>>);

#[derive(Default, Debug)]
struct SignalState {
    count: u64,
    waiting: Vec<Waker>,
}

impl Signal {
    /// An event that has not happened yet.
    pub fn new() -> Signal {
        Signal::default()
    }

    /// It happens: everybody who waits goes on.
    pub fn notify(&self) {
        let waiting = {
            let mut state = self.0.borrow_mut();
            state.count += 1;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until it happens next. What happened between the call and the first poll is not
    /// missed.
    pub fn wait(&self) -> impl Future<Output = ()> + use<> {
        let this = self.clone();
        let seen = self.0.borrow().count;
        poll_fn(move |context| {
            let mut state = this.0.borrow_mut();
            if state.count != seen {
                return Poll::Ready(());
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                state.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
    }
}
