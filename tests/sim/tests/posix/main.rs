//! Two gateways in virtual time: what programs see through the caches of both, with servers that
//! die and messages that are lost.
//!
//! `WEFT_POSIX_SEEDS=100..200` runs other seeds.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use weft_base::{MILLISECOND, ROOT_HANDLE, SECOND, ServerId, Status, WallTime};
use weft_client::{SetAttr, XattrFlags};
use weft_posix::{Caching, InodeNumber, Refusal};
use weft_rt::Runtime;
use weft_rt_sim::{FaultPlan, FaultSettings, Joined, MessageFaults, Profile, Random, Sim};
use weft_sim_tests::cluster::{Cluster, ClusterConfig, Durability};
use weft_sim_tests::mount::{Mount, caller, how};
use weft_wire::Rights;

mod ahead;
mod appending;
mod at_once;
mod attributes;
mod behind;
mod beside;
mod crowd;
mod dataset;
mod delayed;
mod delegated;
mod gathered;
mod hasty;
mod holes;
mod known;
mod later;
mod limited;
mod listed;
mod moving;
mod overtaken;
mod removed;
mod rewritten;
mod scattered;
mod seeds;
mod space;
mod spread;
mod synchronised;
mod trees;
mod unpacked;
mod walking;
use appending::{append, check_log};
use moving::{follow, move_on};
use weft_wire::ops::{Family, Lock, LockKind, SetTime};

const ROOT: InodeNumber = InodeNumber(ROOT_HANDLE.0);
const UPDATE: Rights = Rights(Rights::READ.0 | Rights::WRITE.0);
const APPEND: Rights = Rights(Rights::WRITE.0 | Rights::APPEND.0);
/// How often each program does its work.
const ROUNDS: u32 = 12;
/// Bytes of a record in the file that all append to.
const RECORD: usize = 16;

/// A cluster with two mounts.
struct World {
    sim: Sim,
    cluster: Cluster,
    mounts: [Mount; 2],
    random: Random,
}

impl World {
    fn new(seed: u64, ttl_ns: Option<u64>) -> World {
        World::under(Durability::Batch, seed, ttl_ns)
    }

    /// Mounts that make no file without asking.
    fn asking() -> World {
        let world = World::with(Durability::Batch, 1, |sim, cluster, name| Mount::that_absorbs(false, sim, cluster, name, None));
        world.takes_small_files();
        world
    }

    fn under(contract: Durability, seed: u64, ttl_ns: Option<u64>) -> World {
        World::with(contract, seed, |sim, cluster, name| Mount::new(sim, cluster, name, ttl_ns))
    }

    fn with(contract: Durability, seed: u64, mount: impl Fn(&Sim, &Cluster, &str) -> Mount) -> World {
        World::of(2, contract, seed, mount)
    }

    /// With so many metadata servers.
    fn of(meta: usize, contract: Durability, seed: u64, mount: impl Fn(&Sim, &Cluster, &str) -> Mount) -> World {
        let mut profile = Profile::ethernet_10g();
        (profile.net.jitter_ns, profile.disk.jitter_ns) = (20_000, 20_000);
        let sim = Sim::new(seed, profile);
        let cluster = Cluster::start(&sim, &ClusterConfig { meta, data: 3, contract, ..ClusterConfig::small() });
        let mounts = ["one", "two"].map(|name| mount(&sim, &cluster, name));
        let world = World { random: sim.random(), sim, cluster, mounts };
        let mount = world.mounts[0].clone();
        world.run(vec![world.sim.spawn_on(mount.node, |rt| async move {
            while mount.statfs().await.is_err() {
                rt.sleep_until(rt.now() + MILLISECOND).await;
            }
        })]);
        world.sim.run_for(SECOND);
        world
    }

    fn run<T>(&self, flows: Vec<Joined<T>>) -> Vec<T> {
        let over = || flows.iter().all(Joined::is_over);
        self.sim.run_until_true(self.sim.now() + 600 * SECOND, over).expect("every wait has an end");
        flows.iter().map(|flow| flow.take().expect("no client dies")).collect()
    }

    /// Runs a program on a mount, alone.
    fn alone<T: 'static, F: Future<Output = T> + 'static>(&self, number: usize, program: impl FnOnce(Mount) -> F) -> T {
        let mount = self.mounts[number].clone();
        self.run(vec![self.sim.spawn_on(mount.node, |_| program(mount))]).pop().expect("one flow")
    }

    /// Small files that are made from now on may lie on the servers of their inodes.
    fn takes_small_files(&self) {
        self.alone(0, |mount| async move {
            let (name, value) = (b"user.weft.inline_limit", b"8192");
            mount.posix.set_xattr(&caller(1, 0).who, ROOT, name, value, XattrFlags::default()).await.expect("the hint is set");
            // The container of contents is made when the first file asks for it.
            let file = mount.create(&caller(1, 0), ROOT, "first", 0o644).await.expect("a new file");
            mount.release(file.opened.number).await;
        });
        self.sim.run_for(SECOND);
    }

    fn plan_faults(&mut self) {
        self.plan_faults_and(0);
    }

    /// The same with so many power cuts.
    fn plan_faults_and(&mut self, power_cuts: u64) {
        let settings = FaultSettings {
            crashes: 3,
            power_cuts,
            breaks: 3,
            partitions: 2,
            messages: MessageFaults::BAD,
            down_max_ns: 200 * MILLISECOND,
            ..FaultSettings::none(2 * SECOND)
        };
        let clients = self.mounts.each_ref().map(|mount| mount.node);
        let faults = FaultPlan::draw(&settings, self.cluster.servers(), &clients, &mut self.random);
        self.sim.schedule(&faults);
    }
}

/// Waits a random time of some milliseconds.
async fn pause(mount: &Mount) {
    let rt = mount.posix.rt();
    rt.sleep_until(rt.now() + rt.random() % (20 * MILLISECOND)).await;
}

/// What version `number` of a file holds.
fn content(number: u32) -> Vec<u8> {
    vec![number as u8; 50 + number as usize * 977 % 9000]
}

fn number_of(content: &[u8]) -> u32 {
    u32::from(*content.first().expect("no version is empty"))
}

/// The time of version `number` of the file that is replaced.
fn time(number: u32) -> WallTime {
    WallTime(1_000_000_000_000_000_000 + i64::from(number))
}

/// What the programs of all mounts know of each other.
#[derive(Default)]
struct Shared {
    /// The last version of `current` that has its name for certain.
    current: Cell<u32>,
    /// The last version of `locked`.
    locked: Cell<u32>,
    /// The last name that `move_on` has given its file, and the last mode.
    moved: Cell<u32>,
    mode: Cell<u32>,
    readers: Cell<u32>,
    writers: Cell<u32>,
    /// Records whose append has returned, and those of which it is not known.
    appended: RefCell<Vec<[u8; RECORD]>>,
    unknown: RefCell<Vec<[u8; RECORD]>>,
}

/// Replaces a file by renames: it always has its name.
async fn replace(mount: Mount, shared: Rc<Shared>) {
    let who = caller(1, 0);
    for number in 1..=ROUNDS {
        let file = mount.create(&who, ROOT, "tmp", 0o644).await.expect("a new file");
        mount.write(&who, file, 0, &content(number), false).await.expect("it is written");
        // As programs do that copy: through the descriptor or by the name.
        if number % 2 == 0 {
            mount.close(file).await.expect("it is closed");
        }
        let mtime = Some(SetTime { at: Some(time(number)) });
        let set = SetAttr { mtime, mode: Some(0o600 + number % 0o100), ..SetAttr::default() };
        mount.posix.setattr(&who.who, file.node, &set).await.expect("it is set");
        if number % 2 == 1 {
            mount.close(file).await.expect("it is closed");
        }
        mount.rename(&who, ROOT, "tmp", "current").await.expect("it gets its name");
        shared.current.set(number);
        pause(&mount).await;
    }
}

/// Opens see at least what had its name before them, whole.
async fn read_current(mount: Mount, thread: u32, shared: Rc<Shared>) {
    let who = caller(thread, 0);
    for _ in 0..2 * ROUNDS {
        let least = shared.current.get();
        match mount.open(&who, ROOT, "current", how(Rights::READ)).await {
            Ok(file) => {
                let bytes = mount.read(file).await.expect("it is read");
                assert_eq!(bytes, content(number_of(&bytes)), "one version, whole");
                let number = number_of(&bytes);
                assert!(number >= least, "version {number} after {least}");
                let attr = mount.stat(file.node).await.expect("it is open");
                assert_eq!((attr.mtime, attr.permissions()), (time(number), 0o600 + number % 0o100), "of version {number}");
                mount.release(file.opened.number).await;
            }
            Err(error) => assert!(error.status == Status::NotFound && least == 0, "{error} although version {least} is there"),
        }
        pause(&mount).await;
    }
}

fn lock(kind: LockKind, owner: u64, file: u64) -> Lock {
    Lock { family: Family::Fcntl, owner, kind, start: 0, end: u64::MAX, process: owner as u32, file }
}

/// Reads and rewrites a file in place, under locks that hold over all mounts. Whoever opens it
/// under a lock sees the last version.
async fn update(mount: Mount, thread: u32, shared: Rc<Shared>) {
    let who = caller(thread, 0);
    for round in 0..ROUNDS {
        let writes = (round + thread).is_multiple_of(2);
        let held = mount.open(&who, ROOT, "locked", how(UPDATE)).await.expect("it is there");
        let wanted = lock(if writes { LockKind::Exclusive } else { LockKind::Shared }, u64::from(thread), held.opened.number);
        mount.posix.lock(held.node, wanted, Some(&|| true)).await.expect("it gets its turn");
        let count = if writes { &shared.writers } else { &shared.readers };
        count.set(count.get() + 1);
        let (readers, writers) = (shared.readers.get(), shared.writers.get());
        assert!(writers == 0 || (writers, readers) == (1, 0), "{writers} writers and {readers} readers have locks");
        let file = mount.open(&who, ROOT, "locked", how(Rights::READ)).await.expect("it opens");
        let bytes = mount.read(file).await.expect("it is read");
        assert_eq!(bytes, content(shared.locked.get()), "the last version, whole");
        mount.release(file.opened.number).await;
        if writes {
            let number = shared.locked.get() + 1;
            let mut truncate = how(Rights::WRITE);
            truncate.truncate = true;
            let file = mount.open(&who, ROOT, "locked", truncate).await.expect("it opens");
            mount.write(&who, file, 0, &content(number), false).await.expect("it is written");
            mount.release(file.opened.number).await;
            shared.locked.set(number);
        }
        count.set(count.get() - 1);
        mount.posix.unlock(held.node, Family::Fcntl, u64::from(thread), 0, u64::MAX).await.expect("it is given back");
        mount.release(held.opened.number).await;
        pause(&mount).await;
    }
}

/// One run; gives the hash of its trace.
fn run(seed: u64) -> u64 {
    // Every third seed keeps leases.
    let ttl_ns = [None, Some([0, 5 * MILLISECOND, SECOND][(seed / 3 % 3) as usize]), Some(SECOND)][(seed % 3) as usize];
    let mut world = World::new(seed, ttl_ns);
    if seed % 6 < 3 {
        world.takes_small_files();
    }
    let shared = Rc::new(Shared::default());
    world.alone(0, |mount| async move {
        for name in ["locked", "log"] {
            let who = caller(1, 0);
            let file = mount.create(&who, ROOT, name, 0o644).await.expect("a new file");
            let bytes = if name == "locked" { content(0) } else { Vec::new() };
            mount.write(&who, file, 0, &bytes, false).await.expect("it is written");
            mount.release(file.opened.number).await;
        }
    });
    // Closes go out in the background; from then on mounts may have rights that exclude each other.
    world.sim.run_for(SECOND);
    if seed % 2 == 1 {
        world.plan_faults();
    }
    let mut flows = Vec::new();
    for (number, mount) in world.mounts.iter().enumerate() {
        let first = 10 * (number as u32 + 1);
        let spawn = |thread: u32, kind: u32| {
            let (mount, shared) = (mount.clone(), shared.clone());
            world.sim.spawn_on(mount.node, move |_| async move {
                match kind {
                    0 => read_current(mount, thread, shared).await,
                    1 => update(mount, thread, shared).await,
                    _ => append(mount, thread, shared).await,
                }
            })
        };
        flows.extend([spawn(first, 0), spawn(first + 1, 1), spawn(first + 2, 1), spawn(first + 3, 2)]);
    }
    if ttl_ns.is_none() {
        let [one, two] = world.mounts.clone();
        let (mover, follower, second) = (shared.clone(), shared.clone(), shared.clone());
        flows.push(world.sim.spawn_on(one.node, |_| move_on(one, mover)));
        let again = two.clone();
        flows.push(world.sim.spawn_on(again.node, |_| follow(again, 50, follower)));
        flows.push(world.sim.spawn_on(two.node, |_| follow(two, 51, second)));
    }
    let (mount, writer) = (world.mounts[0].clone(), shared.clone());
    flows.push(world.sim.spawn_on(mount.node, |_| replace(mount, writer)));
    world.run(flows);
    world.sim.recover();
    let log = world.alone(1, |mount| async move {
        let file = mount.open(&caller(1, 0), ROOT, "log", how(Rights::READ)).await.expect("it opens");
        let bytes = mount.read(file).await.expect("it is read");
        mount.release(file.opened.number).await;
        bytes
    });
    check_log(&log, &shared);
    // At the end nothing is open any more: a third mount has every right at once.
    for number in 0..2 {
        world.alone(number, |mount| async move { mount.posix.end(30 * SECOND).await });
    }
    let third = Mount::new(&world.sim, &world.cluster, "three", Some(0));
    world.run(vec![world.sim.spawn_on(third.node, |_| async move {
        let who = caller(1, 0);
        let file = third.open(&who, ROOT, "log", how(APPEND)).await.expect("nobody appends");
        third.release(file.opened.number).await;
        let file = third.open(&who, ROOT, "locked", how(UPDATE)).await.expect("it opens");
        third.posix.lock(file.node, lock(LockKind::Exclusive, 1, file.opened.number), None).await.expect("nobody has locks");
        third.posix.end(30 * SECOND).await;
    })]);
    trees::examine(&world, false);
    world.sim.trace_hash()
}

/// What was read is what there is.
#[track_caller]
fn assert_bytes(seen: &[u8], is: &[u8], what: &str) {
    let differs = || seen.iter().zip(is).position(|(seen, is)| seen != is);
    assert!(seen == is, "{what}: {} bytes of {}, another one at {:?}", seen.len(), is.len(), differs());
}

/// The range that this variable of the environment names.
fn seeds_of(variable: &str, otherwise: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var(variable) else { return otherwise };
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn two_gateways_agree_in_any_fault_profile() {
    for seed in seeds_of("WEFT_POSIX_SEEDS", 0..24) {
        println!("seed {seed}: WEFT_POSIX_SEEDS={seed}..{} cargo test -p weft-sim-tests --test posix", seed + 1);
        run(seed);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(3), run(3));
}

#[test]
fn who_waits_for_a_lock_gets_it_or_hears_why_not() {
    let world = World::new(8, Some(SECOND));
    let files = world.alone(0, |mount| async move {
        let who = caller(1, 0);
        let a = mount.create(&who, ROOT, "a", 0o644).await.expect("a new file");
        (a, mount.create(&who, ROOT, "b", 0o644).await.expect("a new file"))
    });
    let (a, b) = files;
    let exclusive = |owner: u64, file: u64| lock(LockKind::Exclusive, owner, file);
    let awaited: &'static dyn Fn() -> bool = &|| true;
    // Each has one and wants the other: the second one who asks closes the circle.
    let takes = |mount: usize, owner: u64, first: weft_sim_tests::mount::Open, second: weft_sim_tests::mount::Open| {
        let mount = world.mounts[mount].clone();
        world.sim.spawn_on(mount.node, move |rt| async move {
            mount.posix.lock(first.node, exclusive(owner, first.opened.number), Some(awaited)).await.expect("it is free");
            rt.sleep_until(rt.now() + SECOND).await;
            let outcome = mount.posix.lock(second.node, exclusive(owner, second.opened.number), Some(awaited)).await;
            mount.posix.unlock(first.node, Family::Fcntl, owner, 0, u64::MAX).await.expect("it is given back");
            matches!(outcome, Err(Refusal::Deadlock))
        })
    };
    // Through one mount, and through two: the circle is over both.
    for other in [0, 1] {
        let refused = world.run(vec![takes(0, 1, a, b), takes(other, 2, b, a)]);
        assert_eq!(refused.iter().filter(|refused| **refused).count(), 1, "one gets both");
        let winner = 1 + u64::from(refused[0]);
        let (holder, taken) = if winner == 1 { (0, b) } else { (other, a) };
        world.alone(0, move |mount| async move {
            let rt = mount.posix.rt().clone();
            let wanted = exclusive(3, taken.opened.number);
            assert!(matches!(mount.posix.lock(taken.node, wanted, None).await, Err(Refusal::Taken)));
            let in_the_way = mount.posix.lock_in_the_way(taken.node, &wanted).await.expect("the server answers");
            let process = if holder == 0 { winner as u32 } else { 0 };
            assert_eq!(in_the_way.map(|held| held.process), Some(process), "processes of another mount have no number here");
            let until = rt.now() + 4 * SECOND;
            let outcome = mount.posix.lock(taken.node, wanted, Some(&|| rt.now() < until)).await;
            assert!(matches!(outcome, Err(Refusal::Interrupted)) && rt.now() < until + SECOND, "{outcome:?}");
        });
        world.alone(holder, move |mount| async move { mount.posix.descriptor_closed(taken.node, winner).await });
        world.alone(0, move |mount| async move {
            let wanted = exclusive(3, taken.opened.number);
            mount.posix.lock(taken.node, wanted, None).await.expect("its holder has closed a descriptor");
            mount.posix.descriptor_closed(taken.node, 3).await;
            assert!(mount.posix.lock_in_the_way(taken.node, &exclusive(4, 0)).await.expect("the server answers").is_none());
        });
    }
}

/// Closes go to the servers many at a time, and while they wait nothing is stale.
#[test]
fn closes_go_out_together() {
    let world = World::new(9, Some(SECOND));
    world.alone(0, |mount| async move {
        let who = caller(1, 0);
        let mut files = Vec::new();
        for number in 0..40 {
            let file = mount.create(&who, ROOT, &format!("f{number}"), 0o644).await.expect("a new file");
            mount.write(&who, file, 0, b"words", false).await.expect("it is written");
            files.push(file);
        }
        let before = mount.posix.stats().requests;
        for file in &files {
            mount.release(file.opened.number).await;
        }
        assert_eq!(mount.posix.stats().requests, before, "nobody has waited for a server");
        let rt = mount.posix.rt();
        rt.sleep_until(rt.now() + 100 * MILLISECOND).await;
        assert_eq!(mount.posix.stats().requests, before + 1, "one for all files of one server");
    });
    let size = world.alone(1, |mount| async move {
        let node = mount.walk(&caller(1, 0), ROOT, "f7", true).await.expect("it is there");
        mount.stat(node).await.expect("it is there").size
    });
    assert_eq!(size, 5);
    assert!(world.mounts[0].lines().is_empty());
}

/// Pages and times from before a write through another mount are not for those who open the file
/// after it.
#[test]
fn pages_are_of_the_version_that_is_opened() {
    let world = World::new(10, Some(SECOND));
    let write = |byte: u8| {
        let mtime = world.alone(1, move |mount| async move {
            let file = mount.open(&caller(1, 0), ROOT, "file", how(Rights::WRITE)).await.expect("it is there");
            mount.write(&caller(1, 0), file, 0, &[byte; 5000], false).await.expect("it is written");
            mount.release(file.opened.number).await;
            mount.stat(file.node).await.expect("it is there").mtime
        });
        // Closes go out in the background; what was told of the file is believed much longer.
        world.sim.run_for(100 * MILLISECOND);
        mtime
    };
    let read = || {
        world.alone(0, |mount| async move {
            let file = mount.open(&caller(1, 0), ROOT, "file", how(Rights::READ)).await.expect("it opens");
            let bytes = mount.read(file).await.expect("it is read");
            let mtime = mount.stat(file.node).await.expect("it is there").mtime;
            mount.release(file.opened.number).await;
            (file.opened.caching, bytes, mtime)
        })
    };
    world.alone(0, |mount| async move {
        let file = mount.create(&caller(1, 0), ROOT, "file", 0o644).await.expect("a new file");
        mount.release(file.opened.number).await;
    });
    world.sim.run_for(100 * MILLISECOND);
    for byte in 1..5 {
        let mtime = write(byte);
        assert_eq!(read(), (Caching::Anew, vec![byte; 5000], mtime));
        assert_eq!(read(), (Caching::Keep, vec![byte; 5000], mtime), "what is there need not be read again");
    }
}

/// Also if it joined after the mount began.
#[test]
fn a_server_that_does_not_answer_is_named_with_its_address() {
    let world = World::new(12, Some(0));
    world.cluster.grow(&[0]);
    world.sim.run_for(5 * SECOND);
    let new = ServerId::data(10);
    let mount = world.mounts[0].clone();
    let file = world.alone(0, |mount| async move {
        mount.statfs().await.expect("all servers answer");
        mount.create(&caller(1, 0), ROOT, "file", 0o644).await.expect("a new file")
    });
    world.sim.crash(world.sim.node_of(new).expect("it has joined"));
    let written = world.alone(0, move |mount| async move { mount.write(&caller(1, 0), file, 0, &[7; 64 << 10], false).await });
    assert_eq!(written.map_err(|error| error.server), Err(Some(new)));
    assert!(mount.lines().iter().any(|line| line.contains("(sim:data10)")), "{:?}", mount.lines());
}
