//! Real servers in virtual time for the tests of the client, and between them and it a line on
//! which a test records messages, and loses, delays and refuses them. A test is no task of the
//! simulation: its flow borrows what it likes, and virtual time passes while it waits.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use weft_base::{
    ClientId, ClusterMap, Credentials, FileKind, FsId, Handle, MILLISECOND, Nanos, Payload, ROOT_HANDLE, SECOND, ServerEntry, ServerId,
    Status, WallTime,
};
use weft_data_server::DataServerConfig;
use weft_meta_server::{Durability, MetaServerConfig, ServingConfig};
use weft_rt::{Outgoing, Runtime, Work};
use weft_rt_sim::{NodeConfig, Profile, Sim, SimRt};
use weft_virtual_cluster::{Servers, cluster_map};
use weft_wire::ops::{FileState, GetAttrRequest};
use weft_wire::{ClusterKey, Frame, Header, Request, Rights};

use crate::{Client, ClientOptions, CreateOptions, OpenFile, RenameFlags};

/// How long a message travels, in nanoseconds. Servers and disks take no time.
pub(crate) const LATENCY: u64 = 50_000;
/// Lifetime of capabilities, in nanoseconds.
pub(crate) const LIFETIME: u64 = 3600 * SECOND;
/// How long a server that has restarted waits for clients, in nanoseconds.
const GRACE: u64 = 30 * SECOND;
/// Bytes of a journal segment.
const SEGMENT: u64 = 256 << 10;
/// Longest wait of a test, in virtual nanoseconds.
const LIMIT: u64 = 10_000 * SECOND;
/// The client that does for a test what others do; see [`World::hand`].
const HAND: ClientId = ClientId(99);

pub(crate) const META0: ServerId = ServerId(0);
pub(crate) const META1: ServerId = ServerId(1);
pub(crate) const BOTH: Rights = Rights(Rights::READ.0 | Rights::WRITE.0);
pub(crate) static ROOT: Credentials = Credentials { uid: 0, gid: 0, groups: Vec::new(), checked_by_kernel: false };

/// What happens to a message on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrives,
    /// It arrives this much later, in nanoseconds.
    Late(u64),
    /// It arrives, and the reply this much later, in nanoseconds.
    ReplyLate(u64),
    /// It never arrives.
    Lost,
    /// It arrives and is executed, but the reply is lost.
    ReplyLost,
    /// It does not arrive, and this is the answer, as from the server.
    Answered(Result<Bytes, Status>),
    /// There is no connection.
    NoConnection,
}

/// A message that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) server: ServerId,
    pub(crate) header: Header,
    pub(crate) request: Request,
}

type Fates = Box<dyn FnMut(&Sent) -> Fate>;

/// What is between clients and servers.
#[derive(Default)]
struct Line {
    fates: RefCell<Option<Fates>>,
    sent: RefCell<Vec<Sent>>,
    /// Of the last reply of each server.
    replies: RefCell<BTreeMap<ServerId, Header>>,
}

/// The runtime of the clients under test.
#[derive(Clone)]
pub(crate) struct TestRt {
    rt: SimRt,
    line: Rc<Line>,
}

/// A file system, and the world around it.
pub(crate) struct World {
    sim: Sim,
    servers: Servers,
    rt: TestRt,
    map: ClusterMap,
    /// Another client: what it does meets no fate and is not recorded.
    pub(crate) hand: Client<TestRt>,
}

impl Deref for World {
    type Target = TestRt;
    fn deref(&self) -> &TestRt {
        &self.rt
    }
}

impl World {
    /// A file system with so many servers and this stripe size.
    pub(crate) fn new(meta: u16, data: u16, stripe_bytes: u32) -> World {
        World::under(Durability::Sync, meta, data, stripe_bytes)
    }

    /// The same under another contract.
    pub(crate) fn under(durability: Durability, meta: u16, data: u16, stripe_bytes: u32) -> World {
        World::with_clocks(durability, (meta, data), stripe_bytes, |_| 0)
    }

    /// The same with servers whose wall clocks are off by so many nanoseconds.
    pub(crate) fn with_clocks(
        durability: Durability,
        (meta, data): (u16, u16),
        stripe_bytes: u32,
        clock_skew_ns: impl Fn(ServerId) -> i64,
    ) -> World {
        let mut profile = Profile::instant();
        (profile.net.latency_ns, profile.net.jitter_ns) = (LATENCY, 0);
        let disk = &mut profile.disk;
        (disk.call_ns, disk.read_ns, disk.sync_ns, disk.jitter_ns) = (0, 0, 0, 0);
        let sim = Sim::new(1, profile);
        let map = cluster_map(FsId(1), "test", meta, data, stripe_bytes, 0);
        let key = ClusterKey([3; 32]);
        let serving = |server| ServingConfig {
            create: true,
            durability,
            journal_segment_bytes: SEGMENT,
            ..ServingConfig::new(server, map.clone(), key.clone())
        };
        let config = MetaServerConfig { session_grace_ns: GRACE, capability_ns: LIFETIME as i64, ..MetaServerConfig::new(serving(META0)) };
        let data = DataServerConfig::new(serving(ServerId::data(0)));
        let servers = Servers::start_with_clocks(&sim, &config, &data, clock_skew_ns);
        let node = sim.add_node(NodeConfig::client("test"));
        let rt = TestRt { rt: sim.rt(node), line: Rc::default() };
        let hand = Client::new(rt.clone(), map.clone(), ClientOptions::new(HAND, 1));
        let world = World { sim, servers, rt, map, hand };
        world.serves();
        world
    }

    /// Waits until all servers serve.
    fn serves(&self) {
        self.run(async {
            while !self.hand.ping_all().await.iter().all(|(_, answer)| answer.as_ref().is_ok_and(|info| info.state == "serving")) {
                self.sleep_until(self.now() + MILLISECOND).await;
            }
        });
    }

    /// A client of the file system that has connected to all servers.
    pub(crate) fn client(&self, id: u64) -> Client<TestRt> {
        self.client_with(ClientOptions::new(ClientId(id), 1))
    }

    /// A client of the file system that has connected to all servers.
    pub(crate) fn client_with(&self, options: ClientOptions) -> Client<TestRt> {
        let client = Client::new(self.rt.clone(), self.map.clone(), options);
        let fates = self.line.fates.take();
        assert!(self.run(client.ping_all()).iter().all(|(_, answer)| answer.is_ok()));
        *self.line.fates.borrow_mut() = fates;
        self.take_sent();
        client
    }

    /// A client whose messages go straight to the servers.
    pub(crate) fn client_without_fates(&self, id: u64) -> Client<SimRt> {
        Client::new(self.rt.rt.clone(), self.map.clone(), ClientOptions::new(ClientId(id), 1))
    }

    /// The cluster map that configurations have.
    pub(crate) fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// A server that is new to all joins the file system.
    pub(crate) fn join(&self, entry: &ServerEntry) {
        self.servers.join(&self.sim, entry);
        let knows = |map: &ClusterMap| map.server(entry.id).is_some();
        self.run(async {
            while !knows(self.hand.map()) {
                self.sleep_until(self.now() + MILLISECOND).await;
                self.hand.ping_all().await;
            }
        });
    }

    /// The server dies and starts again: it has forgotten who has what open.
    pub(crate) fn restart(&self, server: ServerId) {
        self.restarter(server)();
        self.serves();
    }

    /// What makes a server die and start again, for fates.
    pub(crate) fn restarter(&self, server: ServerId) -> impl Fn() + use<> {
        let control = self.sim.control();
        let node = control.node_of(server).expect("the server is one of the map");
        move || {
            control.crash(node);
            control.restart(node);
        }
    }

    /// What makes the machine of a server lose power and start again.
    pub(crate) fn power_cutter(&self, server: ServerId) -> impl Fn() + use<> {
        let control = self.sim.control();
        let node = control.node_of(server).expect("the server is one of the map");
        move || {
            control.power_cut(node);
            control.restart(node);
        }
    }

    /// Drives a flow to its end, letting virtual time pass while it waits.
    pub(crate) fn run<F: Future>(&self, flow: F) -> F::Output {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(woken.clone());
        let mut flow = pin!(flow);
        loop {
            if woken.0.swap(false, Ordering::Relaxed)
                && let Poll::Ready(value) = flow.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return value;
            }
            let moved = self.sim.run_until_true(self.now() + LIMIT, || woken.0.load(Ordering::Relaxed));
            moved.expect("a flow that waits for nothing never ends");
        }
    }

    /// Makes an object under a name, its inode on a certain metadata server.
    pub(crate) fn add(&self, dir: Handle, name: &str, server: u16, kind: FileKind, target: &str) -> Handle {
        self.run(async {
            let (hand, name) = (&self.hand, name.as_bytes());
            let no_flags = RenameFlags::default();
            if dir.server() == ServerId(server) && kind != FileKind::Directory {
                return self.make(dir, name, kind, target).await;
            }
            // The name of a directory decides where it is.
            let mut number = 0;
            let (near, at) = loop {
                number += 1;
                let near = format!("near {number}");
                let at = hand.mkdir(&ROOT, dir, near.as_bytes(), 0o755).await.expect("a new directory").handle;
                if at.server() == ServerId(server) {
                    break (near, at);
                }
                hand.rmdir(&ROOT, dir, near.as_bytes()).await.expect("it is empty");
            };
            if kind == FileKind::Directory {
                hand.rename(&ROOT, dir, near.as_bytes(), dir, name, no_flags).await.expect("it gets its name");
                return at;
            }
            let handle = self.make(at, b"made", kind, target).await;
            hand.rename(&ROOT, at, b"made", dir, name, no_flags).await.expect("it gets its name");
            hand.rmdir(&ROOT, dir, near.as_bytes()).await.expect("it is empty");
            handle
        })
    }

    async fn make(&self, dir: Handle, name: &[u8], kind: FileKind, target: &str) -> Handle {
        let made = match kind {
            FileKind::Symlink => self.hand.symlink(&ROOT, dir, name, target.as_bytes()).await,
            kind => self.hand.mknod(&ROOT, dir, name, kind, 0o644, 0).await,
        };
        made.expect("a new name").handle
    }

    /// What the metadata server says of an object, and nothing else: whether somebody has it open
    /// for writing, too.
    pub(crate) async fn state(&self, handle: Handle) -> Result<FileState, Status> {
        let flow = self.hand.flow("ask", handle);
        self.hand.call(flow, handle.server(), &GetAttrRequest { handle }).await.map_err(|error| error.status)
    }

    /// The size that the inode of a file has.
    pub(crate) fn size_of(&self, handle: Handle) -> u64 {
        self.run(self.state(handle)).expect("it is there").attr.size
    }

    /// True if somebody has the file open for writing.
    pub(crate) fn is_written(&self, handle: Handle) -> bool {
        self.run(self.state(handle)).expect("it is there").ask_data.is_some()
    }

    /// True if somebody has the rights of these that show to others: to write and to lock.
    pub(crate) async fn is_held(&self, handle: Handle, rights: Rights) -> bool {
        let is_written = self.state(handle).await.expect("it is there").ask_data.is_some();
        let is_locked = match rights.contains(Rights::LOCK) {
            true => match self.hand.open(&ROOT, handle, Rights::READ.with(Rights::LOCK), false).await {
                Ok((_, file)) => {
                    self.hand.close(file).await.expect("it closes");
                    false
                }
                Err(error) => error.status == Status::LockedElsewhere,
            },
            false => true,
        };
        is_locked && (is_written || !rights.contains(Rights::WRITE))
    }

    /// True if nobody has the file open at its metadata server: then it goes soon after its only
    /// name, which this takes away.
    pub(crate) fn is_closed(&self, dir: Handle, name: &str) -> bool {
        self.run(async {
            let (handle, _) = self.hand.lookup_handle(&ROOT, dir, name.as_bytes()).await.expect("it is there");
            self.hand.unlink(&ROOT, dir, name.as_bytes()).await.expect("the name goes");
            self.is_gone(handle).await
        })
    }

    /// True if the object goes now that it has no name. Its data goes first, and a server that has
    /// restarted waits for the grace.
    pub(crate) async fn is_gone(&self, handle: Handle) -> bool {
        let patience = self.now() + GRACE + SECOND;
        while self.state(handle).await != Err(Status::Stale) {
            if self.now() >= patience {
                return false;
            }
            self.sleep_until(self.now() + 100 * MILLISECOND).await;
        }
        true
    }

    /// Waits until a server that has restarted does not wait any more for what clients say.
    pub(crate) fn grace_is_over(&self) {
        self.run(self.sleep_until(self.now() + GRACE + SECOND));
    }
}

impl TestRt {
    /// Decides what happens to messages from now on.
    pub(crate) fn fates(&self, fates: impl FnMut(&Sent) -> Fate + 'static) {
        *self.line.fates.borrow_mut() = Some(Box::new(fates));
    }

    /// Everything arrives again.
    pub(crate) fn no_faults(&self) {
        *self.line.fates.borrow_mut() = None;
    }

    /// Takes the record of messages: server and operation of each.
    pub(crate) fn take_sent(&self) -> Vec<(ServerId, weft_wire::Op)> {
        self.take_messages().into_iter().map(|sent| (sent.server, sent.request.op())).collect()
    }

    /// Takes the record of messages.
    pub(crate) fn take_messages(&self) -> Vec<Sent> {
        self.line.sent.take()
    }

    fn fate_of(&self, sent: &Sent) -> Fate {
        let fates = self.line.fates.take();
        let Some(mut fates) = fates else { return Fate::Arrives };
        let fate = fates(sent);
        self.line.fates.borrow_mut().get_or_insert(fates);
        fate
    }

    async fn given_up(&self, deadline: Nanos) -> Result<Frame, Status> {
        self.sleep_until(deadline).await;
        Err(Status::TimedOut)
    }
}

impl Runtime for TestRt {
    fn now(&self) -> Nanos {
        self.rt.now()
    }

    fn wall(&self) -> WallTime {
        self.rt.wall()
    }

    fn random(&self) -> u64 {
        self.rt.random()
    }

    async fn sleep_until(&self, at: Nanos) {
        self.rt.sleep_until(at).await;
    }

    async fn cpu(&self, work: Work) {
        self.rt.cpu(work).await;
    }

    async fn request<'a>(&'a self, server: ServerId, outgoing: Outgoing<'a>, deadline: Nanos) -> Result<Frame, Status> {
        let header = outgoing.header;
        if header.request.client == HAND {
            return self.rt.request(server, outgoing, deadline).await;
        }
        let sent = Sent { server, header, request: Request::decode(header.op, outgoing.body.clone())? };
        let fate = self.fate_of(&sent);
        self.line.sent.borrow_mut().push(sent);
        let (before, after) = match fate {
            Fate::Lost => return self.given_up(deadline).await,
            Fate::NoConnection => return Err(Status::Unreachable),
            Fate::Late(ns) => (ns, 0),
            Fate::ReplyLate(ns) => (0, ns),
            _ => (0, 0),
        };
        self.sleep_until(deadline.min(self.now() + before)).await;
        let reply = match &fate {
            Fate::Answered(answer) => {
                self.sleep_until(self.now() + 2 * LATENCY).await;
                let mut frame = Frame::reply(&header, answer.clone(), Payload::EMPTY);
                let last = self.line.replies.borrow().get(&server).copied().expect("the server has answered before");
                frame.header.server_boot = last.server_boot;
                frame.header.set_map_epoch(last.map_epoch());
                frame
            }
            _ => self.rt.request(server, outgoing, deadline).await?,
        };
        self.line.replies.borrow_mut().insert(server, reply.header);
        if fate == Fate::ReplyLost || self.now() + after > deadline {
            return self.given_up(deadline).await;
        }
        self.sleep_until(self.now() + after).await;
        Ok(reply)
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes a file in the root directory and opens it.
pub(crate) fn create(world: &World, client: &Client<TestRt>, name: &str) -> Arc<OpenFile> {
    world.run(client.create(&ROOT, ROOT_HANDLE, name.as_bytes(), &CreateOptions::default())).expect("the server makes it").1
}
