//! Many flows driven by one caller, a bounded number at a time. Only flows that were woken are
//! polled, so the cost of a flow does not grow with the size of the window (`weft_rt::join_all`
//! polls everybody at every wake, which is right for a handful).

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Runs the flows with at most `window` (at least 1) unfinished at any time and gives their results
/// in order. In a trace each of them goes on with the operation that runs here, and what it begins
/// is its own.
pub async fn run_window<F: Future>(flows: impl IntoIterator<Item = F>, window: usize) -> Vec<F::Output> {
    let mut waiting = flows.into_iter();
    let Some(first) = waiting.next() else { return Vec::new() };
    match waiting.next() {
        // One alone needs no waker of its own. That saves memory and locks, and a runtime that sees
        // its own waker may wait in the cheapest way: the synchronous request is the most frequent
        // case of all.
        None => vec![first.await],
        // Boxed, so that callers stay small: they are moved before they run.
        Some(second) => Box::pin(run_many([first, second].into_iter().chain(waiting), window)).await,
    }
}

async fn run_many<F: Future>(mut waiting: impl Iterator<Item = F>, window: usize) -> Vec<F::Output> {
    if window <= 1 {
        let mut results = Vec::new();
        for flow in waiting {
            results.push(flow.await);
        }
        return results;
    }
    let woken = Arc::new(Woken::default());
    let mut slots: Vec<Slot<F>> = Vec::new();
    let mut results: Vec<Option<F::Output>> = Vec::new();
    let mut running = 0;
    let around = weft_trace::context();
    for flow in waiting.by_ref().take(window) {
        let slot = slots.len();
        let waker = Arc::new(SlotWaker { slot, queued: AtomicBool::new(true), woken: woken.clone() });
        let context = Waker::from(waker.clone());
        slots.push(Slot { flow: Box::pin(Some(flow)), result: results.len(), operation: around, context, waker });
        woken.lock().ready.push_back(slot);
        results.push(None);
        running += 1;
    }
    poll_fn(|context| {
        woken.set_parent(context.waker());
        while let Some(index) = woken.take() {
            let slot = &mut slots[index];
            slot.waker.queued.store(false, Ordering::Release);
            // A finished flow makes room for the next one, which is polled at once: nobody else
            // would wake it.
            while let Some(value) = slot.poll() {
                results[slot.result] = Some(value);
                // Moved once: an unfinished flow is hundreds of bytes.
                slot.flow.set(waiting.next());
                if slot.flow.is_some() {
                    (slot.result, slot.operation) = (results.len(), around);
                    results.push(None);
                } else {
                    running -= 1;
                }
            }
        }
        if running == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().map(|result| result.expect("every slot ran until nothing was left")).collect()
}

/// Drives two futures at once.
pub async fn both<A: Future, B: Future>(first: A, second: B) -> (A::Output, B::Output) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut first_done, mut second_done) = (None, None);
    poll_fn(|context| {
        if first_done.is_none()
            && let Poll::Ready(value) = first.as_mut().poll(context)
        {
            first_done = Some(value);
        }
        if second_done.is_none()
            && let Poll::Ready(value) = second.as_mut().poll(context)
        {
            second_done = Some(value);
        }
        if first_done.is_some() && second_done.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (first_done.expect("poll_fn ended only when both were done"), second_done.expect("as above"))
}

struct Slot<F: Future> {
    flow: Pin<Box<Option<F>>>,
    /// Where the result goes.
    result: usize,
    /// What it is doing in the trace while it does not run.
    operation: weft_trace::Context,
    waker: Arc<SlotWaker>,
    context: Waker,
}

impl<F: Future> Slot<F> {
    /// The result, if the slot's flow has just finished.
    fn poll(&mut self) -> Option<F::Output> {
        let flow = self.flow.as_mut().as_pin_mut()?;
        let before = weft_trace::set_context(self.operation);
        let poll = flow.poll(&mut Context::from_waker(&self.context));
        self.operation = weft_trace::set_context(before);
        match poll {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }
}

/// Which slots were woken since they were last polled.
#[derive(Default)]
struct Woken(Mutex<WokenState>);

#[derive(Default)]
struct WokenState {
    ready: VecDeque<usize>,
    parent: Option<Waker>,
}

impl Woken {
    fn take(&self) -> Option<usize> {
        self.lock().ready.pop_front()
    }

    fn set_parent(&self, waker: &Waker) {
        let mut state = self.lock();
        if !state.parent.as_ref().is_some_and(|parent| parent.will_wake(waker)) {
            state.parent = Some(waker.clone());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, WokenState> {
        self.0.lock().expect("no code panics while it holds this lock")
    }
}

struct SlotWaker {
    slot: usize,
    queued: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let parent = {
            let mut state = self.woken.lock();
            state.ready.push_back(self.slot);
            // The parent was woken for the first one and takes all that it finds.
            if state.ready.len() == 1 { state.parent.clone() } else { None }
        };
        if let Some(parent) = parent {
            parent.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    /// Flows that finish when the test says so.
    #[derive(Default)]
    struct Stage {
        open: Cell<usize>,
        open_max: Cell<usize>,
        polls: Cell<usize>,
        wakers: RefCell<Vec<Option<Waker>>>,
        done: RefCell<Vec<bool>>,
    }

    impl Stage {
        async fn flow(self: Rc<Stage>, number: usize) -> usize {
            self.open.set(self.open.get() + 1);
            self.open_max.set(self.open_max.get().max(self.open.get()));
            poll_fn(|context| {
                self.polls.set(self.polls.get() + 1);
                if self.done.borrow()[number] {
                    return Poll::Ready(());
                }
                self.wakers.borrow_mut()[number] = Some(context.waker().clone());
                Poll::Pending
            })
            .await;
            self.open.set(self.open.get() - 1);
            number * 10
        }
    }

    #[test]
    fn never_more_than_the_window_and_polls_only_who_was_woken() {
        const FLOWS: usize = 1000;
        let stage = Rc::new(Stage::default());
        *stage.wakers.borrow_mut() = vec![None; FLOWS];
        *stage.done.borrow_mut() = vec![false; FLOWS];
        let flows: Vec<_> = (0..FLOWS).map(|number| stage.clone().flow(number)).collect();
        let mut all = Box::pin(run_window(flows, 64));
        let mut context = Context::from_waker(Waker::noop());
        let result = loop {
            if let Poll::Ready(result) = all.as_mut().poll(&mut context) {
                break result;
            }
            // Let one running flow finish, from the back of the window, to mix the order.
            let next = (0..FLOWS).rev().find(|number| stage.wakers.borrow()[*number].is_some()).expect("somebody runs");
            stage.done.borrow_mut()[next] = true;
            let waker = stage.wakers.borrow_mut()[next].take();
            waker.expect("just found").wake();
        };
        assert_eq!(result, (0..FLOWS).map(|number| number * 10).collect::<Vec<_>>());
        assert_eq!(stage.open_max.get(), 64);
        assert_eq!(stage.polls.get(), 2 * FLOWS, "one poll to start and one to finish each flow");
    }

    /// A future that remembers whose waker it was polled with.
    async fn is_polled_with(waker: &Waker) -> bool {
        poll_fn(|context| Poll::Ready(context.waker().will_wake(waker))).await
    }

    #[test]
    fn one_at_a_time_uses_the_waker_of_the_caller() {
        struct Nobody;
        impl Wake for Nobody {
            fn wake(self: Arc<Self>) {}
        }
        let waker = Waker::from(Arc::new(Nobody));
        let run = |flows: usize, window: usize| {
            let mut all = Box::pin(run_window((0..flows).map(|_| is_polled_with(&waker)), window));
            match all.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(results) => results,
                Poll::Pending => panic!("nobody waits"),
            }
        };
        assert_eq!(run(1, 64), [true]);
        assert_eq!(run(3, 1), [true; 3]);
        assert_eq!(run(2, 2), [false; 2], "they must be told apart when they are woken");
    }

    #[test]
    fn nothing_to_do_ends_at_once() {
        let mut none = Box::pin(run_window(Vec::<std::future::Ready<()>>::new(), 4));
        assert!(none.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}
