//! Small files of a directory that are read one after the other: most come along with another one,
//! and none is older than what somebody has written since.

use weft_base::{MILLISECOND, Payload, SECOND, ServerId, Status};
use weft_posix::InodeNumber;
use weft_rt::{Runtime, join_all};
use weft_sim_tests::mount::{Mount, caller, how};
use weft_wire::Rights;

use super::delayed::{closed_in, rest, world};
use super::{ROOT, World};

const FILES: usize = 200;

/// Of file `number` in version `version`; of several stripes if it is `long`.
fn content(number: usize, version: u8, long: bool) -> Vec<u8> {
    let bytes = if long { 9000 + number * 13 % 5000 } else { 1 + number * 97 % 4000 };
    vec![version ^ number as u8; bytes]
}

/// Directory `dir` with files in version 0, made by the first mount.
fn filled(world: &World, long: bool) -> InodeNumber {
    let dir = world.alone(0, move |mount| async move {
        let dir = mount.posix.mkdir(&caller(1, 0).who, ROOT, b"dir", 0o755).await.expect("a new directory").node;
        for number in 0..FILES {
            closed_in(&mount, dir, &format!("f{number:03}"), &content(number, 0, long)).await;
        }
        dir
    });
    world.sim.run_for(SECOND);
    dir
}

/// As a kernel reads it that has none of its pages.
async fn read(mount: &Mount, dir: InodeNumber, number: usize) -> Vec<u8> {
    let file = mount.open(&caller(2, 0), dir, &format!("f{number:03}"), how(Rights::READ)).await.expect("it opens");
    let pieces = mount.posix.read(file.opened.number, 0, 1 << 20).await.expect("it is read");
    mount.release(file.opened.number).await;
    Payload::concat(&pieces)
}

/// How many messages it costs to read all files by the second mount, in this order.
fn messages(world: &World, dir: InodeNumber, long: bool, lists: bool, order: impl Fn(usize) -> usize + 'static) -> u64 {
    world.alone(1, move |mount| async move {
        let before = mount.posix.stats().requests;
        if lists {
            mount.list(&caller(2, 0), dir, true, 1000).await.expect("it is listed");
        }
        for at in 0..FILES {
            let number = order(at);
            assert_eq!(read(&mount, dir, number).await, content(number, 0, long), "file {number}");
        }
        mount.posix.stats().requests - before
    })
}

/// Behind a look-up one message opens and reads a file, where its name is under a lease.
#[test]
fn a_file_alone_is_read_with_two_messages() {
    let world = world();
    let dirs = world.alone(0, |mount| async move {
        let mut dirs = Vec::new();
        for number in 0..20 {
            let made = mount.posix.mkdir(&caller(1, 0).who, ROOT, format!("d{number}").as_bytes(), 0o755).await;
            let dir = made.expect("a new directory").node;
            closed_in(&mount, dir, "f005", &content(5, 0, false)).await;
            dirs.push(dir);
        }
        dirs
    });
    world.sim.run_for(SECOND);
    let requests = world.alone(1, |mount| async move {
        let before = mount.posix.stats().requests;
        for dir in dirs {
            assert_eq!(read(&mount, dir, 5).await, content(5, 0, false));
        }
        mount.posix.stats().requests - before
    });
    // Notices are asked for now and then, and closes go together.
    assert!((40..=50).contains(&requests), "{requests} requests");
}

/// Who looks names up one by one is told of those beside them.
#[test]
fn names_are_looked_up_with_few_messages() {
    let world = world();
    let dir = filled(&world, false);
    let requests = world.alone(1, move |mount| async move {
        let before = mount.posix.stats().requests;
        for number in 0..FILES {
            let seen = mount.posix.lookup(&caller(2, 0), dir, format!("f{number:03}").as_bytes()).await.expect("it is there");
            assert_eq!(seen.attr.size, content(number, 0, false).len() as u64);
        }
        mount.posix.stats().requests - before
    });
    assert!(requests <= 20, "{requests} requests for {FILES} names");
}

/// Also if nothing lists the directory first.
#[test]
fn files_in_order_are_read_with_few_messages() {
    for (lists, most) in [(true, 12), (false, 16)] {
        let world = world();
        let dir = filled(&world, false);
        let requests = messages(&world, dir, false, lists, |at| at);
        assert!(requests <= most, "{requests} requests for {FILES} files");
    }
}

#[test]
fn files_in_any_order_are_read_with_few_messages() {
    let world = world();
    let dir = filled(&world, false);
    let requests = messages(&world, dir, false, true, |at| at * 77 % FILES);
    assert!(requests <= 25, "{requests} requests for {FILES} files");
}

/// One message finds them, and one to each data server brings them.
#[test]
fn files_at_data_servers_come_along_too() {
    let world = world();
    let dir = filled(&world, true);
    let requests = messages(&world, dir, true, true, |at| at);
    assert!(requests <= 45, "{requests} requests for {FILES} files");
}

/// Reads all files, so that the contents of nearly all are there.
fn read_all(world: &World, mount: usize, dir: InodeNumber, long: bool) {
    world.alone(mount, move |mount| async move {
        mount.list(&caller(2, 0), dir, true, 1000).await.expect("it is listed");
        for number in 0..FILES {
            assert_eq!(read(&mount, dir, number).await, content(number, 0, long));
        }
    });
}

/// Changes file `number` in one of several ways.
async fn change(mount: &Mount, dir: InodeNumber, number: usize, long: bool) {
    let (who, name, new) = (caller(3, 0), format!("f{number:03}"), content(number, 7, long));
    match number % 3 {
        0 => {
            let file = mount.open(&who, dir, &name, how(Rights::WRITE)).await.expect("it opens");
            mount.write(&who, file, 0, &new, false).await.expect("it is written");
            mount.release(file.opened.number).await;
        }
        1 => {
            closed_in(mount, dir, "new", &new).await;
            mount.rename(&who, dir, "new", &name).await.expect("it is replaced");
        }
        _ => {
            let truncate = weft_posix::OpenHow { truncate: true, ..how(Rights::WRITE) };
            let file = mount.open(&who, dir, &name, truncate).await.expect("it opens");
            mount.write(&who, file, 0, &new, false).await.expect("it is written");
            mount.release(file.opened.number).await;
        }
    }
}

/// By another mount, and by the one that reads.
#[test]
fn what_is_changed_is_read_as_it_is_now() {
    for (changer, long) in [(0, false), (1, false), (0, true), (1, true)] {
        let world = world();
        let dir = filled(&world, long);
        read_all(&world, 1, dir, long);
        for number in (3..FILES).step_by(17) {
            world.alone(changer, move |mount| async move { change(&mount, dir, number, long).await });
            // At once, and when it is told under leases again.
            for _ in 0..3 {
                let found = world.alone(1, move |mount| async move { read(&mount, dir, number).await });
                assert_eq!(found, content(number, 7, long), "file {number} changed by mount {changer}");
                // Slowly, so that the directory goes on to have leases.
                world.sim.run_for(SECOND / 10);
            }
        }
    }
}

/// A file that is open when others change it: a read that begins afterwards sees the change.
#[test]
fn an_open_file_is_read_as_it_is_now() {
    let world = world();
    let dir = filled(&world, false);
    read_all(&world, 1, dir, false);
    let file = world.alone(1, move |mount| async move {
        let file = mount.open(&caller(2, 0), dir, "f099", how(Rights::READ)).await.expect("it opens");
        mount.posix.read(file.opened.number, 0, 10).await.expect("it is read");
        file
    });
    world.alone(0, move |mount| async move { change(&mount, dir, 99, false).await });
    let found = world.alone(1, move |mount| async move { mount.posix.read(file.opened.number, 0, 1 << 20).await.expect("it is read") });
    assert_eq!(Payload::concat(&found), content(99, 7, false));
    let removed = world.alone(0, move |mount| async move { mount.posix.unlink(&caller(3, 0).who, dir, b"f099").await });
    removed.expect("it is removed");
    world.sim.run_for(60 * SECOND);
    world.alone(1, move |mount| async move {
        mount.posix.read(file.opened.number, 0, 1 << 20).await.expect("it can be read until it is closed");
        mount.release(file.opened.number).await;
        let gone = mount.open(&caller(2, 0), dir, "f099", how(Rights::READ)).await;
        assert_eq!(gone.map(drop).map_err(|error| error.status), Err(Status::NotFound));
    });
}

/// Programs of both mounts read and change at the same time: what was written before a read began
/// is what it sees, or something newer.
#[test]
fn readers_beside_writers_read_nothing_old() {
    for (writer, seed) in [(0, 1), (1, 2), (0, 3), (1, 4)] {
        let world = World::new(30 + seed, None);
        world.takes_small_files();
        let dir = filled(&world, seed > 2);
        let versions = std::rc::Rc::new(std::cell::RefCell::new(vec![0u8; FILES]));
        let (writing, reading) = (world.mounts[writer].clone(), world.mounts[1].clone());
        let written = versions.clone();
        let write = world.sim.spawn_on(writing.node, move |rt| async move {
            for round in 1..150u64 {
                let number = rt.random() as usize % 24;
                let version = written.borrow()[number] + 1;
                let file = writing.open(&caller(3, 0), dir, &format!("f{number:03}"), how(Rights::WRITE)).await.expect("it opens");
                let bytes = vec![version; content(number, 0, seed > 2).len()];
                writing.write(&caller(3, 0), file, 0, &bytes, false).await.expect("it is written");
                writing.release(file.opened.number).await;
                written.borrow_mut()[number] = version;
                rt.sleep_until(rt.now() + rt.random() % (round % 5 * MILLISECOND + 1)).await;
            }
        });
        let readers = (0..3).map(|thread| {
            let (mount, versions) = (reading.clone(), versions.clone());
            world.sim.spawn_on(reading.node, move |rt| async move {
                for _ in 0..300 {
                    let number = rt.random() as usize % 24;
                    let least = versions.borrow()[number];
                    let found = read(&mount, dir, number).await;
                    let version = if found[0] == number as u8 && least == 0 { 0 } else { found[0] };
                    assert!(version >= least, "reader {thread}: file {number} in version {version} after {least}");
                    rt.sleep_until(rt.now() + rt.random() % MILLISECOND).await;
                }
            })
        });
        let flows = readers.chain([write]).collect();
        world.run(flows);
    }
}

/// A data server that does not answer holds up who reads what is elsewhere for a moment, once.
#[test]
fn what_was_not_asked_for_is_not_waited_for() {
    let world = world();
    let dir = filled(&world, true);
    world.alone(1, move |mount| async move { mount.list(&caller(2, 0), dir, true, 1000).await.expect("it is listed") });
    world.sim.crash(world.sim.node_of(ServerId::data(1)).expect("it runs"));
    let (slow, read) = world.alone(1, move |mount| async move {
        let mut slow = 0;
        let rt = mount.posix.rt().clone();
        let all = (0..FILES).map(|number| {
            let mount = mount.clone();
            async move { mount.open(&caller(2, 0), dir, &format!("f{number:03}"), how(Rights::READ)).await.expect("it opens") }
        });
        let mut read = 0;
        for file in join_all(all).await {
            // The first byte lies on one server.
            let began = rt.now();
            let is_read = mount.posix.read(file.opened.number, 0, 1).await.is_ok();
            if is_read {
                read += 1;
                slow += u32::from(rt.now().since(began) > 100 * MILLISECOND);
            }
            mount.release(file.opened.number).await;
            if read > 20 {
                break;
            }
        }
        rest(&mount, MILLISECOND).await;
        (slow, read)
    });
    assert!(read > 20 && slow <= 2, "{slow} of {read} reads of servers that answer took long");
}
