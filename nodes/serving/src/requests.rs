//! What trace, live numbers and counters hear of a request, and requests that wait for locks.

use weft_base::{Handle, MILLISECOND, Nanos, Payload};
use weft_rt::{PeerId, ServerRuntime};
use weft_trace::event::request_at;
use weft_trace::request_key;
use weft_wire::{Frame, Header, LeaseScope, Op, Request};

use crate::{Parked, ServedRequest, Shell};

/// Requests that wait for locks, at most.
const PARKED_MAX: usize = 4096;
/// How long a request waits for a lock before it is answered with its refusal, in nanoseconds.
const PARK_NS: u64 = 500 * MILLISECOND;

impl<R: ServerRuntime> Shell<R> {
    /// A request that this turn has taken.
    #[inline]
    pub fn begin(&self, header: &Header) -> ServedRequest {
        self.counts.requests.set(self.counts.requests.get() + 1);
        let op = Op::from_code(header.op);
        let mut trace = weft_trace::staged_span_since(request_at(self.identity.server.role(), op), self.turn.began.get());
        if trace.is_on() {
            trace.request(request_key(header.request, header.server), header.op, self.identity.server.0);
        }
        ServedRequest {
            trace,
            came: self.turn.at.get(),
            op,
            client: header.request.client,
            object: Handle(0),
            ticket: None,
            is_repeated: false,
            leased: LeaseScope::Nothing,
        }
    }

    /// What the request is about is known.
    #[inline]
    pub fn asked(&self, served: &mut ServedRequest, request: &Request, is_first: bool) {
        served.object = request.object();
        if is_first {
            self.live.borrow_mut().asked(served.op, served.client, served.object);
        }
    }

    /// The request may wait for long: dashboards see it.
    pub fn list(&self, served: &mut ServedRequest) {
        if served.ticket.is_none() {
            served.ticket = Some(self.live.borrow_mut().in_flight.begin(served.op, served.client, served.object, served.came));
        }
    }

    /// Such a request is looked at again, or another one has taken its place.
    pub(crate) fn unlist(&self, served: &mut ServedRequest) {
        if let Some(ticket) = served.ticket.take() {
            self.live.borrow_mut().in_flight.end(ticket);
        }
    }

    /// A client was given bytes of a file, or has written them.
    pub fn moved(&self, served: &ServedRequest, read_bytes: u64, written_bytes: u64) {
        let mut live = self.live.borrow_mut();
        if read_bytes > 0 {
            live.read(served.client, served.object, read_bytes);
        }
        if written_bytes > 0 {
            live.written(served.client, served.object, written_bytes);
        }
    }

    /// The request is done, whoever is told.
    #[inline]
    fn ended(&self, served: &mut ServedRequest, is_error: bool, now: Nanos) {
        let mut live = self.live.borrow_mut();
        match served.ticket.take() {
            Some(ticket) => live.ended(ticket, is_error, now),
            None => live.answered(served.op, is_error, now.since(served.came)),
        }
    }

    /// The answer leaves.
    #[inline]
    pub fn answer(&self, mut served: ServedRequest, peer: PeerId, mut frame: Frame, now: Nanos) {
        self.ended(&mut served, frame.header.status != 0, now);
        served.trace.leave();
        // A repetition may name another operation than the one that was executed.
        if !served.is_repeated && served.op == Op::from_code(frame.header.op) {
            self.tell(peer, &mut frame);
        }
        self.reply(peer, frame);
    }

    // ---- Parking
    // ---------------------------------------------------------------------------------------------

    /// Keeps a request that met a lock. Gives it back if it must be answered.
    pub fn park(&self, mut parked: Parked) -> Option<Parked> {
        let now = self.rt.now();
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

    /// Drops the requests of a peer that is gone.
    pub(crate) fn forget_parked(&self, peer: PeerId) {
        let gone: Vec<Parked> = self.parking.parked.borrow_mut().extract_if(.., |parked| parked.peer == peer).collect();
        for Parked { mut served, .. } in gone {
            self.unlist(&mut served);
            served.forget();
        }
    }

    /// Answers those that have waited too long.
    pub fn expire_parked(&self) {
        let now = self.rt.now();
        let is_over = |parked: &mut Parked| parked.until.is_some_and(|until| until <= now);
        let expired: Vec<Parked> = self.parking.parked.borrow_mut().extract_if(.., is_over).collect();
        for Parked { peer, frame, mut served, status, .. } in expired {
            served.waited(self.work_ends());
            self.answer(served, peer, Frame::reply(&frame.header, Err(status), Payload::EMPTY), now);
        }
    }
}
