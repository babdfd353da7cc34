//! The server: its parts, and the loop of turns.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use weft_base::{ClientId, FastMap, Handle, MILLISECOND, Nanos, Payload, Result, Status};
use weft_call::Caller;
use weft_journal::{JournalError, Lsn, Superblock};
use weft_live::{Live, Ticket};
use weft_namespace::{Admission, Change, Context, OpenChange, Record, State};
use weft_rt::{Arrival, Event, FaultPoint, PeerId, ServerRuntime, Work, race};
use weft_serving::{Introduction, is_for_strangers};
use weft_trace::event::served;
use weft_trace::{OpenLadder, ladder_since, request_key};
use weft_wire::handshake::ANY_SERVER;
use weft_wire::ops::{CreateReply, FileState, OpenReply, TxId};
use weft_wire::{Frame, Header, Op, Request, Rights, Wire};

use crate::engine::{Engine, Room};
use crate::ops::Step;
use crate::sessions::Sessions;
use crate::stats::Counters;
use crate::{MetaServerConfig, MetaServerError};

/// Requests that wait for a lock, at most.
const PARKED_MAX: usize = 4096;
/// How long a request waits for a lock before it is answered "busy", in nanoseconds.
const PARK_NS: u64 = 500 * MILLISECOND;
/// The pause before a commit that met a full disk is tried again, in nanoseconds.
const COMMIT_RETRY_NS: u64 = 100 * MILLISECOND;

/// Which start of which store this is.
pub(crate) struct Life {
    /// Counts the starts.
    pub(crate) boot: u32,
    /// Of the engine `journal`.
    pub(crate) superblock: Option<Superblock>,
}

/// A metadata server, shared by its flows.
pub(crate) struct Server<R: ServerRuntime, E: Engine> {
    pub(crate) rt: R,
    pub(crate) engine: E,
    pub(crate) config: MetaServerConfig,
    pub(crate) boot: u32,
    pub(crate) started: Nanos,
    pub(crate) state: RefCell<State>,
    pub(crate) sessions: RefCell<Sessions>,
    /// Clients from before a restart that have not told yet what they have open.
    pub(crate) untold: RefCell<BTreeSet<ClientId>>,
    /// Asks other servers.
    pub(crate) caller: Caller<R>,
    /// Transactions that this server coordinates and has not decided.
    pub(crate) undecided: RefCell<BTreeSet<TxId>>,
    /// Prepared parts and since when they wait.
    pub(crate) in_doubt: RefCell<BTreeMap<TxId, Nanos>>,
    pub(crate) counters: RefCell<Counters>,
    /// What dashboards ask for.
    pub(crate) live: RefCell<Live>,
    /// There are files to be removed for good.
    pub(crate) reap: Event,
    /// Files whose writers were lost are being asked about.
    pub(crate) settling: Cell<bool>,
    /// Files whose data servers are being told of a time that was set, and by how many flows.
    pub(crate) telling: RefCell<FastMap<Handle, u32>>,
    pub(crate) checkpointing: Cell<bool>,
    pub(crate) flushing: Cell<bool>,
    pub(crate) next_tx: Cell<u64>,
    /// A flow has appended something, or a lock is free: the loop must make a turn.
    wake: Event,
    /// Locks were released since requests were last taken from `parked`.
    released: Cell<bool>,
    parked: RefCell<Vec<Parked>>,
    /// When the turn began.
    turn_at: Cell<Nanos>,
    /// Requests that were here when the turn began: those that it took, and those that waited.
    pub(crate) queued: Cell<u32>,
    /// The object of the request that is being looked at.
    object: Cell<Handle>,
    /// When the turn began, by the clock of trace records.
    turn_began: Cell<u64>,
    /// Until when, by the same clock, the time of this turn is in the records of requests: there the work on the next one begins.
    worked_until: Cell<u64>,
    /// Of the request that is being executed: what it did before (a phase of its trace record), and since when.
    before_work: Cell<(usize, u64)>,
    /// When the load was recorded last.
    load_sampled: Cell<Nanos>,
    /// Who waits for the answers of flows.
    in_flight: RefCell<BTreeMap<Flight, Vec<(PeerId, Header)>>>,
    /// Whom it has met.
    pub(crate) introduction: Introduction,
    failure: RefCell<Option<JournalError>>,
    is_to_stop: Cell<bool>,
    encoded: RefCell<Vec<u8>>,
}

/// The load is recorded at most so often, in nanoseconds.
const LOAD_INTERVAL_NS: u64 = 10 * MILLISECOND;

/// A request that met a lock.
struct Parked {
    peer: PeerId,
    frame: Frame,
    wait: Wait,
    /// The answer if it waits in vain.
    status: Status,
    ticket: Ticket,
}

/// How long a request has waited for a lock, and may.
#[derive(Clone, Copy)]
struct Wait {
    until: Nanos,
    /// When it came.
    came: Nanos,
    /// Since when, by the clock of trace records.
    since: u64,
}

pub(crate) type Shared<R, E> = Rc<Server<R, E>>;
/// Replies with the trace records of their requests, and when these came.
type Replies = Vec<(PeerId, Frame, OpenLadder, Nanos)>;
/// A request by client and sequence.
type Flight = (ClientId, u64);
type Kept = std::result::Result<(), JournalError>;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    pub(crate) fn new(rt: R, engine: E, config: MetaServerConfig, life: Life, state: State) -> Shared<R, E> {
        let (client, incarnation) = config.identity.unwrap_or((ClientId(rt.random()), 1));
        let now = rt.now();
        let mut sessions = Sessions::new(config.session_grace_ns, config.reply_retention_ns);
        let untold = state.reply_clients().into_iter().collect();
        state.reply_clients().into_iter().for_each(|client| sessions.recovered(client, now));
        // Parts from before a restart are asked about at once.
        let in_doubt = state.prepared_transactions().into_iter().map(|tx| (tx, Nanos(0))).collect();
        Rc::new(Server {
            caller: Caller::new(rt.clone(), client, incarnation),
            rt,
            engine,
            boot: life.boot,
            started: now,
            state: RefCell::new(state),
            sessions: RefCell::new(sessions),
            untold: RefCell::new(untold),
            undecided: RefCell::default(),
            in_doubt: RefCell::new(in_doubt),
            counters: RefCell::default(),
            live: RefCell::new(Live::new(now)),
            reap: Event::new(),
            settling: Cell::new(false),
            telling: RefCell::default(),
            checkpointing: Cell::new(false),
            flushing: Cell::new(false),
            next_tx: Cell::new(1),
            wake: Event::new(),
            released: Cell::new(false),
            parked: RefCell::default(),
            turn_at: Cell::new(now),
            queued: Cell::new(0),
            object: Cell::default(),
            turn_began: Cell::new(0),
            worked_until: Cell::new(0),
            before_work: Cell::new((served::QUEUE, 0)),
            load_sampled: Cell::new(Nanos(0)),
            in_flight: RefCell::default(),
            introduction: Introduction::new(life.superblock, config.meets_others),
            failure: RefCell::new(None),
            is_to_stop: Cell::new(false),
            encoded: RefCell::default(),
            config,
        })
    }

    /// Makes turns until the journal fails, or the server is asked to stop: then everything is on stable storage.
    pub(crate) async fn serve(self: &Rc<Self>) -> std::result::Result<(), MetaServerError> {
        self.rt.spawn(Rc::clone(self).stop_flow());
        let mut arrivals = Vec::new();
        loop {
            let wake = self.wake.wait();
            if let Some(error) = self.failure.borrow().clone() {
                return Err(error.into());
            }
            if self.is_to_stop.get() {
                return self.engine.bring_to_rest().await.map_err(MetaServerError::from);
            }
            if self.has_work() {
                race(self.rt.receive(&mut arrivals), std::future::ready(())).await;
            } else {
                race(self.rt.receive(&mut arrivals), wake).await;
            }
            if let Err(error) = self.turn(&mut arrivals).await {
                return Err(error.into());
            }
        }
    }

    async fn stop_flow(self: Rc<Self>) {
        self.rt.stop_requested().await;
        self.is_to_stop.set(true);
        self.wake.notify();
    }

    fn has_work(&self) -> bool {
        self.engine.has_pending() || (self.released.get() && !self.parked.borrow().is_empty())
    }

    async fn turn(self: &Rc<Self>, arrivals: &mut Vec<Arrival>) -> Kept {
        let _turn = weft_trace::span(weft_trace::event::META_TURN);
        self.turn_began.set(weft_trace::now());
        let now = self.rt.now();
        self.turn_at.set(now);
        {
            let mut live = self.live.borrow_mut();
            live.turn(now);
            self.queued.set((arrivals.len() + live.in_flight.len()) as u32);
        }
        if !arrivals.is_empty() {
            self.rt.pass(FaultPoint::ServerQueue).await;
        }
        self.make_room().await?;
        self.sample_load(arrivals.len());
        self.worked_until.set(weft_trace::now());
        let mut replies = Vec::with_capacity(arrivals.len());
        if self.released.replace(false) {
            for parked in self.parked.take() {
                self.live.borrow_mut().in_flight.end(parked.ticket);
                self.handle(parked.peer, parked.frame, Some(parked.wait), &mut replies).await;
            }
        }
        let had_arrivals = !arrivals.is_empty();
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Request { peer, frame } => {
                    self.counters.borrow_mut().requests += 1;
                    self.handle(peer, frame, None, &mut replies).await;
                    if self.engine.is_full() {
                        self.commit().await?;
                        self.send(&mut replies);
                        self.make_room().await?;
                    }
                }
                Arrival::Connected { peer, client, .. } => {
                    self.live.borrow_mut().clients.connected(client, self.rt.peer_name(peer));
                    self.sessions.borrow_mut().connected(client);
                }
                Arrival::Disconnected { client, .. } => {
                    self.live.borrow_mut().clients.disconnected(client);
                    self.sessions.borrow_mut().disconnected(client, self.rt.now());
                }
            }
        }
        self.commit().await?;
        self.counters.borrow_mut().turns += u64::from(had_arrivals);
        self.send(&mut replies);
        self.look_after();
        Ok(())
    }

    /// Records how much there is to do, now and then.
    fn sample_load(&self, arrivals: usize) {
        if arrivals == 0 || !weft_trace::is_on(weft_trace::event::LOAD) {
            return;
        }
        let now = self.rt.now();
        if now.since(self.load_sampled.get()) < LOAD_INTERVAL_NS {
            return;
        }
        self.load_sampled.set(now);
        let waiting = self.in_flight.borrow().len() + self.parked.borrow().len();
        let usage = self.rt.usage();
        weft_trace::counters(weft_trace::event::LOAD, [arrivals as u64, waiting as u64, 0, usage.received_bytes, usage.sent_bytes]);
    }

    /// Before changes are made. Whoever needs room that is not there is refused; a full disk is no reason to stop.
    async fn make_room(&self) -> Kept {
        if self.engine.room() == Room::Plenty {
            return Ok(());
        }
        match self.engine.ensure_room().await {
            Err(JournalError::NoSpace) => Ok(()),
            result => result,
        }
    }

    fn send(&self, replies: &mut Replies) {
        if replies.is_empty() {
            return;
        }
        let (committed, now) = (weft_trace::now(), self.rt.now());
        self.worked_until.set(committed);
        let mut live = self.live.borrow_mut();
        for (peer, frame, mut traced, came) in replies.drain(..) {
            traced.phase(served::JOURNAL, committed);
            traced.leave();
            live.answered(frame.header.op, frame.header.status != 0, now.since(came));
            self.rt.reply(peer, frame);
        }
    }

    async fn commit(&self) -> Kept {
        loop {
            match self.engine.commit().await {
                Err(JournalError::NoSpace) => self.rt.sleep_until(self.rt.now() + COMMIT_RETRY_NS).await,
                result => return result,
            }
        }
    }

    /// The trace record of a request that is begun now, or was parked since then.
    fn traced(&self, header: &Header, parked_since: Option<u64>) -> OpenLadder {
        let (phase, since) = parked_since.map_or((served::QUEUE, self.turn_began.get()), |since| (served::LOCK, since));
        self.before_work.set((phase, since));
        let mut traced = ladder_since(weft_trace::event::meta_request(header.op), since);
        if traced.is_on() {
            traced.request(request_key(header.request, header.server), header.op, self.config.server.0);
            traced.phase(phase, self.worked_until.get());
        }
        traced
    }

    /// The trace record of the request that is being executed, and whose work goes on in a flow.
    fn traced_in_flow(&self, header: &Header) -> OpenLadder {
        let (phase, since) = self.before_work.get();
        let mut traced = ladder_since(weft_trace::event::meta_request(header.op), since);
        if traced.is_on() {
            traced.request(request_key(header.request, header.server), header.op, self.config.server.0);
            traced.phase(phase, self.worked_until.get());
            traced.phase(served::CPU, weft_trace::now());
        }
        traced
    }

    /// Executes one request, or starts the flow that does.
    async fn handle(self: &Rc<Self>, peer: PeerId, frame: Frame, parked: Option<Wait>, replies: &mut Replies) {
        let mut traced = self.traced(&frame.header, parked.map(|wait| wait.since));
        let came = parked.map_or(self.turn_at.get(), |wait| wait.came);
        self.rt.cpu(Work::Request).await;
        self.rt.pass(FaultPoint::ServerCpu).await;
        let header = frame.header;
        if header.op == Op::TxPrepare.code() {
            self.rt.pass(FaultPoint::TxPrepare).await;
        }
        let step = self.step(peer, &header, frame.body.clone(), parked.is_none());
        if let Ok(Step::Answer(_, changes)) = &step {
            for _ in 0..*changes {
                self.rt.cpu(Work::Record).await;
            }
        }
        let worked_until = weft_trace::now();
        self.worked_until.set(worked_until);
        traced.phase(served::CPU, worked_until);
        match step {
            Ok(Step::Answer(body, _)) => {
                replies.push((peer, self.reply_frame(&header, Ok(body)), traced, came));
            }
            Ok(Step::Later) => traced.forget(),
            Err(status) if may_wait(status) && self.park(peer, frame, parked, status) => traced.forget(),
            Err(status) => {
                traced.result(status.code());
                if status.is_trouble() {
                    weft_trace::trouble();
                }
                replies.push((peer, self.reply_frame(&header, Err(status)), traced, came));
            }
        }
    }

    fn step(self: &Rc<Self>, peer: PeerId, header: &Header, body: Bytes, is_first: bool) -> Result<Step> {
        // Who knows only an address asks whoever is there for the map.
        let for_anybody = header.server == ANY_SERVER && header.op == Op::GetMap.code();
        if header.server != self.config.server && !for_anybody {
            return Err(Status::WrongServer);
        }
        if !self.introduction.is_complete() && !is_for_strangers(header.op) {
            return Err(Status::NotReady);
        }
        let changes = Op::from_code(header.op).is_some_and(Op::changes);
        if changes {
            let admission = self.state.borrow_mut().admit(header.request, header.finished_below())?;
            if let Admission::Answered(answer) = admission {
                return self.answer_again(peer, header, body, answer);
            }
            if let Some(waiting) = self.in_flight.borrow_mut().get_mut(&flight(header)) {
                // Once for each connection.
                waiting.retain(|(other, _)| *other != peer);
                waiting.push((peer, *header));
                return Ok(Step::Later);
            }
        }
        let request = Request::decode(header.op, body)?;
        self.object.set(weft_live::object_of(&request));
        if is_first {
            self.live.borrow_mut().asked(header.op, header.request.client, self.object.get());
        }
        if changes {
            self.check_room(&request)?;
        }
        let result = self.execute(peer, header, request);
        if changes && let Err(status) = &result {
            self.state.borrow_mut().remember(header.request, header.finished_below(), Err(*status));
        }
        result
    }

    /// A repeated request is answered as before. What another server relies on must be durable before it hears of it; a truncation is
    /// answered when the file is cut, a time that was set when the data servers know; and a file that was opened before a restart of this server is open again.
    fn answer_again(self: &Rc<Self>, peer: PeerId, header: &Header, body: Bytes, answer: Result<Bytes>) -> Result<Step> {
        let answer = answer?;
        let Some(op) = Op::from_code(header.op) else { return Ok(Step::Answer(answer, 0)) };
        match op {
            Op::TxPrepare | Op::TxDecide => return Ok(self.answer_when_durable(peer, header, answer)),
            Op::SetAttr | Op::Open => {
                let handle = match op {
                    Op::SetAttr => FileState::from_bytes(answer.clone())?.attr.handle,
                    _ => OpenReply::from_bytes(answer.clone())?.state.attr.handle,
                };
                if self.state.borrow().is_truncating(handle) || self.telling.borrow().contains_key(&handle) {
                    return Err(Status::Busy);
                }
            }
            _ => {}
        }
        if matches!(op, Op::Create | Op::Open) && self.state.borrow().is_in_grace() {
            self.open_again(header, Request::decode(header.op, body)?, &answer)?;
        }
        Ok(Step::Answer(answer, 0))
    }

    /// The table of open files did not survive the restart, the answer did, and its client could not yet tell what it has open.
    fn open_again(&self, header: &Header, request: Request, answer: &Bytes) -> Result<()> {
        let (handle, rights, sequence) = match request {
            Request::Create(request) => {
                let reply = CreateReply::from_bytes(answer.clone())?;
                let rights = if reply.capability.is_some() { request.open } else { Rights::default() };
                (reply.handle, rights, request.open_sequence)
            }
            Request::Open(request) => (request.handle, request.rights, request.open_sequence),
            _ => return Ok(()),
        };
        let mut state = self.state.borrow_mut();
        if rights != Rights::default() && state.peek(handle).is_some() {
            state.apply_open(OpenChange::Open { client: header.request.client, handle, rights, sequence });
        }
        Ok(())
    }

    /// Before a changing request is executed. Opening and closing write nothing where nobody writes to the file, which shows only when they are
    /// prepared: see [`Server::check_room_for`].
    fn check_room(&self, request: &Request) -> Result<()> {
        match request {
            Request::Open(open) if !open.truncate => Ok(()),
            Request::Close(_) | Request::CloseMany(_) => Ok(()),
            _ => self.check_room_of(request.op()),
        }
    }

    /// When such a request is prepared: is there room for its record?
    pub(crate) fn check_room_for(&self, op: Op, record: &Record) -> Result<()> {
        if record.is_volatile() { Ok(()) } else { self.check_room_of(op) }
    }

    fn check_room_of(&self, op: Op) -> Result<()> {
        let frees =
            matches!(op, Op::Unlink | Op::Rmdir | Op::Close | Op::CloseMany | Op::RemoveXattr | Op::SetAttr | Op::TxPrepare | Op::TxDecide);
        match self.engine.room() {
            Room::Plenty => Ok(()),
            Room::Low if frees => Ok(()),
            // The coordinator must go on asking.
            _ if op == Op::TxDecide => Err(Status::Overloaded),
            _ => Err(Status::NoSpace),
        }
    }

    /// Somebody has closed a file: requests that wait for that are looked at again.
    pub(crate) fn closed(&self) {
        if !self.parked.borrow().is_empty() {
            self.released();
        }
    }

    /// Keeps a request that met a lock until locks are released. False: answer it.
    fn park(&self, peer: PeerId, frame: Frame, before: Option<Wait>, status: Status) -> bool {
        let now = self.rt.now();
        let wait = before.unwrap_or_else(|| Wait { until: now + PARK_NS, came: self.turn_at.get(), since: weft_trace::now() });
        let mut parked = self.parked.borrow_mut();
        if now >= wait.until || parked.len() >= PARKED_MAX {
            return false;
        }
        // A repetition takes the place of the first.
        let request = frame.header.request;
        let mut live = self.live.borrow_mut();
        for replaced in parked.extract_if(.., |other| other.frame.header.request == request) {
            live.in_flight.end(replaced.ticket);
        }
        let ticket = live.in_flight.begin(frame.header.op, request.client, self.object.get(), wait.came);
        parked.push(Parked { peer, frame, wait, status, ticket });
        true
    }

    /// Answers parked requests that have waited too long.
    pub(crate) fn expire_parked(&self) {
        let now = self.rt.now();
        let expired: Vec<Parked> = self.parked.borrow_mut().extract_if(.., |parked| parked.wait.until <= now).collect();
        for parked in expired {
            self.worked_until.set(weft_trace::now());
            self.traced(&parked.frame.header, Some(parked.wait.since)).leave();
            self.live.borrow_mut().ended(parked.ticket, true, now);
            self.rt.reply(parked.peer, self.reply_frame(&parked.frame.header, Err(parked.status)));
        }
    }

    // ---- For operations and flows --------------------------------------------------------------------------------------------

    /// The circumstances of a request of this client.
    pub(crate) fn context(&self, client: ClientId) -> Context<'_> {
        Context { client, now: self.rt.wall(), key: &self.config.key, capability_ns: self.config.capability_ns }
    }

    /// Journals and applies a record.
    pub(crate) fn change(&self, record: &mut Record) -> Lsn {
        if !record.is_volatile() {
            let mut encoded = self.encoded.borrow_mut();
            encoded.clear();
            record.encode(&mut encoded);
            self.engine.append(&encoded);
        }
        self.state.borrow_mut().apply(record);
        self.engine.last()
    }

    /// As [`Server::change`], outside a turn: sees to it that a turn commits it.
    pub(crate) fn change_in_flow(&self, record: &mut Record) -> Lsn {
        let lsn = self.change(record);
        self.wake.notify();
        lsn
    }

    /// Completes the record of a changing request with its answer, journals and applies it.
    pub(crate) fn change_and_answer(&self, header: &Header, record: &mut Record, body: &Bytes) -> Lsn {
        let (request, finished_below) = (header.request, header.finished_below());
        if record.is_volatile() {
            self.state.borrow_mut().remember(request, finished_below, Ok(body.clone()));
        } else {
            record.changes.push(Change::reply(request, finished_below, body.clone()));
        }
        self.change(record)
    }

    /// Sees to it that a turn commits what was appended.
    pub(crate) fn wake_up(&self) {
        self.wake.notify();
    }

    /// Locks were released: parked requests are looked at again.
    pub(crate) fn released(&self) {
        self.released.set(true);
        self.wake.notify();
    }

    /// Executes a request in a flow of its own; repetitions of it meanwhile wait for the same answer.
    pub(crate) fn start_flow(self: &Rc<Self>, peer: PeerId, header: &Header, flow: impl Future<Output = Result<Bytes>> + 'static) -> Step {
        self.in_flight.borrow_mut().insert(flight(header), vec![(peer, *header)]);
        let (this, header, ticket) = (Rc::clone(self), *header, self.under_way(header));
        let mut traced = self.traced_in_flow(&header);
        let inside = traced.context();
        self.rt.spawn(async move {
            let result = weft_trace::within(inside, flow).await;
            traced.phase(served::LOCK, weft_trace::now());
            if let Err(status) = &result {
                this.state.borrow_mut().remember(header.request, header.finished_below(), Err(*status));
            }
            let committed = this.settle().await;
            traced.phase(served::JOURNAL, weft_trace::now());
            this.ended(ticket, result.is_err());
            let waiting = this.in_flight.borrow_mut().remove(&flight(&header)).unwrap_or_default();
            if committed {
                // Its record goes with the first answer; others are for repetitions.
                traced.leave();
                for (peer, header) in waiting {
                    this.rt.reply(peer, this.reply_frame(&header, result.clone()));
                }
            }
        });
        Step::Later
    }

    /// Answers a question in a flow of its own.
    pub(crate) fn start_question(
        self: &Rc<Self>,
        peer: PeerId,
        header: &Header,
        flow: impl Future<Output = Result<Bytes>> + 'static,
    ) -> Step {
        let (this, header, ticket) = (Rc::clone(self), *header, self.under_way(header));
        let mut traced = self.traced_in_flow(&header);
        let inside = traced.context();
        self.rt.spawn(async move {
            let result = weft_trace::within(inside, flow).await;
            traced.phase(served::LOCK, weft_trace::now());
            traced.leave();
            this.ended(ticket, result.is_err());
            this.rt.reply(peer, this.reply_frame(&header, result));
        });
        Step::Later
    }

    /// Answers when everything that has been decided so far survives a power cut (as far as that is promised).
    pub(crate) fn answer_when_durable(self: &Rc<Self>, peer: PeerId, header: &Header, body: Bytes) -> Step {
        let (this, header, lsn) = (Rc::clone(self), *header, self.engine.last());
        let (mut traced, ticket) = (self.traced_in_flow(&header), self.under_way(&header));
        self.rt.spawn(async move {
            if this.kept(this.engine.make_durable(lsn).await) {
                traced.phase(served::JOURNAL, weft_trace::now());
                traced.leave();
                this.ended(ticket, false);
                this.rt.reply(peer, this.reply_frame(&header, Ok(body)));
            }
        });
        Step::Later
    }

    /// Notes that the request that is being looked at goes on in a flow.
    fn under_way(&self, header: &Header) -> Ticket {
        self.live.borrow_mut().in_flight.begin(header.op, header.request.client, self.object.get(), self.turn_at.get())
    }

    /// Such a request is answered.
    fn ended(&self, ticket: Ticket, is_error: bool) {
        self.live.borrow_mut().ended(ticket, is_error, self.rt.now());
    }

    /// Waits until everything that has been decided so far is committed: an answer may tell it. False if that failed.
    pub(crate) async fn settle(&self) -> bool {
        self.wake.notify();
        self.kept(self.engine.wait_committed(self.engine.last()).await)
    }

    /// Notes a failure of the journal, which ends the server.
    pub(crate) fn kept(&self, result: Kept) -> bool {
        if let Err(error) = &result {
            self.failure.borrow_mut().get_or_insert_with(|| error.clone());
            self.wake.notify();
        }
        result.is_ok()
    }

    fn reply_frame(&self, header: &Header, result: Result<Bytes>) -> Frame {
        let mut frame = Frame::reply(header, result, Payload::EMPTY);
        frame.header.server_boot = self.boot;
        frame
    }
}

/// Refusals of which the reason may be gone soon.
fn may_wait(status: Status) -> bool {
    matches!(status, Status::Busy | Status::SharedAppend)
}

fn flight(header: &Header) -> Flight {
    (header.request.client, header.request.sequence)
}
