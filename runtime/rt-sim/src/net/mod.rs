//! Connections and messages, as sockets show them.
//!
//! Messages of one direction of a connection arrive in order. A connection breaks by a fault or because one end died; each end learns
//! it at a time of its own, and until a server has learnt it, what was on the way still arrives: so the retry of a request over a new
//! connection may overtake the original. Message faults: a message is delayed (and what follows it on the connection with it), lost
//! alone (its request runs into its deadline), lost with everything after it until the connection breaks, or delivered twice.
//!
//! A message occupies the sender's card for its length, and the receiver's card from the arrival of its first byte. Cards serve
//! whole messages first come, first served: a small message behind a large one waits for all of it, where real connections would
//! share the card packet by packet; the sum of all is the same.

mod ends;
mod messages;

use bytes::Bytes;
use weft_base::{ClientId, FastMap, Payload, ServerId, Status};
use weft_rt::PeerId;
use weft_trace::OpenLadder;
use weft_wire::{BODY_BYTES_MAX, BULK_BYTES_MAX, Frame, Header, Kind, crc32c};

use crate::node::NodeId;
use crate::queue::{End, Event};
use crate::slots::{Outcome, Reason, SlotId};
use crate::world::State;

/// Bytes of the messages of the handshake, one direction together.
const HANDSHAKE_BYTES: u64 = 300;

/// What one end knows about its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndState {
    /// Not yet open.
    Opening,
    Open,
    Gone,
}

/// A connection from its first message on. Its index is the identity of the peer at the server.
#[derive(Debug)]
pub(crate) struct Connection {
    client_node: NodeId,
    client_life: u32,
    server_node: NodeId,
    server_life: u32,
    pub(crate) server: ServerId,
    client: ClientId,
    incarnation: u32,
    client_end: EndState,
    server_end: EndState,
    /// Requests that wait for the connection to open.
    queued: Vec<(SlotId, Frame)>,
    /// Requests that wait for their reply, by sequence number.
    waiting: FastMap<u64, SlotId>,
    to_server: Lane,
    to_client: Lane,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Lane {
    /// Nothing arrives any more.
    is_dead: bool,
    /// The last send was at this time: what leaves at the same time is the same send.
    last_send: Option<u64>,
    /// Jitter, delay and hold-ups of the last send, for what else belongs to it.
    last_extra: u64,
    /// Nothing arrives before what was sent before it.
    last_arrival: u64,
    last_delivery: u64,
    /// What is on the way is there by then, unless the receiver's card is busy with something else.
    all_there_at: u64,
}

/// What travels.
#[derive(Debug)]
enum Parcel {
    Connect,
    Accept,
    Frame(Frame),
}

/// A message on its way.
#[derive(Debug)]
pub(crate) struct Message {
    connection: u32,
    to: End,
    parcel: Parcel,
    bytes: u64,
    /// When its last byte can be at the receiver at the earliest.
    last_byte: u64,
}

impl Connection {
    fn lane(&mut self, to: End) -> &mut Lane {
        match to {
            End::Server => &mut self.to_server,
            End::Client => &mut self.to_client,
        }
    }

    fn node(&self, end: End) -> NodeId {
        match end {
            End::Server => self.server_node,
            End::Client => self.client_node,
        }
    }

    fn life(&self, end: End) -> u32 {
        match end {
            End::Server => self.server_life,
            End::Client => self.client_life,
        }
    }

    fn state(&mut self, end: End) -> &mut EndState {
        match end {
            End::Server => &mut self.server_end,
            End::Client => &mut self.client_end,
        }
    }
}

impl End {
    fn other(self) -> End {
        match self {
            End::Client => End::Server,
            End::Server => End::Client,
        }
    }
}

/// Fills in lengths and checksums, as every sender does.
fn seal(mut header: Header, body: Bytes, bulk: Payload) -> Frame {
    assert!(body.len() <= BODY_BYTES_MAX, "a body of {} bytes is too long to be sent", body.len());
    assert!(bulk.len() <= BULK_BYTES_MAX as u64, "bulk data of {} bytes is too long to be sent", bulk.len());
    header.body_bytes = body.len() as u32;
    header.bulk_bytes = bulk.len() as u32;
    header.body_crc = crc32c(&body);
    header.bulk_crc = match &bulk {
        Payload::Real(bytes) => crc32c(bytes),
        Payload::Synthetic { len, tag } => crc32c(&[len.to_le_bytes(), tag.to_le_bytes()].concat()),
    };
    Frame { header, body, bulk }
}

/// Requests.
impl State {
    /// Sends a request of `node` and begins to wait for its reply. `Ok(None)` if that life of the node is over.
    pub(crate) fn begin_request(
        &mut self,
        (node, life): (NodeId, u32),
        server: ServerId,
        (header, body, bulk): (Header, Bytes, Payload),
        deadline: u64,
    ) -> Result<Option<SlotId>, Status> {
        if !self.is_alive(node, life) {
            return Ok(None);
        }
        if deadline <= self.now {
            return Err(Status::TimedOut);
        }
        let server_node = *self.servers.get(&server).ok_or(Status::Unreachable)?;
        let key = (server, header.request.client, header.request.incarnation);
        let known = self.nodes[node.index()].peers.get(&key).copied();
        let id = known.unwrap_or_else(|| self.connect(node, server_node, key));
        let sequence = header.request.sequence;
        let reason = Reason::Request { connection: id, sequence, op: header.op };
        let slot = self.slots.add(self.current_task, reason);
        self.plan_timer(slot, deadline);
        let connection = &mut self.connections[id as usize];
        let before = connection.waiting.insert(sequence, slot);
        assert!(before.is_none(), "two unfinished requests of {:?} to {server} have the sequence number {sequence}", key.1);
        let frame = seal(header, body, bulk);
        if connection.client_end == EndState::Open {
            self.send_request(id, slot, frame);
        } else {
            connection.queued.push((slot, frame));
        }
        Ok(Some(slot))
    }

    fn send_request(&mut self, id: u32, slot: SlotId, frame: Frame) {
        let begin = self.send(id, End::Server, Parcel::Frame(frame));
        if let (Some(begin), Some(slot)) = (begin, self.slots.get(slot)) {
            slot.sent_at = begin;
        }
    }

    /// Nobody waits for this reply any more.
    pub(crate) fn forget_request(&mut self, connection: u32, sequence: u64, slot: SlotId) {
        let waiting = &mut self.connections[connection as usize].waiting;
        if waiting.get(&sequence) == Some(&slot) {
            waiting.remove(&sequence);
        }
    }

    pub(crate) fn request_timed_out(&mut self, slot: SlotId) {
        if let Some(Reason::Request { connection, sequence, .. }) = self.slots.get(slot).and_then(|slot| slot.reason) {
            self.forget_request(connection, sequence, slot);
            self.finish_wait(slot, Outcome::Reply(Err(Status::TimedOut)));
        }
    }

    fn connect(&mut self, node: NodeId, server_node: NodeId, key: (ServerId, ClientId, u32)) -> u32 {
        let id = self.connections.len() as u32;
        self.connections.push(Connection {
            client_node: node,
            client_life: self.nodes[node.index()].life,
            server_node,
            server_life: 0,
            server: key.0,
            client: key.1,
            incarnation: key.2,
            client_end: EndState::Opening,
            server_end: EndState::Opening,
            queued: Vec::new(),
            waiting: FastMap::default(),
            to_server: Lane::default(),
            to_client: Lane::default(),
        });
        let client = &mut self.nodes[node.index()];
        client.peers.insert(key, id);
        client.connections.push(id);
        if server_node != node {
            self.nodes[server_node.index()].connections.push(id);
        }
        self.events.plan(self.now + self.profile.net.connect_timeout_ns, Event::ConnectTimeout(id));
        self.send(id, End::Server, Parcel::Connect);
        id
    }
}

/// Replies.
impl State {
    /// Queues a reply of this life of a server for the end of its turn.
    pub(crate) fn queue_reply(&mut self, (node, life): (NodeId, u32), peer: PeerId, reply: Frame, traced: Option<OpenLadder>) {
        if !self.is_alive(node, life) {
            return;
        }
        let replies = &mut self.nodes[node.index()].replies;
        if replies.is_empty() {
            self.repliers.push(node);
        }
        replies.push((peer, reply, traced));
    }

    /// All flows wait: the replies of the turn leave.
    pub(crate) fn send_replies(&mut self) {
        while let Some(node) = self.repliers.pop() {
            let mut replies = std::mem::take(&mut self.nodes[node.index()].replies);
            for (peer, reply, traced) in replies.drain(..) {
                let Some(connection) = self.connections.get(peer.0 as usize) else { continue };
                if connection.server_node == node && connection.server_end == EndState::Open {
                    let frame = seal(Header { kind: Kind::Reply, ..reply.header }, reply.body, reply.bulk);
                    let begin = self.send(peer.0 as u32, End::Client, Parcel::Frame(frame));
                    if let (Some(tracing), Some(traced)) = (&self.tracing, traced) {
                        tracing.reply_leaves(node, traced, begin.unwrap_or(self.now));
                    }
                }
            }
            let queue = &mut self.nodes[node.index()].replies;
            if queue.is_empty() {
                *queue = replies;
            }
        }
    }
}
