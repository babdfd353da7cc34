//! The log of a node and the dirty inodes that hold its records fast (sections 2.5.5 and 4.1.6).

use std::rc::Rc;

use super::directory::Nodes;
use super::world::World;

/// The records of a create. A full buffer is written first, and a full log (*log wrap*) is waited
/// for.
pub(crate) async fn append(world: &Rc<World>, node: u32) {
    let (storage, log) = (&world.config.storage, &world.nodes[node as usize].log);
    log.has_room.passed().await;
    log.buffered_bytes.set(log.buffered_bytes.get() + storage.record_bytes);
    log.dirty_inodes.set(log.dirty_inodes.get() + 1);
    if log.buffered_bytes.get() >= storage.log_buffer_bytes {
        write_buffer(world, node).await;
    }
    let used = log.dirty_inodes.get() * storage.record_bytes;
    let is_due = used >= storage.log_bytes / 2 || world.clock.now() >= log.flushed_at.get() + storage.sync_interval;
    if is_due && !log.is_flushing.replace(true) {
        world.clock.spawn(flush_inodes(world.clone(), node));
    }
    if used >= storage.log_bytes && log.is_flushing.get() && log.has_room.shut() {
        world.count(|counts| counts.log_waits += 1);
    }
}

/// What is in the buffer goes to disk.
pub(crate) async fn write_buffer(world: &World, node: u32) {
    let log = &world.nodes[node as usize].log;
    log.buffered_bytes.set(0);
    world.count(|counts| counts.log_writes += 1);
    log.writing.hold(world.config.storage.log_write).await;
}

/// The buffers of several nodes, at the same time; an empty one is not written.
pub(crate) async fn write_buffers(world: &World, nodes: Nodes) {
    let written = (0..).zip(&world.nodes).filter(|(node, state)| nodes.has(*node) && state.log.buffered_bytes.get() > 0);
    let count = written.inspect(|(_, node)| node.log.buffered_bytes.set(0)).count() as u64;
    world.count(|counts| counts.log_writes += count);
    world.clock.pass(world.config.storage.log_write * count.min(1)).await;
}

/// Writes the dirty inodes, and those that come meanwhile.
async fn flush_inodes(world: Rc<World>, node: u32) {
    let (storage, log) = (&world.config.storage, &world.nodes[node as usize].log);
    log.flushed_at.set(world.clock.now());
    // What goes into directory blocks goes to the metanode, in the background.
    for shared in &world.directories {
        shared.state.borrow_mut().unmerged[node as usize] = 0;
    }
    while log.dirty_inodes.get() > 0 {
        let batch = log.dirty_inodes.get().min(u64::from(storage.writes_at_once.max(1)));
        world.clock.pass(storage.inode_write).await;
        world.count(|counts| counts.inode_writes += batch);
        log.dirty_inodes.set(log.dirty_inodes.get() - batch);
        if log.dirty_inodes.get() * storage.record_bytes <= storage.log_bytes / 2 {
            log.has_room.open();
        }
    }
    log.is_flushing.set(false);
}
