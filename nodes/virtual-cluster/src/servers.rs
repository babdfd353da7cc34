//! The servers of a file system in virtual time, each on a machine of its own or all on one.

use std::cell::RefCell;
use std::rc::Rc;

use weft_base::{ClusterMap, FsId, Nanos, ServerEntry, ServerId, ServerRole};
use weft_data_server::DataServerConfig;
use weft_meta_server::{MetaServerConfig, ServingConfig};
use weft_rt::Runtime;
use weft_rt_sim::{Control, MachineId, NodeConfig, NodeId, Sim, SimRt};

/// The map of a file system of so many metadata and data servers, all under names of their own.
pub fn cluster_map(fs_id: FsId, fs_name: &str, meta: u16, data: u16, stripe_bytes: u32, stripe_width: u16) -> ClusterMap {
    let entry = |id: ServerId| ServerEntry { id, name: id.to_string(), address: format!("sim:{id}") };
    let servers = (0..meta).map(ServerId).chain((0..data).map(ServerId::data)).map(entry);
    ClusterMap { stripe_width, ..ClusterMap::of(fs_id, fs_name, servers, stripe_bytes) }.founded(1)
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
pub struct Servers {
    nodes: RefCell<Vec<(ServerId, NodeId)>>,
    exits: Rc<RefCell<Vec<Exit>>>,
    data_starts: Rc<RefCell<Vec<Nanos>>>,
    meta: MetaServerConfig,
    data: DataServerConfig,
    /// What the configurations of all machines say of the servers; read at every start.
    map: Rc<RefCell<ClusterMap>>,
    /// The one machine of all; `None`: each has its own.
    machine: Option<MachineId>,
}

impl Servers {
    /// Adds a machine for every server of the map of `meta` and starts it: metadata servers as
    /// `meta` says, data servers as `data` says, each under its own number and name.
    pub fn start(sim: &Sim, meta: &MetaServerConfig, data: &DataServerConfig) -> Servers {
        Servers::start_all(sim, meta, data, None, |_| 0)
    }

    /// The same on one machine; on one each without it.
    pub fn start_on(sim: &Sim, meta: &MetaServerConfig, data: &DataServerConfig, machine: Option<MachineId>) -> Servers {
        Servers::start_all(sim, meta, data, machine, |_| 0)
    }

    /// The same on machines whose wall clocks are off by so many nanoseconds.
    pub fn start_with_clocks(
        sim: &Sim,
        meta: &MetaServerConfig,
        data: &DataServerConfig,
        clock_skew_ns: impl Fn(ServerId) -> i64,
    ) -> Servers {
        Servers::start_all(sim, meta, data, None, clock_skew_ns)
    }

    fn start_all(
        sim: &Sim,
        meta: &MetaServerConfig,
        data: &DataServerConfig,
        machine: Option<MachineId>,
        clock_skew_ns: impl Fn(ServerId) -> i64,
    ) -> Servers {
        let map = Rc::new(RefCell::new(meta.serving.map.clone()));
        let servers = Servers {
            nodes: RefCell::default(),
            exits: Rc::default(),
            data_starts: Rc::default(),
            meta: meta.clone(),
            data: data.clone(),
            map,
            machine,
        };
        for entry in meta.serving.map.servers() {
            servers.run(&sim.control(), entry, clock_skew_ns(entry.id));
        }
        servers
    }

    /// One more machine with a server that the others do not know: its entry is in the
    /// configurations from now on.
    pub fn join(&self, control: &Control, entry: &ServerEntry) {
        let grown = self.map.borrow().unagreed().with_server(entry).map(|map| map.unagreed());
        if let Some(grown) = grown {
            *self.map.borrow_mut() = grown;
            self.run(control, entry, 0);
        }
    }

    fn run(&self, control: &Control, entry: &ServerEntry, clock_skew_ns: i64) {
        let ServerEntry { id: server, name, .. } = entry.clone();
        let node = control.add_node(NodeConfig { clock_skew_ns, machine: self.machine, ..NodeConfig::server(server) });
        let (exits, map) = (self.exits.clone(), self.map.clone());
        match server.role() {
            ServerRole::Meta => {
                let config = self.meta.clone();
                let run = move |rt: SimRt| {
                    let serving = ServingConfig { server, name: name.clone(), map: map.borrow().clone(), ..config.serving.clone() };
                    let (config, exits) = (MetaServerConfig { serving, ..config.clone() }, exits.clone());
                    async move {
                        let outcome = weft_meta_server::run(rt.clone(), config).await;
                        note_exit(&rt, server, outcome.err().map(|error| error.to_string()), &exits);
                    }
                };
                control.start(node, run);
            }
            ServerRole::Data => {
                let (config, starts) = (self.data.clone(), self.data_starts.clone());
                let run = move |rt: SimRt| {
                    starts.borrow_mut().push(rt.now());
                    let serving = ServingConfig { server, name: name.clone(), map: map.borrow().clone(), ..config.serving.clone() };
                    let (config, exits) = (DataServerConfig { serving, ..config.clone() }, exits.clone());
                    async move {
                        let outcome = weft_data_server::run(rt.clone(), config).await;
                        note_exit(&rt, server, outcome.err().map(|error| error.to_string()), &exits);
                    }
                };
                control.start(node, run);
            }
        }
        self.nodes.borrow_mut().push((server, node));
    }

    /// The machines of all servers, metadata first; behind them those that have joined.
    pub fn nodes(&self) -> Vec<(ServerId, NodeId)> {
        self.nodes.borrow().clone()
    }

    /// When data servers were started, each time of each of them, in virtual time.
    pub fn data_starts(&self) -> Vec<Nanos> {
        self.data_starts.borrow().clone()
    }

    /// The first server that has ended by itself.
    pub fn first_exit(&self) -> Option<Exit> {
        self.exits.borrow().first().cloned()
    }
}

fn note_exit(rt: &SimRt, server: ServerId, why: Option<String>, exits: &RefCell<Vec<Exit>>) {
    exits.borrow_mut().push(Exit { server, at: rt.now(), why: why.unwrap_or_else(|| "without an error".into()) });
}
