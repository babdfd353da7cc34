//! Results of flows for whoever started them.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The result of a spawned flow. Awaiting it gives `None` if the process of the flow died first.
pub struct Joined<T>(Rc<RefCell<JoinState<T>>>);

struct JoinState<T> {
    value: Option<T>,
    is_over: bool,
    waker: Option<Waker>,
}

impl<T> Joined<T> {
    /// A result that is still to come, and what brings it.
    pub(crate) fn new() -> (Joined<T>, Finish<T>) {
        let state = Rc::new(RefCell::new(JoinState { value: None, is_over: false, waker: None }));
        (Joined(Rc::clone(&state)), Finish(Joined(state)))
    }

    /// True if the flow has ended or its process has died.
    pub fn is_over(&self) -> bool {
        self.0.borrow().is_over
    }

    /// The result, once; `None` if there is none yet or the process died.
    pub fn take(&self) -> Option<T> {
        self.0.borrow_mut().value.take()
    }
}

impl<T> Future for Joined<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.borrow_mut();
        if state.is_over {
            return Poll::Ready(state.value.take());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> fmt::Debug for Joined<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_over() { "Joined(over)" } else { "Joined(running)" })
    }
}

/// Tells whoever waits that the flow is over, however it ended.
pub(crate) struct Finish<T>(Joined<T>);

impl<T> Finish<T> {
    /// The flow has ended with this result.
    pub(crate) fn with(self, value: T) {
        self.0.0.borrow_mut().value = Some(value);
    }
}

impl<T> Drop for Finish<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.0.0.borrow_mut();
            state.is_over = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
