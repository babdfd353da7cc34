//! Names that a mount removes without asking, in directories that are delegated to it.

use weft_base::{MILLISECOND, Status};
use weft_posix::InodeNumber;
use weft_sim_tests::mount::{Mount, caller, how};
use weft_wire::Rights;

use super::delayed::{closed_in, rest, world};
use super::delegated::{made_dir, made_files, names};
use super::{ROOT, World, content};

/// How many files are removed.
const FILES: u32 = 100;

/// Removes files as `rm -r` does, and says how many requests that takes.
async fn remove_files(mount: &Mount, dir: InodeNumber, files: u32) -> u64 {
    let before = mount.posix.stats().requests;
    mount.list(&caller(1, 0), dir, true, 7).await.expect("it is listed");
    for number in 0..files {
        mount.remove(&caller(1, 0), dir, &format!("f{number}"), false).await.expect("it is there");
        // As the kernel does after each change.
        mount.stat(dir).await.expect("it is there");
    }
    rest(mount, 20 * MILLISECOND).await;
    mount.posix.stats().requests - before
}

#[test]
fn removals_are_a_share_of_a_message() {
    // Made by this mount just now, and by another one that does not use them.
    for maker in [0, 1] {
        let world = world();
        let dir = world.alone(maker, |mount| async move { made_files(&mount, FILES).await });
        world.sim.run_for(400 * MILLISECOND);
        let requests = world.alone(0, move |mount| async move { remove_files(&mount, dir, FILES).await });
        assert!(requests <= if maker == 0 { 20 } else { 60 }, "{requests} requests where mount {maker} has made them");
        let (left, attr) =
            world.alone(1, move |mount| async move { (names(&mount, dir).await, mount.stat(dir).await.expect("it is there")) });
        // Each name was made once and removed once.
        assert!(left.is_empty() && (attr.size, attr.version) == (0, 1 + 2 * u64::from(FILES)), "{left:?} {attr:?}");
    }
}

/// A tree that was made and is removed costs a share of a message for each directory, too.
#[test]
fn directories_are_removed_without_asking() {
    let world = world();
    let (top, requests) = world.alone(0, |mount| async move {
        let (top, who) = (made_files(&mount, 2).await, caller(1, 0).who);
        let mut here = Vec::new();
        for number in 0..60 {
            let name = format!("d{number}");
            let node = mount.posix.mkdir(&who, top, name.as_bytes(), 0o755).await.expect("a new directory").node;
            if node.handle().server() == top.handle().server() {
                closed_in(&mount, node, "f0", &content(1)).await;
                here.push((name, node));
            }
        }
        rest(&mount, 200 * MILLISECOND).await;
        let (last, node) = here.pop().expect("names go to all servers");
        let before = mount.posix.stats().requests;
        for (name, node) in &here {
            mount.remove(&caller(1, 0), *node, "f0", false).await.expect("it is there");
            mount.remove(&caller(1, 0), top, name, true).await.expect("it is empty");
        }
        let requests = mount.posix.stats().requests - before;
        let refused = mount.posix.rmdir(&who, top, last.as_bytes()).await;
        assert_eq!(refused.map_err(|error| error.status), Err(Status::NotEmpty));
        mount.remove(&caller(1, 0), node, "f0", false).await.expect("it is there");
        mount.remove(&caller(1, 0), top, &last, true).await.expect("it is empty");
        // Who holds it sees that it has gone.
        assert_eq!(mount.stat(node).await.expect("it is held").nlink, 0);
        let gone = mount.create(&caller(1, 0), node, "late", 0o644).await;
        assert_eq!(gone.map(drop).map_err(|error| error.status), Err(Status::NotFound));
        assert!(here.len() > 20, "{}", here.len());
        (top, requests)
    });
    assert!(requests <= 3, "{requests} requests");
    let found = world.alone(1, move |mount| async move { mount.stat(top).await.expect("it is there").nlink });
    assert!(found < 40, "{found}");
}

#[test]
fn promise_absorbed_removals_are_seen() {
    let world = world();
    let dir = world.alone(0, |mount| async move { made_files(&mount, FILES).await });
    // Somebody has one of them open, and another has one more name.
    let open = world.alone(1, move |mount| async move {
        let dirs = mount.walk(&caller(2, 0), dir, "f1", false).await.expect("it is there");
        mount.posix.link(&caller(2, 0).who, dirs, ROOT, b"linked").await.expect("a second name");
        mount.open(&caller(2, 0), dir, "f0", how(Rights::READ)).await.expect("it opens")
    });
    world.alone(0, move |mount| async move { remove_files(&mount, dir, 60).await });
    for round in 60..FILES {
        let name = format!("f{round}");
        let removed = name.clone();
        world.alone(0, move |mount| async move {
            mount.remove(&caller(1, 0), dir, &removed, false).await.expect("it is there");
            let gone = mount.walk(&caller(1, 0), dir, &removed, true).await;
            assert_eq!(gone.map_err(|error| error.status), Err(Status::NotFound));
        });
        let found = world.alone(1, move |mount| async move { mount.walk(&caller(2, 0), dir, &name, true).await });
        assert_eq!(found.map_err(|error| error.status), Err(Status::NotFound), "{round}");
    }
    world.alone(1, move |mount| async move {
        assert!(names(&mount, dir).await.is_empty());
        assert!(mount.read(open).await.expect("it is open") == content(0));
        mount.release(open.opened.number).await;
        let linked = mount.walk(&caller(2, 0), ROOT, "linked", false).await.expect("it has this name");
        assert_eq!(mount.stat(linked).await.expect("it is there").nlink, 1);
    });
}

/// A server that begins anew does what it was told once.
#[test]
fn a_restart_loses_no_removals() {
    for seed in 0..8 {
        let world = World::new(700 + seed, None);
        world.takes_small_files();
        let dir = world.alone(0, |mount| async move {
            let dir = made_dir(&mount, false).await;
            for number in 0..FILES {
                closed_in(&mount, dir, &format!("f{number}"), &content(number % 4)).await;
            }
            dir
        });
        let mount = world.mounts[0].clone();
        let removed = world.sim.spawn_on(mount.node, move |_| async move {
            for number in 0..FILES {
                let name = format!("f{number}");
                mount.remove(&caller(1, 0), dir, &name, false).await.expect("it is there");
                // Each second one comes back, as another file.
                if number % 2 == 1 {
                    closed_in(&mount, dir, &name, &content(3)).await;
                }
            }
        });
        for server in world.cluster.map().meta.iter().map(|entry| world.sim.node_of(entry.id).expect("it runs")) {
            world.sim.run_for(seed * MILLISECOND / 2);
            world.sim.crash(server);
            world.sim.run_for(300 * MILLISECOND);
            world.sim.restart(server);
        }
        world.run(vec![removed]);
        let expected: Vec<String> = (0..FILES).filter(|number| number % 2 == 1).map(|number| format!("f{number}")).collect();
        let found = world.alone(1, move |mount| async move { names(&mount, dir).await });
        assert_eq!(found, expected, "seed {seed}");
        assert!(world.mounts[0].lines().iter().all(|line| !line.contains("lost")), "{:?}", world.mounts[0].lines());
    }
}
