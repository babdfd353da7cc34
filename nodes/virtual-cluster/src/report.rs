//! What a phase cost, and what it waited for.

use weft_base::{Nanos, ServerRole};
use weft_rt_sim::{BusyTimes, DiskCounts, NodeId, NodeUsage};

use crate::cluster::Cluster;

/// The result of one phase.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseReport {
    /// What was done: `create`, `stat`, `remove`, `write`, `read`.
    pub name: &'static str,
    /// Operations of all clients together.
    pub operations: u64,
    /// Bytes that they moved for the program.
    pub bytes: u64,
    /// Virtual time from the common start until the last client was done, in nanoseconds.
    pub ns: u64,
    /// Requests that clients sent.
    pub messages: u64,
    /// Bytes on the wire from clients, headers included.
    pub wire_bytes: u64,
    /// Processor time of all clients, in nanoseconds.
    pub client_cpu_ns: u64,
    /// Processor time of all servers, in nanoseconds.
    pub server_cpu_ns: u64,
    /// Disk accesses of all servers.
    pub disk: DiskCounts,
    /// How busy the busiest machine of each group was, busiest first.
    pub shares: Vec<Share>,
}

/// How busy a part of the machines was.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Which: for example `processor of metadata servers`.
    pub part: &'static str,
    /// Share of the phase for which the busiest machine of the group was busy with it, 0 to 1.
    pub busiest: f64,
    /// The mean over the group.
    pub mean: f64,
}

impl PhaseReport {
    /// Operations per second of virtual time.
    pub fn operations_per_s(&self) -> f64 {
        self.operations as f64 * 1e9 / self.ns.max(1) as f64
    }

    /// Mebibytes per second of virtual time.
    pub fn mib_per_s(&self) -> f64 {
        self.bytes as f64 * 1e9 / f64::from(1 << 20) / self.ns.max(1) as f64
    }

    /// The part that was busy longest, if any was busy for most of the time; otherwise the phase
    /// waited for latencies.
    pub fn bottleneck(&self) -> Option<&Share> {
        self.shares.first().filter(|share| share.busiest > 0.5)
    }
}

/// Counters at the start of a phase.
pub(crate) struct Meter {
    at: Nanos,
    before: Vec<(NodeId, NodeUsage)>,
    /// Of the machine that all share: its cores and its disk, in nanoseconds.
    shared_before: Option<(u64, u64)>,
}

/// What one part of a machine was busy, in nanoseconds.
type Pick = fn(&BusyTimes) -> u64;

/// The groups of machines, and the parts of each that may be the bottleneck.
const PARTS: [(&str, Group, Pick); 12] = [
    ("processor of clients", Group::Clients, |busy| busy.cpu_ns),
    ("network card of clients, sending", Group::Clients, |busy| busy.sending_ns),
    ("network card of clients, receiving", Group::Clients, |busy| busy.receiving_ns),
    ("processor of metadata servers", Group::Meta, |busy| busy.cpu_ns),
    ("network card of metadata servers, sending", Group::Meta, |busy| busy.sending_ns),
    ("network card of metadata servers, receiving", Group::Meta, |busy| busy.receiving_ns),
    ("disk of metadata servers", Group::Meta, |busy| busy.disk_ns),
    ("processor of data servers", Group::Data, |busy| busy.cpu_ns),
    ("network card of data servers, sending", Group::Data, |busy| busy.sending_ns),
    ("network card of data servers, receiving", Group::Data, |busy| busy.receiving_ns),
    ("disk of data servers", Group::Data, |busy| busy.disk_ns),
    ("disk of clients", Group::Clients, |busy| busy.disk_ns),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Clients,
    Meta,
    Data,
}

impl Meter {
    pub(crate) fn start(cluster: &Cluster) -> Meter {
        let nodes = cluster.servers.nodes().into_iter().map(|(_, node)| node).chain(cluster.clients.iter().map(|(node, _)| *node));
        let shared_before = cluster.machine.map(|(machine, _)| cluster.sim.machine_busy(machine));
        Meter { at: cluster.sim.now(), shared_before, before: nodes.map(|node| (node, cluster.sim.usage(node))).collect() }
    }

    pub(crate) fn stop(self, cluster: &Cluster, name: &'static str, operations: u64, bytes: u64) -> PhaseReport {
        let ns = cluster.sim.now().since(self.at);
        let group_of = |index: usize| match cluster.servers.nodes().get(index).map(|(server, _)| server.role()) {
            Some(ServerRole::Meta) => Group::Meta,
            Some(ServerRole::Data) => Group::Data,
            None => Group::Clients,
        };
        let (mut messages, mut wire_bytes, mut disk) = (0, 0, DiskCounts::default());
        let mut busy: Vec<(Group, BusyTimes)> = Vec::new();
        for (index, (node, before)) in self.before.iter().enumerate() {
            let after = cluster.sim.usage(*node);
            let group = group_of(index);
            if group == Group::Clients {
                messages += after.runtime.sent_messages - before.runtime.sent_messages;
                wire_bytes += after.runtime.sent_bytes - before.runtime.sent_bytes;
            } else {
                disk = sum(disk, difference(after.disk, before.disk));
            }
            let busy_ns = BusyTimes {
                cpu_ns: after.busy.cpu_ns - before.busy.cpu_ns,
                sending_ns: after.busy.sending_ns - before.busy.sending_ns,
                receiving_ns: after.busy.receiving_ns - before.busy.receiving_ns,
                disk_ns: after.busy.disk_ns - before.busy.disk_ns,
            };
            busy.push((group, busy_ns));
        }
        let cpu_of =
            |clients: bool| busy.iter().filter(|(group, _)| (*group == Group::Clients) == clients).map(|(_, busy)| busy.cpu_ns).sum();
        let (client_cpu_ns, server_cpu_ns) = (cpu_of(true), cpu_of(false));
        let share = |ns_busy: u64| ns_busy as f64 / ns.max(1) as f64;
        let mut shares: Vec<Share> = PARTS
            .iter()
            .map(|(part, group, pick)| {
                let of_group: Vec<f64> = busy.iter().filter(|(of, _)| of == group).map(|(_, busy)| share(pick(busy))).collect();
                let busiest = of_group.iter().copied().fold(0.0, f64::max);
                Share { part, busiest, mean: of_group.iter().sum::<f64>() / of_group.len().max(1) as f64 }
            })
            .filter(|share| share.busiest > 0.0)
            .collect();
        if let (Some((machine, cores)), Some(before)) = (cluster.machine, self.shared_before) {
            let after = cluster.sim.machine_busy(machine);
            for (part, ns_busy) in
                [("processors of the machine", (after.0 - before.0) / cores as u64), ("disk of the machine", after.1 - before.1)]
            {
                shares.push(Share { part, busiest: share(ns_busy), mean: share(ns_busy) });
            }
        }
        shares.sort_by(|a, b| b.busiest.total_cmp(&a.busiest));
        PhaseReport { name, operations, bytes, ns, messages, wire_bytes, client_cpu_ns, server_cpu_ns, disk, shares }
    }
}

fn combine(a: DiskCounts, b: DiskCounts, with: impl Fn(u64, u64) -> u64) -> DiskCounts {
    DiskCounts {
        reads: with(a.reads, b.reads),
        read_bytes: with(a.read_bytes, b.read_bytes),
        writes: with(a.writes, b.writes),
        written_bytes: with(a.written_bytes, b.written_bytes),
        syncs: with(a.syncs, b.syncs),
        others: with(a.others, b.others),
        sequential: with(a.sequential, b.sequential),
        near: with(a.near, b.near),
        far: with(a.far, b.far),
    }
}

fn sum(a: DiskCounts, b: DiskCounts) -> DiskCounts {
    combine(a, b, |a, b| a + b)
}

fn difference(after: DiskCounts, before: DiskCounts) -> DiskCounts {
    combine(after, before, |after, before| after - before)
}
