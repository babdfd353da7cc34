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
    // A flow is kilobytes: nothing that has been moved stays here while it runs.
    let (alone, many) = match waiting.next() {
        None => (Some(first), None),
        // Boxed, so that callers stay small: they are moved before they run.
        Some(second) => (None, Some(Box::pin(run_many(FlowsOf::new([first, second], waiting), window)))),
    };
    // One alone needs no waker of its own. That saves memory and locks, and a runtime that sees its
    // own waker may wait in the cheapest way: the synchronous request is the most frequent case of
    // all.
    let mut alone = pin!(alone);
    match (alone.as_mut().as_pin_mut(), many) {
        (Some(flow), _) => vec![flow.await],
        (None, Some(many)) => many.await,
        (None, None) => unreachable!("there is a first flow"),
    }
}

async fn run_many<F: Future>(mut flows: FlowsOf<impl Iterator<Item = F>, F>, window: usize) -> Vec<F::Output> {
    if window <= 1 {
        while flows.fill(0) {
            let (flow, result) = &mut flows.slots[0];
            flows.results[*result] = Some(flow.as_mut().as_pin_mut().expect("it was just put there").await);
        }
    } else {
        let mut driver = Driver::begin(&mut flows, window);
        poll_fn(|context| driver.poll(&mut flows, context)).await;
    }
    flows.results.into_iter().map(|result| result.expect("every slot ran until nothing was left")).collect()
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

/// Flows of some type. What drives them does not know it, and so is compiled once.
trait Flows {
    /// Puts the next flow into a slot, which may be the first that there is not yet. False if no
    /// flow is left.
    fn fill(&mut self, slot: usize) -> bool;

    /// Polls the flow of a slot and keeps its result; true if it has finished.
    fn poll(&mut self, slot: usize, context: &mut Context<'_>) -> bool;
}

/// A flow in its slot, until it has finished.
type Flow<F> = Pin<Box<Option<F>>>;

struct FlowsOf<I, F: Future> {
    /// The first ones, which are on the heap already.
    first: std::array::IntoIter<Flow<F>, 2>,
    waiting: I,
    /// Each with the place of its result.
    slots: Vec<(Flow<F>, usize)>,
    results: Vec<Option<F::Output>>,
}

impl<I: Iterator<Item = F>, F: Future> FlowsOf<I, F> {
    fn new(first: [F; 2], waiting: I) -> FlowsOf<I, F> {
        FlowsOf { first: first.map(|flow| Box::pin(Some(flow))).into_iter(), waiting, slots: Vec::new(), results: Vec::new() }
    }
}

impl<I: Iterator<Item = F>, F: Future> Flows for FlowsOf<I, F> {
    fn fill(&mut self, slot: usize) -> bool {
        let result = self.results.len();
        match (self.first.next(), self.slots.get_mut(slot)) {
            (Some(flow), Some(slot)) => *slot = (flow, result),
            (Some(flow), None) => self.slots.push((flow, result)),
            (None, slot) => {
                let next = self.waiting.next();
                let is_left = next.is_some();
                match slot {
                    // Moved once, into the place of the one before.
                    Some(slot) => {
                        slot.0.set(next);
                        slot.1 = result;
                    }
                    None if is_left => self.slots.push((Box::pin(next), result)),
                    None => {}
                }
                if !is_left {
                    return false;
                }
            }
        }
        self.results.push(None);
        true
    }

    fn poll(&mut self, slot: usize, context: &mut Context<'_>) -> bool {
        let (flow, result) = &mut self.slots[slot];
        let Some(flow) = flow.as_mut().as_pin_mut() else { return false };
        let Poll::Ready(value) = flow.poll(context) else { return false };
        self.results[*result] = Some(value);
        true
    }
}

/// Polls the slots that were woken.
struct Driver {
    woken: Arc<Woken>,
    slots: Vec<Slot>,
    /// What the flows go on with in the trace.
    around: weft_trace::Context,
    running: usize,
}

struct Slot {
    /// What its flow is doing in the trace while it does not run.
    operation: weft_trace::Context,
    waker: Arc<SlotWaker>,
    context: Waker,
}

impl Driver {
    fn begin(flows: &mut dyn Flows, window: usize) -> Driver {
        let (woken, around) = (Arc::new(Woken::default()), weft_trace::context());
        let mut slots = Vec::new();
        while slots.len() < window && flows.fill(slots.len()) {
            let waker = Arc::new(SlotWaker { slot: slots.len(), queued: AtomicBool::new(true), woken: woken.clone() });
            woken.lock().ready.push_back(slots.len());
            slots.push(Slot { operation: around, context: Waker::from(waker.clone()), waker });
        }
        Driver { running: slots.len(), woken, slots, around }
    }

    fn poll(&mut self, flows: &mut dyn Flows, context: &mut Context<'_>) -> Poll<()> {
        self.woken.set_parent(context.waker());
        while let Some(index) = self.woken.take() {
            let slot = &mut self.slots[index];
            slot.waker.queued.store(false, Ordering::Release);
            // A finished flow makes room for the next one, which is polled at once: nobody else
            // would wake it.
            while slot.poll(index, flows) {
                if flows.fill(index) {
                    slot.operation = self.around;
                } else {
                    self.running -= 1;
                    break;
                }
            }
        }
        if self.running == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Slot {
    /// True if the slot's flow has just finished.
    fn poll(&mut self, index: usize, flows: &mut dyn Flows) -> bool {
        let before = weft_trace::set_context(self.operation);
        let has_finished = flows.poll(index, &mut Context::from_waker(&self.context));
        self.operation = weft_trace::set_context(before);
        has_finished
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
    fn a_window_has_room_for_one_flow_and_many_are_on_the_heap() {
        async fn large() -> usize {
            let bytes = [1_u8; 4096];
            std::future::ready(()).await;
            bytes.iter().map(|byte| usize::from(*byte)).sum()
        }
        let (flow, few) = (size_of_val(&large()), 512);
        assert!(size_of_val(&run_window((0..1).map(|_| large()), 4)) < flow + few);
        assert!(size_of_val(&run_many(FlowsOf::new([large(), large()], std::iter::empty()), 4)) < few);
    }

    #[test]
    fn nothing_to_do_ends_at_once() {
        let mut none = Box::pin(run_window(Vec::<std::future::Ready<()>>::new(), 4));
        assert!(none.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}
