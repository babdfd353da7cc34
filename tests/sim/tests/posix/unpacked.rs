//! Directories that a mount makes without asking, and what it sets of them, as programs do that
//! unpack archives.

use weft_base::{Attr, MILLISECOND, SECOND, Status, WallTime};
use weft_client::SetAttr;
use weft_posix::InodeNumber;
use weft_sim_tests::mount::{Mount, caller};
use weft_wire::ops::SetTime;

use super::delayed::{closed_in, world};
use super::delegated::{expected, made_dir, made_files, names};
use super::{ROOT, World, content};

/// A directory by its name in another one, and what was told of it.
type Unpacked = (InodeNumber, String, Attr);

/// A tree as an archive has it: directories in directories, whose attributes are set when their
/// files are there.
async fn unpack(mount: &Mount, top: InodeNumber, directories: u32, files: u32) -> Vec<Unpacked> {
    let who = caller(1, 0).who;
    let (mut dir, mut unpacked) = (top, Vec::new());
    for number in 0..directories {
        let name = format!("d{number}");
        let inner = mount.posix.mkdir(&who, dir, name.as_bytes(), 0o700).await.expect("a new directory").node;
        for number in 0..files {
            closed_in(mount, inner, &format!("f{number}"), &content(number % 4)).await;
        }
        let at = |seconds: i64| Some(SetTime { at: Some(WallTime(seconds * SECOND as i64)) });
        let times = SetAttr { atime: at(5), mtime: at(i64::from(number)), ..SetAttr::default() };
        let owner = SetAttr { uid: Some(0), gid: Some(0), ..SetAttr::default() };
        let mode = SetAttr { mode: Some(0o750 + number % 6), ..SetAttr::default() };
        for change in [times, owner, mode] {
            mount.posix.setattr(&who, inner, &change).await.expect("it is set");
        }
        unpacked.push((dir, name, mount.stat(inner).await.expect("it is there")));
        dir = if number % 3 == 2 { inner } else { dir };
    }
    unpacked
}

/// What is told of them now: those in which others were made since have other times and links.
async fn told_now(mount: &Mount, unpacked: &mut [Unpacked]) {
    for (dir, name, attr) in unpacked {
        let node = mount.walk(&caller(1, 0), *dir, name, false).await.expect("it is found");
        *attr = mount.stat(node).await.expect("it is there");
    }
}

/// What was told of directories is what everybody else finds, for ever.
async fn check_unpacked(mount: &Mount, unpacked: &[Unpacked]) {
    for (dir, name, before) in unpacked {
        let node = mount.walk(&caller(2, 0), *dir, name, true).await.expect("it is found");
        let now = mount.stat(node).await.expect("it is there");
        let of = |attr: &Attr| (attr.handle, attr.kind, attr.mode, attr.uid, attr.gid, attr.nlink, attr.size, attr.layout);
        let times = |attr: &Attr| (attr.atime, attr.mtime, attr.ctime, attr.born);
        assert_eq!((of(&now), times(&now), now.version), (of(before), times(before), before.version), "{name}");
    }
}

#[test]
fn directories_of_an_archive_are_a_share_of_a_message() {
    let world = world();
    let (unpacked, requests, changes) = world.alone(0, |mount| async move {
        let top = made_dir(&mount, false).await;
        closed_in(&mount, top, "first", &content(1)).await;
        let before = mount.posix.stats().requests;
        let mut unpacked = unpack(&mount, top, 40, 3).await;
        let requests = mount.posix.stats().requests - before;
        told_now(&mount, &mut unpacked).await;
        (unpacked, requests, 40 * (1 + 3 + 3))
    });
    // Of two metadata servers each second directory is with the other one: that one is asked for,
    // and so are its first two files.
    assert!(requests <= 130, "{requests} requests for {changes} changes");
    for number in [1, 0] {
        let unpacked = unpacked.clone();
        world.alone(number, move |mount| async move { check_unpacked(&mount, &unpacked).await });
    }
    assert!(world.mounts.iter().all(|mount| mount.lines().iter().all(|line| !line.contains("is lost"))));
}

/// A server that begins anew knows what it was told, and is told the rest.
#[test]
fn a_restart_loses_no_directories() {
    for seed in 0..6 {
        let world = World::new(400 + seed, None);
        world.takes_small_files();
        let unpacked = world.alone(0, |mount| async move {
            let top = made_dir(&mount, false).await;
            closed_in(&mount, top, "first", &content(1)).await;
            let mut unpacked = unpack(&mount, top, 20, 2).await;
            told_now(&mount, &mut unpacked).await;
            unpacked
        });
        for server in world.cluster.map().meta.iter().map(|entry| world.sim.node_of(entry.id).expect("it runs")) {
            world.sim.crash(server);
            world.sim.run_for(seed * 300 * MILLISECOND);
            world.sim.restart(server);
        }
        world.alone(1, move |mount| async move { check_unpacked(&mount, &unpacked).await });
        assert!(world.mounts[0].lines().iter().all(|line| !line.contains("lost")), "{:?}", world.mounts[0].lines());
    }
}

/// The first directory in one that is delegated asks for the cluster map, and waits for it as long
/// as for anything else.
#[test]
fn the_first_directory_waits_for_servers_that_restart() {
    let world = world();
    let dir = world.alone(0, |mount| async move { made_files(&mount, 3).await });
    let servers = world.cluster.map().meta.iter().map(|entry| world.sim.node_of(entry.id).expect("it runs"));
    let servers: Vec<_> = servers.collect();
    servers.iter().for_each(|server| world.sim.crash(*server));
    let mount = world.mounts[0].clone();
    let made = world.sim.spawn_on(mount.node, move |_| async move {
        let made = mount.posix.mkdir(&caller(1, 0).who, dir, b"inner", 0o755).await;
        made.map(drop).map_err(|error| error.to_string())
    });
    world.sim.run_for(5 * SECOND);
    servers.iter().for_each(|server| world.sim.restart(*server));
    assert_eq!(world.run(vec![made]), [Ok(())]);
}

/// Who was silent for long has not made directories where others were told that there are none, nor
/// anything in them.
#[test]
fn a_silent_mount_brings_no_directories_late() {
    let world = world();
    let (dir, name) = world.alone(0, |mount| async move {
        let (dir, who) = (made_files(&mount, 2).await, caller(1, 0).who);
        // One that belongs to the same server.
        for number in 0.. {
            let name = format!("late{number}");
            let made = mount.posix.mkdir(&who, dir, name.as_bytes(), 0o755).await.expect("a new directory").node;
            mount.posix.rmdir(&who, dir, name.as_bytes()).await.expect("it is empty");
            if made.handle().server() == dir.handle().server() {
                return (dir, name);
            }
        }
        unreachable!("names go to all servers")
    });
    world.sim.run_for(20 * MILLISECOND);
    for server in world.cluster.servers() {
        world.sim.partition(world.mounts[0].node, *server, 40 * SECOND);
    }
    let again = name.clone();
    let node = world.alone(0, move |mount| async move {
        let made = mount.posix.mkdir(&caller(1, 0).who, dir, again.as_bytes(), 0o755).await.expect("it is made without asking");
        let inside = mount.create(&caller(1, 0), made.node, "inside", 0o644).await.expect("so is this");
        mount.release(inside.opened.number).await;
        made.node
    });
    world.alone(1, move |mount| async move {
        let found = mount.walk(&caller(2, 0), dir, &name, true).await;
        assert_eq!(found.map_err(|error| error.status), Err(Status::NotFound));
        assert_eq!(names(&mount, dir).await, expected(2));
    });
    world.sim.run_for(60 * SECOND);
    for number in [0, 1] {
        world.alone(number, move |mount| async move {
            assert_eq!(names(&mount, dir).await, expected(2), "of mount {number}");
            let found = mount.stat(node).await;
            assert_eq!(found.map(drop).map_err(|error| error.status), Err(Status::Stale), "of mount {number}");
        });
    }
    assert!(world.mounts[0].lines().iter().any(|line| line.contains("is lost")), "{:?}", world.mounts[0].lines());
}

/// The last one decides what the time of a directory is: who sets it, or who changes a name in it.
#[test]
fn the_last_change_of_a_directory_says_its_time() {
    for renames_last in [true, false] {
        let world = world();
        let (dir, shown) = world.alone(0, move |mount| async move {
            let (dir, user) = (made_files(&mount, 3).await, caller(1, 0));
            let inner = mount.posix.mkdir(&user.who, dir, b"inner", 0o755).await.expect("a new directory").node;
            let file = mount.create(&user, dir, "a", 0o644).await.expect("a new file");
            let set = SetAttr { mtime: Some(SetTime { at: Some(WallTime(5)) }), ..SetAttr::default() };
            for renames in [!renames_last, renames_last] {
                match renames {
                    true => mount.rename(&user, dir, "a", "b").await.expect("it is there"),
                    false => drop(mount.posix.setattr(&user.who, dir, &set).await.expect("it is set")),
                }
            }
            mount.release(file.opened.number).await;
            let shown = mount.stat(dir).await.expect("it is there");
            assert_eq!(shown.mtime == WallTime(5), !renames_last);
            assert_eq!(mount.stat(inner).await.expect("it is there").size, 0);
            (dir, shown)
        });
        for number in [1, 0] {
            let now = world.alone(number, move |mount| async move { mount.stat(dir).await.expect("it is there") });
            assert_eq!((now.mtime, now.size, now.nlink), (shown.mtime, shown.size, shown.nlink), "of mount {number}");
        }
    }
}

/// Each first file of many directories was answered with handles, and the server forgot the first
/// of them: what was made with those was lost after it was closed.
#[test]
fn the_first_files_of_many_directories_may_be_made_at_once() {
    let world = world();
    let dirs = world.alone(0, |mount| async move {
        let mut dirs = Vec::new();
        for number in 0..40 {
            let made = mount.posix.mkdir(&caller(1, 0).who, ROOT, format!("d{number}").as_bytes(), 0o755).await;
            dirs.push(made.expect("a new directory").node);
        }
        dirs
    });
    let makers = dirs.iter().map(|dir| {
        let (mount, dir) = (world.mounts[0].clone(), *dir);
        world.sim.spawn_on(mount.node, move |_| async move {
            for number in 0..20 {
                closed_in(&mount, dir, &format!("f{number}"), &content(1)).await;
            }
        })
    });
    world.run(makers.collect());
    world.alone(1, |mount| async move {
        for dir in dirs {
            assert_eq!(names(&mount, dir).await, expected(20));
        }
    });
}
