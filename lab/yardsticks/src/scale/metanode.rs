//! What the metanode of a directory does: it reserves space for new entries and splits blocks that
//! are full (tasks 8 and 9 of section 4.3.2, section 4.1.7).

use std::rc::Rc;

use weft_model::flow::Gate;

use super::directory::{Directory, Mode};
use super::log;
use super::stats::Report;
use super::tokens::wait_for_split;
use super::world::{Server, Shared, World};

/// Where a new entry goes and who asks for it.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub node: u32,
    pub directory: usize,
    pub hash: u64,
    pub bytes: u32,
}

/// The metanode that decides about an entry; under a byte-range token the node itself.
pub(crate) fn metanode(world: &World, entry: Entry) -> u32 {
    let state = world.directories[entry.directory].state.borrow();
    match state.mode {
        Mode::ByteRange { .. } => entry.node,
        Mode::Fine { .. } => state.metanode_of(state.block_of(entry.hash)),
    }
}

/// Reserves the space, splitting blocks until there is some.
pub(crate) async fn reserve(world: &Rc<World>, entry: Entry) {
    let shared = &world.directories[entry.directory];
    loop {
        wait_for_split(world, entry.directory, entry.hash).await;
        match insert(world, shared, entry) {
            Ok(()) => return,
            Err(block) => split(world, entry, block).await,
        }
    }
}

/// Puts the entry into its block, or tells which block is full.
fn insert(world: &World, shared: &Shared, entry: Entry) -> Result<(), usize> {
    let mut state = shared.state.borrow_mut();
    if !state.insert(entry.hash, entry.bytes, world.config.block_bytes()) {
        return Err(state.block_of(entry.hash));
    }
    state.unmerged[entry.node as usize] += 1;
    enter_fine(world, &mut state);
    Ok(())
}

/// The directory gets FGDL when its first block is about to be full (section 4.2.2).
fn enter_fine(world: &World, state: &mut Directory) {
    let Mode::ByteRange { is_first: true, .. } = state.mode else { return };
    if state.blocks.len() > 1 || state.blocks[0].used_bytes > world.config.fine_from_bytes() {
        state.mode = Mode::Fine { creates: 0 };
        let mut report = world.report.borrow_mut();
        if report.fine_from.is_none() {
            report.fine_from = Some((world.clock.now(), report.creates));
            report.before_fine = report.counts;
        }
    }
}

/// Splits a block: everybody's tokens of it are taken back, the halves are made, the log is
/// written.
async fn split(world: &Rc<World>, entry: Entry, block: usize) {
    let (shared, config) = (&world.directories[entry.directory], &world.config);
    let gate = Rc::new(Gate::new(&world.clock));
    gate.shut();
    shared.splitting.borrow_mut().insert(block, gate.clone());
    let metanode = metanode(world, entry);
    let others = shared.state.borrow().blocks[block].holders.without(metanode);
    if !others.is_empty() {
        let revoked = u64::from(others.count());
        world.count(|counts| counts.revocations += revoked);
        world.ask(Server::Manager, config.messages.answer * revoked, 0).await;
        shared.state.borrow_mut().blocks[block].forget_tokens();
    }
    world.clock.pass(config.directory.split).await;
    log::write_buffer(world, metanode).await;
    shared.state.borrow_mut().split(block);
    {
        let mut report = world.report.borrow_mut();
        report.counts.splits += 1;
        *Report::at_interval(&mut report.splits, world.clock.now(), config.creates.interval) += 1;
    }
    shared.splitting.borrow_mut().remove(&block);
    gate.open();
}
