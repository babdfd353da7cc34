//! Messages on their way: cards, latency, faults, delivery.

use weft_rt::{Arrival, FaultPoint, PeerId};
use weft_wire::{Flags, Frame, KeyId, KeyRights, MessageKind, Op};

use super::{EndState, HANDSHAKE_BYTES, Message, Parcel};
use crate::ids::{End, NodeId};
use crate::models::transfer_ns;
use crate::queue::Event;
use crate::slots::Outcome;
use crate::world::State;

impl State {
    /// Sends; gives when the sender's card begins with it, unless the connection is broken.
    pub(super) fn send(&mut self, id: u32, to: End, parcel: Parcel) -> Option<u64> {
        let connection = &self.net.connections[id as usize];
        let (from_node, to_node) = (connection.side(to.other()).node, connection.side(to).node);
        let bytes = match &parcel {
            Parcel::Frame(frame) => frame.wire_bytes(),
            Parcel::Connect | Parcel::Accept => HANDSHAKE_BYTES,
        };
        if let Parcel::Frame(frame) = &parcel {
            let usage = &mut self.nodes[from_node.index()].usage;
            usage.sent_messages += 1;
            usage.sent_bytes += bytes;
            if self.trace.is_on() {
                let text = describe(frame);
                let to_name = self.nodes[to_node.index()].name.clone();
                self.note(from_node, format_args!("-> {to_name}: {text}"));
            }
        }
        let now = self.clock.now;
        let lane = &mut self.net.connections[id as usize].side_mut(to).lane;
        if lane.is_dead {
            return None;
        }
        let is_same_send = lane.last_send.replace(now) == Some(now);
        let mut extra = lane.last_extra;
        if !is_same_send {
            extra = self.draw_extra(from_node, to_node);
            self.net.connections[id as usize].side_mut(to).lane.last_extra = extra;
        }
        let (delay, copies) = self.draw_message_fault(id, to, &parcel)?;
        let handshake = if matches!(parcel, Parcel::Connect) { 2 * self.latency(from_node, to_node) } else { 0 };

        let is_local = self.is_local(from_node, to_node);
        let leaves = self.core_of_send(from_node, to_node, is_same_send, &parcel);
        let service = if is_local {
            0
        } else {
            let net = &self.profile.net;
            self.slowed(from_node, transfer_ns(bytes, net.bytes_per_s) + if is_same_send { 0 } else { net.send_ns })
        };
        let (begin, _) = self.nodes[from_node.index()].sending.serve(leaves, service);
        let held_up = match to {
            End::Server => self.nodes[to_node.index()].delays.get(FaultPoint::NetRequest),
            End::Client => 0,
        };
        let first_byte = begin + self.latency(from_node, to_node) + extra + delay + handshake + held_up;
        for copy in 0..copies {
            let parcel = match &parcel {
                Parcel::Frame(frame) => Parcel::Frame(frame.clone()),
                Parcel::Connect => Parcel::Connect,
                Parcel::Accept => Parcel::Accept,
            };
            let late = if copy == 0 { 0 } else { self.net.message_faults.draw_delay(&mut self.fault_random) };
            self.launch(
                Message { connection: id, to, parcel, bytes, last_byte: first_byte + service + late },
                first_byte + late,
                copy == 0,
            );
        }
        Some(begin)
    }

    /// Plans the arrival of a message. `in_order`: nothing that is sent later arrives earlier.
    fn launch(&mut self, message: Message, first_byte: u64, in_order: bool) {
        let (id, to, last_byte) = (message.connection, message.to, message.last_byte);
        let connection = &self.net.connections[id as usize];
        let ends = (connection.at_client.node, connection.at_server.node);
        let is_loopback = self.is_local(ends.0, ends.1);
        let lane = &mut self.net.connections[id as usize].side_mut(to).lane;
        let arrival = first_byte.max(lane.last_arrival);
        if in_order {
            lane.last_arrival = arrival;
        }
        lane.all_there_at = lane.all_there_at.max(arrival).max(last_byte);
        let index;
        if is_loopback || self.profile.net.has_infinite_cards() {
            let delivery = arrival.max(last_byte).max(lane.last_delivery);
            if in_order {
                lane.last_delivery = delivery;
            }
            lane.all_there_at = delivery;
            index = self.net.messages.add(message);
            self.clock.events.plan(delivery, Event::Deliver(index));
        } else {
            index = self.net.messages.add(message);
            self.clock.events.plan(arrival, Event::Arrive(index));
        }
    }

    pub(super) fn latency(&self, from: NodeId, to: NodeId) -> u64 {
        if self.is_local(from, to) { self.profile.net.loopback_ns } else { self.profile.net.latency_ns }
    }

    /// Jitter and what a cut link holds up, for one send.
    pub(super) fn draw_extra(&mut self, from: NodeId, to: NodeId) -> u64 {
        let jitter = self.profile.net.jitter_ns;
        let jitter = if jitter == 0 { 0 } else { self.model_random.below(jitter) };
        match self.cut_until(from, to) {
            Some(until) => until - self.clock.now + jitter + self.fault_random.below(self.profile.net.retransmit_max_ns),
            None => jitter,
        }
    }

    /// Decides about faults of a message: delay and number of copies, or `None` if it is lost.
    fn draw_message_fault(&mut self, id: u32, to: End, parcel: &Parcel) -> Option<(u64, u32)> {
        if self.clock.now >= self.net.message_faults_until {
            return Some((0, 1));
        }
        let faults = self.net.message_faults.clone();
        let random = &mut self.fault_random;
        if random.chance(faults.lose) {
            let breaks = matches!(parcel, Parcel::Connect | Parcel::Accept) || random.coin();
            let node = self.net.connections[id as usize].side(to).node;
            self.note(node, format_args!("a message to this node is lost{}", if breaks { ", the connection stalls" } else { "" }));
            if breaks {
                self.net.connections[id as usize].side_mut(to).lane.is_dead = true;
                self.break_connection(id);
            }
            return None;
        }
        let copies = if matches!(parcel, Parcel::Frame(_)) && random.chance(faults.duplicate) { 2 } else { 1 };
        let delay = if random.chance(faults.delay) { faults.draw_delay(random) } else { 0 };
        Some((delay, copies))
    }

    /// The first byte is at the receiver's card.
    pub(crate) fn arrive(&mut self, index: u32) {
        let message = self.net.messages.get(index);
        let (id, to, bytes, last_byte) = (message.connection, message.to, message.bytes, message.last_byte);
        let node = self.net.connections[id as usize].side(to).node;
        let service = self.slowed(node, transfer_ns(bytes, self.profile.net.bytes_per_s));
        let now = self.clock.now;
        let end = self.nodes[node.index()].receiving.serve_until(now, service, last_byte);
        let lane = &mut self.net.connections[id as usize].side_mut(to).lane;
        let delivery = end.max(lane.last_delivery);
        lane.last_delivery = delivery;
        self.clock.events.plan(delivery, Event::Deliver(index));
    }

    /// A message is complete at its receiver.
    pub(crate) fn deliver(&mut self, index: u32) {
        let Message { connection: id, to, parcel, bytes, .. } = self.net.messages.take(index);
        let connection = &mut self.net.connections[id as usize];
        if connection.side(to).lane.is_dead {
            return;
        }
        if let Parcel::Connect = parcel {
            return self.deliver_connect(id);
        }
        let (node, life) = (connection.side(to).node, connection.side(to).life);
        if connection.side(to).state == EndState::Gone || !self.is_alive(node, life) {
            return self.reset(id, to);
        }
        match parcel {
            Parcel::Connect => unreachable!("handled above"),
            Parcel::Accept => self.deliver_accept(id),
            Parcel::Frame(frame) => {
                let usage = &mut self.nodes[node.index()].usage;
                usage.received_messages += 1;
                usage.received_bytes += bytes;
                match to {
                    End::Server => self.push_arrival(node, Arrival::Request { peer: PeerId(u64::from(id)), frame }),
                    End::Client => self.deliver_reply(id, frame),
                }
            }
        }
    }

    fn deliver_reply(&mut self, id: u32, frame: Frame) {
        if let Some(slot) = self.net.connections[id as usize].waiting.remove(&frame.header.request.sequence) {
            if self.profile.process.is_some() {
                return self.keep_reply(self.net.connections[id as usize].at_client.node, slot, frame);
            }
            self.clock.finish_wait(slot, Outcome::Reply(Ok(frame)));
        }
    }

    fn deliver_connect(&mut self, id: u32) {
        let connection = &mut self.net.connections[id as usize];
        if connection.at_client.state == EndState::Gone || connection.at_server.state != EndState::Opening {
            return;
        }
        let node = connection.at_server.node;
        let server = &self.nodes[node.index()];
        if !server.is_running {
            return self.reset(id, End::Server);
        }
        connection.at_server.state = EndState::Open;
        connection.at_server.life = server.life;
        let (client, incarnation) = (connection.client, connection.incarnation);
        // Virtual networks authenticate nobody: everybody may do everything.
        let (peer, key, access) = (PeerId(u64::from(id)), KeyId::SERVERS, KeyRights::SERVER);
        self.push_arrival(node, Arrival::Connected { peer, client, incarnation, key, generation: 0, access });
        self.send(id, End::Client, Parcel::Accept);
    }

    fn deliver_accept(&mut self, id: u32) {
        let connection = &mut self.net.connections[id as usize];
        connection.at_client.state = EndState::Open;
        for (slot, frame) in std::mem::take(&mut connection.queued) {
            if self.clock.slots.is_live(slot) {
                self.send_request(id, slot, frame);
            }
        }
    }

    pub(super) fn push_arrival(&mut self, node: NodeId, arrival: Arrival) {
        let id = node;
        let node = &mut self.nodes[id.index()];
        node.arrivals.push_back(arrival);
        if self.profile.process.is_some() {
            return self.plan_look(id);
        }
        let receiver = node.receiver.take();
        self.clock.wake_later(receiver);
    }
}

fn describe(frame: &Frame) -> String {
    let header = &frame.header;
    let op = Op::from_code(header.op).map_or("unknown", |op| op.name());
    let sequence = header.request.sequence;
    let retry = if header.flags.contains(Flags::RETRY) { " again" } else { "" };
    match header.kind {
        MessageKind::Reply => match frame.status() {
            Ok(()) => format!("{op} #{sequence} done, {} bytes", frame.wire_bytes()),
            Err(status) => format!("{op} #{sequence} refused: {status:?}"),
        },
        _ => format!("{op} #{sequence}{retry}, {} bytes", frame.wire_bytes()),
    }
}
