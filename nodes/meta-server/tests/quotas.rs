//! Limits of users and projects over several metadata servers: never over, exactly at the limit in
//! the end, whatever crashes meanwhile, and no message more as long as there is enough.

mod common;

use common::*;
use weft_base::{Credentials, Handle, MILLISECOND, Nanos, ROOT_HANDLE, Result, SECOND, ServerId, Status};
use weft_meta_server::{Durability, Engine};
use weft_rt::Runtime;
use weft_wire::Rights;
use weft_wire::ops::*;

const USER: u32 = 7;
const OF_USER: QuotaId = QuotaId::user(USER);
/// That of the directories in which files are made.
const OF_PROJECT: QuotaId = QuotaId::project(9);
const SERVERS: usize = 3;

fn user() -> Credentials {
    Credentials { uid: USER, gid: USER, groups: Vec::new(), checked_by_kernel: false }
}

/// A number that looks random.
fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

/// A directory for everybody on each server.
async fn places(client: &TestClient) -> Vec<Handle> {
    let mut places = Vec::new();
    for number in 0..200 {
        let request = mkdir_request(ROOT_HANDLE, &format!("d{number}"), &Credentials::ROOT);
        let made = client.call(ROOT_HANDLE.server(), &request).await.unwrap().state.attr.handle;
        if !places.iter().any(|other: &Handle| other.server() == made.server()) {
            places.push(made);
        }
        if places.len() == SERVERS {
            places.sort_by_key(|place| place.server());
            return places;
        }
    }
    panic!("directories are spread over servers");
}

fn mkdir_request(dir: Handle, file: &str, who: &Credentials) -> MkdirRequest {
    MkdirRequest::of(at(dir), name(file), 0o777, who.clone())
}

async fn limit(client: &TestClient, id: QuotaId, inodes_max: Option<u64>) -> Vec<ServerId> {
    client.call(ServerId(0), &inode_limit(id, inodes_max)).await.expect("the home answers").untold
}

fn inode_limit(id: QuotaId, inodes_max: Option<u64>) -> SetQuotaRequest {
    SetQuotaRequest { uid: id.number, inodes_max, bytes_max: None, of_project: id.of_project() }
}

fn usage_request(id: QuotaId) -> UsageRequest {
    UsageRequest { from: id.number, to: id.number, who: Credentials::ROOT, of_project: id.of_project() }
}

async fn set_project(client: &TestClient, handle: Handle, project: u32) -> Result<()> {
    let (name, value, who) = (name("user.weft.project"), project.to_string().into(), Credentials::ROOT);
    client.call(handle.server(), &SetXattrRequest { handle, name, value, create_only: false, replace_only: false, who }).await.map(drop)
}

async fn make(client: &TestClient, dir: Handle, file: &str) -> Result<Handle> {
    let request = CreateRequest { who: user(), ..create_request(dir, file, Rights::default()) };
    Ok(client.call(dir.server(), &request).await?.handle)
}

async fn make_dir(client: &TestClient, dir: Handle, file: &str) -> Result<Handle> {
    Ok(client.call(dir.server(), &mkdir_request(dir, file, &user())).await?.state.attr.handle)
}

/// What is taken, by server.
async fn taken(client: &TestClient, id: QuotaId) -> Vec<u64> {
    let mut all = Vec::new();
    for server in 0..SERVERS {
        let reply = client.call(ServerId(server as u16), &usage_request(id)).await.unwrap();
        all.push(reply.users.first().map_or(0, |user| user.inodes));
    }
    all
}

/// Makes files everywhere until nobody takes any more.
async fn fill(client: &TestClient, id: QuotaId, places: &[Handle], prefix: &str) -> u64 {
    let (mut number, mut refused) = (0, 0);
    while refused < places.len() {
        match make(client, places[number % places.len()], &format!("{prefix}{number}")).await {
            Ok(_) => refused = 0,
            Err(Status::QuotaExceeded) => refused += 1,
            Err(other) => panic!("{prefix}{number}: {other}"),
        }
        number += 1;
    }
    taken(client, id).await.iter().sum()
}

#[test]
fn promise_quota_is_never_exceeded() {
    const MAX: u64 = 60;
    for seed in 0..60 {
        let id = [OF_USER, OF_PROJECT][seed as usize / 30];
        let engine = [Engine::Journal, Engine::Journal, Engine::Db][seed as usize % 3];
        let durability = [Durability::Batch, Durability::None, Durability::Sync][(seed / 3) as usize % 3];
        let cluster = Cluster::new(seed, SERVERS, |config| {
            config.serving.engine = engine;
            config.serving.durability = if engine == Engine::Db { Durability::Batch } else { durability };
        });
        let client = cluster.caller(1);
        let setup = client.clone();
        let places = cluster.block_on(|| async move {
            let places = places(&setup).await;
            for place in places.iter().filter(|_| id == OF_PROJECT) {
                set_project(&setup, *place, id.number).await.unwrap();
            }
            assert_eq!(limit(&setup, id, Some(MAX)).await, []);
            for server in 0..SERVERS {
                setup.call(ServerId(server as u16), &SyncMetaRequest {}).await.unwrap();
            }
            places
        });
        let makers: Vec<_> = (0..4u64)
            .map(|number| {
                let (client, places) = (cluster.caller(10 + number), places.clone());
                cluster.sim.spawn_on(cluster.client, move |_| async move {
                    let random = |step: u64| mixed(seed << 32 | number << 16 | step);
                    for step in 0..60 {
                        let (dir, file) = (places[random(step) as usize % SERVERS], format!("f{number}-{step}"));
                        let outcome = match random(step + 1000) % 8 {
                            0 => make_dir(&client, dir, &file).await.map(drop),
                            1 if step > 3 => {
                                let (back, back_dir) = (step - 3, places[random(step - 3) as usize % SERVERS]);
                                client.unlink(back_dir, &format!("f{number}-{back}")).await.map(drop)
                            }
                            _ => make(&client, dir, &file).await.map(drop),
                        };
                        let is_expected = matches!(
                            outcome,
                            Ok(())
                                | Err(Status::QuotaExceeded | Status::NotFound | Status::Exists | Status::IsDirectory)
                                | Err(Status::StaleRequest)
                        );
                        assert!(is_expected || outcome.is_err_and(Status::is_transient), "seed {seed}: {outcome:?}");
                    }
                })
            })
            .collect();
        for round in 0..6u64 {
            cluster.sim.run_for((1 + (seed * 7 + round * 13) % 40) * 5 * MILLISECOND);
            let victim = ((seed + round) % SERVERS as u64) as usize;
            match (seed + round / 2) % 2 {
                0 => cluster.crash_and_restart(victim),
                _ => cluster.power_cycle(victim),
            }
        }
        let ended = cluster.sim.run_until_true(Nanos(600 * SECOND), || makers.iter().all(|maker| maker.is_over()));
        ended.unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        cluster.sim.run_for(5 * SECOND);
        let (before, after) = cluster.block_on(|| async move {
            let before: u64 = taken(&client, id).await.iter().sum();
            (before, fill(&client, id, &places, "last").await)
        });
        assert!(before <= MAX, "seed {seed}: {before} inodes");
        assert_eq!(after, MAX, "seed {seed}: exactly at the limit");
        assert!(cluster.errors.borrow().is_empty(), "seed {seed}: {:?}", cluster.errors.borrow());
    }
}

#[test]
fn far_from_the_limit_a_create_costs_no_message() {
    let cluster = Cluster::new(1, SERVERS, |_| {});
    let client = cluster.caller(1);
    cluster.block_on(|| async move {
        let places = places(&client).await;
        limit(&client, OF_USER, Some(1 << 20)).await;
        let asked = async |client: &TestClient| client.call(ServerId(0), &PingRequest {}).await.unwrap().requests;
        let there = places[1];
        make(&client, there, "first").await.unwrap();
        let before = asked(&client).await;
        for number in 0..500 {
            make(&client, there, &format!("f{number}")).await.unwrap();
        }
        assert_eq!(asked(&client).await - before, 1, "but for the question itself");
    });
}

#[test]
fn what_is_removed_anywhere_may_be_made_elsewhere() {
    let cluster = Cluster::new(2, SERVERS, |_| {});
    let client = cluster.caller(1);
    cluster.block_on(|| async move {
        let places = places(&client).await;
        limit(&client, OF_USER, Some(10)).await;
        assert_eq!(fill(&client, OF_USER, &places, "f").await, 10);
        // f1 is on server 1; its room goes to server 2 at once, also if its data must go first.
        client.unlink(places[1], "f1").await.unwrap();
        let request = CreateRequest { who: user(), ..create_request(places[2], "open", Rights::WRITE) };
        let open = client.call(ServerId(2), &request).await.unwrap().handle;
        assert_eq!(make(&client, places[0], "no").await, Err(Status::QuotaExceeded));
        client.unlink(places[2], "open").await.unwrap();
        assert_eq!(make(&client, places[0], "no").await, Err(Status::QuotaExceeded), "somebody has it open");
        client.close(open, 0, 0).await.unwrap();
        make(&client, places[0], "yes").await.unwrap();
        assert_eq!(make_dir(&client, places[1], "dir").await, Err(Status::QuotaExceeded));
        // Root is not limited, and what he gives away counts all the same.
        let of_root = client.create(places[0], "of root", Rights::default()).await.unwrap().handle;
        client.call(ServerId(0), &SetAttrRequest { uid: Some(USER), ..SetAttrRequest::of(of_root, Credentials::ROOT) }).await.unwrap();
        assert_eq!(taken(&client, OF_USER).await.iter().sum::<u64>(), 11);
        client.unlink(places[0], "yes").await.unwrap();
        assert_eq!(make(&client, places[2], "no").await, Err(Status::QuotaExceeded), "at the limit again");
        client.unlink(places[0], "of root").await.unwrap();
        make_dir(&client, places[2], "yes").await.unwrap();
    });
}

#[test]
fn a_limit_below_use_takes_nothing_away_and_one_that_ends_is_over() {
    let cluster = Cluster::new(3, SERVERS, |_| {});
    let client = cluster.caller(1);
    cluster.block_on(|| async move {
        let places = places(&client).await;
        for number in 0..30 {
            make(&client, places[number % SERVERS], &format!("f{number}")).await.unwrap();
        }
        assert_eq!(limit(&client, OF_USER, Some(20)).await, []);
        assert_eq!(taken(&client, OF_USER).await, [10, 10, 10]);
        for place in &places {
            assert_eq!(make(&client, *place, "no").await, Err(Status::QuotaExceeded));
        }
        for number in 0..12 {
            client.unlink(places[number % SERVERS], &format!("f{number}")).await.unwrap();
        }
        // What is given back late may be used until then, up to what was there.
        client.caller.rt().sleep_until(client.caller.rt().now() + 3 * SECOND).await;
        assert_eq!(fill(&client, OF_USER, &places, "g").await, 20);
        limit(&client, OF_USER, Some(25)).await;
        assert_eq!(fill(&client, OF_USER, &places, "h").await, 25);
        limit(&client, OF_USER, None).await;
        for number in 0..50 {
            make(&client, places[number % SERVERS], &format!("i{number}")).await.unwrap();
        }
        let refused = client.call(ServerId(0), &inode_limit(QuotaId::user(0), Some(5))).await;
        assert_eq!(refused, Err(Status::Invalid), "root is not limited");
        let refused = client.call(ServerId(0), &inode_limit(QuotaId::project(0), Some(5))).await;
        assert_eq!(refused, Err(Status::Invalid), "nothing counts for it");
        let refused = client.call(ServerId(1), &inode_limit(QuotaId::user(5), Some(5))).await;
        assert_eq!(refused, Err(Status::WrongServer));
    });
}

#[test]
fn a_server_that_was_down_hears_of_a_limit_when_it_is_back() {
    let cluster = Cluster::new(4, SERVERS, |_| {});
    let client = cluster.caller(1);
    let setup = client.clone();
    let places = cluster.block_on(|| async move { places(&setup).await });
    cluster.sim.run_for(SECOND);
    cluster.sim.crash(cluster.meta[2]);
    let setup = client.clone();
    let untold = cluster.block_on(|| async move { limit(&setup, OF_USER, Some(12)).await });
    assert_eq!(untold, [ServerId(2)]);
    cluster.sim.restart(cluster.meta[2]);
    cluster.sim.run_for(5 * SECOND);
    let filled = cluster.block_on(|| async move { fill(&client, OF_USER, &places, "f").await });
    assert_eq!(filled, 12);
}

#[test]
fn a_silent_server_keeps_no_other_from_hearing_of_limits() {
    const USERS: u32 = 40;
    let cluster = Cluster::new(5, SERVERS, |_| {});
    let client = cluster.caller(1);
    cluster.sim.run_for(SECOND);
    for (server, seconds) in [(1, 5), (2, 120)] {
        cluster.sim.partition(cluster.meta[0], cluster.meta[server], seconds * SECOND);
    }
    let setup = client.clone();
    cluster.block_on(|| async move {
        let set = |uid| {
            let client = setup.clone();
            async move { limit(&client, QuotaId::user(uid), Some(5)).await }
        };
        for untold in weft_rt::join_all((0..USERS).map(|user| set(USER + user))).await {
            assert_eq!(untold, [ServerId(1), ServerId(2)]);
        }
    });
    cluster.sim.run_for(15 * SECOND);
    let told = cluster.block_on(|| async move {
        let request = UsageRequest { to: USER + USERS, ..usage_request(OF_USER) };
        let users = client.call(ServerId(1), &request).await.unwrap().users;
        users.iter().filter(|user| user.inodes_lent.is_some()).count()
    });
    assert_eq!(told, USERS as usize, "although one server says nothing");
}

#[test]
fn promise_what_a_project_holds_counts_for_it() {
    let cluster = Cluster::new(6, SERVERS, |_| {});
    let client = cluster.caller(1);
    cluster.block_on(|| async move {
        let places = places(&client).await;
        let inside = make_dir(&client, places[0], "project").await.unwrap();
        set_project(&client, inside, OF_PROJECT.number).await.unwrap();
        // Directories below it, so that names and inodes are on all pairs of servers.
        let mut below = Vec::new();
        for number in 0..24 {
            below.push(make_dir(&client, inside, &format!("b{number}")).await.unwrap());
        }
        assert!((0..SERVERS as u16).all(|server| below.iter().any(|dir| dir.server() == ServerId(server))));
        for (number, dir) in below.iter().enumerate() {
            make(&client, *dir, &format!("f{number}")).await.unwrap();
        }
        assert_eq!(taken(&client, OF_PROJECT).await.iter().sum::<u64>(), 49);
        for (number, dir) in below.iter().enumerate() {
            let (outside, file) = (places[number % SERVERS], format!("f{number}"));
            let stranger = format!("stranger{number}");
            make(&client, outside, &stranger).await.unwrap();
            make_dir(&client, outside, &format!("strange dir{number}")).await.unwrap();
            let moved = client.rename(outside, &stranger, *dir, "in").await;
            assert_eq!(moved.map(drop), Err(Status::CrossDevice), "from {outside} to {dir}");
            let moved = client.rename(outside, &format!("strange dir{number}"), *dir, "in").await;
            assert_eq!(moved.map(drop), Err(Status::CrossDevice), "from {outside} to {dir}");
            // From one of its directories to another one, out of it, and back.
            let next = below[(number + 1) % below.len()];
            client.rename(*dir, &file, next, &file).await.unwrap();
            client.rename(next, &file, outside, &file).await.unwrap();
            assert_eq!(taken(&client, OF_PROJECT).await.iter().sum::<u64>(), 49, "it counts wherever its name is");
            client.rename(outside, &file, *dir, &file).await.unwrap();
        }
        // A limit that is met while servers must ask each other for what is left.
        limit(&client, OF_PROJECT, Some(60)).await;
        assert_eq!(fill(&client, OF_PROJECT, &below, "more").await, 60);
        assert_eq!(make_dir(&client, inside, "no").await, Err(Status::QuotaExceeded));
        client.unlink(below[5], "f5").await.unwrap();
        make_dir(&client, inside, "yes").await.unwrap();
        assert_eq!(make(&client, places[1], "elsewhere").await.map(drop), Ok(()));
    });
}
