//! How flows on any threads wait for each other.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// Something that happens again and again ("a lock was released"). A flow begins to wait, looks at
/// the state, and if it is not yet what it needs, goes on waiting and looks again. As `Event` of
/// `weft-rt`, for flows that different threads drive.
#[derive(Debug, Default)]
pub(crate) struct Signal(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    count: u64,
    /// Numbers of waits.
    last: u64,
    waiting: Vec<(u64, Waker)>,
}

impl Signal {
    /// It happens: everybody who waits goes on.
    pub fn notify(&self) {
        let waiting = {
            let mut state = self.lock();
            state.count += 1;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Waits until it happens next. What happens between the call and the first poll is not missed.
    pub fn wait(&self) -> Wait<'_> {
        let mut state = self.lock();
        state.last += 1;
        Wait { signal: self, seen: state.count, number: state.last, is_waiting: false }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no code panics while it holds this lock")
    }
}

/// A wait; may be given up at any time.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    signal: &'a Signal,
    seen: u64,
    number: u64,
    is_waiting: bool,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let mut state = this.signal.lock();
        if state.count != this.seen {
            this.is_waiting = false;
            return Poll::Ready(());
        }
        match state.waiting.iter_mut().find(|(number, _)| *number == this.number) {
            Some((_, waker)) => waker.clone_from(context.waker()),
            None => state.waiting.push((this.number, context.waker().clone())),
        }
        this.is_waiting = true;
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        // A waker that stays behind would cost its thread more at every later wait, beside the
        // memory.
        if self.is_waiting {
            self.signal.lock().waiting.retain(|(number, _)| *number != self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn a_wait_ends_with_what_happens_after_it_began_and_leaves_nothing_behind() {
        let signal = Signal::default();
        let mut context = Context::from_waker(Waker::noop());
        signal.notify();
        let mut early = pin!(signal.wait());
        assert!(early.as_mut().poll(&mut context).is_pending(), "that was before");
        let mut unpolled = pin!(signal.wait());
        {
            let mut given_up = pin!(signal.wait());
            assert!(given_up.as_mut().poll(&mut context).is_pending());
            assert_eq!(signal.lock().waiting.len(), 2);
        }
        assert_eq!(signal.lock().waiting.len(), 1);
        signal.notify();
        assert!(early.poll(&mut context).is_ready() && unpolled.as_mut().poll(&mut context).is_ready());
        assert!(signal.lock().waiting.is_empty());
    }
}
