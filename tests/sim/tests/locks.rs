//! Locks of programs on several gateways in virtual time: what they cost, and that no two programs
//! ever hold what excludes each other's, while servers die and messages are lost.
//!
//! `WEFT_LOCK_SEEDS=100..200` runs other seeds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use weft_base::{ClientId, MILLISECOND, ROOT_HANDLE, SECOND};
use weft_locks::Ranges;
use weft_posix::{InodeNumber, Refusal};
use weft_rt::Runtime;
use weft_rt_sim::{FaultPlan, FaultSettings, Joined, MessageFaults, NodeId, Profile, Sim};
use weft_sim_tests::cluster::{Cluster, ClusterConfig};
use weft_sim_tests::mount::{Mount, Open, caller, how};
use weft_wire::Rights;
use weft_wire::ops::{Family, HeldLock, Lock, LockKind, Unlock};

const ROOT: InodeNumber = InodeNumber(ROOT_HANDLE.0);
const UPDATE: Rights = Rights(Rights::READ.0 | Rights::WRITE.0);
const MOUNTS: usize = 3;
/// Programs of each mount.
const PROGRAMS: u64 = 3;
/// How often each program takes locks.
const ROUNDS: u32 = 25;
/// Bytes of a file that are locked.
const BYTES: u64 = 12;

struct World {
    sim: Sim,
    cluster: Cluster,
    mounts: Vec<Mount>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut profile = Profile::ethernet_10g();
        (profile.net.jitter_ns, profile.disk.jitter_ns) = (20_000, 20_000);
        let sim = Sim::new(seed, profile);
        let cluster = Cluster::start(&sim, &ClusterConfig { meta: 2, data: 1, ..ClusterConfig::small() });
        let mounts = (0..MOUNTS)
            .map(|number| Mount::new(&sim, &cluster, ["one", "two", "three"][number], if number == 0 { None } else { Some(SECOND) }))
            .collect();
        let world = World { sim, cluster, mounts };
        world.alone(0, |mount| async move {
            while mount.statfs().await.is_err() {
                mount.posix.rt().sleep_until(mount.posix.rt().now() + MILLISECOND).await;
            }
            for name in ["a", "b"] {
                let file = mount.create(&caller(1, 0), ROOT, name, 0o644).await.expect("a new file");
                mount.release(file.opened.number).await;
            }
        });
        world.sim.run_for(SECOND);
        world
    }

    fn run<T>(&self, flows: Vec<Joined<T>>) -> Vec<T> {
        let over = || flows.iter().all(Joined::is_over);
        self.sim.run_until_true(self.sim.now() + 900 * SECOND, over).expect("every wait has an end");
        flows.iter().map(|flow| flow.take().expect("it ends")).collect()
    }

    fn alone<T: 'static, F: Future<Output = T> + 'static>(&self, number: usize, program: impl FnOnce(Mount) -> F) -> T {
        let mount = self.mounts[number].clone();
        self.run(vec![self.sim.spawn_on(mount.node, |_| program(mount))]).pop().expect("one flow")
    }
}

/// What all programs believe that they hold, by file.
type Believed = Rc<RefCell<BTreeMap<usize, Ranges>>>;

fn whole(owner: u64, file: Open) -> Lock {
    Lock { family: Family::Fcntl, owner, kind: LockKind::Exclusive, start: 0, end: u64::MAX, process: 7, file: file.opened.number }
}

/// Takes and gives back locks on parts of two files, in all ways: waiting, not waiting, giving up,
/// more and less than before, by the end of an open file.
async fn program(mount: Mount, number: usize, owner: u64, believed: Believed) {
    let (rt, who) = (mount.posix.rt().clone(), caller(owner as u32, 0));
    let client = ClientId(number as u64);
    let mut files = Vec::new();
    for name in ["a", "b"] {
        files.push(mount.open(&who, ROOT, name, how(UPDATE)).await.expect("it is there"));
    }
    let believes = |at: usize, range: &Unlock| believed.borrow_mut().entry(at).or_default().unlock(client, range);
    for _ in 0..ROUNDS {
        let at = (rt.random() % 2) as usize;
        let start = rt.random() % BYTES;
        let end = start + rt.random() % (BYTES - start);
        let kind = if rt.random().is_multiple_of(2) { LockKind::Shared } else { LockKind::Exclusive };
        let lock = Lock { kind, start, end, ..whole(owner, files[at]) };
        match rt.random() % 8 {
            0..=4 => {
                let until = rt.now() + rt.random() % (3 * SECOND);
                let waits = !rt.random().is_multiple_of(3);
                let is_awaited = || rt.now() < until;
                // What is replaced may go at any moment from now on.
                believes(at, &lock.whole());
                match mount.posix.lock(files[at].node, lock, if waits { Some(&is_awaited) } else { None }).await {
                    Ok(()) => {
                        let held = HeldLock { client, lock };
                        let taken = believed.borrow_mut().entry(at).or_default().lock(held);
                        assert!(taken, "{number} {lock:?} at {:?}: others hold {:?}", rt.now(), believed.borrow()[&at].conflict(&held));
                    }
                    // What it had there it has still, as far as it knows; here it does without.
                    Err(Refusal::Taken | Refusal::Interrupted | Refusal::Deadlock) => {
                        let _ = mount.posix.unlock(files[at].node, Family::Fcntl, owner, start, end).await;
                    }
                    Err(Refusal::Failed(error)) => panic!("{error}"),
                }
            }
            5 => {
                believes(at, &whole(owner, files[at]).whole());
                mount.posix.release(files[at].opened.number).await;
                files[at] = mount.open(&who, ROOT, ["a", "b"][at], how(UPDATE)).await.expect("it is there");
            }
            _ => {
                believes(at, &lock.whole());
                mount.posix.unlock(files[at].node, Family::Fcntl, owner, start, end).await.expect("it is given back");
            }
        }
        rt.sleep_until(rt.now() + rt.random() % (60 * MILLISECOND)).await;
    }
    for (at, file) in files.into_iter().enumerate() {
        believes(at, &whole(owner, file).whole());
        mount.posix.release(file.opened.number).await;
    }
}

fn run(seed: u64) -> u64 {
    let world = World::new(seed);
    if !seed.is_multiple_of(4) {
        let settings = FaultSettings {
            crashes: 4,
            breaks: 4,
            partitions: 2,
            messages: MessageFaults::BAD,
            down_max_ns: 300 * MILLISECOND,
            ..FaultSettings::none(4 * SECOND)
        };
        let clients: Vec<NodeId> = world.mounts.iter().map(|mount| mount.node).collect();
        let faults = FaultPlan::draw(&settings, world.cluster.servers(), &clients, &mut world.sim.random());
        world.sim.schedule(&faults);
    }
    let believed = Believed::default();
    let mut flows = Vec::new();
    for (number, mount) in world.mounts.iter().enumerate() {
        for owner in 1..=PROGRAMS {
            let (mount, believed) = (mount.clone(), believed.clone());
            flows.push(world.sim.spawn_on(mount.node, move |_| program(mount, number, owner, believed)));
        }
    }
    world.run(flows);
    assert!(believed.borrow().values().all(Ranges::is_empty));
    world.sim.recover();
    // Nothing is left behind: what could not be told is told a few seconds later.
    world.sim.run_for(40 * SECOND);
    for name in ["a", "b"] {
        world.alone(0, move |mount| async move {
            let file = mount.open(&caller(1, 0), ROOT, name, how(UPDATE)).await.expect("it is there");
            let found = mount.posix.lock_in_the_way(file.node, &whole(99, file)).await.expect("the server answers");
            assert_eq!(found, None, "nobody has it open");
            mount.release(file.opened.number).await;
        });
    }
    world.sim.trace_hash()
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("WEFT_LOCK_SEEDS") else { return 0..160 };
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn nobody_holds_what_excludes_anothers_in_any_fault_profile() {
    for seed in seeds() {
        println!("seed {seed}: WEFT_LOCK_SEEDS={seed}..{} cargo test -p weft-sim-tests --test locks", seed + 1);
        run(seed);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(5), run(5));
}

/// One message takes a lock and one gives it back; what has no locks costs none; who waits asks
/// again now and then, and is answered when its turn comes.
#[test]
fn what_locks_cost_in_messages() {
    let world = World::new(1);
    let asked = |mount: &Mount| mount.posix.stats().requests;
    let [one, two] = [0, 1].map(|number| {
        world.alone(number, |mount| async move { mount.open(&caller(1, 0), ROOT, "a", how(UPDATE)).await.expect("it is there") })
    });
    world.alone(0, move |mount| async move {
        let before = asked(&mount);
        mount.posix.lock(one.node, whole(1, one), None).await.expect("it is free");
        assert_eq!(asked(&mount), before + 1);
        mount.posix.unlock(one.node, Family::Fcntl, 1, 0, u64::MAX).await.expect("it is given back");
        assert_eq!(asked(&mount), before + 2);
        mount.posix.descriptor_closed(one.node, 1).await;
        assert_eq!(asked(&mount), before + 2, "no locks, no message");
        mount.posix.lock(one.node, whole(1, one), None).await.expect("it is free");
    });
    let waits = world.mounts[1].clone();
    let before = asked(&waits);
    let flow = world.sim.spawn_on(waits.node, {
        let waits = waits.clone();
        move |rt| async move {
            let outcome = waits.posix.lock(two.node, whole(1, two), Some(&|| true)).await;
            outcome.map(|()| rt.now()).expect("its turn comes")
        }
    });
    world.sim.run_for(10 * SECOND);
    assert!(!flow.is_over());
    let freed = world.alone(0, move |mount| async move {
        mount.posix.unlock(one.node, Family::Fcntl, 1, 0, u64::MAX).await.expect("it is given back");
        mount.posix.rt().now()
    });
    let got = world.run(vec![flow]).pop().expect("one flow");
    assert!(got.since(freed) < MILLISECOND, "it is told at once");
    assert!((5..=9).contains(&(asked(&waits) - before)), "{} messages in 10 s", asked(&waits) - before);
}

/// Who is gone without a word holds nothing when its session has ended, and gets nothing meanwhile.
#[test]
fn locks_of_a_lost_client_end_with_its_session() {
    let world = World::new(2);
    let open = |number: usize| {
        world.alone(number, |mount| async move { mount.open(&caller(1, 0), ROOT, "a", how(UPDATE)).await.expect("it is there") })
    };
    let files = [open(0), open(1), open(2)];
    world.alone(0, move |mount| async move { mount.posix.lock(files[0].node, whole(1, files[0]), None).await.expect("it is free") });
    // The second one waits, the third behind it; then the first two are gone.
    for number in [1, 2] {
        let (mount, file) = (world.mounts[number].clone(), files[number]);
        let flow = world
            .sim
            .spawn_on(mount.node, move |_| async move { mount.posix.lock(file.node, whole(1, file), Some(&|| true)).await.is_ok() });
        world.sim.run_for(100 * MILLISECOND);
        if number == 2 {
            world.sim.crash(world.mounts[0].node);
            world.sim.crash(world.mounts[1].node);
            world.sim.run_for(5 * SECOND);
            assert!(!flow.is_over(), "it may come back");
            assert_eq!(world.run(vec![flow]), [true]);
        }
    }
}

/// Who has ended in order had given back what it had: nobody waits for it, though servers die right
/// after that and it never comes again.
#[test]
fn a_restart_waits_for_nobody_who_has_ended_in_order() {
    let world = World::new(3);
    let takes = |number: usize| {
        world.alone(number, |mount| async move {
            let file = mount.open(&caller(1, 0), ROOT, "a", how(UPDATE)).await.expect("it is there");
            let began = mount.posix.rt().now();
            mount.posix.lock(file.node, whole(1, file), Some(&|| true)).await.expect("its turn comes");
            let waited = mount.posix.rt().now().since(began);
            mount.posix.unlock(file.node, Family::Fcntl, 1, 0, u64::MAX).await.expect("it is given back");
            mount.release(file.opened.number).await;
            waited
        })
    };
    takes(1);
    world.sim.run_for(10 * MILLISECOND);
    world.sim.crash(world.mounts[1].node);
    world.sim.run_for(20 * MILLISECOND);
    for server in &world.cluster.servers()[..2] {
        world.sim.crash(*server);
        world.sim.restart(*server);
    }
    let waited = takes(2);
    assert!(waited < SECOND, "{waited} ns");
}
