//! The seam in virtual time: what a node of the simulation sees.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use weft_base::{Nanos, Payload, ServerId, Status, WallTime};
use weft_rt::{Arrival, Bulk, FaultPoint, Outgoing, PeerId, Runtime, ServerRuntime, Usage, Work};
use weft_wire::Frame;

use crate::disk::SimDisk;
use crate::ids::NodeId;
use crate::slots::{Outcome, Reason, Wait};
use crate::world::{State, World};

/// The runtime of one life of one node. When the process dies, nothing that it waits for ever
/// happens.
#[derive(Clone)]
pub struct SimRt {
    disk: SimDisk,
}

impl SimRt {
    pub(crate) fn new(world: Rc<World>, node: NodeId, life: u32) -> SimRt {
        SimRt { disk: SimDisk { world, node, life } }
    }

    /// The node.
    pub fn node(&self) -> NodeId {
        self.disk.node
    }

    /// Counts the processes of the node, from 1.
    pub fn life(&self) -> u32 {
        self.disk.life
    }

    /// Adds a line to the trace; the text is made only if somebody reads it.
    pub fn note(&self, text: impl FnOnce() -> String) {
        if self.state().borrow().trace.is_on() {
            let text = text();
            self.state().borrow_mut().note(self.disk.node, format_args!("{text}"));
        }
    }

    fn state(&self) -> &RefCell<State> {
        &self.disk.world.state
    }

    async fn wait_until(&self, at: u64, reason: Reason) {
        let slot = self.state().borrow_mut().begin_timer(self.disk.node, self.disk.life, at, reason);
        Wait::new(self.state(), slot).await;
    }
}

impl World {
    /// A handle for one life of a node.
    pub(crate) fn rt(&self, node: NodeId, life: u32) -> SimRt {
        SimRt::new(self.me.upgrade().expect("whoever calls holds the world"), node, life)
    }
}

impl fmt::Debug for SimRt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimRt(node {}, life {})", self.disk.node.0, self.disk.life)
    }
}

impl Runtime for SimRt {
    fn now(&self) -> Nanos {
        Nanos(self.state().borrow().clock.now)
    }

    fn wall(&self) -> WallTime {
        self.state().borrow().wall(self.disk.node)
    }

    fn random(&self) -> u64 {
        self.state().borrow_mut().draw_for_task()
    }

    async fn sleep_until(&self, at: Nanos) {
        if at > self.now() {
            self.wait_until(at.0, Reason::Sleep).await;
        }
    }

    async fn cpu(&self, work: Work) {
        let end = self.state().borrow_mut().begin_work(self.disk.node, work);
        if let Some(at) = end {
            self.wait_until(at, Reason::Cpu).await;
        }
    }

    fn delay_ns(&self, point: FaultPoint) -> u64 {
        self.state().borrow().nodes[self.disk.node.index()].delays.get(point)
    }

    async fn request<'a>(&'a self, server: ServerId, request: Outgoing<'a>, deadline: Nanos) -> Result<Frame, Status> {
        let bulk = match request.bulk {
            Bulk::None | Bulk::Expected(_) => Payload::EMPTY,
            Bulk::Synthetic { len, tag } => Payload::Synthetic { len, tag },
            Bulk::Slices(slices) => gather(&slices),
        };
        let message = (request.header, request.body, bulk);
        let slot = self.state().borrow_mut().begin_request((self.disk.node, self.disk.life), server, message, deadline.0)?;
        match Wait::new(self.state(), slot).await {
            Outcome::Reply(result) => result,
            other => unreachable!("a request ended with {other:?}"),
        }
    }
}

fn gather(slices: &[&[u8]]) -> Payload {
    let mut bytes = BytesMut::with_capacity(slices.iter().map(|slice| slice.len()).sum());
    slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
    Payload::Real(Bytes::from(bytes))
}

impl ServerRuntime for SimRt {
    type Disk = SimDisk;

    fn spawn(&self, flow: impl Future<Output = ()> + 'static) {
        let mut state = self.state().borrow_mut();
        if state.is_alive(self.disk.node, self.disk.life) {
            state.clock.tasks.add(self.disk.node, self.disk.life, false, Box::pin(flow));
        } else {
            state.clock.drop_later(vec![Box::pin(flow)]);
        }
    }

    async fn receive(&self, into: &mut Vec<Arrival>) {
        let received_at = poll_fn(|context| {
            let mut state = self.state().borrow_mut();
            if !state.is_alive(self.disk.node, self.disk.life) {
                return Poll::Pending;
            }
            let node = &mut state.nodes[self.disk.node.index()];
            if node.arrivals.is_empty() {
                node.receiver = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(state.begin_receive(self.disk.node))
        });
        if let Some(at) = received_at.await {
            self.wait_until(at, Reason::Cpu).await;
        }
        into.extend(self.state().borrow_mut().nodes[self.disk.node.index()].arrivals.drain(..));
    }

    fn reply(&self, peer: PeerId, reply: Frame) {
        self.state().borrow_mut().queue_reply((self.disk.node, self.disk.life), peer, reply, weft_trace::take_leaving());
    }

    fn disk(&self) -> &SimDisk {
        &self.disk
    }

    fn usage(&self) -> Usage {
        self.state().borrow().nodes[self.disk.node.index()].usage_of_life()
    }
}
