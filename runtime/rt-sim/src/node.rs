//! Nodes: a machine with cores, a network card and a disk, and the one process on it.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::task::Waker;

use weft_base::{ClientId, ServerId};
use weft_rt::{Arrival, Delays, PeerId, Usage};
use weft_trace::OpenStagedSpan;
use weft_wire::Frame;

use crate::disk::{DiskCounts, NodeDisk};
use crate::faults::Fault;
use crate::ids::{Flow, MachineId, TaskId};
use crate::models::{Cores, Station};
use crate::process::Process;

/// What a node is like.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its name in traces.
    pub name: String,
    /// The server that its process is; `None` for a client.
    pub server: Option<ServerId>,
    /// Number of cores; on a machine that it shares, how many of them it can use. A shard of a
    /// server is one thread, so 1 is right for it.
    pub cores: usize,
    /// The machine whose cores and disk it shares with other nodes; `None`: it has its own.
    pub machine: Option<MachineId>,
    /// Size of its disk in bytes.
    pub disk_bytes: u64,
    /// How far its wall clock is off, in nanoseconds.
    pub clock_skew_ns: i64,
}

/// Default size of a disk in bytes.
const DISK_BYTES: u64 = 1 << 40;

impl NodeConfig {
    /// A client with one core.
    pub fn client(name: impl Into<String>) -> NodeConfig {
        NodeConfig { name: name.into(), server: None, cores: 1, machine: None, disk_bytes: DISK_BYTES, clock_skew_ns: 0 }
    }

    /// A server with one core, named after its number.
    pub fn server(server: ServerId) -> NodeConfig {
        NodeConfig { server: Some(server), ..NodeConfig::client(server.to_string()) }
    }
}

/// Counters of a node since it was added, over all lives of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// Messages and processor time.
    pub runtime: Usage,
    /// Disk operations.
    pub disk: DiskCounts,
    /// How long each part was busy.
    pub busy: BusyTimes,
}

/// How long the parts of a node were busy, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusyTimes {
    /// All cores together.
    pub cpu_ns: u64,
    /// The network card, sending.
    pub sending_ns: u64,
    /// The network card, receiving.
    pub receiving_ns: u64,
    /// The disk.
    pub disk_ns: u64,
}

/// The main flow of a life of the process of a node.
pub(crate) type Main = Rc<dyn Fn(u32) -> Flow>;

/// Which connection of a client process: server, client identity and its incarnation.
pub(crate) type PeerKey = (ServerId, ClientId, u32);

/// Everything takes so many percent of its usual time, until then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slowness {
    pub(crate) percent: u64,
    pub(crate) until: u64,
}

pub(crate) struct Node {
    pub(crate) name: String,
    /// Counts the processes of the node; the first is 1.
    pub(crate) life: u32,
    pub(crate) is_running: bool,
    pub(crate) has_power: bool,
    /// Counts crashes and restarts: a planned restart is void if something came between.
    pub(crate) epoch: u32,
    pub(crate) boot_id: u64,
    pub(crate) main: Option<Main>,

    pub(crate) cores: Cores,
    pub(crate) process: Process,
    pub(crate) sending: Station,
    pub(crate) receiving: Station,
    pub(crate) disk: NodeDisk,
    pub(crate) clock_skew_ns: i64,
    pub(crate) slow: Slowness,
    pub(crate) disk_full_until: u64,
    /// Where a laboratory holds up flows of this node.
    pub(crate) delays: Delays,
    pub(crate) paused_until: u64,
    /// Tasks that became ready during a pause.
    pub(crate) paused_tasks: Vec<TaskId>,
    /// A fault that strikes after so many more polls of tasks of this node.
    pub(crate) after_polls: Option<(u64, Fault)>,
    pub(crate) polls: u64,

    pub(crate) arrivals: VecDeque<Arrival>,
    pub(crate) receiver: Option<Waker>,
    /// With the trace records of their requests.
    pub(crate) replies: Vec<(PeerId, Frame, Option<OpenStagedSpan>)>,
    /// Connections that this process has made.
    pub(crate) peers: BTreeMap<PeerKey, u32>,
    /// Connections of which at least one end is here and open.
    pub(crate) connections: Vec<u32>,

    pub(crate) usage: Usage,
    pub(crate) usage_at_start: Usage,
}

impl Node {
    pub(crate) fn new(config: NodeConfig, boot_id: u64) -> Node {
        Node {
            name: config.name,
            life: 0,
            is_running: false,
            has_power: true,
            epoch: 0,
            boot_id,
            main: None,
            cores: Cores::new(config.cores),
            process: Process::of(config.server, config.machine),
            sending: Station::default(),
            receiving: Station::default(),
            disk: NodeDisk::new(config.disk_bytes),
            clock_skew_ns: config.clock_skew_ns,
            slow: Slowness { percent: 100, until: 0 },
            disk_full_until: 0,
            delays: Delays::NONE,
            paused_until: 0,
            paused_tasks: Vec::new(),
            after_polls: None,
            polls: 0,
            arrivals: VecDeque::new(),
            receiver: None,
            replies: Vec::new(),
            peers: BTreeMap::new(),
            connections: Vec::new(),
            usage: Usage::default(),
            usage_at_start: Usage::default(),
        }
    }

    /// How long each part was busy, over all lives.
    pub(crate) fn busy(&self) -> BusyTimes {
        BusyTimes {
            cpu_ns: self.cores.busy_ns(),
            sending_ns: self.sending.busy_ns(),
            receiving_ns: self.receiving.busy_ns(),
            disk_ns: self.disk.station.busy_ns(),
        }
    }

    /// Counters over all lives.
    pub(crate) fn total_usage(&self) -> Usage {
        Usage { cpu_us: self.cores.busy_ns() / 1000, ..self.usage }
    }

    /// Counters of this life.
    pub(crate) fn usage_of_life(&self) -> Usage {
        let (now, start) = (self.total_usage(), self.usage_at_start);
        Usage {
            received_messages: now.received_messages - start.received_messages,
            received_bytes: now.received_bytes - start.received_bytes,
            sent_messages: now.sent_messages - start.sent_messages,
            sent_bytes: now.sent_bytes - start.sent_bytes,
            cpu_us: now.cpu_us - start.cpu_us,
        }
    }
}
