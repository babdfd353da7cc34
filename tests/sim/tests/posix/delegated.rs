//! Files that a mount makes without asking, in directories that nobody else knows: others see them
//! at once, and what was made is there as if its server had been asked.

use weft_base::{FileKind, Handle, MILLISECOND, SECOND, Status, WallTime};
use weft_client::{RenameFlags, SetAttr, XattrFlags};
use weft_posix::InodeNumber;
use weft_rt::Runtime;
use weft_sim_tests::cluster::Durability;
use weft_sim_tests::mount::{Mount, caller, how};
use weft_wire::Rights;
use weft_wire::ops::SetTime;

use super::delayed::{closed_in, rest, world};
use super::{ROOT, World, content};

/// How many files each program makes.
const FILES: u32 = 40;

/// A directory at the server of its parent, or at the other one.
pub(super) async fn made_dir(mount: &Mount, far: bool) -> InodeNumber {
    for number in 0.. {
        let name = format!("d{number}");
        let Ok(shown) = mount.posix.mkdir(&caller(1, 0).who, ROOT, name.as_bytes(), 0o755).await else { continue };
        if (shown.node.handle().server() != ROOT.handle().server()) == far {
            return shown.node;
        }
    }
    unreachable!("names go to all servers")
}

/// Makes files in a new directory.
pub(super) async fn made_files(mount: &Mount, files: u32) -> InodeNumber {
    let dir = made_dir(mount, false).await;
    for number in 0..files {
        closed_in(mount, dir, &format!("f{number}"), &content(number % 4)).await;
    }
    dir
}

/// Files of which the server of the directory knows, as far as its own files say.
pub(super) async fn names(mount: &Mount, dir: InodeNumber) -> Vec<String> {
    let mut names = mount.list(&caller(2, 0), dir, true, 7).await.expect("it is listed");
    names.sort_by_key(|name| name.trim_start_matches('f').parse::<u32>().ok());
    names.retain(|name| name.starts_with('f'));
    names
}

pub(super) fn expected(files: u32) -> Vec<String> {
    (0..files).map(|number| format!("f{number}")).collect()
}

#[test]
fn files_of_an_own_directory_are_a_share_of_a_message() {
    for (far, bytes) in [(false, 0), (true, 0), (false, 700)] {
        let requests = world().alone(0, move |mount| async move {
            let dir = made_dir(&mount, far).await;
            let before = mount.posix.stats().requests;
            for number in 0..120 {
                let file = mount.create(&caller(1, 0), dir, &format!("f{number}"), 0o644).await.expect("a new file");
                if bytes > 0 {
                    mount.write(&caller(1, 0), file, 0, &vec![7; bytes], false).await.expect("it is written");
                }
                assert_eq!(mount.stat(file.node).await.expect("it is there").size, bytes as u64);
                mount.stat(dir).await.expect("it is there");
                mount.release(file.opened.number).await;
            }
            rest(&mount, 20 * MILLISECOND).await;
            mount.posix.stats().requests - before
        });
        // The first ones ask; the others are told of, and closed, many with one message.
        assert!(requests <= 20, "{requests} requests");
    }
}

/// A directory that another mount has made and used: who makes many files in it, and nobody else
/// asks, gets it after some, as its names are few enough to be listed. The other one hears of it.
#[test]
fn files_in_a_directory_of_others_become_a_share_of_a_message() {
    let world = world();
    let dir = world.alone(1, |mount| async move {
        let dir = made_dir(&mount, false).await;
        for number in 0..20 {
            closed_in(&mount, dir, &format!("of-others{number}"), &content(number % 4)).await;
        }
        mount.list(&caller(1, 0), dir, true, 7).await.expect("it is listed");
        dir
    });
    let requests = world.alone(0, move |mount| async move {
        let before = mount.posix.stats().requests;
        for number in 0..200 {
            let file = mount.create(&caller(1, 0), dir, &format!("f{number}"), 0o644).await.expect("a new file");
            mount.release(file.opened.number).await;
        }
        rest(&mount, 20 * MILLISECOND).await;
        mount.posix.stats().requests - before
    });
    assert!(requests <= 60, "{requests} requests");
    let found = world.alone(1, move |mount| async move { names(&mount, dir).await });
    assert_eq!(found, expected(200));
}

/// As programs do that replace files whole.
#[test]
fn a_temporary_name_costs_no_message_either() {
    let world = world();
    let (dir, shown, requests) = world.alone(0, |mount| async move {
        let dir = made_dir(&mount, false).await;
        let before = mount.posix.stats().requests;
        for number in 0..FILES {
            let temporary = format!(".f{number}.tmp");
            let file = mount.create(&caller(1, 0), dir, &temporary, 0o644).await.expect("a new file");
            mount.write(&caller(1, 0), file, 0, &content(number % 4), false).await.expect("it is written");
            mount.rename(&caller(1, 0), dir, &temporary, &format!("f{number}")).await.expect("it is there");
            let gone = mount.walk(&caller(1, 0), dir, &temporary, true).await;
            assert_eq!(gone.map_err(|error| error.status), Err(Status::NotFound));
            mount.release(file.opened.number).await;
        }
        let shown = mount.stat(dir).await.expect("it is there");
        rest(&mount, 20 * MILLISECOND).await;
        (dir, shown, mount.posix.stats().requests - before)
    });
    assert!(requests <= 20, "{requests} requests");
    let (found, now) = world.alone(1, move |mount| async move { (names(&mount, dir).await, mount.stat(dir).await.expect("it is there")) });
    assert_eq!(found, expected(FILES));
    assert_eq!((now.size, now.mtime, now.ctime), (shown.size, shown.mtime, shown.ctime));
}

#[test]
fn promise_absorbed_creates_are_seen() {
    let world = world();
    let dir = world.alone(0, |mount| async move { made_files(&mount, FILES).await });
    let (names, took) = world.alone(1, move |mount| async move {
        let begun = mount.posix.rt().now();
        let names = names(&mount, dir).await;
        (names, mount.posix.rt().now().since(begun))
    });
    assert_eq!(names, expected(FILES));
    // Others wait for the mount to tell, and to give the directory back.
    assert!(took < 5 * MILLISECOND, "{took} ns");
    let size = world.alone(1, move |mount| async move { mount.stat(dir).await.expect("it is there").size });
    assert_eq!(size, u64::from(FILES));
    // The mount that made a file hears what others do to it.
    for number in 0..4 {
        let node = world.alone(1, move |mount| async move {
            let node = mount.walk(&caller(2, 0), dir, &format!("f{number}"), false).await.expect("it is found");
            mount.chmod(&caller(2, 0), node, 0o600 + number).await.expect("it is changed");
            node
        });
        let mode = world.alone(0, move |mount| async move { mount.stat(node).await.expect("it is there").mode });
        assert_eq!(mode & 0o777, 0o600 + number);
    }
    for number in [0, 1] {
        world.alone(number, move |mount| async move {
            for number in 0..FILES {
                let file = mount.open(&caller(2, 0), dir, &format!("f{number}"), how(Rights::READ)).await.expect("it opens");
                assert!(mount.read(file).await.expect("it is read") == content(number % 4), "f{number}");
                mount.release(file.opened.number).await;
            }
        });
    }
}

/// Attributes are those that the mount that made a file has shown, for everybody and for ever.
#[test]
fn what_was_told_of_a_file_stays_true() {
    let world = world();
    let (dir, shown) = world.alone(0, |mount| async move {
        let dir = made_dir(&mount, false).await;
        let mut shown = Vec::new();
        for number in 0..FILES {
            let file = mount.create(&caller(1, 0), dir, &format!("f{number}"), 0o640).await.expect("a new file");
            shown.push(mount.stat(file.node).await.expect("it is there"));
            mount.release(file.opened.number).await;
            rest(&mount, 100_000).await;
        }
        (dir, shown)
    });
    for number in [1, 0] {
        world.sim.run_for(30 * MILLISECOND);
        let shown = shown.clone();
        world.alone(number, move |mount| async move {
            for (number, before) in shown.iter().enumerate() {
                let node = mount.walk(&caller(2, 0), dir, &format!("f{number}"), true).await.expect("it is found");
                let now = mount.stat(node).await.expect("it is there");
                let of =
                    |attr: &weft_base::Attr| (attr.handle, attr.mode, attr.uid, attr.gid, attr.nlink, attr.size, attr.mtime, attr.ctime);
                assert_eq!((of(&now), now.layout, now.born), (of(before), before.layout, before.born));
            }
        });
    }
}

#[test]
fn a_restart_of_the_server_loses_nothing() {
    for down_ns in [MILLISECOND, 500 * MILLISECOND] {
        let world = world();
        let dir = world.alone(0, |mount| async move { made_files(&mount, FILES).await });
        let meta = world.sim.node_of(dir.handle().server()).expect("it runs");
        world.sim.crash(meta);
        world.sim.run_for(down_ns);
        world.sim.restart(meta);
        let found = world.alone(1, move |mount| async move { names(&mount, dir).await });
        assert_eq!(found, expected(FILES));
        assert!(world.mounts[0].lines().iter().all(|line| !line.contains("lost")), "{:?}", world.mounts[0].lines());
    }
}

/// What a mount that dies has not told of is gone: the last files, and nobody waits long.
#[test]
fn promise_a_dead_mount_leaves_a_beginning() {
    let world = world();
    let dir = world.alone(0, |mount| async move { made_files(&mount, FILES).await });
    world.sim.crash(world.mounts[0].node);
    let (found, waited) = world.alone(1, move |mount| async move {
        let begun = mount.posix.rt().now();
        let found = names(&mount, dir).await;
        (found, mount.posix.rt().now().since(begun))
    });
    assert_eq!(found, expected(found.len() as u32), "a beginning of what was made");
    assert!(waited < 12 * SECOND, "{waited} ns");
}

/// A mount that nobody has heard of for long does not bring files into a directory in which others
/// were told that there are none; it says so.
#[test]
fn a_silent_mount_brings_nothing_late() {
    let world = world();
    let dir = world.alone(0, |mount| async move { made_files(&mount, 2).await });
    world.sim.run_for(20 * MILLISECOND);
    for server in world.cluster.servers() {
        world.sim.partition(world.mounts[0].node, *server, 40 * SECOND);
    }
    let late =
        world.alone(0, move |mount| async move { mount.create(&caller(1, 0), dir, "late", 0o644).await.map(|file| file.opened.number) });
    let file = late.expect("it is made without asking");
    world.alone(1, move |mount| async move {
        let found = mount.walk(&caller(2, 0), dir, "late", true).await;
        assert_eq!(found.map_err(|error| error.status), Err(Status::NotFound));
        mount.create(&caller(2, 0), dir, "late", 0o600).await.expect("nobody else has made it");
    });
    world.sim.run_for(60 * SECOND);
    world.alone(0, move |mount| async move {
        mount.release(file).await;
        let node = mount.walk(&caller(1, 0), dir, "late", true).await.expect("there is another one");
        assert_eq!(mount.stat(node).await.expect("it is there").mode & 0o777, 0o600);
    });
    assert!(world.mounts[0].lines().iter().any(|line| line.contains("is lost")), "{:?}", world.mounts[0].lines());
}

async fn name_of(mount: &Mount, dir: InodeNumber) -> String {
    for name in mount.list(&caller(2, 0), ROOT, false, 9).await.expect("it is listed") {
        if mount.walk(&caller(2, 0), ROOT, &name, true).await.is_ok_and(|node| node == dir) {
            return name;
        }
    }
    unreachable!("it has a name")
}

/// The first that others do is to remove the directory, which is empty as far as its server knows.
#[test]
fn others_do_not_remove_a_directory_with_files() {
    for flags in [None, Some(RenameFlags::default())] {
        let world = world();
        let (dir, name) = world.alone(0, |mount| async move {
            let dir = made_files(&mount, 1).await;
            (dir, name_of(&mount, dir).await)
        });
        // It was told of the first file: that one goes, and others are made without asking.
        world.alone(0, move |mount| async move {
            for number in 0..3 {
                mount.create(&caller(1, 0), dir, &format!("new{number}"), 0o644).await.expect("a new file");
            }
            mount.posix.unlink(&caller(1, 0).who, dir, b"f0").await.expect("it goes");
            for number in 3..6 {
                mount.create(&caller(1, 0), dir, &format!("new{number}"), 0o644).await.expect("a new file");
            }
            for number in 0..6 {
                mount.posix.unlink(&caller(1, 0).who, dir, format!("new{number}").as_bytes()).await.expect("it goes");
            }
            mount.create(&caller(1, 0), dir, "last", 0o644).await.expect("a new file");
        });
        let outcome = world.alone(1, move |mount| async move {
            let who = caller(2, 0).who;
            match flags {
                None => mount.posix.rmdir(&who, ROOT, name.as_bytes()).await,
                Some(flags) => {
                    mount.posix.mkdir(&who, ROOT, b"over", 0o755).await.expect("a new directory");
                    mount.posix.rename(&who, (ROOT, b"over"), (ROOT, name.as_bytes()), flags).await
                }
            }
        });
        assert_eq!(outcome.map_err(|error| error.status), Err(Status::NotEmpty));
    }
}

/// A name that comes from the directory of another server, and one that goes there.
#[test]
fn others_move_files_into_it_and_out_of_it() {
    let world = world();
    let dir = world.alone(0, |mount| async move {
        let dir = made_dir(&mount, true).await;
        for number in 0..9 {
            closed_in(&mount, dir, &format!("f{number}"), &content(number % 4)).await;
        }
        dir
    });
    world.alone(1, move |mount| async move {
        let who = caller(2, 0).who;
        closed_in(&mount, ROOT, "theirs", &content(3)).await;
        mount.posix.rename(&who, (ROOT, b"theirs"), (dir, b"taken"), RenameFlags::default()).await.expect("it is moved in");
        closed_in(&mount, ROOT, "theirs", &content(3)).await;
    });
    let made = world.alone(0, move |mount| async move { mount.create(&caller(1, 0), dir, "taken", 0o644).await.map(|file| file.node) });
    assert_eq!(made.map_err(|error| error.status), Err(Status::Exists));
    // The name is that of a file of which no server knows.
    let other = world.alone(0, |mount| async move {
        let dir = made_dir(&mount, true).await;
        for name in ["first", "second", "both"] {
            mount.create(&caller(1, 0), dir, name, 0o644).await.expect("a new file");
        }
        dir
    });
    let moved = world.alone(1, move |mount| async move {
        let flags = RenameFlags { no_replace: true, ..RenameFlags::default() };
        mount.posix.rename(&caller(2, 0).who, (ROOT, b"theirs"), (other, b"both"), flags).await
    });
    assert_eq!(moved.map_err(|error| error.status), Err(Status::Exists));
    assert!(world.mounts[0].lines().iter().all(|line| !line.contains("is lost")), "{:?}", world.mounts[0].lines());
    world.alone(1, move |mount| async move {
        let who = caller(2, 0).who;
        mount.posix.rename(&who, (dir, b"f8"), (ROOT, b"out"), RenameFlags::default()).await.expect("it is moved out");
        assert_eq!(names(&mount, dir).await, expected(8));
    });
}

/// What ends a directory, or changes what files in it are like, meets all files.
#[test]
fn what_is_done_to_the_directory_comes_after_its_files() {
    for other in [0, 1] {
        let world = world();
        let dir = world.alone(0, |mount| async move { made_files(&mount, 9).await });
        world.alone(other, move |mount| async move {
            let root = caller(2, 0).who;
            let name = name_of(&mount, dir).await;
            let removed = mount.posix.rmdir(&root, ROOT, name.as_bytes()).await;
            assert_eq!(removed.map_err(|error| error.status), Err(Status::NotEmpty));
            let (hint, value) = (b"user.weft.stripe_size", b"8192");
            mount.posix.set_xattr(&root, dir, hint, value, XattrFlags::default()).await.expect("it is set");
            let mode = SetAttr { mode: Some(0o700), ..SetAttr::default() };
            mount.posix.setattr(&root, dir, &mode).await.expect("it is set");
            assert_eq!(names(&mount, dir).await, expected(9));
        });
        world.alone(0, move |mount| async move {
            let file = mount.create(&caller(1, 0), dir, "striped", 0o644).await.expect("a new file");
            assert_eq!(mount.stat(file.node).await.expect("it is there").layout.stripe_bytes, 8192);
            let mut stranger = caller(3, 1000);
            stranger.who.checked_by_kernel = false;
            let made = mount.create(&stranger, dir, "not mine", 0o644).await;
            assert_eq!(made.map(|file| file.node).map_err(|error| error.status), Err(Status::AccessDenied));
        });
    }
}

/// A file is known by its handle before its server knows of it: by another gateway, for example.
#[test]
fn a_handle_that_came_another_way_is_found() {
    let world = world();
    let file = world.alone(0, |mount| async move {
        let dir = made_files(&mount, 3).await;
        mount.create(&caller(1, 0), dir, "handed over", 0o644).await.expect("a new file").node
    });
    world.alone(1, move |mount| async move {
        let attr = mount.posix.getattr(file).await.expect("it is there").attr;
        assert_eq!((attr.kind, attr.size), (FileKind::File, 0));
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        mount.posix.setattr(&caller(2, 0).who, file, &mode).await.expect("it is changed");
        let gone = InodeNumber::of(Handle(file.handle().0 + 1000));
        assert_eq!(mount.posix.getattr(gone).await.map(|shown| shown.node).map_err(|error| error.status), Err(Status::Stale));
    });
    let mode = world.alone(0, move |mount| async move { mount.stat(file).await.expect("it is there").mode });
    assert_eq!(mode & 0o777, 0o600, "the mount that has made it hears of that");
}

/// What was answered under `sync` is on stable storage, whatever happens to the mount.
#[test]
fn nothing_is_made_without_asking_under_sync() {
    let world = World::under(Durability::Sync, 21, None);
    world.takes_small_files();
    let dir = world.alone(0, |mount| async move { made_files(&mount, FILES).await });
    world.sim.crash(world.mounts[0].node);
    let found = world.alone(1, move |mount| async move { names(&mount, dir).await });
    assert_eq!(found, expected(FILES));
}

/// Two mounts that make, look for, move and remove files in directories of both, with faults.
#[test]
fn two_mounts_work_in_directories_of_each_other() {
    for seed in 0..24 {
        let mut world = World::new(300 + seed, None);
        world.takes_small_files();
        let dirs = [0, 1].map(|number| world.alone(number, move |mount| async move { made_dir(&mount, seed % 2 == 1).await }));
        if seed > 3 {
            world.plan_faults();
        }
        let flows = [0, 1].map(|number| {
            let mount = world.mounts[number].clone();
            world.sim.spawn_on(mount.node, move |_| work(mount, number, dirs))
        });
        let made = world.run(flows.into());
        world.sim.run_for(60 * SECOND);
        for number in [0, 1] {
            let made = made.clone();
            world.alone(number, move |mount| async move {
                for (index, dir) in dirs.into_iter().enumerate() {
                    let mut expected: Vec<String> = made.iter().flat_map(|made| made[index].clone()).collect();
                    let mut found = mount.list(&caller(2, 0), dir, true, 9).await.expect("it is listed");
                    found.retain(|name| !name.starts_with('.'));
                    expected.sort_unstable();
                    found.sort_unstable();
                    assert_eq!(found, expected, "seed {seed}");
                    for name in found.iter().filter(|name| name.starts_with(DIRECTORY)) {
                        let inner = mount.walk(&caller(2, 0), dir, name, true).await.expect("it is found");
                        let attr = mount.stat(inner).await.expect("it is there");
                        assert_eq!((attr.mode & 0o777, attr.mtime, attr.size), (0o700, WallTime(7), 1), "seed {seed}: {name}");
                        mount.walk(&caller(2, 0), inner, "inside", true).await.expect("it is found");
                    }
                }
            });
        }
        for mount in &world.mounts {
            assert!(mount.lines().iter().all(|line| !line.contains("is lost")), "seed {seed}: {:?}", mount.lines());
        }
    }
}

/// How names of directories begin among those of files.
const DIRECTORY: &str = "inner";

/// Makes a directory with a file, and says what it is.
async fn made_with_file(mount: &Mount, dir: InodeNumber, name: &str) {
    let who = caller(1, 0).who;
    let inner = mount.posix.mkdir(&who, dir, name.as_bytes(), 0o755).await.expect("a new directory").node;
    closed_in(mount, inner, "inside", &content(1)).await;
    let mtime = Some(SetTime { at: Some(WallTime(7)) });
    let set = SetAttr { mode: Some(0o700), mtime, ..SetAttr::default() };
    mount.posix.setattr(&who, inner, &set).await.expect("it is set");
}

/// Gives the names that it has made and not removed.
async fn work(mount: Mount, number: usize, dirs: [InodeNumber; 2]) -> [Vec<String>; 2] {
    let who = caller(number as u32 + 1, 0);
    let mut made: [Vec<String>; 2] = Default::default();
    for round in 0..120 {
        // Mostly in the own directory, for a while.
        let random = mount.posix.rt().random();
        let index = if random.is_multiple_of(9) { 1 - number } else { number };
        let (dir, name) = (dirs[index], format!("m{number}.{round}"));
        let is_file = made[index].last().is_some_and(|name| !name.starts_with(DIRECTORY));
        match random / 16 % 12 {
            0 => super::pause(&mount).await,
            4 => {
                let name = format!("{DIRECTORY}{name}");
                made_with_file(&mount, dir, &name).await;
                made[index].push(name);
            }
            1 if is_file => {
                let old = made[index].pop().expect("there is one");
                mount.posix.unlink(&who.who, dir, old.as_bytes()).await.expect("it was made");
            }
            2 if is_file => {
                let old = made[index].pop().expect("there is one");
                mount.rename(&who, dir, &old, &name).await.expect("it was made");
                made[index].push(name);
            }
            3 => {
                let found = mount.walk(&who, dir, &name, true).await;
                assert_eq!(found.map_err(|error| error.status), Err(Status::NotFound));
            }
            _ => {
                closed_in(&mount, dir, &name, &content(round % 5)).await;
                made[index].push(name);
            }
        }
    }
    made
}
