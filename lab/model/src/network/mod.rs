//! A store-and-forward packet network: network cards, one switch, links with latency, and a credit
//! flow control (thesis section 4.4).
//!
//! A message is cut into packets. A packet passes four stations, each serving one packet at a time:
//! *upload* (the sender's card), *switch* (one for all traffic), *port* (one for each node) and
//! *download* (the receiver's card, in no time). Messages of one card take turns, packet by packet.
//! Between processes of one node a packet goes from upload to download at the internal speed. With
//! several switches ([`Topology`]) a packet to a node at another one passes, for each link on its
//! way, *trunk* (one for each direction of a link) and the switch behind it.
//!
//! Flow control: a station lets only so much service time be outstanding towards one target
//! process; the credit comes back when the next station starts the packet. A receiver may close its
//! gate: its card then holds packets back, and the network fills up behind them.
//!
//! The order of every single step below is part of the model, because it decides ties.
//!
//! `per_message` is a faster model with the same interface: no packets, two events for each
//! message.

mod packets;
mod per_message;
mod topology;

use topology::Routes;
pub use topology::{Link, SWITCHES_MAX, Switches, Topology};

use crate::engine::EventQueue;
use crate::pool::Pool;
use crate::units::{nanos, transfer_nanos};

/// Number of a node.
pub type NodeId = u32;
/// Number of a process.
pub type ProcessId = u32;
/// Number of a message that is under way; reused after it was received.
pub type MessageId = u32;

const NONE: u32 = u32::MAX;

/// How finely the network is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NetworkModel {
    /// Packet by packet, with flow control.
    #[default]
    Packets,
    /// Message by message: links, switch and ports are busy for the length of a message, and
    /// messages are pipelined through them.
    Messages,
}

/// Parameters of the network.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkConfig {
    /// How finely it is modelled.
    pub model: NetworkModel,
    /// How the nodes are connected.
    pub topology: Topology,
    /// The card of each node; it has one port of a switch.
    pub cards: Vec<Card>,
    /// The node of each process.
    pub processes: Vec<NodeId>,
    /// Largest packet, bytes.
    pub packet_bytes: u64,
    /// Latency of the links between racks, seconds.
    pub link_latency: f64,
    /// Bandwidth of a switch as a whole, unless the topology says it, bytes a second.
    pub switch_bandwidth: u64,
}

/// How a node takes part in the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// Bandwidth of its link to the switch, of the card and of the port, bytes a second.
    pub link_bandwidth: u64,
    /// Latency of this link, seconds.
    pub link_latency: f64,
    /// Bandwidth between processes of the node, bytes a second.
    pub internal_bandwidth: u64,
}

/// Events of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkEvent {
    /// A packet reaches the station it was sent to.
    Arrive(u32),
    /// A station has served its packet.
    Done(u32),
    /// Message by message: the sender's card is done.
    Uploaded(u32),
    /// Message by message: at the receiver.
    Delivered(u32),
}

/// Who uses the network. The calls come in the middle of an event; they may send further messages.
pub trait NetworkHost<E> {
    /// A packet of a message with [`Network::open`] has left the sender's card.
    fn packet_uploaded(&mut self, network: &mut Network, queue: &mut EventQueue<E>, message: MessageId, bytes: u64);
    /// The last packet of a message has left the sender's card.
    fn message_uploaded(&mut self, network: &mut Network, queue: &mut EventQueue<E>, message: MessageId);
    /// A packet has been delivered. When all have been (`packet.complete`), the number of the
    /// message becomes free after the call.
    fn packet_delivered(&mut self, network: &mut Network, queue: &mut EventQueue<E>, message: MessageId, packet: Delivery);
}

/// A packet that has been delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its length.
    pub bytes: u64,
    /// No packet of the message was delivered before it.
    pub first: bool,
    /// It holds the end of the message. Flow control may let packets overtake each other, so others
    /// may follow all the same.
    pub last: bool,
    /// The message is there as a whole.
    pub complete: bool,
}

/// A message that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Sender.
    pub from: ProcessId,
    /// Receiver.
    pub to: ProcessId,
    /// Length in bytes.
    pub bytes: u64,
    /// What the owner wants to know when the message arrives.
    pub tag: u64,
    available: u64,
    cut: u64,
    received: u64,
    growing: bool,
}

#[derive(Clone, Copy)]
struct Packet {
    message: MessageId,
    bytes: u64,
    /// The station it is at or on the way to.
    station: u32,
    /// The station that holds credit for it, or `NONE`.
    creditor: u32,
    /// Service time at the creditor, nanoseconds.
    charge: u64,
    /// Next in a list.
    next: u32,
    last: bool,
}

/// A list of packets, linked through [`Packet::next`].
#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List { head: NONE, tail: NONE };

/// What a station knows about packets to one target process.
#[derive(Clone, Copy)]
struct Flow {
    /// Service time outstanding, nanoseconds.
    used: u64,
    blocked: List,
    /// Download only: nothing is let through.
    closed: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Upload,
    Switch,
    Trunk,
    Port,
    Download,
}

struct Station {
    kind: Kind,
    pace: Pace,
    /// Between this station and the next, nanoseconds.
    latency: u64,
    /// Service time that may be outstanding towards one process, nanoseconds.
    window: u64,
    /// The packet in service, or `NONE`.
    serving: u32,
    waiting: List,
    flows: Vec<Flow>,
}

/// How fast packets pass.
#[derive(Clone, Copy)]
struct Pace {
    /// Bytes a second.
    bandwidth: u64,
    /// Service time of a full packet, nanoseconds.
    full: u64,
}

impl Pace {
    fn new(bandwidth: u64, packet_bytes: u64) -> Pace {
        Pace { bandwidth, full: transfer_nanos(packet_bytes, bandwidth) }
    }
}

/// The network of a cluster. Its stations, in this order: an upload, a download and a port for each
/// node; the switches; a trunk for each direction of each link.
pub struct Network {
    config: NetworkConfig,
    nodes: u32,
    routes: Routes,
    /// Between processes of each node.
    internal: Vec<Pace>,
    stations: Vec<Station>,
    /// For each process: its index among the processes of its node.
    local: Vec<u32>,
    packets: Pool<Packet>,
    messages: Pool<Message>,
    delivered_messages: u64,
    delivered_bytes: u64,
    /// Message by message: until when cards, switches, links and ports are busy.
    busy: per_message::Busy,
}

impl Network {
    /// An idle network.
    ///
    /// # Panics
    /// If a process is on a node that does not exist, or a node at a switch that does not.
    pub fn new(config: NetworkConfig) -> Network {
        let nodes = config.cards.len() as u32;
        let mut on_node = vec![0_u32; nodes as usize];
        let local: Vec<u32> = config
            .processes
            .iter()
            .map(|&node| {
                on_node[node as usize] += 1;
                on_node[node as usize] - 1
            })
            .collect();
        let routes = Routes::new(config.topology.switches(nodes, config.switch_bandwidth, nanos(config.link_latency)));
        let pace = |bandwidth: u64| Pace::new(bandwidth, config.packet_bytes);
        // Only the packet model keeps credit for every pair.
        let processes = if config.model == NetworkModel::Packets { config.processes.len() } else { 0 };
        let station = |kind: Kind, bandwidth: u64, latency: u64, flows: usize| {
            let pace = pace(bandwidth);
            let flows = vec![Flow { used: 0, blocked: EMPTY, closed: false }; flows];
            Station { kind, pace, latency, window: latency + pace.full, serving: NONE, waiting: EMPTY, flows }
        };
        let at_card = |kind: Kind, node: usize, flows: usize| {
            let card = &config.cards[node];
            let station = station(kind, card.link_bandwidth, nanos(card.link_latency), flows);
            let slowest = transfer_nanos(config.packet_bytes, card.link_bandwidth.min(card.internal_bandwidth));
            Station { window: station.latency + slowest, ..station }
        };
        let counts = || on_node.iter().map(|&count| count as usize).enumerate();
        let switches = &routes.switches;
        let mut stations = Vec::with_capacity(3 * nodes as usize + switches.bandwidths.len() + 2 * switches.links.len());
        stations.extend(counts().map(|(node, _)| at_card(Kind::Upload, node, processes)));
        stations.extend(counts().map(|(node, count)| at_card(Kind::Download, node, count)));
        stations.extend(counts().map(|(node, count)| at_card(Kind::Port, node, count)));
        // Nothing stops at a switch that is never busy.
        let switch =
            |bandwidth: &Option<u64>| station(Kind::Switch, bandwidth.unwrap_or(1), 0, if bandwidth.is_some() { processes } else { 0 });
        stations.extend(switches.bandwidths.iter().map(switch));
        let trunk = |link: &Link| [(); 2].map(|()| station(Kind::Trunk, link.bandwidth, link.latency, processes));
        stations.extend(switches.links.iter().flat_map(trunk));
        Network {
            nodes,
            internal: config.cards.iter().map(|card| pace(card.internal_bandwidth)).collect(),
            stations,
            local,
            packets: Pool::default(),
            messages: Pool::default(),
            delivered_messages: 0,
            delivered_bytes: 0,
            busy: per_message::Busy::new(nodes, switches),
            routes,
            config,
        }
    }

    /// A message under way.
    pub fn message(&self, message: MessageId) -> &Message {
        &self.messages[message as usize]
    }

    /// The node of a process.
    pub fn node_of(&self, process: ProcessId) -> NodeId {
        self.config.processes[process as usize]
    }

    /// Messages delivered so far.
    pub fn delivered_messages(&self) -> u64 {
        self.delivered_messages
    }

    /// Payload delivered so far, bytes.
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// Sends a message whose data is all there.
    pub fn send<E>(&mut self, queue: &mut EventQueue<E>, from: ProcessId, to: ProcessId, bytes: u64, tag: u64) -> MessageId
    where
        E: Copy + PartialEq + From<NetworkEvent>,
    {
        let message = self.messages.add(Message { from, to, bytes, tag, available: bytes, cut: 0, received: 0, growing: false });
        let packet = self.cut(message, bytes.min(self.packet_limit()));
        self.launch(queue, packet);
        message
    }

    /// Starts a message of known length whose data comes by and by, with [`Network::append`]. The
    /// host hears of each packet that leaves.
    pub fn open(&mut self, from: ProcessId, to: ProcessId, bytes: u64, tag: u64) -> MessageId {
        self.messages.add(Message { from, to, bytes, tag, available: 0, cut: 0, received: 0, growing: true })
    }

    /// Adds data to a message from [`Network::open`]. A packet leaves when it is full or when the
    /// message is complete.
    pub fn append<E>(&mut self, queue: &mut EventQueue<E>, message: MessageId, bytes: u64)
    where
        E: Copy + PartialEq + From<NetworkEvent>,
    {
        let state = &mut self.messages[message as usize];
        state.available += bytes;
        debug_assert!(state.available <= state.bytes, "more data than announced");
        let ready = state.available - state.cut;
        if ready >= self.config.packet_bytes || (state.available == state.bytes && ready > 0) {
            let packet = self.cut(message, ready.min(self.packet_limit()));
            self.launch(queue, packet);
        }
    }

    fn packet_limit(&self) -> u64 {
        match self.config.model {
            NetworkModel::Packets => self.config.packet_bytes,
            NetworkModel::Messages => u64::MAX,
        }
    }

    /// Gives a packet to the sender's card.
    fn launch<E>(&mut self, queue: &mut EventQueue<E>, packet: u32)
    where
        E: Copy + PartialEq + From<NetworkEvent>,
    {
        match self.config.model {
            NetworkModel::Packets => queue.push(queue.now(), NetworkEvent::Arrive(packet).into()),
            NetworkModel::Messages => self.upload_message(queue, packet),
        }
    }

    /// Closes or opens the gate of a receiving process. While it is closed, its card delivers
    /// nothing to it.
    pub fn set_gate<E>(&mut self, queue: &mut EventQueue<E>, process: ProcessId, closed: bool)
    where
        E: Copy + PartialEq + From<NetworkEvent>,
    {
        let index = self.nodes + self.node_of(process);
        let local = self.local[process as usize] as usize;
        self.stations[index as usize].flows[local].closed = closed;
        if !closed {
            let packet = self.pop_blocked(index, local);
            if packet != NONE && self.config.model == NetworkModel::Messages {
                queue.push(queue.now(), NetworkEvent::Delivered(packet).into());
            } else if packet != NONE {
                self.push_waiting(index, packet);
                self.try_start(queue, index);
            }
        }
    }

    /// Executes an event of the network.
    pub fn handle<E, H>(&mut self, queue: &mut EventQueue<E>, host: &mut H, event: NetworkEvent)
    where
        E: Copy + PartialEq + From<NetworkEvent>,
        H: NetworkHost<E>,
    {
        match event {
            NetworkEvent::Arrive(packet) => {
                let index = self.packets[packet as usize].station;
                self.push_waiting(index, packet);
                self.try_start(queue, index);
            }
            NetworkEvent::Done(index) => {
                let station = &mut self.stations[index as usize];
                let packet = std::mem::replace(&mut station.serving, NONE);
                let latency = station.latency;
                match station.kind {
                    Kind::Upload => self.uploaded(queue, host, index, packet),
                    Kind::Switch => {
                        let next = self.onward(index - self.first_switch(), packet);
                        self.forward(queue, packet, next, 0);
                    }
                    Kind::Trunk => {
                        let switch = self.routes.end(index - self.first_trunk());
                        let next = self.at_switch(switch, packet);
                        self.forward(queue, packet, next, latency);
                    }
                    Kind::Port => self.forward(queue, packet, index - self.nodes, latency),
                    Kind::Download => self.delivered(queue, host, packet),
                }
                self.try_start(queue, index);
            }
            NetworkEvent::Uploaded(packet) => self.message_uploaded(queue, host, packet),
            NetworkEvent::Delivered(packet) => self.message_delivered(queue, host, packet),
        }
    }

    fn cut(&mut self, message: MessageId, bytes: u64) -> u32 {
        let state = &mut self.messages[message as usize];
        state.cut += bytes;
        let last = state.cut == state.bytes;
        let station = self.config.processes[state.from as usize];
        self.packets.add(Packet { message, bytes, station, creditor: NONE, charge: 0, next: NONE, last })
    }
}
