//! `[[nodes]]` of a plan: nodes and servers that are not like the others, and servers on the nodes
//! of clients.

use std::collections::BTreeSet;

use anyhow::Result;
use weft_piosim::{CacheLayerConfig, ClusterConfig};
use weft_plan::document::{Choices, Table};
use weft_plan::files::Plan;
use weft_plan::units::numbers;
use weft_sched::LayerKind;

use super::{LayerRules, Layered, sections};

/// Reads all `[[nodes]]` into the exceptions of a cluster whose other nodes are known.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn read<'a>(file: &'a Plan, plan: &Table<'a>, config: &mut ClusterConfig, choices: &mut Choices) -> Result<()> {
    let (mut clients, mut servers) = (BTreeSet::new(), BTreeSet::new());
    for table in plan.tables("nodes")? {
        let mut named = |key: &str, seen: &mut BTreeSet<u32>, count: u32| -> Result<Vec<u32>> {
            let list = table.swept(key, choices, numbers)?.unwrap_or_default();
            let kind = key.trim_end_matches('s');
            for &number in &list {
                if number >= count {
                    return Err(table.error(key, &format!("there is no {kind} {number}, there are 0 to {}", count - 1)));
                }
                if !seen.insert(number) {
                    return Err(table.error(key, &format!("{kind} {number} is in [[nodes]] twice")));
                }
            }
            Ok(list)
        };
        let clients = named("clients", &mut clients, config.clients)?;
        let servers = named("servers", &mut servers, config.servers)?;
        if clients.is_empty() && servers.is_empty() {
            return Err(table.error("clients", "is missing, and so is servers: whose nodes are different?"));
        }
        let shared = table.swept("on_clients", choices, numbers)?;
        share(&table, config, &servers, shared.as_deref())?;
        let profile = file.profile(&table, choices)?;
        if !clients.is_empty() || shared.is_none() {
            let mut node = config.node;
            sections::node(Layered::open(&table, profile.as_ref(), "node", choices)?, &mut node)?;
            sections::own_link(Layered::open(&table, profile.as_ref(), "network", choices)?, &mut node)?;
            config.exceptions.clients.extend(clients.iter().map(|&client| (client, node)));
            if shared.is_none() {
                config.exceptions.server_nodes.extend(servers.iter().map(|&server| (server, node)));
            }
        }
        if !servers.is_empty() {
            let mut server = config.server.clone();
            sections::disk(Layered::open(&table, profile.as_ref(), "disk", choices)?, &mut server, Some(&config.server.disk))?;
            let usual = usual_layer(&config.server.cache_layer);
            let others = sections::Others { usual, packet: config.packet_bytes, answers: &mut config.answers_written };
            sections::server(Layered::open(&table, profile.as_ref(), "server", choices)?, &mut server, others, false)?;
            config.exceptions.servers.extend(servers.iter().map(|&number| (number, server.clone())));
        }
        table.finish()?;
        let key = if servers.is_empty() { "clients" } else { "servers" };
        config.check().map_err(|problem| table.error(key, &problem))?;
    }
    Ok(())
}

/// Puts servers on the nodes of clients.
fn share(table: &Table<'_>, config: &mut ClusterConfig, servers: &[u32], clients: Option<&[u32]>) -> Result<()> {
    let Some(clients) = clients else { return Ok(()) };
    if clients.len() != servers.len() {
        let message = format!("names {} clients for {} servers", clients.len(), servers.len());
        return Err(table.error("on_clients", &message));
    }
    if let Some(client) = clients.iter().find(|&&client| client >= config.clients) {
        return Err(table.error("on_clients", &format!("there is no client {client}, there are 0 to {}", config.clients - 1)));
    }
    config.exceptions.shared.extend(servers.iter().copied().zip(clients.iter().copied()));
    Ok(())
}

fn usual_layer(layer: &CacheLayerConfig) -> (LayerKind, LayerRules) {
    match layer {
        CacheLayerConfig::Classic { kind, .. } => (*kind, LayerRules::Of2009),
        CacheLayerConfig::Improved { kind, .. } => (*kind, LayerRules::Today),
    }
}
