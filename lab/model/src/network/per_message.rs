//! The network message by message, for clusters of thousands of nodes.
//!
//! The sender's card, the switch and the receiver's port are each busy with a message for its
//! length divided by their bandwidth, one message after the other. A message is pipelined through
//! them: a later stage may begin one packet time (plus latency) after the stage before, if it is
//! idle by then, and ends at least one packet time after it. An undisturbed message of whole
//! packets takes exactly as long as in the packet model. What is lost: messages of one card do not
//! take turns, and nothing flows back when a receiver is slow (its closed gate holds back messages,
//! but they do not fill the network).

use super::{Delivery, EMPTY, List, NONE, Network, NetworkEvent, NetworkHost, Switches};
use crate::engine::EventQueue;
use crate::units::{nanos, transfer_nanos};

/// Until when each resource is busy, nanoseconds.
pub(super) struct Busy {
    cards: Vec<u64>,
    ports: Vec<u64>,
    switches: Vec<u64>,
    /// Each direction of each link between switches.
    trunks: Vec<u64>,
}

impl Busy {
    pub fn new(nodes: u32, switches: &Switches) -> Busy {
        let [cards, ports] = [(); 2].map(|()| vec![0; nodes as usize]);
        Busy { cards, ports, switches: vec![0; switches.bandwidths.len()], trunks: vec![0; 2 * switches.links.len()] }
    }
}

/// A message on its way: when its first packet is where it is now, and when its last.
struct Front {
    head: u64,
    tail: u64,
}

impl Front {
    /// Passes a resource that needs `first` for the first packet and `all` for the message.
    fn pass(&mut self, busy: &mut u64, (first, all): (u64, u64)) {
        let start = self.head.max(*busy);
        *busy = start + all;
        self.tail = (start + all).max(self.tail + first);
        self.head = start + first;
    }

    fn fly(&mut self, latency: u64) {
        self.head += latency;
        self.tail += latency;
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
        let sender = &self.config.cards[from as usize];
        let bandwidth = if from == to { sender.internal_bandwidth } else { sender.link_bandwidth };
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
        let end = if from == to { now } else { self.cross(now, from, to, bytes) };
        queue.push(end, NetworkEvent::Delivered(packet).into());
        if state.growing {
            host.packet_uploaded(self, queue, number, bytes);
        }
        if state.cut == state.bytes && self.packets[packet as usize].last {
            host.message_uploaded(self, queue, number);
        }
    }

    /// When a message whose last byte leaves the sender's card now has reached the receiver's.
    fn cross(&mut self, now: u64, from: u32, to: u32, bytes: u64) -> u64 {
        let first = bytes.min(self.config.packet_bytes);
        let time = |bandwidth: u64| (transfer_nanos(first, bandwidth), transfer_nanos(bytes, bandwidth));
        let (sender, receiver) = (self.config.cards[from as usize], self.config.cards[to as usize]);
        let sent = time(sender.link_bandwidth);
        // The first packet left while the rest was still being sent.
        let mut front = Front { head: now - sent.1.min(now) + sent.0, tail: now };
        front.fly(nanos(sender.link_latency));
        let (mut switch, target) = (self.routes.of_node(from), self.routes.of_node(to));
        loop {
            if let Some(bandwidth) = self.routes.switches.bandwidths[switch as usize] {
                front.pass(&mut self.busy.switches[switch as usize], time(bandwidth));
            }
            let Some(direction) = self.routes.next(switch, target) else { break };
            let link = self.routes.link(direction);
            front.pass(&mut self.busy.trunks[direction as usize], time(link.bandwidth));
            front.fly(link.latency);
            switch = self.routes.end(direction);
        }
        front.pass(&mut self.busy.ports[to as usize], time(receiver.link_bandwidth));
        front.fly(nanos(receiver.link_latency));
        front.tail
    }

    pub(super) fn message_delivered<E, H>(&mut self, queue: &mut EventQueue<E>, host: &mut H, packet: u32)
    where
        E: Copy + PartialEq + From<NetworkEvent>,
        H: NetworkHost<E>,
    {
        let number = self.packets[packet as usize].message;
        let to = self.messages[number as usize].to;
        let station = self.nodes + self.node_of(to);
        let local = self.local[to as usize] as usize;
        let gate = self.stations[station as usize].flows[local];
        if gate.closed {
            let mut blocked: List = gate.blocked;
            self.push_to(&mut blocked, packet);
            self.stations[station as usize].flows[local].blocked = blocked;
            return;
        }
        let (bytes, last) = (self.packets[packet as usize].bytes, self.packets[packet as usize].last);
        self.packets.free(packet);
        self.delivered_bytes += bytes;
        let state = &mut self.messages[number as usize];
        let first = state.received == 0;
        state.received += bytes;
        let delivery = Delivery { bytes, first, last, complete: state.received == state.bytes };
        host.packet_delivered(self, queue, number, delivery);
        if delivery.complete {
            self.delivered_messages += 1;
            self.messages.free(number);
        }
        let flow = &self.stations[station as usize].flows[local];
        if !flow.closed && flow.blocked.head != EMPTY.head {
            let next = self.pop_blocked(station, local);
            debug_assert_ne!(next, NONE);
            queue.push(queue.now(), NetworkEvent::Delivered(next).into());
        }
    }
}
