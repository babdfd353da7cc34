//! Requests that met a lock wait until locks are released, a while at most.

use std::cell::{Cell, RefCell};

use weft_base::{MILLISECOND, Nanos, Payload, Status};
use weft_rt::{PeerId, Runtime};
use weft_wire::Frame;

use crate::{Served, Service, Shell};

/// Requests that wait, at most.
const PARKED_MAX: usize = 4096;
/// How long a request waits for a lock before it is answered with its refusal, in nanoseconds.
const PARK_NS: u64 = 500 * MILLISECOND;

/// A request that met a lock.
pub struct Parked {
    /// Where its answer goes.
    pub peer: PeerId,
    /// The request.
    pub frame: Frame,
    /// What is told about it.
    pub served: Served,
    /// The answer if it waits in vain.
    pub status: Status,
    /// Until when it may wait; `None`: it has not waited yet.
    pub until: Option<Nanos>,
}

/// All requests that wait for locks.
#[derive(Default)]
pub(crate) struct Parking {
    parked: RefCell<Vec<Parked>>,
    /// Locks were released since requests were last taken from here.
    released: Cell<bool>,
}

impl Parking {
    pub(crate) fn len(&self) -> usize {
        self.parked.borrow().len()
    }
}

impl<S: Service> Shell<S> {
    /// Keeps a request that met a lock. Gives it back if it must be answered.
    pub fn park(&self, mut parked: Parked) -> Option<Parked> {
        let now = self.rt().now();
        let until = *parked.until.get_or_insert(now + PARK_NS);
        let mut all = self.parking.parked.borrow_mut();
        if now >= until || all.len() >= PARKED_MAX {
            return Some(parked);
        }
        // A repetition takes the place of the first.
        let request = parked.frame.header.request;
        for mut replaced in all.extract_if(.., |other| other.frame.header.request == request) {
            self.unlist(&mut replaced.served);
            replaced.served.forget();
        }
        self.list(&mut parked.served);
        all.push(parked);
        None
    }

    /// Locks were released: a turn looks at parked requests again.
    pub fn release(&self) {
        self.parking.released.set(true);
        self.wake();
    }

    /// True if requests wait for locks.
    pub fn has_parked(&self) -> bool {
        self.parking.len() > 0
    }

    /// True if parked requests are to be looked at again.
    pub fn has_released(&self) -> bool {
        self.parking.released.get() && self.has_parked()
    }

    /// The requests to look at again: all that wait, if locks were released.
    pub fn unpark(&self) -> Vec<Parked> {
        if !self.parking.released.replace(false) {
            return Vec::new();
        }
        let mut parked = self.parking.parked.take();
        for Parked { served, .. } in &mut parked {
            self.unlist(served);
        }
        parked
    }

    /// Answers those that have waited too long.
    pub fn expire_parked(&self) {
        let now = self.rt().now();
        let is_over = |parked: &mut Parked| parked.until.is_some_and(|until| until <= now);
        let expired: Vec<Parked> = self.parking.parked.borrow_mut().extract_if(.., is_over).collect();
        for Parked { peer, frame, mut served, status, .. } in expired {
            served.waited(self.work_ends());
            self.answer(served, peer, Frame::reply(&frame.header, Err(status), Payload::EMPTY), now);
        }
    }
}
