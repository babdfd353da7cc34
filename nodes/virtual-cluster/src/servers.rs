//! The servers of a file system in virtual time, each on a machine of its own.

use std::cell::RefCell;
use std::rc::Rc;

use weft_base::{ClusterMap, FsId, Nanos, ServerEntry, ServerId, ServerRole};
use weft_data_server::DataServerConfig;
use weft_meta_server::{Durability, MetaServerConfig};
use weft_rt::Runtime;
use weft_rt_sim::{NodeConfig, NodeId, Sim, SimRt};

/// The durability contract of all servers, see `docs/semantics.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// Acknowledged is on stable storage.
    Sync,
    /// A power cut takes at most the last batch interval.
    Batch,
    /// A power cut may take everything since the last flush.
    None,
}

impl Contract {
    /// What servers are told, with a batch interval of `batch_ns` nanoseconds.
    pub fn durability(self, batch_ns: u64) -> Durability {
        match self {
            Contract::Sync => Durability::Sync,
            Contract::Batch => Durability::Batch { interval: batch_ns },
            Contract::None => Durability::None,
        }
    }
}

/// The map of a file system of so many metadata and data servers, all under names of their own.
pub fn cluster_map(fs_id: FsId, fs_name: &str, meta: u16, data: u16, stripe_bytes: u32, stripe_width: u16) -> ClusterMap {
    let entry = |id: ServerId| ServerEntry { id, name: id.to_string(), address: format!("sim:{id}") };
    ClusterMap {
        fs_id,
        fs_name: fs_name.into(),
        epoch: 1,
        meta: (0..meta).map(|index| entry(ServerId(index))).collect(),
        data: (0..data).map(|index| entry(ServerId::data(index))).collect(),
        stripe_bytes,
        stripe_width,
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

/// Running servers.
#[derive(Debug)]
pub struct Servers {
    nodes: Vec<(ServerId, NodeId)>,
    exits: Rc<RefCell<Vec<Exit>>>,
}

impl Servers {
    /// Adds a machine for every server of the map of `meta` and starts it: metadata servers as `meta` says, data servers as `data` says, each
    /// under its own number and name.
    pub fn start(sim: &Sim, meta: &MetaServerConfig, data: &DataServerConfig) -> Servers {
        Servers::start_with_clocks(sim, meta, data, |_| 0)
    }

    /// The same on machines whose wall clocks are off by so many nanoseconds.
    pub fn start_with_clocks(
        sim: &Sim,
        meta: &MetaServerConfig,
        data: &DataServerConfig,
        clock_skew_ns: impl Fn(ServerId) -> i64,
    ) -> Servers {
        let exits = Rc::new(RefCell::new(Vec::new()));
        let mut nodes = Vec::new();
        for ServerEntry { id: server, name, .. } in meta.map.servers() {
            let node = sim.add_node(NodeConfig { clock_skew_ns: clock_skew_ns(*server), ..NodeConfig::server(*server) });
            let exits = exits.clone();
            match server.role() {
                ServerRole::Meta => {
                    let config = MetaServerConfig { server: *server, name: name.clone(), ..meta.clone() };
                    let run = move |rt: SimRt| {
                        let (config, exits) = (config.clone(), exits.clone());
                        async move {
                            let (server, outcome) = (config.server, weft_meta_server::run(rt.clone(), config).await);
                            note_exit(&rt, server, outcome.err().map(|error| error.to_string()), &exits);
                        }
                    };
                    sim.start(node, run);
                }
                ServerRole::Data => {
                    let config = DataServerConfig { server: *server, name: name.clone(), ..data.clone() };
                    let run = move |rt: SimRt| {
                        let (config, exits) = (config.clone(), exits.clone());
                        async move {
                            let (server, outcome) = (config.server, weft_data_server::run(rt.clone(), config).await);
                            note_exit(&rt, server, outcome.err().map(|error| error.to_string()), &exits);
                        }
                    };
                    sim.start(node, run);
                }
            }
            nodes.push((*server, node));
        }
        Servers { nodes, exits }
    }

    /// The machines of all servers, metadata first.
    pub fn nodes(&self) -> &[(ServerId, NodeId)] {
        &self.nodes
    }

    /// The first server that has ended by itself.
    pub fn first_exit(&self) -> Option<Exit> {
        self.exits.borrow().first().cloned()
    }
}

fn note_exit(rt: &SimRt, server: ServerId, why: Option<String>, exits: &RefCell<Vec<Exit>>) {
    exits.borrow_mut().push(Exit { server, at: rt.now(), why: why.unwrap_or_else(|| "without an error".into()) });
}
