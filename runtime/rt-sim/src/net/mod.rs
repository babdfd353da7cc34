//! Connections and messages, as sockets show them.
//!
//! Messages of one direction of a connection arrive in order. A connection breaks by a fault or
//! because one end died; each end learns it at a time of its own, and until a server has learnt it,
//! what was on the way still arrives: so the retry of a request over a new connection may overtake
//! the original. Message faults: a message is delayed (and what follows it on the connection with
//! it), lost alone (its request runs into its deadline), lost with everything after it until the
//! connection breaks, or delivered twice.
//!
//! A message occupies the sender's card for its length, and the receiver's card from the arrival of
//! its first byte. Cards serve whole messages first come, first served: a small message behind a
//! large one waits for all of it, where real connections would share the card packet by packet; the
//! sum of all is the same.

mod ends;
mod messages;

mod requests;

use std::collections::BTreeMap;

use bytes::Bytes;
use weft_base::{ClientId, FastMap, Payload, ServerId};
use weft_wire::{BODY_BYTES_MAX, BULK_BYTES_MAX, Frame, Header, crc32c};

use crate::faults::MessageFaults;
use crate::ids::{End, NodeId, SlotId};
use crate::slab::Slab;

/// Bytes of the messages of the handshake, one direction together.
const HANDSHAKE_BYTES: u64 = 300;

/// All connections, what travels on them, and what is wrong between nodes.
#[derive(Default)]
pub(crate) struct Net {
    pub(crate) servers: BTreeMap<ServerId, NodeId>,
    pub(crate) connections: Vec<Connection>,
    messages: Slab<Message>,
    /// Links that are cut, by direction, and until when.
    pub(crate) cut_links: BTreeMap<(NodeId, NodeId), u64>,
    pub(crate) message_faults: MessageFaults,
    pub(crate) message_faults_until: u64,
    /// Nodes with replies that have not left.
    repliers: Vec<NodeId>,
    /// Client processes that may send or receive when they have done what they do.
    pub(crate) client_turns: Vec<NodeId>,
}

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
    at_client: Side,
    at_server: Side,
    pub(crate) server: ServerId,
    client: ClientId,
    incarnation: u32,
    /// Requests that wait for the connection to open.
    queued: Vec<(SlotId, Frame)>,
    /// Requests that wait for their reply, by sequence number.
    waiting: FastMap<u64, SlotId>,
}

/// One end of a connection.
#[derive(Debug)]
struct Side {
    node: NodeId,
    life: u32,
    state: EndState,
    /// The way here.
    lane: Lane,
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
pub(crate) enum Parcel {
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
    /// The node of its client.
    pub(crate) fn client(&self) -> NodeId {
        self.at_client.node
    }

    fn side(&self, end: End) -> &Side {
        match end {
            End::Server => &self.at_server,
            End::Client => &self.at_client,
        }
    }

    fn side_mut(&mut self, end: End) -> &mut Side {
        match end {
            End::Server => &mut self.at_server,
            End::Client => &mut self.at_client,
        }
    }
}

impl Side {
    fn new(node: NodeId, life: u32) -> Side {
        Side { node, life, state: EndState::Opening, lane: Lane::default() }
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
