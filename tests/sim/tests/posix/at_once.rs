//! Many flows of one mount in one directory, as threads of a program that opens a file system
//! itself: a kernel changes a directory once at a time. Each flow has names of its own and knows
//! what they lead to.

use std::collections::BTreeMap;
use std::rc::Rc;

use weft_base::{MILLISECOND, SECOND, Status};
use weft_posix::InodeNumber;
use weft_rt::{Runtime, join_all};
use weft_sim_tests::mount::{Mount, caller, how};
use weft_wire::Rights;

use super::delayed::{closed_in, rest, world};
use super::delegated::{expected, made_dir, names};
use super::{ROOT, World, content, number_of, seeds_of};

/// Files that all flows make together.
const FILES: u32 = 500;
/// What a flow does, at least.
const STEPS: u64 = 20;
/// Names of a flow in each directory.
const NAMES: u64 = 3;

/// In a directory that others have used, whose names are to be learned first.
#[test]
fn files_that_flows_make_at_once_become_a_share_of_a_message() {
    for flows in [2, 16] {
        let world = world();
        let dir = world.alone(1, |mount| async move {
            let dir = made_dir(&mount, false).await;
            for number in 0..20 {
                closed_in(&mount, dir, &format!("of-others{number}"), &content(number % 4)).await;
            }
            dir
        });
        let make = |from: u32, to: u32| {
            world.alone(0, move |mount| async move {
                let before = mount.posix.stats().requests;
                let part = async |flow| {
                    for number in (from..to).filter(|number| number % flows == flow) {
                        let file = mount.create(&caller(flow, 0), dir, &format!("f{number}"), 0o644).await.expect("a new file");
                        mount.release(file.opened.number).await;
                    }
                };
                join_all((0..flows).map(part)).await;
                rest(&mount, 20 * MILLISECOND).await;
                mount.posix.stats().requests - before
            })
        };
        // So many at once that the lease of the other mount ends, and none is granted for a while.
        make(0, 100);
        world.sim.run_for(2 * SECOND);
        let requests = make(100, FILES);
        assert!(requests <= 120, "{requests} requests of {flows} flows");
        assert_eq!(world.alone(1, move |mount| async move { names(&mount, dir).await }), expected(FILES));
    }
}

/// More than may be untold.
#[test]
fn files_that_flows_remove_at_once_are_a_share_of_a_message() {
    const REMOVED: u32 = 2000;
    for flows in [1, 8, 64] {
        let world = world();
        let requests = world.alone(0, move |mount| async move {
            let dir = made_dir(&mount, false).await;
            for number in 0..REMOVED {
                let file = mount.create(&caller(0, 0), dir, &format!("f{number}"), 0o644).await.expect("a new file");
                mount.release(file.opened.number).await;
            }
            rest(&mount, 20 * MILLISECOND).await;
            let before = mount.posix.stats().requests;
            let part = async |flow| {
                for number in (0..REMOVED).filter(|number| number % flows == flow) {
                    mount.posix.unlink(&caller(flow, 0).who, dir, format!("f{number}").as_bytes()).await.expect("it is removed");
                }
            };
            join_all((0..flows).map(part)).await;
            rest(&mount, 20 * MILLISECOND).await;
            assert_eq!(names(&mount, dir).await, Vec::<String>::new());
            mount.posix.stats().requests - before
        });
        assert!(requests <= u64::from(REMOVED) / 20, "{requests} requests of {flows} flows");
    }
}

/// What a name of a flow leads to: a file with such a content, or a directory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Led {
    File(u32),
    Directory,
}

type Model = BTreeMap<(InodeNumber, String), Led>;

struct Flow {
    mount: Mount,
    prefix: String,
    number: u32,
    dirs: Rc<Vec<InodeNumber>>,
    model: Model,
}

impl Flow {
    fn draw(&self, below: u64) -> u64 {
        self.mount.posix.rt().random() % below
    }

    async fn run(mut self) -> Model {
        for step in 0..STEPS + self.draw(20) {
            self.step(step as u32).await;
            if self.draw(4) == 0 {
                rest(&self.mount, self.draw(10 * MILLISECOND)).await;
            }
        }
        self.model
    }

    async fn step(&mut self, step: u32) {
        let dir = self.dirs[self.draw(self.dirs.len() as u64) as usize];
        let [name, other] = [(); 2].map(|()| format!("{}{}", self.prefix, self.draw(NAMES)));
        let (who, mount) = (caller(self.number, 0), &self.mount);
        let key = (dir, name.clone());
        let led = self.model.get(&key).copied();
        match self.draw(6) {
            0 | 1 if led.is_none() => {
                let file = mount.create(&who, dir, &name, 0o644).await.expect("a new file");
                mount.write(&who, file, 0, &content(step % 20), false).await.expect("it is written");
                mount.close(file).await.expect("it is closed");
                self.model.insert(key, Led::File(step % 20));
            }
            2 if led.is_none() => {
                let made = mount.posix.mkdir(&who.who, dir, name.as_bytes(), 0o755);
                mount.make(dir, &name, made).await.expect("a new directory");
                self.model.insert(key, Led::Directory);
            }
            0..3 => {
                let made = mount.create(&who, dir, &name, 0o644).await.map(|_| ()).map_err(|error| error.status);
                assert_eq!(made, Err(Status::Exists), "{name} is {led:?}");
            }
            3 => {
                let removed = mount.remove(&who, dir, &name, led == Some(Led::Directory)).await.map_err(|error| error.status);
                assert_eq!(removed, if led.is_some() { Ok(()) } else { Err(Status::NotFound) }, "{name} was {led:?}");
                self.model.remove(&key);
            }
            4 if name != other && matches!(led, Some(Led::File(_))) && self.model.get(&(dir, other.clone())) != Some(&Led::Directory) => {
                mount.rename(&who, dir, &name, &other).await.expect("it is moved");
                let moved = self.model.remove(&key).expect("it was there");
                self.model.insert((dir, other), moved);
            }
            _ => self.look(&key).await,
        }
    }

    /// Looks at what one of its names leads to.
    async fn look(&self, (dir, name): &(InodeNumber, String)) {
        let who = caller(self.number, 0);
        let found = match self.mount.walk(&who, *dir, name, true).await {
            Err(error) => Err(error.status),
            Ok(node) if !self.model.get(&(*dir, name.clone())).is_some_and(|led| matches!(led, Led::File(_))) => {
                Ok(self.mount.stat(node).await.map(|_| Led::Directory).expect("it is there"))
            }
            Ok(_) => {
                let file = self.mount.open(&who, *dir, name, how(Rights::READ)).await.expect("it is there");
                let read = self.mount.read(file).await.expect("it is read");
                self.mount.release(file.opened.number).await;
                assert_eq!(read, content(number_of(&read)), "{name}");
                Ok(Led::File(number_of(&read)))
            }
        };
        let expected = self.model.get(&(*dir, name.clone())).copied().ok_or(Status::NotFound);
        assert_eq!(found, expected, "{name}");
    }
}

/// Flows of one mount, or of both, with faults in every second seed.
pub(super) fn run(seed: u64) {
    let mut world = World::new(seed, None);
    if !seed.is_multiple_of(3) {
        world.takes_small_files();
    }
    let dirs = Rc::new(world.alone(0, move |mount| async move { vec![made_dir(&mount, seed.is_multiple_of(5)).await, ROOT] }));
    if seed % 2 == 1 {
        world.plan_faults();
    }
    let per_mount = [2 + seed % 7, [0, 1, 3][(seed / 7 % 3) as usize]];
    let mut flows = Vec::new();
    for (at, count) in per_mount.into_iter().enumerate() {
        for number in 0..count {
            let mount = world.mounts[at].clone();
            let prefix = format!("m{at}f{number}-");
            let flow = Flow { mount: mount.clone(), prefix, number: number as u32, dirs: dirs.clone(), model: Model::new() };
            flows.push(world.sim.spawn_on(mount.node, |_| flow.run()));
        }
    }
    let mut expected: Vec<(InodeNumber, String)> = world.run(flows).into_iter().flat_map(|model| model.into_keys()).collect();
    expected.sort();
    world.sim.run_for(SECOND);
    for at in 0..2 {
        let dirs = dirs.clone();
        let found = world.alone(at, move |mount| async move {
            let mut found = Vec::new();
            for dir in dirs.iter() {
                let names = mount.list(&caller(9, 0), *dir, true, 7).await.expect("it is listed");
                found.extend(names.into_iter().filter(|name| name.starts_with('m')).map(|name| (*dir, name)));
            }
            found.sort();
            found
        });
        assert_eq!(found, expected, "seed {seed}, mount {at}");
    }
}

/// `WEFT_AT_ONCE_SEEDS=100..200` runs others.
#[test]
fn flows_at_once_see_what_they_have_done() {
    seeds_of("WEFT_AT_ONCE_SEEDS", 0..40).for_each(run);
}
