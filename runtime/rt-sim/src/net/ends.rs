//! How connections end: breaks, deaths, and when each side learns it.

use weft_base::Status;
use weft_rt::{Arrival, PeerId};

use super::EndState;
use crate::ids::{End, NodeId, SlotId};
use crate::queue::Event;
use crate::slots::Outcome;
use crate::world::State;

impl State {
    /// A message met a machine where nobody has this connection: if it has power, it says so.
    pub(super) fn reset(&mut self, id: u32, met: End) {
        let connection = &mut self.net.connections[id as usize];
        connection.side_mut(met).state = EndState::Gone;
        let (from, to) = (connection.side(met).node, connection.side(met.other()).node);
        if self.nodes[from.index()].has_power && self.net.connections[id as usize].side(met.other()).state != EndState::Gone {
            let at = self.clock.now + self.latency(from, to) + self.draw_extra(from, to);
            self.clock.events.plan(at, Event::Notice { connection: id, end: met.other() });
        }
    }

    /// A connection breaks without a death: each end learns it at a time of its own.
    pub(crate) fn break_connection(&mut self, id: u32) {
        for end in [End::Client, End::Server] {
            let at = self.clock.now + self.fault_random.below(self.profile.net.retransmit_max_ns);
            self.clock.events.plan(at, Event::Notice { connection: id, end });
        }
    }

    /// An end learns that the connection is gone. Its system tells the other one, after everything
    /// that is on the way there.
    pub(crate) fn notice(&mut self, id: u32, end: End) {
        let connection = &mut self.net.connections[id as usize];
        if connection.side(end).state == EndState::Gone {
            return;
        }
        let was_open = std::mem::replace(&mut connection.side_mut(end).state, EndState::Gone) == EndState::Open;
        let (node, life) = (connection.side(end).node, connection.side(end).life);
        let other = end.other();
        let (other_node, other_state, other_from) =
            (connection.side(other).node, connection.side(other).state, connection.side(other).lane.all_there_at);
        if other_state == EndState::Open || (end == End::Server && other_state == EndState::Opening) {
            let at = (self.clock.now + self.latency(node, other_node) + self.draw_extra(node, other_node)).max(other_from);
            self.clock.events.plan(at, Event::Notice { connection: id, end: other });
        }
        self.forget_connection(id);
        if !self.is_alive(node, life) {
            return;
        }
        match end {
            End::Client => self.fail_requests(id),
            End::Server if was_open => {
                let connection = &self.net.connections[id as usize];
                let (client, incarnation) = (connection.client, connection.incarnation);
                self.note(node, format_args!("connection of {client:?} is gone"));
                self.push_arrival(node, Arrival::Disconnected { peer: PeerId(u64::from(id)), client, incarnation });
            }
            End::Server => {}
        }
    }

    pub(crate) fn connect_timeout(&mut self, id: u32) {
        if self.net.connections[id as usize].at_client.state == EndState::Opening {
            self.notice(id, End::Client);
        }
    }

    pub(super) fn fail_requests(&mut self, id: u32) {
        let connection = &mut self.net.connections[id as usize];
        connection.queued.clear();
        let key = (connection.server, connection.client, connection.incarnation);
        let mut waiting: Vec<(u64, SlotId)> = connection.waiting.drain().collect();
        let node = connection.at_client.node;
        waiting.sort_unstable_by_key(|(sequence, _)| *sequence);
        let peers = &mut self.nodes[node.index()].peers;
        if peers.get(&key) == Some(&id) {
            peers.remove(&key);
        }
        if !waiting.is_empty() {
            self.note(node, format_args!("connection to {} is gone, {} requests fail", key.0, waiting.len()));
        }
        for (_, slot) in waiting {
            self.clock.finish_wait(slot, Outcome::Reply(Err(Status::Unreachable)));
        }
    }

    /// Takes a connection from the lists of its nodes when neither end has it any more.
    pub(super) fn forget_connection(&mut self, id: u32) {
        let connection = &self.net.connections[id as usize];
        if connection.at_client.state == EndState::Gone && connection.at_server.state != EndState::Open {
            for node in [connection.at_client.node, connection.at_server.node] {
                self.nodes[node.index()].connections.retain(|other| *other != id);
            }
        }
    }

    /// The process of `node` has died. `power_cut`: its machine cannot tell anybody.
    pub(crate) fn abandon_connections(&mut self, node: NodeId, power_cut: bool) {
        for id in self.nodes[node.index()].connections.clone() {
            for end in [End::Client, End::Server] {
                let connection = &mut self.net.connections[id as usize];
                if connection.side(end).node != node || connection.side(end).state == EndState::Gone {
                    continue;
                }
                if end == End::Server && connection.at_server.state == EndState::Opening {
                    // The client's first message is on its way; it will find whoever is there then.
                    continue;
                }
                connection.side_mut(end).state = EndState::Gone;
                if end == End::Client {
                    connection.queued.clear();
                    connection.waiting.clear();
                }
                let other = end.other();
                let (other_node, other_from) = (connection.side(other).node, connection.side(other).lane.all_there_at);
                // What the process sent last may be lost with it.
                let keeps = self.fault_random.coin();
                let at = if power_cut {
                    let net = &self.profile.net;
                    self.clock.now + self.fault_random.between(net.dead_peer_min_ns, net.dead_peer_max_ns)
                } else {
                    let told = self.clock.now + self.latency(node, other_node) + self.draw_extra(node, other_node);
                    if keeps { told.max(other_from) } else { told }
                };
                self.net.connections[id as usize].side_mut(other).lane.is_dead |= !keeps;
                self.clock.events.plan(at, Event::Notice { connection: id, end: other });
                self.forget_connection(id);
            }
        }
        let node = &mut self.nodes[node.index()];
        node.peers.clear();
        node.arrivals.clear();
        node.replies.clear();
    }

    /// Breaks all connections of a node.
    pub(crate) fn break_all(&mut self, node: NodeId) {
        for id in self.nodes[node.index()].connections.clone() {
            self.break_connection(id);
        }
    }

    /// True if the connection is between these two nodes, whichever of them is its client.
    pub(crate) fn joins(&self, id: u32, a: NodeId, b: NodeId) -> bool {
        let connection = &self.net.connections[id as usize];
        let ends = (connection.at_client.node, connection.at_server.node);
        ends == (a, b) || ends == (b, a)
    }

    /// Until when the link from one node to another is cut, if it is.
    pub(super) fn cut_until(&mut self, from: NodeId, to: NodeId) -> Option<u64> {
        if self.net.cut_links.is_empty() {
            return None;
        }
        let until = *self.net.cut_links.get(&(from, to))?;
        if until > self.clock.now {
            return Some(until);
        }
        self.net.cut_links.remove(&(from, to));
        None
    }
}
