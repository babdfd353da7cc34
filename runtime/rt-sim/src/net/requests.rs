//! Requests and their connections, and replies, as a node hands them over.

use bytes::Bytes;
use weft_base::{ClientId, FastMap, Payload, ServerId, Status};
use weft_rt::PeerId;
use weft_trace::OpenStagedSpan;
use weft_wire::{Frame, Header, MessageKind};

use super::{Connection, EndState, Parcel, Side, seal};
use crate::ids::{End, NodeId, SlotId};
use crate::queue::Event;
use crate::slots::{Outcome, Reason};
use crate::world::State;

/// Requests.
impl State {
    /// Sends a request of `node` and begins to wait for its reply. `Ok(None)` if that life of the
    /// node is over.
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
        if deadline <= self.clock.now {
            return Err(Status::TimedOut);
        }
        let server_node = *self.net.servers.get(&server).ok_or(Status::Unreachable)?;
        let key = (server, header.request.client, header.request.incarnation);
        let known = self.nodes[node.index()].peers.get(&key).copied();
        let id = known.unwrap_or_else(|| self.connect(node, server_node, key));
        let sequence = header.request.sequence;
        let reason = Reason::Request { connection: id, sequence, op: header.op };
        let slot = self.clock.begin_wait(reason);
        self.clock.plan_timer(slot, deadline);
        let connection = &mut self.net.connections[id as usize];
        let before = connection.waiting.insert(sequence, slot);
        assert!(before.is_none(), "two unfinished requests of {:?} to {server} have the sequence number {sequence}", key.1);
        let frame = seal(header, body, bulk);
        if connection.at_client.state == EndState::Open {
            self.send_in_turn(id, slot, frame);
        } else {
            connection.queued.push((slot, frame));
        }
        Ok(Some(slot))
    }

    pub(crate) fn send_request(&mut self, id: u32, slot: SlotId, frame: Frame) {
        let begin = self.send(id, End::Server, Parcel::Frame(frame));
        if let (Some(begin), Some(slot)) = (begin, self.clock.slots.get(slot)) {
            slot.sent_at = begin;
        }
    }

    /// Nobody waits for this reply any more.
    pub(crate) fn forget_request(&mut self, connection: u32, sequence: u64, slot: SlotId) {
        let waiting = &mut self.net.connections[connection as usize].waiting;
        if waiting.get(&sequence) == Some(&slot) {
            waiting.remove(&sequence);
        }
    }

    pub(crate) fn request_timed_out(&mut self, slot: SlotId) {
        if let Some(Reason::Request { connection, sequence, .. }) = self.clock.slots.get(slot).and_then(|slot| slot.reason) {
            self.forget_request(connection, sequence, slot);
            self.clock.finish_wait(slot, Outcome::Reply(Err(Status::TimedOut)));
        }
    }

    fn connect(&mut self, node: NodeId, server_node: NodeId, key: (ServerId, ClientId, u32)) -> u32 {
        let id = self.net.connections.len() as u32;
        self.net.connections.push(Connection {
            at_client: Side::new(node, self.nodes[node.index()].life),
            at_server: Side::new(server_node, 0),
            server: key.0,
            client: key.1,
            incarnation: key.2,
            queued: Vec::new(),
            waiting: FastMap::default(),
        });
        let client = &mut self.nodes[node.index()];
        client.peers.insert(key, id);
        client.connections.push(id);
        if server_node != node {
            self.nodes[server_node.index()].connections.push(id);
        }
        self.clock.events.plan(self.clock.now + self.profile.net.connect_timeout_ns, Event::ConnectTimeout(id));
        self.send(id, End::Server, Parcel::Connect);
        id
    }
}

/// Replies.
impl State {
    /// Queues a reply of this life of a server for the end of its turn.
    pub(crate) fn queue_reply(&mut self, (node, life): (NodeId, u32), peer: PeerId, reply: Frame, traced: Option<OpenStagedSpan>) {
        if !self.is_alive(node, life) {
            return;
        }
        let replies = &mut self.nodes[node.index()].replies;
        if replies.is_empty() {
            self.net.repliers.push(node);
        }
        replies.push((peer, reply, traced));
    }

    /// All flows wait: the replies of the turn leave.
    pub(crate) fn send_replies(&mut self) {
        while let Some(node) = self.net.repliers.pop() {
            let mut replies = std::mem::take(&mut self.nodes[node.index()].replies);
            for (peer, reply, traced) in replies.drain(..) {
                let Some(connection) = self.net.connections.get(peer.0 as usize) else { continue };
                if connection.at_server.node == node && connection.at_server.state == EndState::Open {
                    let frame = seal(Header { kind: MessageKind::Reply, ..reply.header }, reply.body, reply.bulk);
                    let begin = self.send(peer.0 as u32, End::Client, Parcel::Frame(frame));
                    if let (Some(tracing), Some(traced)) = (&self.tracing, traced) {
                        tracing.reply_leaves(node, traced, begin.unwrap_or(self.clock.now));
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
