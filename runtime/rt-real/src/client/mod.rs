//! The runtime of client processes: every thread drives its own flows, all threads share one
//! connection per server.
//!
//! There is no background thread. A thread that waits for a reply reads the connection on which it
//! comes, if nobody does (leader); otherwise it sleeps until the leader hands it its reply or the
//! leadership (follower). So a synchronous request needs no hand-over, and many threads on one
//! connection need one for each reply at most.
//!
//! A request whose answer may come much later goes over a second connection: whoever waits for it
//! would read everybody's replies meanwhile, and hand each over.
//!
//! Small requests are collected while a thread polls its flows, and leave with one send when it
//! begins to wait. Bulk data leaves at once from the caller's memory.
//!
//! # Invariants
//! - Whoever waits on a connection has either taken its reader or knows that somebody else has it;
//!   whoever gives a reader back looks afterwards for somebody who waits
//!   ([`conn::Conn::ensure_reader`]). So no reply lies unread while somebody waits for it.
//! - A thread that holds a reader never waits for anything but sockets that it reads, and its own
//!   event.

mod config;
mod conn;
mod context;
mod link;
mod parker;

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use weft_base::{ClientId, ClusterMap, FsId, Nanos, RequestId, ServerId, Status, WallTime};
use weft_rt::{FaultPoint, Outgoing, Runtime, ThreadRuntime, Work};
use weft_wire::handshake::ANY_SERVER;
use weft_wire::ops::{GetMapReply, GetMapRequest};
use weft_wire::{Credential, Flags, Frame, Header, MessageKind, Op, Wire};

pub use config::{ClientConfig, FetchError};

use crate::address::Address;
use crate::handshake::Introduction;
use crate::outbound::check_sizes;
use crate::{clock, fault};
use context::{Sleep, ThreadContext};
use link::Link;

/// The runtime of a client process. Clones share everything; drop the last one to close the
/// connections.
#[derive(Clone, Debug)]
pub struct ClientRt(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// To any server.
    me: Introduction,
    links: Links,
    counters: Arc<Counters>,
}

/// The ways to servers. They only become more, so nobody needs a lock to find one: what is learned
/// hangs behind what was known.
#[derive(Debug)]
struct Links {
    known: BTreeMap<ServerId, Ways>,
    learned: OnceLock<Box<Links>>,
}

/// The connections to one server.
#[derive(Debug)]
struct Ways {
    usual: Link,
    /// For requests whose answers may come much later.
    waiting: Link,
}

impl Links {
    fn new(servers: Vec<(ServerId, Address)>, me: &Introduction, counters: &Arc<Counters>) -> Links {
        let ways = |(server, address): (ServerId, Address)| {
            let link = |share| Link::new(address.clone(), Introduction { server, share, ..me.clone() }, counters.clone());
            (server, Ways { usual: link(me.share), waiting: link(false) })
        };
        Links { known: servers.into_iter().map(ways).collect(), learned: OnceLock::new() }
    }

    fn get(&self, server: ServerId) -> Option<&Ways> {
        self.known.get(&server).or_else(|| self.learned.get()?.get(server))
    }

    fn add(&self, learned: Box<Links>) {
        if let Err(learned) = self.learned.set(learned) {
            self.learned.get().expect("somebody was faster").add(learned);
        }
    }
}

/// Counters of all connections of one runtime.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent_messages: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) received_messages: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) send_calls: AtomicU64,
    pub(crate) receive_calls: AtomicU64,
    pub(crate) poll_calls: AtomicU64,
    pub(crate) connects: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}

/// What a client runtime has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Requests sent.
    pub sent_messages: u64,
    /// Bytes sent, handshakes left out.
    pub sent_bytes: u64,
    /// Replies received.
    pub received_messages: u64,
    /// Bytes received, handshakes left out.
    pub received_bytes: u64,
    /// System calls that sent.
    pub send_calls: u64,
    /// System calls that received.
    pub receive_calls: u64,
    /// System calls that waited for sockets.
    pub poll_calls: u64,
    /// Connections made.
    pub connects: u64,
}

impl ClientRt {
    /// Makes a runtime; connections are made when they are needed.
    pub fn new(config: ClientConfig) -> ClientRt {
        let counters = Arc::new(Counters::default());
        let ClientConfig { fs_id, fs_name, key, servers, client, incarnation, share_memory: share, encrypt_tcp: needs_encryption } = config;
        let me = Introduction { fs_id, fs_name, key, server: ANY_SERVER, client, incarnation, share, needs_encryption };
        let links = Links::new(servers, &me, &counters);
        ClientRt(Arc::new(Inner { me, links, counters }))
    }

    /// Asks any server of a file system for the cluster map. The name may be empty if only one file
    /// system is served there. Takes 5 seconds at most if the host name is resolved in time.
    ///
    /// # Errors
    /// When nobody answers there, or the server refuses; the text says what to check.
    pub fn fetch_map(address: &Address, key: Option<&Credential>, fs_name: &str) -> Result<ClusterMap, FetchError> {
        let rt = ClientRt::new(ClientConfig {
            fs_id: FsId(0),
            fs_name: fs_name.to_string(),
            key: key.cloned(),
            servers: vec![(ANY_SERVER, address.clone())],
            client: clock::random_client_id(key),
            incarnation: 1,
            share_memory: false,
            encrypt_tcp: false,
        });
        let fetch = async {
            let request = RequestId { client: rt.client(), incarnation: 1, sequence: 1 };
            let header = Header::request(Op::GetMap, ANY_SERVER, request, 0);
            let outgoing = Outgoing { header, body: GetMapRequest {}.to_bytes(), bulk: weft_rt::Bulk::None };
            let reply = rt.request(ANY_SERVER, outgoing, rt.now() + crate::handshake::HANDSHAKE_NS_MAX).await?;
            reply.status()?;
            Ok(GetMapReply::from_bytes(reply.body)?.map)
        };
        rt.block_on(fetch).map_err(|status| FetchError { address: address.clone(), status, reason: rt.last_error(ANY_SERVER) })
    }

    /// Who we are to the servers: the identity that requests must carry.
    pub fn client(&self) -> ClientId {
        self.0.me.client
    }

    /// The life of this identity, as given in the configuration.
    pub fn incarnation(&self) -> u32 {
        self.0.me.incarnation
    }

    /// Why the last attempt to connect to this server failed, in the words of the system; `None` if
    /// none failed.
    pub fn last_error(&self, server: ServerId) -> Option<String> {
        self.0.links.get(server).and_then(|ways| ways.usual.last_error())
    }

    /// Counters, all servers together.
    pub fn stats(&self) -> ClientStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.0.counters;
        ClientStats {
            sent_messages: of(&counters.sent_messages),
            sent_bytes: of(&counters.sent_bytes),
            received_messages: of(&counters.received_messages),
            received_bytes: of(&counters.received_bytes),
            send_calls: of(&counters.send_calls),
            receive_calls: of(&counters.receive_calls),
            poll_calls: of(&counters.poll_calls),
            connects: of(&counters.connects),
        }
    }

    /// Drives a flow to its end on the calling thread. Flows of this runtime can be driven by
    /// nothing else. Any number of threads may do so at once.
    pub fn block_on<F: Future>(&self, flow: F) -> F::Output {
        let thread = ThreadContext::current();
        let driving = thread.drive();
        let mut flow = pin!(flow);
        let mut context = Context::from_waker(thread.waker());
        loop {
            if let Poll::Ready(output) = flow.as_mut().poll(&mut context) {
                drop(driving);
                return output;
            }
            thread.park();
        }
    }
}

/// The descriptor of the calling thread's event.
#[cfg(test)]
pub(crate) fn event_of_this_thread() -> std::os::fd::RawFd {
    ThreadContext::current().parker().descriptor()
}

impl Runtime for ClientRt {
    fn now(&self) -> Nanos {
        clock::now()
    }

    fn wall(&self) -> WallTime {
        clock::wall()
    }

    fn random(&self) -> u64 {
        clock::random()
    }

    fn sleep_until(&self, at: Nanos) -> impl Future<Output = ()> {
        let mut sleep = Sleep::new(at);
        poll_fn(move |context| sleep.poll(context.waker()))
    }

    async fn cpu(&self, _work: Work) {}

    fn learn_servers(&self, map: &ClusterMap) {
        let mut unknown = Vec::new();
        for (server, address) in map.servers().filter_map(|entry| Some((entry.id, entry.address.parse::<Address>().ok()?))) {
            match self.0.links.get(server) {
                Some(ways) => {
                    ways.usual.learn(address.clone());
                    ways.waiting.learn(address);
                }
                None => unknown.push((server, address)),
            }
        }
        if !unknown.is_empty() {
            self.0.links.add(Box::new(Links::new(unknown, &self.0.me, &self.0.counters)));
        }
    }

    fn delay_ns(&self, point: FaultPoint) -> u64 {
        fault::delay_ns(point)
    }

    async fn request<'a>(&'a self, server: ServerId, request: Outgoing<'a>, deadline: Nanos) -> Result<Frame, Status> {
        let ways = self.0.links.get(server).ok_or(Status::WrongServer)?;
        let link = if request.header.flags.contains(Flags::WAITS) { &ways.waiting } else { &ways.usual };
        check_sizes(request.body.len(), request.bulk.len())?;
        let identity = (request.header.request.client, request.header.request.incarnation);
        if identity != (self.client(), self.incarnation()) || request.header.kind != MessageKind::Request {
            return Err(Status::Invalid);
        }
        let thread = ThreadContext::current();
        let conn = link.connected(&thread, deadline)?;
        conn.submit(&thread, request, deadline)?.await
    }
}

impl ThreadRuntime for ClientRt {
    fn block_on<F: Future>(&self, flow: F) -> F::Output {
        ClientRt::block_on(self, flow)
    }
}
