//! Files that were there before and are written again, by a mount that alone has them open: what it
//! writes is gathered as that of new files, and small ones stay small.

use std::cell::Cell;
use std::rc::Rc;

use weft_base::{MILLISECOND, Nanos, SECOND};
use weft_client::SetAttr;
use weft_posix::{OpenHow, WriteHow};
use weft_rt::{Bulk, Runtime};
use weft_sim_tests::mount::{Mount, Open, caller, how};
use weft_wire::Rights;

use super::delayed::{closed_in, rest};
use super::gathered::{all_see, bytes, read_named, warm};
use super::{APPEND, ROOT, UPDATE, World};

const PIECE: usize = 16 << 10;
const STREAM: usize = 2 << 20;

async fn opened(mount: &Mount, name: &str, how: OpenHow) -> Open {
    mount.open(&caller(1, 0), ROOT, name, how).await.expect("it opens")
}

async fn write(mount: &Mount, file: Open, all: &[u8]) {
    for (number, data) in all.chunks(PIECE).enumerate() {
        mount.write(&caller(1, 0), file, (number * PIECE) as u64, data, false).await.expect("it is written");
    }
}

/// Over what is there, from its beginning or from nothing, and at its end.
#[test]
fn a_file_that_was_there_is_written_in_large_messages() {
    for what in 0..4 {
        let world = warm();
        let (name, before, all) = ("again", bytes(1, STREAM + 777), bytes(2, STREAM));
        let (old, new) = (before.clone(), all.clone());
        let requests = world.alone(0, move |mount| async move {
            closed_in(&mount, ROOT, name, &old).await;
            rest(&mount, 100 * MILLISECOND).await;
            let before = mount.posix.stats().requests;
            let file = match what {
                2 => opened(&mount, name, how(APPEND)).await,
                // Its server hears of this open with the first write.
                3 => opened(&mount, name, how(UPDATE)).await,
                _ => opened(&mount, name, OpenHow { truncate: what == 1, ..how(Rights::WRITE) }).await,
            };
            // As a shell does, which gives it another number.
            mount.posix.before_close(file.opened.number).await.expect("a copy is closed");
            match what {
                2 => {
                    for data in new.chunks(PIECE) {
                        mount.write(&caller(1, 0), file, 0, data, true).await.expect("it is appended");
                    }
                }
                _ => write(&mount, file, &new).await,
            }
            mount.close(file).await.expect("it is closed");
            rest(&mount, 100 * MILLISECOND).await;
            mount.posix.stats().requests - before
        });
        // Four parts for three data servers each, and what an open and a close cost.
        assert!(requests <= 4 * 3 + 6, "{requests} requests");
        let expected = match what {
            0 | 3 => [&all[..], &before[STREAM..]].concat(),
            1 => all,
            _ => [&before[..], &all].concat(),
        };
        all_see(&world, name, &expected);
    }
}

/// A small file that is cut to nothing and written again costs what a new one costs, and nobody
/// moves it: by a mount, and by a library, which makes it if it is not there.
#[test]
fn a_small_file_that_is_rewritten_stays_small() {
    for by_path in [false, true] {
        let world = warm();
        let requests = world.alone(0, move |mount| async move {
            closed_in(&mount, ROOT, "small", &bytes(1, 3000)).await;
            rest(&mount, 100 * MILLISECOND).await;
            let before = mount.posix.stats().requests;
            for round in 0..10u8 {
                let (how, all) = (OpenHow { truncate: true, ..how(Rights::WRITE) }, bytes(round, 300 * (usize::from(round) + 1)));
                if by_path {
                    let who = caller(1, 0).who;
                    let (_, number) = mount.posix.open_path(&who, b"/small", how, Some(0o644), true).await.expect("it opens");
                    mount.posix.write(&who, number, 0, Bulk::Slices(vec![&all]), WriteHow::default()).await.expect("it is written");
                    mount.posix.before_close(number).await.expect("it is closed");
                    mount.release(number).await;
                } else {
                    let file = opened(&mount, "small", how).await;
                    mount.write(&caller(1, 0), file, 0, &all, false).await.expect("it is written");
                    mount.close(file).await.expect("it is closed");
                }
                rest(&mount, 100 * MILLISECOND).await;
            }
            mount.posix.stats().requests - before
        });
        // A look-up of its name, an open, and a close with all that is in it; by a path a create
        // that finds it, too.
        let each = if by_path { 4 } else { 3 };
        assert!(requests <= 10 * each + 2, "{requests} requests, by a path: {by_path}");
        all_see(&world, "small", &bytes(9, 3000));
        let attr = world.alone(1, |mount| async move {
            let node = mount.walk(&caller(2, 0), ROOT, "small", true).await.expect("it is there");
            mount.stat(node).await.expect("it is there")
        });
        assert!(attr.is_inline());
    }
}

/// The metadata server loses its power right after a small file was cut: what is written then does
/// not meet the old content.
#[test]
fn a_power_cut_brings_no_old_content_back() {
    for round in 0..8u64 {
        let world = warm();
        let new = bytes(2, 3000);
        world.alone(0, |mount| async move { closed_in(&mount, ROOT, "small", &bytes(1, 3000)).await });
        world.sim.run_for(SECOND);
        let file = world.alone(0, |mount| async move { opened(&mount, "small", OpenHow { truncate: true, ..how(Rights::WRITE) }).await });
        let meta = world.cluster.servers()[0];
        world.sim.power_cut(meta);
        world.sim.run_for(round * 100 * MILLISECOND);
        world.sim.restart(meta);
        let content = new.clone();
        world.alone(0, move |mount| async move {
            mount.write(&caller(1, 0), file, 0, &content, false).await.expect("it is written");
            mount.close(file).await.expect("it is closed");
        });
        world.sim.run_for(2 * SECOND);
        all_see(&world, "small", &new);
    }
}

/// The metadata server loses its power right after a file was opened: what is written then comes
/// all the same.
#[test]
fn a_power_cut_takes_no_later_writes() {
    for round in 0..8u64 {
        let world = warm();
        let [old, new] = [1, 2].map(|tag| bytes(tag, 300_000));
        world.alone(0, move |mount| async move { closed_in(&mount, ROOT, "again", &old).await });
        world.sim.run_for(SECOND);
        let file = world.alone(0, |mount| async move { opened(&mount, "again", how(Rights::WRITE)).await });
        let meta = world.cluster.servers()[0];
        world.sim.power_cut(meta);
        world.sim.run_for(round * 300 * MILLISECOND);
        let content = new.clone();
        world.alone(0, move |mount| async move { write(&mount, file, &content).await });
        world.sim.restart(meta);
        world.sim.run_for((8 - round) * 300 * MILLISECOND);
        world.alone(0, move |mount| async move { mount.close(file).await.expect("it is closed") });
        all_see(&world, "again", &new);
    }
}

/// Whoever reads or stats meanwhile sees what has been written, in the same mount and in another.
#[test]
fn who_looks_at_what_is_rewritten_sees_it() {
    for round in 0..8u64 {
        let world = warm();
        let [old, new] = [1, 2].map(|tag| Rc::new(bytes(tag, STREAM)));
        let (before, written) = (old.clone(), Rc::new(Cell::new(0)));
        world.alone(1, move |mount| async move { closed_in(&mount, ROOT, "again", &before).await });
        let (all, done, writer) = (new.clone(), written.clone(), world.mounts[0].clone());
        let writes = world.sim.spawn_on(writer.node, move |rt| async move {
            let file = opened(&writer, "again", how(UPDATE)).await;
            for (number, data) in all.chunks(PIECE).enumerate() {
                writer.write(&caller(1, 0), file, (number * PIECE) as u64, data, false).await.expect("it is written");
                done.set((number + 1) * PIECE);
                rt.sleep_until(rt.now() + rt.random() % (round * MILLISECOND / 2 + 1)).await;
            }
            writer.close(file).await.expect("it is closed");
        });
        let (old, all, reader) = (old.clone(), new.clone(), world.mounts[usize::from(round % 2 == 0)].clone());
        let reads = world.sim.spawn_on(reader.node, move |rt| async move {
            while written.get() < STREAM {
                rt.sleep_until(rt.now() + rt.random() % (30 * MILLISECOND)).await;
                let least = written.get();
                let found = read_named(&reader, "again").await;
                let most = written.get();
                assert!(found.len() == STREAM && found[..least] == all[..least], "round {round}: {least} bytes were written");
                // What is being written while it is read may be there.
                let most = (most + 2 * PIECE).min(STREAM);
                assert!(found[most..] == old[most..], "round {round}");
            }
        });
        world.run(vec![writes, reads]);
        all_see(&world, "again", &new);
    }
}

/// A mount that dies leaves some of what it wrote in place of what was there, and nothing else.
#[test]
fn a_dead_mount_leaves_old_and_new_bytes() {
    for round in 0..4u64 {
        let world = warm();
        let [old, new] = [1, 2].map(|tag| bytes(tag, STREAM));
        let before = old.clone();
        world.alone(0, move |mount| async move { closed_in(&mount, ROOT, "again", &before).await });
        world.sim.run_for(SECOND);
        let (all, writer) = (new.clone(), world.mounts[0].clone());
        drop(world.sim.spawn_on(writer.node, move |_| async move {
            let file = opened(&writer, "again", how(Rights::WRITE)).await;
            write(&writer, file, &all).await;
            std::future::pending::<()>().await;
        }));
        world.sim.run_for(round * 4 * MILLISECOND);
        world.sim.crash(world.mounts[0].node);
        world.sim.run_for(60 * SECOND);
        let found = world.alone(1, |mount| async move { read_named(&mount, "again").await });
        assert_eq!(found.len(), STREAM);
        let is_either = (0..STREAM).all(|at| found[at] == old[at] || found[at] == new[at]);
        assert!(is_either, "round {round}");
    }
}

/// Servers die and links break while two mounts rewrite files in turns, some of them small.
#[test]
fn rewrites_survive_faults() {
    for seed in 0..16 {
        println!("seed {seed}");
        let mut world = World::new(seed, None);
        world.takes_small_files();
        world.plan_faults();
        let turn = Rc::new(Cell::new(0));
        let writers = [0, 1].map(|number| {
            let (mount, turn) = (world.mounts[number].clone(), turn.clone());
            world.sim.spawn_on(mount.node, move |rt| async move {
                for round in (number..12).step_by(2) {
                    while turn.get() < round {
                        rt.sleep_until(rt.now() + MILLISECOND).await;
                    }
                    let all = content(round);
                    let names: Vec<_> = ["large", "small"].into_iter().filter(|_| round > 0).collect();
                    for name in names {
                        assert!(read_named(&mount, name).await == of(name, &content(round - 1)), "{name} in round {round}");
                    }
                    for name in ["large", "small"] {
                        let data = of(name, &all);
                        if round == 0 {
                            closed_in(&mount, ROOT, name, &data).await;
                        } else {
                            let how = OpenHow { truncate: true, ..how(UPDATE) };
                            let file = opened(&mount, name, how).await;
                            write(&mount, file, &data).await;
                            if round % 3 == 0 {
                                rt.sleep_until(Nanos(rt.now().0 + rt.random() % SECOND)).await;
                            }
                            mount.close(file).await.expect("it is closed");
                        }
                    }
                    turn.set(round + 1);
                }
            })
        });
        world.run(writers.into());
        world.sim.recover();
        for name in ["large", "small"] {
            all_see(&world, name, &of(name, &content(11)));
        }
    }
}

fn content(round: usize) -> Vec<u8> {
    bytes(round as u8, 300_000 - round * 1000)
}

/// A small file has the beginning of that.
fn of(name: &str, all: &[u8]) -> Vec<u8> {
    if name == "small" { all[..all.len() / 100].to_vec() } else { all.to_vec() }
}

/// What a close has brought to data servers stays in the file, whatever becomes of what is written
/// through a copy of that descriptor later.
#[test]
fn what_was_closed_stays_when_a_later_write_is_lost() {
    let world = warm();
    let all = bytes(3, 1 << 20);
    let written = all.clone();
    let file = world.alone(0, move |mount| async move {
        let made = mount.create(&caller(1, 0), ROOT, "closed", 0o644).await.expect("a new file");
        write(&mount, made, &written).await;
        mount.posix.before_close(made.opened.number).await.expect("a copy is closed");
        made
    });
    let servers = world.cluster.servers();
    servers.iter().for_each(|server| world.sim.partition(world.mounts[0].node, *server, 12 * SECOND));
    let size = world.alone(1, |mount| async move {
        let node = mount.walk(&caller(2, 0), ROOT, "closed", true).await.expect("it is there");
        mount.stat(node).await.expect("it is shown").size
    });
    assert_eq!(size, 1 << 20);
    world.sim.run_for(15 * SECOND);
    world.alone(0, move |mount| async move {
        let tail = mount.write(&caller(1, 0), file, 1 << 20, b"tail", false).await;
        let closed = mount.posix.before_close(file.opened.number).await;
        assert!(tail.is_err() || closed.is_err(), "the right to delay had ended");
        mount.release(file.opened.number).await;
    });
    world.sim.run_for(SECOND);
    all_see(&world, "closed", &all);
}

/// One program cuts a small file, and another one finds it empty and writes to it before the first
/// one has heard that it is cut.
#[test]
fn a_write_between_a_cut_and_its_answer_stays() {
    let mut came_between = 0;
    for wait in 0..40 {
        let world = World::new(wait, None);
        world.takes_small_files();
        world.alone(0, |mount| async move { closed_in(&mount, ROOT, "cut", b"what was there").await });
        world.sim.run_for(SECOND);
        let program = |truncate: bool, wait_ns: u64, data: &'static [u8]| {
            let mount = world.mounts[0].clone();
            world.sim.spawn_on(mount.node, move |rt| async move {
                rt.sleep_until(rt.now() + wait_ns).await;
                let file = opened(&mount, "cut", OpenHow { truncate, ..how(Rights::WRITE) }).await;
                let size = mount.stat(file.node).await.expect("it is open").size;
                write(&mount, file, data).await;
                rt.sleep_until(rt.now() + 200 * MILLISECOND).await;
                mount.close(file).await.expect("it is closed");
                size
            })
        };
        let sizes = world.run(vec![program(true, 0, b""), program(false, wait * 20_000, &[7; 100])]);
        if sizes[1] > 0 {
            continue;
        }
        came_between += 1;
        all_see(&world, "cut", &[7; 100]);
        world.alone(0, |mount| async move {
            let file = opened(&mount, "cut", how(Rights::WRITE)).await;
            let size = SetAttr { size: Some(150), ..SetAttr::default() };
            mount.posix.setattr(&caller(1, 0).who, file.node, &size).await.expect("it grows");
            mount.close(file).await.expect("it is closed");
        });
        all_see(&world, "cut", &[[7; 100].as_slice(), &[0; 50]].concat());
    }
    assert!(came_between > 20, "{came_between}");
}
