//! What every server has: who it is, the time of its turn, its counters, and why it stops.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use weft_base::{ClusterMap, MILLISECOND, Nanos, Payload, Result, ServerId, Status};
use weft_journal::Superblock;
use weft_live::Live;
use weft_rt::{Arrival, Event, PeerId, Runtime, ServerRuntime};
use weft_trace::event::{LOAD, LOAD_DISK};
use weft_wire::handshake::ANY_SERVER;
use weft_wire::ops::TraceService;
use weft_wire::{Frame, Header, Op, Request, Wire};

use crate::parking::Parking;
use crate::{Durability, Engine, Introduction, Served, Service, is_for_strangers};

/// The load is recorded at most so often, in nanoseconds.
const LOAD_INTERVAL_NS: u64 = 10 * MILLISECOND;

/// Who a server is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its number.
    pub server: ServerId,
    /// Its name in messages for people.
    pub name: String,
    /// The file system.
    pub map: ClusterMap,
    /// Counts its starts.
    pub boot: u32,
    /// What keeps its state.
    pub engine: Engine,
    /// What an acknowledged change has survived.
    pub durability: Durability,
    /// What executes commands about the recording of traces.
    pub trace: Option<TraceService>,
}

/// What there is to do at a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Requests that wait, those not counted whose answer waits for stable storage.
    pub waiting: u64,
    /// Bytes that were answered and are not written.
    pub answered_bytes: u64,
    /// Gauges of a disk: requests and their bytes that wait, operations under way, operations that are done and their bytes.
    pub disk: Option<[u64; 5]>,
}

/// What a server has in common with others. Flows share it by reference.
pub struct Shell<S: Service> {
    rt: S::Rt,
    identity: Identity,
    started: Nanos,
    /// Whom the server has met.
    pub introduction: Introduction,
    pub(crate) live: RefCell<Live>,
    pub(crate) parking: Parking,
    pub(crate) turn: Turn,
    counts: Counts,
    load_sampled: Cell<Nanos>,
    pub(crate) woken: Event,
    is_to_stop: Cell<bool>,
    failure: RefCell<Option<S::Failure>>,
}

/// The times of a turn.
pub(crate) struct Turn {
    /// When it began.
    pub(crate) at: Cell<Nanos>,
    /// The same in ticks of the trace.
    pub(crate) began: Cell<u64>,
    /// Until when, in ticks, its time is in the records of requests: there the work on the next one begins.
    pub(crate) worked_until: Cell<u64>,
}

/// Counters since the start, and gauges.
#[derive(Default)]
struct Counts {
    requests: Cell<u64>,
    /// Turns that had something to do.
    turns: Cell<u64>,
    /// Requests that were here when the turn began.
    queued: Cell<u32>,
    /// Answers that wait for stable storage.
    waiting: Cell<u64>,
}

impl<S: Service> Shell<S> {
    /// Of a server that starts now.
    pub fn new(rt: S::Rt, identity: Identity, superblock: Option<Superblock>, meets_others: bool) -> Shell<S> {
        let now = rt.now();
        Shell {
            rt,
            identity,
            started: now,
            introduction: Introduction::new(superblock, meets_others),
            live: RefCell::new(Live::new(now)),
            parking: Parking::default(),
            turn: Turn { at: Cell::new(now), began: Cell::new(0), worked_until: Cell::new(0) },
            counts: Counts::default(),
            load_sampled: Cell::new(Nanos(0)),
            woken: Event::new(),
            is_to_stop: Cell::new(false),
            failure: RefCell::new(None),
        }
    }

    /// The world below.
    pub fn rt(&self) -> &S::Rt {
        &self.rt
    }

    /// Who the server is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// When it was started.
    pub fn started(&self) -> Nanos {
        self.started
    }

    // ---- Waking and ending -----------------------------------------------------------------------------------------------------

    /// Sees to it that there is a turn.
    pub fn wake(&self) {
        self.woken.notify();
    }

    /// The first failure, which ends the server.
    pub fn failure(&self) -> Option<S::Failure> {
        self.failure.borrow().clone()
    }

    /// True if no reply leaves any more that was not decided before.
    pub fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    /// Ends the server, see [`Service::fail`].
    pub fn note_failure(&self, failure: S::Failure) {
        self.failure.borrow_mut().get_or_insert(failure);
        self.wake();
    }

    pub(crate) fn is_to_stop(&self) -> bool {
        self.is_to_stop.get()
    }

    pub(crate) fn ask_to_stop(&self) {
        self.is_to_stop.set(true);
        self.wake();
    }

    // ---- A turn ----------------------------------------------------------------------------------------------------------------

    pub(crate) fn begin_turn(&self, arrived: usize) {
        let now = self.rt.now();
        self.turn.began.set(weft_trace::now());
        self.turn.at.set(now);
        let mut live = self.live.borrow_mut();
        live.turn(now);
        self.counts.queued.set((arrived + live.in_flight.len()) as u32);
    }

    pub(crate) fn count_turn(&self) {
        self.counts.turns.set(self.counts.turns.get() + 1);
    }

    /// Until when, in ticks of the trace, the time of this turn belongs to requests.
    pub fn worked_until(&self) -> u64 {
        self.turn.worked_until.get()
    }

    /// The time until now belongs to the request that was worked on.
    pub fn work_ends(&self) -> u64 {
        let ticks = weft_trace::now();
        self.turn.worked_until.set(ticks);
        ticks
    }

    /// The request among what arrives; connections are noted.
    #[inline]
    pub fn request(&self, server: &S, arrival: Arrival) -> Option<(PeerId, Frame)> {
        match arrival {
            Arrival::Request { peer, frame } => {
                self.counts.requests.set(self.counts.requests.get() + 1);
                return Some((peer, frame));
            }
            Arrival::Connected { peer, client, incarnation } => {
                self.live.borrow_mut().clients.connected(client, self.rt.peer_name(peer));
                server.connected(client, incarnation);
            }
            Arrival::Disconnected { client, .. } => {
                self.live.borrow_mut().clients.disconnected(client);
                server.disconnected(client, self.turn.at.get());
            }
        }
        None
    }

    /// Judges a request by its header.
    ///
    /// # Errors
    /// [`Status::WrongServer`]; [`Status::NotReady`] while others do not know this server.
    #[inline]
    pub fn admit(&self, header: &Header) -> Result<()> {
        // Who knows only an address asks whoever is there for the map.
        let for_anybody = header.server == ANY_SERVER && header.op == Op::GetMap.code();
        if header.server != self.identity.server && !for_anybody {
            return Err(Status::WrongServer);
        }
        if !self.introduction.is_complete() && !is_for_strangers(header.op) {
            return Err(Status::NotReady);
        }
        Ok(())
    }

    // ---- Answers ---------------------------------------------------------------------------------------------------------------

    /// A reply leaves.
    #[inline]
    pub fn reply(&self, peer: PeerId, mut frame: Frame) {
        frame.header.server_boot = self.identity.boot;
        self.rt.reply(peer, frame);
    }

    /// The answer to a request that needs nothing but who the server is; `None`: it is another one.
    pub fn answer_of_any(&self, request: &Request) -> Option<Result<Bytes>> {
        let trace = || self.identity.trace.ok_or(Status::NotSupported);
        match request {
            Request::GetMap(_) => Some(Ok(self.identity.map.to_bytes())),
            Request::Trace(request) => Some(trace().map(|trace| (trace.command)(request).to_bytes())),
            Request::TraceRead(request) => Some(trace().and_then(|trace| Ok((trace.read)(request)?.to_bytes()))),
            _ => None,
        }
    }

    /// The frame of a reply without bulk data.
    #[inline]
    pub fn frame(header: &Header, served: &mut Served, result: Result<Bytes>) -> Frame {
        if let Err(status) = &result {
            served.failed(*status);
        }
        Frame::reply(header, result, Payload::EMPTY)
    }

    pub(crate) fn answer_waits(&self, more: bool) {
        let waiting = self.counts.waiting.get();
        self.counts.waiting.set(if more { waiting + 1 } else { waiting - 1 });
    }

    // ---- What is told about the server -----------------------------------------------------------------------------------------

    /// Records how much there is to do, now and then.
    pub(crate) fn sample_load(&self, server: &S, arrived: usize) {
        if arrived == 0 || !(weft_trace::is_on(LOAD) || weft_trace::is_on(LOAD_DISK)) {
            return;
        }
        let now = self.rt.now();
        if now.since(self.load_sampled.get()) < LOAD_INTERVAL_NS {
            return;
        }
        self.load_sampled.set(now);
        let (load, usage) = (server.load(), self.rt.usage());
        let waiting = load.waiting + self.parking.len() as u64 + self.counts.waiting.get();
        weft_trace::counters(LOAD, [arrived as u64, waiting, load.answered_bytes, usage.received_bytes, usage.sent_bytes]);
        if let Some(disk) = load.disk {
            weft_trace::counters(LOAD_DISK, disk);
        }
    }

    /// Requests received, and turns that had something to do.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.counts.requests.get(), self.counts.turns.get())
    }

    /// Requests that were here when the turn began.
    pub(crate) fn queued(&self) -> u32 {
        self.counts.queued.get()
    }
}
