//! The machines and the processes on them.

use std::sync::Arc;

use weft_base::{ClientId, ClusterMap, FsId, Layout, MILLISECOND, Nanos, SECOND, ServerId};
use weft_client::{Client, ClientOptions};
use weft_data_server::{CacheConfig, DataServerConfig};
use weft_layout::{INLINE_BYTES_DEFAULT, Strips};
use weft_meta_server::{Durability, Engine, MetaServerConfig, ServingConfig};
use weft_rt::Runtime;
use weft_rt_sim::models::DiskProfile;
use weft_rt_sim::{Joined, MachineId, NodeConfig, NodeId, Profile, Sim, SimRt};
use weft_sched::LayerKind;
use weft_sched::improved::DiskCost;
use weft_wire::ClusterKey;
use weft_workload::Workload;

use crate::VirtualError;
use crate::report::{Meter, PhaseReport};
use crate::servers::{Exit, Servers, cluster_map};

/// How long virtual time may run, in nanoseconds: a century, which no sensible plan needs.
const LIMIT_NS: u64 = 100 * 365 * 24 * 3600 * SECOND;
/// The batch interval, in nanoseconds.
const BATCH_NS: u64 = 50 * MILLISECOND;
/// Between two questions whether all servers serve, in nanoseconds.
const START_STEP_NS: u64 = MILLISECOND;
/// All servers serve by then, unless messages take longer than anybody waits for an answer.
const START_NS: u64 = 3600 * SECOND;

/// A cluster. Every server and every client has a machine of its own, or all share one.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterShape {
    /// What the machines are like.
    pub profile: Profile,
    /// All servers and clients are on one machine with so many cores; `None`: each has its own.
    pub shared_cores: Option<usize>,
    /// Decides what is left to chance.
    pub seed: u64,
    /// Number of metadata servers.
    pub meta: u16,
    /// Number of data servers.
    pub data: u16,
    /// Bytes of a stripe.
    pub stripe_bytes: u32,
    /// Data servers of a file; 0: all.
    pub stripe_width: u16,
    /// What keeps metadata and data.
    pub storage: Engine,
    /// What an acknowledged change survives.
    pub contracts: Contracts,
    /// The strips of the distribution `varstrip` for files that are written and read block by
    /// block.
    pub strips: Option<Arc<Strips>>,
    /// Under `sync` metadata servers flush each change alone: a yardstick.
    pub flush_each: bool,
    /// What decides about the order of accesses to the disks of data servers.
    pub cache_layer: LayerKind,
}

/// What an acknowledged change survives, and whether that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contracts {
    /// As the servers begin.
    pub first: Durability,
    /// From the first step of a workload on: it is changed while the servers run.
    pub changed: Option<Durability>,
}

impl From<Durability> for Contracts {
    fn from(first: Durability) -> Contracts {
        Contracts { first, changed: None }
    }
}

impl Default for ClusterShape {
    fn default() -> ClusterShape {
        ClusterShape {
            profile: Profile::default(),
            shared_cores: None,
            seed: 1,
            meta: 1,
            data: 4,
            stripe_bytes: 1 << 20,
            stripe_width: 0,
            storage: Engine::Journal,
            contracts: Durability::Batch.into(),
            strips: None,
            flush_each: false,
            cache_layer: LayerKind::None,
        }
    }
}

/// A running cluster and its clients.
pub(crate) struct Cluster {
    pub(crate) sim: Sim,
    pub(crate) servers: Servers,
    pub(crate) clients: Vec<(NodeId, Client<SimRt>)>,
    pub(crate) strips: Option<Arc<Strips>>,
    /// The machine that all share, and its cores.
    pub(crate) machine: Option<(MachineId, usize)>,
}

impl Cluster {
    /// Starts all servers and a client for each process of the work, and waits until they serve.
    pub(crate) fn start(shape: &ClusterShape, work: &Workload) -> Result<Cluster, VirtualError> {
        let procs = work.procs;
        for (what, count) in [("metadata server", shape.meta.into()), ("data server", shape.data.into()), ("client", procs)] {
            if count == 0 {
                return Err(VirtualError::Invalid(format!("a cluster needs at least one {what}")));
            }
        }
        let map = cluster_map(FsId(1), "virtual", shape.meta, shape.data, shape.stripe_bytes, shape.stripe_width);
        let width = if shape.stripe_width == 0 { shape.data } else { shape.stripe_width };
        weft_layout::check(&Layout { stripe_bytes: shape.stripe_bytes, width, first: 0, generation: 1 }).map_err(|_| {
            VirtualError::Invalid(format!(
                "no stripes of {} bytes over {width} servers: a power of two from 4 KiB to 64 MiB",
                shape.stripe_bytes
            ))
        })?;
        if shape.strips.as_ref().is_some_and(|strips| strips.width() > shape.data) {
            return Err(VirtualError::Invalid(format!("strips for more than the {} data servers there are", shape.data)));
        }
        if width > shape.data {
            return Err(VirtualError::Invalid(format!("files over {width} of {} data servers", shape.data)));
        }
        let sim = Sim::new(shape.seed, shape.profile.clone());
        let machine = shape.shared_cores.map(|cores| (sim.add_machine(cores), cores));
        let servers = start_servers(&sim, &map, shape, machine.map(|(machine, _)| machine));
        let clients = (0..procs).map(|index| {
            let usual = NodeConfig::client(format!("client{index}"));
            let node = match machine {
                // Its threads run side by side.
                Some((machine, _)) => NodeConfig { machine: Some(machine), cores: work.clients as usize, ..usual },
                None => usual,
            };
            let node = sim.add_node(node);
            // Waiting for a busy disk is no failure here.
            let options = ClientOptions { deadline_ns: LIMIT_NS / 2, ..ClientOptions::new(ClientId(u64::from(index) + 1), 1) };
            (node, Client::new(sim.rt(node), map.clone(), options))
        });
        let clients: Vec<_> = clients.collect();
        let cluster = Cluster { sim, servers, clients, strips: shape.strips.clone(), machine };
        let (node, client) = cluster.clients[0].clone();
        let ready = cluster.sim.spawn_on(node, move |rt| async move {
            loop {
                let answers = client.ping_all().await;
                if answers.iter().all(|(_, answer)| answer.as_ref().is_ok_and(|info| info.state == "serving")) {
                    return;
                }
                rt.sleep_until(rt.now() + START_STEP_NS).await;
            }
        });
        cluster.wait_until(START_NS, &[ready]).map_err(|error| match error {
            VirtualError::Stuck(_) => {
                VirtualError::Stuck("an hour after their start not all servers answer: messages take too long".into())
            }
            other => other,
        })?;
        if let Some(contract) = shape.contracts.changed {
            cluster.change_contract(&map, contract)?;
        }
        Ok(cluster)
    }

    /// Tells all servers another contract, as `weft set` does.
    fn change_contract(&self, map: &ClusterMap, contract: Durability) -> Result<(), VirtualError> {
        let (node, client) = self.clients[0].clone();
        let servers: Vec<ServerId> = map.servers().map(|server| server.id).collect();
        let changed = self.sim.spawn_on(node, move |_| async move {
            for server in servers {
                client.set_durability(server, contract.name()).await?;
            }
            Ok(())
        });
        let failed = |error: weft_client::Error| VirtualError::Failed("set the durability".into(), error.status);
        self.wait(&[changed])?.remove(0).map_err(failed)
    }

    /// Runs virtual time until all flows have ended, and gives their results.
    pub(crate) fn wait<T>(&self, flows: &[Joined<T>]) -> Result<Vec<T>, VirtualError> {
        self.wait_until(LIMIT_NS, flows)
    }

    fn wait_until<T>(&self, end_ns: u64, flows: &[Joined<T>]) -> Result<Vec<T>, VirtualError> {
        let over = || flows.iter().all(Joined::is_over) || self.servers.first_exit().is_some();
        self.sim.run_until_true(Nanos(end_ns), over).map_err(|stuck| VirtualError::Stuck(format!("{stuck:?}")))?;
        if let Some(Exit { server, why, .. }) = self.servers.first_exit() {
            return Err(VirtualError::Stuck(format!("{server} ended: {why}")));
        }
        Ok(flows.iter().map(|flow| flow.take().expect("the flow has ended, and no process dies without faults")).collect())
    }

    /// The machine and the library of each client of a workload: those of its process.
    pub(crate) fn clients_of(&self, work: &Workload) -> impl Iterator<Item = &(NodeId, Client<SimRt>)> {
        let threads = work.clients as usize;
        (0..work.clients_in_all() as usize).map(move |client| &self.clients[client / threads])
    }

    /// Runs one flow for every client, all from the same moment on, as a phase with this name. Each
    /// flow gives the number of its operations and its bytes.
    pub(crate) fn phase<F: Future<Output = Result<(u64, u64), VirtualError>> + 'static>(
        &self,
        name: &'static str,
        work: &Workload,
        flow: impl Fn(usize, Client<SimRt>) -> F,
    ) -> Result<PhaseReport, VirtualError> {
        let meter = Meter::start(self);
        let flows = self.clients_of(work).enumerate().map(|(index, (node, client))| {
            let client = client.clone();
            self.sim.spawn_on(*node, |_| flow(index, client))
        });
        let flows: Vec<_> = flows.collect();
        let (mut operations, mut bytes) = (0, 0);
        for done in self.wait(&flows)? {
            let (more_operations, more_bytes) = done?;
            operations += more_operations;
            bytes += more_bytes;
        }
        Ok(meter.stop(self, name, operations, bytes))
    }
}

/// What the cache layer is told about the disk: the usual time before the first byte, and the rate
/// after it.
fn disk_cost(disk: &DiskProfile) -> DiskCost {
    let access_ns = disk.seek.map_or(disk.read_ns.max(disk.call_ns), |seek| seek.near_ns);
    let unlimited = |bytes_per_s: u64| if bytes_per_s == 0 { u64::MAX } else { bytes_per_s };
    DiskCost { access_ns, bytes_per_s: unlimited(disk.read_bytes_per_s), continues_free: disk.seek.is_some() }
}

fn start_servers(sim: &Sim, map: &ClusterMap, shape: &ClusterShape, machine: Option<MachineId>) -> Servers {
    let key = ClusterKey([1; 32]);
    let serving = |server| ServingConfig {
        create: true,
        engine: shape.storage,
        durability: shape.contracts.first,
        batch_interval_ns: BATCH_NS,
        ..ServingConfig::new(server, map.clone(), key.clone())
    };
    let meta = MetaServerConfig {
        flush_each: shape.flush_each,
        inline_limit: INLINE_BYTES_DEFAULT,
        ..MetaServerConfig::new(serving(ServerId(0)))
    };
    let data = DataServerConfig {
        cache: CacheConfig { layer: shape.cache_layer, disk: disk_cost(&shape.profile.disk), ..CacheConfig::default() },
        ..DataServerConfig::new(serving(ServerId::data(0)))
    };
    Servers::start_on(sim, &meta, &data, machine)
}
