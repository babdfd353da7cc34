//! One request from its arrival to its answer: what trace, live numbers and counters hear of it.

use weft_base::{ClientId, Handle, Nanos, Status};
use weft_live::Ticket;
use weft_rt::PeerId;
use weft_trace::event::served;
use weft_trace::{Context, OpenLadder, request_key};
use weft_wire::{Frame, Header, Request};

use crate::{Service, Shell};

/// A request that a server works on. [`Shell::begin`] makes it, [`Shell::answer`] ends it; between them it says where the time goes.
#[derive(Debug)]
#[must_use = "a request ends with an answer, or goes on in a flow"]
pub struct Served {
    trace: OpenLadder,
    /// When the turn began that took it.
    came: Nanos,
    op: u16,
    client: ClientId,
    object: Handle,
    /// Its place among those that wait.
    ticket: Option<Ticket>,
}

impl Served {
    /// A request without a record and without a place, for tests.
    pub fn unseen(header: &Header) -> Served {
        let (op, client) = (header.op, header.request.client);
        Served { trace: OpenLadder::OFF, came: Nanos(0), op, client, object: Handle(0), ticket: None }
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

    /// Its changes are kept.
    pub fn kept(&mut self, ticks: u64) {
        self.trace.phase(served::JOURNAL, ticks);
    }

    /// It is refused.
    pub fn failed(&mut self, status: Status) {
        self.trace.result(status.code());
        if status.is_trouble() {
            weft_trace::trouble();
        }
    }

    /// What its flow records is inside it.
    pub fn context(&mut self) -> Context {
        self.trace.context()
    }

    /// Somebody else answers it.
    pub fn forget(mut self) {
        self.trace.forget();
    }
}

impl<S: Service> Shell<S> {
    /// A request that this turn has taken.
    #[inline]
    pub fn begin(&self, header: &Header) -> Served {
        let mut trace = weft_trace::ladder_since(S::event_of(header.op), self.turn.began.get());
        if trace.is_on() {
            trace.request(request_key(header.request, header.server), header.op, self.identity().server.0);
        }
        Served { trace, came: self.turn.at.get(), op: header.op, client: header.request.client, object: Handle(0), ticket: None }
    }

    /// What the request is about is known.
    #[inline]
    pub fn asked(&self, served: &mut Served, request: &Request, is_first: bool) {
        served.object = weft_live::object_of(request);
        if is_first {
            self.live.borrow_mut().asked(served.op, served.client, served.object);
        }
    }

    /// The request may wait for long: dashboards see it.
    pub fn list(&self, served: &mut Served) {
        if served.ticket.is_none() {
            served.ticket = Some(self.live.borrow_mut().in_flight.begin(served.op, served.client, served.object, served.came));
        }
    }

    /// Such a request is looked at again, or another one has taken its place.
    pub(crate) fn unlist(&self, served: &mut Served) {
        if let Some(ticket) = served.ticket.take() {
            self.live.borrow_mut().in_flight.end(ticket);
        }
    }

    /// A client was given bytes of a file, or has written them.
    pub fn moved(&self, served: &Served, read_bytes: u64, written_bytes: u64) {
        let mut live = self.live.borrow_mut();
        if read_bytes > 0 {
            live.read(served.client, served.object, read_bytes);
        }
        if written_bytes > 0 {
            live.written(served.client, served.object, written_bytes);
        }
    }

    /// The request is done, whoever is told.
    fn ended(&self, served: &mut Served, is_error: bool, now: Nanos) {
        let mut live = self.live.borrow_mut();
        match served.ticket.take() {
            Some(ticket) => live.ended(ticket, is_error, now),
            None => live.answered(served.op, is_error, now.since(served.came)),
        }
    }

    /// The answer leaves.
    #[inline]
    pub fn answer(&self, mut served: Served, peer: PeerId, frame: Frame, now: Nanos) {
        self.ended(&mut served, frame.header.status != 0, now);
        served.trace.leave();
        self.reply(peer, frame);
    }
}
