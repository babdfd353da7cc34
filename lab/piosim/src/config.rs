//! What a cluster consists of and which implementation of every part is used.

use weft_model::disk::DiskModel;
use weft_model::units::{KIB, MIB, nanos};
use weft_model::{CpuModel, NetworkModel, TieOrder, Topology};
use weft_sched::classic::ClassicConfig;
use weft_sched::improved::{DiskCost, ImprovedConfig};
use weft_sched::{Keep, Layer, LayerKind};

use crate::stripe::Striping;

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
    /// Interleaved, and the exchange of the next round runs while the servers work on this one
    /// (thesis chapter 8 proposes it).
    DoubleBuffered,
}

impl Collective {
    /// All, with their names in plans.
    pub const ALL: [(&'static str, Collective); 4] = [
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

    /// A layer with the rules of real servers that knows what this device costs.
    pub fn improved(kind: LayerKind, disk: &DiskModel) -> CacheLayerConfig {
        CacheLayerConfig::Improved { kind, config: ImprovedConfig { disk: disk_cost(disk), ..ImprovedConfig::default() } }
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

    /// Largest piece that the layer is given, bytes.
    pub fn granularity(&self) -> u64 {
        match self {
            CacheLayerConfig::Classic { config, .. } => config.granularity,
            CacheLayerConfig::Improved { config, .. } => config.granularity,
        }
    }
}

/// What a near access costs on a device, for the decision between reading a hole and skipping it.
fn disk_cost(disk: &DiskModel) -> DiskCost {
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
    /// Server nodes, each with one server and one disk.
    pub servers: u32,
    /// Processors of every client node.
    pub cpu: CpuModel,
    /// Memory of every server, bytes.
    pub memory_bytes: u64,
    /// The disk of every server.
    pub disk: DiskModel,
    /// Jobs that a server has at its disk at once.
    pub disk_concurrency: u32,
    /// The cache layer of every server.
    pub cache_layer: CacheLayerConfig,
    /// How finely the network is modelled.
    pub network: NetworkModel,
    /// How the nodes are connected: clients are nodes 0, 1, ..., servers follow.
    pub topology: Topology,
    /// Largest packet of the network, bytes.
    pub packet_bytes: u64,
    /// Bandwidth of links, bytes a second.
    pub link_bandwidth: u64,
    /// Latency of a link, seconds; every message passes two.
    pub link_latency: f64,
    /// Bandwidth of the switch, bytes a second.
    pub switch_bandwidth: u64,
    /// Bandwidth between processes of one node, bytes a second.
    pub internal_bandwidth: u64,
    /// Largest message that is sent without asking the receiver, bytes.
    pub eager_bytes: u64,
    /// Bytes of a stripe.
    pub stripe_bytes: u64,
    /// Which bytes lie on which server.
    pub striping: Striping,
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
            cpu: CpuModel { cpus: 1, instructions_per_second: 1_000_000 },
            memory_bytes: 1000 * MIB,
            disk: DiskModel::thesis(),
            disk_concurrency: 1,
            cache_layer: CacheLayerConfig::classic(kind),
            network: NetworkModel::Packets,
            topology: Topology::OneSwitch,
            packet_bytes: 100 * KIB,
            link_bandwidth: 100 * MIB,
            link_latency: 200e-6,
            switch_bandwidth: 1000 * MIB,
            internal_bandwidth: 1000 * MIB,
            eager_bytes: 100 * KIB,
            stripe_bytes: 64 * KIB,
            striping: Striping::Simple,
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

    /// What is wrong with it, in words; `Ok` if it can be built.
    pub fn check(&self) -> Result<(), String> {
        if self.answers_written && matches!(self.cache_layer, CacheLayerConfig::Classic { .. }) {
            return Err("writes are answered when they are on disk only with the rules of today".to_string());
        }
        let positive = [
            ("clients", u64::from(self.clients)),
            ("servers", u64::from(self.servers)),
            ("cpus", u64::from(self.cpu.cpus)),
            ("instructions_per_second", self.cpu.instructions_per_second),
            ("memory_bytes", self.memory_bytes),
            ("disk_concurrency", u64::from(self.disk_concurrency)),
            ("packet_bytes", self.packet_bytes),
            ("link_bandwidth", self.link_bandwidth),
            ("switch_bandwidth", self.switch_bandwidth),
            ("internal_bandwidth", self.internal_bandwidth),
            ("stripe_bytes", self.stripe_bytes),
            ("collective_buffer_bytes", self.collective_buffer_bytes),
            ("granularity", self.cache_layer.granularity()),
        ];
        for (name, value) in positive {
            if value == 0 {
                return Err(format!("{name} must not be 0"));
            }
        }
        if self.packet_bytes > u64::from(u32::MAX) {
            return Err("packet_bytes must be below 4 GiB".to_string());
        }
        match self.topology {
            Topology::Racks { nodes_per_rack: 0, .. } | Topology::Racks { uplink_bandwidth: 0, .. } => {
                return Err("nodes_per_rack and uplink_bandwidth must not be 0".to_string());
            }
            _ => {}
        }
        if self.memory_bytes <= self.packet_bytes {
            return Err("memory_bytes must exceed packet_bytes, or no packet of a write could ever be accepted".to_string());
        }
        if !self.link_latency.is_finite() || self.link_latency < 0.0 {
            return Err("link_latency must be a duration".to_string());
        }
        if let PartyOrder::Hashed { clients, servers } = &self.party_order
            && (clients.len() != self.clients as usize || servers.len() != self.servers as usize)
        {
            return Err("party_order needs one component number for each client and server".to_string());
        }
        Ok(())
    }
}
