//! The inode allocation map: segments that nodes lock one by one, and its expansion, for which the
//! whole map is locked (section 4.1.8).

use std::rc::Rc;

use super::world::{Server, World};

/// An inode for a new file.
pub(crate) async fn allocate(world: &Rc<World>, node: u32) {
    let (map, rules) = (&world.inodes, &world.config.inodes);
    loop {
        map.gate.passed().await;
        if map.take(node) {
            break;
        }
        world.ask(Server::Manager, world.config.messages.answer, 0).await;
        map.lock_another(node);
        if map.free.borrow().iter().all(|free| *free == 0) {
            expand(world);
        }
    }
    if map.used.get() as f64 >= rules.expand_at * map.allocated.get() as f64 {
        expand(world);
    }
}

/// Adds a batch of inodes; allocation waits until it is there.
fn expand(world: &Rc<World>) {
    let rules = &world.config.inodes;
    let batch = rules.expansion.max(1).min(rules.limit - world.inodes.allocated.get());
    if batch == 0 || !world.inodes.gate.shut() {
        return;
    }
    world.count(|counts| counts.expansions += 1);
    let owned = world.clone();
    world.clock.spawn(async move {
        owned.clock.pass(owned.config.inodes.format * batch).await;
        owned.inodes.add(batch);
        owned.inodes.gate.open();
    });
}
