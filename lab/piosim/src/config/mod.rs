//! What a cluster consists of and which implementation of every part is used.

mod commands;
mod nodes;

use weft_model::disk::DiskModel;
use weft_model::units::{KIB, MIB, nanos};
use weft_model::{Card, CpuModel, NetworkModel, NodeId, SWITCHES_MAX, TieOrder, Topology};
use weft_sched::classic::ClassicConfig;
use weft_sched::improved::{DiskCost, ImprovedConfig};
use weft_sched::{Keep, Layer, LayerKind};

use crate::stripe::Striping;

pub use commands::{Allreduce, Bcast, Commands, Reduce};
pub use nodes::{Exceptions, NodeConfig, ServerConfig};

/// In which order a client talks to the servers of one operation, and in which order a barrier
/// releases its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartyOrder {
    /// Servers by their number, ranks by their arrival.
    Natural,
    /// The iteration order of the hash tables of the program behind the thesis, which follows from
    /// component numbers.
    Hashed {
        /// Component numbers of the client nodes' processes.
        clients: Vec<u32>,
        /// Component numbers of the servers.
        servers: Vec<u32>,
    },
}

impl PartyOrder {
    /// Component numbers as the test programs of the thesis gave them: nodes 10, 20, ...; two more
    /// for the process of a node.
    pub fn thesis(clients: u32, servers: u32) -> PartyOrder {
        let number = |node: u32| 12 + 10 * node;
        PartyOrder::Hashed { clients: (0..clients).map(number).collect(), servers: (clients..clients + servers).map(number).collect() }
    }
}

/// How a collective read or write is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Collective {
    /// The ranks wait for each other, then each goes to the servers on its own.
    Direct,
    /// Each rank reads or writes one contiguous part of the file for all (thesis section 3.2.3).
    #[default]
    TwoPhase,
    /// The parts are taken in turns, buffer by buffer, so that all ranks work on one stretch of the
    /// file (thesis section 5.1).
    InterleavedTwoPhase,
    /// Interleaved if that is expected to take less time than each rank on its own, decided anew
    /// for each command (`collective/pays.rs`).
    Auto,
    /// Interleaved, and the exchange of the next round runs while the servers work on this one
    /// (thesis chapter 8 proposes it).
    DoubleBuffered,
}

impl Collective {
    /// All, with their names in plans.
    pub const ALL: [(&'static str, Collective); 5] = [
        ("auto", Collective::Auto),
        ("direct", Collective::Direct),
        ("two_phase", Collective::TwoPhase),
        ("interleaved_two_phase", Collective::InterleavedTwoPhase),
        ("double_buffered", Collective::DoubleBuffered),
    ];
}

/// Which ranks exchange data in a round of collective I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Exchange {
    /// Those whose whole access overlaps the other's part, even if not one byte lies there (the
    /// program of 2009).
    Extents,
    /// Those that have bytes there.
    #[default]
    Bytes,
}

/// The cache layer of every server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheLayerConfig {
    /// The rules of 2009.
    Classic {
        /// Which layer.
        kind: LayerKind,
        /// Its parameters.
        config: ClassicConfig,
    },
    /// The rules of real servers.
    Improved {
        /// Which layer.
        kind: LayerKind,
        /// Its parameters.
        config: ImprovedConfig,
    },
}

impl CacheLayerConfig {
    /// A layer of 2009 with its defaults.
    pub fn classic(kind: LayerKind) -> CacheLayerConfig {
        CacheLayerConfig::Classic { kind, config: ClassicConfig::default() }
    }

    /// A layer with the rules of real servers, which knows what this device costs.
    pub fn improved(kind: LayerKind, disk: &DiskModel, config: ImprovedConfig) -> CacheLayerConfig {
        CacheLayerConfig::Improved { kind, config: ImprovedConfig { disk: disk_cost(disk), ..config } }
    }

    pub(crate) fn build(&self) -> Layer {
        match self {
            CacheLayerConfig::Classic { kind, config } => Layer::classic(*kind, config),
            CacheLayerConfig::Improved { kind, config } => Layer::improved(*kind, config),
        }
    }

    /// What servers keep of what they read through; those of 2009 nothing.
    pub(crate) fn keep(&self) -> Keep {
        match self {
            CacheLayerConfig::Classic { .. } => Keep::NONE,
            CacheLayerConfig::Improved { config, .. } => config.keep,
        }
    }

    /// Whether it brings queued accesses into an order and merges them.
    pub(crate) fn orders(&self) -> bool {
        let (CacheLayerConfig::Classic { kind, .. } | CacheLayerConfig::Improved { kind, .. }) = self;
        matches!(kind, LayerKind::Aggregation | LayerKind::ServerDirected)
    }

    /// Largest piece that the layer is given, bytes.
    pub fn granularity(&self) -> u64 {
        match self {
            CacheLayerConfig::Classic { config, .. } => config.granularity,
            CacheLayerConfig::Improved { config, .. } => config.granularity,
        }
    }
}

/// What a near access costs on a device, for the decision between reading a hole and skipping it.
pub(crate) fn disk_cost(disk: &DiskModel) -> DiskCost {
    match *disk {
        DiskModel::Refined { rpm, track_seek, bandwidth, .. } => {
            DiskCost { access_ns: nanos(30.0 / rpm + track_seek), bytes_per_s: bandwidth, continues_free: true }
        }
        DiskModel::Simple { access, bandwidth } | DiskModel::Ram { latency: access, bandwidth } => {
            DiskCost { access_ns: nanos(access), bytes_per_s: bandwidth, continues_free: false }
        }
        DiskModel::Ssd { page_read, bandwidth, .. } => {
            DiskCost { access_ns: nanos(page_read), bytes_per_s: bandwidth, continues_free: false }
        }
    }
}

/// A cluster: client nodes, server nodes, the network between them.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    /// Client nodes. Rank `r` of an application runs on node `r mod clients` unless it is placed
    /// otherwise.
    pub clients: u32,
    /// Servers, each with one disk, and on a node of its own unless it shares one with a client.
    pub servers: u32,
    /// Every node that is no exception.
    pub node: NodeConfig,
    /// Every server that is no exception.
    pub server: ServerConfig,
    /// Nodes and servers that are different.
    pub exceptions: Exceptions,
    /// How finely the network is modelled.
    pub network: NetworkModel,
    /// How the nodes are connected: clients are nodes 0, 1, ..., the own nodes of servers follow.
    pub topology: Topology,
    /// Largest packet of the network, bytes.
    pub packet_bytes: u64,
    /// Bandwidth of the switch, bytes a second.
    pub switch_bandwidth: u64,
    /// Largest message that is sent without asking the receiver, bytes.
    pub eager_bytes: u64,
    /// Bytes of a stripe.
    pub stripe_bytes: u64,
    /// Which bytes lie on which server.
    pub striping: Striping,
    /// How collective MPI commands are done.
    pub commands: Commands,
    /// How collective I/O is done.
    pub collective: Collective,
    /// Buffer of each rank in collective I/O, bytes.
    pub collective_buffer_bytes: u64,
    /// Who exchanges data in collective I/O.
    pub exchange: Exchange,
    /// A server confirms a write when it accepts the packet that holds its end, even if others are
    /// still on the way because that one has overtaken them (the program of 2009). Otherwise it
    /// waits for all of them.
    pub early_completion: bool,
    /// A server confirms a write when all of it is on its disk: what real servers do unless they
    /// promise nothing. Needs a cache layer with the rules of today; those of 2009 keep no account
    /// of whose bytes a job writes.
    pub answers_written: bool,
    /// Order of events of the same time.
    pub tie_order: TieOrder,
    /// Order of servers and ranks.
    pub party_order: PartyOrder,
}

impl ClusterConfig {
    /// The test cluster of the thesis (chapter 6): one-processor nodes with gigabit Ethernet and
    /// one disk, with its orders of ties and servers, so that its printed results come out.
    pub fn thesis(clients: u32, servers: u32, kind: LayerKind) -> ClusterConfig {
        ClusterConfig {
            clients,
            servers,
            node: NodeConfig {
                cpu: CpuModel { cpus: 1, instructions_per_second: 1_000_000 },
                card: Card { link_bandwidth: 100 * MIB, link_latency: 200e-6, internal_bandwidth: 1000 * MIB },
            },
            server: ServerConfig {
                memory_bytes: 1000 * MIB,
                disk: DiskModel::thesis(),
                disk_concurrency: 1,
                cache_layer: CacheLayerConfig::classic(kind),
                ram: None,
                read_cache_bytes: 0,
                arrival_window: None,
            },
            exceptions: Exceptions::default(),
            network: NetworkModel::Packets,
            topology: Topology::OneSwitch,
            packet_bytes: 100 * KIB,
            switch_bandwidth: 1000 * MIB,
            eager_bytes: 100 * KIB,
            stripe_bytes: 64 * KIB,
            striping: Striping::Simple,
            commands: Commands::default(),
            collective: Collective::TwoPhase,
            collective_buffer_bytes: 8 * MIB,
            exchange: Exchange::Extents,
            early_completion: true,
            answers_written: false,
            tie_order: TieOrder::Thesis,
            party_order: PartyOrder::thesis(clients, servers),
        }
    }

    /// The same hardware without the accidents of the program of 2009: events of the same time
    /// first in, first out; servers by number; collective I/O exchanges no empty messages; a write
    /// is confirmed when all of it is there.
    pub fn natural(mut self) -> ClusterConfig {
        self.tie_order = TieOrder::Natural;
        self.party_order = PartyOrder::Natural;
        self.exchange = Exchange::Bytes;
        self.early_completion = false;
        self
    }

    /// The node of each server.
    pub fn nodes_of_servers(&self) -> Vec<NodeId> {
        self.exceptions.nodes_of_servers(self.clients, self.servers)
    }

    /// All nodes in order.
    pub fn nodes(&self) -> Vec<NodeConfig> {
        let Exceptions { clients, server_nodes, shared, .. } = &self.exceptions;
        let client = (0..self.clients).map(|client| clients.get(&client).copied().unwrap_or(self.node));
        let own = (0..self.servers).filter(|server| !shared.contains_key(server));
        client.chain(own.map(|server| server_nodes.get(&server).copied().unwrap_or(self.node))).collect()
    }

    /// A server.
    pub fn server(&self, server: u32) -> &ServerConfig {
        self.exceptions.servers.get(&server).unwrap_or(&self.server)
    }

    /// What is wrong with it, in words; `Ok` if it can be built.
    pub fn check(&self) -> Result<(), String> {
        let positive = [
            ("clients", u64::from(self.clients)),
            ("servers", u64::from(self.servers)),
            ("packet_bytes", self.packet_bytes),
            ("switch_bandwidth", self.switch_bandwidth),
            ("stripe_bytes", self.stripe_bytes),
            ("collective_buffer_bytes", self.collective_buffer_bytes),
        ];
        check_positive(&positive)?;
        if self.packet_bytes > u64::from(u32::MAX) {
            return Err("packet_bytes must be below 4 GiB".to_string());
        }
        self.check_node(&self.node)?;
        self.check_server(&self.server)?;
        let Exceptions { clients, server_nodes, servers, .. } = &self.exceptions;
        clients.values().chain(server_nodes.values()).try_for_each(|node| self.check_node(node))?;
        servers.values().try_for_each(|server| self.check_server(server))?;
        self.exceptions.check(self.clients, self.servers)?;
        self.check_topology()?;
        if let PartyOrder::Hashed { clients, servers } = &self.party_order
            && (clients.len() != self.clients as usize || servers.len() != self.servers as usize)
        {
            return Err("party_order needs one component number for each client and server".to_string());
        }
        Ok(())
    }

    fn check_node(&self, NodeConfig { cpu, card }: &NodeConfig) -> Result<(), String> {
        let positive = [
            ("cpus", u64::from(cpu.cpus)),
            ("instructions_per_second", cpu.instructions_per_second),
            ("link_bandwidth", card.link_bandwidth),
            ("internal_bandwidth", card.internal_bandwidth),
        ];
        check_positive(&positive)?;
        if !card.link_latency.is_finite() || card.link_latency < 0.0 {
            return Err("link_latency must be a duration".to_string());
        }
        Ok(())
    }

    fn check_server(&self, server: &ServerConfig) -> Result<(), String> {
        if self.answers_written && matches!(server.cache_layer, CacheLayerConfig::Classic { .. }) {
            return Err("writes are answered when they are on disk only with the rules of today".to_string());
        }
        let positive = [
            ("memory_bytes", server.memory_bytes),
            ("disk_concurrency", u64::from(server.disk_concurrency)),
            ("granularity", server.cache_layer.granularity()),
        ];
        check_positive(&positive)?;
        if server.ram.is_some_and(|ram| ram.bandwidth == 0 || !ram.latency.is_finite() || ram.latency < 0.0) {
            return Err("memory needs a latency and a bandwidth above 0".to_string());
        }
        if server.arrival_window == Some(0) {
            return Err("arrival_window must not be 0".to_string());
        }
        if server.memory_bytes <= self.packet_bytes {
            return Err("memory_bytes must exceed packet_bytes, or no packet of a write could ever be accepted".to_string());
        }
        if server.read_cache_bytes >= server.memory_bytes.saturating_sub(self.packet_bytes) {
            return Err("read_cache must leave more than a packet of the memory".to_string());
        }
        Ok(())
    }

    fn check_topology(&self) -> Result<(), String> {
        let nodes = self.clients + self.servers - self.exceptions.shared.len() as u32;
        match &self.topology {
            Topology::OneSwitch => {}
            Topology::Racks { nodes_per_rack: 0, .. } | Topology::Racks { uplink_bandwidth: 0, .. } => {
                return Err("nodes_per_rack and uplink_bandwidth must not be 0".to_string());
            }
            Topology::Racks { nodes_per_rack, .. } if nodes.div_ceil(*nodes_per_rack) >= SWITCHES_MAX => {
                return Err(format!("nodes_per_rack makes {SWITCHES_MAX} racks or more"));
            }
            Topology::Racks { .. } => {}
            Topology::Free(switches) => {
                let count = switches.bandwidths.len();
                if count > SWITCHES_MAX as usize || switches.node_switch.len() != nodes as usize {
                    return Err(format!("a topology has at most {SWITCHES_MAX} switches and one of them for each node"));
                }
                let ends = switches.links.iter().flat_map(|link| link.ends);
                if switches.node_switch.iter().copied().chain(ends).any(|switch| switch as usize >= count) {
                    return Err("a node or a link is at a switch that does not exist".to_string());
                }
                if switches.bandwidths.contains(&Some(0)) || switches.links.iter().any(|link| link.bandwidth == 0) {
                    return Err("the bandwidth of a switch or link must not be 0".to_string());
                }
                if let Some((one, other)) = switches.unconnected() {
                    return Err(format!("no links lead from node {one} to node {other}"));
                }
            }
        }
        Ok(())
    }
}

fn check_positive(values: &[(&str, u64)]) -> Result<(), String> {
    match values.iter().find(|(_, value)| *value == 0) {
        Some((name, _)) => Err(format!("{name} must not be 0")),
        None => Ok(()),
    }
}
