//! Files that are read in order and in small pieces: what is read ahead saves messages, and is
//! never older than what another program has written.

use std::ops::Range;

use weft_base::{MILLISECOND, Payload, SECOND, ServerId};
use weft_client::XattrFlags;
use weft_rt::{Runtime, join_all};
use weft_sim_tests::mount::{Mount, Open, caller, how};
use weft_wire::Rights;

use super::{ROOT, UPDATE, World};

const FILE_BYTES: usize = 3 << 19;
const PIECE_BYTES: usize = 40_000;
/// A read for which more is asked for beside it.
const LARGE_BYTES: usize = 1 << 19;

async fn make(mount: Mount, byte: u8) {
    make_of(mount, byte, FILE_BYTES).await;
}

async fn make_of(mount: Mount, byte: u8, bytes: usize) {
    let (who, hint, value) = (caller(1, 0), b"user.weft.stripe_size", b"65536");
    mount.posix.set_xattr(&who.who, ROOT, hint, value, XattrFlags::default()).await.expect("the hint is set");
    let file = mount.create(&who, ROOT, "file", 0o644).await.expect("a new file");
    fill(&mount, file, byte, bytes).await;
    mount.release(file.opened.number).await;
}

/// The content says which version it is, and at which place.
fn content(version: u8, places: Range<usize>) -> Vec<u8> {
    let blocks: Vec<[u8; 1000]> = (places.start / 1000..places.end.div_ceil(1000)).map(|nth| [version ^ nth as u8; 1000]).collect();
    blocks.as_flattened()[places.start % 1000..][..places.len()].to_vec()
}

async fn fill(mount: &Mount, file: Open, version: u8, bytes: usize) {
    let pieces = (0..bytes).step_by(1 << 20).map(|start| start..bytes.min(start + (1 << 20)));
    for places in pieces {
        mount.write(&caller(1, 0), file, places.start as u64, &content(version, places), false).await.expect("it is written");
    }
}

/// Which version these bytes of the file are of.
fn version(bytes: &[u8], offset: usize) -> u8 {
    let version = bytes[0] ^ (offset / 1000) as u8;
    assert!(content(version, offset..offset + bytes.len()) == bytes, "one version, each byte in its place");
    version
}

async fn read(mount: &Mount, file: Open, offset: usize) -> Vec<u8> {
    read_piece(mount, file, offset, PIECE_BYTES).await
}

/// Reads the first two pieces for which more is asked for beside the reads.
async fn read_two(mount: &Mount, file: Open) {
    for at in [0, LARGE_BYTES] {
        assert_eq!(version(&read_piece(mount, file, at, LARGE_BYTES).await, at), 7);
    }
}

async fn read_piece(mount: &Mount, file: Open, offset: usize, bytes: usize) -> Vec<u8> {
    let pieces = mount.posix.read(file.opened.number, offset as u64, bytes as u64).await.expect("it is read");
    Payload::concat(&pieces)
}

fn open(world: &World, mount: usize) -> Open {
    world.alone(mount, |mount| async move { mount.open(&caller(1, 0), ROOT, "file", how(Rights::READ)).await.expect("it opens") })
}

#[test]
fn a_file_is_read_in_order_with_few_messages() {
    let world = World::new(21, None);
    world.alone(0, |mount| make(mount, 7));
    world.sim.run_for(SECOND);
    let file = open(&world, 1);
    let requests = world.alone(1, move |mount| async move {
        let before = mount.posix.stats().requests;
        let mut at = 0;
        while at < FILE_BYTES {
            let bytes = read(&mount, file, at).await;
            assert_eq!(bytes.len(), PIECE_BYTES.min(FILE_BYTES - at), "fewer only at the end");
            assert_eq!(version(&bytes, at), 7);
            at += bytes.len();
        }
        assert!(read(&mount, file, at).await.is_empty());
        mount.posix.stats().requests - before
    });
    // 39 pieces, most of them on two servers: the first alone, then 160,000 bytes, 320,000 and so
    // on, from three servers each.
    assert!(requests <= 3 * 6, "{requests} requests");
    // Here and there nothing more is asked for than is wanted.
    let bytes = world.alone(1, move |mount| async move {
        let before = mount.posix.stats().bytes;
        for at in [900_000, 100_000, 1_400_000, 50, 700_000] {
            assert_eq!(version(&read(&mount, file, at).await, at), 7);
        }
        mount.posix.stats().bytes - before
    });
    assert!(bytes < 6 * PIECE_BYTES as u64, "{bytes} bytes");
}

/// Two programs read blocks in turns, each those of its own: nothing is read that nobody wants.
#[test]
fn blocks_at_equal_distances_are_read_with_few_messages() {
    let world = World::new(24, None);
    world.alone(0, |mount| make(mount, 7));
    world.sim.run_for(SECOND);
    let files = [open(&world, 1), open(&world, 1)];
    let (requests, bytes) = world.alone(1, move |mount| async move {
        let before = mount.posix.stats();
        for (number, at) in (0..FILE_BYTES).step_by(PIECE_BYTES).enumerate() {
            let bytes = read(&mount, files[number % 2], at).await;
            assert_eq!(bytes.len(), PIECE_BYTES.min(FILE_BYTES - at), "fewer only at the end");
            assert_eq!(version(&bytes, at), 7);
        }
        let after = mount.posix.stats();
        (after.requests - before.requests, after.bytes - before.bytes)
    });
    // Each has 20 blocks: two and the last one alone, then 4, 8 and 5 together.
    assert!(requests <= 2 * (3 * 2 + 3 * 3) + 2, "{requests} requests");
    assert!(bytes < FILE_BYTES as u64 * 11 / 10, "{bytes} bytes");
}

/// A program that has several reads under way waits for none: little is read twice.
#[test]
fn reads_in_parallel_are_not_read_ahead() {
    let world = World::new(23, None);
    world.alone(0, |mount| make(mount, 7));
    world.sim.run_for(SECOND);
    let file = open(&world, 1);
    let bytes = world.alone(1, move |mount| async move {
        let before = mount.posix.stats().bytes;
        for first in (0..FILE_BYTES - 4 * PIECE_BYTES).step_by(4 * PIECE_BYTES) {
            let reads = (0..4).map(|index| read(&mount, file, first + index * PIECE_BYTES));
            for (index, bytes) in join_all(reads).await.iter().enumerate() {
                assert_eq!(version(bytes, first + index * PIECE_BYTES), 7);
            }
        }
        mount.posix.stats().bytes - before
    });
    assert!(bytes < FILE_BYTES as u64 * 6 / 5, "{bytes} bytes");
}

/// A server that does not answer holds up only who wants its bytes.
#[test]
fn what_is_not_wanted_is_not_waited_for() {
    let world = World::new(22, None);
    world.alone(0, |mount| make(mount, 7));
    world.sim.run_for(SECOND);
    let file = open(&world, 1);
    world.sim.crash(world.sim.node_of(ServerId::data(1)).expect("it runs"));
    let (read_at, waited_ns) = world.alone(1, move |mount| async move {
        let (mut read_at, mut waited_ns) = (Vec::new(), 0);
        for at in (0..12 * PIECE_BYTES).step_by(PIECE_BYTES) {
            let began = mount.posix.rt().now();
            if mount.posix.read(file.opened.number, at as u64, PIECE_BYTES as u64).await.is_ok() {
                waited_ns += mount.posix.rt().now().since(began);
                read_at.push(at);
            }
        }
        (read_at, waited_ns)
    });
    assert!(read_at.len() > 4, "pieces of the other servers are read: {read_at:?}");
    assert!(waited_ns < 3 * SECOND, "{waited_ns} ns");
}

/// A program reads a file of 16 MiB in such pieces, and works for so many nanoseconds after each.
/// How long it waited for each piece.
fn waits_ns(piece_bytes: usize, work_ns: u64) -> Vec<u64> {
    const BYTES: usize = 16 << 20;
    let world = World::new(25, None);
    world.alone(0, |mount| make_of(mount, 7, BYTES));
    world.sim.run_for(SECOND);
    let file = open(&world, 1);
    world.alone(1, move |mount| async move {
        let (rt, mut waits_ns) = (mount.posix.rt(), Vec::new());
        for at in (0..BYTES).step_by(piece_bytes) {
            let began = rt.now();
            let bytes = read_piece(&mount, file, at, piece_bytes).await;
            waits_ns.push(rt.now().since(began));
            assert_eq!((version(&bytes, at), bytes.len()), (7, piece_bytes));
            rt.sleep_until(rt.now() + work_ns).await;
        }
        waits_ns
    })
}

#[test]
fn servers_work_while_the_program_does() {
    // 1 MiB is on its way for some 900 us.
    let large = waits_ns(1 << 20, 2 * MILLISECOND);
    assert!(large[0] > 500_000 && large[3..].iter().all(|ns| *ns < 50_000), "{large:?}");
    let blocked = waits_ns(1 << 20, MILLISECOND / 2);
    let [sum, limit] = [blocked[3..].iter().sum::<u64>(), 13 * blocked[0]];
    assert!(sum < limit * 3 / 4, "half of the time is saved that the program takes: {blocked:?}");
}

#[test]
fn what_small_reads_wait_for_is_read_beside_them_if_it_takes_most_of_the_time() {
    let halves = |waits_ns: Vec<u64>| {
        let (first, last) = waits_ns.split_at(waits_ns.len() / 2);
        [first, last].map(|half| (half.iter().sum::<u64>(), half.iter().filter(|ns| **ns > 100_000).count()))
    };
    let [before, after] = halves(waits_ns(1 << 16, 30_000));
    assert!(after.0 < before.0 * 3 / 4, "servers are slower than the program: {before:?}, {after:?}");
    let [_, after] = halves(waits_ns(1 << 16, 300_000));
    assert_eq!(after.1, 8, "the program is slower: it waits once for each MiB");
}

/// Whoever closes a file waits for nothing that is read ahead of it.
#[test]
fn a_file_is_closed_while_more_of_it_is_asked_for() {
    let world = World::new(26, None);
    world.alone(0, |mount| make_of(mount, 7, 4 << 20));
    world.sim.run_for(SECOND);
    let file = open(&world, 1);
    let requests = world.alone(1, move |mount| async move {
        read_two(&mount, file).await;
        mount.release(file.opened.number).await;
        mount.posix.stats().requests
    });
    world.alone(0, |mount| async move {
        let file = mount.open(&caller(2, 0), ROOT, "file", how(Rights::WRITE)).await.expect("it opens");
        fill(&mount, file, 8, 4 << 20).await;
        mount.release(file.opened.number).await;
    });
    world.sim.run_for(10 * SECOND);
    let after = world.alone(1, |mount| async move { mount.posix.stats().requests });
    assert!(after - requests < 20, "a close and what keeps the session, {} requests", after - requests);
    let file = open(&world, 1);
    assert_eq!(world.alone(1, move |mount| async move { version(&read(&mount, file, 0).await, 0) }), 8);
}

/// A server that does not answer keeps the file from being read, and not longer than it is away.
#[test]
fn what_is_asked_for_beside_reads_may_fail() {
    let world = World::new(27, None);
    world.alone(0, |mount| make_of(mount, 7, 8 << 20));
    world.sim.run_for(SECOND);
    let file = open(&world, 1);
    let server = world.sim.node_of(ServerId::data(1)).expect("it runs");
    let began = world.sim.now();
    world.alone(1, move |mount| async move { read_two(&mount, file).await });
    world.sim.crash(server);
    let reads = world.sim.spawn_on(world.mounts[1].node, {
        let mount = world.mounts[1].clone();
        move |_| async move {
            for at in (2 * LARGE_BYTES..8 << 20).step_by(LARGE_BYTES) {
                assert_eq!(version(&read_piece(&mount, file, at, LARGE_BYTES).await, at), 7);
            }
        }
    });
    world.sim.run_for(5 * SECOND);
    assert!(!reads.is_over());
    world.sim.restart(server);
    world.run(vec![reads]);
    assert!(world.sim.now().since(began) < 30 * SECOND);
}

/// Reads on through one mount while programs of both change the file, one after the other. How many
/// reads took no message.
fn check(seed: u64, (file_bytes, piece_bytes): (usize, usize)) -> u32 {
    let world = World::new(seed, None);
    let mut random = world.sim.random();
    world.alone(0, move |mount| make_of(mount, 0, file_bytes));
    world.sim.run_for(SECOND);
    let mut file = open(&world, 0);
    let (mut at, mut saved) = (0, 0);
    for byte in 1..30u8 {
        // What is known of a file that others have changed comes with a look at its name after they
        // have closed it.
        if random.coin() {
            world.sim.run_for(SECOND);
            world.alone(0, move |mount| async move { mount.release(file.opened.number).await });
            file = open(&world, 0);
        }
        // In order, or every second or third block.
        let mut step = piece_bytes;
        for _ in 0..random.below(32) {
            let (was, requests) = world.alone(0, move |mount| async move {
                let before = mount.posix.stats().requests;
                let was = version(&read_piece(&mount, file, at, piece_bytes).await, at);
                (was, mount.posix.stats().requests - before)
            });
            if random.below(3) == 0 {
                world.sim.run_for(random.below(2 * MILLISECOND));
            }
            assert_eq!(was, byte - 1, "at {at}, seed {seed}");
            saved += u32::from(requests == 0);
            if random.below(6) == 0 {
                step = piece_bytes * (1 + random.below(3) as usize);
            }
            at += step;
            if at + piece_bytes > file_bytes || random.below(20) == 0 {
                at = random.below(20) as usize * 1000;
            }
        }
        // The reader's mount does not always hear that somebody wants to write.
        if random.below(4) == 0 {
            let servers = [0, 1].map(|index| world.sim.node_of(ServerId(index)).expect("it is there"));
            servers.into_iter().for_each(|server| world.sim.partition(world.mounts[0].node, server, 12 * SECOND));
        }
        let (writer, rights) = (random.below(2) as usize, if random.coin() { Rights::WRITE } else { UPDATE });
        world.alone(writer, move |mount| async move {
            let file = mount.open(&caller(2, 0), ROOT, "file", how(rights)).await.expect("it opens");
            fill(&mount, file, byte, file_bytes).await;
            mount.release(file.opened.number).await;
        });
    }
    saved
}

#[test]
fn what_was_read_ahead_is_not_read_once_somebody_has_written() {
    let saved: u32 = (0..8).map(|seed| check(seed, (FILE_BYTES, PIECE_BYTES))).sum();
    assert!(saved > 8 * 10, "{saved} reads without a message");
    let saved: u32 = (8..10).map(|seed| check(seed, (8 << 20, LARGE_BYTES))).sum();
    assert!(saved > 2 * 10, "{saved} reads without a message");
}
