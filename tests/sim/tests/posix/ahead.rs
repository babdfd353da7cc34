//! Files that are read in order and in small pieces: what is read ahead saves messages, and is
//! never older than what another program has written.

use weft_base::{Payload, SECOND, ServerId};
use weft_client::XattrFlags;
use weft_rt::{Runtime, join_all};
use weft_sim_tests::mount::{Mount, Open, caller, how};
use weft_wire::Rights;

use super::{ROOT, UPDATE, World};

const FILE_BYTES: usize = 3 << 19;
const PIECE_BYTES: usize = 40_000;

async fn make(mount: Mount, byte: u8) {
    let (who, hint, value) = (caller(1, 0), b"user.weft.stripe_size", b"65536");
    mount.posix.set_xattr(&who.who, ROOT, hint, value, XattrFlags::default()).await.expect("the hint is set");
    let file = mount.create(&who, ROOT, "file", 0o644).await.expect("a new file");
    fill(&mount, file, byte).await;
    mount.release(file.opened.number).await;
}

/// The content says which version it is, and at which place.
fn content(version: u8) -> Vec<u8> {
    let blocks: Vec<[u8; 1000]> = (0..FILE_BYTES.div_ceil(1000)).map(|nth| [version ^ nth as u8; 1000]).collect();
    blocks.as_flattened()[..FILE_BYTES].to_vec()
}

async fn fill(mount: &Mount, file: Open, version: u8) {
    mount.write(&caller(1, 0), file, 0, &content(version), false).await.expect("it is written");
}

/// Which version these bytes of the file are of.
fn version(bytes: &[u8], offset: usize) -> u8 {
    let version = bytes[0] ^ (offset / 1000) as u8;
    assert!(content(version)[offset..].starts_with(bytes), "one version, each byte in its place");
    version
}

async fn read(mount: &Mount, file: Open, offset: usize) -> Vec<u8> {
    let pieces = mount.posix.read(file.opened.number, offset as u64, PIECE_BYTES as u64).await.expect("it is read");
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

/// Reads on through one mount while programs of both change the file, one after the other.
fn check(seed: u64) {
    let world = World::new(seed, None);
    let mut random = world.sim.random();
    world.alone(0, |mount| make(mount, 0));
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
        let mut step = PIECE_BYTES;
        for _ in 0..random.below(32) {
            let (was, requests) = world.alone(0, move |mount| async move {
                let before = mount.posix.stats().requests;
                (version(&read(&mount, file, at).await, at), mount.posix.stats().requests - before)
            });
            assert_eq!(was, byte - 1, "at {at}, seed {seed}");
            saved += u32::from(requests == 0);
            if random.below(6) == 0 {
                step = PIECE_BYTES * (1 + random.below(3) as usize);
            }
            at += step;
            if at + PIECE_BYTES > FILE_BYTES || random.below(20) == 0 {
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
            fill(&mount, file, byte).await;
            mount.release(file.opened.number).await;
        });
    }
    assert!(saved > 10, "{saved} reads without a message");
}

#[test]
fn what_was_read_ahead_is_not_read_once_somebody_has_written() {
    (0..8).for_each(check);
}
