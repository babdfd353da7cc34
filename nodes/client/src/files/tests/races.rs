//! Opens, closes and questions that overtake each other.

use weft_base::{ClientId, FileKind, Handle, ROOT_HANDLE, SECOND, WallTime};
use weft_call::{both, run_window};
use weft_rt::{Bulk, Runtime};
use weft_wire::Rights;
use weft_wire::ops::Op;

use crate::tests::world::{BOTH, Fate, LATENCY, META0, ROOT, TestRt, World, create};
use crate::{Client, ClientOptions, CreateOptions};

#[test]
fn an_open_overtaken_by_a_close_is_done_again() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    let handle = world.add(ROOT_HANDLE, "x", 0, FileKind::File, "");
    // The reply to the first open dawdles while the same file is opened and closed.
    let slow = client.open(&ROOT, handle, Rights::READ.with(Rights::LOCK), false);
    let quick = async {
        let (_, file) = client.open(&ROOT, handle, Rights::WRITE, false).await.expect("it opens");
        client.close(file).await.expect("it closes");
    };
    let mut times = 0;
    world.fates(move |_| {
        times += 1;
        // Executed in order, but the first one is answered only when it is asked for again after 2
        // s.
        if times == 1 { Fate::ReplyLost } else { Fate::Arrives }
    });
    let (opened, ()) = world.run(both(slow, quick));
    let (_, file) = opened.expect("it opens in the end");
    assert!(world.run(world.is_held(handle, Rights::LOCK)) && !world.is_written(handle));
    let opens = world.take_sent().iter().filter(|(_, op)| *op == Op::Open).count();
    assert_eq!(opens, 4, "the slow one twice, the quick one, and the slow one again under a new number");
    world.run(client.close(file)).expect("it closes");
    assert!(world.is_closed(ROOT_HANDLE, "x"));
}

/// Asks for a file in one of the ways that tell its size and mtime.
async fn ask_about(client: &Client<TestRt>, handle: Handle, name: &str, way: u64) -> (u64, WallTime) {
    let attr = match way % 6 {
        0 => client.getattr(handle).await.expect("it exists"),
        1 => client.lookup(&ROOT, ROOT_HANDLE, name.as_bytes()).await.expect("it exists"),
        2 => client.stat_many(&[handle]).await.remove(0).expect("it exists"),
        3 => {
            let page = client.readdir(&ROOT, ROOT_HANDLE, 0, 1 << 16, true).await.expect("it can be listed");
            page.entries.iter().find(|entry| entry.handle == handle).expect("it is listed").attr.expect("it exists")
        }
        way => {
            let opened = match way {
                4 => client.open(&ROOT, handle, Rights::READ, false).await.expect("it opens"),
                _ => {
                    let options = CreateOptions { rights: Rights::READ, ..CreateOptions::default() };
                    let (attr, file, _) = client.create(&ROOT, ROOT_HANDLE, name.as_bytes(), &options).await.expect("it opens");
                    (attr, file)
                }
            };
            let (attr, file) = opened;
            assert!(file.size_known() >= attr.size, "reading stops at the size known");
            client.close(file).await.expect("it closes");
            attr
        }
    };
    (attr.size, attr.mtime)
}

#[test]
fn an_answer_from_before_a_close_does_not_hide_what_was_written() {
    for way in 0..6 {
        let world = World::new(1, 1, 1 << 20);
        let client = world.client(1);
        let file = create(&world, &client, "x");
        let handle = file.handle();
        world.run(client.write(&file, 0, Bulk::Slices(vec![b"words"]))).expect("it is written");
        // The server answers before the file is closed, but the answer is read after that.
        let mut first = true;
        world.fates(move |_| if std::mem::take(&mut first) { Fate::ReplyLate(10 * LATENCY) } else { Fate::Arrives });
        let asked = ask_about(&client, handle, "x", way);
        let close = async {
            world.sleep_until(world.now() + LATENCY / 2).await;
            client.close(file).await.expect("it closes");
        };
        let ((size, mtime), ()) = world.run(both(asked, close));
        assert_eq!(size, 5, "way {way}");
        assert!(mtime > WallTime(0), "way {way}");
    }
}

#[test]
fn a_file_that_was_forgotten_and_opened_anew_is_asked_for_again() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    let file = create(&world, &client, "x");
    let handle = file.handle();
    world.run(client.write(&file, 0, Bulk::Slices(vec![b"words"]))).expect("it is written");
    let mut first = true;
    world.fates(move |_| if std::mem::take(&mut first) { Fate::ReplyLate(20 * LATENCY) } else { Fate::Arrives });
    let asked = client.getattr(handle);
    let meanwhile = async {
        world.sleep_until(world.now() + LATENCY / 2).await;
        client.close(file).await.expect("it closes");
        // As after a thousand other closes.
        client.inner.opens.begin_reclaim();
        client.open(&ROOT, handle, Rights::READ, false).await.expect("it opens").1
    };
    let (attr, file) = world.run(both(asked, meanwhile));
    assert_eq!(attr.expect("it exists").size, 5);
    world.run(client.close(file)).expect("it closes");
}

#[test]
fn what_was_written_is_seen_by_whatever_is_asked_later() {
    for seed in 0..400u64 {
        let world = World::new(1, 2, 4096);
        let client = world.client(1);
        let handle = create(&world, &client, "x").handle();
        let mut random = seed;
        world.fates(move |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match (random >> 33) % 20 {
                0 => Fate::ReplyLost,
                other if other % 2 == 0 => Fate::Late(other * LATENCY / 3),
                other => Fate::ReplyLate(other * LATENCY / 3),
            }
        });
        // The end of what is written for certain, and the time of the newest write.
        let written = std::cell::Cell::new((0u64, WallTime(0)));
        let flows = (0..16u64).map(|task| {
            let (world, client, written) = (&world, &client, &written);
            async move {
                world.sleep_until(world.now() + world.random() % (60 * LATENCY)).await;
                if task % 4 == 0 {
                    let (_, file) = client.open(&ROOT, handle, Rights::WRITE, false).await.expect("it opens");
                    let (offset, begun) = (task * 1000, world.wall());
                    client.write(&file, offset, Bulk::Slices(vec![&[1; 100]])).await.expect("it is written");
                    let (end, mtime) = written.get();
                    written.set((end.max(offset + 100), mtime.max(begun)));
                    client.close(file).await.expect("it closes");
                } else {
                    let (end, mtime) = written.get();
                    let way = world.random();
                    let seen = ask_about(client, handle, "x", way).await;
                    assert!(seen.0 >= end, "seed {seed}, way {}: {} bytes seen of {end}", way % 6, seen.0);
                    assert!(seen.1 >= mtime, "seed {seed}, way {}: mtime {:?} before {mtime:?}", way % 6, seen.1);
                }
            }
        });
        world.run(run_window(flows, 16));
    }
}

#[test]
fn random_races_of_opens_and_closes_leave_the_server_with_what_is_open() {
    for seed in 0..200u64 {
        let world = World::new(1, 1, 1 << 20);
        // A message in ten is lost, so some are lost many times.
        let client = world.client_with(ClientOptions { deadline_ns: 600 * SECOND, ..ClientOptions::new(ClientId(1), 1) });
        let handle = world.add(ROOT_HANDLE, "x", 0, FileKind::File, "");
        let mut random = seed;
        world.fates(move |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match (random >> 33) % 20 {
                0 => Fate::ReplyLost,
                1 => Fate::Lost,
                other => Fate::Late(other * LATENCY / 3),
            }
        });
        let keep = |task: u64| seed.is_multiple_of(2) && (seed + task).is_multiple_of(4);
        let flows = (0..12u64).map(|task| {
            let (world, client) = (&world, &client);
            async move {
                let rights = [Rights::READ.with(Rights::LOCK), Rights::WRITE, BOTH.with(Rights::LOCK)][((seed + task) % 3) as usize];
                world.sleep_until(world.now() + world.random() % (10 * LATENCY)).await;
                let file = if task % 2 == 0 {
                    client.open(&ROOT, handle, rights, false).await.expect("it opens").1
                } else {
                    let options = CreateOptions { rights, ..CreateOptions::default() };
                    client.create(&ROOT, ROOT_HANDLE, b"x", &options).await.expect("it opens").1
                };
                world.sleep_until(world.now() + world.random() % (10 * LATENCY)).await;
                assert!(world.is_held(handle, rights).await, "seed {seed}: {rights:?} is open, but not at the server");
                if keep(task) {
                    return Some(file);
                }
                client.close(file).await.expect("it closes");
                None
            }
        });
        let kept: Vec<_> = world.run(run_window(flows, 12)).into_iter().flatten().collect();
        let needed = kept.iter().fold(Rights::default(), |all, file| all.with(file.rights()));
        assert!(world.run(world.is_held(handle, needed)), "seed {seed}: {needed:?} is open, but not at the server");
        for file in kept {
            world.run(client.close(file)).expect("it closes");
        }
        assert!(world.is_closed(ROOT_HANDLE, "x"), "seed {seed}: all is closed");
        assert!(client.inner.opens.at_server(META0).is_empty(), "seed {seed}: nothing is remembered");
    }
}
