//! How a thread sleeps and is woken, whether it waits for sockets or for another thread.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

use weft_base::{MILLISECOND, Nanos};

use crate::clock;
use crate::sys::{self, EventFd, Watched};

/// Awake, nothing has happened.
const RUNNING: u32 = 0;
/// Something has happened; the next sleep ends at once.
const NOTIFIED: u32 = 1;
/// Sleeps on the word itself.
const ON_WORD: u32 = 2;
/// Sleeps in a poll that watches the event.
const ON_EVENT: u32 = 3;
/// Without an event a poll lasts so long.
const LOOK: u64 = MILLISECOND;

/// Wakes one thread. Its token is kept: a wake-up before the sleep is not lost.
#[derive(Debug)]
pub(crate) struct Parker {
    state: AtomicU32,
    /// Readable when the thread is woken within a poll; `None` where the process has no descriptor
    /// left.
    event: Option<EventFd>,
}

impl Parker {
    pub(crate) fn new() -> Parker {
        Parker { state: AtomicU32::new(RUNNING), event: EventFd::new().ok() }
    }

    /// Wakes the thread, or keeps it from its next sleep.
    pub(crate) fn unpark(&self) {
        match self.state.swap(NOTIFIED, Ordering::AcqRel) {
            ON_WORD => sys::futex_wake(&self.state),
            ON_EVENT => self.event.iter().for_each(EventFd::signal),
            _ => {}
        }
    }

    /// True if the thread sleeps at this moment, so that waking it makes it look around.
    pub(crate) fn is_parked(&self) -> bool {
        self.state.load(Ordering::Acquire) >= ON_WORD
    }

    /// Takes the token, if somebody has left one.
    pub(crate) fn take_token(&self) -> bool {
        self.state.load(Ordering::Relaxed) == NOTIFIED && self.state.swap(RUNNING, Ordering::AcqRel) == NOTIFIED
    }

    /// Sleeps until woken or until the time comes. May return early.
    pub(crate) fn sleep(&self, until: Nanos) {
        if self.state.compare_exchange(RUNNING, ON_WORD, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            sys::futex_wait(&self.state, ON_WORD, until);
            // A token that arrived meanwhile stays.
            let _ = self.state.compare_exchange(ON_WORD, RUNNING, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Announces a sleep in a poll that watches [`Parker::event`]; false if there is a token: then
    /// do not sleep.
    pub(crate) fn begin_poll(&self) -> bool {
        self.state.compare_exchange(RUNNING, ON_EVENT, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The poll has returned; `signalled` if the event was readable.
    pub(crate) fn end_poll(&self, signalled: bool) {
        let _ = self.state.compare_exchange(ON_EVENT, RUNNING, Ordering::AcqRel, Ordering::Acquire);
        if signalled {
            self.event.iter().for_each(EventFd::clear);
        }
    }

    /// Becomes readable when the thread is woken within a poll that ends at the time that is given
    /// with it: `until`, or sooner if there is no event, and then the thread looks again.
    pub(crate) fn event(&self, until: Nanos) -> (Watched, Nanos) {
        match &self.event {
            Some(event) => (Watched::new(event.as_fd(), false), until),
            None => (Watched::nothing(), until.min(clock::now() + LOOK)),
        }
    }

    /// Its descriptor.
    #[cfg(test)]
    pub(crate) fn descriptor(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.event.as_ref().expect("an event").as_fd())
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::poll;
    use weft_base::SECOND;

    #[test]
    fn a_token_ends_either_sleep_at_once() {
        let parker = Parker::new();
        parker.unpark();
        parker.sleep(Nanos::NEVER);
        assert!(parker.take_token() && !parker.take_token());
        parker.unpark();
        assert!(!parker.begin_poll());
        assert!(parker.take_token());
    }

    #[test]
    fn every_wake_up_from_another_thread_arrives() {
        all_wake_ups_arrive(Parker::new(), 2000);
        all_wake_ups_arrive(Parker { event: None, ..Parker::new() }, 200);
    }

    fn all_wake_ups_arrive(parker: Parker, rounds: u32) {
        let parker = Arc::new(parker);
        let waking = parker.clone();
        let (to_waker, from_sleeper) = std::sync::mpsc::channel();
        let waker = std::thread::spawn(move || {
            while from_sleeper.recv().is_ok() {
                waking.unpark();
            }
        });
        for round in 0..rounds {
            to_waker.send(()).expect("the waker lives");
            let limit = clock::now() + 20 * SECOND;
            while !parker.take_token() {
                assert!(clock::now() < limit, "lost wake-up in round {round}");
                if round % 2 == 0 {
                    parker.sleep(limit);
                } else if parker.begin_poll() {
                    let (event, until) = parker.event(limit);
                    let mut watched = [event];
                    poll(&mut watched, until).expect("poll");
                    parker.end_poll(watched[0].readable());
                }
            }
        }
        drop(to_waker);
        waker.join().expect("the waker ends");
    }

    #[test]
    fn time_ends_a_sleep() {
        let parker = Parker::new();
        let until = clock::now() + MILLISECOND;
        while clock::now() < until {
            parker.sleep(until);
        }
        assert!(!parker.take_token());
    }
}
