//! Files that are opened without a message: whoever removes them, they can be read until they are
//! closed.

use weft_base::SECOND;
use weft_posix::Caching;
use weft_rt::Runtime;
use weft_sim_tests::mount::{Mount, Open, caller, how};
use weft_wire::Rights;

use super::gathered::read;
use super::{ROOT, World, content};

async fn make(mount: Mount, name: &'static str, number: u32) {
    let who = caller(1, 0);
    let file = mount.create(&who, ROOT, name, 0o644).await.expect("a new file");
    mount.write(&who, file, 0, &content(number), false).await.expect("it is written");
    mount.release(file.opened.number).await;
}

async fn open(mount: &Mount) -> Open {
    mount.open(&caller(1, 0), ROOT, "file", how(Rights::READ)).await.expect("it opens")
}

fn unlink(world: &World, mount: usize) {
    world.alone(mount, |mount| async move {
        mount.posix.unlink(&caller(1, 0).who, ROOT, b"file").await.expect("it is removed");
    });
}

/// `remove`s the file that one mount has open without a message.
fn check(remove: impl FnOnce(&World)) {
    let world = World::new(11, None);
    world.alone(0, |mount| make(mount, "file", 5));
    world.sim.run_for(SECOND);
    let (file, requests) = world.alone(0, |mount| async move {
        let first = open(&mount).await;
        mount.read(first).await.expect("it is read");
        mount.release(first.opened.number).await;
        mount.posix.rt().sleep_until(mount.posix.rt().now() + SECOND).await;
        let before = mount.posix.stats().requests;
        for _ in 0..20 {
            let again = open(&mount).await;
            assert_eq!(again.opened.caching, Caching::Keep);
            assert_eq!(mount.read(again).await.expect("it is read"), content(5));
            mount.release(again.opened.number).await;
        }
        (open(&mount).await, mount.posix.stats().requests - before)
    });
    assert_eq!(requests, 0, "opens of what is known, reads of what is in the cache, closes");
    remove(&world);
    assert_eq!(world.alone(0, move |mount| async move { read(&mount, file).await }), content(5));
    world.alone(0, move |mount| async move { mount.release(file.opened.number).await });
}

#[test]
fn another_gateway_removes_it() {
    check(|world| {
        unlink(world, 1);
        world.sim.run_for(60 * SECOND);
    });
}

#[test]
fn another_gateway_puts_another_file_in_its_place() {
    check(|world| {
        world.alone(1, |mount| make(mount, "other", 7));
        world.alone(1, |mount| async move { mount.rename(&caller(1, 0), ROOT, "other", "file").await.expect("it is replaced") });
        world.sim.run_for(60 * SECOND);
    });
}

#[test]
fn its_own_gateway_removes_it() {
    check(|world| {
        unlink(world, 0);
        world.sim.run_for(60 * SECOND);
    });
}

#[test]
fn servers_restart_and_another_gateway_removes_it() {
    check(|world| {
        world.cluster.restart_all();
        unlink(world, 1);
        world.sim.run_for(60 * SECOND);
    });
}

/// A directory that changes often has no leases: what is open there is told at once.
#[test]
fn it_is_removed_where_nobody_holds_leases_any_more() {
    check(|world| {
        world.alone(1, |mount| async move {
            let who = caller(1, 0).who;
            for number in 0..200 {
                mount.posix.mkdir(&who, ROOT, format!("d{number}").as_bytes(), 0o755).await.expect("a new directory");
            }
            mount.posix.unlink(&who, ROOT, b"file").await.expect("it is removed");
        });
        world.sim.run_for(60 * SECOND);
    });
}

const USER: u32 = 7;

/// Opened for reading and writing without a message by a user, and not written to yet: then
/// another gateway does something, and the file is written to.
fn check_written_later(meanwhile: impl Fn(&World), is_removed: bool) {
    for is_small in [false, true] {
        let world = World::new(15, None);
        if is_small {
            world.takes_small_files();
        }
        world.alone(0, |mount| async move {
            let file = mount.create(&caller(1, 0), ROOT, "file", 0o666).await.expect("a new file");
            mount.write(&caller(1, 0), file, 0, &content(5), false).await.expect("it is written");
            mount.release(file.opened.number).await;
        });
        world.sim.run_for(SECOND);
        let update = || how(Rights::READ.with(Rights::WRITE));
        let file = world.alone(0, move |mount| async move {
            let first = mount.open(&caller(1, USER), ROOT, "file", how(Rights::READ)).await.expect("it opens");
            assert_eq!(mount.read(first).await.expect("it is read"), content(5));
            mount.release(first.opened.number).await;
            mount.posix.rt().sleep_until(mount.posix.rt().now() + SECOND).await;
            let before = mount.posix.stats().requests;
            for _ in 0..20 {
                let again = mount.open(&caller(1, USER), ROOT, "file", update()).await.expect("it opens");
                mount.release(again.opened.number).await;
            }
            let file = mount.open(&caller(1, USER), ROOT, "file", update()).await.expect("it opens");
            assert_eq!(mount.posix.stats().requests - before, 0, "opens of what is known, and closes of what was not written");
            file
        });
        meanwhile(&world);
        let (written, attr) = world.alone(0, move |mount| async move {
            let bytes = read(&mount, file).await;
            mount.write(&caller(1, USER), file, bytes.len() as u64, b"more", false).await.expect("it is open for writing");
            let written = read(&mount, file).await;
            let attr = mount.posix.getattr(file.node).await.expect("it is open").attr;
            mount.release(file.opened.number).await;
            (written, attr)
        });
        assert!(written.ends_with(b"more") && attr.size == written.len() as u64, "{} bytes of {attr:?}", written.len());
        if !is_removed {
            let seen = world.alone(1, |mount| async move {
                let file = mount.open(&caller(2, 0), ROOT, "file", how(Rights::READ)).await.expect("it is there");
                mount.read(file).await.expect("it is read")
            });
            assert!(seen == written, "{} bytes, {} were written", seen.len(), written.len());
        }
    }
}

#[test]
fn a_file_is_open_for_writing_from_the_first_write_on() {
    check_written_later(|_| {}, false);
}

#[test]
fn what_is_to_be_written_to_loses_its_rights_or_its_name() {
    let change = |world: &World, mode: u32| {
        world.alone(1, move |mount| async move {
            let node = mount.walk(&caller(2, 0), ROOT, "file", true).await.expect("it is there");
            mount.chmod(&caller(2, 0), node, mode).await.expect("it is changed");
        });
    };
    check_written_later(|world| change(world, 0o600), false);
    check_written_later(
        |world| {
            world.alone(1, |mount| async move { mount.posix.unlink(&caller(2, 0).who, ROOT, b"file").await.expect("it is removed") });
        },
        true,
    );
    check_written_later(|world| world.cluster.restart_all(), false);
}

#[test]
fn what_is_to_be_written_to_is_written_by_others_first() {
    check_written_later(
        |world| {
            world.alone(1, |mount| async move {
                let file = mount.open(&caller(2, 0), ROOT, "file", how(Rights::WRITE)).await.expect("it opens");
                mount.write(&caller(2, 0), file, 0, &content(9), false).await.expect("it is written");
                mount.release(file.opened.number).await;
            });
        },
        false,
    );
}

/// What was made and closed with nothing written into it is known by its name without a message.
#[test]
fn closing_what_was_not_written_ends_nothing() {
    let world = World::new(11, None);
    let who = caller(1, 0);
    world.alone(0, |mount| async move {
        let file = mount.create(&caller(1, 0), ROOT, "file", 0o644).await.expect("a new file");
        mount.release(file.opened.number).await;
    });
    world.sim.run_for(SECOND);
    let requests = world.alone(0, |mount| async move {
        let before = mount.posix.stats().requests;
        for _ in 0..20 {
            mount.posix.lookup(&who, ROOT, b"file").await.expect("it is there");
        }
        mount.posix.stats().requests - before
    });
    assert_eq!(requests, 0, "its close has changed nothing that was told");
}

/// An empty file that was closed has not changed by that: its attributes are known as before.
#[test]
fn a_close_without_writes_makes_nothing_forgotten() {
    let world = World::new(13, None);
    world.takes_small_files();
    let requests = world.alone(0, |mount| async move {
        let who = caller(1, 0);
        let mut nodes = Vec::new();
        for number in 0..20 {
            let file = mount.create(&who, ROOT, &format!("empty{number}"), 0o644).await.expect("a new file");
            mount.release(file.opened.number).await;
            nodes.push(file.node);
        }
        mount.posix.rt().sleep_until(mount.posix.rt().now() + SECOND / 10).await;
        let before = mount.posix.stats().requests;
        for node in nodes {
            assert_eq!(mount.posix.getattr(node).await.expect("it is there").attr.size, 0);
        }
        mount.posix.stats().requests - before
    });
    // Notices are asked for now and then.
    assert!(requests < 5, "{requests} requests");
}
