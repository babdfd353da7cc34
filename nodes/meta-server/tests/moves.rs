//! Directories whose names go to other servers while they are there: each name is with one server
//! afterwards, the one that the map says, whoever crashes or loses power at whatever await point.

mod common;

use common::{map as cluster_map, *};
use std::collections::BTreeMap;
use weft_base::{Credentials, Handle, MILLISECOND, ROOT_HANDLE, SECOND, ServerId, Status};
use weft_meta_server::{Engine, SplitConfig};
use weft_rt::Runtime;
use weft_rt_sim::Fault;
use weft_wire::ops::*;
use weft_wire::{NameKey, Rights};

const SERVERS: u16 = 3;
const NAMES: usize = 10;
/// Names that move as one change.
const SLICE: u32 = 2;

fn server_of(map: &PartitionMap, file: &str) -> ServerId {
    map.server(NameKey::of(&KEY, cluster_map(1).fs_id).hash(file.as_bytes()))
}

fn request(dir: Handle, servers: u16) -> SplitRequest {
    SplitRequest { dir, servers, who: Credentials::ROOT }
}

/// Spreads a directory over so many servers, asking again when its server has forgotten it.
async fn spread(client: &TestClient, dir: Handle, servers: u16) -> SplitReply {
    loop {
        let mut reply = client.call(dir.server(), &request(dir, servers)).await.expect("its owner asks");
        while reply.goal.is_some() {
            let rt = client.caller.rt();
            rt.sleep_until(rt.now() + MILLISECOND).await;
            reply = client.call(dir.server(), &request(dir, 0)).await.expect("it is there");
        }
        if reply.map.servers().len() == usize::from(servers) {
            return reply;
        }
    }
}

/// All names by their servers' listings, each once, and what they lead to.
async fn listed(client: &TestClient, dir: Handle, map: &PartitionMap) -> BTreeMap<String, Handle> {
    let (mut names, mut cookie) = (BTreeMap::new(), 0);
    while cookie < u64::MAX {
        let list = ReadDirRequest { at: at(dir), cookie, bytes_max: 200, with_state: false, who: Credentials::ROOT };
        let page = client.call(map.server_behind(cookie), &list).await.expect("its range");
        for entry in page.entries {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            assert_eq!(names.insert(name, entry.handle), None, "a name is with one server");
        }
        cookie = page.until;
    }
    names
}

/// A directory with names of files, of a directory and of one file twice.
async fn directory(client: &TestClient) -> (Handle, BTreeMap<String, Handle>) {
    let dir = client.mkdir(ROOT_HANDLE, "d").await.expect("mkdir");
    let mut names = BTreeMap::new();
    for number in 0..NAMES {
        let made = client.create(dir, &format!("f{number}"), Rights::default()).await.expect("create");
        names.insert(format!("f{number}"), made.handle);
    }
    client.link(names["f0"], dir, "linked").await.expect("link");
    names.insert("linked".into(), names["f0"]);
    names.insert("sub".into(), client.mkdir(dir, "sub").await.expect("mkdir"));
    (dir, names)
}

async fn check(client: &TestClient, dir: Handle, map: &PartitionMap, names: &BTreeMap<String, Handle>, what: &str) {
    assert_eq!(listed(client, dir, map).await, *names, "{what}");
    let (mut entries, mut subdirectories) = (0, 0);
    for server in (0..SERVERS).map(ServerId) {
        let told = client.call(server, &GetAttrRequest { handle: dir }).await;
        assert_eq!(told.is_ok(), map.has(server) || server == dir.server(), "{what}: {server} {told:?}");
        let Ok(told) = told else { continue };
        assert_eq!(told.partitions.as_ref().map(|known| known.has(server)), Some(map.has(server)));
        (entries, subdirectories) = (entries + told.attr.size, subdirectories + told.attr.nlink - 2);
        for (file, handle) in names {
            let look = LookupRequest { at: DirTarget { dir, map_epoch: 1 }, name: name(file), who: Credentials::ROOT };
            let expected = if server_of(map, file) == server { Ok(*handle) } else { Err(Status::StaleMap) };
            assert_eq!(client.call(server, &look).await.map(|found| found.handle), expected, "{what}: {file} at {server}");
        }
    }
    assert_eq!((entries, subdirectories), (names.len() as u64, 1), "{what}");
}

#[test]
fn names_move_and_inodes_stay() {
    let cluster = Cluster::new(5, usize::from(SERVERS), |config| config.split = SplitConfig { slice_names: SLICE, ..config.split.clone() });
    let client = cluster.caller(1);
    cluster.block_on(|| async move {
        let (dir, mut names) = directory(&client).await;
        let before = client.getattr(dir).await.expect("made").attr;
        let user = Credentials { uid: 7, gid: 7, groups: Vec::new(), checked_by_kernel: false };
        let refused = SplitRequest { who: user, ..request(dir, 2) };
        assert_eq!(client.call(dir.server(), &refused).await.map(drop), Err(Status::NotPermitted));
        let file = names["f0"];
        assert_eq!(client.call(file.server(), &request(file, 2)).await.map(drop), Err(Status::NotDirectory));

        let over = spread(&client, dir, 3).await;
        let away = names.keys().filter(|name| server_of(&over.map, name) != dir.server()).count();
        assert!(away > 2 && over.moved_names == away as u64, "{away} {over:?}");
        check(&client, dir, &over.map, &names, "over three").await;
        let after = client.getattr(dir).await.expect("there").attr;
        assert_eq!((after.mtime, after.mode), (before.mtime, before.mode), "nobody has changed it");
        // A change of what has moved takes its two servers, and rmdir all of them.
        for file in ["f1", "f2", "f3", "linked"] {
            let unlink = UnlinkRequest::of(at(dir), name(file), Credentials::ROOT);
            let handle = client.call(server_of(&over.map, file), &unlink).await.expect("it is there").handle;
            assert_eq!(names.remove(file), Some(handle));
        }
        assert_eq!(client.rmdir(ROOT_HANDLE, "d").await, Err(Status::NotEmpty));
        check(&client, dir, &over.map, &names, "some are gone").await;

        // From two to three: names go from one that has not the inode, too.
        let two = spread(&client, dir, 2).await;
        check(&client, dir, &two.map, &names, "over two").await;
        let three = spread(&client, dir, 3).await;
        check(&client, dir, &three.map, &names, "over three again").await;
        let one = spread(&client, dir, 1).await;
        assert_eq!(one.map.only_server(), Some(dir.server()));
        check(&client, dir, &one.map, &names, "all at home").await;
        assert!(client.getattr(dir).await.expect("there").attr.version > after.version, "what was counted elsewhere stays counted");
        for file in names.keys().filter(|name| *name != "sub") {
            client.unlink(dir, file).await.expect("it is there");
        }
        client.rmdir(dir, "sub").await.expect("it is empty");
        client.rmdir(ROOT_HANDLE, "d").await.expect("it is empty");
        assert_eq!(client.call(dir.server(), &request(dir, 0)).await.map(drop), Err(Status::Stale));
        client.audit(usize::from(SERVERS), "the end").await;
    });
}

/// Spreads and brings back, with a fault at the `polls`-th poll of a server. False if all was over
/// before.
fn with_fault_at(engine: Engine, index: usize, polls: u64, power: bool) -> bool {
    let what = format!("{engine}: {} of server {index} at poll {polls}", if power { "a power cut" } else { "a crash" });
    let cluster = Cluster::new(79, usize::from(SERVERS), |config| {
        config.serving.engine = engine;
        config.split = SplitConfig { slice_names: SLICE, ..config.split.clone() };
    });
    let (client, setup) = (cluster.caller(1), cluster.caller(2));
    let (dir, names) = cluster.block_on(|| async move {
        let made = directory(&setup).await;
        for server in (0..SERVERS).map(ServerId) {
            setup.call(server, &SyncMetaRequest {}).await.expect("safe");
        }
        made
    });
    cluster.sim.run_for(SECOND);
    let (node, down_ns) = (cluster.meta[index], 20 * MILLISECOND);
    let fault = if power { Fault::PowerCut { node, down_ns } } else { Fault::Crash { node, down_ns } };
    let polls_before = cluster.sim.polls(node);
    cluster.sim.strike_after_polls(node, polls, fault);
    let actor = client.clone();
    let map = cluster.block_on(|| async move { spread(&actor, dir, 3).await.map });
    let polls_of_run = cluster.sim.polls(node) - polls_before;
    cluster.sim.run_for(4 * SECOND);
    let (actor, checked) = (client.clone(), what.clone());
    cluster.block_on(|| async move {
        let (client, what) = (actor, checked);
        check(&client, dir, &map, &names, &what).await;
        // Nothing stays locked: back, and all of it removed.
        spread(&client, dir, 1).await;
        for file in names.keys().filter(|name| *name != "sub") {
            client.unlink(dir, file).await.unwrap_or_else(|status| panic!("{what}: {file}: {status}"));
        }
        client.rmdir(dir, "sub").await.expect("it is empty");
        client.rmdir(ROOT_HANDLE, "d").await.expect("it is empty");
    });
    // Files are kept a while that somebody may have had open before a restart.
    cluster.sim.run_for(4 * SECOND);
    cluster.block_on(|| async move { drop(client.audit(usize::from(SERVERS), &what).await) });
    assert!(cluster.errors.borrow().is_empty(), "{:?}", cluster.errors.borrow());
    polls_of_run >= polls
}

fn at_await_points(engine: Engine, power: bool) {
    for index in 0..usize::from(SERVERS) {
        let stride = if engine == Engine::Journal { 2 } else { 29 };
        let mut polls = 1;
        while with_fault_at(engine, index, polls, power) {
            polls += stride;
            assert!(polls < 2000, "it never ends");
        }
        assert!(polls > 2, "server {index} took no part");
    }
}

#[test]
fn a_crash_at_any_await_point_loses_no_name() {
    KEPT.into_iter().for_each(|engine| at_await_points(engine, false));
}

#[test]
fn a_power_cut_at_any_await_point_loses_no_name() {
    KEPT.into_iter().for_each(|engine| at_await_points(engine, true));
}

#[test]
fn a_directory_with_many_names_is_spread_by_itself() {
    let cluster = Cluster::new(6, usize::from(SERVERS), |config| {
        config.split = SplitConfig { slice_names: SLICE, names_max: NAMES as u64, rest_ns: SECOND, ..config.split.clone() };
    });
    let client = cluster.caller(1);
    let setup = client.clone();
    // With the link and the directory it has more than ten names.
    let (dir, names) = cluster.block_on(|| async move { directory(&setup).await });
    cluster.sim.run_for(2 * SECOND);
    cluster.block_on(|| async move {
        let over = client.call(dir.server(), &request(dir, 0)).await.expect("it is there");
        assert_eq!((over.map.servers().len(), over.goal), (usize::from(SERVERS), None), "as many as it takes");
        check(&client, dir, &over.map, &names, "spread by its server").await;
        // The root, with one name, stays.
        let root = client.call(ServerId(0), &request(ROOT_HANDLE, 0)).await.expect("it is there");
        assert_eq!((root.map.only_server(), root.map.epoch()), (Some(ServerId(0)), 1));
    });
}

/// Looks for names of the directory all the while: finds them, wherever they are by now.
async fn ask_for(client: &TestClient, dir: Handle, until: weft_base::Nanos) {
    let rt = client.caller.rt();
    let mut map = PartitionMap::whole(dir.server());
    for number in 0.. {
        let file = format!("f{}", number % NAMES);
        let look = LookupRequest { at: DirTarget { dir, map_epoch: map.epoch() }, name: name(&file), who: Credentials::ROOT };
        match client.call(server_of(&map, &file), &look).await {
            Ok(_) => {}
            Err(Status::StaleMap) => map = client.call(dir.server(), &request(dir, 0)).await.expect("it is there").map,
            Err(status) => panic!("{file}: {status}"),
        }
        if rt.now() >= until {
            return;
        }
        rt.sleep_until(rt.now() + MILLISECOND).await;
    }
}

#[test]
fn a_hot_directory_is_spread_and_goes_back_when_it_is_calm() {
    let cluster = Cluster::new(7, usize::from(SERVERS), |config| {
        // Requests cost nothing here: a server is busy that is asked at all.
        let (rest_ns, calm_ns) = (SECOND, 3 * SECOND);
        config.split = SplitConfig { slice_names: SLICE, sample_every: 3, busy_permille: 0, rest_ns, calm_ns, ..config.split.clone() };
    });
    let (client, other, third) = (cluster.caller(1), cluster.caller(2), cluster.caller(3));
    let setup = client.clone();
    let (hot, names, alone, by_hand) = cluster.block_on(|| async move {
        let (hot, names) = directory(&setup).await;
        let mut others = Vec::new();
        for dir in ["alone", "by-hand"] {
            let dir = setup.mkdir(ROOT_HANDLE, dir).await.expect("mkdir");
            for number in 0..NAMES {
                setup.create(dir, &format!("f{number}"), Rights::default()).await.expect("create");
            }
            others.push(dir);
        }
        spread(&setup, others[1], 2).await;
        (hot, names, others[0], others[1])
    });
    let state_of = |dir: Handle| {
        let client = cluster.caller(4);
        cluster.block_on(|| async move { client.call(dir.server(), &request(dir, 0)).await.expect("it is there") })
    };
    // Who has made the names does not count.
    cluster.sim.run_for(SECOND);
    let until = cluster.sim.now() + 2 * SECOND;
    let asker = client.clone();
    let asking = cluster.sim.spawn_on(cluster.client, move |_| async move { ask_for(&asker, hot, until).await });
    let loner = third.clone();
    let alone_asking = cluster.sim.spawn_on(cluster.client, move |_| async move { ask_for(&loner, alone, until).await });
    cluster.block_on(|| async move { ask_for(&other, hot, until).await });
    cluster.sim.run_for(100 * MILLISECOND);
    assert!(asking.is_over() && alone_asking.is_over());

    let spread_now = state_of(hot);
    assert_eq!((spread_now.map.servers().len(), spread_now.spread_from), (2, Some(1)), "one server for each client that asks");
    assert_eq!(state_of(alone).map.servers().len(), 1, "one client is one server's work");
    let kept = state_of(by_hand);
    assert_eq!((kept.map.servers().len(), kept.spread_from), (2, None));

    // A restart does not forget who has spread it.
    cluster.sim.strike(&Fault::Crash { node: cluster.meta[usize::from(hot.server().0)], down_ns: 20 * MILLISECOND });
    cluster.sim.run_for(SECOND);
    assert_eq!(state_of(hot).spread_from, Some(1));
    cluster.sim.run_for(5 * SECOND);
    let back = state_of(hot);
    assert_eq!((back.map.only_server(), back.spread_from), (Some(hot.server()), None));
    assert_eq!(state_of(by_hand).map.servers().len(), 2, "what was said stays");
    let checker = client.clone();
    cluster.block_on(|| async move { check(&checker, hot, &back.map, &names, "it is back").await });
    assert!(cluster.errors.borrow().is_empty(), "{:?}", cluster.errors.borrow());
}

#[test]
fn a_hot_directory_is_spread_beside_a_server_that_does_not_answer() {
    let cluster = Cluster::new(8, usize::from(SERVERS), |config| {
        config.split = SplitConfig { slice_names: SLICE, sample_every: 3, busy_permille: 0, ..config.split.clone() };
    });
    let (client, other) = (cluster.caller(1), cluster.caller(2));
    let setup = client.clone();
    let (hot, names) = cluster.block_on(|| async move { directory(&setup).await });
    let down = (usize::from(hot.server().0) + 1) % usize::from(SERVERS);
    cluster.sim.strike(&Fault::Crash { node: cluster.meta[down], down_ns: 10 * SECOND });
    let until = cluster.sim.now() + 6 * SECOND;
    let asking = cluster.sim.spawn_on(cluster.client, move |_| async move { ask_for(&other, hot, until).await });
    let asker = client.clone();
    cluster.block_on(|| async move { ask_for(&asker, hot, until).await });
    cluster.sim.run_for(10 * SECOND);
    assert!(asking.is_over());
    cluster.block_on(|| async move {
        let spread = client.call(hot.server(), &request(hot, 0)).await.expect("it is there");
        assert!(spread.map.servers().len() == 2 && !spread.map.has(ServerId(down as u16)), "{spread:?}");
        check(&client, hot, &spread.map, &names, "over the two that answer").await;
    });
}
