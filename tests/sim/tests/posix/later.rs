//! New files that are larger than the servers of their inodes keep, and are closed: nobody waits
//! for data servers, and everybody sees what was written.

use weft_base::{MILLISECOND, SECOND, Status};
use weft_posix::InodeNumber;
use weft_rt::Runtime;
use weft_sim_tests::mount::{Mount, Open, caller, how};
use weft_wire::Rights;

use super::World;
use super::delayed::{closed_in, rest};
use super::delegated::made_dir;
use super::gathered::{bytes, fill_disks, warm};

const FILES: u8 = 12;

/// A new file that was written and closed, as its program has seen it.
async fn closed(mount: &Mount, dir: InodeNumber, name: &str, bytes: &[u8]) -> Open {
    let file = mount.create(&caller(1, 0), dir, name, 0o644).await.expect("a new file");
    mount.write(&caller(1, 0), file, 0, bytes, false).await.expect("it is written");
    mount.close(file).await.expect("it is closed");
    file
}

/// A mount that has met a large file, and may make files in a directory without asking.
fn held() -> (World, InodeNumber) {
    let world = warm();
    let dir = world.alone(0, |mount| async move {
        let dir = made_dir(&mount, false).await;
        for number in 0..4 {
            closed(&mount, dir, &format!("before{number}"), &bytes(number, 30_000)).await;
        }
        dir
    });
    world.sim.run_for(SECOND);
    (world, dir)
}

fn name(number: u8) -> String {
    format!("f{number}")
}

async fn check(mount: &Mount, dir: InodeNumber, number: u8) {
    let file = mount.open(&caller(2, 0), dir, &name(number), how(Rights::READ)).await.expect("it is there");
    let expected = bytes(number, 20_000 + usize::from(number));
    assert_eq!(mount.stat(file.node).await.expect("it is there").size, expected.len() as u64);
    assert!(mount.read(file).await.expect("it is read") == expected, "{number}");
    mount.release(file.opened.number).await;
}

#[test]
fn a_close_of_a_new_file_sends_nothing_and_is_seen_by_all() {
    for pause_us in (0..20).map(|number| number * 300).chain([20_000]) {
        let (world, dir) = held();
        let requests = world.alone(0, move |mount| async move {
            let before = mount.posix.stats().requests;
            let begun = mount.posix.rt().now();
            for number in 0..FILES {
                closed(&mount, dir, &name(number), &bytes(number, 20_000 + usize::from(number))).await;
            }
            let took_ns = mount.posix.rt().now().since(begun);
            assert!(took_ns < u64::from(FILES) * MILLISECOND / 500, "each takes the work of a record, nobody has waited: {took_ns}");
            mount.posix.stats().requests - before
        });
        assert_eq!(requests, 0);
        world.sim.run_for(pause_us * 1000);
        for number in [1, 0] {
            world.alone(number, move |mount| async move {
                for number in 0..FILES {
                    check(&mount, dir, number).await;
                }
            });
        }
    }
}

/// Shares of messages beside the writes themselves, attributes included.
#[test]
fn files_that_leave_together_share_their_other_messages() {
    let (world, dir) = held();
    let requests = world.alone(0, move |mount| async move {
        let before = mount.posix.stats().requests;
        for number in 0..60 {
            let file = closed(&mount, dir, &name(number), &bytes(number, 20_000 + usize::from(number))).await;
            let set = weft_client::SetAttr { mode: Some(0o600), ..weft_client::SetAttr::default() };
            mount.posix.setattr(&caller(1, 0).who, file.node, &set).await.expect("it is set");
        }
        rest(&mount, 100 * MILLISECOND).await;
        mount.posix.stats().requests - before
    });
    // A write for each data server.
    assert!((180..190).contains(&requests), "{requests} requests");
    let modes = world.alone(1, move |mount| async move {
        let mut modes = Vec::new();
        for number in 0..60 {
            check(&mount, dir, number).await;
            let node = mount.walk(&caller(2, 0), dir, &name(number), true).await.expect("it is there");
            modes.push(mount.stat(node).await.expect("it is there").permissions());
        }
        modes
    });
    assert_eq!(modes, [0o600; 60]);
}

/// `git` and `rsync` do so with each file.
#[test]
fn a_look_at_a_file_that_was_just_closed_sends_nothing_and_stays_true() {
    for pause_us in (0..20).map(|number| number * 300).chain([20_000]) {
        let (world, dir) = held();
        let seen = world.alone(0, move |mount| async move {
            let (before, mut seen) = (mount.posix.stats().requests, Vec::new());
            for number in 0..FILES {
                let file = mount.create(&caller(1, 0), dir, &name(number), 0o644).await.expect("a new file");
                mount.write(&caller(1, 0), file, 0, &bytes(number, 20_000 + usize::from(number)), false).await.expect("it is written");
                // Before its close and after it, by its name.
                let open = mount.stat(file.node).await.expect("it is there");
                mount.close(file).await.expect("it is closed");
                mount.posix.rt().sleep_until(mount.posix.rt().now() + 10_000).await;
                let node = mount.walk(&caller(1, 0), dir, &name(number), true).await.expect("it is there");
                let closed = mount.stat(node).await.expect("it is there");
                assert_eq!((open.mtime, open.size), (closed.mtime, closed.size));
                seen.push(closed);
            }
            assert_eq!(mount.posix.stats().requests - before, 0, "nobody was asked");
            seen
        });
        world.sim.run_for(pause_us * 1000);
        for mount_number in [1, 0] {
            let seen = seen.clone();
            world.alone(mount_number, move |mount| async move {
                for (number, before) in (0..FILES).zip(seen) {
                    check(&mount, dir, number).await;
                    let node = mount.walk(&caller(2, 0), dir, &name(number), true).await.expect("it is there");
                    let after = mount.stat(node).await.expect("it is there");
                    let times = |attr: &weft_base::Attr| (attr.size, attr.mtime, attr.ctime);
                    assert_eq!(times(&before), times(&after), "{number} of mount {mount_number} after {pause_us} us");
                }
            });
        }
    }
}

/// What is written after a look has a later time, for whoever looks.
#[test]
fn a_write_after_a_look_counts() {
    let (world, dir) = held();
    let (first, last) = world.alone(0, move |mount| async move {
        let file = mount.create(&caller(1, 0), dir, "f0", 0o644).await.expect("a new file");
        mount.write(&caller(1, 0), file, 0, &bytes(0, 20_000), false).await.expect("it is written");
        let first = mount.stat(file.node).await.expect("it is there");
        rest(&mount, 30 * MILLISECOND).await;
        mount.write(&caller(1, 0), file, 0, &bytes(1, 20_000), false).await.expect("it is written");
        let last = mount.stat(file.node).await.expect("it is there");
        mount.close(file).await.expect("it is closed");
        (first, last)
    });
    assert!(last.mtime.0 >= first.mtime.0 + 20 * MILLISECOND as i64, "{first:?} {last:?}");
    for number in [1, 0] {
        let after = world.alone(number, move |mount| async move {
            let node = mount.walk(&caller(2, 0), dir, "f0", true).await.expect("it is there");
            mount.stat(node).await.expect("it is there")
        });
        assert_eq!(after.mtime, last.mtime);
    }
}

/// Others who look at files that were closed before and after one whose data server is silent wait
/// for a moment; closes wait for that server from then on, and what was closed before is not lost.
#[test]
fn a_silent_data_server_holds_up_no_other_file() {
    let (world, dir) = held();
    let data = world.cluster.map().data.len();
    let servers = world.cluster.servers().to_vec();
    let writer = world.mounts[0].node;
    servers[servers.len() - data..].iter().for_each(|node| world.sim.partition(writer, *node, 20 * SECOND));
    world.alone(0, move |mount| async move {
        for number in 0..FILES {
            closed(&mount, dir, &name(number), &bytes(number, 20_000 + usize::from(number))).await;
        }
        closed_in(&mount, dir, "small", &bytes(1, 3000)).await;
    });
    let begun = world.sim.now();
    let size = world.alone(1, move |mount| async move {
        let node = mount.walk(&caller(2, 0), dir, "small", true).await.expect("it is there");
        mount.stat(node).await.expect("it is there").size
    });
    let waited = world.sim.now().since(begun);
    assert!(size == 3000 && waited < 1500 * MILLISECOND, "after {waited} ns");
    world.sim.run_for(3 * SECOND);
    assert!(world.mounts[0].lines().iter().any(|line| line.contains("not at data servers yet")), "{:?}", world.mounts[0].lines());
    let outcome = world.alone(0, move |mount| async move {
        let file = mount.create(&caller(1, 0), dir, "waits", 0o644).await.expect("a new file");
        let written = mount.write(&caller(1, 0), file, 0, &bytes(1, 30_000), false).await;
        written.and(mount.close(file).await)
    });
    outcome.expect("its server answers again meanwhile");
    assert!(world.sim.now().since(begun) > 10 * SECOND, "it has waited");
    world.sim.run_for(20 * SECOND);
    for number in [1, 0] {
        world.alone(number, move |mount| async move {
            for number in 0..FILES {
                check(&mount, dir, number).await;
            }
        });
    }
}

/// Disks fill up behind a close: the mount says so and keeps the bytes; closes say it from then on.
#[test]
fn what_does_not_fit_after_a_close_is_kept() {
    let (world, dir) = held();
    fill_disks(&world);
    world.alone(0, move |mount| async move {
        closed(&mount, dir, &name(3), &bytes(3, 20_003)).await;
        rest(&mount, 100 * MILLISECOND).await;
        let file = mount.create(&caller(1, 0), dir, "next", 0o644).await.expect("a new file");
        let written = mount.write(&caller(1, 0), file, 0, &bytes(1, 30_000), false).await;
        let outcome = written.and(mount.close(file).await);
        assert_eq!(outcome.map_err(|error| error.status), Err(Status::NoSpace));
    });
    assert!(world.mounts[0].lines().iter().any(|line| line.contains("not at data servers yet")), "{:?}", world.mounts[0].lines());
    world.sim.heal();
    world.sim.run_for(20 * SECOND);
    world.alone(1, move |mount| async move { check(&mount, dir, 3).await });
}

/// A mount that dies just after a rename leaves the old content there, or all of the new one.
#[test]
fn what_replaces_a_file_is_whole_though_its_mount_dies() {
    for (round, size) in [(0, 3000), (1, 30_000), (2, 30_000), (3, 3000)] {
        let (world, dir) = held();
        world.alone(0, move |mount| async move {
            closed(&mount, dir, "kept", &bytes(0, 5000)).await;
            rest(&mount, 100 * MILLISECOND).await;
            closed(&mount, dir, "kept.new", &bytes(1, size)).await;
            mount.rename(&caller(1, 0), dir, "kept.new", "kept").await.expect("it is there");
        });
        world.sim.run_for(round * MILLISECOND);
        world.sim.crash(world.mounts[0].node);
        world.sim.run_for(20 * SECOND);
        let found = world.alone(1, move |mount| async move {
            let file = mount.open(&caller(2, 0), dir, "kept", how(Rights::READ)).await.expect("it is there");
            mount.read(file).await.expect("it is read")
        });
        assert!(found == bytes(1, size), "{} bytes", found.len());
    }
}

/// Who is unmounted brings what is left as soon as its servers answer again.
#[test]
fn an_unmount_waits_for_what_was_closed() {
    let (world, dir) = held();
    let data = world.cluster.map().data.len();
    let servers = world.cluster.servers().to_vec();
    let writer = world.mounts[0].node;
    servers[servers.len() - data..].iter().for_each(|node| world.sim.partition(writer, *node, 4 * SECOND));
    world.alone(0, move |mount| async move {
        for number in 0..FILES {
            closed(&mount, dir, &name(number), &bytes(number, 20_000 + usize::from(number))).await;
        }
        rest(&mount, 2 * SECOND).await;
        mount.posix.end(30 * SECOND).await;
    });
    world.sim.crash(writer);
    world.alone(1, move |mount| async move {
        for number in 0..FILES {
            check(&mount, dir, number).await;
        }
    });
    assert!(world.mounts[0].lines().iter().all(|line| !line.contains("is lost")), "{:?}", world.mounts[0].lines());
}
