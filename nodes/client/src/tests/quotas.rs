//! Limits of bytes, with real data servers: where writing ends, and what it costs before.

use std::cell::Cell;
use std::sync::Arc;

use weft_base::{Credentials, Handle, MILLISECOND, ROOT_HANDLE, SECOND, ServerId, Status};
use weft_call::run_window;
use weft_meta_server::Durability;
use weft_rt::{Bulk, Runtime};
use weft_wire::Op;
use weft_wire::ops::QuotaId;

use super::world::{BOTH, META0, META1, ROOT, TestRt, World};
use crate::{Client, CreateOptions, Error, Fallocate, FsStats, OpenFile, QuotaUsage, SetAttr};

const USER: u32 = 7;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn user() -> Credentials {
    Credentials { uid: USER, gid: USER, groups: Vec::new(), checked_by_kernel: false }
}

/// A file system in which everybody may make files, on each metadata server a directory.
fn world(data: u16, stripe_bytes: u32) -> (World, [Handle; 2]) {
    world_under(Durability::Sync, data, stripe_bytes)
}

fn world_under(durability: Durability, data: u16, stripe_bytes: u32) -> (World, [Handle; 2]) {
    let world = World::under(durability, 2, data, stripe_bytes);
    let places = [0, 1].map(|server| {
        let dir = world.add(ROOT_HANDLE, &format!("on {server}"), server, weft_base::FileKind::Directory, "");
        let open = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        world.run(world.hand.setattr(&ROOT, dir, &open)).expect("it is root's");
        dir
    });
    (world, places)
}

fn limit(world: &World, bytes: u64) {
    limit_of(world, QuotaId::user(USER), bytes);
}

fn limit_of(world: &World, id: QuotaId, bytes: u64) {
    assert_eq!(world.run(world.hand.limit_bytes(id, Some(bytes))).expect("the home answers"), []);
}

async fn usage(hand: &Client<TestRt>) -> QuotaUsage {
    usage_of(hand, QuotaId::user(USER)).await
}

async fn usage_of(hand: &Client<TestRt>, id: QuotaId) -> QuotaUsage {
    hand.usage(&ROOT, id.kind, id.number..=id.number).await.expect("servers answer").remove(&id.number).unwrap_or_default()
}

async fn make(client: &Client<TestRt>, dir: Handle, name: &str) -> Arc<OpenFile> {
    let options = CreateOptions { mode: 0o600, rights: BOTH, ..CreateOptions::default() };
    client.create(&user(), dir, name.as_bytes(), &options).await.expect("it is made").1
}

async fn write(client: &Client<TestRt>, file: &OpenFile, offset: u64, bytes: u64) -> Result<(), Status> {
    client.write(file, offset, Bulk::Synthetic { len: bytes, tag: 5 }).await.map_err(|error| error.status)
}

/// What the file takes, as the data servers say.
async fn blocks(hand: &Client<TestRt>, handle: Handle) -> u64 {
    let attr = hand.getattr(handle).await.expect("it is there");
    weft_base::whole_blocks(attr.size) - attr.hole_bytes
}

#[test]
fn far_from_a_limit_of_bytes_nothing_more_is_sent() {
    let (world, places) = world(2, 64 << 10);
    let client = world.client(1);
    limit(&world, 64 << 30);
    let ops = |world: &World| world.take_sent().into_iter().map(|(_, op)| op).collect::<Vec<_>>();
    for (round, dir) in [places[0], places[0], places[1], places[1]].into_iter().enumerate() {
        let file = world.run(make(&client, dir, &format!("f{round}")));
        for number in 0..16 {
            world.run(write(&client, &file, number * 256 * KIB, 64 * KIB)).expect("it is written");
        }
        world.run(client.close(file)).expect("it closes");
        let again = world.run(client.create(&user(), dir, format!("f{round}").as_bytes(), &CreateOptions::default())).expect("it opens").1;
        world.run(write(&client, &again, 5, 5)).expect("it is written");
        world.run(client.close(again)).expect("it closes");
        let sent = ops(&world);
        let asked = sent.iter().filter(|op| **op == Op::Open).count();
        // The first file of a server finds nothing lent yet.
        assert_eq!(asked, usize::from(round % 2 == 0), "round {round}: {sent:?}");
        let others: Vec<_> = sent.into_iter().filter(|op| !matches!(op, Op::Write | Op::Open)).collect();
        assert_eq!(others, [Op::Create, Op::Close, Op::Create, Op::Close]);
    }
    // A large file asks a few times.
    let file = world.run(make(&client, places[0], "large"));
    for number in 0..256 {
        world.run(write(&client, &file, number * 4 * MIB, 4 * MIB)).expect("it is written");
    }
    let asked = ops(&world).iter().filter(|op| **op == Op::Open).count();
    assert!((1..=9).contains(&asked), "{asked} times for a gibibyte");
}

#[test]
fn a_limit_of_bytes_is_met_exactly() {
    let (of_user, of_project) = (QuotaId::user(USER), QuotaId::project(9));
    for (width, stripe, id) in [(1, 64 << 10, of_user), (2, 4096, of_user), (3, 64 << 10, of_user), (2, 4096, of_project)] {
        let (world, places) = world(width, stripe);
        let client = world.client(1);
        const MAX: u64 = 3 * MIB;
        limit_of(&world, id, MAX);
        for place in places.iter().filter(|_| id == of_project) {
            world.run(world.hand.set_project(&ROOT, *place, id.number)).expect("root may");
        }
        world.run(async {
            let (one, other) = (make(&client, places[0], "one").await, make(&client, places[1], "other").await);
            let mut written = [0, 0];
            for turn in 0.. {
                let (file, at) = ([&one, &other][turn % 2], &mut written[turn % 2]);
                match write(&client, file, *at, 4096).await {
                    Ok(()) => *at += 4096,
                    Err(status) => {
                        assert_eq!(status, Status::QuotaExceeded);
                        break;
                    }
                }
            }
            assert!(written.iter().sum::<u64>() <= MAX);
            // What is there may be written, also now, and opened.
            assert_eq!(write(&client, &one, 0, 4096).await, Ok(()));
            client.close(one.clone()).await.expect("it closes");
            client.close(other.clone()).await.expect("it closes");
            let fill = make(&client, places[0], "fill").await;
            let mut end = 0;
            while end < 2 * MAX && write(&client, &fill, end, 4096).await.is_ok() {
                end += 4096;
            }
            assert_eq!(usage_of(&world.hand, id).await.bytes + usage_of(&world.hand, id).await.bytes_reserved, MAX);
            client.close(fill).await.expect("it closes");
            let now = usage_of(&world.hand, id).await;
            assert_eq!((now.bytes, now.bytes_reserved), (MAX, 0), "exactly, and nothing is reserved when nobody writes");
            let empty = make(&client, places[1], "empty").await;
            assert_eq!(write(&client, &empty, 0, 1).await, Err(Status::QuotaExceeded));
            client.close(empty).await.expect("it closes");

            // What is cut or removed comes back, on the other server.
            let cut = SetAttr { size: Some(4096), ..SetAttr::default() };
            client.setattr(&user(), one.handle(), &cut).await.expect("it is cut");
            let more = make(&client, places[1], "more").await;
            let left = MAX - usage_of(&world.hand, id).await.bytes;
            assert!(left > 0);
            for block in 0..left / 4096 {
                assert_eq!(write(&client, &more, block * 4096, 4096).await, Ok(()), "block {block} of {left} bytes");
            }
            assert_eq!(write(&client, &more, left, 1).await, Err(Status::QuotaExceeded));
            client.unlink(&user(), places[1], b"other").await.expect("it is removed");
            assert_eq!(write(&client, &more, left, 1).await, Ok(()), "at once, if it is about to go");
            // Punched holes count when the file is closed.
            client.fallocate(&user(), &more, 0, left, Fallocate::Punch).await.expect("a hole");
            client.close(more.clone()).await.expect("it closes");
            assert_eq!(blocks(&world.hand, more.handle()).await, 4096);
        });
    }
}

#[test]
fn reservations_and_sparse_files_are_limited_too() {
    let (world, places) = world(2, 64 << 10);
    let client = world.client(1);
    limit(&world, 8 * MIB);
    world.run(async {
        let file = make(&client, places[0], "reserved").await;
        let reserve = Fallocate::Reserve { keep_size: false };
        client.fallocate(&user(), &file, 0, 6 * MIB, reserve).await.expect("there is room");
        let refused = client.fallocate(&user(), &file, 6 * MIB, 6 * MIB, reserve).await.unwrap_err();
        assert_eq!(refused.status, Status::QuotaExceeded);
        client.close(file.clone()).await.expect("it closes");
        client.unlink(&user(), places[0], b"reserved").await.expect("it is removed");
        assert!(world.is_gone(file.handle()).await);

        // Far behind its end, also where the holes alone would be beyond the limit.
        let sparse = make(&client, places[0], "sparse").await;
        for number in 0..16 {
            assert_eq!(write(&client, &sparse, number << 36, 4096).await, Ok(()), "block {number}");
        }
        client.close(sparse.clone()).await.expect("it closes");
        assert_eq!(usage(&world.hand).await.bytes, 16 * 4096);
        let (_, again) = client.open(&user(), sparse.handle(), BOTH, false).await.expect("it opens");
        assert_eq!(write(&client, &again, 5 << 35, 4096).await, Ok(()));
        assert_eq!(write(&client, &again, 0, 4096).await, Ok(()));
        client.close(again).await.expect("it closes");
        assert_eq!(usage(&world.hand).await.bytes, 17 * 4096);
    });
}

#[test]
fn a_limit_ends_and_one_below_use_takes_nothing_away() {
    let (world, places) = world(2, 64 << 10);
    let client = world.client(1);
    world.run(async {
        let file = make(&client, places[0], "f").await;
        assert_eq!(write(&client, &file, 0, 4 * MIB).await, Ok(()));
        client.close(file).await.expect("it closes");
    });
    limit(&world, MIB);
    world.run(async {
        let (_, file) = {
            let found = client.lookup(&user(), places[0], b"f").await.expect("it is there").handle;
            client.open(&user(), found, BOTH, false).await.expect("it opens")
        };
        assert_eq!(write(&client, &file, 0, MIB).await, Ok(()), "what is there may be written");
        assert_eq!(write(&client, &file, 4 * MIB, 1).await, Err(Status::QuotaExceeded));
        // Inodes are another matter.
        assert_eq!(client.limit_inodes(QuotaId::user(USER), Some(2)).await.expect("the home answers"), []);
        let other = make(&client, places[1], "other").await;
        assert_eq!(write(&client, &other, 0, 1).await, Err(Status::QuotaExceeded));
        let refused = client.create(&user(), places[1], b"third", &CreateOptions::default()).await.unwrap_err();
        assert_eq!(refused.status, Status::QuotaExceeded);
        assert_eq!(client.limit_inodes(QuotaId::user(USER), None).await.expect("the home answers"), []);
        let third = make(&client, places[1], "third").await;
        assert_eq!(write(&client, &third, 0, 1).await, Err(Status::QuotaExceeded), "this limit stays");
        world.hand.limit_bytes(QuotaId::user(USER), None).await.expect("the home answers");
        assert_eq!(write(&client, &third, 0, 20 * MIB).await, Ok(()), "it is over, for who meets it");
        assert_eq!(write(&client, &file, 4 * MIB, MIB).await, Ok(()));
        for file in [file, other, third] {
            client.close(file).await.expect("it closes");
        }
        assert_eq!(usage(&world.hand).await, QuotaUsage { inodes: 3, bytes: 25 * MIB, ..QuotaUsage::default() });
    });
}

#[test]
fn promise_quota_of_bytes_is_never_exceeded() {
    const MAX: u64 = 4 * MIB;
    for seed in 0..24u64 {
        let durability = [Durability::Sync, Durability::Batch, Durability::None][seed as usize % 3];
        let (world, places) = world_under(durability, 2, 16 << 10);
        // The directories survive.
        world.run(world.sleep_until(world.now() + SECOND));
        limit(&world, MAX);
        let clients: Vec<_> = (0..4).map(|number| world.client(10 + number)).collect();
        let restart = [META0, META1, ServerId::data(0), ServerId::data(1)].map(|server| world.restarter(server));
        let cut = [META0, META1].map(|server| world.power_cutter(server));
        let refused = Cell::new(0);
        let writers = clients.iter().enumerate().map(|(number, client)| {
            let (places, refused) = (&places, &refused);
            async move {
                let random = |step: u64| mixed(seed << 32 | (number as u64) << 16 | step);
                for step in 0..12 {
                    // Some files are written by all.
                    let name = if random(step) % 3 == 0 { "shared".into() } else { format!("{number}-{step}") };
                    let options = CreateOptions { mode: 0o600, rights: BOTH, ..CreateOptions::default() };
                    let place = places[random(step + 100) as usize % 2];
                    let Ok((_, file, _)) = client.create(&user(), place, name.as_bytes(), &options).await else { continue };
                    for piece in 0..8 {
                        let (at, bytes) = (random(step * 8 + piece) % (2 * MIB), 1 + random(step * 8 + piece + 500) % (200 * KIB));
                        match write(client, &file, at, bytes).await {
                            Err(Status::QuotaExceeded) => refused.set(refused.get() + 1),
                            Ok(()) => {}
                            // A power cut has taken the file.
                            Err(Status::Stale) if durability != Durability::Sync => break,
                            Err(status) => assert!(status.is_transient() || status == Status::TimedOut, "seed {seed}: {status}"),
                        }
                    }
                    let _ = client.close(file).await;
                    if random(step + 200) % 4 == 0 {
                        let _ = client.unlink(&user(), place, name.as_bytes()).await;
                    }
                }
            }
        });
        let faults = async {
            for round in 0..6 {
                world.sleep_until(world.now() + (1 + mixed(seed * 31 + round) % 40) * 5 * MILLISECOND).await;
                match mixed(seed * 37 + round) % 6 {
                    victim @ 0..4 => restart[victim as usize](),
                    victim => cut[victim as usize - 4](),
                }
            }
        };
        world.run(weft_call::both(run_window(writers, 8), faults));
        // Whoever could not tell of his writes tells it now, and nobody waits for anybody.
        for _ in 0..20 {
            world.run(run_window(clients.iter().map(|client| client.keep_alive()), 8));
            world.run(world.sleep_until(world.now() + 4 * SECOND));
        }
        world.run(async {
            let mut taken = 0;
            for place in places {
                for entry in world.hand.readdir(&ROOT, place, 0, 1000, false).await.expect("a listing").entries {
                    taken += blocks(&world.hand, entry.handle).await;
                }
            }
            let now = usage(&world.hand).await;
            assert!(taken <= MAX, "seed {seed}: {taken}");
            assert_eq!((now.bytes, now.bytes_reserved), (taken, 0), "seed {seed}");
            let fill = make(&clients[0], places[0], "fill").await;
            let mut end = 0;
            while end < 2 * MAX && write(&clients[0], &fill, end, 4096).await.is_ok() {
                end += 4096;
            }
            clients[0].close(fill).await.expect("it closes");
            assert_eq!(usage(&world.hand).await.bytes, MAX, "seed {seed}: exactly at the limit in the end");
        });
        assert!(refused.get() > 0, "seed {seed}");
    }
}

/// A number that looks random.
fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

/// A program that asks for the space below a project sees its limit, and waits for no metadata
/// server that was silent already.
#[test]
fn the_space_of_a_project_is_its_limit() {
    let (world, places) = world(1, 64 << 10);
    limit_of(&world, QuotaId::project(9), MIB);
    world.run(world.hand.set_project(&ROOT, places[0], 9)).expect("root may");
    let client = world.client(1);
    world.run(async {
        let all = client.statfs().await.expect("all answer");
        let within = client.within_project(&user(), places[0], all.clone()).await;
        assert_eq!((within.capacity_bytes, within.free_bytes), (MIB, MIB));
        assert_eq!(client.within_project(&user(), places[1], all.clone()).await, all, "it is in none");
        world.take_sent();
        let error = Error { server: Some(META1), ..Error::local(Status::TimedOut, "statfs", Handle(0)) };
        let silent = FsStats { unanswered: vec![error], ..all };
        assert_eq!(client.within_project(&user(), places[0], silent.clone()).await, silent);
        assert!(world.take_sent().is_empty());
    });
}
