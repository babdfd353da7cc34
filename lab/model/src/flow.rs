//! Sequences in virtual time: a model whose actors do one thing after the other (ask, wait, lock,
//! write) is straight-line `async` code here, on the event list of [`crate::engine`]. A flow waits
//! for one thing at a time: a span of time, a [`Lock`] or a [`Gate`]; nothing else wakes it.
//!
//! ```
//! use std::rc::Rc;
//! use weft_model::flow::{Clock, Lock};
//! use weft_model::TieOrder;
//!
//! let clock = Clock::new(TieOrder::Natural);
//! let disk = Rc::new(Lock::new(&clock, 1));
//! for _ in 0..3 {
//!     let (clock_of_flow, disk) = (clock.clone(), disk.clone());
//!     clock.spawn(async move {
//!         disk.hold(5_000_000).await;
//!         assert_eq!(clock_of_flow.now() % 5_000_000, 0, "one after the other");
//!     });
//! }
//! assert_eq!(clock.run(), Ok(15_000_000));
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::engine::{EventQueue, TieOrder};
use crate::pool::Pool;

type Flow = Pin<Box<dyn Future<Output = ()>>>;

/// Virtual time and the flows that live in it.
#[derive(Clone)]
pub struct Clock {
    inner: Rc<Inner>,
}

struct Inner {
    queue: RefCell<EventQueue<u32>>,
    /// `None`: ended, or being run.
    flows: RefCell<Pool<Option<Flow>>>,
    running: Cell<u32>,
    alive: Cell<usize>,
}

/// Flows that wait for something that nobody will do: a mistake of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// How many.
    pub flows: usize,
    /// Since when, nanoseconds.
    pub at_nanos: u64,
}

impl Clock {
    /// Time 0 without flows; `order` says what comes first among events of the same time.
    pub fn new(order: TieOrder) -> Clock {
        let inner =
            Inner { queue: RefCell::new(EventQueue::new(order)), flows: RefCell::default(), running: Cell::new(0), alive: Cell::new(0) };
        Clock { inner: Rc::new(inner) }
    }

    /// Nanoseconds since the start.
    pub fn now(&self) -> u64 {
        self.inner.queue.borrow().now()
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.inner.queue.borrow().processed()
    }

    /// Starts a flow at this instant.
    pub fn spawn(&self, flow: impl Future<Output = ()> + 'static) {
        let place = self.inner.flows.borrow_mut().add(Some(Box::pin(flow)));
        self.inner.alive.set(self.inner.alive.get() + 1);
        self.wake(place);
    }

    /// Runs until nothing is left to happen; the time of the last event in nanoseconds.
    ///
    /// # Errors
    /// Flows are left that wait for ever.
    pub fn run(&self) -> Result<u64, Stuck> {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let next = self.inner.queue.borrow_mut().pop();
            let Some(place) = next else { break };
            let taken = self.inner.flows.borrow_mut()[place as usize].take();
            let mut flow = taken.expect("a flow waits for one thing at a time");
            self.inner.running.set(place);
            if flow.as_mut().poll(&mut context).is_pending() {
                self.inner.flows.borrow_mut()[place as usize] = Some(flow);
            } else {
                self.inner.flows.borrow_mut().free(place);
                self.inner.alive.set(self.inner.alive.get() - 1);
            }
        }
        match self.inner.alive.get() {
            0 => Ok(self.now()),
            flows => Err(Stuck { flows, at_nanos: self.now() }),
        }
    }

    /// Lets `nanos` pass.
    pub async fn pass(&self, nanos: u64) {
        self.inner.queue.borrow_mut().push_after(nanos, self.inner.running.get());
        Park { is_woken: false }.await;
    }

    fn wake(&self, flow: u32) {
        self.inner.queue.borrow_mut().push_after(0, flow);
    }
}

/// Ready when the flow runs for the second time.
struct Park {
    is_woken: bool,
}

impl Future for Park {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.is_woken, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Something that `places` flows may hold at once; who waits is served first in, first out.
pub struct Lock {
    clock: Clock,
    free: Cell<u32>,
    waiting: RefCell<VecDeque<u32>>,
}

impl Lock {
    /// A free one. With several places it is a station with so many servers.
    pub fn new(clock: &Clock, places: u32) -> Lock {
        Lock { clock: clock.clone(), free: Cell::new(places), waiting: RefCell::default() }
    }

    /// Waits for a place and takes it; [`Lock::release`] gives it back.
    pub async fn acquire(&self) {
        if self.free.get() > 0 {
            self.free.set(self.free.get() - 1);
            return;
        }
        self.waiting.borrow_mut().push_back(self.clock.inner.running.get());
        Park { is_woken: false }.await;
    }

    /// Gives a place to the first who waits.
    pub fn release(&self) {
        match self.waiting.borrow_mut().pop_front() {
            Some(flow) => self.clock.wake(flow),
            None => self.free.set(self.free.get() + 1),
        }
    }

    /// Has a place for `nanos`.
    pub async fn hold(&self, nanos: u64) {
        self.acquire().await;
        self.clock.pass(nanos).await;
        self.release();
    }
}

/// Open or shut; all flows that find it shut go on when it opens.
pub struct Gate {
    clock: Clock,
    is_open: Cell<bool>,
    waiting: RefCell<Vec<u32>>,
}

impl Gate {
    /// An open one.
    pub fn new(clock: &Clock) -> Gate {
        Gate { clock: clock.clone(), is_open: Cell::new(true), waiting: RefCell::default() }
    }

    /// Shuts it; `false`: it was shut already.
    pub fn shut(&self) -> bool {
        self.is_open.replace(false)
    }

    /// Opens it.
    pub fn open(&self) {
        self.is_open.set(true);
        self.waiting.take().into_iter().for_each(|flow| self.clock.wake(flow));
    }

    /// Waits until it is open.
    pub async fn passed(&self) {
        while !self.is_open.get() {
            self.waiting.borrow_mut().push(self.clock.inner.running.get());
            Park { is_woken: false }.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_serves_as_many_as_it_has_places_in_the_order_of_arrival() {
        let clock = Clock::new(TieOrder::Natural);
        let station = Rc::new(Lock::new(&clock, 2));
        let done = Rc::new(RefCell::new(Vec::new()));
        for flow in 0..5 {
            let (clock_of_flow, station, done) = (clock.clone(), station.clone(), done.clone());
            clock.spawn(async move {
                station.hold(10).await;
                done.borrow_mut().push((clock_of_flow.now(), flow));
            });
        }
        assert_eq!(clock.run(), Ok(30));
        assert_eq!(*done.borrow(), [(10, 0), (10, 1), (20, 2), (20, 3), (30, 4)]);
    }

    #[test]
    fn a_gate_lets_all_go_on_at_once() {
        let clock = Clock::new(TieOrder::Natural);
        let gate = Rc::new(Gate::new(&clock));
        assert!(gate.shut());
        assert!(!gate.shut(), "it is shut");
        let passed = Rc::new(Cell::new(0));
        for _ in 0..3 {
            let (clock_of_flow, gate, passed) = (clock.clone(), gate.clone(), passed.clone());
            clock.spawn(async move {
                gate.passed().await;
                assert_eq!(clock_of_flow.now(), 7);
                passed.set(passed.get() + 1);
            });
        }
        let clock_of_flow = clock.clone();
        clock.spawn(async move {
            clock_of_flow.pass(7).await;
            gate.open();
        });
        assert_eq!(clock.run(), Ok(7));
        assert_eq!(passed.get(), 3);
    }

    #[test]
    fn flows_that_wait_for_ever_are_told() {
        let clock = Clock::new(TieOrder::Natural);
        let lock = Rc::new(Lock::new(&clock, 1));
        for _ in 0..2 {
            let lock = lock.clone();
            clock.spawn(async move { lock.acquire().await });
        }
        assert_eq!(clock.run(), Err(Stuck { flows: 1, at_nanos: 0 }));
    }
}
