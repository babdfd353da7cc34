//! Trees that two mounts change in turns: who has its turn finds what the other one has left, to
//! the last name, byte, mode and link, and whatever it does succeeds.
//!
//! `WEFT_TREE_SEEDS=100..200` runs other seeds.

use weft_base::{MILLISECOND, SECOND};
use weft_client::XattrFlags;
use weft_posix::CallingThread;
use weft_rt::Runtime;
use weft_sim_tests::audit;
use weft_sim_tests::cluster::Durability;
use weft_sim_tests::mount::{Mount, caller};

use super::{ROOT, World, seeds_of};
use model::Tree;

mod checks;
#[expect(clippy::await_holding_refcell_ref, reason = "one flow at a time has a tree")]
mod deaths;
pub mod disturbed;
mod model;
mod rarer;
mod steps;

/// Turns of one tree.
const TURNS: u32 = 6;
/// The directory at the top of each tree, and how names in it begin: two share one.
const TREES: [(&str, &str); 4] = [("a", "a"), ("b", "b"), ("both", "c"), ("both", "d")];
/// What is done in one turn, at most.
const STEPS_MAX: u64 = 30;

/// One who has his turn.
struct Turn<'a> {
    mount: &'a Mount,
    who: CallingThread,
    tree: &'a mut Tree,
}

impl Turn<'_> {
    fn random(&self, below: u64) -> u64 {
        self.mount.posix.rt().random() % below
    }
}

/// Two mounts work in a tree in turns, as fast as they can.
async fn take_turns(mounts: [Mount; 2], number: u32, mut tree: Tree) -> Tree {
    let who = caller(100 + number, 0);
    for turn in 0..TURNS {
        let mount = &mounts[(turn + number) as usize % 2];
        let mut turn = Turn { mount, who: caller(100 + number, 0), tree: &mut tree };
        if turn.random(3) > 0 {
            turn.check_all().await;
        }
        for _ in 0..turn.random(STEPS_MAX) {
            turn.step().await;
        }
    }
    for mount in &mounts {
        Turn { mount, who: who.clone(), tree: &mut tree }.let_some_go().await;
    }
    tree
}

/// Makes the directories at the tops of all trees.
fn make_tops(world: &World, is_presplit: bool) {
    world.alone(0, move |mount| async move {
        for name in ["a", "b", "both"] {
            let who = caller(1, 0).who;
            let made = mount.posix.mkdir(&who, ROOT, name.as_bytes(), 0o755).await.expect("a new directory");
            if is_presplit {
                let hint = mount.posix.set_xattr(&who, made.node, b"user.weft.presplit", b"all", XattrFlags::default());
                hint.await.expect("it is set");
            }
        }
    });
}

/// One run.
pub fn run(seed: u64) {
    // Some keep no leases and ask each time.
    let ttl_ns = (seed % 7 == 3).then_some(0);
    // What was answered survives power cuts, where that is promised.
    let (contract, power_cuts) = if seed % 8 == 7 { (Durability::Sync, 2) } else { (Durability::Batch, 0) };
    let mut world = World::under(contract, seed, ttl_ns);
    if seed % 4 < 2 {
        world.takes_small_files();
    }
    let is_calm = seed.is_multiple_of(2);
    if !is_calm {
        world.plan_faults_and(power_cuts);
    }
    if seed % 5 == 1 {
        world.cluster.grow(&[300 * MILLISECOND, 600 * MILLISECOND]);
    }
    make_tops(&world, seed % 3 == 2);
    let flows = (0..).zip(TREES).map(|(number, (name, prefix))| {
        let (mounts, tree) = (world.mounts.clone(), Tree { is_calm, does_all: seed % 4 != 1, ..Tree::new(name.to_string(), prefix) });
        world.sim.spawn_on(mounts[number as usize % 2].node, move |_| take_turns(mounts, number, tree))
    });
    let trees = world.run(flows.collect());
    end(world, trees);
}

/// All servers run again: a third mount finds what the others have left.
fn end(world: World, mut trees: Vec<Tree>) {
    world.sim.recover();
    let lines: Vec<String> = world.mounts.iter().flat_map(Mount::lines).collect();
    assert!(lines.iter().all(|line| !line.contains("lost")), "{lines:?}");
    for number in 0..2 {
        world.alone(number, |mount| async move { mount.posix.end(30 * SECOND).await });
    }
    let third = Mount::new(&world.sim, &world.cluster, "three", Some(0));
    world.run(vec![world.sim.spawn_on(third.node, |_| async move {
        for tree in &mut trees {
            Turn { mount: &third, who: caller(9, 0), tree }.check_all().await;
        }
        third.posix.end(30 * SECOND).await;
    })]);
    examine(&world, false);
}

/// Somebody who knows nothing of what was done finds nothing that belongs to nobody. After losses
/// of data and of who made it, what belongs to no file is removed first, if `may_leave_data`.
pub fn examine(world: &World, may_leave_data: bool) {
    // Some faults may have come too late for the programs.
    world.sim.run_for(3 * SECOND);
    world.sim.recover();
    let (node, auditor) = world.cluster.add_client("auditor", 60 * SECOND);
    let examined = world.sim.block_on(node, 3600 * SECOND, |_| async move { audit::examine(&auditor, may_leave_data).await });
    assert_eq!(examined.expect("every wait has an end"), Ok(()));
}

#[test]
fn trees_are_as_the_other_mount_has_left_them() {
    for seed in seeds_of("WEFT_TREE_SEEDS", 0..16) {
        println!("seed {seed}: WEFT_TREE_SEEDS={seed}..{} cargo test -p weft-sim-tests --test posix trees", seed + 1);
        run(seed);
    }
}
