//! The network message by message, for clusters of thousands of nodes.
//!
//! The sender's card, the switch and the receiver's port are each busy with a message for its length divided by their bandwidth, one message
//! after the other. A message is pipelined through them: a later stage may begin one packet time (plus latency) after the stage before, if
//! it is idle by then, and ends at least one packet time after it. An undisturbed message of whole packets takes exactly as long as in
//! the packet model. What is lost: messages of one card do not take turns, and nothing flows back when a receiver is slow (its closed gate
//! holds back messages, but they do not fill the network).

use super::{Delivery, EMPTY, List, NONE, Network, NetworkEvent, NetworkHost};
use crate::engine::EventQueue;
use crate::units::transfer_nanos;

/// Until when each resource is busy, nanoseconds.
pub(super) struct Busy {
    cards: Vec<u64>,
    ports: Vec<u64>,
    switch: u64,
}

impl Busy {
    pub fn new(nodes: u32) -> Busy {
        Busy { cards: vec![0; nodes as usize], ports: vec![0; nodes as usize], switch: 0 }
    }
}

impl Network {
    /// Puts a message (or what has been appended to it) behind the others of its card.
    pub(super) fn upload_message<E>(&mut self, queue: &mut EventQueue<E>, packet: u32)
    where
        E: Copy + PartialEq + From<NetworkEvent>,
    {
        let state = self.packets[packet as usize];
        let message = &self.messages[state.message as usize];
        let (from, to) = (self.node_of(message.from), self.node_of(message.to));
        let bandwidth = if from == to { self.config.internal_bandwidth } else { self.config.link_bandwidth };
        let card = &mut self.busy.cards[from as usize];
        *card = queue.now().max(*card) + transfer_nanos(state.bytes, bandwidth);
        queue.push(*card, NetworkEvent::Uploaded(packet).into());
    }

    pub(super) fn message_uploaded<E, H>(&mut self, queue: &mut EventQueue<E>, host: &mut H, packet: u32)
    where
        E: Copy + PartialEq + From<NetworkEvent>,
        H: NetworkHost<E>,
    {
        let number = self.packets[packet as usize].message;
        let bytes = self.packets[packet as usize].bytes;
        let state = self.messages[number as usize];
        let (from, to) = (self.node_of(state.from), self.node_of(state.to));
        let now = queue.now();
        let end = if from == to {
            now
        } else {
            let first = bytes.min(self.config.packet_bytes);
            let [on_link, in_switch, all_link, all_switch] = [
                transfer_nanos(first, self.config.link_bandwidth),
                transfer_nanos(first, self.config.switch_bandwidth),
                transfer_nanos(bytes, self.config.link_bandwidth),
                transfer_nanos(bytes, self.config.switch_bandwidth),
            ];
            // The first packet reached the switch while the rest was still being sent.
            let head = now - all_link.min(now) + on_link + self.latency;
            let switch_start = head.max(self.busy.switch);
            let switch_end = (switch_start + all_switch).max(now + self.latency + in_switch);
            self.busy.switch = switch_start + all_switch;
            let port = &mut self.busy.ports[to as usize];
            let port_start = (switch_start + in_switch).max(*port);
            *port = (port_start + all_link).max(switch_end + on_link);
            *port + self.latency
        };
        queue.push(end, NetworkEvent::Delivered(packet).into());
        if state.growing {
            host.packet_uploaded(self, queue, number, bytes);
        }
        if state.cut == state.bytes && self.packets[packet as usize].last {
            host.message_uploaded(self, queue, number);
        }
    }

    pub(super) fn message_delivered<E, H>(&mut self, queue: &mut EventQueue<E>, host: &mut H, packet: u32)
    where
        E: Copy + PartialEq + From<NetworkEvent>,
        H: NetworkHost<E>,
    {
        let number = self.packets[packet as usize].message;
        let to = self.messages[number as usize].to;
        let station = self.config.nodes + self.node_of(to);
        let local = self.local[to as usize] as usize;
        let gate = self.stations[station as usize].flows[local];
        if gate.closed {
            let mut blocked: List = gate.blocked;
            self.push_to(&mut blocked, packet);
            self.stations[station as usize].flows[local].blocked = blocked;
            return;
        }
        let (bytes, last) = (self.packets[packet as usize].bytes, self.packets[packet as usize].last);
        self.free_packets.push(packet);
        self.delivered_bytes += bytes;
        let state = &mut self.messages[number as usize];
        let first = state.received == 0;
        state.received += bytes;
        let delivery = Delivery { bytes, first, last, complete: state.received == state.bytes };
        host.packet_delivered(self, queue, number, delivery);
        if delivery.complete {
            self.free_messages.push(number);
        }
        let flow = &self.stations[station as usize].flows[local];
        if !flow.closed && flow.blocked.head != EMPTY.head {
            let next = self.pop_blocked(station, local);
            debug_assert_ne!(next, NONE);
            queue.push(queue.now(), NetworkEvent::Delivered(next).into());
        }
    }
}
