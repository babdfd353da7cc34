//! A mount dies while it changes trees, or a server loses power just afterwards. What had rested
//! before is as it was; of what was being changed the other mount finds some state, and both go on
//! from there. In one of five seeds directories are spread over metadata servers meanwhile.
//!
//! `WEFT_DEATH_SEEDS=100..200` runs other seeds.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weft_base::{FileKind, MILLISECOND, SECOND, ServerId};
use weft_posix::InodeNumber;
use weft_rt_sim::{Fault, Joined, Random};
use weft_sim_tests::mount::{Mount, caller, how};
use weft_wire::Rights;

use super::disturbed::spread;
use super::model::{Dir, Entry, File, Id, Picked, TOP, Tree};
use super::{TREES, Turn, World, examine, make_tops, seeds_of};

/// Longer than anything that was closed stays with its mount, in nanoseconds.
const REST_NS: u64 = 3 * SECOND;
/// The same after servers were silent, which is tried again every some seconds.
const REST_AFTER_FAULTS_NS: u64 = 20 * SECOND;
/// Steps of one turn, at most.
const STEPS_MAX: u64 = 25;

type Shared = Rc<RefCell<Tree>>;

impl Turn<'_> {
    /// Takes what is found for what is to be there, if it can have come about.
    async fn adopt(&mut self) {
        let empty = Tree { next: self.tree.next, ..Tree::new(self.tree.name.clone(), self.tree.prefix) };
        let was = std::mem::replace(self.tree, empty);
        let picked = was.picked.take();
        self.tree.nodes = was.nodes.clone();
        let mut below = vec![(TOP, self.walk_to(TOP, true).await.expect("it is there"))];
        let mut seen = BTreeSet::from([TOP]);
        while let Some((id, node)) = below.pop() {
            let place = format!("{:?} in {}", self.tree.dirs[&id].place, self.tree.name);
            let names = self.mount.list(&self.who, node, false, 20).await.unwrap_or_else(|error| panic!("{error}: {place}"));
            let names: Vec<String> = names.into_iter().filter(|name| self.tree.is_mine(name)).collect();
            for name in &names {
                let entry = self.find(&was, &picked, (id, node), name, &mut below).await;
                if let Entry::Dir(dir) = entry {
                    assert!(seen.insert(dir), "{name} in {place} is elsewhere, too");
                }
                if was.dirs.contains_key(&id) && !picked.names.contains(&(id, name.clone())) {
                    assert_eq!(was.entry(id, name), Some(entry), "{name} in {place}, which nobody has changed");
                }
                self.tree.dir(id).entries.insert(name.clone(), entry);
            }
            let rested = was.dirs.get(&id).into_iter().flat_map(|dir| dir.entries.keys());
            let lost = rested.filter(|name| !names.contains(name) && !picked.names.contains(&(id, name.to_string())));
            assert_eq!(lost.count(), 0, "names of {:?} in {place}, of which {names:?} are there", was.dirs[&id]);
        }
        self.remove_temporary().await;
        // What had a name, and was only given another one, has one of them.
        let has_rested = |id: &&Id| was.rested.contains(id) && !picked.losable.contains(id);
        let lost: Vec<&Id> = was.dirs.keys().filter(has_rested).filter(|id| !self.tree.dirs.contains_key(id)).collect();
        let files: Vec<&Id> = was.files.keys().filter(has_rested).filter(|id| !self.tree.files.contains_key(id)).collect();
        assert!(lost.is_empty() && files.is_empty(), "directories {lost:?} and files {files:?} of {was:?}");
    }

    /// Nobody goes on with what was being made.
    async fn remove_temporary(&mut self) {
        let names = |(dir, is): (&Id, &Dir)| {
            is.entries.keys().filter(|name| name.starts_with('.')).map(|name| (*dir, name.clone())).collect::<Vec<_>>()
        };
        for (dir, name) in self.tree.dirs.iter().flat_map(names).collect::<Vec<_>>() {
            let node = self.walk_to(dir, true).await.expect("it is there");
            self.mount.remove(&self.who, node, &name, false).await.unwrap_or_else(|error| panic!("{error}: {name}"));
            let lost = self.tree.lead(dir, &name, None);
            self.tree.lost(lost);
        }
    }

    /// What a name leads to.
    async fn find(
        &mut self,
        was: &Tree,
        picked: &Picked,
        (dir, node): (Id, InodeNumber),
        name: &str,
        below: &mut Vec<(Id, InodeNumber)>,
    ) -> Entry {
        let place = format!("{name} in {:?}", self.tree.path(dir));
        let found = self.mount.walk(&self.who, node, name, true).await.unwrap_or_else(|error| panic!("{error}: {place}"));
        let attr = self.mount.stat(found).await.unwrap_or_else(|error| panic!("{error}: {place}"));
        let known = self.tree.nodes.get(&found).copied();
        match attr.kind {
            FileKind::Symlink => {
                let target = self.mount.posix.readlink(found).await.unwrap_or_else(|error| panic!("{error}: {place}"));
                let target = String::from_utf8_lossy(&target).into_owned();
                Entry::Symlink(target.trim_start_matches("to").parse().unwrap_or_else(|_| panic!("{target} of {place}")))
            }
            FileKind::Directory => {
                let id = known.unwrap_or_else(|| self.tree.add(found));
                let before = was.dirs.get(&id).filter(|_| was.rested.contains(&id) && !picked.dirs.contains(&id));
                let (mode, mtime) = before.map_or((attr.permissions(), None), |dir| (dir.mode, dir.mtime));
                self.tree.dirs.insert(id, Dir { place: (dir, name.to_string()), mode, mtime, entries: BTreeMap::new() });
                below.push((id, found));
                Entry::Dir(id)
            }
            _ => {
                let id = known.unwrap_or_else(|| self.tree.add(found));
                if let Some(is) = self.tree.files.get_mut(&id) {
                    is.links += 1;
                    return Entry::File(id);
                }
                let is_known = was.rested.contains(&id) && !picked.files.contains(&id) || picked.synced.contains(&id);
                let is = match was.files.get(&id).filter(|_| is_known) {
                    Some(is) => File { bytes: is.bytes.clone(), xattrs: is.xattrs.clone(), ..*is },
                    None => {
                        let file = self.open(dir, name, how(Rights::READ)).await;
                        let bytes = self.mount.read(file).await.unwrap_or_else(|error| panic!("{error}: {place}"));
                        self.close(file).await;
                        let mut is = File { mode: attr.permissions(), ..File::new(bytes) };
                        for key in self.mount.posix.list_xattr(&self.who.who, found).await.expect("it is there") {
                            let value = self.mount.posix.get_xattr(&self.who.who, found, &key).await.expect("it is there");
                            is.xattrs.insert(String::from_utf8_lossy(&key).into_owned(), value.to_vec());
                        }
                        is
                    }
                };
                self.tree.files.insert(id, File { links: 1, ..is });
                Entry::File(id)
            }
        }
    }
}

async fn work(mount: Mount, number: usize, tree: Shared, turns: u64) {
    let mut tree = tree.borrow_mut();
    for _ in 0..turns {
        let mut turn = Turn { mount: &mount, who: caller(100 + number as u32, 0), tree: &mut tree };
        if turn.random(3) == 0 {
            turn.check_all().await;
        }
        for _ in 0..turn.random(STEPS_MAX) {
            turn.step().await;
        }
        turn.let_some_go().await;
    }
}

/// Each tree is changed through the mount of that number.
fn spawn_all(world: &World, mounts: &[Mount], trees: &[Shared; 4], turns: u64, by: impl Fn(usize) -> usize) -> Vec<Joined<()>> {
    let flows = trees.iter().enumerate().map(|(number, tree)| {
        let (mount, tree) = (mounts[by(number)].clone(), tree.clone());
        world.sim.spawn_on(mount.node, move |_| work(mount, number, tree, turns))
    });
    flows.collect()
}

fn all_work(world: &World, mounts: &[Mount], trees: &[Shared; 4], by: impl Fn(usize) -> usize) {
    world.run(spawn_all(world, mounts, trees, 2, by));
}

/// One run.
pub fn run(seed: u64) {
    let mut world = World::new(seed, None);
    if seed % 4 < 2 {
        world.takes_small_files();
    }
    make_tops(&world, seed % 3 == 2);
    let trees = TREES.map(|(name, prefix)| Rc::new(RefCell::new(Tree::new(name.to_string(), prefix))));
    let mut mounts = world.mounts.to_vec();
    let mut random = world.sim.random();
    let mut finders = Vec::new();
    let is_over = Rc::new(Cell::new(false));
    let spreads = (seed % 5 == 4).then(|| {
        let ((node, client), is_over) = (world.cluster.add_client("spreads", 60 * SECOND), is_over.clone());
        world.sim.spawn_on(node, move |rt| spread(client, rt, 2, is_over))
    });
    for round in 0..3 {
        let is_calm = seed % 4 != 3;
        if !is_calm {
            world.plan_faults();
        }
        trees.iter().for_each(|tree| tree.borrow_mut().is_calm = is_calm);
        all_work(&world, &mounts, &trees, |number| (number + round) % 2);
        world.sim.recover();
        world.sim.run_for(if is_calm { REST_NS } else { REST_AFTER_FAULTS_NS });
        trees.iter().for_each(|tree| tree.borrow_mut().rests());
        let dying = random.below(2) as usize;
        let (changed, finder) = match random.below(2) {
            0 => (mount_dies(&world, &mut mounts, &trees, (dying, round), &mut random), mounts[1 - dying].clone()),
            _ => {
                server_loses_power(&world, &mounts, &trees, &mut random);
                // The others may still have in their caches what was lost.
                ([true; 4], Mount::new(&world.sim, &world.cluster, &format!("finder {round}"), None))
            }
        };
        finders.push(finder.clone());
        let flows = trees.iter().zip(changed).map(|(tree, has_changed)| {
            let (mount, tree) = (finder.clone(), tree.clone());
            world.sim.spawn_on(mount.node, move |_| async move {
                let mut tree = tree.borrow_mut();
                let mut turn = Turn { mount: &mount, who: caller(9, 0), tree: &mut tree };
                if has_changed {
                    turn.adopt().await;
                }
                turn.check_all().await;
            })
        });
        world.run(flows.collect());
        // Who wants to write to what a dead mount had open may have to wait for its session to end.
        world.sim.run_for(40 * SECOND);
    }
    all_work(&world, &mounts, &trees, |number| number % 2);
    is_over.set(true);
    world.run(spreads.into_iter().collect());
    for mount in &mounts {
        let mount = mount.clone();
        world.run(vec![world.sim.spawn_on(mount.node, |_| async move { mount.posix.end(30 * SECOND).await })]);
    }
    let third = Mount::new(&world.sim, &world.cluster, "last", Some(0));
    world.run(vec![world.sim.spawn_on(third.node, |_| async move {
        for tree in &trees {
            let mut tree = tree.borrow_mut();
            Turn { mount: &third, who: caller(9, 0), tree: &mut tree }.check_all().await;
        }
        third.posix.end(30 * SECOND).await;
    })]);
    // Who lives may still make what a power cut took, so what it had of that would be kept.
    finders.iter().chain(&mounts).filter(|mount| world.sim.is_running(mount.node)).for_each(|mount| world.sim.crash(mount.node));
    examine(&world, true);
}

/// One of the mounts dies while it works, and is mounted anew. Gives which trees it has changed.
fn mount_dies(world: &World, mounts: &mut [Mount], trees: &[Shared; 4], (dying, round): (usize, usize), random: &mut Random) -> [bool; 4] {
    let victim = mounts[dying].node;
    let flows: Vec<_> = spawn_all(world, mounts, trees, 1, |number| (number + dying) % 2);
    world.sim.strike_after_polls(victim, 1 + random.below(1000), Fault::Crash { node: victim, down_ns: u64::MAX / 2 });
    let changed = [true, false, true, false];
    let is_over = || flows.iter().zip(changed).all(|(flow, dies)| dies && !world.sim.is_running(victim) || flow.is_over());
    world.sim.run_until_true(world.sim.now() + 600 * SECOND, is_over).expect("every wait has an end");
    if world.sim.is_running(victim) {
        world.sim.crash(victim);
    }
    // What its last messages ask for is done.
    world.sim.run_for(SECOND);
    mounts[dying] = Mount::new(&world.sim, &world.cluster, &format!("again {round}"), None);
    changed
}

/// A server loses power when all is quiet, but what is young at metadata servers may be lost.
fn server_loses_power(world: &World, mounts: &[Mount], trees: &[Shared; 4], random: &mut Random) {
    world.run(spawn_all(world, mounts, trees, 1, |number| number % 2));
    let server = match random.below(3) {
        0 => {
            world.sim.run_for(SECOND);
            ServerId::data(random.below(3) as u16)
        }
        _ => {
            world.sim.run_for(random.below(60 * MILLISECOND));
            ServerId(random.below(2) as u16)
        }
    };
    let server = world.sim.node_of(server).expect("it runs");
    world.sim.power_cut(server);
    world.sim.run_for(random.below(100 * MILLISECOND));
    world.sim.restart(server);
}

#[test]
fn what_had_rested_is_there_after_deaths_and_power_cuts() {
    for seed in seeds_of("WEFT_DEATH_SEEDS", 0..8) {
        println!("seed {seed}: WEFT_DEATH_SEEDS={seed}..{} cargo test -p weft-sim-tests --test posix after_deaths", seed + 1);
        run(seed);
    }
}
