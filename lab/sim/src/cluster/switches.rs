//! `[[switch]]` and `[[link]]` of a plan: which node is at which switch, and which switches are
//! connected.

use anyhow::Result;
use weft_model::units::nanos;
use weft_model::{Link, SWITCHES_MAX, Switches, Topology};
use weft_piosim::ClusterConfig;
use weft_plan::document::{Choices, Table, text};
use weft_plan::units::{above_zero, bytes, numbers, seconds};

/// Nodes that no switch has been named for.
const NOWHERE: u32 = u32::MAX;

/// Reads all of them, if there are any.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn read(plan: &Table<'_>, config: &mut ClusterConfig, choices: &mut Choices) -> Result<()> {
    let (tables, links) = (plan.tables("switch")?, plan.tables("link")?);
    let Some(first) = tables.first() else {
        return if links.is_empty() { Ok(()) } else { Err(plan.error("link", "there are no switches: [[switch]] is missing")) };
    };
    if config.topology != Topology::OneSwitch {
        return Err(plan.error("switch", "a plan has switches or racks (network.nodes_per_rack), not both"));
    }
    if tables.len() > SWITCHES_MAX as usize {
        return Err(plan.error("switch", &format!("there are more than {SWITCHES_MAX}")));
    }
    let server_nodes = config.nodes_of_servers();
    let mut switches = Switches { node_switch: vec![NOWHERE; config.nodes().len()], ..Switches::default() };
    let mut names = Vec::new();
    for (number, table) in (0..).zip(&tables) {
        let name = table.value("name", text)?.ok_or_else(|| table.error("name", "is missing"))?;
        if names.contains(&name) {
            return Err(table.error("name", &format!("another switch is named \"{name}\"")));
        }
        names.push(name);
        switches.bandwidths.push(Some(table.swept("bandwidth", choices, above_zero(bytes))?.unwrap_or(config.switch_bandwidth)));
        for client in table.swept("clients", choices, numbers)?.unwrap_or_default() {
            if client >= config.clients {
                return Err(table.error("clients", &format!("there is no client {client}, there are 0 to {}", config.clients - 1)));
            }
            plug(&mut switches, client, number).map_err(|()| table.error("clients", &format!("client {client} is at two switches")))?;
        }
        for server in table.swept("servers", choices, numbers)?.unwrap_or_default() {
            let Some(&node) = server_nodes.get(server as usize) else {
                return Err(table.error("servers", &format!("there is no server {server}, there are 0 to {}", config.servers - 1)));
            };
            if node < config.clients {
                return Err(table.error("servers", &format!("server {server} is on the node of client {node}, which has its switch")));
            }
            plug(&mut switches, node, number).map_err(|()| table.error("servers", &format!("server {server} is at two switches")))?;
        }
        table.finish()?;
    }
    for table in &links {
        switches.links.push(link(table, &names, config, choices)?);
    }
    let party = |node: u32| match server_nodes.iter().position(|&own| own == node && own >= config.clients) {
        Some(server) => format!("server {server}"),
        None => format!("client {node}"),
    };
    if let Some(node) = switches.node_switch.iter().position(|&switch| switch == NOWHERE) {
        let key = if (node as u32) < config.clients { "clients" } else { "servers" };
        return Err(first.error(key, &format!("{} is at no switch", party(node as u32))));
    }
    if let Some((one, other)) = switches.unconnected() {
        return Err(plan.error("link", &format!("no links lead from {} to {}", party(one), party(other))));
    }
    config.topology = Topology::Free(switches);
    config.check().map_err(|problem| plan.error("switch", &problem))
}

/// Puts a node at a switch; an error if it is at one.
fn plug(switches: &mut Switches, node: u32, number: u32) -> Result<(), ()> {
    let place = &mut switches.node_switch[node as usize];
    if *place != NOWHERE {
        return Err(());
    }
    *place = number;
    Ok(())
}

fn link(table: &Table<'_>, names: &[String], config: &ClusterConfig, choices: &mut Choices) -> Result<Link> {
    let ends = table.all("between", text)?;
    let [one, other] = ends.as_slice() else {
        return Err(table.error("between", "needs the names of two switches, such as [\"edge\", \"core\"]"));
    };
    let find = |name: &String| {
        let found = (0..).zip(names).find(|(_, known)| *known == name).map(|(number, _)| number);
        found.ok_or_else(|| table.error("between", &format!("there is no switch \"{name}\"; there are {}", names.join(", "))))
    };
    let ends = [find(one)?, find(other)?];
    if ends[0] == ends[1] {
        return Err(table.error("between", "connects a switch with itself"));
    }
    let bandwidth = table.swept("bandwidth", choices, above_zero(bytes))?.unwrap_or(config.node.card.link_bandwidth);
    let latency = table.swept("latency", choices, seconds)?.unwrap_or(config.node.card.link_latency);
    table.finish()?;
    Ok(Link { ends, bandwidth, latency: nanos(latency) })
}
