//! A mount whose calls are given up after some milliseconds, so that nobody knows what became of
//! many of them. What was acknowledged is there, others are never held up by what was given up, and
//! nothing of it stays behind, though the mount goes on, or dies when it has rested and gone on. A
//! user with limits can use all of them.
//!
//! `WEFT_HASTY_SEEDS=100..200` runs other seeds.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weft_base::{BLOCK_BYTES, MILLISECOND, SECOND, Status};
use weft_client::{Fallocate, Result, SetAttr};
use weft_posix::{CallingThread, InodeNumber, Options, Refusal};
use weft_rt::Runtime;
use weft_rt_sim::{Fault, Joined};
use weft_sim_tests::cluster::Durability;
use weft_sim_tests::mount::{Mount, Open, caller, how};
use weft_wire::Rights;
use weft_wire::ops::{Family, LockKind, QuotaId};

use crate::limited::{Auditor, Limits, USER, use_up};
use crate::trees::examine;
use crate::{APPEND, ROOT, UPDATE, World, assert_bytes, lock, pause, seeds_of};

const PROGRAMS: u32 = 3;
const STEPS: u64 = 60;
/// Longer than the mount looks after what it has left open, and servers after what clients lost.
const REST_NS: u64 = 40 * SECOND;
/// Longest look at everything when all faults are over, in nanoseconds.
const LOOK_NS_MAX: u64 = 10 * SECOND;

struct Program {
    mount: Mount,
    who: CallingThread,
    dir: InodeNumber,
    number: u32,
    names: u32,
    /// Files of which all is known.
    sure: BTreeMap<String, Vec<u8>>,
    /// What was changed, whether that has failed or not.
    taken: Rc<RefCell<BTreeSet<String>>>,
    /// The mount will die: what was made without a name and given up stays open until then.
    dies: bool,
    given_up: u32,
}

impl Program {
    fn random(&self, below: u64) -> u64 {
        self.mount.posix.rt().random() % below
    }

    fn bytes(&self) -> Vec<u8> {
        let most = [300, 5000, 20_000, 200_000][self.random(4) as usize];
        vec![self.random(255) as u8 + 1; 1 + self.random(most) as usize]
    }

    fn new_name(&mut self) -> String {
        self.names += 1;
        format!("p{}.{}", self.number, self.names)
    }

    /// Takes one of the sure files out: what fails with it makes it unsure for ever.
    fn take_any(&mut self) -> Option<(String, Vec<u8>)> {
        let count = self.sure.len() as u64;
        let name = (count > 0).then(|| self.sure.keys().nth(self.random(count) as usize).expect("so many").clone())?;
        self.taken.borrow_mut().insert(name.clone());
        self.sure.remove_entry(&name)
    }

    async fn write_and_close(&self, file: Open, offset: usize, bytes: &[u8]) -> Result<()> {
        let written = self.mount.write(&self.who, file, offset as u64, bytes, false).await;
        if self.random(3) == 0 {
            pause(&self.mount).await;
        }
        let closed = self.mount.close(file).await;
        written.and(closed)
    }

    async fn make(&mut self) -> Result<()> {
        let (name, bytes) = (self.new_name(), self.bytes());
        let file = self.mount.create(&self.who, self.dir, &name, 0o644).await?;
        self.write_and_close(file, 0, &bytes).await?;
        self.sure.insert(name, bytes);
        Ok(())
    }

    async fn write_again(&mut self) -> Result<()> {
        let Some((name, mut is)) = self.take_any() else { return Ok(()) };
        let (bytes, offset) = (self.bytes(), self.random(is.len() as u64 + 1) as usize);
        let mut rights = how(UPDATE);
        rights.truncate = self.random(4) == 0;
        let file = self.mount.open(&self.who, self.dir, &name, rights).await?;
        let offset = if rights.truncate { 0 } else { offset };
        is.truncate(if rights.truncate { 0 } else { usize::MAX });
        self.write_and_close(file, offset, &bytes).await?;
        is.resize(is.len().max(offset + bytes.len()), 0);
        is[offset..offset + bytes.len()].copy_from_slice(&bytes);
        self.sure.insert(name, is);
        Ok(())
    }

    async fn cut(&mut self) -> Result<()> {
        let Some((name, mut is)) = self.take_any() else { return Ok(()) };
        let size = self.random(is.len() as u64 + 1);
        let node = self.mount.walk(&self.who, self.dir, &name, true).await?;
        self.mount.setattr(&self.who, node, &SetAttr { size: Some(size), ..SetAttr::default() }).await?;
        is.truncate(size as usize);
        self.sure.insert(name, is);
        Ok(())
    }

    /// Zeros for a part, which takes its space or gives it back.
    async fn clear(&mut self) -> Result<()> {
        let Some((name, mut is)) = self.take_any() else { return Ok(()) };
        let (start, bytes) = (self.random(is.len() as u64 + 1) as usize, 1 + self.random(50_000) as usize);
        let how_to = if self.random(2) == 0 { Fallocate::Punch } else { Fallocate::Zero { keep_size: false } };
        let file = self.mount.open(&self.who, self.dir, &name, how(UPDATE)).await?;
        let cleared = self.mount.allocate(&self.who, file, (start, bytes), how_to).await;
        let closed = self.mount.close(file).await;
        cleared.and(closed)?;
        if how_to != Fallocate::Punch {
            is.resize(is.len().max(start + bytes), 0);
        }
        let end = is.len().min(start + bytes);
        is[start..end].fill(0);
        self.sure.insert(name, is);
        Ok(())
    }

    /// A file that gets its name when it is written, or a moment later.
    async fn make_unnamed(&mut self) -> Result<()> {
        let (name, bytes) = (self.new_name(), self.bytes());
        let file = self.mount.create_unnamed(&self.who, self.dir, 0o644).await?;
        let written = self.mount.write(&self.who, file, 0, &bytes, false).await;
        if self.random(2) == 0 {
            pause(&self.mount).await;
        }
        let linked = self.mount.make(self.dir, &name, self.mount.posix.link(&self.who.who, file.node, self.dir, name.as_bytes())).await;
        let closed = self.mount.close(file).await;
        written.and(linked.map(drop)).and(closed)?;
        self.sure.insert(name, bytes);
        Ok(())
    }

    async fn rename(&mut self) -> Result<()> {
        let Some((name, is)) = self.take_any() else { return Ok(()) };
        let to = self.new_name();
        self.mount.rename(&self.who, self.dir, &name, &to).await?;
        self.sure.insert(to, is);
        Ok(())
    }

    async fn remove(&mut self) -> Result<()> {
        let Some((name, _)) = self.take_any() else { return Ok(()) };
        self.mount.remove(&self.who, self.dir, &name, false).await
    }

    async fn append(&mut self) -> Result<()> {
        let Some((name, mut is)) = self.take_any() else { return Ok(()) };
        let bytes = self.bytes();
        let file = self.mount.open(&self.who, self.dir, &name, how(APPEND)).await?;
        let written = self.mount.write(&self.who, file, 0, &bytes, true).await;
        let closed = self.mount.close(file).await;
        written.and(closed)?;
        is.extend(bytes);
        self.sure.insert(name, is);
        Ok(())
    }

    /// Another name, and the first one goes.
    async fn link(&mut self) -> Result<()> {
        let Some((name, is)) = self.take_any() else { return Ok(()) };
        let to = self.new_name();
        let node = self.mount.walk(&self.who, self.dir, &name, true).await?;
        self.mount.make(self.dir, &to, self.mount.posix.link(&self.who.who, node, self.dir, to.as_bytes())).await?;
        self.mount.remove(&self.who, self.dir, &name, false).await?;
        self.sure.insert(to, is);
        Ok(())
    }

    /// What fails leaves what is sure as it was.
    async fn lock(&self) -> Result<()> {
        let Some(name) = self.sure.keys().next() else { return Ok(()) };
        let file = self.mount.open(&self.who, self.dir, name, how(UPDATE)).await?;
        let wanted = lock(LockKind::Exclusive, u64::from(self.number) + 1, file.opened.number);
        let until = self.mount.posix.rt().now() + 30 * MILLISECOND;
        let (rt, owner) = (self.mount.posix.rt().clone(), wanted.owner);
        let taken = self.mount.posix.lock(file.node, wanted, Some(&move || rt.now() < until)).await;
        pause(&self.mount).await;
        // As gateways do at the end of a descriptor, whatever became of the lock.
        let given = self.mount.posix.unlock(file.node, Family::Fcntl, owner, 0, u64::MAX).await;
        self.mount.close(file).await?;
        match taken {
            Err(Refusal::Failed(error)) => Err(error),
            _ => given.map(drop),
        }
    }

    async fn make_directory(&mut self) -> Result<()> {
        let name = self.new_name();
        let made = self.mount.posix.mkdir(&self.who.who, self.dir, name.as_bytes(), 0o755);
        let below = self.mount.make(self.dir, &name, made).await?;
        let file = self.mount.create(&self.who, below, "below", 0o644).await?;
        self.write_and_close(file, 0, b"below").await
    }

    /// What fails leaves what is sure as it was.
    async fn read(&self) -> Result<()> {
        let count = self.sure.len() as u64;
        let nth = if count > 0 { self.random(count) as usize } else { return Ok(()) };
        let (name, is) = self.sure.iter().nth(nth).expect("so many");
        let file = self.mount.open(&self.who, self.dir, name, how(Rights::READ)).await?;
        let bytes = self.mount.read(file).await;
        self.mount.close(file).await?;
        assert_bytes(&bytes?, is, name);
        Ok(())
    }

    async fn work(mut self) -> Program {
        for _ in 0..STEPS {
            let done = match self.random(18) {
                0..4 => self.make().await,
                4..6 => self.write_again().await,
                6 => self.cut().await,
                7 => self.rename().await,
                8 => self.remove().await,
                9 => self.make_directory().await,
                10 => self.append().await,
                11 => self.link().await,
                12 => self.lock().await,
                13 => self.mount.list(&self.who, self.dir, self.random(2) == 0, 7).await.map(drop),
                14 => self.clear().await,
                15 if self.dies => self.make_unnamed().await,
                _ => self.read().await,
            };
            match done {
                Err(error) if error.status.is_transient() || is_given_up(error.status) => self.given_up += 1,
                done => done.unwrap_or_else(|error| panic!("{error}")),
            }
            pause(&self.mount).await;
        }
        self
    }
}

fn is_given_up(status: Status) -> bool {
    matches!(status, Status::WritesLost | Status::QuotaExceeded)
}

/// Another mount makes and removes files in the directory, so that nobody has it alone.
async fn disturb(mount: Mount, dir: InodeNumber, is_over: Rc<Cell<bool>>) {
    let who = caller(2, 0);
    while !is_over.get() {
        let file = mount.create(&who, dir, "other", 0o644).await.expect("a new file");
        mount.close(file).await.expect("it is closed");
        pause(&mount).await;
        mount.remove(&who, dir, "other", false).await.expect("it is removed");
    }
}

/// Somebody with time looks at everything: what is sure is as it was left.
async fn look(mount: Mount, dir: InodeNumber, sure: Vec<BTreeMap<String, Vec<u8>>>, may_append: bool) {
    let (who, begin) = (caller(1, 0), mount.posix.rt().now());
    let names = mount.list(&who, dir, true, 20).await.expect("it is listed");
    for (name, is) in sure.iter().flatten() {
        assert!(names.contains(name), "{name} is not there");
        let file = mount.open(&who, dir, name, how(Rights::READ)).await.unwrap_or_else(|error| panic!("{error}: {name}"));
        assert_bytes(&mount.read(file).await.expect("it is read"), is, name);
        mount.close(file).await.expect("it is closed");
        // Nobody else has anything of it.
        let file = mount.open(&who, dir, name, how(APPEND)).await.unwrap_or_else(|error| panic!("{error}: {name}"));
        if may_append {
            mount.write(&who, file, 0, b"more", true).await.unwrap_or_else(|error| panic!("{error}: {name}"));
        }
        let locked = mount.posix.lock(file.node, lock(LockKind::Exclusive, 1, file.opened.number), None).await;
        locked.unwrap_or_else(|refusal| panic!("{refusal:?}: {name}"));
        mount.release(file.opened.number).await;
    }
    for name in names.iter().filter(|name| *name != "." && *name != "..") {
        let node = mount.walk(&who, dir, name, true).await.unwrap_or_else(|error| panic!("{error}: {name}"));
        mount.stat(node).await.unwrap_or_else(|error| panic!("{error}: {name}"));
    }
    let took_ns = mount.posix.rt().now().since(begin);
    assert!(took_ns < LOOK_NS_MAX, "a look at {} names took {} ms", names.len(), took_ns / MILLISECOND);
}

/// One run; gives how often something was given up.
pub fn run(seed: u64) -> u32 {
    let meta = 1 + (seed % 3) as usize;
    let mut world = World::of(meta, Durability::Batch, seed, |sim, cluster, name| Mount::new(sim, cluster, name, None));
    if seed % 4 < 2 {
        world.takes_small_files();
    }
    let deadline_ns = [5, 20, 80, 300][(seed / 3 % 4) as usize] * MILLISECOND;
    let options = Options { absorbs: seed % 8 > 4, ..Mount::options((seed % 7 == 3).then_some(0)) };
    let hasty = Mount::within(deadline_ns, options, &world.sim, &world.cluster, "hasty");
    // With limits that they meet.
    let is_limited = seed % 6 == 5;
    let uid = if is_limited { USER } else { 0 };
    let dir = world.alone(0, move |mount| async move {
        let who = caller(1, 0).who;
        let made = mount.posix.mkdir(&who, ROOT, b"dir", 0o777).await.expect("a new directory");
        let change = SetAttr { uid: Some(uid), gid: Some(uid), ..SetAttr::default() };
        mount.posix.setattr(&who, made.node, &change).await.expect("it is given away");
        made.node
    });
    let auditor = Auditor::of(&world, QuotaId::user(USER));
    let limits = Limits { inodes: 30, bytes: 200 * BLOCK_BYTES };
    if is_limited {
        auditor.limit(&world, limits);
    }
    if !seed.is_multiple_of(5) {
        world.plan_faults();
    }
    let dies = seed % 4 > 1;
    let program = |number| {
        let (mount, who) = (hasty.clone(), caller(10 + number, uid));
        Program { mount, who, dir, number, names: 0, sure: BTreeMap::new(), taken: Rc::default(), dies, given_up: 0 }
    };
    let flows = (0..PROGRAMS).map(program).map(|program| world.sim.spawn_on(hasty.node, move |_| program.work()));
    let flows = flows.collect();
    let is_over = Rc::new(Cell::new(false));
    let other = (seed % 8 != 7).then(|| {
        let (mount, is_over) = (world.mounts[0].clone(), is_over.clone());
        world.sim.spawn_on(mount.node, move |_| disturb(mount, dir, is_over))
    });
    let programs = world.run(flows);
    is_over.set(true);
    world.run(Vec::from_iter(other));
    world.sim.recover();
    world.sim.run_for(REST_NS);
    let given_up = programs.iter().map(|program| program.given_up).sum();
    let programs = if dies { goes_on_and_dies(&mut world, programs, &hasty, !seed.is_multiple_of(5)) } else { programs };
    let sure = programs.into_iter().map(|program| program.sure).collect();
    world.alone(1, move |mount| look(mount, dir, sure, !is_limited));
    if is_limited {
        let left = limits.left(auditor.taken(&world, limits));
        world.alone(1, move |mount| use_up(mount, dir, left));
    }
    for number in 0..2 {
        world.alone(number, |mount| async move { mount.posix.end(30 * SECOND).await });
    }
    examine(&world, true);
    given_up
}

/// After a rest the programs go on, and their mount dies. What they have not changed again is sure.
fn goes_on_and_dies(world: &mut World, programs: Vec<Program>, hasty: &Mount, fails: bool) -> Vec<Program> {
    if fails {
        world.plan_faults();
    }
    let (mut rested, mut flows) = (Vec::new(), Vec::new());
    for program in programs {
        let (sure, taken) = (program.sure.clone(), Rc::default());
        rested.push(Program { mount: hasty.clone(), who: program.who.clone(), sure, taken: Rc::clone(&taken), ..program });
        flows.push(world.sim.spawn_on(hasty.node, move |_| Program { taken, ..program }.work()));
    }
    let (node, polls) = (hasty.node, 1 + world.sim.random().below(3000));
    world.sim.strike_after_polls(node, polls, Fault::Crash { node, down_ns: u64::MAX / 2 });
    let is_over = || !world.sim.is_running(node) || flows.iter().all(Joined::is_over);
    world.sim.run_until_true(world.sim.now() + 600 * SECOND, is_over).expect("every wait has an end");
    if world.sim.is_running(node) {
        world.sim.crash(node);
    }
    world.sim.recover();
    world.sim.run_for(REST_NS);
    for program in &mut rested {
        let taken = program.taken.borrow();
        program.sure.retain(|name, _| !taken.contains(name));
    }
    rested
}

#[test]
fn nobody_waits_for_what_a_hasty_mount_has_given_up() {
    let (mut given_up, seeds) = (0, seeds_of("WEFT_HASTY_SEEDS", 0..18));
    for seed in seeds.clone() {
        println!("seed {seed}: WEFT_HASTY_SEEDS={seed}..{} cargo test -p weft-sim-tests --test posix hasty", seed + 1);
        given_up += run(seed);
    }
    assert!(u64::from(given_up) >= seeds.end - seeds.start, "{given_up} calls were given up in {seeds:?}");
}
