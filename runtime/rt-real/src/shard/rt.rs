//! The handle that a server's code holds: the traits of `weft-rt` over the parts of the shard.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use weft_base::{ClusterMap, Nanos, Payload, ServerId, Status, WallTime};
use weft_rt::{Arrival, Bulk, DiskError, FaultPoint, FileId, Outgoing, PeerId, Runtime, ServerRuntime, Signal, Usage, Work};
use weft_wire::{Frame, Header};

use super::executor::{Executor, Timers};
use super::net::Net;
use super::peers::{Next, Peer};
use super::{RealDisk, ShardConfig};
use crate::address::Address;
use crate::handshake::{Introduction, dial_any};
use crate::offload::Offload;
use crate::outbound::check_sizes;
use crate::{clock, fault, sys};

/// Connects that run at once.
const DIALERS_MAX: usize = 16;

/// The runtime of a server. Belongs to its thread.
#[derive(Clone)]
pub struct ShardRt(Rc<Parts>);

impl std::fmt::Debug for ShardRt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ShardRt").field(&self.0.config.server).finish()
    }
}

/// What a shard consists of. No borrow of these is held while code of the server runs.
pub(crate) struct Parts {
    pub(crate) executor: Executor,
    pub(crate) timers: Timers,
    pub(crate) net: RefCell<Net>,
    pub(crate) disk: RealDisk,
    pub(crate) config: ShardConfig,
    dialers: Offload,
    /// A stop was asked for.
    pub(crate) stopping: Signal,
    /// The server waits for a stop, and ends by itself then.
    pub(crate) ends_itself: Cell<bool>,
}

impl ShardRt {
    pub(crate) fn new(executor: Executor, timers: Timers, net: Net, disk: RealDisk, config: ShardConfig) -> ShardRt {
        ShardRt(Rc::new(Parts {
            executor,
            timers,
            net: RefCell::new(net),
            disk,
            config,
            dialers: Offload::new(DIALERS_MAX),
            stopping: Signal::new(),
            ends_itself: Cell::new(false),
        }))
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.0
    }

    /// True once a stop was asked for; the server ends with the present turn.
    pub fn is_stopping(&self) -> bool {
        self.0.config.stop.is_stopping()
    }

    async fn ask(&self, server: ServerId, request: Outgoing<'_>, deadline: Nanos) -> Result<Frame, Status> {
        check_sizes(request.body.len(), request.bulk.len())?;
        let sequence = request.header.request.sequence;
        let frame = Frame { header: request.header, body: request.body, bulk: copied(&request.bulk) };
        let next = self.0.net.borrow_mut().ask(server, frame)?;
        let wait = PeerWait { rt: self, server, sequence, timeout: Sleep { timers: &self.0.timers, at: deadline, timer: None } };
        if let Next::Dial(mut addresses, client, incarnation) = next {
            let config = &self.0.config;
            let introduction = Introduction {
                fs_id: config.fs_id,
                fs_name: config.fs_name.clone(),
                key: config.keys.as_ref().map(|keys| keys.ring().server()),
                server,
                client,
                incarnation,
                share: false,
                needs_encryption: config.encrypt_tcp,
            };
            let dialing = self.0.dialers.run(move || {
                let outcome = dial_any(&mut addresses, &introduction, Nanos::NEVER);
                (addresses, outcome)
            });
            let rt = self.clone();
            self.spawn(async move {
                let (addresses, outcome) = dialing.await;
                rt.0.net.borrow_mut().dialed(server, addresses, outcome);
            });
        }
        wait.await
    }
}

fn copied(bulk: &Bulk<'_>) -> Payload {
    match bulk {
        Bulk::None | Bulk::Expected(_) => Payload::EMPTY,
        Bulk::Slices(slices) => Payload::Real(slices.concat().into()),
        Bulk::Synthetic { len, tag } => Payload::Synthetic { len: *len, tag: *tag },
    }
}

/// Waits for a reply; forgets the request when it is dropped.
struct PeerWait<'a> {
    rt: &'a ShardRt,
    server: ServerId,
    sequence: u64,
    timeout: Sleep<'a>,
}

impl Future for PeerWait<'_> {
    type Output = Result<Frame, Status>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let parts = &self.rt.0;
        if let Some(outcome) = parts.net.borrow_mut().take_outcome(self.server, self.sequence, context.waker()) {
            return Poll::Ready(outcome);
        }
        self.timeout.poll(context.waker()).map(|()| Err(Status::TimedOut))
    }
}

impl Drop for PeerWait<'_> {
    fn drop(&mut self) {
        self.rt.0.net.borrow_mut().forget(self.server, self.sequence);
    }
}

/// Waits for a time; its timer goes when it is dropped.
struct Sleep<'a> {
    timers: &'a Timers,
    at: Nanos,
    timer: Option<u64>,
}

impl Sleep<'_> {
    fn poll(&mut self, waker: &Waker) -> Poll<()> {
        match self.timer {
            None => self.timer = Some(self.timers.add(self.at, waker.clone())),
            Some(number) => {
                if !self.timers.renew(self.at, number, waker) {
                    return Poll::Ready(());
                }
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.timer {
            self.timers.remove(self.at, number);
        }
    }
}

impl Runtime for ShardRt {
    fn now(&self) -> Nanos {
        clock::now()
    }

    fn wall(&self) -> WallTime {
        clock::wall()
    }

    fn random(&self) -> u64 {
        clock::random()
    }

    fn learn_servers(&self, map: &ClusterMap) {
        let peers = &mut self.0.net.borrow_mut().peers;
        for (server, address) in map.servers().filter_map(|entry| Some((entry.id, entry.address.parse::<Address>().ok()?))) {
            peers.entry(server).or_insert_with(|| Peer::new(address.clone())).learn(address);
        }
    }

    fn sleep_until(&self, at: Nanos) -> impl Future<Output = ()> {
        let mut sleep = Sleep { timers: &self.0.timers, at, timer: None };
        poll_fn(move |context| match sleep.timer {
            None if clock::now() >= at => Poll::Ready(()),
            _ => sleep.poll(context.waker()),
        })
    }

    async fn cpu(&self, _work: Work) {}

    fn delay_ns(&self, point: FaultPoint) -> u64 {
        fault::delay_ns(point)
    }

    fn request<'a>(&'a self, server: ServerId, request: Outgoing<'a>, deadline: Nanos) -> impl Future<Output = Result<Frame, Status>> + 'a {
        self.ask(server, request, deadline)
    }
}

impl ServerRuntime for ShardRt {
    type Disk = RealDisk;

    fn spawn(&self, flow: impl Future<Output = ()> + 'static) {
        self.0.executor.spawn(flow);
    }

    async fn receive(&self, into: &mut Vec<Arrival>) {
        poll_fn(|context| match self.0.net.borrow_mut().take_arrivals(into, context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    async fn read_for_reply(
        &self,
        peer: PeerId,
        request: &Header,
        file: FileId,
        ranges: &[(u64, u64)],
    ) -> Result<Option<Payload>, DiskError> {
        let room = self.0.net.borrow().room(peer, request, ranges.iter().map(|(_, len)| len).sum());
        match (room, &self.0.disk) {
            (Some((memory, place)), RealDisk::Directory(disk)) => disk.read_shared(file, ranges, &memory, place).map(Some),
            _ => Ok(None),
        }
    }

    fn peer_name(&self, peer: PeerId) -> Option<String> {
        self.0.net.borrow().peer_name(peer)
    }

    fn reply(&self, peer: PeerId, mut reply: Frame) {
        if check_sizes(reply.body.len(), reply.bulk.len()).is_err() {
            // The peer would refuse the frame and close; an error reaches the one who asked for too
            // much.
            reply = Frame::reply(&reply.header, Err(Status::TooBig), Payload::EMPTY);
        }
        self.0.net.borrow_mut().send(peer.0, reply);
    }

    fn disk(&self) -> &RealDisk {
        &self.0.disk
    }

    fn stop_requested(&self) -> impl Future<Output = ()> {
        self.0.ends_itself.set(true);
        let stopping = self.0.stopping.wait();
        let asked = self.is_stopping();
        async move {
            if !asked {
                stopping.await;
            }
        }
    }

    fn usage(&self) -> Usage {
        Usage { cpu_us: sys::thread_cpu_us(), ..self.0.net.borrow().usage }
    }
}
