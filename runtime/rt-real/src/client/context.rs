//! What one thread waits for: its timers and the connections on which its replies come.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use weft_base::Nanos;

use super::conn::{Conn, Reader};
use super::parker::Parker;
use crate::clock;
use crate::shard::Timers;
use crate::sys::{self, Watched};

thread_local! {
    static CURRENT: Current = const { Current(RefCell::new(None)) };
}

/// The context of a thread that has had one.
struct Current(RefCell<Option<Rc<ThreadContext>>>);

impl Drop for Current {
    fn drop(&mut self) {
        forget_of_parent(self.0.get_mut());
    }
}

/// What the parent of this process has begun is not ended here, and its descriptors may be those of
/// somebody else by now.
fn forget_of_parent(context: &mut Option<Rc<ThreadContext>>) {
    std::mem::forget(context.take_if(|context| context.forks != sys::forks()));
}

/// The waiting side of one thread.
pub(crate) struct ThreadContext {
    /// Of the process after so many forks.
    forks: u32,
    parker: Arc<Parker>,
    waker: Waker,
    pub(crate) timers: Timers,
    interests: RefCell<Vec<Interest>>,
    /// The request that was polled last waits with the waker of this thread itself.
    plain_waker: Cell<bool>,
    /// Nested calls of `block_on`.
    depth: Cell<u32>,
}

/// A connection on which replies to this thread will come.
struct Interest {
    conn: Arc<Conn>,
    /// How many.
    waiting: usize,
}

impl ThreadContext {
    fn new() -> ThreadContext {
        let parker = Arc::new(Parker::new());
        let waker = Waker::from(parker.clone());
        ThreadContext {
            forks: sys::forks(),
            parker,
            waker,
            timers: Timers::default(),
            interests: RefCell::default(),
            plain_waker: Cell::new(false),
            depth: Cell::new(0),
        }
    }

    /// That of the calling thread.
    pub(crate) fn current() -> Rc<ThreadContext> {
        CURRENT.with(|current| {
            let mut context = current.0.borrow_mut();
            forget_of_parent(&mut context);
            context.get_or_insert_with(|| Rc::new(ThreadContext::new())).clone()
        })
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(crate) fn parker(&self) -> &Arc<Parker> {
        &self.parker
    }

    /// Marks the thread as driving a flow until the result is dropped.
    pub(crate) fn drive(&self) -> Driving<'_> {
        self.depth.set(self.depth.get() + 1);
        Driving(self)
    }

    /// Panics if the calling thread does not drive a flow: nobody would read its reply.
    pub(crate) fn assert_driving(&self) {
        assert!(self.depth.get() > 0, "flows of a ClientRt are driven by ClientRt::block_on");
    }

    /// Notes a request of this thread on `conn`.
    pub(crate) fn begin_wait(&self, conn: &Arc<Conn>) {
        let mut interests = self.interests.borrow_mut();
        match interests.iter_mut().find(|interest| Arc::ptr_eq(&interest.conn, conn)) {
            Some(interest) => interest.waiting += 1,
            None => interests.push(Interest { conn: conn.clone(), waiting: 1 }),
        }
    }

    /// A request of this thread on `conn` has its reply or is given up.
    pub(crate) fn end_wait(&self, conn: &Arc<Conn>) {
        {
            let mut interests = self.interests.borrow_mut();
            let Some(at) = interests.iter().position(|interest| Arc::ptr_eq(&interest.conn, conn)) else { return };
            interests[at].waiting -= 1;
            if interests[at].waiting > 0 {
                return;
            }
            interests.swap_remove(at);
        }
        if conn.has_unsent() {
            conn.flush(self, Nanos(0)); // given up before it was sent; does not wait
        }
        conn.ensure_reader();
    }

    /// This thread is about to wait for something else than its replies: others may read meanwhile.
    pub(crate) fn release(&self, except: Option<&Conn>) {
        let conns: Vec<Arc<Conn>> = self.interests.borrow().iter().map(|interest| interest.conn.clone()).collect();
        conns
            .iter()
            .filter(|conn| except.is_none_or(|except| !std::ptr::eq(&raw const ***conn, except)))
            .for_each(|conn| conn.ensure_reader());
    }

    /// Sends what has been collected for the connections of this thread.
    pub(crate) fn flush(&self) {
        let until = self.timers.next().unwrap_or(Nanos::NEVER);
        let mut at = 0;
        loop {
            // Not within the borrow: replies may be handed out while the socket is full.
            let next = match self.interests.borrow().get(at) {
                Some(interest) if interest.conn.has_unsent() => Some(interest.conn.clone()),
                Some(_) => None,
                None => return,
            };
            if let Some(conn) = next {
                conn.flush(self, until);
            }
            at += 1;
        }
    }

    /// Waits until this thread is woken or one of its timers is due. May return early.
    pub(crate) fn park(&self) {
        if self.parker.take_token() {
            return;
        }
        self.flush();
        let mut reading: Vec<(Arc<Conn>, Box<Reader>)> =
            self.interests.borrow().iter().filter_map(|interest| Some((interest.conn.clone(), interest.conn.take_reader()?))).collect();
        let mut may_wait_in_receive = true;
        while !self.parker.take_token() {
            let until = self.timers.next().unwrap_or(Nanos::NEVER);
            let now = clock::now();
            if self.timers.fire(now) {
                break;
            }
            if let [(conn, reader)] = &mut reading[..]
                && may_wait_in_receive
                && until.since(now) > sys::RECEIVE_WAIT_NS
                && self.nobody_else_wakes_us()
            {
                // Saves a system call for the usual synchronous request. Beyond its time limit the
                // way below is exact.
                may_wait_in_receive = conn.read(reader, true);
            } else if reading.is_empty() {
                self.parker.sleep(until);
            } else {
                self.poll_and_read(&mut reading, until);
            }
        }
        // We come back to read on as long as we wait for replies; the last one to arrive looks for
        // a successor (`end_wait`).
        reading.into_iter().for_each(|(conn, reader)| conn.give_back(reader));
    }

    /// True if this thread waits for one reply and its deadline, and no waker of it is anywhere
    /// else. Then it need not watch its event.
    fn nobody_else_wakes_us(&self) -> bool {
        // One reference here, one in our own waker; in the table of requests one by itself and one
        // in its waker; one in the timer.
        const KNOWN: usize = 5;
        let one_request = matches!(&self.interests.borrow()[..], [Interest { waiting: 1, .. }]);
        one_request && self.plain_waker.get() && self.timers.len() == 1 && Arc::strong_count(&self.parker) == KNOWN
    }

    /// Notes whether a request waits with the waker of this thread itself, not with one that a
    /// driver of many flows has made.
    pub(crate) fn note_waker(&self, waker: &Waker) {
        self.plain_waker.set(waker.will_wake(&self.waker));
    }

    fn poll_and_read(&self, reading: &mut [(Arc<Conn>, Box<Reader>)], until: Nanos) {
        if !self.parker.begin_poll() {
            return;
        }
        // One connection is the usual case and needs no memory.
        let (event, until) = self.parker.event(until);
        let mut few = [event; 4];
        let mut many = Vec::new();
        let watched = if reading.len() < few.len() {
            for (place, (conn, _)) in few[1..].iter_mut().zip(reading.iter()) {
                *place = Watched::new(conn.fd(), false);
            }
            &mut few[..=reading.len()]
        } else {
            many.push(event);
            many.extend(reading.iter().map(|(conn, _)| Watched::new(conn.fd(), false)));
            &mut many[..]
        };
        let outcome = sys::poll(watched, until);
        self.parker.end_poll(watched[0].readable());
        for ((conn, reader), watched) in reading.iter_mut().zip(&watched[1..]) {
            conn.count_poll();
            if watched.readable() || outcome.is_err() {
                conn.read(reader, false);
            }
        }
    }
}

/// See [`ThreadContext::drive`].
pub(crate) struct Driving<'a>(&'a ThreadContext);

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.0.depth.set(self.0.depth.get() - 1);
        if self.0.depth.get() > 0 {
            // The outer flow may have been woken while the inner one took the token.
            self.0.parker.unpark();
        }
    }
}

/// A timer of the thread that first polls it; goes when it is dropped.
pub(crate) struct Sleep {
    at: Nanos,
    set: Option<(Rc<ThreadContext>, u64)>,
}

impl Sleep {
    pub(crate) fn new(at: Nanos) -> Sleep {
        Sleep { at, set: None }
    }

    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<()> {
        match &self.set {
            // A time that has passed already is noticed when the thread begins to wait: that saves
            // every request a look at the clock.
            None => {
                let thread = ThreadContext::current();
                thread.assert_driving();
                let number = thread.timers.add(self.at, waker.clone());
                self.set = Some((thread, number));
            }
            Some((thread, number)) => {
                if !thread.timers.renew(self.at, *number, waker) {
                    return Poll::Ready(());
                }
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some((thread, number)) = &self.set {
            thread.timers.remove(self.at, *number);
        }
    }
}
