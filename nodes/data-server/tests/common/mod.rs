//! A data server and a client in virtual time.

#![allow(dead_code)] // each test file uses its part

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use bytes::Bytes;
use weft_base::{
    ClientId, ClusterMap, FsId, Handle, MILLISECOND, Payload, RequestId, Result, SECOND, ServerEntry, ServerId, Status, WallTime,
};
use weft_data_server::{DataServerConfig, Durability, Meets, ServerError, ServingConfig, run};
use weft_rt::{Bulk, Outgoing, Runtime};
use weft_rt_sim::{NodeConfig, NodeId, Profile, Sim, SimRt};
use weft_wire::ops::*;
use weft_wire::{Capability, ClusterKey, Flags, Header, Operation, Rights, Wire};

pub const KEY: ClusterKey = ClusterKey([9; 32]);
pub const SERVER: ServerId = ServerId(ServerId::FIRST_DATA);
/// A capability that outlives every test.
const FOR_EVER: WallTime = WallTime(i64::MAX);

pub fn map() -> ClusterMap {
    let entry = |id: ServerId| ServerEntry { id, name: id.to_string(), address: String::new() };
    ClusterMap::of(FsId(7), "test", [ServerId(0), SERVER].map(entry), 1 << 20).founded(1)
}

/// Small journals, so that tests see segments and checkpoints come and go.
pub fn serving() -> ServingConfig {
    ServingConfig {
        create: true,
        meets: Meets::Nobody,
        journal_segment_bytes: 64 << 10,
        checkpoint_bytes: 48 << 10,
        ..ServingConfig::new(SERVER, map(), KEY)
    }
}

pub fn config() -> DataServerConfig {
    DataServerConfig { punch_bytes: 256 << 10, ..DataServerConfig::new(serving()) }
}

/// The same under this contract.
pub fn contracted(durability: Durability) -> DataServerConfig {
    DataServerConfig { serving: ServingConfig { durability, ..serving() }, ..config() }
}

pub struct Cluster {
    pub sim: Sim,
    pub server: NodeId,
    pub client: NodeId,
    clients: Cell<u64>,
    /// Why the server stopped, each time it did.
    pub errors: Rc<RefCell<Vec<ServerError>>>,
}

impl Cluster {
    pub fn new(seed: u64, profile: Profile, config: DataServerConfig) -> Cluster {
        let sim = Sim::new(seed, profile);
        let server = sim.add_node(NodeConfig::server(SERVER));
        let client = sim.add_node(NodeConfig::client("client"));
        let errors: Rc<RefCell<Vec<ServerError>>> = Rc::default();
        let cluster = Cluster { sim, server, client, clients: Cell::new(0), errors };
        cluster.configure(config);
        cluster.sim.restart(server);
        cluster
    }

    /// What the server is told from its next start on.
    pub fn configure(&self, config: DataServerConfig) {
        let errors = self.errors.clone();
        self.sim.set_main(self.server, move |rt| {
            let (config, errors) = (config.clone(), errors.clone());
            async move {
                let error = run(rt, config).await.expect_err("a server runs until it must stop");
                errors.borrow_mut().push(error);
            }
        });
    }

    /// Runs the flow of a new client to its end.
    pub fn run<T: 'static, F: Future<Output = T> + 'static>(&self, flow: impl FnOnce(Peer) -> F) -> T {
        self.clients.set(self.clients.get() + 1);
        let id = ClientId(100 + self.clients.get());
        let outcome = self.sim.block_on(self.client, 3600 * SECOND, |rt| flow(Peer::new(rt, id)));
        outcome.unwrap_or_else(|stuck| panic!("{stuck}; server: {:?}", self.errors.borrow()))
    }

    pub fn restart_after_crash(&self) {
        self.sim.crash(self.server);
        self.sim.restart(self.server);
    }

    pub fn restart_after_power_cut(&self) {
        self.sim.power_cut(self.server);
        self.sim.restart(self.server);
    }
}

/// A client that numbers and repeats its requests as real ones do.
#[derive(Clone)]
pub struct Peer {
    pub rt: SimRt,
    pub id: ClientId,
    state: Rc<PeerState>,
}

#[derive(Default)]
struct PeerState {
    last: Cell<u64>,
    unfinished: RefCell<BTreeSet<u64>>,
    epoch: Cell<u32>,
}

/// One request that can be sent more than once.
pub struct Copy {
    pub header: Header,
    pub body: Bytes,
}

impl Peer {
    pub fn new(rt: SimRt, id: ClientId) -> Peer {
        Peer { rt, id, state: Rc::default() }
    }

    pub fn capability(&self, handle: u64, rights: Rights) -> Capability {
        Capability::sign(&KEY, Handle(handle), self.id, rights, FOR_EVER)
    }

    /// Numbers a request.
    pub fn prepare<O: Operation>(&self, operation: &O) -> Copy {
        let sequence = self.state.last.get() + 1;
        self.state.last.set(sequence);
        self.state.unfinished.borrow_mut().insert(sequence);
        let request = RequestId { client: self.id, incarnation: 1, sequence };
        Copy { header: Header::request(O::OP, SERVER, request, 0), body: operation.to_bytes() }
    }

    /// Says that a request needs no answer any more.
    pub fn finish(&self, copy: &Copy) {
        self.state.unfinished.borrow_mut().remove(&copy.header.request.sequence);
    }

    /// Sends one copy, once.
    pub async fn send(&self, copy: &Copy, bulk: &[u8], deadline_ns: u64) -> Result<(Bytes, Payload)> {
        let mut header = copy.header;
        let oldest = self.state.unfinished.borrow().first().copied().unwrap_or(header.request.sequence);
        header.unfinished_span = header.request.sequence.saturating_sub(oldest) as u32;
        let bulk = if bulk.is_empty() { Bulk::None } else { Bulk::Slices(vec![bulk]) };
        let outgoing = Outgoing { header, body: copy.body.clone(), bulk };
        let reply = self.rt.request(SERVER, outgoing, self.rt.now() + deadline_ns).await?;
        reply.status()?;
        Ok((reply.body, reply.bulk))
    }

    /// Sends until there is an answer that stands.
    pub async fn call<O: Operation>(&self, operation: &O, bulk: &[u8]) -> Result<(O::Reply, Payload)> {
        let mut copy = self.prepare(operation);
        let give_up = self.rt.now() + 120 * SECOND;
        let result = loop {
            match self.send(&copy, bulk, SECOND).await {
                Err(status) if status.is_transient() && self.rt.now() < give_up => {
                    copy.header.flags = Flags::RETRY;
                    self.rt.sleep_until(self.rt.now() + 5 * MILLISECOND).await;
                }
                other => break other,
            }
        };
        self.finish(&copy);
        let (body, bulk) = result?;
        Ok((O::Reply::from_bytes(body)?, bulk))
    }

    pub fn write_request(&self, handle: u64, pieces: &[(u64, u32)], sync: bool) -> WriteRequest {
        WriteRequest {
            handle: Handle(handle),
            index: 0,
            capability: self.capability(handle, Rights::WRITE),
            pieces: pieces.iter().map(|(offset, bytes)| Piece { offset: *offset, bytes: *bytes }).collect(),
            mtime_epoch: 0,
            sync,
            ceiling: None,
        }
    }

    pub async fn write(&self, handle: u64, offset: u64, data: &[u8]) -> Result<u64> {
        let request = self.write_request(handle, &[(offset, data.len() as u32)], false);
        Ok(self.call(&request, data).await?.0.size)
    }

    pub fn read_request(&self, handle: u64, pieces: &[(u64, u32)]) -> ReadRequest {
        ReadRequest {
            handle: Handle(handle),
            index: 0,
            capability: self.capability(handle, Rights::READ),
            pieces: pieces.iter().map(|(offset, bytes)| Piece { offset: *offset, bytes: *bytes }).collect(),
        }
    }

    pub async fn read(&self, handle: u64, offset: u64, len: u32) -> Result<Vec<u8>> {
        Ok(self.read_list(handle, &[(offset, len)]).await?.1)
    }

    pub async fn read_list(&self, handle: u64, pieces: &[(u64, u32)]) -> Result<(ReadReply, Vec<u8>)> {
        let (reply, bulk) = self.call(&self.read_request(handle, pieces), &[]).await?;
        assert_eq!(reply.got.iter().map(|got| u64::from(*got)).sum::<u64>(), bulk.len(), "the reply tells what it carries");
        Ok((reply, bulk.to_bytes().to_vec()))
    }

    /// A piece of a datafile for [`Peer::read_many`].
    pub fn piece(&self, handle: u64, offset: u64, bytes: u32) -> DatafileRead {
        DatafileRead { capability: self.capability(handle, Rights::READ), index: 0, offset, bytes }
    }

    /// Each piece with its bytes and the size of its datafile.
    pub async fn read_many(&self, reads: Vec<DatafileRead>) -> Result<Vec<Result<(Vec<u8>, u64)>>> {
        let (reply, bulk) = self.call(&ReadManyRequest { reads }, &[]).await?;
        let data = bulk.to_bytes();
        let mut at = 0;
        let taken = reply.got.into_iter().map(|got| {
            let got = got?;
            let bytes = data[at..at + got.bytes as usize].to_vec();
            at += bytes.len();
            Ok((bytes, got.size))
        });
        let taken = taken.collect();
        assert_eq!(at, data.len(), "the reply tells what it carries");
        Ok(taken)
    }

    pub async fn sync(&self, handle: u64) -> Result<()> {
        let capability = self.capability(handle, Rights::READ);
        self.call(&ObjectSyncRequest { handle: Handle(handle), index: 0, capability }, &[]).await.map(drop)
    }

    /// True if nothing is there: never written, or removed, which is remembered for a while.
    pub async fn has_nothing(&self, handle: u64) -> bool {
        match self.stat(handle).await {
            Ok(stat) => stat.size == 0,
            Err(status) => status == Status::Stale,
        }
    }

    pub async fn stat(&self, handle: u64) -> Result<ObjectStatReply> {
        let capability = self.capability(handle, Rights::READ);
        Ok(self.call(&ObjectStatRequest { handle: Handle(handle), index: 0, capability }, &[]).await?.0)
    }

    pub fn punch_request(&self, handle: u64, offset: u64, bytes: u64) -> ObjectPunchRequest {
        let capability = self.capability(handle, Rights::WRITE);
        ObjectPunchRequest { handle: Handle(handle), index: 0, capability, offset, bytes, mtime_epoch: 0 }
    }

    pub async fn punch(&self, handle: u64, offset: u64, bytes: u64) -> Result<u64> {
        Ok(self.call(&self.punch_request(handle, offset, bytes), &[]).await?.0.size)
    }

    pub fn allocate_request(&self, handle: u64, offset: u64, bytes: u32, zero: bool, keep_size: bool) -> ObjectAllocateRequest {
        let capability = self.capability(handle, Rights::WRITE);
        ObjectAllocateRequest {
            handle: Handle(handle),
            index: 0,
            capability,
            offset,
            bytes,
            zero,
            keep_size,
            mtime_epoch: 0,
            ceiling: None,
        }
    }

    pub fn truncate_request(&self, handle: u64, size: u64, truncate_epoch: u32) -> ObjectTruncateRequest {
        let capability = self.capability(handle, Rights::MANAGE);
        ObjectTruncateRequest { handle: Handle(handle), index: 0, capability, size, truncate_epoch }
    }

    /// Truncates with an epoch that rises by itself.
    pub async fn truncate(&self, handle: u64, size: u64) -> Result<()> {
        self.state.epoch.set(self.state.epoch.get() + 1);
        self.call(&self.truncate_request(handle, size, self.state.epoch.get()), &[]).await.map(drop)
    }

    pub async fn remove(&self, handle: u64) -> Result<()> {
        let capability = self.capability(handle, Rights::MANAGE);
        self.call(&ObjectRemoveRequest { handle: Handle(handle), index: 0, capability }, &[]).await.map(drop)
    }

    pub async fn ping(&self) -> ServerInfo {
        self.call(&PingRequest {}, &[]).await.expect("a server answers").0
    }
}

/// The error of an operation that must not succeed.
pub fn error<T>(result: Result<T>) -> Status {
    match result {
        Ok(_) => panic!("this must be refused"),
        Err(status) => status,
    }
}
