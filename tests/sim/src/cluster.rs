//! A whole file system in virtual time: real metadata and data servers, and clients, on simulated nodes.

use std::cell::RefCell;
use std::rc::Rc;

use weft_base::{ClientId, ClusterMap, FsId, MILLISECOND, Nanos, SECOND, ServerEntry, ServerId};
use weft_client::{Client, ClientOptions};
use weft_data_server::{CacheConfig, DataServerConfig, WriteBack};
use weft_meta_server::MetaServerConfig;
use weft_rt_sim::{Control, NodeConfig, NodeId, Random, Sim, SimRt};
use weft_sched::LayerKind;
use weft_sched::improved::DiskCost;
use weft_wire::ClusterKey;

use crate::plan::Weather;

/// The shape of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Number of metadata servers.
    pub meta: usize,
    /// Number of data servers.
    pub data: usize,
    /// When changes are safe.
    pub durability: Durability,
    /// Nothing is kept over a restart (engine `memory`).
    pub in_memory: bool,
    /// Bytes of a journal segment.
    pub segment_bytes: u64,
    /// Bytes of journal after which a checkpoint is begun.
    pub checkpoint_bytes: u64,
    /// Datafiles of a file; 0: one on every data server.
    pub stripe_width: u16,
}

/// The durability contract of all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged is on stable storage.
    Sync,
    /// At most [`BATCH_NS`] are lost by a power cut.
    Batch,
    /// Up to that is lost even by the death of a process.
    None,
}

/// The batch interval in nanoseconds.
pub const BATCH_NS: u64 = 50 * MILLISECOND;
/// How long servers keep what lost clients had open, in nanoseconds.
pub const GRACE_NS: u64 = 30 * SECOND;
/// Stripes are small, so that small writes meet several servers.
pub const STRIPE_BYTES: u32 = 4096;

impl ClusterConfig {
    /// One metadata and one data server with the default contract.
    pub fn small() -> ClusterConfig {
        ClusterConfig {
            meta: 1,
            data: 1,
            durability: Durability::Batch,
            in_memory: false,
            segment_bytes: 1 << 20,
            checkpoint_bytes: 4 << 20,
            stripe_width: 0,
        }
    }

    /// Draws a cluster in which histories of this weather make sense.
    pub fn draw(weather: Weather, random: &mut Random) -> ClusterConfig {
        let durability = match weather {
            Weather::PowerSync => Durability::Sync,
            Weather::PowerBatch => Durability::Batch,
            Weather::Calm if random.below(4) == 0 => Durability::None,
            _ if random.below(5) == 0 => Durability::Sync,
            _ => Durability::Batch,
        };
        ClusterConfig {
            meta: random.between(1, 3) as usize,
            data: random.between(1, 3) as usize,
            durability,
            in_memory: weather == Weather::Calm && random.below(3) == 0,
            segment_bytes: 256 << 10,
            // Small enough for checkpoints within a short history in half of all seeds.
            checkpoint_bytes: if random.coin() { 2 << 10 } else { 1 << 20 },
            stripe_width: random.below(3) as u16,
        }
    }
}

impl ClusterConfig {
    /// Data servers work as with direct I/O: all accesses pass the cache layer, and requests are under way over turns. Follows from what was drawn
    /// for other ends, so that seeds keep their histories.
    fn cache(&self) -> CacheConfig {
        if self.stripe_width != 1 || self.checkpoint_bytes > 4 << 10 {
            return CacheConfig::default();
        }
        let write_back = (self.durability == Durability::None).then(WriteBack::default);
        CacheConfig { layer: LayerKind::ServerDirected, disk: DiskCost::SSD, takes_all: true, write_back, ..CacheConfig::default() }
    }
}

/// A server process that came to its end by itself, which none should.
#[derive(Clone, Debug)]
pub struct Exit {
    /// Which.
    pub server: ServerId,
    /// When, in virtual time.
    pub at: Nanos,
    /// Its words.
    pub why: String,
}

/// A running cluster.
pub struct Cluster {
    control: Control,
    map: ClusterMap,
    nodes: Vec<NodeId>,
    exits: Rc<RefCell<Vec<Exit>>>,
    clients: RefCell<Random>,
}

impl Cluster {
    /// Adds nodes for all servers and starts them; they make their file system first.
    pub fn start(sim: &Sim, config: &ClusterConfig) -> Cluster {
        let entry = |id: ServerId| ServerEntry { id, name: id.to_string(), address: format!("sim:{id}") };
        let map = ClusterMap {
            fs_id: FsId(0x5EED),
            fs_name: "sim".into(),
            epoch: 1,
            meta: (0..config.meta).map(|index| entry(ServerId(index as u16))).collect(),
            data: (0..config.data).map(|index| entry(ServerId::data(index as u16))).collect(),
            stripe_bytes: STRIPE_BYTES,
            stripe_width: config.stripe_width,
        };
        let exits = Rc::new(RefCell::new(Vec::new()));
        let mut nodes = Vec::new();
        for server in map.servers().map(|entry| entry.id) {
            let node = sim.add_node(NodeConfig::server(server));
            let (map, config, exits) = (map.clone(), config.clone(), exits.clone());
            sim.start(node, move |rt| run_server(rt, server, map.clone(), config.clone(), exits.clone()));
            nodes.push(node);
        }
        Cluster { control: sim.control(), map, nodes, exits, clients: RefCell::new(sim.random()) }
    }

    /// The servers' map.
    pub fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// The nodes of all servers, metadata first.
    pub fn servers(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Adds a node with a client process.
    pub fn add_client(&self, name: &str, deadline_ns: u64) -> (NodeId, Client<SimRt>) {
        let node = self.control.add_node(NodeConfig::client(name));
        let identity = ClientId(self.clients.borrow_mut().draw() | 1);
        let options = ClientOptions { deadline_ns, ..ClientOptions::new(identity, 1) };
        (node, Client::new(self.control.rt(node), self.map.clone(), options))
    }

    /// Starts every server that is down.
    pub fn restart_all(&self) {
        self.nodes.iter().filter(|node| !self.control.is_running(**node)).for_each(|node| self.control.restart(*node));
    }

    /// Servers that ended by themselves since the last call.
    pub fn take_exits(&self) -> Vec<Exit> {
        self.exits.take()
    }
}

async fn run_server(rt: SimRt, server: ServerId, map: ClusterMap, config: ClusterConfig, exits: Rc<RefCell<Vec<Exit>>>) {
    use weft_base::ServerRole;
    use weft_rt::Runtime;
    let key = ClusterKey([7; 32]);
    let why = match server.role() {
        ServerRole::Meta => {
            use weft_meta_server::{Durability as Contract, Engine};
            let meta = MetaServerConfig {
                create: true,
                engine: if config.in_memory { Engine::Memory } else { Engine::Journal },
                durability: match config.durability {
                    Durability::Sync => Contract::Sync,
                    Durability::Batch => Contract::Batch { interval: BATCH_NS },
                    Durability::None => Contract::None,
                },
                journal_segment_bytes: config.segment_bytes,
                checkpoint_bytes: config.checkpoint_bytes,
                session_grace_ns: GRACE_NS,
                ..MetaServerConfig::new(server, map, key)
            };
            weft_meta_server::run(rt.clone(), meta).await.map_err(|error| error.to_string())
        }
        ServerRole::Data => {
            use weft_data_server::{Durability as Contract, Engine};
            let data = DataServerConfig {
                create: true,
                engine: if config.in_memory { Engine::Memory } else { Engine::Journal },
                durability: match config.durability {
                    Durability::Sync => Contract::Sync,
                    Durability::Batch => Contract::Batch { interval: BATCH_NS },
                    Durability::None => Contract::None,
                },
                journal_segment_bytes: config.segment_bytes,
                checkpoint_bytes: config.checkpoint_bytes,
                cache: config.cache(),
                ..DataServerConfig::new(server, map, key)
            };
            weft_data_server::run(rt.clone(), data).await.map_err(|error| error.to_string())
        }
    };
    let why = why.err().unwrap_or_else(|| "without an error".into());
    exits.borrow_mut().push(Exit { server, at: rt.now(), why });
}
