//! Streams into new files: they are sent to data servers while they are written, and whoever looks
//! sees what has been written.

use std::cell::Cell;
use std::rc::Rc;

use weft_base::{MILLISECOND, SECOND, Status};
use weft_client::SetAttr;
use weft_posix::OpenHow;
use weft_rt::Runtime;
use weft_sim_tests::mount::{Mount, Open, caller, how};
use weft_wire::ops::SetTime;

use super::delayed::{rest, world};
use super::gathered::{THEN, all_see, bytes, fill_disks, read, read_named, warm};
use super::{ROOT, UPDATE, World};

const PIECE: usize = 64 << 10;
const STREAM: usize = 4 << 20;

async fn write(mount: &Mount, file: Open, all: &[u8], from: usize) {
    for start in (from..all.len()).step_by(PIECE) {
        let piece = &all[start..all.len().min(start + PIECE)];
        mount.write(&caller(1, 0), file, start as u64, piece, false).await.expect("it is written");
    }
}

pub(super) async fn new(mount: &Mount, name: &str) -> Open {
    mount.create(&caller(1, 0), ROOT, name, 0o600).await.expect("a new file")
}

/// Fewer messages, and the program waits less, than for a file that is not gathered.
#[test]
fn a_stream_is_sent_while_it_is_written() {
    let world = warm();
    let all = bytes(3, STREAM);
    let measured = [true, false].map(|is_new| {
        let all = all.clone();
        world.alone(0, move |mount| async move {
            let file = match is_new {
                true => new(&mount, "stream").await,
                // What goes past caches is not gathered.
                false => mount.open(&caller(1, 0), ROOT, "large", OpenHow { direct: true, ..how(UPDATE) }).await.expect("it opens"),
            };
            let (begun, before) = (mount.posix.rt().now(), mount.posix.stats().requests);
            write(&mount, file, &all, 0).await;
            mount.close(file).await.expect("it is closed");
            (mount.posix.rt().now().since(begun), mount.posix.stats().requests - before)
        })
    });
    let [(new_ns, new_requests), (old_ns, old_requests)] = measured;
    // At most eight parts for three data servers each; it writes faster than they do.
    assert!(new_requests <= 24 + 4 && old_requests >= 3 * (STREAM / PIECE) as u64, "{measured:?}");
    assert!(2 * new_ns < old_ns, "{measured:?}");
    all_see(&world, "stream", &all);
    all_see(&world, "large", &all);
}

/// The first file of a mount is no other, whatever it writes first.
#[test]
fn the_first_file_of_a_mount_is_a_stream() {
    for first_bytes in [1000, PIECE, 10 * PIECE] {
        let world = world();
        let all = bytes(4, STREAM);
        let stream = all.clone();
        let requests = world.alone(0, move |mount| async move {
            let file = new(&mount, "stream").await;
            let before = mount.posix.stats().requests;
            mount.write(&caller(1, 0), file, 0, &stream[..first_bytes], false).await.expect("it is written");
            write(&mount, file, &stream, first_bytes).await;
            mount.close(file).await.expect("it is closed");
            mount.posix.stats().requests - before
        });
        // One message more shows that there is room.
        assert!(requests <= 24 + 4 + 3, "{requests} requests after {first_bytes} bytes");
        all_see(&world, "stream", &all);
    }
}

/// Whoever reads it meanwhile sees all that was written before, and no more than was written.
#[test]
fn others_read_a_stream_while_it_is_written() {
    for round in 0..6u64 {
        let world = warm();
        let all = Rc::new(bytes(round as u8, STREAM));
        let written = Rc::new(Cell::new(0));
        let (stream, done) = (all.clone(), written.clone());
        let writer = world.mounts[0].clone();
        let writes = world.sim.spawn_on(writer.node, move |rt| async move {
            let file = new(&writer, "stream").await;
            for (number, piece) in stream.chunks(PIECE).enumerate() {
                writer.write(&caller(1, 0), file, (number * PIECE) as u64, piece, false).await.expect("it is written");
                done.set((number + 1) * PIECE);
                rt.sleep_until(rt.now() + rt.random() % (round * MILLISECOND + 1)).await;
            }
            writer.close(file).await.expect("it is closed");
        });
        let (stream, reader) = (all.clone(), world.mounts[1].clone());
        let reads = world.sim.spawn_on(reader.node, move |rt| async move {
            while written.get() < STREAM {
                rt.sleep_until(rt.now() + rt.random() % (20 * MILLISECOND)).await;
                let least = written.get();
                if least > 0 {
                    let found = read_named(&reader, "stream").await;
                    assert!(found.len() >= least, "{} bytes of {least}", found.len());
                    assert!(found == stream[..found.len()], "round {round}");
                }
            }
        });
        world.run(vec![writes, reads]);
        all_see(&world, "stream", &all);
    }
}

/// Its own program reads it, writes over what was sent, cuts it, and goes on.
#[test]
fn its_program_does_with_a_stream_what_it_likes() {
    let world = warm();
    let mut all = bytes(5, STREAM);
    for what in 0..6 {
        let name = ["reads", "writes over", "cuts", "sets", "closes", "syncs"][what];
        all.resize(STREAM, 1);
        let stream = all.clone();
        let left = world.alone(0, move |mount| async move {
            let mut stream = stream;
            let file = new(&mount, name).await;
            let half = STREAM / 2 + 5000;
            write(&mount, file, &stream[..half], 0).await;
            match what {
                0 => assert!(read(&mount, file).await == stream[..half]),
                1 => {
                    mount.write(&caller(1, 0), file, 100, &[7; 1000], false).await.expect("it is written");
                    stream[100..1100].fill(7);
                    assert!(read(&mount, file).await == stream[..half]);
                }
                2 => {
                    let changes = SetAttr { size: Some(10_000), ..SetAttr::default() };
                    mount.posix.setattr(&caller(1, 0).who, file.node, &changes).await.expect("it is cut");
                    stream[10_000..half].fill(0);
                }
                3 => {
                    let changes = SetAttr { mode: Some(0o640), ..SetAttr::default() };
                    let attr = mount.posix.setattr(&caller(1, 0).who, file.node, &changes).await.expect("it is set").attr;
                    assert_eq!((attr.size, attr.permissions()), (half as u64, 0o640));
                }
                4 => mount.posix.before_close(file.opened.number).await.expect("a copy is closed"),
                _ => mount.posix.fsync(file.opened.number, false).await.expect("it is synced"),
            }
            let before = mount.posix.stats().requests;
            write(&mount, file, &stream, half).await;
            let requests = mount.posix.stats().requests - before;
            // What is cut or synced is not kept any more.
            assert!(requests <= 3 * 4 || what == 2 || what == 5, "{name}: {requests} requests");
            // As `tar` does.
            let changes = SetAttr { mtime: Some(SetTime { at: Some(THEN) }), ..SetAttr::default() };
            mount.posix.setattr(&caller(1, 0).who, file.node, &changes).await.expect("it is set");
            mount.close(file).await.expect("it is closed");
            assert_eq!(mount.stat(file.node).await.expect("it is there").mtime, THEN);
            stream
        });
        all_see(&world, name, &left);
        let mtime = world.alone(1, move |mount| async move {
            let node = mount.walk(&caller(2, 0), ROOT, name, true).await.expect("it is there");
            mount.stat(node).await.expect("it is there").mtime
        });
        assert_eq!(mtime, THEN, "{name}");
    }
}

/// A stream meets full disks: a write says so, or the close, and what was written before comes when
/// there is space.
#[test]
fn a_stream_that_does_not_fit_says_so_and_is_brought_later() {
    let world = warm();
    let all = bytes(6, STREAM);
    let (stream, half) = (all.clone(), STREAM / 2);
    let file = world.alone(0, move |mount| async move {
        let file = new(&mount, "stream").await;
        write(&mount, file, &stream[..half], 0).await;
        file
    });
    fill_disks(&world);
    let stream = all.clone();
    let written = world.alone(0, move |mount| async move {
        let mut written = half;
        while written < STREAM {
            let piece = &stream[written..written + PIECE];
            match mount.write(&caller(1, 0), file, written as u64, piece, false).await {
                Ok(()) => written += PIECE,
                Err(error) => {
                    assert_eq!(error.status, Status::NoSpace);
                    break;
                }
            }
        }
        assert!(written < STREAM, "the disks are full");
        let error = mount.close(file).await.expect_err("there is no space");
        assert_eq!(error.status, Status::NoSpace);
        written
    });
    world.sim.heal();
    world.sim.run_for(20 * SECOND);
    all_see(&world, "stream", &all[..written]);
}

/// A mount dies while its program writes: what data servers have of the stream has no gap, and is
/// there.
#[test]
fn a_dead_mount_leaves_the_beginning_of_a_stream() {
    for round in 1..5u64 {
        let world = warm();
        let all = bytes(round as u8, STREAM);
        let (stream, writer) = (all.clone(), world.mounts[0].clone());
        drop(world.sim.spawn_on(writer.node, move |_| async move {
            let file = new(&writer, "stream").await;
            write(&writer, file, &stream, 0).await;
            std::future::pending::<()>().await;
        }));
        world.sim.run_for(round * 5 * MILLISECOND);
        world.sim.crash(world.mounts[0].node);
        world.sim.run_for(60 * SECOND);
        let found = world.alone(1, |mount| async move { read_named(&mount, "stream").await });
        assert!(found == all[..found.len()], "round {round}: {} bytes", found.len());
        println!("{} bytes are left", found.len());
    }
}

/// Without its metadata server a stream goes on, as one into a file that was there before.
#[test]
fn a_stream_goes_on_without_its_metadata_server() {
    let world = warm();
    let all = Rc::new(bytes(9, STREAM));
    let stream = all.clone();
    let file = world.alone(0, move |mount| async move {
        let file = new(&mount, "stream").await;
        write(&mount, file, &stream[..STREAM / 2], 0).await;
        file
    });
    let (meta, stream) = (world.cluster.servers()[0], all.clone());
    world.sim.crash(meta);
    world.alone(0, move |mount| async move {
        let rt = mount.posix.rt();
        for start in (STREAM / 2..STREAM).step_by(PIECE) {
            let begun = rt.now();
            let piece = &stream[start..start + PIECE];
            mount.write(&caller(1, 0), file, start as u64, piece, false).await.expect("it is written");
            assert!(rt.now().since(begun) < SECOND, "at {start} after {} ns", rt.now().since(begun));
            rest(&mount, 500 * MILLISECOND).await;
        }
    });
    world.sim.restart(meta);
    world.alone(0, move |mount| async move { mount.close(file).await.expect("it is closed") });
    all_see(&world, "stream", &all);
}

/// Servers die and links break while both mounts write streams.
#[test]
fn streams_survive_faults() {
    for seed in 0..8 {
        println!("seed {seed}");
        let mut world = World::new(seed, None);
        world.takes_small_files();
        world.plan_faults();
        // Of each mount some, whose parts are sent beside each other.
        let writers = [(0, PIECE), (1, PIECE), (2, 10 * PIECE), (3, 11 * PIECE), (4, 9 * PIECE)].map(|(number, piece_bytes)| {
            let mount = world.mounts[number % 2].clone();
            world.sim.spawn_on(mount.node, move |rt| async move {
                for round in 0..3u8 {
                    let name = format!("stream {number} {round}");
                    let all = bytes(round, STREAM / 2 + usize::from(round) * 333);
                    let file = new(&mount, &name).await;
                    for (piece, data) in all.chunks(piece_bytes).enumerate() {
                        mount.write(&caller(1, 0), file, (piece * piece_bytes) as u64, data, false).await.expect("it is written");
                        if piece % 8 == 0 || piece_bytes > PIECE {
                            rt.sleep_until(rt.now() + rt.random() % (30 * MILLISECOND)).await;
                        }
                    }
                    mount.close(file).await.expect("it is closed");
                }
            })
        });
        world.run(writers.into());
        world.sim.recover();
        for number in [0, 1] {
            world.alone(number, move |mount| async move {
                for (writer, round) in (0..5).flat_map(|writer| (0..3u8).map(move |round| (writer, round))) {
                    let found = read_named(&mount, &format!("stream {writer} {round}")).await;
                    assert!(found == bytes(round, STREAM / 2 + usize::from(round) * 333), "{} bytes", found.len());
                }
            });
        }
    }
}
