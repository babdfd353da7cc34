//! New files that are not written in order: what is gathered of them has gaps, and goes over what
//! was sent before.

use std::cell::RefCell;
use std::rc::Rc;

use weft_base::{FileKind, MILLISECOND, SECOND};
use weft_client::SeekFor;
use weft_rt::Runtime;
use weft_sim_tests::mount::{Mount, Open, caller, how};
use weft_wire::Rights;

use super::behind::new;
use super::gathered::{all_see, bytes, read, warm};
use super::{ROOT, UPDATE, World};

/// What programs of HPC write that share a file: no page, no stripe.
const BLOCK: usize = 47_008;

async fn write(mount: &Mount, file: Open, at: usize, data: &[u8]) {
    mount.write(&caller(1, 0), file, at as u64, data, false).await.expect("it is written");
}

/// Two programs write one file block by block, in turns and not quite: a message takes many blocks
/// along.
#[test]
fn blocks_of_two_programs_go_together() {
    let world = warm();
    let all = Rc::new(bytes(3, 96 * BLOCK));
    let mount = world.mounts[0].clone();
    let files = world.alone(0, |mount| async move {
        let first = new(&mount, "blocks").await;
        [first, mount.open(&caller(1, 0), ROOT, "blocks", how(UPDATE)).await.expect("it opens")]
    });
    let before = mount.posix.stats().requests;
    let programs = [0, 1].map(|program| {
        let (mount, all) = (mount.clone(), all.clone());
        world.sim.spawn_on(mount.node, move |rt| async move {
            for number in (program..96).step_by(2) {
                write(&mount, files[program], number * BLOCK, &all[number * BLOCK..(number + 1) * BLOCK]).await;
                rt.sleep_until(rt.now() + rt.random() % MILLISECOND).await;
            }
            mount.close(files[program]).await.expect("it is closed");
        })
    });
    world.run(programs.into());
    let requests = mount.posix.stats().requests - before;
    // 4.3 MiB in nine parts or some more, for three data servers.
    assert!(requests <= 3 * 12 + 8, "{requests} requests");
    all_see(&world, "blocks", &all);
}

/// Whoever looks meanwhile sees the bytes, holes, size and space that there are.
#[test]
fn who_looks_at_a_file_with_gaps_sees_what_was_written() {
    let world = warm();
    let mut all = vec![0; 300_000];
    for (at, data) in [(100_000, bytes(1, 50_000)), (290_000, bytes(2, 10_000)), (0, bytes(3, 20))] {
        all[at..at + data.len()].copy_from_slice(&data);
    }
    let written = all.clone();
    world.alone(0, move |mount| async move {
        let file = new(&mount, "gaps").await;
        write(&mount, file, 100_000, &written[100_000..150_000]).await;
        let attr = mount.stat(file.node).await.expect("it is there");
        assert_eq!((attr.kind, attr.size), (FileKind::File, 150_000));
        assert!(attr.hole_bytes >= 90_000, "{} bytes of holes", attr.hole_bytes);
        write(&mount, file, 290_000, &written[290_000..]).await;
        assert!(
            read(&mount, file).await == [&vec![0; 100_000], &written[100_000..150_000], &vec![0; 140_000], &written[290_000..]].concat()
        );
        write(&mount, file, 0, &written[..20]).await;
        let data = mount.posix.seek(file.opened.number, 200_000, SeekFor::Data).await.expect("it is asked");
        assert!(data.is_some_and(|at| (200_000..=290_000).contains(&at)), "{data:?}");
        write(&mount, file, 0, &written[..20]).await;
    });
    all_see(&world, "gaps", &all);
    let attr = world.alone(1, |mount| async move {
        let node = mount.walk(&caller(2, 0), ROOT, "gaps", true).await.expect("it is there");
        mount.stat(node).await.expect("it is there")
    });
    assert!(attr.hole_bytes >= 200_000, "{} bytes of holes", attr.hole_bytes);
}

/// Some writes are large, and few are more than is kept of one file.
fn most(number: u64) -> usize {
    match number {
        _ if number % 60 == 59 => 3 << 20,
        _ if number.is_multiple_of(7) => 300_000,
        _ => 6000,
    }
}

/// Programs write anywhere, read their own writes, and others look on; servers may fail.
#[test]
fn writes_anywhere_are_read_by_all() {
    const LEN: usize = 3 << 20;
    for seed in 0..12u64 {
        println!("seed {seed}");
        let mut world = if seed % 2 == 0 { warm() } else { World::new(seed, None) };
        if seed % 2 == 1 {
            world.takes_small_files();
            world.plan_faults();
        }
        let model = Rc::new(RefCell::new(Vec::new()));
        let (mount, written) = (world.mounts[0].clone(), model.clone());
        let writes = world.sim.spawn_on(mount.node, move |rt| async move {
            // What makes the mount hear of closes.
            let before = new(&mount, "before").await;
            write(&mount, before, 0, &bytes(1, 9000)).await;
            mount.close(before).await.expect("it is closed");
            let file = new(&mount, "anywhere").await;
            for number in 0..300u64 {
                let (at, len) = (rt.random() as usize % LEN, rt.random() as usize % most(number) + 1);
                let data = bytes((rt.random() % 256) as u8, len);
                write(&mount, file, at, &data).await;
                let len = {
                    let mut model = written.borrow_mut();
                    let len = model.len().max(at + len);
                    model.resize(len, 0);
                    model[at..at + data.len()].copy_from_slice(&data);
                    len
                };
                match rt.random() % 40 {
                    0 => assert!(read(&mount, file).await == *written.borrow(), "write {number}"),
                    1 => assert_eq!(mount.stat(file.node).await.expect("it is there").size, len as u64, "write {number}"),
                    2 => rt.sleep_until(rt.now() + rt.random() % (20 * MILLISECOND)).await,
                    3 if seed % 3 == 0 => mount.posix.fsync(file.opened.number, true).await.expect("it is synced"),
                    _ => {}
                }
            }
            mount.close(file).await.expect("it is closed");
        });
        let looker = world.mounts[1].clone();
        let looks = world.sim.spawn_on(looker.node, move |rt| async move {
            if seed % 4 < 2 {
                rt.sleep_until(rt.now() + rt.random() % (SECOND / 4)).await;
                if let Ok(file) = looker.open(&caller(2, 0), ROOT, "anywhere", how(Rights::READ)).await {
                    read(&looker, file).await;
                    looker.release(file.opened.number).await;
                }
            }
        });
        world.run(vec![writes, looks]);
        world.sim.recover();
        for number in [1, 0] {
            let model = model.clone();
            world.alone(number, move |mount| async move {
                let file = mount.open(&caller(2, 0), ROOT, "anywhere", how(Rights::READ)).await.expect("it opens");
                assert!(read(&mount, file).await == *model.borrow(), "mount {number}");
                mount.release(file.opened.number).await;
            });
        }
    }
}

/// What a program appends to a log that it has made goes together; nobody else appends over it.
#[test]
fn appends_to_a_new_file_go_together() {
    let world = warm();
    let all = bytes(8, 1 << 20);
    let record = 4000;
    let stream = all.clone();
    let file = world.alone(0, move |mount| async move {
        let file = new(&mount, "log").await;
        let before = mount.posix.stats().requests;
        for data in stream.chunks(record) {
            mount.write(&caller(1, 0), file, 0, data, true).await.expect("it is appended");
        }
        let requests = mount.posix.stats().requests - before;
        assert!(requests <= 3 * 3, "{requests} requests");
        file
    });
    // Another one opens it: what is here comes first.
    let theirs = world.alone(1, |mount| async move {
        let log = mount.open(&caller(1, 0), ROOT, "log", how(super::APPEND)).await.expect("it opens");
        mount.write(&caller(1, 0), log, 0, b"theirs", true).await.expect("it is appended");
        log
    });
    world.alone(0, move |mount| async move {
        mount.write(&caller(1, 0), file, 0, b"ours", true).await.expect("it is appended");
        mount.close(file).await.expect("it is closed");
    });
    world.alone(1, move |mount| async move { mount.close(theirs).await.expect("it is closed") });
    all_see(&world, "log", &[&all[..], b"theirs", b"ours"].concat());
}
