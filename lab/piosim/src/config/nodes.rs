//! What nodes and servers are made of, and how some of them differ from the others.

use std::collections::BTreeMap;

use weft_model::disk::DiskModel;
use weft_model::{Card, CpuModel, NodeId};

use super::CacheLayerConfig;
use crate::server::Ram;

/// A node: processors and its place in the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeConfig {
    /// Its processors.
    pub cpu: CpuModel,
    /// Card and link.
    pub card: Card,
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Its disk.
    pub disk: DiskModel,
    /// Jobs that it has at its disk at once.
    pub disk_concurrency: u32,
    /// Its cache layer.
    pub cache_layer: CacheLayerConfig,
    /// What accesses to its memory take; `None`: nothing.
    pub ram: Option<Ram>,
    /// Bytes of its memory that keep what was read and written last, for reads.
    pub read_cache_bytes: u64,
    /// The server asks for the data of writes in the order of its disk, for so many bytes at most;
    /// `None`: clients send it when they have announced it.
    pub arrival_window: Option<u64>,
}

/// Nodes and servers that are not like the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exceptions {
    /// Client nodes, by number.
    pub clients: BTreeMap<u32, NodeConfig>,
    /// Nodes of servers, by number of the server. Servers on the node of a client are none of them.
    pub server_nodes: BTreeMap<u32, NodeConfig>,
    /// Servers, by number.
    pub servers: BTreeMap<u32, ServerConfig>,
    /// Servers on the node of a client: the client's number, by number of the server.
    pub shared: BTreeMap<u32, u32>,
}

impl Exceptions {
    /// The node of each server, if the clients are the first nodes and servers with a node of their
    /// own follow in order.
    pub(super) fn nodes_of_servers(&self, clients: u32, servers: u32) -> Vec<NodeId> {
        let mut next = clients;
        let mut own = || {
            next += 1;
            next - 1
        };
        (0..servers).map(|server| self.shared.get(&server).copied().unwrap_or_else(&mut own)).collect()
    }

    /// A sentence about the first number that names nothing.
    pub(super) fn check(&self, clients: u32, servers: u32) -> Result<(), String> {
        let named = self.server_nodes.keys().chain(self.servers.keys()).chain(self.shared.keys());
        if let Some(server) = named.max().filter(|&&server| server >= servers) {
            return Err(format!("there is no server {server}, there are {servers}"));
        }
        if let Some(client) = self.clients.keys().chain(self.shared.values()).max().filter(|&&client| client >= clients) {
            return Err(format!("there is no client {client}, there are {clients}"));
        }
        match self.server_nodes.keys().find(|server| self.shared.contains_key(server)) {
            Some(server) => Err(format!("server {server} is on the node of a client and has no node of its own")),
            None => Ok(()),
        }
    }
}
