//! Which files of a project are the traces of its ranks.

use std::collections::BTreeMap;

use weft_hdtrace::{Project, TopologyNode, topology_paths, trace_file};

use super::ImportError;
use crate::program::Rank;

/// Other projects hold spans of clients and servers, not the calls that ranks made.
const NO_RANKS: &str = "the topology has no rank: only runs of MPI programs can be simulated again, such as `weft trace mpi` records and \
                        `weft sim run --trace` simulates them, and of an export of these all of it (no --from, --to, --events)";

/// Where the trace of each rank lies: file names in the order of the ranks. Of a rank with several
/// threads it is the first thread, as in the cluster models of 2009.
///
/// # Errors
/// The topology has no level `Rank` and no nodes of that kind, the name of one is not a number, or
/// a rank is missing or there twice.
pub fn rank_traces(project: &Project, stem: &str) -> Result<Vec<String>, ImportError> {
    let mut traces: BTreeMap<Rank, Vec<&str>> = BTreeMap::new();
    let Some(level) = project.levels.iter().position(|level| level == "Rank") else {
        let mut paths = Vec::new();
        of_kind(&project.topology, &mut Vec::new(), &mut paths);
        for path in paths {
            let name = path.last().copied().unwrap_or_default();
            let rank = rank_of(&path).ok_or_else(|| ImportError::project(format!("the node {name:?} of the kind Rank is not a number")))?;
            if traces.insert(rank, path).is_some() {
                return Err(ImportError::project(format!("rank {rank} stands twice in the topology")));
            }
        }
        return in_order(&traces, stem);
    };
    for path in topology_paths(project) {
        let Some(name) = path.get(level) else { continue };
        let rank: Rank = name.parse().map_err(|_| ImportError::project(format!("the node {name:?} of level Rank is not a number")))?;
        let known = traces.entry(rank).or_insert_with(|| path.clone());
        // The first path below a rank's node leads to its first thread.
        if path.len() > known.len() && path.starts_with(known) {
            *known = path;
        } else if path[..=level] != known[..=level] {
            return Err(ImportError::project(format!("rank {rank} stands twice in the topology")));
        }
    }
    in_order(&traces, stem)
}

/// Client nodes on which the ranks of a simulated run were, in the order of the ranks; nothing of
/// other runs, whose nodes have names of their own.
pub fn rank_nodes(project: &Project) -> Option<Vec<u32>> {
    let mut paths = Vec::new();
    of_kind(&project.topology, &mut Vec::new(), &mut paths);
    let node = |path: &Vec<&str>| Some((rank_of(path)?, path.first()?.strip_prefix("client")?.parse().ok()?));
    let nodes: BTreeMap<Rank, u32> = paths.iter().map(node).collect::<Option<_>>()?;
    (project.is_simulated() && !nodes.is_empty()).then(|| nodes.into_values().collect())
}

/// The number of the rank at the end of a path.
fn rank_of(path: &[&str]) -> Option<Rank> {
    let name = path.last()?;
    name.strip_prefix("rank").unwrap_or(name).parse().ok()
}

/// The paths of nodes whose kind is `Rank`: exports have them, below the nodes of clients.
fn of_kind<'a>(nodes: &'a [TopologyNode], path: &mut Vec<&'a str>, paths: &mut Vec<Vec<&'a str>>) {
    for node in nodes {
        path.push(&node.name);
        if node.kind.as_deref() == Some("Rank") {
            paths.push(path.clone());
        }
        of_kind(&node.children, path, paths);
        path.pop();
    }
}

/// The names of traces in the order of their ranks.
fn in_order(traces: &BTreeMap<Rank, Vec<&str>>, stem: &str) -> Result<Vec<String>, ImportError> {
    let missing = traces.keys().zip(0..).find(|&(&rank, expected)| rank != expected);
    if let Some((_, expected)) = missing {
        return Err(ImportError::project(format!("rank {expected} is missing in the topology")));
    }
    if traces.is_empty() {
        return Err(ImportError::project(NO_RANKS));
    }
    Ok(traces.values().map(|path| trace_file(stem, path)).collect())
}
