//! A whole run: every process makes its files, one after the other, as mdtest does.

use std::rc::Rc;

use weft_model::TieOrder;

use super::config::ScaleConfig;
use super::create::create;
use super::directory::hash;
use super::metanode::Entry;
use super::stats::Report;
use super::tokens::retire;
use super::world::World;

/// Makes all files of `config` and tells what it took; `order` is that of events of one instant.
///
/// # Errors
/// Numbers that make no run; the text names the section and what is wrong.
pub fn run(config: &ScaleConfig, order: TieOrder) -> Result<Report, String> {
    if let Some((key, problem)) = config.problem() {
        return Err(format!("{key}: {problem}"));
    }
    let world = World::new(config, order);
    let creates = &config.creates;
    for node in 0..creates.clients {
        for process in 0..creates.processes {
            world.clock.spawn(run_process(world.clone(), node, process));
        }
    }
    world.clock.run().map_err(|stuck| format!("{} flows wait for ever at {} ns", stuck.flows, stuck.at_nanos))?;
    let mut report = world.report.take();
    report.events = world.clock.events();
    Ok(report)
}

/// A process of mdtest with its part of the client's files.
async fn run_process(world: Rc<World>, node: u32, process: u32) {
    let creates = &world.config.creates;
    let directory = if creates.own_directories { node as usize } else { 0 };
    let (processes, rank) = (u64::from(creates.processes), node * creates.processes + process);
    let files = creates.files / processes + u64::from(u64::from(process) < creates.files % processes);
    for index in 0..files {
        let entry = Entry { node, directory, hash: hash(rank, index), bytes: world.config.entry_bytes(rank, index) };
        create(&world, entry).await;
    }
    let active = &world.nodes[node as usize].active;
    active.set(active.get() - 1);
    if active.get() == 0 && world.nodes.iter().any(|node| node.active.get() > 0) {
        world.clock.spawn(retire(world.clone(), node, directory));
    }
}
