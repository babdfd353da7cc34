//! A request from its arrival to its answer. What is told about it goes through
//! [`Shell`](crate::Shell).
//!
//! ```text
//!                          ┌──▶ parked: met a lock ── released ──▶ (executed again)
//! begun ──▶ executed ──────┼──▶ goes on in a flow: others are asked ──▶ answered
//!                │         ├──▶ waits until its record is durable ────▶ answered
//!                │         └──▶ forgotten: a flow answers its repetitions
//!                └──▶ answered with its turn
//! ```
//! Those of the middle column are listed, for dashboards and for the gauge of what waits.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use weft_base::{ClientId, Handle, Nanos, Payload, Result, Status};
use weft_live::Ticket;
use weft_rt::PeerId;
use weft_trace::event::served;
use weft_trace::{Context, OpenStagedSpan};
use weft_wire::{Frame, Header, LeaseScope, Op};

/// A request that a server works on. [`Shell::begin`](crate::Shell::begin) makes it,
/// [`Shell::answer`](crate::Shell::answer) ends it; between them it says where the time goes.
#[derive(Debug)]
#[must_use = "a request ends with an answer, or goes on in a flow"]
pub struct ServedRequest {
    pub(crate) trace: OpenStagedSpan,
    /// When the turn began that took it.
    pub(crate) came: Nanos,
    /// `None`: nobody knows it.
    pub(crate) op: Option<Op>,
    pub(crate) client: ClientId,
    pub(crate) object: Handle,
    /// Its place among those that wait.
    pub(crate) ticket: Option<Ticket>,
    /// It was answered before.
    pub(crate) is_repeated: bool,
    /// Its client may believe the answer until it hears otherwise.
    pub(crate) leased: LeaseScope,
}

impl ServedRequest {
    /// What it asks for; `None`: nobody knows it.
    #[inline]
    pub fn op(&self) -> Option<Op> {
        self.op
    }

    /// What it is about, as far as that is known.
    pub fn object(&self) -> Handle {
        self.object
    }

    /// It has waited until then, in ticks of the trace, and work on it begins.
    pub fn started(&mut self, ticks: u64) {
        self.trace.phase(served::QUEUE, ticks);
    }

    /// The work on it ends.
    pub fn worked(&mut self, ticks: u64) {
        self.trace.phase(served::CPU, ticks);
    }

    /// It has waited for locks or other servers until then.
    pub fn waited(&mut self, ticks: u64) {
        self.trace.phase(served::LOCK, ticks);
    }

    /// It was answered before. Nothing says that it is the same operation now, so the answer tells
    /// its client of no object.
    pub fn repeated(&mut self) {
        self.is_repeated = true;
    }

    /// Its client may believe that much of the answer until it hears otherwise.
    pub fn leased(&mut self, leased: LeaseScope) {
        self.leased = leased;
    }

    /// Its changes are kept.
    pub fn kept(&mut self, ticks: u64) {
        self.trace.phase(served::JOURNAL, ticks);
    }

    /// It is refused.
    fn failed(&mut self, status: Status) {
        self.trace.result(status.code());
        if status.is_server_error() {
            weft_trace::note_error();
        }
    }

    /// What its flow records is inside it.
    pub fn context(&mut self) -> Context {
        self.trace.context()
    }

    /// The reply to it, without bulk data.
    #[inline]
    pub fn reply(&mut self, header: &Header, result: Result<Bytes>) -> Frame {
        if let Err(status) = &result {
            self.failed(*status);
        }
        let mut frame = Frame::reply(header, result, Payload::EMPTY);
        frame.header.flags = frame.header.flags.with(self.leased.flags());
        frame
    }

    /// Somebody else answers it.
    pub fn forget(mut self) {
        self.trace.forget();
    }
}

/// A request that met a lock.
pub struct Parked {
    /// Where its answer goes.
    pub peer: PeerId,
    /// The request.
    pub frame: Frame,
    /// What is told about it.
    pub served: ServedRequest,
    /// The answer if it waits in vain.
    pub status: Status,
    /// Until when it may wait; `None`: it has not waited yet.
    pub until: Option<Nanos>,
}

/// All requests that wait for locks.
#[derive(Default)]
pub(crate) struct Parking {
    pub(crate) parked: RefCell<Vec<Parked>>,
    /// Locks were released since requests were last taken from here.
    pub(crate) released: Cell<bool>,
}

impl Parking {
    pub(crate) fn len(&self) -> usize {
        self.parked.borrow().len()
    }
}
