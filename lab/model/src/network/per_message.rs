//! The network message by message, for clusters of thousands of nodes.
//!
//! The sender's card, the switch and the receiver's port are each busy with a message for its
//! length divided by their bandwidth, one message after the other. A message is pipelined through
//! them: a later stage may begin one packet time (plus latency) after the stage before, if it is
//! idle by then, and ends at least one packet time after it. An undisturbed message of whole
//! packets takes exactly as long as in the packet model. What is lost: messages of one card do not
//! take turns, and nothing flows back when a receiver is slow (its closed gate holds back messages,
//! but they do not fill the network).

use super::{Delivery, EMPTY, List, NONE, Network, NetworkEvent, NetworkHost};
use crate::engine::EventQueue;
use crate::units::transfer_nanos;

/// How the nodes are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Topology {
    /// All nodes at one switch.
    #[default]
    OneSwitch,
    /// Racks with a switch each; the switches are connected by links to a core that is never busy.
    /// A message to another rack passes two links and a switch more. (A tree of two levels, as in
    /// Leiserson, "Fat-trees", IEEE Transactions on Computers 34 (1985), with the upper level
    /// collapsed into its links.)
    Racks {
        /// Nodes 0, 1, ... fill one rack after the other with so many.
        nodes_per_rack: u32,
        /// Bandwidth of the link between a rack and the core in each direction, bytes a second.
        uplink_bandwidth: u64,
    },
}

impl Topology {
    /// The rack of a node; a single switch is one rack.
    pub(super) fn rack(self, node: u32) -> u32 {
        match self {
            Topology::OneSwitch => 0,
            Topology::Racks { nodes_per_rack, .. } => node / nodes_per_rack.max(1),
        }
    }

    /// How many racks so many nodes fill.
    pub(super) fn racks(self, nodes: u32) -> u32 {
        self.rack(nodes.max(1) - 1) + 1
    }
}

/// Until when each resource is busy, nanoseconds.
pub(super) struct Busy {
    cards: Vec<u64>,
    ports: Vec<u64>,
    switches: Vec<u64>,
    /// From each rack to the core.
    up: Vec<u64>,
    /// From the core to each rack.
    down: Vec<u64>,
}

impl Busy {
    pub fn new(nodes: u32, topology: Topology) -> Busy {
        let racks = topology.racks(nodes) as usize;
        let [cards, ports] = [(); 2].map(|()| vec![0; nodes as usize]);
        let [switches, up, down] = [(); 3].map(|()| vec![0; racks]);
        Busy { cards, ports, switches, up, down }
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
        let (link, switch) = (time(self.config.link_bandwidth), time(self.config.switch_bandwidth));
        let latency = self.latency;
        // The first packet left while the rest was still being sent.
        let mut front = Front { head: now - link.1.min(now) + link.0, tail: now };
        let [source, target] = [from, to].map(|node| self.config.topology.rack(node) as usize);
        front.fly(latency);
        front.pass(&mut self.busy.switches[source], switch);
        if let Topology::Racks { uplink_bandwidth, .. } = self.config.topology
            && source != target
        {
            let uplink = time(uplink_bandwidth);
            front.pass(&mut self.busy.up[source], uplink);
            front.fly(latency);
            front.pass(&mut self.busy.down[target], uplink);
            front.fly(latency);
            front.pass(&mut self.busy.switches[target], switch);
        }
        front.pass(&mut self.busy.ports[to as usize], link);
        front.fly(latency);
        front.tail
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
