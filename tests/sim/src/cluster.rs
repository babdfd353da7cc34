//! A whole file system in virtual time: real metadata and data servers, and clients, on simulated
//! nodes.

use std::cell::RefCell;
use std::rc::Rc;

use weft_base::{ClientId, ClusterMap, FsId, MILLISECOND, Nanos, SECOND, ServerEntry, ServerId};
use weft_client::{Client, ClientOptions};
use weft_data_server::{CacheConfig, DataServerConfig, WriteBack};
use weft_meta_server::{MetaServerConfig, ServingConfig, SplitConfig};
use weft_rt::Runtime;
use weft_rt_sim::{Control, NodeConfig, NodeId, Random, Sim, SimRt};
use weft_sched::LayerKind;
use weft_sched::improved::DiskCost;
use weft_virtual_cluster::{Exit, Servers, cluster_map};
use weft_wire::ClusterKey;
use weft_wire::ops::LeaseNotice;

pub use weft_virtual_cluster::{Durability, Engine};

use crate::plan::FaultProfile;

/// The shape of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Number of metadata servers.
    pub meta: usize,
    /// Number of data servers.
    pub data: usize,
    /// When changes are safe.
    pub contract: Durability,
    /// What keeps metadata and data.
    pub storage: Engine,
    /// Bytes of a journal segment.
    pub segment_bytes: u64,
    /// Bytes of journal after which a checkpoint is begun.
    pub checkpoint_bytes: u64,
    /// Datafiles of a file; 0: one on every data server.
    pub stripe_width: u16,
    /// Names that go to another server as one change, at most.
    pub slice_names: u32,
    /// Directories are spread as soon as two clients ask for names in them, and go back soon.
    pub is_eager: bool,
    /// What directories without the hint `inline_limit` have in its place, in bytes; 0: off.
    pub inline_limit: u32,
}

/// How often clients look whether servers have to be told of what they have made, in nanoseconds.
const TELL_NS: u64 = 3 * MILLISECOND;
/// The batch interval in nanoseconds.
pub const BATCH_NS: u64 = 50 * MILLISECOND;
/// How long servers keep what lost clients had open, in nanoseconds.
pub const GRACE_NS: u64 = 30 * SECOND;
/// How far the wall clocks of clients are off at most, in nanoseconds.
pub const CLIENT_SKEW_NS_MAX: u64 = 3600 * SECOND;
/// How far those of servers are off at most, in nanoseconds: as with a time service that works.
pub const SERVER_SKEW_NS_MAX: u64 = 3 * MILLISECOND;
/// Stripes are small, so that small writes meet several servers.
pub const STRIPE_BYTES: u32 = 4096;

impl ClusterConfig {
    /// Strips of different sizes over all data servers of the beginning, the last one twice.
    pub fn strips(&self) -> String {
        let of = |datafile: usize, stripes: u32| format!("{datafile}:{}", stripes * STRIPE_BYTES);
        let mut list: Vec<String> = (0..self.data).map(|datafile| of(datafile, 1 + datafile as u32 % 2)).collect();
        list.push(of(self.data - 1, 3));
        format!("strips:{}", list.join(";"))
    }

    /// One metadata and one data server with the default contract.
    pub fn small() -> ClusterConfig {
        ClusterConfig {
            meta: 1,
            data: 1,
            contract: Durability::Batch,
            storage: Engine::Journal,
            segment_bytes: 1 << 20,
            checkpoint_bytes: 4 << 20,
            stripe_width: 0,
            slice_names: 256,
            is_eager: false,
            inline_limit: 0,
        }
    }

    /// Draws a cluster in which histories of this fault profile make sense.
    pub fn draw(fault_profile: FaultProfile, random: &mut Random) -> ClusterConfig {
        let contract = match fault_profile {
            FaultProfile::PowerSync => Durability::Sync,
            FaultProfile::PowerBatch => Durability::Batch,
            FaultProfile::Calm if random.below(4) == 0 => Durability::None,
            _ if random.below(5) == 0 => Durability::Sync,
            _ => Durability::Batch,
        };
        ClusterConfig {
            meta: random.between(1, 3) as usize,
            data: random.between(1, 3) as usize,
            contract,
            storage: if fault_profile == FaultProfile::Calm && random.below(3) == 0 { Engine::Memory } else { Engine::Journal },
            segment_bytes: 256 << 10,
            // Small enough for checkpoints within a short history in half of all seeds.
            checkpoint_bytes: if random.coin() { 2 << 10 } else { 1 << 20 },
            stripe_width: random.below(3) as u16,
            slice_names: 256,
            is_eager: false,
            inline_limit: 0,
        }
    }
}

impl ClusterConfig {
    /// How far the clock of a server is off. Follows from what was drawn for other ends, as below.
    fn server_skew_ns(&self, server: ServerId) -> i64 {
        let drawn = self.checkpoint_bytes ^ u64::from(self.stripe_width) << 40 ^ (self.meta as u64) << 44 ^ (self.data as u64) << 48;
        let mixed = Random::new(drawn ^ u64::from(server.0) << 16).draw();
        (mixed % (2 * SERVER_SKEW_NS_MAX)) as i64 - SERVER_SKEW_NS_MAX as i64
    }

    /// Data servers work as with direct I/O: all accesses pass the cache layer, and requests are
    /// under way over turns. Follows from what was drawn for other ends, so that seeds keep their
    /// histories.
    fn cache(&self) -> CacheConfig {
        if self.stripe_width != 1 || self.checkpoint_bytes > 4 << 10 {
            return CacheConfig::default();
        }
        let write_back = (self.contract == Durability::None).then(WriteBack::default);
        CacheConfig { layer: LayerKind::ServerDirected, disk: DiskCost::SSD, takes_all: true, write_back, ..CacheConfig::default() }
    }
}

/// A running cluster.
pub struct Cluster {
    control: Control,
    map: ClusterMap,
    servers: Rc<Servers>,
    nodes: Vec<NodeId>,
    clients: RefCell<Random>,
    /// What clients gather of a new file before they send it.
    gather_bytes: usize,
}

impl Cluster {
    /// Adds nodes for all servers and starts them; they make their file system first.
    pub fn start(sim: &Sim, config: &ClusterConfig) -> Cluster {
        let map = cluster_map(FsId(0x5EED), "sim", config.meta as u16, config.data as u16, STRIPE_BYTES, config.stripe_width);
        let key = ClusterKey([7; 32]);
        let serving = |server| ServingConfig {
            create: true,
            engine: config.storage,
            durability: config.contract,
            batch_interval_ns: BATCH_NS,
            journal_segment_bytes: config.segment_bytes,
            checkpoint_bytes: config.checkpoint_bytes,
            ..ServingConfig::new(server, map.clone(), key.clone())
        };
        let usual = SplitConfig { slice_names: config.slice_names, ..SplitConfig::default() };
        let split = match config.is_eager {
            true => {
                SplitConfig { sample_every: 1, samples_min: 2, busy_permille: 0, rest_ns: TELL_NS, calm_ns: 100 * MILLISECOND, ..usual }
            }
            false => usual,
        };
        let inline_limit = config.inline_limit;
        let meta = MetaServerConfig { session_grace_ns: GRACE_NS, split, inline_limit, ..MetaServerConfig::new(serving(ServerId(0))) };
        let data = DataServerConfig { cache: config.cache(), ..DataServerConfig::new(serving(ServerId::data(0))) };
        let servers = Servers::start_with_clocks(sim, &meta, &data, |server| config.server_skew_ns(server));
        let nodes = servers.nodes().iter().map(|(_, node)| *node).collect();
        let servers = Rc::new(servers);
        // Histories of small files are to meet it.
        let gather_bytes = if inline_limit > 0 { inline_limit as usize } else { 512 << 10 };
        Cluster { control: sim.control(), map, servers, nodes, clients: RefCell::new(sim.random()), gather_bytes }
    }

    /// The map with which the servers began.
    pub fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// The nodes of the servers that were there from the beginning, metadata first.
    pub fn servers(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Adds a node with a client process.
    pub fn add_client(&self, name: &str, deadline_ns: u64) -> (NodeId, Client<SimRt>) {
        let identity = ClientId(self.clients.borrow_mut().draw() | 1);
        // Nobody may rely on the clocks of clients.
        let clock_skew_ns = (identity.0 % (2 * CLIENT_SKEW_NS_MAX)) as i64 - CLIENT_SKEW_NS_MAX as i64;
        let node = self.control.add_node(NodeConfig { clock_skew_ns, ..NodeConfig::client(name) });
        let options = ClientOptions { deadline_ns, gather_bytes: self.gather_bytes, ..ClientOptions::new(identity, 1) };
        (node, Client::new(self.control.rt(node), self.map.clone(), options))
    }

    /// From now on a client keeps what it is told under leases, until its process dies.
    pub fn keep_leases(&self, node: NodeId, client: &Client<SimRt>) {
        client.keep_leases(true);
        for server in self.map.meta.iter().map(|entry| entry.id) {
            let (client, control) = (client.clone(), self.control.clone());
            let hears = move |_| async move {
                // What it has for itself it gives back when others ask.
                let gives_back = |notice: &LeaseNotice| {
                    if let LeaseNotice::Append { handle } = notice
                        && let Some(file) = client.share_appends(*handle)
                    {
                        let client = client.clone();
                        drop(control.spawn_on(node, move |_| async move { client.close(file).await.is_ok() }));
                    }
                };
                while client.hear_notices(server, |notice, _| gives_back(notice)).await {}
            };
            drop(self.control.spawn_on(node, hears));
        }
        // Servers are told soon of what it makes without asking, as a gateway does that.
        let client = client.clone();
        drop(self.control.spawn_on(node, move |rt: SimRt| async move {
            loop {
                rt.sleep_until(rt.now() + TELL_NS).await;
                if client.owes_absorbed() {
                    client.tell_absorbed(|_| {}).await;
                }
            }
        }));
    }

    /// Lets servers join after so many nanoseconds from now each; data servers and metadata servers
    /// in turns, with numbers that leave holes.
    pub fn grow(&self, after_ns: &[u64]) {
        let count = self.map.servers().count() as u16;
        for (at, number) in after_ns.iter().zip(count..) {
            let id = if number % 2 == count % 2 { ServerId::data(2 * number) } else { ServerId(2 * number) };
            let entry = ServerEntry { id, name: id.to_string(), address: format!("sim:{id}") };
            let (servers, control, at) = (self.servers.clone(), self.control.clone(), *at);
            // A machine of nobody: it outlives all crashes.
            let node = self.control.add_node(NodeConfig::client(format!("hand{number}")));
            drop(self.control.spawn_on(node, move |rt: SimRt| async move {
                rt.sleep_until(rt.now() + at).await;
                servers.join(&control, &entry);
            }));
        }
    }

    /// Starts every server that is down.
    pub fn restart_all(&self) {
        let nodes = self.servers.nodes();
        nodes.iter().filter(|(_, node)| !self.control.is_running(*node)).for_each(|(_, node)| self.control.restart(*node));
    }

    /// When data servers were started, each time of each of them, in virtual time.
    pub fn data_starts(&self) -> Vec<Nanos> {
        self.servers.data_starts()
    }

    /// The first server that has ended by itself.
    pub fn first_exit(&self) -> Option<Exit> {
        self.servers.first_exit()
    }
}
