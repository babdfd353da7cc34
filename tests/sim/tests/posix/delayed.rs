//! Small files that are written through a mount where their servers keep such: their bytes stay
//! with the mount until they are closed, and nobody sees the difference.

use weft_base::{Attr, MILLISECOND, SECOND, ServerId, Status, WallTime};
use weft_client::{SetAttr, XattrFlags};
use weft_posix::InodeNumber;
use weft_rt::Runtime;
use weft_sim_tests::cluster::Durability;
use weft_sim_tests::mount::{Mount, Open, caller, how};
use weft_wire::Rights;
use weft_wire::ops::SetTime;

use super::{ROOT, UPDATE, World, content};

/// What is no longer than a stripe of these clusters may stay.
const STRIPE_BYTES: usize = 4096;

pub(super) fn world() -> World {
    let world = World::new(21, None);
    world.takes_small_files();
    world
}

pub(super) async fn made(mount: &Mount, name: &str, bytes: &[u8]) -> Open {
    made_in(mount, ROOT, name, bytes).await
}

async fn made_in(mount: &Mount, dir: InodeNumber, name: &str, bytes: &[u8]) -> Open {
    let file = mount.create(&caller(1, 0), dir, name, 0o644).await.expect("a new file");
    // In two pieces, the first of which is written over in part.
    let middle = bytes.len() / 2;
    let over = &[0; 3][..middle.min(3)];
    mount.write(&caller(1, 0), file, 0, &[&bytes[..middle], over].concat(), false).await.expect("it is written");
    mount.write(&caller(1, 0), file, middle as u64, &bytes[middle..], false).await.expect("it is written");
    file
}

async fn closed(mount: &Mount, name: &str, bytes: &[u8]) -> InodeNumber {
    closed_in(mount, ROOT, name, bytes).await
}

pub(super) async fn closed_in(mount: &Mount, dir: InodeNumber, name: &str, bytes: &[u8]) -> InodeNumber {
    let file = made_in(mount, dir, name, bytes).await;
    mount.release(file.opened.number).await;
    file.node
}

pub(super) async fn seen(mount: &Mount, name: &str) -> (Attr, Vec<u8>) {
    let file = mount.open(&caller(2, 0), ROOT, name, how(Rights::READ)).await.expect("it opens");
    let bytes = mount.read(file).await.expect("it is read");
    let attr = mount.stat(file.node).await.expect("it is there");
    mount.release(file.opened.number).await;
    (attr, bytes)
}

/// Both mounts see these bytes, now and when all is closed.
fn check_seen(world: &World, name: &'static str, bytes: &[u8]) -> Attr {
    for wait in [0, 100 * MILLISECOND] {
        world.sim.run_for(wait);
        for number in [1, 0] {
            let (attr, found) = world.alone(number, move |mount| async move { seen(&mount, name).await });
            assert!(found == bytes, "mount {number} reads {} bytes after {wait}", found.len());
            assert_eq!((attr.size, attr.allocated_bytes()), (bytes.len() as u64, bytes.len().next_multiple_of(4096) as u64));
        }
    }
    world.alone(1, move |mount| async move { seen(&mount, name).await.0 })
}

pub(super) async fn rest(mount: &Mount, ns: u64) {
    let rt = mount.posix.rt();
    rt.sleep_until(rt.now() + ns).await;
}

#[test]
fn a_small_file_is_one_message_and_a_share_of_one() {
    let world = World::asking();
    let requests = world.alone(0, |mount| async move {
        let before = mount.posix.stats().requests;
        for number in 0..30 {
            closed(&mount, &format!("f{number}"), &content(1)).await;
        }
        rest(&mount, 100 * MILLISECOND).await;
        mount.posix.stats().requests - before
    });
    // One makes each, some close them all; now and then notices are asked for.
    assert!((31..=40).contains(&requests), "{requests} requests");
    for name in ["f0", "f29"] {
        assert!(check_seen(&world, name, &content(1)).is_inline());
    }
}

/// Of many sizes, some of which do not stay.
#[test]
fn every_size_is_seen_at_once_through_both_mounts() {
    let world = world();
    for (name, bytes) in [("empty", 0), ("one", 1), ("most", 4093), ("full", 4096), ("more", 4097), ("large", 100_000)] {
        let bytes: Vec<u8> = (0..bytes as u32).map(|at| (at % 251) as u8).collect();
        let written = bytes.clone();
        world.alone(0, move |mount| async move { closed(&mount, name, &written).await });
        let attr = check_seen(&world, name, &bytes);
        assert_eq!(attr.is_inline(), (1..=STRIPE_BYTES).contains(&bytes.len()), "{name}");
    }
}

/// Who looks at it while it is open sees what was written, and the writer goes on.
#[test]
fn others_see_it_before_it_is_closed() {
    let world = world();
    let file = world.alone(0, |mount| async move { made(&mount, "open", &content(2)).await });
    let (attr, bytes) = world.alone(1, |mount| async move { seen(&mount, "open").await });
    assert_eq!((attr.size, bytes), (content(2).len() as u64, content(2)));
    let more = content(3);
    let all = [content(2), more.clone()].concat();
    world.alone(0, move |mount| async move {
        mount.write(&caller(1, 0), file, content(2).len() as u64, &more, false).await.expect("it is written");
        mount.release(file.opened.number).await;
    });
    assert!(!check_seen(&world, "open", &all).is_inline());
}

/// A listing does not wait: its reader asks for what it needs.
#[test]
fn a_listing_tells_of_it_too() {
    let world = world();
    world.alone(0, |mount| async move { made(&mount, "open", &content(2)).await });
    let names = world.alone(1, |mount| async move { mount.list(&caller(2, 0), ROOT, true, 100).await.expect("it is listed") });
    assert!(names.contains(&"open".to_string()));
    let (attr, _) = world.alone(1, |mount| async move { seen(&mount, "open").await });
    assert_eq!(attr.size, content(2).len() as u64);
}

#[test]
fn what_is_done_to_it_before_it_is_closed_is_done_to_its_bytes() {
    let (world, who) = (world(), caller(1, 0));
    let set = |change: SetAttr| {
        let (world, who) = (&world, &who);
        let file = world.alone(0, |mount| async move { made(&mount, "changed", &[7; 3000]).await });
        let (who, size) = (who.who.clone(), change.size.unwrap_or(3000));
        world.alone(0, move |mount| async move {
            let attr = mount.posix.setattr(&who, file.node, &change).await.expect("it is changed").attr;
            assert_eq!(attr.size, size);
            mount.write(&caller(1, 0), file, 10, b"after", false).await.expect("it is written");
            mount.release(file.opened.number).await;
        });
        let mut bytes = vec![7; 3000];
        bytes.resize(size as usize, 0);
        bytes[10..15].copy_from_slice(b"after");
        let attr = check_seen(world, "changed", &bytes);
        world.alone(1, |mount| async move { mount.posix.unlink(&caller(1, 0).who, ROOT, b"changed").await.expect("it goes") });
        attr
    };
    let mode = set(SetAttr { mode: Some(0o600), ..SetAttr::default() });
    assert_eq!((mode.permissions(), mode.is_inline()), (0o600, true));
    assert!(!set(SetAttr { size: Some(100), ..SetAttr::default() }).is_inline());
    assert!(!set(SetAttr { size: Some(4000), ..SetAttr::default() }).is_inline());
}

/// A time that was set stays, as `tar` and `cp -p` want it: what was written came before it.
#[test]
fn a_time_that_was_set_before_the_close_stays() {
    let world = world();
    let at = WallTime(1_000_000_000_000_000_000);
    for (name, opens) in [("by fd", true), ("by name", false)] {
        world.alone(0, move |mount| async move {
            let file = made(&mount, name, &content(2)).await;
            let change = SetAttr { mtime: Some(SetTime { at: Some(at) }), ..SetAttr::default() };
            if !opens {
                mount.release(file.opened.number).await;
            }
            let attr = mount.posix.setattr(&caller(1, 0).who, file.node, &change).await.expect("it is set").attr;
            assert_eq!((attr.mtime, attr.size), (at, content(2).len() as u64));
            if opens {
                mount.release(file.opened.number).await;
            }
        });
        let attr = check_seen(&world, name, &content(2));
        assert_eq!((attr.mtime, attr.is_inline()), (at, true), "{name}");
    }
}

/// A time that was set before a write counts as earlier than the write.
#[test]
fn a_time_that_was_set_before_a_write_does_not_stay() {
    let world = world();
    world.alone(0, |mount| async move {
        let file = mount.create(&caller(1, 0), ROOT, "touched", 0o644).await.expect("a new file");
        let change = SetAttr { mtime: Some(SetTime { at: Some(WallTime(5)) }), ..SetAttr::default() };
        mount.posix.setattr(&caller(1, 0).who, file.node, &change).await.expect("it is set");
        mount.write(&caller(1, 0), file, 0, b"later", false).await.expect("it is written");
        mount.release(file.opened.number).await;
    });
    let attr = check_seen(&world, "touched", b"later");
    assert!(attr.is_inline() && attr.mtime >= attr.born, "{:?}", attr.mtime);
}

/// The time of the last write is that of the last write, whenever it is closed.
#[test]
fn the_time_of_a_write_is_not_that_of_the_close() {
    let world = world();
    let (file, written) = world.alone(0, |mount| async move {
        let file = made(&mount, "slow", &content(2)).await;
        let written = mount.stat(file.node).await.expect("it is there").mtime;
        rest(&mount, 2 * SECOND).await;
        mount.write(&caller(1, 0), file, 0, b"again", false).await.expect("it is written");
        let again = mount.stat(file.node).await.expect("it is there").mtime;
        assert!(again.0 - written.0 >= 2 * SECOND as i64);
        rest(&mount, 2 * SECOND).await;
        (file, again)
    });
    world.alone(0, move |mount| async move { mount.release(file.opened.number).await });
    world.sim.run_for(SECOND);
    let attr = world.alone(1, |mount| async move { seen(&mount, "slow").await.0 });
    assert!(attr.is_inline() && attr.mtime == written, "{:?} after {written:?}", attr.mtime);
}

#[test]
fn it_may_be_brought_to_stable_storage_appended_to_renamed_and_removed() {
    let world = world();
    world.alone(0, |mount| async move {
        let who = caller(1, 0);
        let file = made(&mount, "synced", &content(2)).await;
        mount.posix.fsync(file.opened.number, false).await.expect("it is synced");
        mount.write(&who, file, 0, &content(2)[..7], false).await.expect("it is written");
        mount.release(file.opened.number).await;
        let file = made(&mount, "appended", &content(2)).await;
        mount.write(&who, file, 0, &content(3), true).await.expect("it is appended to");
        mount.release(file.opened.number).await;
        let file = made(&mount, "before", &content(4)).await;
        mount.rename(&who, ROOT, "before", "after").await.expect("it is renamed");
        mount.release(file.opened.number).await;
        let file = made(&mount, "gone", &content(5)).await;
        mount.posix.unlink(&who.who, ROOT, b"gone").await.expect("it is removed");
        assert_eq!(mount.read(file).await.expect("it is read"), content(5));
        mount.release(file.opened.number).await;
        let file = made(&mount, "read on", &content(6)).await;
        let reader = mount.open(&who, ROOT, "read on", how(Rights::READ)).await.expect("it opens");
        mount.posix.unlink(&who.who, ROOT, b"read on").await.expect("it is removed");
        mount.release(file.opened.number).await;
        rest(&mount, 100 * MILLISECOND).await;
        assert_eq!(mount.read(reader).await.expect("it is read"), content(6), "by who has it open");
        mount.release(reader.opened.number).await;
    });
    check_seen(&world, "synced", &content(2));
    check_seen(&world, "appended", &[content(2), content(3)].concat());
    check_seen(&world, "after", &content(4));
    let gone = world.alone(1, |mount| async move { mount.walk(&caller(2, 0), ROOT, "gone", true).await });
    assert_eq!(gone.map_err(|error| error.status), Err(Status::NotFound));
}

/// The server of its inode dies, and is there again.
fn restart_server_of(world: &World, file: &Open) {
    let meta = world.sim.node_of(file.node.handle().server()).expect("it runs");
    world.sim.crash(meta);
    world.sim.run_for(50 * MILLISECOND);
    world.sim.restart(meta);
}

/// The server of its inode restarts, before it is closed or before the close has arrived.
#[test]
fn a_restart_of_its_server_loses_nothing() {
    for releases_first in [false, true] {
        let world = world();
        let file = world.alone(0, |mount| async move { made(&mount, "kept", &content(2)).await });
        if releases_first {
            world.alone(0, move |mount| async move { mount.release(file.opened.number).await });
        }
        restart_server_of(&world, &file);
        if !releases_first {
            world.sim.run_for(SECOND);
            world.alone(0, move |mount| async move { mount.release(file.opened.number).await });
        }
        assert!(check_seen(&world, "kept", &content(2)).is_inline());
        assert!(world.mounts[0].lines().iter().all(|line| !line.contains("is lost")), "{:?}", world.mounts[0].lines());
    }
}

/// Who asks waits until it is certain that the mount has died, and no longer, after a restart, too.
#[test]
fn a_mount_that_dies_takes_with_it_what_it_kept() {
    for restarts in [false, true] {
        let world = world();
        let file = world.alone(0, |mount| async move {
            // Servers ask each other for some of them, and have nothing to tell after a restart.
            for name in [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"] {
                mount.posix.mkdir(&caller(1, 0).who, ROOT, name, 0o755).await.expect("a new directory");
            }
            made(&mount, "lost", &content(2)).await
        });
        world.sim.crash(world.mounts[0].node);
        restarts.then(|| restart_server_of(&world, &file));
        let waited = world.alone(1, |mount| async move {
            let begun = mount.posix.rt().now();
            let (attr, bytes) = seen(&mount, "lost").await;
            assert_eq!((attr.size, bytes.len()), (0, 0));
            mount.posix.rt().now().since(begun)
        });
        assert!(waited < 12 * SECOND, "{waited} ns");
    }
}

/// Makes files and does to each of its last ones what programs do; gives the longest wait.
async fn work(mount: Mount, thread: u32) -> (u64, String) {
    let (who, mut longest) = (caller(thread, 0), (0, String::new()));
    for number in 0..150 {
        let (name, before) = (format!("t{thread}.{number}"), format!("t{thread}.{}", number.max(1) - 1));
        let begun = mount.posix.rt().now();
        let what = mount.posix.rt().random() % 5;
        let outcome = match what {
            _ if number == 0 => Ok(()),
            0 => match mount.open(&who, ROOT, &before, how(UPDATE)).await {
                Ok(file) => {
                    let written = mount.write(&who, file, 0, &content(3), false).await;
                    mount.release(file.opened.number).await;
                    written
                }
                Err(error) => Err(error),
            },
            1 => match mount.walk(&who, ROOT, &before, true).await {
                Ok(node) => mount.posix.link(&who.who, node, ROOT, format!("l{thread}.{number}").as_bytes()).await.map(drop),
                Err(error) => Err(error),
            },
            2 => mount.rename(&who, ROOT, &before, &format!("r{thread}.{number}")).await,
            3 => mount.open(&who, ROOT, &before, how(Rights::READ)).await.map(drop),
            _ => Ok(()),
        };
        outcome.unwrap_or_else(|error| panic!("{what} of {before}: {error}"));
        // Some do not stay.
        closed(&mount, &name, &content(number % 9)).await;
        let took = mount.posix.rt().now().since(begun);
        if took > longest.0 {
            longest = (took, format!("{what} before {name}, begun at {begun:?}"));
        }
        super::pause(&mount).await;
    }
    longest
}

/// Nobody waits for a grace period because of what this mount itself has made.
#[test]
fn a_restart_holds_no_file_of_a_mount_that_lives_up() {
    for seed in 0..8 {
        let world = World::new(100 + seed, None);
        world.takes_small_files();
        let mount = &world.mounts[0];
        let works = (1..=4)
            .map(|thread| {
                world.sim.spawn_on(mount.node, {
                    let mount = mount.clone();
                    move |_| work(mount, thread)
                })
            })
            .collect();
        let mut random = world.sim.random();
        for _ in 0..6 {
            world.sim.run_for(random.below(300 * MILLISECOND));
            let server = world.sim.node_of(ServerId(random.below(2) as u16)).expect("it runs");
            world.sim.crash(server);
            world.sim.run_for(random.below(100 * MILLISECOND));
            world.sim.restart(server);
        }
        for (took, what) in world.run::<(u64, String)>(works) {
            // A file on its way to data servers when its server died rests for ten seconds.
            assert!(took < 15 * SECOND, "seed {seed}: {took} ns for {what}");
        }
    }
}

/// It has outgrown its server when that restarts, and another mount has died that will never tell
/// what it had open: nobody appends to the file as if alone, so it is opened at once.
#[test]
fn what_has_left_its_mount_is_opened_at_once_after_a_restart() {
    let world = world();
    world.alone(1, |mount| async move {
        for number in 0..10 {
            closed(&mount, &format!("of the dead {number}"), &content(2)).await;
        }
    });
    world.sim.crash(world.mounts[1].node);
    let file = world.alone(0, |mount| async move { made(&mount, "large", &content(8).repeat(3)).await });
    restart_server_of(&world, &file);
    let waited = world.alone(0, move |mount| async move {
        let begun = mount.posix.rt().now();
        mount.release(file.opened.number).await;
        let again = mount.open(&caller(1, 0), ROOT, "large", how(UPDATE)).await.expect("it opens");
        mount.release(again.opened.number).await;
        mount.posix.rt().now().since(begun)
    });
    assert!(waited < 10 * SECOND, "{waited} ns");
}

/// Of a file that stays open the last ten seconds at most are lost with its mount.
#[test]
fn what_stays_open_for_long_is_not_kept() {
    let world = world();
    world.alone(0, |mount| async move { made(&mount, "log", &content(2)).await });
    world.sim.run_for(10 * SECOND);
    world.sim.crash(world.mounts[0].node);
    let (attr, bytes) = world.alone(1, |mount| async move { seen(&mount, "log").await });
    assert!(bytes == content(2) && !attr.is_inline(), "{} bytes", bytes.len());
}

/// What was answered under `sync` is on stable storage, whatever happens to the mount.
#[test]
fn nothing_is_kept_under_sync() {
    let world = World::under(Durability::Sync, 21, None);
    world.takes_small_files();
    world.alone(0, |mount| async move { closed(&mount, "safe", &content(2)).await });
    world.sim.crash(world.mounts[0].node);
    let (_, bytes) = world.alone(1, |mount| async move { seen(&mount, "safe").await });
    assert!(bytes == content(2), "{} bytes", bytes.len());
}

/// A mount that nobody has heard of for long does not bring what others were told was not written
/// after what they have written since; it says so.
#[test]
fn a_silent_mount_does_not_overwrite_what_came_after() {
    for (releases_first, restarts, silent_s) in [(false, false, 40), (true, false, 40), (false, true, 20), (true, true, 20)] {
        let world = world();
        let file = world.alone(0, |mount| async move { made(&mount, "cut off", &content(2)).await });
        for server in world.cluster.servers() {
            world.sim.partition(world.mounts[0].node, *server, silent_s * SECOND);
        }
        restarts.then(|| restart_server_of(&world, &file));
        if releases_first {
            world.alone(0, move |mount| async move { mount.release(file.opened.number).await });
        }
        world.alone(1, |mount| async move {
            let file = mount.open(&caller(2, 0), ROOT, "cut off", how(UPDATE)).await.expect("it opens");
            mount.write(&caller(2, 0), file, 0, b"theirs", false).await.expect("it is written");
            mount.release(file.opened.number).await;
        });
        world.sim.run_for(60 * SECOND);
        if !releases_first {
            let synced = world.alone(0, move |mount| async move {
                let synced = mount.posix.fsync(file.opened.number, false).await;
                mount.release(file.opened.number).await;
                synced
            });
            assert_eq!(synced.map_err(|error| error.status), Err(Status::WritesLost));
        }
        world.sim.run_for(10 * SECOND);
        check_seen(&world, "cut off", b"theirs");
        assert!(world.mounts[0].lines().iter().any(|line| line.contains("is lost")), "{:?}", world.mounts[0].lines());
    }
}

/// A program that goes on writing hears that something is lost, once, also if its mount has found
/// it out by itself.
#[test]
fn a_program_hears_of_what_its_mount_has_lost() {
    let world = world();
    let file = world.alone(0, |mount| async move { made(&mount, "cut off", &content(2)).await });
    for server in world.cluster.servers() {
        world.sim.partition(world.mounts[0].node, *server, 20 * SECOND);
    }
    world.alone(1, |mount| async move {
        let file = mount.open(&caller(2, 0), ROOT, "cut off", how(UPDATE)).await.expect("it opens");
        mount.write(&caller(2, 0), file, 0, b"theirs", false).await.expect("it is written");
        mount.release(file.opened.number).await;
    });
    world.sim.run_for(40 * SECOND);
    // The mount asks its servers for a sign of life now and then, and learns it.
    let (written, again) = world.alone(0, move |mount| async move {
        let who = caller(1, 0);
        let written = mount.write(&who, file, 6, b", and ours", false).await;
        (written, mount.write(&who, file, 6, b", and ours", false).await)
    });
    assert_eq!(written.map_err(|error| error.status), Err(Status::WritesLost));
    again.expect("the second write is one like any other");
    world.alone(0, move |mount| async move { mount.release(file.opened.number).await });
    check_seen(&world, "cut off", b"theirs, and ours");
}

/// Data servers that are away concern no small file.
#[test]
fn no_data_server_is_needed() {
    let world = world();
    for number in 0..3 {
        world.sim.crash(world.sim.node_of(ServerId::data(number)).expect("it runs"));
    }
    world.alone(0, |mount| async move { closed(&mount, "small", &content(2)).await });
    let (attr, bytes) = world.alone(1, |mount| async move { seen(&mount, "small").await });
    assert!(attr.is_inline() && bytes == content(2));
}

/// A directory without the hint, and a mount without leases: as ever.
#[test]
fn nothing_is_kept_where_nobody_asked_for_it() {
    let world = World::new(22, Some(SECOND));
    world.takes_small_files();
    world.alone(0, |mount| async move { closed(&mount, "file", &content(2)).await });
    assert!(!check_seen(&world, "file", &content(2)).is_inline());
    let world = World::new(22, None);
    world.alone(0, |mount| async move {
        mount.posix.set_xattr(&caller(1, 0).who, ROOT, b"user.other", b"1", XattrFlags::default()).await.expect("it is set");
        closed(&mount, "file", &content(2)).await;
    });
    assert!(!check_seen(&world, "file", &content(2)).is_inline());
}
