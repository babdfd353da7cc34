//! A user or project with limits of inodes and bytes, whose programs make, write, cut and remove
//! files through two mounts while servers die. They never have more than their limits, what was
//! acknowledged stays, and they may use them up to the last inode and the last block.
//!
//! `WEFT_LIMIT_SEEDS=100..200` runs other seeds.

use std::collections::BTreeMap;

use weft_base::{BLOCK_BYTES, Credentials, MILLISECOND, SECOND, Status};
use weft_client::{Client, Error, Fallocate, RenameFlags, Result, SetAttr, XattrFlags};
use weft_posix::{CallingThread, InodeNumber};
use weft_rt::Runtime;
use weft_rt_sim::{NodeId, SimRt};
use weft_sim_tests::cluster::Durability;
use weft_sim_tests::mount::{Mount, Open, caller, how};
use weft_wire::Rights;
use weft_wire::ops::QuotaId;

use crate::trees::examine;
use crate::{ROOT, UPDATE, World, assert_bytes, seeds_of};

pub const USER: u32 = 7;
const PROJECT: u32 = 8;
/// Programs at the same time.
const PROGRAMS: u32 = 3;
/// What each does in one round, at most.
const STEPS_MAX: u64 = 40;
const ROUNDS: u32 = 3;
/// Longer than closes wait, and allowances that a server does not use, in nanoseconds.
const REST_NS: u64 = 3 * SECOND;
/// The same after servers were silent.
const REST_AFTER_FAULTS_NS: u64 = 40 * SECOND;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub inodes: u64,
    pub bytes: u64,
}

impl Limits {
    /// What he may have beyond these numbers of inodes and bytes that he has.
    pub fn left(self, (inodes, bytes): (u64, u64)) -> (u64, u64) {
        (self.inodes - inodes, (self.bytes - bytes) / BLOCK_BYTES)
    }
}

/// One program, with what it has made.
struct Program {
    mounts: [Mount; 2],
    who: CallingThread,
    dir: InodeNumber,
    files: BTreeMap<String, Vec<u8>>,
    dirs: Vec<String>,
    /// A directory that does not count for the project.
    outside: InodeNumber,
    is_of_project: bool,
    /// How often it was refused.
    refused: u32,
}

impl Program {
    fn random(&self, below: u64) -> u64 {
        self.mounts[0].posix.rt().random() % below
    }

    fn mount(&self) -> &Mount {
        &self.mounts[self.random(2) as usize]
    }

    /// What the limits allow; `None`: they do not.
    fn allowed<T>(&mut self, outcome: Result<T>) -> Option<T> {
        match outcome {
            Ok(done) => Some(done),
            Err(error) if error.status == Status::QuotaExceeded => {
                self.refused += 1;
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let most = [300, 5000, 20_000, 70_000, 200_000][self.random(5) as usize];
        vec![self.random(255) as u8 + 1; 1 + self.random(most) as usize]
    }

    async fn make_file(&mut self) {
        let name = format!("f{}", self.random(8));
        if self.files.contains_key(&name) {
            return;
        }
        let mount = self.mount().clone();
        let Some(file) = self.allowed(mount.create(&self.who, self.dir, &name, 0o644).await) else { return };
        self.files.insert(name.clone(), Vec::new());
        if self.random(4) > 0 {
            self.write(&mount, file, &name, 0).await;
        }
        mount.close(file).await.expect("it is closed");
    }

    /// What was refused may have been done in part: then the file is cut to what it was.
    async fn write(&mut self, mount: &Mount, file: Open, name: &str, offset: usize) {
        let bytes = self.bytes();
        let written = mount.write(&self.who, file, offset as u64, &bytes, false).await;
        let is = self.files.get_mut(name).expect("it is there");
        if matches!(&written, Err(Error { status: Status::QuotaExceeded, .. })) {
            self.refused += 1;
            is.truncate(offset);
            let size = is.len() as u64;
            mount.setattr(&self.who, file.node, &SetAttr { size: Some(size), ..SetAttr::default() }).await.expect("it is cut");
            return;
        }
        written.expect("it is written");
        is.resize(is.len().max(offset + bytes.len()), 0);
        is[offset..offset + bytes.len()].copy_from_slice(&bytes);
    }

    /// A file that gets its name, or none, when it is written.
    async fn make_unnamed(&mut self) {
        let (name, mount) = (format!("f{}", self.random(8)), self.mount().clone());
        let Some(file) = self.allowed(mount.create_unnamed(&self.who, self.dir, 0o644).await) else { return };
        if !self.files.contains_key(&name) && self.random(4) > 0 {
            self.files.insert(name.clone(), Vec::new());
            let is_named_first = self.random(2) == 0;
            if !is_named_first {
                self.write(&mount, file, &name, 0).await;
            }
            let linked = mount.posix.link(&self.who.who, file.node, self.dir, name.as_bytes());
            mount.make(self.dir, &name, linked).await.unwrap_or_else(|error| panic!("{error}: {name}"));
            if is_named_first {
                self.write(&mount, file, &name, 0).await;
            }
        }
        mount.close(file).await.expect("it is closed");
    }

    /// Makes room in a file, or a hole.
    async fn allocate(&mut self) {
        let Some(name) = self.any_file() else { return };
        let mount = self.mount().clone();
        let file = mount.open(&self.who, self.dir, &name, how(UPDATE)).await.expect("it opens");
        let is = self.files.get_mut(&name).expect("it is there");
        let before = is.len();
        let random = |below: u64| mount.posix.rt().random() % below;
        let start = random(before as u64 + 1) as usize;
        let bytes = 1 + random(60_000) as usize;
        let how_to = match random(3) {
            0 => Fallocate::Punch,
            1 => Fallocate::Zero { keep_size: false },
            _ => Fallocate::Reserve { keep_size: false },
        };
        match mount.allocate(&self.who, file, (start, bytes), how_to).await {
            Ok(()) => {
                if !matches!(how_to, Fallocate::Punch) {
                    is.resize(before.max(start + bytes), 0);
                }
                let end = is.len().min(start + bytes);
                if !matches!(how_to, Fallocate::Reserve { .. }) {
                    is[start..end].fill(0);
                }
            }
            // It may have been done in part.
            Err(error) if error.status == Status::QuotaExceeded => {
                self.refused += 1;
                is.truncate(start);
                let cut = SetAttr { size: Some(start as u64), ..SetAttr::default() };
                mount.setattr(&self.who, file.node, &cut).await.expect("it is cut");
            }
            Err(error) if error.status == Status::NotSupported && start + bytes > before => {}
            Err(error) => panic!("{error}: {how_to:?} of {start}..+{bytes} in {name} of {before} bytes"),
        }
        mount.close(file).await.expect("it is closed");
    }

    /// Nothing that does not count for the project gets a name in it; what is moved out counts on.
    async fn cross(&mut self) {
        let (mount, strange) = (self.mount().clone(), format!("strange{}", self.random(1 << 40)));
        let Some(file) = self.allowed(mount.create(&self.who, self.outside, &strange, 0o644).await) else { return };
        mount.close(file).await.expect("it is closed");
        let moved = mount.move_name(&self.who, (self.outside, &strange), (self.dir, &strange), RenameFlags::default()).await;
        if !self.is_of_project {
            moved.expect("it is moved");
            return mount.remove(&self.who, self.dir, &strange, false).await.expect("it is removed");
        }
        assert_eq!(moved.map_err(|error| error.status), Err(Status::CrossDevice), "{strange}");
        let linked = mount.posix.link(&self.who.who, file.node, self.dir, strange.as_bytes()).await.map(drop);
        assert_eq!(linked.map_err(|error| error.status), Err(Status::CrossDevice), "{strange}");
        mount.remove(&self.who, self.outside, &strange, false).await.expect("it is removed");
        let Some(name) = self.any_file() else { return };
        mount.move_name(&self.who, (self.dir, &name), (self.outside, &strange), RenameFlags::default()).await.expect("it is moved");
        mount.move_name(&self.who, (self.outside, &strange), (self.dir, &name), RenameFlags::default()).await.expect("it is moved back");
    }

    fn any_file(&self) -> Option<String> {
        let count = self.files.len() as u64;
        (count > 0).then(|| self.files.keys().nth(self.random(count) as usize).expect("so many").clone())
    }

    async fn write_again(&mut self) {
        let Some(name) = self.any_file() else { return };
        let mount = self.mount().clone();
        let file = mount.open(&self.who, self.dir, &name, how(UPDATE)).await.expect("it opens");
        let offset = self.random(self.files[&name].len() as u64 + 1) as usize;
        self.write(&mount, file, &name, offset).await;
        mount.close(file).await.expect("it is closed");
    }

    async fn cut(&mut self) {
        let Some(name) = self.any_file() else { return };
        let mount = self.mount().clone();
        let node = mount.walk(&self.who, self.dir, &name, true).await.expect("it is there");
        let size = self.random(self.files[&name].len() as u64 + 1);
        mount.setattr(&self.who, node, &SetAttr { size: Some(size), ..SetAttr::default() }).await.expect("it is cut");
        self.files.get_mut(&name).expect("it is there").truncate(size as usize);
    }

    async fn remove(&mut self) {
        let Some(name) = self.any_file() else { return };
        self.mount().remove(&self.who, self.dir, &name, false).await.expect("it is removed");
        self.files.remove(&name);
    }

    async fn make_or_remove_directory(&mut self) {
        if let Some(name) = self.dirs.pop() {
            return self.mount().remove(&self.who, self.dir, &name, true).await.expect("it is removed");
        }
        let name = format!("d{}", self.random(1000));
        let mount = self.mount().clone();
        let made = mount.make(self.dir, &name, mount.posix.mkdir(&self.who.who, self.dir, name.as_bytes(), 0o755)).await;
        if self.allowed(made).is_some() {
            self.dirs.push(name);
        }
    }

    async fn check(&self) {
        for (name, is) in &self.files {
            let mount = self.mount();
            let file = mount.open(&self.who, self.dir, name, how(Rights::READ)).await.unwrap_or_else(|error| panic!("{error}: {name}"));
            let bytes = mount.read(file).await.expect("it is read");
            assert_bytes(&bytes, is, name);
            mount.close(file).await.expect("it is closed");
        }
    }

    async fn work(mut self) -> Program {
        for _ in 0..self.random(STEPS_MAX) {
            match self.random(13) {
                10 => self.make_unnamed().await,
                11 => self.allocate().await,
                12 => self.cross().await,
                0..4 => self.make_file().await,
                4..6 => self.write_again().await,
                6 => self.cut().await,
                7 => self.make_or_remove_directory().await,
                8 => self.check().await,
                _ => self.remove().await,
            }
            let rt = self.mounts[0].posix.rt();
            rt.sleep_until(rt.now() + self.random(20 * MILLISECOND)).await;
        }
        self
    }
}

/// Asks servers directly.
pub struct Auditor {
    node: NodeId,
    client: Client<SimRt>,
    id: QuotaId,
}

impl Auditor {
    pub fn of(world: &World, id: QuotaId) -> Auditor {
        let (node, client) = world.cluster.add_client("auditor", 60 * SECOND);
        Auditor { node, client, id }
    }

    /// From now on the user or project has these limits.
    pub fn limit(&self, world: &World, limits: Limits) {
        let id = self.id;
        self.ask(world, move |client| async move {
            let untold = client.limit_inodes(id, Some(limits.inodes)).await.expect("a limit");
            let untold_of_bytes = client.limit_bytes(id, Some(limits.bytes)).await.expect("a limit");
            assert_eq!((untold, untold_of_bytes), (Vec::new(), Vec::new()));
        });
    }

    fn ask<T: 'static, F: Future<Output = T> + 'static>(&self, world: &World, question: impl FnOnce(Client<SimRt>) -> F) -> T {
        let client = self.client.clone();
        world.run(vec![world.sim.spawn_on(self.node, |_| question(client))]).pop().expect("one flow")
    }

    /// What the user or project has: no more than he may.
    pub fn taken(&self, world: &World, limits: Limits) -> (u64, u64) {
        let QuotaId { kind, number } = self.id;
        let usage = self.ask(world, move |client| async move { client.usage(&Credentials::ROOT, kind, number..=number).await });
        let usage = usage.expect("all servers answer")[&number];
        assert!(usage.inodes <= limits.inodes && usage.bytes <= limits.bytes, "{usage:?} of {limits:?}");
        assert_eq!((usage.inodes_max, usage.bytes_max), (Some(limits.inodes), Some(limits.bytes)));
        (usage.inodes, usage.bytes)
    }
}

/// Alone, he may make files and then write blocks until all is used.
pub async fn use_up(mount: Mount, dir: InodeNumber, (inodes, blocks): (u64, u64)) {
    let who = caller(50, USER);
    let refused = |outcome: Result<()>| assert_eq!(outcome.map_err(|error| error.status), Err(Status::QuotaExceeded));
    for number in 0..inodes {
        let file = mount.create(&who, dir, &format!("up{number}"), 0o644).await;
        let file = file.unwrap_or_else(|error| panic!("{error}: {number} of {inodes} that are left"));
        mount.close(file).await.expect("it is closed");
    }
    refused(mount.create(&who, dir, "more", 0o644).await.map(drop));
    if inodes > 0 {
        let file = mount.open(&who, dir, "up0", how(UPDATE)).await.expect("it opens");
        for number in 0..blocks {
            let written = mount.write(&who, file, number * BLOCK_BYTES, &[1; BLOCK_BYTES as usize], false).await;
            written.unwrap_or_else(|error| panic!("{error}: block {number} of {blocks} that are left"));
        }
        refused(mount.write(&who, file, blocks * BLOCK_BYTES, &[1; BLOCK_BYTES as usize], false).await);
        mount.close(file).await.expect("it is closed");
    }
    for number in 0..inodes {
        mount.remove(&who, dir, &format!("up{number}"), false).await.expect("it is removed");
    }
}

/// One run; gives how often somebody was refused.
fn run(seed: u64) -> u32 {
    let meta = 2 + (seed % 5 / 3) as usize;
    let (contract, power_cuts) = if seed % 8 > 4 { (Durability::Sync, 2) } else { (Durability::Batch, 0) };
    let mut world = World::of(meta, contract, seed, |sim, cluster, name| Mount::new(sim, cluster, name, None));
    if seed % 4 < 2 {
        world.takes_small_files();
    }
    let is_of_project = seed % 4 > 1;
    let auditor = Auditor::of(&world, if is_of_project { QuotaId::project(PROJECT) } else { QuotaId::user(USER) });
    let random = |below: u64| world.sim.random().below(below);
    let limits = Limits { inodes: 8 + random(20), bytes: (20 + random(100)) * BLOCK_BYTES };
    let is_spread = seed % 3 == 2;
    let dirs = world.alone(0, move |mount| async move {
        let mut dirs = Vec::new();
        for number in 0..=PROGRAMS + 1 {
            let who = caller(1, 0).who;
            let made = mount.posix.mkdir(&who, ROOT, format!("of{number}").as_bytes(), 0o777).await.expect("a new directory");
            let change = SetAttr { uid: Some(USER), gid: Some(USER), ..SetAttr::default() };
            mount.posix.setattr(&who, made.node, &change).await.expect("it is given away");
            if is_spread {
                let hint = mount.posix.set_xattr(&who, made.node, b"user.weft.presplit", b"all", XattrFlags::default());
                hint.await.expect("it is set");
            }
            if is_of_project && number <= PROGRAMS {
                let (name, value) = (b"user.weft.project", PROJECT.to_string());
                mount.posix.set_xattr(&who, made.node, name, value.as_bytes(), XattrFlags::default()).await.expect("it is set");
            }
            dirs.push(made.node);
        }
        dirs
    });
    auditor.limit(&world, limits);
    let mut programs: Vec<Program> = (0..PROGRAMS)
        .map(|number| Program {
            mounts: world.mounts.clone(),
            // Root is not exempt from the limits of a project.
            who: caller(10 + number, if is_of_project && number == 0 { 0 } else { USER }),
            dir: dirs[number as usize],
            outside: dirs[PROGRAMS as usize + 1],
            is_of_project,
            files: BTreeMap::new(),
            dirs: Vec::new(),
            refused: 0,
        })
        .collect();
    for round in 0..ROUNDS {
        let is_calm = seed.is_multiple_of(2);
        if !is_calm {
            world.plan_faults_and(power_cuts);
        }
        let flows = programs.into_iter().map(|program| world.sim.spawn_on(program.mounts[0].node, move |_| program.work()));
        programs = world.run(flows.collect());
        world.sim.recover();
        world.sim.run_for(if is_calm { REST_NS } else { REST_AFTER_FAULTS_NS });
        let (inodes, bytes) = auditor.taken(&world, limits);
        let has: usize = programs.iter().map(|program| 1 + program.files.len() + program.dirs.len()).sum();
        let others = 1 + u64::from(!is_of_project);
        assert_eq!(inodes, others + has as u64, "after round {round}");
        let (dir, left) = (dirs[PROGRAMS as usize], limits.left((inodes, bytes)));
        world.alone(round as usize % 2, |mount| use_up(mount, dir, left));
        auditor.taken(&world, limits);
        programs = world.run(
            programs
                .into_iter()
                .map(|program| {
                    world.sim.spawn_on(program.mounts[0].node, move |_| async move {
                        program.check().await;
                        program
                    })
                })
                .collect(),
        );
        world.sim.run_for(REST_NS);
    }
    for number in 0..2 {
        world.alone(number, |mount| async move { mount.posix.end(30 * SECOND).await });
    }
    examine(&world, false);
    programs.iter().map(|program| program.refused).sum()
}

#[test]
fn nobody_has_more_than_his_limits_and_all_of_them() {
    let mut refused = 0;
    for seed in seeds_of("WEFT_LIMIT_SEEDS", 0..8) {
        println!("seed {seed}: WEFT_LIMIT_SEEDS={seed}..{} cargo test -p weft-sim-tests --test posix limits", seed + 1);
        refused += run(seed);
    }
    assert!(refused > 0, "limits that nobody met");
}
