//! What was asked, and of how much of a file system: enough to ask the same of another one, such as
//! one in virtual time.

use serde::Serialize;
use weft_base::{FastMap, ServerId, ServerRole};

use super::signs::{is_of_a_directory, moved};
use super::tally::ratio;
use super::{Analysis, ClientOperation, Storage};
use crate::Stage;
use crate::merge::TracedNode;

/// What was asked of how many servers, by how many clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AskedFor {
    /// Mounts and programs with operations.
    pub clients: u64,
    /// Machines, as far as files of traces say on which they were recorded.
    pub machines: u64,
    /// Metadata servers.
    pub metadata_servers: u64,
    /// Data servers.
    pub data_servers: u64,
    /// Those of them that had at least a tenth of the work of the busiest one.
    pub data_servers_used: u64,
    /// The mean of a write, in bytes; 0 if none was recorded.
    pub write_bytes: u64,
    /// The mean of a read, in bytes; 0 if none was recorded.
    pub read_bytes: u64,
    /// Share of the time that waited for a journal in which that was flushed: nearly 1 with the
    /// durability `sync`.
    pub flushed: f64,
    /// Share of the names that lie in the one directory with most of them; 0 if not recorded.
    pub one_directory: f64,
}

/// Operations whose waits for journals are looked at.
const LOOKED_AT: usize = 4096;
/// A server with less than this part of the work of another one has none.
const SOME: f64 = 0.1;

/// What these operations asked; `work` has seconds of work by server (its node).
pub(super) fn asked(analysis: &Analysis<'_>, operations: &[ClientOperation], work: &[(usize, f64)]) -> AskedFor {
    let nodes = &analysis.merged.nodes;
    let has_role = |node: &TracedNode, role| node.server.map(ServerId).filter(|server| server.role() == role);
    // One that had nothing to do may have no records; numbers begin with 0.
    let count = |role| nodes.iter().filter_map(|node| has_role(node, role)).map(|server| server.index() as u64 + 1).max().unwrap_or(0);
    let of_data: Vec<f64> =
        work.iter().filter(|(node, _)| has_role(&nodes[*node], ServerRole::Data).is_some()).map(|(_, seconds)| *seconds).collect();
    let most = of_data.iter().copied().fold(0.0, f64::max);
    let mut clients: Vec<usize> = operations.iter().map(|operation| operation.node).collect();
    clients.sort_unstable();
    clients.dedup();
    let mut machines: Vec<&str> = nodes.iter().map(|node| node.machine.as_str()).filter(|machine| !machine.is_empty()).collect();
    machines.sort_unstable();
    machines.dedup();
    let [read_bytes, write_bytes] = moved(operations).map(|pieces| pieces.bytes.checked_div(pieces.count).unwrap_or(0));
    AskedFor {
        clients: clients.len() as u64,
        machines: machines.len() as u64,
        metadata_servers: count(ServerRole::Meta),
        data_servers: count(ServerRole::Data),
        data_servers_used: of_data.iter().filter(|seconds| **seconds > 0.0 && **seconds >= SOME * most).count() as u64,
        write_bytes,
        read_bytes,
        flushed: flushed(analysis, operations),
        one_directory: one_directory(operations),
    }
}

fn flushed(analysis: &Analysis<'_>, operations: &[ClientOperation]) -> f64 {
    let (mut waited_ns, mut flushed_ns) = (0, 0);
    let step = operations.len().div_ceil(LOOKED_AT).max(1);
    for operation in operations.iter().step_by(step) {
        for segment in analysis.path(operation).iter().filter(|segment| segment.stage == Stage::Journal) {
            waited_ns += segment.dur_ns;
            flushed_ns += segment.storage_ns[Storage::JournalFlush as usize];
        }
    }
    ratio(flushed_ns, waited_ns)
}

fn one_directory(operations: &[ClientOperation]) -> f64 {
    let mut counts: FastMap<u64, u64> = FastMap::default();
    let names = operations.iter().filter(|operation| is_of_a_directory(operation.event) && operation.object != 0);
    names.for_each(|operation| *counts.entry(operation.object).or_default() += 1);
    ratio(counts.values().copied().max().unwrap_or(0), counts.values().sum())
}
