//! Files that are larger than the servers of their inodes keep: after the first one mounts gather
//! what is written to them until they are closed, and nobody sees the difference.

use weft_base::{Attr, MILLISECOND, Payload, SECOND, Status, WallTime};
use weft_client::SetAttr;
use weft_sim_tests::mount::{Mount, Open, caller, how};
use weft_wire::Rights;
use weft_wire::ops::SetTime;

use super::delayed::{closed_in, rest, seen, world};
use super::{ROOT, World};

pub(super) const THEN: WallTime = WallTime(1_000_000_000_000_000_000);
/// `tar` writes so many bytes at a time.
const PIECE: usize = 10_240;

pub(super) fn bytes(tag: u8, len: usize) -> Vec<u8> {
    let pattern: Vec<u8> = (0..251).map(|byte| byte ^ tag).collect();
    let mut bytes = pattern.repeat(len.div_ceil(pattern.len()));
    bytes.truncate(len);
    bytes
}

/// A mount that has met a large file.
pub(super) fn warm() -> World {
    warmed(world())
}

fn warmed(world: World) -> World {
    world.alone(0, |mount| async move {
        closed_in(&mount, ROOT, "large", &bytes(0, 9000)).await;
    });
    world.sim.run_for(SECOND);
    world
}

async fn write(mount: &Mount, file: Open, bytes: &[u8]) {
    for (number, piece) in bytes.chunks(PIECE).enumerate() {
        mount.write(&caller(1, 0), file, (number * PIECE) as u64, piece, false).await.expect("it is written");
    }
}

async fn made(mount: &Mount, name: &str, bytes: &[u8]) -> Open {
    let file = mount.create(&caller(1, 0), ROOT, name, 0o600).await.expect("a new file");
    write(mount, file, bytes).await;
    file
}

/// What the servers say, whatever is in the cache.
pub(super) async fn read(mount: &Mount, file: Open) -> Vec<u8> {
    let pieces = mount.posix.read(file.opened.number, 0, 1 << 30).await.expect("it is read");
    Payload::concat(&pieces)
}

pub(super) async fn read_named(mount: &Mount, name: &str) -> Vec<u8> {
    let file = mount.open(&caller(2, 0), ROOT, name, how(Rights::READ)).await.expect("it opens");
    let found = read(mount, file).await;
    mount.release(file.opened.number).await;
    found
}

/// All mounts see these bytes.
pub(super) fn all_see(world: &World, name: &'static str, all: &[u8]) {
    for number in [1, 0] {
        let (found, size) = world.alone(number, move |mount| async move {
            let found = read_named(&mount, name).await;
            let node = mount.walk(&caller(2, 0), ROOT, name, true).await.expect("it is there");
            (found, mount.stat(node).await.expect("it is there").size)
        });
        assert!(found == all && size == all.len() as u64, "{name}: mount {number} reads {} bytes of {size}", found.len());
    }
}

fn attributes() -> SetAttr {
    SetAttr { mtime: Some(SetTime { at: Some(THEN) }), mode: Some(0o640), ..SetAttr::default() }
}

async fn set(mount: &Mount, file: Open) -> Attr {
    mount.posix.setattr(&caller(1, 0).who, file.node, &attributes()).await.expect("it is set").attr
}

fn check(world: &World, name: &'static str, content: &[u8]) -> Attr {
    let [first, second] = [1, 0].map(|number| world.alone(number, move |mount| async move { seen(&mount, name).await }));
    assert!(first.1 == content && second.1 == content, "{name}: {} and {} bytes", first.1.len(), second.1.len());
    assert_eq!((first.0.mode, first.0.mtime, first.0.size), (second.0.mode, second.0.mtime, second.0.size));
    assert_eq!(first.0.size, content.len() as u64);
    first.0
}

/// As `tar` makes them: to data servers in one message each, and nothing else but shares of two.
#[test]
fn a_large_file_of_an_archive_is_a_write_for_each_data_server() {
    let world = warm();
    let requests = world.alone(0, |mount| async move {
        // The directory is delegated, and has handles.
        for number in 0..8 {
            let file = made(&mount, &format!("before{number}"), &bytes(1, 30_000)).await;
            mount.close(file).await.expect("it is closed");
        }
        rest(&mount, 100 * MILLISECOND).await;
        let before = mount.posix.stats().requests;
        for number in 0..20 {
            let file = made(&mount, &format!("f{number}"), &bytes(number, 30_000)).await;
            let attr = set(&mount, file).await;
            assert_eq!((attr.permissions(), attr.mtime, attr.size), (0o640, THEN, 30_000));
            mount.close(file).await.expect("it is closed");
            assert_eq!(mount.stat(file.node).await.expect("it is there").mtime, THEN);
        }
        rest(&mount, 100 * MILLISECOND).await;
        mount.posix.stats().requests - before
    });
    // Three data servers; few messages tell of all files and close them.
    assert!((60..=70).contains(&requests), "{requests} requests for 20 files");
    for (name, tag) in [("f0", 0), ("f7", 7), ("f19", 19)] {
        let attr = check(&world, name, &bytes(tag, 30_000));
        assert_eq!((attr.permissions(), attr.mtime, attr.is_inline()), (0o640, THEN, false));
    }
}

#[test]
fn every_size_is_seen_at_once_through_both_mounts() {
    let world = warm();
    for (name, len) in [("a", 4096), ("b", 4097), ("c", 8192), ("d", 100_000), ("e", 512 << 10), ("f", (512 << 10) + 1), ("g", 1_000_000)] {
        world.alone(0, move |mount| async move {
            let file = made(&mount, name, &bytes(3, len)).await;
            mount.close(file).await.expect("it is closed");
        });
        check(&world, name, &bytes(3, len));
    }
}

/// Who looks at it while it is open sees what was written, and the writer goes on.
#[test]
fn others_see_it_before_it_is_closed() {
    let world = warm();
    let file = world.alone(0, |mount| async move {
        let file = made(&mount, "open", &bytes(5, 20_000)).await;
        set(&mount, file).await;
        file
    });
    let attr = check(&world, "open", &bytes(5, 20_000));
    assert_eq!((attr.permissions(), attr.mtime), (0o640, THEN));
    world.alone(0, move |mount| async move {
        mount.write(&caller(1, 0), file, 20_000, &bytes(6, 20_000), false).await.expect("it is written");
        mount.close(file).await.expect("it is closed");
    });
    let all = [bytes(5, 20_000), bytes(6, 20_000)].concat();
    assert!(check(&world, "open", &all).mtime > THEN, "it was written after its time was set");
}

/// A descriptor that was duplicated is closed, and the other one is used.
#[test]
fn writes_go_on_after_a_close() {
    let world = warm();
    world.alone(0, |mount| async move {
        let file = made(&mount, "twice", &bytes(5, 20_000)).await;
        set(&mount, file).await;
        mount.posix.before_close(file.opened.number).await.expect("it is brought");
        mount.write(&caller(1, 0), file, 0, &[1; 5], false).await.expect("it is written");
        let attr = mount.stat(file.node).await.expect("it is there");
        assert!(attr.mtime > THEN && attr.permissions() == 0o640 && attr.size == 20_000, "{attr:?}");
        mount.posix.before_close(file.opened.number).await.expect("there is nothing to bring");
        set(&mount, file).await;
        mount.close(file).await.expect("it is closed");
    });
    let mut all = bytes(5, 20_000);
    all[..5].fill(1);
    assert_eq!(check(&world, "twice", &all).mtime, THEN);
}

/// A file that is given back without a close that was heard: it is brought all the same.
#[test]
fn what_nobody_closes_is_brought() {
    let world = warm();
    for name in ["d0", "d1", "d2"] {
        world.alone(0, move |mount| async move {
            let file = made(&mount, name, &bytes(8, 20_000)).await;
            mount.release(file.opened.number).await;
        });
        check(&world, name, &bytes(8, 20_000));
    }
}

/// Its own program reads it, whatever of it is where.
#[test]
fn it_is_read_while_it_is_written() {
    let world = warm();
    world.alone(0, |mount| async move {
        let file = made(&mount, "read", &bytes(5, 20_000)).await;
        let again = mount.open(&caller(1, 0), ROOT, "read", how(Rights::READ)).await.expect("it opens");
        let read = mount.read(again).await.expect("it is read");
        assert!(read == bytes(5, 20_000), "{} bytes", read.len());
        mount.release(again.opened.number).await;
        mount.write(&caller(1, 0), file, 20_000, &bytes(6, 20_000), false).await.expect("it is written");
        mount.close(file).await.expect("it is closed");
    });
    check(&world, "read", &[bytes(5, 20_000), bytes(6, 20_000)].concat());
}

/// Another mount fills all data servers.
pub(super) fn fill_disks(world: &World) {
    let data = world.cluster.map().data.len();
    let servers = world.cluster.servers();
    servers[servers.len() - data..].iter().for_each(|node| world.sim.fill_disk(*node, 3600 * SECOND));
    world.alone(1, |mount| async move {
        let who = caller(1, 0);
        // What the containers have reserved is used up first.
        let filler = mount.create(&who, ROOT, "filler", 0o600).await.expect("a new file");
        let mut at = 0;
        while mount.write(&who, filler, at, &[1; 1 << 20], false).await.is_ok() {
            at += 1 << 20;
        }
        let mut at_last = 0;
        while mount.write(&who, filler, at, &[1; 4096], false).await.is_ok() {
            at += 4096;
            at_last += 1;
            assert!(at_last < 10_000, "it never ends");
        }
        mount.release(filler.opened.number).await;
    });
}

/// A close says that there was no space, and nothing is lost: it is brought when there is some.
#[test]
fn a_close_says_that_the_disks_are_full() {
    let world = warmed(World::asking());
    world.sim.run_for(SECOND);
    fill_disks(&world);
    world.alone(0, |mount| async move {
        let file = made(&mount, "late", &bytes(7, 300_000)).await;
        let error = mount.close(file).await.expect_err("there is no space");
        assert_eq!(error.status, Status::NoSpace);
        // From now on a write says so.
        let late = mount.create(&caller(1, 0), ROOT, "later", 0o600).await.expect("a new file");
        let error = mount.write(&caller(1, 0), late, 0, &bytes(7, 300_000), false).await.expect_err("there is no space");
        assert_eq!(error.status, Status::NoSpace);
        mount.release(late.opened.number).await;
    });
    world.sim.heal();
    world.sim.run_for(20 * SECOND);
    check(&world, "late", &bytes(7, 300_000));
}

/// A data server that does not answer holds up the close that needs it, and nobody who looks at
/// what was closed after it.
#[test]
fn a_silent_data_server_holds_up_no_other_close() {
    let world = warm();
    let data = world.cluster.map().data.len();
    let servers = world.cluster.servers().to_vec();
    let dead = &servers[servers.len() - data..];
    let writer = world.mounts[0].node;
    let file = world.alone(0, |mount| async move { made(&mount, "stuck", &bytes(7, 20_000)).await });
    dead.iter().for_each(|node| world.sim.partition(writer, *node, 30 * SECOND));
    world.alone(0, move |mount| async move {
        assert!(mount.posix.has_gathered(file.opened.number));
        // Its program is killed while it waits.
        mount.release(file.opened.number).await;
        rest(&mount, 100 * MILLISECOND).await;
        closed_in(&mount, ROOT, "small", &bytes(1, 3000)).await;
    });
    let begun = world.sim.now();
    let attr = world.alone(1, |mount| async move { mount.posix.lookup(&caller(2, 0), ROOT, b"small").await.expect("it is there").attr });
    assert!(attr.size == 3000 && world.sim.now().since(begun) < 1500 * MILLISECOND, "after {} ns", world.sim.now().since(begun));
    world.sim.run_for(60 * SECOND);
    check(&world, "stuck", &bytes(7, 20_000));
}

/// The metadata server dies between the bytes and the close with the attributes.
#[test]
fn attributes_survive_a_restart_of_the_server() {
    let world = warm();
    for round in 0..6u8 {
        let name: &'static str = ["r0", "r1", "r2", "r3", "r4", "r5"][usize::from(round)];
        world.alone(0, move |mount| async move {
            let file = made(&mount, name, &bytes(round, 20_000)).await;
            set(&mount, file).await;
            mount.close(file).await.expect("it is closed");
        });
        world.sim.run_for(u64::from(round) * 700_000);
        let meta = world.cluster.servers()[0];
        world.sim.crash(meta);
        world.sim.run_for(50 * MILLISECOND);
        world.sim.restart(meta);
        world.sim.run_for(20 * SECOND);
        let attr = check(&world, name, &bytes(round, 20_000));
        assert_eq!((attr.permissions(), attr.mtime), (0o640, THEN), "round {round}");
    }
}
