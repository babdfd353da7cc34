//! Cluster models of PIOsimHD as configurations. The configuration knows one kind of client node,
//! server, link and switch, so a model must have one of each kind too, with one client process or
//! one server on a node and one switch that carries everything.

use weft_hdtrace::{ClusterModel, ModelLink, ModelNode, ModelServer, ModelSwitch, Time};
use weft_model::disk::DiskModel;
use weft_model::{CpuModel, TieOrder};
use weft_sched::LayerKind;
use weft_sched::classic::ClassicConfig;

use super::ImportError;
use crate::config::{CacheLayerConfig, ClusterConfig, PartyOrder};

/// The configuration that a cluster model describes, with the orders of ties and parties that the
/// program behind the thesis used. What a model does not say (stripes, collective I/O, ...) is as
/// in [`ClusterConfig::thesis`].
///
/// # Errors
/// The model has something that the configuration cannot hold; the text says what.
pub fn cluster(model: &ClusterModel) -> Result<ClusterConfig, ImportError> {
    let on = |wanted: fn(&ModelNode) -> usize| model.nodes.iter().filter(move |node| wanted(node) > 0);
    let client_nodes: Vec<&ModelNode> = on(|node| node.processes.len()).collect();
    let server_nodes: Vec<&ModelNode> = on(|node| node.servers.len()).collect();
    for node in &model.nodes {
        if node.processes.len() + node.servers.len() != 1 || node.links.len() != 1 {
            return Err(refuse(format!("node {} has not exactly one process or server and one link", node.name)));
        }
    }
    let client_node = same(&client_nodes, "client nodes", hardware)?;
    let server_node = same(&server_nodes, "server nodes", hardware)?;
    if hardware(client_node) != hardware(server_node) {
        return Err(refuse("client and server nodes differ".to_owned()));
    }
    let servers: Vec<&ModelServer> = server_nodes.iter().flat_map(|node| &node.servers).collect();
    let server = same(&servers, "servers", |server| ModelServer { id: 0, name: String::new(), ..(*server).clone() })?;
    let (switch, link) = network(model)?;
    let granularity = model.io_granularity.unwrap_or(10 << 20);
    let kind = layer_kind(&server.cache_layer)?;
    let mut config = ClusterConfig::thesis(count(client_nodes.len())?, count(servers.len())?, kind);
    config.node.cpu = CpuModel {
        cpus: u32::try_from(client_node.cpus).map_err(|_| refuse("too many processors".to_owned()))?,
        instructions_per_second: client_node.instructions_per_second,
    };
    config.server.memory_bytes = client_node.memory_bytes;
    config.node.card.internal_bandwidth = client_node.internal_bytes_per_second;
    config.server.disk = disk(server)?;
    config.server.disk_concurrency =
        u32::try_from(server.operations_at_once).map_err(|_| refuse("too many operations at once".to_owned()))?;
    config.server.cache_layer = CacheLayerConfig::Classic { kind, config: ClassicConfig { granularity, ..ClassicConfig::default() } };
    config.packet_bytes = model.transfer_granularity.unwrap_or(config.packet_bytes);
    config.eager_bytes = model.eager_bytes.unwrap_or(config.eager_bytes);
    config.node.card.link_bandwidth = link.bytes_per_second;
    config.node.card.link_latency = seconds(link.latency);
    config.switch_bandwidth = switch.bytes_per_second;
    config.tie_order = TieOrder::Thesis;
    config.party_order = PartyOrder::Hashed {
        clients: numbers(client_nodes.iter().flat_map(|node| &node.processes).map(|process| process.id))?,
        servers: numbers(servers.iter().map(|server| server.id))?,
    };
    config.check().map_err(refuse)?;
    Ok(config)
}

fn refuse(problem: String) -> ImportError {
    ImportError::project(format!("cluster model: {problem}"))
}

/// What two nodes must have in common.
fn hardware(node: &ModelNode) -> (u64, u64, u64, u64) {
    (node.cpus, node.instructions_per_second, node.memory_bytes, node.internal_bytes_per_second)
}

/// The first of some components, if all are alike.
fn same<'a, T, K: PartialEq>(all: &[&'a T], what: &str, key: impl Fn(&T) -> K) -> Result<&'a T, ImportError> {
    let first = *all.first().ok_or_else(|| refuse(format!("there are no {what}")))?;
    if all.iter().any(|one| key(one) != key(first)) {
        return Err(refuse(format!("{what} differ")));
    }
    Ok(first)
}

/// The switch at the nodes' links, and the kind of link.
fn network(model: &ClusterModel) -> Result<(&ModelSwitch, &ModelLink), ImportError> {
    let links: Vec<&ModelLink> = model.nodes.iter().flat_map(|node| &node.links).collect();
    let plugged: Vec<&ModelSwitch> =
        model.switches.iter().filter(|switch| switch.ports.iter().filter(|port| port.to.is_some()).count() >= links.len()).collect();
    let [switch] = plugged.as_slice() else {
        return Err(refuse(format!("{} switches have a port for every node instead of one", plugged.len())));
    };
    let ports = switch.ports.iter().filter(|port| port.to.is_some());
    let all: Vec<&ModelLink> = links.into_iter().chain(ports).collect();
    let link = same(&all, "links", |link| (link.latency, link.bytes_per_second))?;
    Ok((switch, link))
}

fn disk(server: &ModelServer) -> Result<DiskModel, ImportError> {
    if server.disk_model != "RefinedDiskModel" {
        return Err(refuse(format!("disk model {:?} has no counterpart", server.disk_model)));
    }
    Ok(DiskModel::Refined {
        rpm: server.rotations_per_minute as f64,
        average_seek: seconds(server.average_seek),
        track_seek: seconds(server.track_to_track_seek),
        bandwidth: server.bytes_per_second,
        close_bytes: server.near_bytes,
    })
}

fn layer_kind(class: &str) -> Result<LayerKind, ImportError> {
    match class {
        "NoCache" => Ok(LayerKind::None),
        "SimpleWriteBehindCache" | "SimpleWriteBehind" => Ok(LayerKind::WriteBehind),
        "AggregationCache" => Ok(LayerKind::Aggregation),
        "ServerDirectedIO" => Ok(LayerKind::ServerDirected),
        other => Err(refuse(format!("cache layer {other:?} has no counterpart"))),
    }
}

fn seconds(time: Time) -> f64 {
    time.0 as f64 / 1e9
}

fn count(count: usize) -> Result<u32, ImportError> {
    u32::try_from(count).map_err(|_| refuse("too many nodes".to_owned()))
}

fn numbers(ids: impl Iterator<Item = u64>) -> Result<Vec<u32>, ImportError> {
    ids.map(|id| u32::try_from(id).map_err(|_| refuse(format!("the number {id} of a component is too large")))).collect()
}
