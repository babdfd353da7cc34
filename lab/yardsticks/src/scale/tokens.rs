//! How a node comes to the right to put a name into a directory (sections 2.5.4 and 4.4.3), and how
//! rights are taken back: conflicts, the leave threshold, a metanode that has nothing to do.

use std::rc::Rc;

use super::directory::Mode;
use super::log;
use super::world::{Server, World};

/// A right that was given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Grant {
    /// The byte-range token, kept until [`finish`].
    Range,
    /// An FGDL token and the entries of the block.
    Fine { block: usize, generation: u32 },
}

impl Grant {
    /// Whether nobody has taken it back.
    pub fn is_valid(self, world: &World, directory: usize, hash: u64) -> bool {
        match self {
            Grant::Range => true,
            Grant::Fine { block, generation } => {
                let state = world.directories[directory].state.borrow();
                state.block_of(hash) == block && state.blocks[block].generation == generation
            }
        }
    }
}

/// Waits for the right to look for a name and to make it.
pub(crate) async fn acquire(world: &Rc<World>, node: u32, directory: usize, hash: u64) -> Grant {
    let shared = &world.directories[directory];
    loop {
        shared.switching.passed().await;
        touch(world, node, directory);
        let mode = shared.state.borrow().mode;
        let granted = match mode {
            Mode::ByteRange { .. } => range(world, node, directory).await,
            Mode::Fine { .. } => fine(world, node, directory, hash).await,
        };
        if let Some(grant) = granted.filter(|grant| grant.is_valid(world, directory, hash)) {
            return grant;
        }
    }
}

/// The work under a right is done.
pub(crate) fn finish(world: &World, directory: usize, grant: Grant) {
    if let Grant::Range = grant {
        world.directories[directory].range.release();
    }
}

/// The first nodes that touch a directory are its metanodes.
fn touch(world: &World, node: u32, directory: usize) {
    let mut state = world.directories[directory].state.borrow_mut();
    if state.metanodes.len() < world.config.directory.metanodes.max(1) as usize && !state.metanodes.contains(&node) {
        state.metanodes.push(node);
    }
}

/// The byte-range token of the directory. Who had it writes what it changed, who gets it reads it.
async fn range(world: &Rc<World>, node: u32, directory: usize) -> Option<Grant> {
    let (shared, storage) = (&world.directories[directory], &world.config.storage);
    shared.range.acquire().await;
    let mode = shared.state.borrow().mode;
    let Mode::ByteRange { holder, conflicts, is_first } = mode else {
        shared.range.release();
        return None;
    };
    if holder == Some(node) {
        return Some(Grant::Range);
    }
    world.ask(Server::Manager, world.config.messages.answer, 0).await;
    let mut after = Mode::ByteRange { holder: Some(node), conflicts, is_first };
    if let Some(old) = holder {
        world.count(|counts| {
            counts.revocations += 1;
            counts.block_writes += 1;
            counts.inode_writes += 1;
            counts.block_reads += 1;
        });
        world.ask(Server::Node(old), world.config.messages.answer, 0).await;
        log::write_buffer(world, old).await;
        // The block and the directory's inode, written by the one and read by the other.
        world.clock.pass(storage.block_write + storage.inode_write).await;
        world.clock.pass(storage.block_read + storage.inode_write).await;
        let is_fine = !is_first && conflicts + 1 >= world.config.tokens.enter_conflicts;
        after =
            if is_fine { Mode::Fine { creates: 0 } } else { Mode::ByteRange { holder: Some(node), conflicts: conflicts + 1, is_first } };
    }
    shared.state.borrow_mut().mode = after;
    if let Mode::Fine { .. } = after {
        shared.range.release();
        return None;
    }
    Some(Grant::Range)
}

/// A token for the name, and the entries of its block.
async fn fine(world: &Rc<World>, node: u32, directory: usize, hash: u64) -> Option<Grant> {
    let (shared, answer) = (&world.directories[directory], world.config.messages.answer);
    wait_for_split(world, directory, hash).await;
    let (block, generation, mine) = {
        let state = shared.state.borrow();
        let index = state.block_of(hash);
        let block = &state.blocks[index];
        (index, block.generation, block.is_whole && block.holders.has(node))
    };
    let grant = Some(Grant::Fine { block, generation });
    if mine {
        return grant;
    }
    world.ask(Server::Manager, answer, 0).await;
    if !grant?.is_valid(world, directory, hash) {
        return None;
    }
    // Who was alone in the block gives up its right to all of it.
    let alone = {
        let mut state = shared.state.borrow_mut();
        let block = &mut state.blocks[block];
        let others = block.holders.without(node);
        let alone = others.first().filter(|_| block.is_whole);
        block.is_whole = others.is_empty();
        block.holders.add(node);
        alone
    };
    if let Some(other) = alone {
        world.count(|counts| counts.revocations += 1);
        world.ask(Server::Node(other), answer, 0).await;
    }
    let (metanode, is_cached, bytes) = {
        let state = shared.state.borrow();
        let found = state.blocks.get(block)?;
        (state.metanode_of(block), found.cached.has(node), found.used_bytes)
    };
    if metanode != node {
        if is_cached {
            world.ask(Server::Node(metanode), answer, 0).await;
        } else {
            world.count(|counts| counts.entry_bytes += bytes);
            world.ask(Server::Node(metanode), world.config.directory.scan, bytes).await;
            let mut state = shared.state.borrow_mut();
            if state.blocks[block].generation == generation {
                state.blocks[block].cached.add(node);
            }
        }
    }
    grant
}

/// Waits while the block of a name is being split.
pub(crate) async fn wait_for_split(world: &World, directory: usize, hash: u64) {
    let shared = &world.directories[directory];
    loop {
        let block = shared.state.borrow().block_of(hash);
        let gate = shared.splitting.borrow().get(&block).cloned();
        match gate {
            Some(gate) => gate.passed().await,
            None => return,
        }
    }
}

/// A create under FGDL is done: at the leave threshold all tokens are taken back.
pub(crate) fn count_create(world: &Rc<World>, directory: usize) {
    let shared = &world.directories[directory];
    let threshold = world.config.tokens.leave_threshold;
    let is_due = match &mut shared.state.borrow_mut().mode {
        Mode::Fine { creates } => {
            *creates += 1;
            threshold > 0 && *creates >= threshold
        }
        Mode::ByteRange { .. } => false,
    };
    if is_due && shared.switching.shut() {
        world.count(|counts| counts.leaves += 1);
        world.clock.spawn(leave(world.clone(), directory));
    }
}

/// The directory goes back to byte-range locking.
async fn leave(world: Rc<World>, directory: usize) {
    let shared = &world.directories[directory];
    let holders = shared.state.borrow().holders();
    take_back(&world, directory).await;
    // Who was alone needs no other token than the one of the whole directory.
    let holder = if holders.count() == 1 { holders.first() } else { None };
    shared.state.borrow_mut().mode = Mode::ByteRange { holder, conflicts: 0, is_first: false };
    shared.switching.open();
}

/// All tokens of a directory are taken back, each until its node has heard of it: a create that has
/// looked its name up goes on meanwhile. Logs are written before what they describe; what other
/// nodes have made goes to the metanodes, one entry after the other, and the blocks to disk.
async fn take_back(world: &Rc<World>, directory: usize) {
    let (shared, config) = (&world.directories[directory], &world.config);
    let (holders, others, metanodes) = {
        let state = shared.state.borrow();
        let (holders, metanodes) = (state.holders(), state.metanodes.clone());
        (holders, metanodes.iter().fold(holders, |nodes, metanode| nodes.without(*metanode)), metanodes)
    };
    // A metanode alone keeps its blocks in memory; with several, each has entries for others.
    let is_alone = others.is_empty() && metanodes.len() <= 1;
    if !is_alone {
        let revoked = u64::from(others.count());
        world.count(|counts| counts.revocations += revoked);
        world.ask(Server::Manager, config.messages.answer * revoked.max(1), 0).await;
    }
    let (entries, blocks) = {
        let mut state = shared.state.borrow_mut();
        let made = (0..).zip(state.unmerged.iter_mut()).map(|(node, count)| {
            let count = std::mem::take(count);
            if metanodes[..] == [node] { 0 } else { count }
        });
        let entries: u64 = made.sum();
        let blocks = if is_alone { 0 } else { state.take_dirty() };
        state.forget_tokens();
        (entries, blocks)
    };
    if is_alone {
        return;
    }
    log::write_buffers(world, holders).await;
    let metanodes = metanodes.len().max(1) as u64;
    world.clock.pass(entries / metanodes * config.directory.entry_merge).await;
    world.count(|counts| counts.block_writes += blocks);
    let writes = blocks.div_ceil(metanodes * u64::from(config.storage.writes_at_once.max(1)));
    world.clock.pass(writes * config.storage.block_write).await;
}

/// A client has made its files: if it is a metanode, another one that has files to make becomes it
/// after some time.
pub(crate) async fn retire(world: Rc<World>, node: u32, directory: usize) {
    let shared = &world.directories[directory];
    world.clock.pass(world.config.directory.metanode_grace).await;
    loop {
        shared.switching.passed().await;
        if shared.switching.shut() {
            break;
        }
    }
    let change = {
        let state = shared.state.borrow();
        let place = state.metanodes.iter().position(|metanode| *metanode == node);
        let is_free = |other: &u32| world.nodes[*other as usize].active.get() > 0 && !state.metanodes.contains(other);
        let count = u32::try_from(world.nodes.len()).unwrap_or(u32::MAX);
        let heir = (1..count).map(|step| (node + step) % count).find(is_free);
        place.map(|place| (place, heir, state.metanodes.len()))
    };
    match change {
        // The last metanode stays when nobody works any more.
        None | Some((_, None, 1)) => {}
        Some((place, heir, _)) => {
            take_back(&world, directory).await;
            world.count(|counts| counts.metanode_changes += 1);
            let mut state = shared.state.borrow_mut();
            match heir {
                Some(heir) => state.metanodes[place] = heir,
                None => drop(state.metanodes.remove(place)),
            }
        }
    }
    shared.switching.open();
}
