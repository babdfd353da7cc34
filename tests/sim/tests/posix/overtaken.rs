//! Files that a mount makes without asking, while others remove their directory or ask for it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use weft_base::Status;
use weft_posix::InodeNumber;
use weft_rt::Runtime;
use weft_sim_tests::mount::{Mount, caller};

use super::delayed::rest;
use super::{ROOT, World};

/// Files made, and not removed since, of which programs know; and directories that were removed.
#[derive(Default)]
struct Made {
    files: BTreeSet<(InodeNumber, String)>,
    dir: Option<InodeNumber>,
    removals: u32,
}

/// A program makes files in a directory while another one of the same mount removes that.
#[test]
fn a_directory_that_is_removed_has_no_file() {
    for seed in 0..40 {
        let world = World::new(500 + seed, None);
        let made = Rc::new(RefCell::new(Made::default()));
        let mount = &world.mounts[0];
        let makes = world.sim.spawn_on(mount.node, |_| make_in_turns(mount.clone(), made.clone()));
        let removes = world.sim.spawn_on(mount.node, |_| remove_in_turns(mount.clone(), made.clone()));
        world.run(vec![makes, removes]);
        let Made { files, removals, .. } = made.take();
        assert!(removals > 3, "seed {seed}: {removals} directories");
        world.alone(1, move |mount| async move {
            for (dir, name) in files {
                let found = mount.walk(&caller(3, 0), dir, &name, true).await;
                assert!(found.is_ok(), "seed {seed}: {name} of {dir:?} was made: {found:?}");
            }
        });
        let mount = &world.mounts[0];
        assert!(mount.lines().iter().all(|line| !line.contains("is lost")), "seed {seed}: {:?}", mount.lines());
    }
}

async fn make_in_turns(mount: Mount, made: Rc<RefCell<Made>>) {
    let who = caller(1, 0);
    for round in 0..40 {
        let dir = match mount.posix.mkdir(&who.who, ROOT, b"d", 0o755).await {
            Ok(shown) => shown.node,
            Err(_) => mount.walk(&who, ROOT, "d", true).await.unwrap_or(ROOT),
        };
        if dir == ROOT {
            continue;
        }
        made.borrow_mut().dir = Some(dir);
        for number in 0..6 {
            let name = format!("f{round}.{number}");
            if let Ok(file) = mount.create(&who, dir, &name, 0o644).await {
                made.borrow_mut().files.insert((dir, name));
                mount.release(file.opened.number).await;
            }
            rest(&mount, mount.posix.rt().random() % 300_000).await;
        }
    }
}

async fn remove_in_turns(mount: Mount, made: Rc<RefCell<Made>>) {
    let who = caller(2, 0).who;
    for _ in 0..1500 {
        rest(&mount, mount.posix.rt().random() % 20_000).await;
        let Some(dir) = made.borrow().dir else { continue };
        let files: Vec<_> = made.borrow().files.iter().filter(|(of, _)| *of == dir).cloned().collect();
        for file in files {
            if mount.posix.unlink(&who, dir, file.1.as_bytes()).await.is_ok() {
                made.borrow_mut().files.remove(&file);
            }
        }
        if mount.posix.rmdir(&who, ROOT, b"d").await.is_ok() {
            made.borrow_mut().removals += 1;
        }
    }
}

/// Another mount asks for a directory while it is being granted.
#[test]
fn a_grant_that_is_overtaken_is_given_back() {
    for seed in 0..20 {
        let world = World::new(600 + seed, None);
        let made = Rc::new(RefCell::new(Made::default()));
        let (one, two) = (world.mounts[0].clone(), world.mounts[1].clone());
        let shared = made.clone();
        let makes = world.sim.spawn_on(one.node, move |_| async move {
            for round in 0..60 {
                let name = format!("d{round}");
                let dir = one.posix.mkdir(&caller(1, 0).who, ROOT, name.as_bytes(), 0o755).await.expect("a new directory").node;
                shared.borrow_mut().dir = Some(dir);
                for number in 0..5 {
                    let name = format!("f{number}");
                    let file = one.create(&caller(1, 0), dir, &name, 0o644).await.expect("a new file");
                    shared.borrow_mut().files.insert((dir, name));
                    one.release(file.opened.number).await;
                }
            }
            shared.borrow_mut().dir = Some(ROOT);
        });
        let looks = world.sim.spawn_on(two.node, move |_| async move {
            loop {
                let Some(dir) = made.borrow().dir else {
                    rest(&two, 10_000).await;
                    continue;
                };
                if dir == ROOT {
                    return;
                }
                let newest = made.borrow().files.iter().rfind(|(of, _)| *of == dir).cloned();
                let name = newest.as_ref().map_or("f0", |(_, name)| name);
                let found = two.walk(&caller(2, 0), dir, name, true).await;
                assert!(found.is_ok() || newest.is_none(), "seed {seed}: {name} of {dir:?} was made: {found:?}");
                rest(&two, two.posix.rt().random() % 100_000).await;
            }
        });
        world.run(vec![makes, looks]);
        let lines = world.mounts[0].lines();
        assert!(lines.iter().all(|line| !line.contains("is lost")), "seed {seed}: {lines:?}");
    }
}

/// Several programs of one mount make the same names in a directory that another mount has made.
/// Its names are listed meanwhile, so that files can be made without asking: each name is made
/// once.
#[test]
fn names_that_are_being_made_are_not_taken_for_free() {
    for seed in 0..30 {
        let world = World::new(700 + seed, None);
        let dir = world.alone(1, |mount| async move {
            mount.posix.mkdir(&caller(1, 0).who, ROOT, b"of-others", 0o755).await.expect("a new one").node
        });
        let mount = &world.mounts[0];
        let programs: Vec<_> = (1..4)
            .map(|thread| {
                let mount = mount.clone();
                world.sim.spawn_on(mount.node, move |rt| async move {
                    let mut made = Vec::new();
                    for number in 0..60 {
                        let name = format!("f{number}");
                        match mount.create(&caller(thread, 0), dir, &name, 0o644).await {
                            Ok(file) => {
                                mount.release(file.opened.number).await;
                                made.push(number);
                            }
                            Err(error) => assert_eq!(error.status, Status::Exists, "{name}"),
                        }
                        rt.sleep_until(rt.now() + rt.random() % 30_000).await;
                    }
                    made
                })
            })
            .collect();
        let mut made: Vec<i32> = world.run(programs).into_iter().flatten().collect();
        made.sort_unstable();
        assert_eq!(made, (0..60).collect::<Vec<_>>(), "seed {seed}");
    }
}
