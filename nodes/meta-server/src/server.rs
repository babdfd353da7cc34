//! The server: its parts, and what it does in a turn.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weft_base::{ClientId, ClusterMap, FastMap, Handle, MILLISECOND, Nanos, ROOT_HANDLE, Status};
use weft_journal::{JournalError, Lsn};
use weft_live::Gauges;
use weft_namespace::{Placement, State};
use weft_rt::{Arrival, Disk, FaultPoint, PeerId, ServerRuntime, Signal, Work};
use weft_serving::{Intake, Life, OutgoingReplies, Parked, ServedRequest, ServerError, ServerLoad, Service, Shell, connection, finish};
use weft_trace::EventId;
use weft_wire::ops::{ServerInfo, TxId};
use weft_wire::{Header, Op};

use crate::container::Contents;
use crate::engine::{Engine, Room};
use crate::holders::Holders;
use crate::loans::Loans;
use crate::ops::{Demand, ProgramLocks, Ways};
use crate::sessions::Sessions;
use crate::step::{Doubt, Step};
use crate::{Durability, MetaServerConfig};

/// The pause before a commit that met a full disk is tried again, in nanoseconds.
const COMMIT_RETRY_NS: u64 = 100 * MILLISECOND;
/// Memory and journal of one inode with its entry, about, in bytes. Extended attributes come on
/// top.
const BYTES_PER_INODE: u64 = 512;

/// Transactions that are not over.
pub(crate) struct Transactions {
    /// This server coordinates them and has not decided.
    pub(crate) undecided: RefCell<BTreeSet<TxId>>,
    /// Prepared parts that wait for a decision.
    pub(crate) in_doubt: RefCell<BTreeMap<TxId, Doubt>>,
    /// The number of the next one.
    pub(crate) next: Cell<u64>,
}

/// Flows beside requests, of which one of a kind runs at a time.
pub(crate) struct Background {
    /// There are files to be removed for good.
    pub(crate) reap: Signal,
    /// Files whose writers were lost are being asked about.
    pub(crate) settling: Cell<bool>,
    /// Files whose data servers are being told of a time that was set, and by how many flows.
    pub(crate) telling: RefCell<FastMap<Handle, u32>>,
    pub(crate) checkpointing: Cell<bool>,
    /// When a checkpoint may be written that perhaps makes room.
    pub(crate) room_next: Cell<Nanos>,
    pub(crate) flushing: Cell<bool>,
    /// The most inodes since freed memory was given back, and how many the last tick has seen.
    pub(crate) inodes: Cell<(u64, u64)>,
    /// Requests for changes that are looked after.
    pub(crate) watchers: Cell<u32>,
    /// Directories whose names go to other servers.
    pub(crate) ways: Ways,
    /// Which directories are asked for.
    pub(crate) demand: Demand,
    pub(crate) contents: Contents,
    /// What users may have.
    pub(crate) loans: Loans,
}

/// What is known of clients.
pub(crate) struct Clients {
    pub(crate) sessions: RefCell<Sessions>,
    /// Those that may believe what they were told.
    pub(crate) holders: Holders,
}

/// A metadata server, shared by its flows.
pub(crate) struct Server<R: ServerRuntime, E: Engine> {
    pub(crate) rt: R,
    pub(crate) shell: Shell<R>,
    pub(crate) engine: E,
    pub(crate) config: MetaServerConfig,
    pub(crate) state: RefCell<State>,
    pub(crate) clients: Clients,
    pub(crate) locks: ProgramLocks,
    pub(crate) transactions: Transactions,
    pub(crate) background: Background,
    /// The request that is being executed, unless a flow goes on with it.
    pub(crate) current: RefCell<Option<ServedRequest>>,
    /// Who waits for the answers of flows.
    pub(crate) in_flight: RefCell<BTreeMap<Requested, Vec<(PeerId, Header)>>>,
    /// The record that is being encoded: its memory is used again.
    pub(crate) encoded: RefCell<Vec<u8>>,
}

pub(crate) type Shared<R, E> = Rc<Server<R, E>>;
/// A request by client and sequence.
pub(crate) type Requested = (ClientId, u64);
pub(crate) type Kept = std::result::Result<(), JournalError>;

pub(crate) fn requested(header: &Header) -> Requested {
    (header.request.client, header.request.sequence)
}

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    pub(crate) fn new(rt: R, engine: E, config: MetaServerConfig, life: Life, mut state: State, contents: Contents) -> Shared<R, E> {
        let client = config.identity.unwrap_or((ClientId(rt.random()), 1));
        let now = rt.now();
        let mut sessions = Sessions::new(config.session_grace_ns, config.reply_retention_ns);
        state.reply_clients().iter().chain(state.lockers()).for_each(|client| sessions.recovered(*client, now));
        // Parts from before a restart are asked about at once.
        let in_doubt = state.prepared_transactions().into_iter().map(|tx| (tx, Doubt::Recovered)).collect();
        let background = Background {
            reap: Signal::new(),
            settling: Cell::new(false),
            telling: RefCell::default(),
            checkpointing: Cell::new(false),
            room_next: Cell::default(),
            flushing: Cell::new(false),
            inodes: Cell::default(),
            watchers: Cell::new(0),
            ways: Ways::default(),
            demand: Demand::new(&config.split, &state, now),
            contents,
            loans: Loans::default(),
        };
        let shell = Shell::new(rt.clone(), &config.serving, life, client);
        // An older number means nothing to anybody.
        let holders = Holders::new(rt.random() as u32, state.holders().iter().copied(), now);
        state.place(Placement::of(&shell.introduction.map()));
        Rc::new(Server {
            shell,
            rt,
            engine,
            state: RefCell::new(state),
            clients: Clients { sessions: RefCell::new(sessions), holders },
            transactions: Transactions { undecided: RefCell::default(), in_doubt: RefCell::new(in_doubt), next: Cell::new(1) },
            locks: ProgramLocks::default(),
            background,
            current: RefCell::new(None),
            in_flight: RefCell::default(),
            encoded: RefCell::default(),
            config,
        })
    }
}

impl<R: ServerRuntime, E: Engine> Service for Server<R, E> {
    type Rt = R;
    /// This record survives a power cut, if that is promised: another server relies on it.
    type Until = Lsn;
    const TURN: EventId = weft_trace::event::META_TURN;

    fn shell(&self) -> &Shell<R> {
        &self.shell
    }

    fn connected(&self, client: ClientId, _incarnation: u32) {
        self.clients.sessions.borrow_mut().connected(client);
    }

    fn disconnected(&self, client: ClientId, now: Nanos) {
        self.clients.sessions.borrow_mut().disconnected(client, now);
        self.look_after_locker(client);
    }

    fn intake(&self, is_to_stop: bool) -> Intake {
        if is_to_stop {
            Intake::Over
        } else if self.engine.has_pending() || self.shell.has_released() {
            Intake::Ready
        } else {
            Intake::Open
        }
    }

    async fn make_room(&self) -> Result<(), ServerError> {
        if self.engine.room() == Room::Plenty {
            return Ok(());
        }
        match self.engine.ensure_room().await {
            Err(JournalError::NoSpace) => Ok(()),
            result => Ok(result?),
        }
    }

    async fn work(self: &Rc<Self>, arrivals: &mut Vec<Arrival>, answers: &mut OutgoingReplies<Self>) -> Result<(), ServerError> {
        let (mut waited, mut arrived) = (self.shell.unpark().into_iter(), arrivals.drain(..));
        loop {
            let (peer, frame, served, until) = match waited.next() {
                Some(Parked { peer, frame, served, until, .. }) => (peer, frame, served, until),
                None => match arrived.next() {
                    Some(Arrival::Request { peer, frame }) => {
                        let served = self.shell.begin(&frame.header);
                        (peer, frame, served, None)
                    }
                    Some(other) => {
                        connection(&**self, other);
                        continue;
                    }
                    None => return Ok(()),
                },
            };
            // What waits here and below waits in virtual time only. It is awaited in this loop: the
            // state of an inner flow would be moved with every request.
            self.rt.cpu(Work::Request).await;
            self.rt.pass(FaultPoint::ServerCpu).await;
            let op = served.op();
            if op == Some(Op::TxPrepare) {
                self.rt.pass(FaultPoint::TxPrepare).await;
            }
            let (step, served) = self.execute_one(peer, &frame, served, until.is_none());
            if let Ok(Step::Answer(_, changes)) = &step {
                let work = if op == Some(Op::CreateMany) { Work::ToldRecord } else { Work::Record };
                for _ in 0..*changes {
                    self.rt.cpu(work).await;
                }
            }
            self.conclude(peer, frame, served, until, step, answers);
            if self.engine.is_full() {
                finish(self, answers).await?;
                self.make_room().await?;
            }
        }
    }

    async fn commit(&self) -> Result<(), ServerError> {
        loop {
            match self.engine.commit().await {
                Err(JournalError::NoSpace) => self.rt.sleep_until(self.rt.now() + COMMIT_RETRY_NS).await,
                result => return Ok(result?),
            }
        }
    }

    async fn wait(&self, until: Lsn) -> bool {
        self.kept(self.engine.make_durable(until).await)
    }

    async fn look_after(self: &Rc<Self>, _has_answered: bool) {
        self.start_what_is_due();
    }

    async fn bring_to_rest(&self) -> Result<(), ServerError> {
        if self.config.serving.engine == weft_serving::Engine::Memory {
            // Nothing was promised: whoever stops a server on a full disk is not held up.
            crate::dump::write(self.rt.disk(), |cursor, changes| self.state.borrow().snapshot_from(cursor, changes)).await.ok();
        }
        Ok(self.engine.bring_to_rest().await?)
    }

    async fn promise(&self, durability: Durability) -> weft_base::Result<()> {
        let promised = self.engine.promise(durability).await;
        if self.kept(promised) { Ok(()) } else { Err(Status::Io) }
    }

    async fn flush(&self) -> weft_base::Result<()> {
        self.make_all_durable().await
    }

    fn durable_lsn(&self) -> Option<u64> {
        self.engine.journal().map(|journal| journal.durable_lsn().0)
    }

    fn placed(&self, map: &ClusterMap) {
        self.state.borrow_mut().place(Placement::of(map));
        self.look_at_quotas();
    }

    fn load(&self) -> ServerLoad {
        ServerLoad::default()
    }

    async fn info(&self) -> weft_base::Result<ServerInfo> {
        let (capacity_bytes, free_bytes) = self.rt.disk().space().await?;
        let state = self.state.borrow();
        let objects = state.inode_count();
        let (content_bytes, content_free_bytes) = state.content_usage();
        // What the next checkpoint takes is free to nobody.
        let kept_bytes = self.engine.journal().map_or(0, |journal| journal.kept_bytes());
        Ok(ServerInfo {
            owns_root: state.peek(ROOT_HANDLE).is_some(),
            state: match self.engine.room() {
                _ if !self.shell.introduction.is_complete() => "waiting for the other servers to know it".into(),
                Room::Plenty => "serving".into(),
                Room::Low | Room::None => "read-only: the disk is full".into(),
            },
            objects,
            used_bytes: objects * BYTES_PER_INODE + state.xattr_bytes() + content_bytes,
            capacity_bytes,
            free_bytes: free_bytes.saturating_sub(kept_bytes) + content_free_bytes,
            device_free_bytes: free_bytes,
            ..self.shell.info(self.engine.stats())
        })
    }

    fn gauges(&self) -> Gauges {
        let page_bytes = self.config.serving.process.page_bytes.map(|page_bytes| page_bytes());
        Gauges { clients: self.clients.sessions.borrow().connected_count(), page_bytes, ..Gauges::default() }
    }
}
