//! A file is made: the tasks of sections 4.3.1 and 4.3.2 in their order. Neighbouring local tasks
//! pass as one span of time; each has its own share of the report.

use std::rc::Rc;

use super::metanode::{self, Entry};
use super::stats::Report;
use super::tokens::{self, Grant};
use super::world::{Server, World};
use super::{inodes, log};

/// What one create took, task by task.
struct Tally {
    lookup: [u64; 7],
    create: [u64; 12],
}

/// One file, from `open()` with `O_CREAT` to the program's next one.
pub(crate) async fn create(world: &Rc<World>, entry: Entry) {
    let (times, clock) = (&world.config.tasks, &world.clock);
    let mutex = &world.nodes[entry.node as usize].directory_mutex;
    mutex.acquire().await;
    let began = clock.now();
    let is_fine = world.report.borrow().fine_from.is_some();
    let mut tally = Tally { lookup: [0; 7], create: [0; 12] };
    let found = match world.config.tokens.create_intents {
        true => None,
        false => Some(lookup(world, entry, &mut tally).await),
    };
    let looked_up = clock.now();
    create_file(world, entry, found, &mut tally).await;
    let created = clock.now();
    mutex.release();
    clock.pass(times.open).await;
    let now = clock.now();
    {
        let mut report = world.report.borrow_mut();
        report.nanos = report.nanos.max(now);
        report.creates += 1;
        let (interval, clients) = (world.config.creates.interval, world.nodes.len());
        let point = Report::at_interval(&mut report.rates, now, interval);
        point.resize(clients, 0);
        point[entry.node as usize] += 1;
        if is_fine {
            report.lookup_tasks.iter_mut().zip(tally.lookup).for_each(|(sum, nanos)| *sum += nanos);
            report.create_tasks.iter_mut().zip(tally.create).for_each(|(sum, nanos)| *sum += nanos);
            let functions = [looked_up - began, created - looked_up, now - created];
            report.functions.iter_mut().zip(functions).for_each(|(sum, nanos)| *sum += nanos);
            report.add_latency(entry.node, now - began);
        }
    }
    clock.pass(times.between).await;
}

/// `gpfs_i_lookup()`: there is no such name.
async fn lookup(world: &Rc<World>, entry: Entry, tally: &mut Tally) -> Grant {
    let (times, clock) = (&world.config.tasks, &world.clock);
    tally.lookup = times.lookup;
    clock.pass(times.lookup_rest + times.lookup[..4].iter().sum::<u64>()).await;
    let asked = clock.now();
    let grant = tokens::acquire(world, entry.node, entry.directory, entry.hash).await;
    tally.lookup[3] += clock.now() - asked;
    clock.pass(times.lookup[4..].iter().sum()).await;
    grant
}

/// `gpfs_i_create()`: the kernel asks the daemon, which does the rest.
async fn create_file(world: &Rc<World>, entry: Entry, found: Option<Grant>, tally: &mut Tally) {
    let (times, clock) = (&world.config.tasks, &world.clock);
    tally.create = times.create;
    let asked = clock.now();
    inodes::allocate(world, entry.node).await;
    tally.create[0] += clock.now() - asked;
    clock.pass(times.create_rest + times.create[..4].iter().sum::<u64>()).await;
    let asked = clock.now();
    let grant = match found.filter(|grant| grant.is_valid(world, entry.directory, entry.hash)) {
        Some(grant) => grant,
        None => tokens::acquire(world, entry.node, entry.directory, entry.hash).await,
    };
    tally.create[3] += clock.now() - asked;
    clock.pass(times.create[4..7].iter().sum()).await;
    let metanode = metanode::metanode(world, entry);
    let asked = clock.now();
    if metanode == entry.node {
        clock.pass(times.create[7]).await;
        metanode::reserve(world, entry).await;
        tally.create[7] = clock.now() - asked;
        world.report.borrow_mut().at_metanode[entry.node as usize] += 1;
    } else {
        world.ask(Server::Node(metanode), world.config.messages.answer, 0).await;
        metanode::reserve(world, entry).await;
        (tally.create[7], tally.create[8]) = (0, clock.now() - asked);
    }
    tokens::count_create(world, entry.directory);
    let asked = clock.now();
    log::append(world, entry.node).await;
    tally.create[9] += clock.now() - asked;
    clock.pass(times.create[9..].iter().sum()).await;
    tokens::finish(world, entry.directory, grant);
}
