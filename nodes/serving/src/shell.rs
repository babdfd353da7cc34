//! What every server has: who it is, the time of its turn, its counters, and why it stops.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use weft_base::{ClientId, Handle, MILLISECOND, Nanos, Result, ServerId, Status};
use weft_call::Caller;
use weft_journal::JournalStats;
use weft_live::Live;
use weft_rt::{Disk, PeerId, ServerRuntime, Signal};
use weft_trace::event::{LOAD, LOAD_DISK};
use weft_wire::handshake::ANY_SERVER;
use weft_wire::ops::ServerInfo;
use weft_wire::{Frame, Header, NameKey, Op, Request, Rights};

use crate::access::Peers;
use crate::served::Parking;
use crate::{Durability, Engine, Introduction, Life, Process, ServerError, ServingConfig};

/// The load is recorded at most so often, in nanoseconds.
const LOAD_INTERVAL_NS: u64 = 10 * MILLISECOND;

/// Who a server is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its number.
    pub server: ServerId,
    /// Its name in messages for people.
    pub name: String,
    /// The key of the hash of names.
    pub name_key: NameKey,
    /// Counts its starts.
    pub boot: u32,
    /// What keeps its state.
    pub engine: Engine,
    /// What an acknowledged change has survived; it may be set while the server runs.
    pub durability: Cell<Durability>,
    /// What the process around it does for it.
    pub process: Process,
}

/// What there is to do at a server besides requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerLoad {
    /// Bytes that were answered and are not written.
    pub answered_bytes: u64,
    /// Gauges of a disk: requests and their bytes that wait, operations under way, operations that
    /// are done and their bytes.
    pub disk: Option<[u64; 5]>,
}

/// What a server has in common with others. Flows share it by reference.
pub struct Shell<R> {
    /// The world below.
    pub rt: R,
    /// Who the server is.
    pub identity: Identity,
    /// When it was started.
    pub started: Nanos,
    /// Asks other servers.
    pub caller: Caller<R>,
    /// Whom the server has met, and its cluster map.
    pub introduction: Introduction,
    pub(crate) access: Peers,
    pub(crate) live: RefCell<Live>,
    pub(crate) parking: Parking,
    pub(crate) turn: Turn,
    pub(crate) counts: Counts,
    load_sampled: Cell<Nanos>,
    pub(crate) woken: Signal,
    pub(crate) is_to_stop: Cell<bool>,
    failure: RefCell<Option<ServerError>>,
}

/// The times of a turn.
pub(crate) struct Turn {
    /// When it began.
    pub(crate) at: Cell<Nanos>,
    /// The same in ticks of the trace.
    pub(crate) began: Cell<u64>,
    /// Until when, in ticks, its time is in the records of requests: there the work on the next one
    /// begins.
    pub(crate) worked_until: Cell<u64>,
}

/// Counters since the start, and gauges.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) requests: Cell<u64>,
    /// Turns that had something to do.
    pub(crate) turns: Cell<u64>,
    /// Requests that were here when the turn began.
    pub(crate) queued: Cell<u32>,
    /// How long turns have taken, in nanoseconds.
    pub(crate) busy_ns: Cell<u64>,
}

impl<R: ServerRuntime> Shell<R> {
    /// Of a server that starts now, and is this client where it asks others.
    pub fn new(rt: R, config: &ServingConfig, life: Life, client: (ClientId, u32)) -> Shell<R> {
        let identity = Identity {
            server: config.server,
            name: config.name.clone(),
            name_key: NameKey::of(&config.key, config.map.fs_id),
            boot: life.boot,
            engine: config.engine,
            durability: Cell::new(config.durability),
            process: config.process.clone(),
        };
        let introduction = Introduction::new(&config.map, config.server, life.superblock, config.meets, rt.wall());
        let now = rt.now();
        Shell {
            caller: Caller::new(rt.clone(), client.0, client.1),
            rt,
            identity,
            started: now,
            introduction,
            access: Peers::new(config.key.clone()),
            live: RefCell::new(Live::new(now)),
            parking: Parking::default(),
            turn: Turn { at: Cell::new(now), began: Cell::new(0), worked_until: Cell::new(0) },
            counts: Counts::default(),
            load_sampled: Cell::new(Nanos(0)),
            woken: Signal::new(),
            is_to_stop: Cell::new(false),
            failure: RefCell::new(None),
        }
    }

    // ---- Waking and ending
    // ---------------------------------------------------------------------------------------------

    /// Sees to it that there is a turn.
    pub fn wake(&self) {
        self.woken.notify();
    }

    /// The first failure, which ends the server.
    pub fn failure(&self) -> Option<ServerError> {
        self.failure.borrow().clone()
    }

    /// True if no reply leaves any more that was not decided before.
    pub fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    /// Ends the server, see [`Service::fail`](crate::Service::fail).
    pub fn note_failure(&self, failure: ServerError) {
        self.failure.borrow_mut().get_or_insert(failure);
        self.wake();
    }

    // ---- A turn
    // ---------------------------------------------------------------------------------------------

    pub(crate) fn begin_turn(&self, arrived: usize) {
        let now = self.rt.now();
        assert!(now >= self.turn.at.get(), "the clock of a server never goes back");
        self.turn.began.set(weft_trace::now());
        self.turn.at.set(now);
        let mut live = self.live.borrow_mut();
        live.turn(now);
        self.counts.queued.set((arrived + live.in_flight.len()) as u32);
    }

    /// Ends a turn that had something to do.
    pub(crate) fn end_turn(&self) {
        let Counts { turns, busy_ns, .. } = &self.counts;
        turns.set(turns.get() + 1);
        busy_ns.set(busy_ns.get() + self.rt.now().since(self.turn.at.get()));
    }

    /// How long it has worked in turns since its start, in nanoseconds.
    pub fn busy_ns(&self) -> u64 {
        self.counts.busy_ns.get()
    }

    /// Requests since its start.
    pub fn requests(&self) -> u64 {
        self.counts.requests.get()
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

    /// Judges a request by its header; gives the operation that is asked for.
    ///
    /// # Errors
    /// [`Status::WrongServer`]; [`Status::NotSupported`] for what such a server is not asked;
    /// [`Status::NotReady`] while others do not know this server; [`Status::KeyForbids`] and
    /// [`Status::KeyReadsOnly`] for what the key of the peer does not allow.
    #[inline]
    pub fn admit(&self, peer: PeerId, header: &Header, op: Option<Op>) -> Result<Op> {
        // Who knows only an address asks whoever is there for the map.
        let for_anybody = header.server == ANY_SERVER && op == Some(Op::GetMap);
        if header.server != self.identity.server && !for_anybody {
            return Err(Status::WrongServer);
        }
        let op = op.ok_or(Status::NotSupported)?;
        match op.role() {
            Some(role) if role != self.identity.server.role() => return Err(Status::NotSupported),
            Some(_) if !self.introduction.is_complete() => return Err(Status::NotReady),
            Some(_) | None => {}
        }
        self.access.check_operation(peer, op)?;
        Ok(op)
    }

    /// Reads the body of a request. It asks for no more than the key of the peer allows; `held` is
    /// what the peer has open of a file, as far as this server knows, and whose that is.
    ///
    /// # Errors
    /// As [`Request::of`], and for what the key does not allow.
    #[inline]
    pub fn decode(&self, peer: PeerId, op: Op, body: Bytes, held: impl Fn(Handle) -> (Rights, Option<u32>)) -> Result<Request> {
        match self.access.has_limited() {
            false => Request::of(op, body),
            true => self.access.decode_limited(peer, op, body, held),
        }
    }

    // ---- Answers
    // ---------------------------------------------------------------------------------------------

    /// A reply leaves.
    #[inline]
    pub fn reply(&self, peer: PeerId, mut frame: Frame) {
        frame.header.server_boot = self.identity.boot;
        frame.header.set_map_epoch(self.introduction.epoch());
        self.rt.reply(peer, frame);
    }

    /// Adds to the answer to a request that was executed what a client with a limited key must show
    /// later.
    #[inline]
    pub(crate) fn tell(&self, peer: PeerId, frame: &mut Frame) {
        if self.access.has_limited() {
            self.access.tell(peer, frame);
        }
    }

    // ---- What is told about the server
    // -----------------------------------------------------------------------------------------

    /// Records how much there is to do, now and then.
    pub(crate) fn sample_load(&self, arrived: usize, load: impl FnOnce() -> ServerLoad) {
        if arrived == 0 || !(weft_trace::is_on(LOAD) || weft_trace::is_on(LOAD_DISK)) {
            return;
        }
        let now = self.rt.now();
        if now.since(self.load_sampled.get()) < LOAD_INTERVAL_NS {
            return;
        }
        self.load_sampled.set(now);
        let (load, usage) = (load(), self.rt.usage());
        let waiting = self.live.borrow().in_flight.len() as u64;
        weft_trace::counters(LOAD, [arrived as u64, waiting, load.answered_bytes, usage.received_bytes, usage.sent_bytes]);
        if let Some(disk) = load.disk {
            weft_trace::counters(LOAD_DISK, disk);
        }
    }

    /// What every server says of itself: the beginning of [`Service::info`](crate::Service::info).
    pub fn info(&self, journal: JournalStats) -> ServerInfo {
        let (identity, usage, disk, map) = (&self.identity, self.rt.usage(), self.rt.disk(), self.introduction.map());
        ServerInfo {
            fs_id: map.fs_id,
            fs_name: map.fs_name.clone(),
            server: identity.server,
            name: identity.name.clone(),
            engine: identity.engine.name().into(),
            durability: identity.durability.get().name().into(),
            state: "serving".into(),
            uptime_ms: self.rt.now().since(self.started) / MILLISECOND,
            boot: identity.boot,
            requests: self.counts.requests.get(),
            received_bytes: usage.received_bytes,
            sent_bytes: usage.sent_bytes,
            cpu_us: usage.cpu_us,
            turns: self.counts.turns.get(),
            journal_writes: journal.writes,
            journal_syncs: journal.syncs,
            device: disk.device(),
            ..ServerInfo::default()
        }
    }
}
