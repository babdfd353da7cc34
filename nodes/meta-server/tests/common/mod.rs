//! A small cluster in virtual time: metadata servers, one data server that keeps only sizes, and
//! callers.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;

use bytes::Bytes;
use weft_base::{
    ClientId, ClusterMap, Credentials, DataTime, FileKind, FsId, Handle, MILLISECOND, Nanos, Payload, ROOT_HANDLE, Result, SECOND,
    ServerEntry, ServerId, Status, WallTime,
};
use weft_call::Caller;
use weft_meta_server::{Durability, Engine, Meets, MetaServerConfig, ServerError, ServingConfig, run};
use weft_rt::{Arrival, Runtime, ServerRuntime};
use weft_rt_sim::{NodeConfig, NodeId, Profile, Sim, SimRt};
use weft_wire::ops::*;
use weft_wire::{ClusterKey, Frame, Request, Rights, Wire};

pub const KEY: ClusterKey = ClusterKey([3; 32]);
pub const PATIENCE: u64 = 60 * SECOND;

/// What the data server was asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataCall {
    Stat(Handle),
    Truncate(Handle, u64),
    Remove(Handle),
}

#[derive(Default)]
pub struct DataState {
    pub sizes: BTreeMap<Handle, u64>,
    pub calls: Vec<DataCall>,
}

pub struct Cluster {
    pub sim: Sim,
    pub meta: Vec<NodeId>,
    pub data: NodeId,
    pub client: NodeId,
    pub data_state: Rc<RefCell<DataState>>,
    pub map: ClusterMap,
    pub errors: Rc<RefCell<Vec<(ServerId, ServerError)>>>,
}

pub fn map(meta_servers: usize) -> ClusterMap {
    let entry = |id: ServerId| ServerEntry { id, name: id.to_string(), address: format!("sim:{id}") };
    let servers = (0..meta_servers).map(|index| ServerId(index as u16)).chain([ServerId::data(0)]).map(entry);
    ClusterMap::of(FsId(0xf5), "test", servers, 1 << 20).founded(1)
}

pub fn config(server: ServerId, map: &ClusterMap) -> MetaServerConfig {
    let serving = ServingConfig {
        create: true,
        meets: Meets::Nobody,
        journal_segment_bytes: 1 << 20,
        ..ServingConfig::new(server, map.clone(), KEY)
    };
    MetaServerConfig { session_grace_ns: 2 * SECOND, ..MetaServerConfig::new(serving) }
}

impl Cluster {
    /// Starts everything with the usual settings, changed by `adjust`.
    pub fn new(seed: u64, meta_servers: usize, adjust: impl Fn(&mut MetaServerConfig)) -> Cluster {
        let sim = Sim::new(seed, Profile::instant());
        let map = map(meta_servers);
        let errors: Rc<RefCell<Vec<(ServerId, ServerError)>>> = Rc::default();
        let meta = (0..meta_servers)
            .map(|index| {
                let server = ServerId(index as u16);
                let node = sim.add_node(NodeConfig::server(server));
                let mut config = config(server, &map);
                adjust(&mut config);
                let errors = Rc::clone(&errors);
                sim.start(node, move |rt: SimRt| {
                    let (config, errors) = (config.clone(), Rc::clone(&errors));
                    async move {
                        if let Err(error) = run(rt, config).await {
                            errors.borrow_mut().push((server, error));
                        }
                    }
                });
                node
            })
            .collect();
        let data = sim.add_node(NodeConfig::server(ServerId::data(0)));
        let data_state: Rc<RefCell<DataState>> = Rc::default();
        let shared = Rc::clone(&data_state);
        sim.start(data, move |rt: SimRt| data_server(rt, Rc::clone(&shared)));
        let client = sim.add_node(NodeConfig::client("client"));
        Cluster { sim, meta, data, client, data_state, map, errors }
    }

    /// A caller on the client node.
    pub fn caller(&self, id: u64) -> TestClient {
        TestClient { caller: Rc::new(Caller::new(self.sim.rt(self.client), ClientId(id), 1)) }
    }

    /// Runs a flow on the client node to its end.
    pub fn block_on<T: 'static, F: Future<Output = T> + 'static>(&self, flow: impl FnOnce() -> F) -> T {
        let result = self.sim.block_on(self.client, 300 * SECOND, |_| flow());
        result.unwrap_or_else(|stuck| panic!("{stuck}\nservers that stopped: {:?}", self.errors.borrow()))
    }

    pub fn crash_and_restart(&self, index: usize) {
        self.sim.crash(self.meta[index]);
        self.sim.run_for(10 * MILLISECOND);
        self.sim.restart(self.meta[index]);
    }

    pub fn power_cycle(&self, index: usize) {
        self.sim.power_cut(self.meta[index]);
        self.sim.run_for(10 * MILLISECOND);
        self.sim.restart(self.meta[index]);
    }
}

async fn data_server(rt: SimRt, state: Rc<RefCell<DataState>>) {
    let mut arrivals = Vec::new();
    loop {
        rt.receive(&mut arrivals).await;
        for arrival in arrivals.drain(..) {
            let Arrival::Request { peer, frame } = arrival else { continue };
            let result = answer(&state, &frame);
            rt.reply(peer, Frame::reply(&frame.header, result, Payload::EMPTY));
        }
    }
}

fn answer(state: &RefCell<DataState>, frame: &Frame) -> Result<Bytes> {
    let mut state = state.borrow_mut();
    let client = frame.header.request.client;
    match Request::decode(frame.header.op, frame.body.clone())? {
        Request::ObjectStat(request) => {
            request.capability.verify(&KEY, request.handle, client, Rights::READ, WallTime(0))?;
            state.calls.push(DataCall::Stat(request.handle));
            let size = state.sizes.get(&request.handle).copied().unwrap_or(0);
            Ok(ObjectStatReply { size, allocated_bytes: size, mtime: DataTime { epoch: 0, at: WallTime(77) } }.to_bytes())
        }
        Request::ObjectTruncate(request) => {
            request.capability.verify(&KEY, request.handle, client, Rights::MANAGE, WallTime(0))?;
            state.calls.push(DataCall::Truncate(request.handle, request.size));
            if let Some(size) = state.sizes.get_mut(&request.handle) {
                *size = (*size).min(request.size);
            }
            Ok(().to_bytes())
        }
        Request::ObjectRemove(request) => {
            request.capability.verify(&KEY, request.handle, client, Rights::MANAGE, WallTime(0))?;
            state.calls.push(DataCall::Remove(request.handle));
            state.sizes.remove(&request.handle);
            Ok(().to_bytes())
        }
        _ => Err(Status::NotSupported),
    }
}

/// Requests without the client library: what goes over the wire is what the test says.
#[derive(Clone)]
pub struct TestClient {
    pub caller: Rc<Caller<SimRt>>,
}

pub fn at(dir: Handle) -> DirTarget {
    DirTarget { dir, map_epoch: 0 }
}

pub fn name(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

impl TestClient {
    pub async fn call<O: weft_wire::Operation>(&self, server: ServerId, operation: &O) -> Result<O::Reply> {
        let deadline = self.caller.rt().now() + PATIENCE;
        self.caller.call(server, operation, deadline).await
    }

    /// One attempt.
    pub async fn once<O: weft_wire::Operation>(&self, server: ServerId, operation: &O, wait_ns: u64) -> Result<O::Reply> {
        let deadline: Nanos = self.caller.rt().now() + wait_ns;
        self.caller.call(server, operation, deadline).await
    }

    pub async fn create(&self, dir: Handle, file: &str, open: Rights) -> Result<CreateReply> {
        let request = create_request(dir, file, open);
        self.call(dir.server(), &request).await
    }

    pub async fn mkdir(&self, dir: Handle, file: &str) -> Result<Handle> {
        let request = MkdirRequest::of(at(dir), name(file), 0o755, Credentials::ROOT);
        Ok(self.call(dir.server(), &request).await?.state.attr.handle)
    }

    pub async fn lookup(&self, dir: Handle, file: &str) -> Result<LookupReply> {
        self.call(dir.server(), &LookupRequest { at: at(dir), name: name(file), who: Credentials::ROOT }).await
    }

    pub async fn getattr(&self, handle: Handle) -> Result<FileState> {
        self.call(handle.server(), &GetAttrRequest { handle }).await
    }

    pub async fn unlink(&self, dir: Handle, file: &str) -> Result<Handle> {
        let request = UnlinkRequest::of(at(dir), name(file), Credentials::ROOT);
        Ok(self.call(dir.server(), &request).await?.handle)
    }

    pub async fn rmdir(&self, dir: Handle, file: &str) -> Result<()> {
        self.call(dir.server(), &RmdirRequest { at: at(dir), name: name(file), who: Credentials::ROOT }).await.map(|_| ())
    }

    pub async fn rename(&self, from: Handle, from_name: &str, to: Handle, to_name: &str) -> Result<()> {
        let request = RenameRequest {
            from: at(from),
            from_name: name(from_name),
            to: at(to),
            to_name: name(to_name),
            no_replace: false,
            exchange: false,
            who: Credentials::ROOT,
        };
        self.call(from.server(), &request).await.map(|_| ())
    }

    pub async fn link(&self, handle: Handle, dir: Handle, file: &str) -> Result<LinkReply> {
        let (to, to_name) = (at(dir), name(file));
        self.call(dir.server(), &LinkRequest { handle, kind: FileKind::File, to, to_name, who: Credentials::ROOT }).await
    }

    pub async fn close(&self, handle: Handle, end_bytes: u64, truncate_epoch: u32) -> Result<()> {
        let written = Some(Written { end_bytes, mtime: DataTime { epoch: 0, at: WallTime(99) }, truncate_epoch });
        let request = CloseRequest { handle, open_sequence: u64::MAX, keeps: Rights::default(), written };
        self.call(handle.server(), &request).await
    }

    /// All names of a directory.
    pub async fn list(&self, dir: Handle) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let request = ReadDirRequest { at: at(dir), cookie, bytes_max: 4096, with_state: false, who: Credentials::ROOT };
            let reply = self.call(dir.server(), &request).await?;
            names.extend(reply.entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()));
            match reply.entries.last() {
                Some(last) if reply.until != u64::MAX => cookie = last.cookie,
                _ => break,
            }
        }
        names.sort();
        Ok(names)
    }
}

/// What the tree holds: path, handle, and for files the link count that `stat` shows.
pub type Tree = BTreeMap<String, (Handle, FileKind, u32)>;

impl TestClient {
    /// Walks the whole tree over all servers and checks that names, inodes, link counts, parents
    /// and the servers' own counts agree. Panics with `what` if not.
    pub async fn audit(&self, servers: usize, what: &str) -> Tree {
        let mut tree = Tree::new();
        let mut links: BTreeMap<Handle, u32> = BTreeMap::new();
        let mut inodes = 1;
        let mut todo = vec![(String::new(), ROOT_HANDLE, ROOT_HANDLE)];
        while let Some((path, dir, parent)) = todo.pop() {
            let state = self.getattr(dir).await.unwrap_or_else(|status| panic!("{what}: directory {path:?} {dir}: {status}"));
            let mut subdirectories = 0;
            let mut entries = 0;
            let mut cookie = 0;
            loop {
                let request = ReadDirRequest { at: at(dir), cookie, bytes_max: 2048, with_state: true, who: Credentials::ROOT };
                let page = self.call(dir.server(), &request).await.unwrap_or_else(|status| panic!("{what}: list {path:?}: {status}"));
                assert_eq!(page.parent, parent, "{what}: parent of {path:?}");
                for entry in &page.entries {
                    assert!(entry.cookie > cookie || page.entries.iter().filter(|other| other.cookie == entry.cookie).count() > 1);
                    let child = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
                    let attr =
                        self.getattr(entry.handle).await.unwrap_or_else(|status| panic!("{what}: {child} leads nowhere: {status}")).attr;
                    assert_eq!(attr.kind, entry.kind, "{what}: {child}");
                    entries += 1;
                    if entry.kind == FileKind::Directory {
                        subdirectories += 1;
                        inodes += 1;
                        todo.push((child.clone(), entry.handle, dir));
                    } else {
                        inodes += u64::from(!links.contains_key(&entry.handle));
                        *links.entry(entry.handle).or_default() += 1;
                    }
                    tree.insert(child, (entry.handle, entry.kind, attr.nlink));
                }
                cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
                if page.until == u64::MAX {
                    break;
                }
            }
            assert_eq!((state.attr.size, state.attr.nlink), (entries, 2 + subdirectories), "{what}: {path:?}");
        }
        for (path, (handle, kind, nlink)) in &tree {
            if *kind != FileKind::Directory {
                assert_eq!(links[handle], *nlink, "{what}: link count of {path}");
            }
        }
        let mut objects = 0;
        for index in 0..servers {
            objects += self.call(ServerId(index as u16), &PingRequest {}).await.expect("ping").objects;
        }
        assert_eq!(objects, inodes, "{what}: every inode has a name: {tree:?}");
        tree
    }
}

pub fn create_request(dir: Handle, file: &str, open: Rights) -> CreateRequest {
    CreateRequest { open, open_sequence: 1, ..CreateRequest::of(at(dir), name(file), (FileKind::File, 0o644), Credentials::ROOT) }
}

/// A name under the root whose directory is placed on server `index` of two, and one for which that
/// is not so.
pub async fn directory_on(client: &TestClient, server: ServerId, prefix: &str) -> Handle {
    for attempt in 0..64 {
        let handle = client.mkdir(ROOT_HANDLE, &format!("{prefix}{attempt}")).await.expect("mkdir");
        if handle.server() == server {
            return handle;
        }
    }
    panic!("no directory was placed on {server}");
}

/// Engines that keep what they hold: one conformance suite for all of them.
pub const KEPT: [Engine; 3] = [Engine::Journal, Engine::Db, Engine::Dbpf];

/// Engines and durability contracts that tests run under.
pub fn contracts() -> Vec<(Engine, Durability)> {
    vec![
        (Engine::Memory, Durability::None),
        (Engine::Journal, Durability::None),
        (Engine::Journal, Durability::Batch),
        (Engine::Journal, Durability::Sync),
        (Engine::Db, Durability::Batch),
        (Engine::Db, Durability::Sync),
        (Engine::Dbpf, Durability::Batch),
        (Engine::Dbpf, Durability::Sync),
    ]
}
