//! The tasks and timers of one server: single-threaded, except that any thread may wake a task.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use weft_base::Nanos;

use crate::locked;
use crate::sys::EventFd;

/// Tasks polled before sockets are looked at again, however many are ready.
const POLLS_MAX: usize = 10_000;

type Flow = Pin<Box<dyn Future<Output = ()>>>;

/// A queue of tasks that were woken, shared with all wakers.
#[derive(Debug)]
pub(crate) struct ReadyQueue {
    ready: Mutex<VecDeque<Arc<TaskWaker>>>,
    /// True while the server's thread sleeps or is about to: then a wake-up must signal the event.
    sleeping: AtomicBool,
    event: EventFd,
}

#[derive(Debug)]
pub(crate) struct TaskWaker {
    index: usize,
    queued: AtomicBool,
    shared: Arc<ReadyQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = self.shared.clone();
        locked(&shared.ready).push_back(self);
        if shared.sleeping.load(Ordering::SeqCst) {
            shared.event.signal();
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.load(Ordering::Acquire) {
            self.clone().wake();
        }
    }
}

struct Task {
    /// Taken out while it is polled, so that it may spawn others.
    flow: Option<Flow>,
    waker: Arc<TaskWaker>,
}

/// All tasks.
pub(crate) struct Executor {
    tasks: RefCell<Vec<Option<Task>>>,
    free: RefCell<Vec<usize>>,
    shared: Arc<ReadyQueue>,
    closed: Cell<bool>,
}

impl Executor {
    pub(crate) fn new() -> io::Result<Executor> {
        let shared = ReadyQueue { ready: Mutex::default(), sleeping: AtomicBool::new(false), event: EventFd::new()? };
        Ok(Executor { tasks: RefCell::default(), free: RefCell::default(), shared: Arc::new(shared), closed: Cell::new(false) })
    }

    /// Readable when another thread has woken a task of the sleeping server.
    pub(crate) fn event(&self) -> &EventFd {
        &self.shared.event
    }

    /// Adds a task; it is polled in the present turn.
    pub(crate) fn spawn(&self, flow: impl Future<Output = ()> + 'static) {
        if self.closed.get() {
            return; // the server ends: its last flows are being dropped
        }
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let mut tasks = self.tasks.borrow_mut();
            tasks.push(None);
            tasks.len() - 1
        });
        let waker = Arc::new(TaskWaker { index, queued: AtomicBool::new(false), shared: self.shared.clone() });
        self.tasks.borrow_mut()[index] = Some(Task { flow: Some(Box::pin(flow)), waker: waker.clone() });
        waker.wake();
    }

    /// Polls tasks until none is ready; true if it stopped before, because there were too many.
    pub(crate) fn run(&self) -> bool {
        for _ in 0..POLLS_MAX {
            let next = locked(&self.shared.ready).pop_front();
            let Some(waker) = next else { return false };
            self.poll(waker);
        }
        true
    }

    fn poll(&self, waker: Arc<TaskWaker>) {
        let index = waker.index;
        let flow = match self.tasks.borrow_mut().get_mut(index) {
            // A waker of a task that has ended may meet the next task in its place.
            Some(Some(task)) if Arc::ptr_eq(&task.waker, &waker) => task.flow.take(),
            _ => None,
        };
        let Some(mut flow) = flow else { return };
        // Cleared before the poll, so that a wake-up during it is not lost.
        waker.queued.store(false, Ordering::Release);
        let outcome = flow.as_mut().poll(&mut Context::from_waker(&Waker::from(waker)));
        match outcome {
            Poll::Pending => {
                if let Some(Some(task)) = self.tasks.borrow_mut().get_mut(index) {
                    task.flow = Some(flow);
                }
            }
            Poll::Ready(()) => {
                self.tasks.borrow_mut()[index] = None;
                self.free.borrow_mut().push(index);
            }
        }
    }

    /// Says that the thread is about to sleep; false if a task is ready, then it must not. Ends
    /// with [`Executor::awake`].
    pub(crate) fn may_sleep(&self) -> bool {
        // Announced first and looked after: a waker pushes first and looks after. So one of the two
        // sees the other.
        self.shared.sleeping.store(true, Ordering::SeqCst);
        locked(&self.shared.ready).is_empty()
    }

    /// The thread does not sleep any more.
    pub(crate) fn awake(&self) {
        self.shared.sleeping.store(false, Ordering::SeqCst);
    }

    /// Drops all tasks; new ones are not accepted.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks); // not within the borrow: what they own may look at the executor
        locked(&self.shared.ready).clear();
    }
}

/// Who is to be woken when.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    waiting: RefCell<BTreeMap<(Nanos, u64), Waker>>,
    last: Cell<u64>,
}

impl Timers {
    /// Adds an entry; the number identifies it.
    pub(crate) fn add(&self, at: Nanos, waker: Waker) -> u64 {
        let number = self.last.get() + 1;
        self.last.set(number);
        self.waiting.borrow_mut().insert((at, number), waker);
        number
    }

    /// Wakes somebody else instead; false if the time has come already.
    pub(crate) fn renew(&self, at: Nanos, number: u64, waker: &Waker) -> bool {
        match self.waiting.borrow_mut().get_mut(&(at, number)) {
            Some(entry) => {
                if !entry.will_wake(waker) {
                    *entry = waker.clone();
                }
                true
            }
            None => false,
        }
    }

    /// Forgets an entry.
    pub(crate) fn remove(&self, at: Nanos, number: u64) {
        self.waiting.borrow_mut().remove(&(at, number));
    }

    /// When the next entry is due.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.waiting.borrow().first_key_value().map(|((at, _), _)| *at)
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Wakes everybody whose time has come; true if there was one.
    pub(crate) fn fire(&self, now: Nanos) -> bool {
        let mut fired = false;
        loop {
            let due = match self.waiting.borrow_mut().first_entry() {
                Some(entry) if entry.key().0 <= now => entry.remove(),
                _ => return fired,
            };
            due.wake();
            fired = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use weft_rt::Signal;

    #[test]
    fn tasks_spawn_wait_and_wake_each_other() {
        let executor = Rc::new(Executor::new().expect("an event"));
        let log = Rc::new(RefCell::new(Vec::new()));
        let event = Signal::new();
        for name in ["a", "b"] {
            let (log, event, inner) = (log.clone(), event.clone(), executor.clone());
            executor.spawn(async move {
                event.wait().await;
                log.borrow_mut().push(name);
                let log = log.clone();
                inner.spawn(async move { log.borrow_mut().push("child") });
            });
        }
        assert!(!executor.run());
        assert!(log.borrow().is_empty());
        event.notify();
        assert!(!executor.may_sleep(), "woken tasks must not be slept over");
        executor.run();
        assert_eq!(*log.borrow(), ["a", "b", "child", "child"]);
        assert!(executor.may_sleep());
        executor.close();
    }

    #[test]
    fn an_old_waker_does_not_disturb_the_next_task() {
        let executor = Executor::new().expect("an event");
        let kept: Rc<RefCell<Option<Waker>>> = Rc::default();
        let keep = kept.clone();
        executor.spawn(std::future::poll_fn(move |context| {
            *keep.borrow_mut() = Some(context.waker().clone());
            Poll::Ready(())
        }));
        executor.run();
        let polls = Rc::new(Cell::new(0));
        let count = polls.clone();
        executor.spawn(std::future::poll_fn(move |_| {
            count.set(count.get() + 1);
            Poll::Pending
        }));
        executor.run();
        kept.borrow_mut().take().expect("it was kept").wake();
        executor.run();
        assert_eq!(polls.get(), 1);
    }

    #[test]
    fn a_greedy_task_does_not_keep_the_thread() {
        let executor = Executor::new().expect("an event");
        executor.spawn(std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::Pending
        }));
        assert!(executor.run());
    }

    #[test]
    fn timers_fire_in_order_and_can_be_removed() {
        let timers = Timers::default();
        let waker = Waker::noop();
        let first = timers.add(Nanos(10), waker.clone());
        let second = timers.add(Nanos(5), waker.clone());
        assert_eq!(timers.next(), Some(Nanos(5)));
        assert!(!timers.fire(Nanos(4)));
        assert!(timers.fire(Nanos(5)));
        assert!(!timers.renew(Nanos(5), second, waker) && timers.renew(Nanos(10), first, waker));
        timers.remove(Nanos(10), first);
        assert_eq!(timers.next(), None);
    }
}
