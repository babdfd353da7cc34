//! Trees that are changed in turns while somebody else looks at them, and while their directories
//! are spread over metadata servers and brought back.

use std::cell::Cell;
use std::rc::Rc;

use weft_base::{Credentials, FileKind, Handle, MILLISECOND, ROOT_HANDLE, SECOND, Status};
use weft_client::Client;
use weft_posix::{InodeNumber, Options};
use weft_rt::Runtime;
use weft_rt_sim::SimRt;
use weft_sim_tests::cluster::Durability;
use weft_sim_tests::mount::{Mount, caller, how};
use weft_wire::Rights;

use super::{TREES, end, make_tops, take_turns};
use crate::trees::model::Tree;
use crate::{ROOT, World, seeds_of};

/// What becomes of what is looked at meanwhile. (A symlink in the place of a file is not opened.)
fn is_expected(status: Status) -> bool {
    matches!(status, Status::NotFound | Status::Stale | Status::NotDirectory | Status::IsDirectory | Status::Invalid)
}

/// Somebody who looks at all trees through a mount of his own.
struct Onlooker {
    mount: Mount,
    thread: u32,
}

impl Onlooker {
    fn random(&self, below: u64) -> u64 {
        self.mount.posix.rt().random() % below
    }

    async fn pause(&self, most_ns: u64) {
        let rt = self.mount.posix.rt();
        rt.sleep_until(rt.now() + self.random(most_ns)).await;
    }

    /// Goes down to something and looks at it.
    async fn look(&self) -> Result<(), weft_client::Error> {
        let who = caller(self.thread, 0);
        let (top, _) = TREES[self.random(TREES.len() as u64) as usize];
        let mut node = self.mount.walk(&who, ROOT, top, false).await?;
        loop {
            let mut names = self.mount.list(&who, node, self.random(2) == 0, 1 + self.random(10) as usize).await?;
            names.retain(|name| name != "." && name != "..");
            if names.is_empty() || self.random(4) == 0 {
                return Ok(());
            }
            let name = &names[self.random(names.len() as u64) as usize];
            let found = self.mount.walk(&who, node, name, false).await?;
            match self.mount.stat(found).await?.kind {
                FileKind::Directory => node = found,
                FileKind::File => return self.read(node, name).await,
                _ => return self.mount.posix.readlink(found).await.map(drop),
            }
        }
    }

    async fn read(&self, dir: InodeNumber, name: &str) -> Result<(), weft_client::Error> {
        let file = self.mount.open(&caller(self.thread, 0), dir, name, how(Rights::READ)).await?;
        let mut outcome = self.mount.read(file).await;
        if self.random(3) == 0 {
            self.pause(30 * MILLISECOND).await;
            outcome = outcome.and(self.mount.read(file).await);
        }
        self.mount.close(file).await.expect("it was only read");
        outcome.map(drop)
    }

    async fn look_on(self, is_over: Rc<Cell<bool>>) {
        while !is_over.get() {
            match self.look().await {
                Err(error) if !is_expected(error.status) => panic!("{error}"),
                _ => self.pause(10 * MILLISECOND).await,
            }
        }
    }
}

/// Spreads directories over metadata servers, and brings them back.
pub(super) async fn spread(client: Client<SimRt>, rt: SimRt, meta: usize, is_over: Rc<Cell<bool>>) {
    let mut count = 0u64;
    while !is_over.get() {
        if let Some(dir) = some_directory(&client, &rt).await {
            count += 1;
            match client.split_directory(&Credentials::ROOT, dir, 1 + (count % meta as u64) as u16).await {
                Err(error) if !is_expected(error.status) && error.status != Status::Busy => panic!("{error}"),
                _ => {}
            }
        }
        rt.sleep_until(rt.now() + rt.random() % (50 * MILLISECOND)).await;
    }
}

async fn some_directory(client: &Client<SimRt>, rt: &SimRt) -> Option<Handle> {
    let mut dir = ROOT_HANDLE;
    loop {
        let page = client.readdir(&Credentials::ROOT, dir, 0, 1 << 16, false).await.ok()?;
        let below: Vec<Handle> = page.entries.iter().filter(|entry| entry.kind == FileKind::Directory).map(|entry| entry.handle).collect();
        if dir != ROOT_HANDLE && (below.is_empty() || rt.random().is_multiple_of(3)) {
            return Some(dir);
        }
        dir = below[(rt.random() % below.len() as u64) as usize];
    }
}

/// One run.
pub fn run(seed: u64) {
    let meta = 2 + (seed % 17 / 6) as usize;
    let mut world = World::of(meta, Durability::Batch, seed, |sim, cluster, name| {
        let options = Mount::options(None);
        let (hears_closes, sets_atime) = (seed % 7 < 3, seed % 11 < 5);
        let direct_from_bytes = if seed % 13 < 6 { 1 << 14 } else { options.direct_from_bytes };
        Mount::with(Options { hears_closes, sets_atime, direct_from_bytes, ..options }, sim, cluster, name)
    });
    if seed % 4 < 2 {
        world.takes_small_files();
    }
    let is_calm = seed.is_multiple_of(2);
    if !is_calm {
        world.plan_faults();
    }
    make_tops(&world, seed % 3 == 2);
    let (is_over, left) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(TREES.len())));
    let third = Mount::new(&world.sim, &world.cluster, "onlooker", None);
    let mut others = Vec::new();
    if !seed.is_multiple_of(5) {
        for thread in 1..=2 {
            let (onlooker, is_over) = (Onlooker { mount: third.clone(), thread }, is_over.clone());
            others.push(world.sim.spawn_on(third.node, move |_| onlooker.look_on(is_over)));
        }
    }
    if seed % 5 < 3 {
        let ((node, client), is_over) = (world.cluster.add_client("spreads", 60 * SECOND), is_over.clone());
        others.push(world.sim.spawn_on(node, move |rt| spread(client, rt, meta, is_over)));
    }
    let flows = (0..).zip(TREES).map(|(number, (name, prefix))| {
        let (mounts, tree) = (world.mounts.clone(), Tree { is_calm, does_all: seed % 4 != 1, ..Tree::new(name.to_string(), prefix) });
        let (is_over, left) = (is_over.clone(), left.clone());
        world.sim.spawn_on(mounts[number as usize % 2].node, move |_| async move {
            let tree = take_turns(mounts, number, tree).await;
            left.set(left.get() - 1);
            is_over.set(left.get() == 0);
            tree
        })
    });
    let trees = world.run(flows.collect());
    world.run(others);
    end(world, trees);
}

#[test]
fn trees_are_right_while_others_look_and_directories_are_spread() {
    for seed in seeds_of("WEFT_DISTURBED_SEEDS", 0..8) {
        println!("seed {seed}: WEFT_DISTURBED_SEEDS={seed}..{} cargo test -p weft-sim-tests --test posix disturbed", seed + 1);
        run(seed);
    }
}
