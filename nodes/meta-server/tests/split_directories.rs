//! Directories whose names are spread over servers from their birth: every server serves its names
//! and no others, and what all of them must know of a directory is changed on all or none, with a
//! crash or a power cut of any of them at every await point.

mod common;

use common::*;
use weft_base::{Credentials, Handle, MILLISECOND, ROOT_HANDLE, Result, SECOND, ServerId, Status};
use weft_meta_server::Engine;
use weft_rt::Runtime;
use weft_rt_sim::Fault;
use weft_wire::ops::*;
use weft_wire::{NameKey, Rights};

const SERVERS: u16 = 3;
const HINT: &str = "user.weft.presplit";

async fn set_hint(client: &TestClient, dir: Handle, hint: &str, value: &str) -> Result<()> {
    let (name, value) = (name(hint), name(value));
    let request = SetXattrRequest { handle: dir, name, value, create_only: false, replace_only: false, who: Credentials::ROOT };
    client.call(dir.server(), &request).await
}

/// A directory in the root whose names are with all servers.
async fn split_directory(client: &TestClient, file: &str) -> (Handle, PartitionMap) {
    set_hint(client, ROOT_HANDLE, HINT, "all").await.expect("a hint of the root");
    let dir = client.mkdir(ROOT_HANDLE, file).await.expect("mkdir");
    let map = client.getattr(dir).await.expect("just made").partitions.expect("a directory");
    assert_eq!(map.servers(), (0..SERVERS).map(ServerId).collect::<Vec<_>>());
    (dir, map)
}

fn name_key() -> NameKey {
    NameKey::of(&KEY, map(1).fs_id)
}

/// Who has a name.
fn server_of(map: &PartitionMap, file: &str) -> ServerId {
    map.server(name_key().hash(file.as_bytes()))
}

/// Some names that this server has.
fn names_of(map: &PartitionMap, server: ServerId) -> impl Iterator<Item = String> + use<'_> {
    (0..).map(|number| format!("n{number}")).filter(move |name| server_of(map, name) == server)
}

/// What each server says of a directory: its mode there, and its entries.
async fn told(client: &TestClient, dir: Handle) -> Vec<Result<(u32, u64)>> {
    let mut told = Vec::new();
    for server in (0..SERVERS).map(ServerId) {
        let state = client.call(server, &GetAttrRequest { handle: dir }).await;
        told.push(match state {
            Ok(state) if state.attr.nlink == 0 => Err(Status::Stale),
            state => state.map(|state| (state.attr.mode, state.attr.size)),
        });
    }
    told
}

/// The mode of a directory, which all servers agree about; `None`: all agree that it is gone.
async fn agreed(client: &TestClient, dir: Handle, what: &str) -> Option<u32> {
    let told = told(client, dir).await;
    let modes: Vec<Option<u32>> = told.iter().map(|told| told.ok().map(|(mode, _)| mode)).collect();
    assert!(modes.iter().all(|mode| *mode == modes[0]), "{what}: {told:?}");
    for (server, told) in (0..SERVERS).map(ServerId).zip(&told) {
        let gone = if server == dir.server() { Status::Stale } else { Status::WrongServer };
        assert!(told.is_ok() || *told == Err(gone), "{what}: {told:?}");
    }
    modes[0]
}

#[test]
fn a_server_serves_its_names_and_no_others() {
    let cluster = Cluster::new(3, usize::from(SERVERS), |_| {});
    let client = cluster.caller(1);
    cluster.block_on(|| async move {
        let (dir, map) = split_directory(&client, "d").await;
        for server in (0..SERVERS).map(ServerId) {
            for file in names_of(&map, server).take(20) {
                for other in (0..SERVERS).map(ServerId) {
                    let made = client.call(other, &create_request(dir, &file, Rights::default())).await;
                    match other == server {
                        true => assert_eq!(made.expect("it is here").handle.server(), server, "inode and name are together"),
                        false => assert_eq!(made.unwrap_err(), Status::StaleMap),
                    }
                    let found = client.call(other, &LookupRequest { at: at(dir), name: name(&file), who: Credentials::ROOT }).await;
                    assert_eq!(found.is_ok(), other == server, "{other} {file}");
                }
            }
        }
        assert_eq!(told(&client, dir).await, [Ok((0o755, 20)), Ok((0o755, 20)), Ok((0o755, 20))]);

        // Each lists up to the end of its range, and nobody goes on where the names of another are.
        let (mut cookie, mut listed) = (0, 0);
        while cookie < u64::MAX {
            let server = map.server_behind(cookie);
            let request = ReadDirRequest { at: at(dir), cookie, bytes_max: 400, with_state: false, who: Credentials::ROOT };
            let page = client.call(server, &request).await.expect("its range");
            listed += page.entries.len();
            assert!(page.until > cookie && page.until <= map.last_of_range(cookie + 1));
            for other in (0..SERVERS).map(ServerId).filter(|other| *other != server) {
                assert_eq!(client.call(other, &request).await.map(drop), Err(Status::StaleMap));
            }
            cookie = page.until;
        }
        assert_eq!(listed, 60);
        assert_eq!(client.rmdir(ROOT_HANDLE, "d").await, Err(Status::NotEmpty));

        // Who knows of no map is told that this is the wrong server, and who has one that it is
        // old.
        let gone = Handle::new(dir.server(), 1 << 40);
        let other = ServerId((dir.server().0 + 1) % SERVERS);
        for (map_epoch, refused) in [(0, Status::WrongServer), (1, Status::StaleMap)] {
            let at = DirTarget { dir: gone, map_epoch };
            let look = LookupRequest { at, name: name("x"), who: Credentials::ROOT };
            assert_eq!(client.call(other, &look).await.map(drop), Err(refused));
        }
    });
}

#[test]
fn what_a_directory_says_about_its_files_is_known_where_they_are_made() {
    let cluster = Cluster::new(4, usize::from(SERVERS), |_| {});
    let client = cluster.caller(1);
    cluster.block_on(|| async move {
        let (dir, map) = split_directory(&client, "d").await;
        let layouts = async |stripe_bytes: u32, nth: usize| {
            for server in (0..SERVERS).map(ServerId) {
                let file = names_of(&map, server).nth(nth).expect("endless");
                let made = client.call(server, &create_request(dir, &file, Rights::default())).await.expect("create");
                assert_eq!(made.state.expect("it is here").attr.layout.stripe_bytes, stripe_bytes, "{server}");
            }
        };
        layouts(1 << 20, 0).await;
        set_hint(&client, dir, "user.pvfs2.stripe_size", "65536").await.expect("a hint");
        layouts(65536, 1).await;
        // A directory in it has the hints, and is split too, wherever its name is.
        for server in (0..SERVERS).map(ServerId) {
            let file = names_of(&map, server).nth(2).expect("endless");
            let request = MkdirRequest::of(at(dir), name(&file), 0o700, Credentials::ROOT);
            let made = client.call(server, &request).await.expect("mkdir").state;
            let here = client.getattr(made.attr.handle).await.expect("just made");
            assert_eq!((&here.partitions, here.attr.layout.stripe_bytes), (&made.partitions, 65536), "as it was answered");
            assert!(here.partitions.expect("a directory").is_split(made.attr.handle));
            assert_eq!(told(&client, made.attr.handle).await, [Ok((0o700, 0)); SERVERS as usize]);
        }
        let request = RemoveXattrRequest { handle: dir, name: name("user.weft.stripe_size"), who: Credentials::ROOT };
        client.call(dir.server(), &request).await.expect("it is there");
        layouts(1 << 20, 3).await;

        // Permissions are checked everywhere.
        let mode = SetAttrRequest { mode: Some(0o500), ..nothing(dir) };
        assert_eq!(client.call(dir.server(), &mode).await.expect("chmod").attr.mode, 0o500);
        let user = Credentials { uid: 7, gid: 7, groups: Vec::new(), checked_by_kernel: false };
        for server in (0..SERVERS).map(ServerId) {
            let file = names_of(&map, server).nth(4).expect("endless");
            let request = CreateRequest { who: user.clone(), ..create_request(dir, &file, Rights::default()) };
            assert_eq!(client.call(server, &request).await.map(drop), Err(Status::AccessDenied));
        }
        let refused = SetAttrRequest { mode: Some(0o777), who: user, ..nothing(dir) };
        assert_eq!(client.call(dir.server(), &refused).await.map(drop), Err(Status::NotPermitted));
        assert_eq!(agreed(&client, dir, "after a refusal").await, Some(0o500));
        // The steps of another protocol know one server for each directory.
        let steps = ClassicDirectoryRequest { dir, who: Credentials::ROOT };
        assert_eq!(client.call(dir.server(), &steps).await.map(drop), Err(Status::NotSupported));
    });
}

/// What is made in a directory with a project counts for it on all servers of its names, from when
/// it gets the project to when it loses it.
#[test]
fn a_split_directory_gives_its_project_wherever_something_is_made() {
    let cluster = Cluster::new(5, usize::from(SERVERS), |_| {});
    let client = cluster.caller(1);
    cluster.block_on(|| async move {
        let (dir, map) = split_directory(&client, "d").await;
        let taken = async || {
            let mut inodes = 0;
            for server in (0..SERVERS).map(ServerId) {
                let request = UsageRequest { from: 9, to: 9, who: Credentials::ROOT, of_project: Some(true) };
                inodes += client.call(server, &request).await.expect("usage").users.first().map_or(0, |user| user.inodes);
            }
            inodes
        };
        let make = async |nth: usize| {
            for server in (0..SERVERS).map(ServerId) {
                let [file, below] = [nth, nth + 1].map(|nth| names_of(&map, server).nth(nth).expect("endless"));
                client.call(server, &create_request(dir, &file, Rights::default())).await.expect("create");
                let (name, who) = (name(&below), Credentials::ROOT);
                let request = MkdirRequest::of(at(dir), name, 0o700, who);
                client.call(server, &request).await.expect("mkdir");
            }
        };
        make(0).await;
        assert_eq!(taken().await, 0);
        set_hint(&client, dir, "user.weft.project", "9").await.expect("root may");
        assert_eq!(taken().await, 1, "itself, once");
        make(2).await;
        // Directories on other servers count when these have heard of the decision, which is after
        // the answer.
        let rt = client.caller.rt();
        rt.sleep_until(rt.now() + 50 * MILLISECOND).await;
        assert_eq!(taken().await, 7);
        client.create(ROOT_HANDLE, "outside", Rights::default()).await.expect("create");
        for server in (0..SERVERS).map(ServerId) {
            let file = names_of(&map, server).nth(6).expect("endless");
            assert_eq!(client.rename(ROOT_HANDLE, "outside", dir, &file).await, Err(Status::CrossDevice), "{server}");
        }
        let request = RemoveXattrRequest { handle: dir, name: name("user.weft.project"), who: Credentials::ROOT };
        client.call(dir.server(), &request).await.expect("it is there");
        assert_eq!(taken().await, 6, "but for itself");
        make(4).await;
        assert_eq!(taken().await, 6);
    });
}

#[test]
fn access_control_lists_of_a_directory_count_where_its_names_are() {
    let list = |user: u8| {
        let entry = |tag: u8, may: u8, id: [u8; 4]| [[tag, 0, may, 0], id].concat();
        let entries = [entry(1, 7, [255; 4]), entry(2, user, [7, 0, 0, 0]), entry(4, 0, [255; 4]), entry(16, 7, [255; 4])];
        bytes::Bytes::from([vec![2, 0, 0, 0], entries.concat(), entry(32, 0, [255; 4])].concat())
    };
    let set = async |client: &TestClient, handle: Handle, attribute: &str, value: bytes::Bytes| {
        let (create_only, replace_only, who) = (false, false, Credentials::ROOT);
        let request = SetXattrRequest { handle, name: name(attribute), value, create_only, replace_only, who };
        client.call(handle.server(), &request).await.expect("a list");
    };
    let cluster = Cluster::new(5, usize::from(SERVERS), |_| {});
    let client = cluster.caller(1);
    cluster.block_on(|| async move {
        let (dir, map) = split_directory(&client, "d").await;
        let user = Credentials { uid: 7, gid: 7, groups: Vec::new(), checked_by_kernel: false };
        let everywhere = async |nth: usize, expected: Result<u32>| {
            for server in (0..SERVERS).map(ServerId) {
                let file = names_of(&map, server).nth(nth).expect("endless");
                let request = CreateRequest { who: user.clone(), ..create_request(dir, &file, Rights::default()) };
                let made = client.call(server, &request).await.map(|made| made.state.expect("it is here").attr.mode & 0o7777);
                assert_eq!(made, expected, "{server}");
            }
        };
        everywhere(0, Err(Status::AccessDenied)).await;
        set(&client, dir, weft_base::ACL_ACCESS, list(7)).await;
        everywhere(1, Ok(0o644)).await;
        set(&client, dir, weft_base::ACL_DEFAULT, list(6)).await;
        everywhere(2, Ok(0o640)).await;
        let request = MkdirRequest::of(at(dir), name("sub"), 0o777, user.clone());
        let sub = client.call(server_of(&map, "sub"), &request).await.expect("mkdir").state;
        assert!(!sub.attr.bare && sub.attr.mode & 0o7777 == 0o770 && sub.partitions.is_some_and(|map| map.is_split(sub.attr.handle)));
        set(&client, dir, weft_base::ACL_ACCESS, list(5)).await;
        everywhere(3, Err(Status::AccessDenied)).await;
        let request = RemoveXattrRequest { handle: dir, name: name(weft_base::ACL_ACCESS), who: Credentials::ROOT };
        client.call(dir.server(), &request).await.expect("it is there");
        assert_eq!(agreed(&client, dir, "without a list").await, Some(0o770));
        // What copies attributes removes lists that are not there.
        for list in [weft_base::ACL_ACCESS, weft_base::ACL_DEFAULT, weft_base::ACL_DEFAULT] {
            let request = RemoveXattrRequest { handle: dir, name: name(list), who: Credentials::ROOT };
            assert_eq!(client.call(dir.server(), &request).await, Ok(()), "{list}");
        }
        everywhere(4, Err(Status::AccessDenied)).await;
    });
}

fn nothing(handle: Handle) -> SetAttrRequest {
    SetAttrRequest::of(handle, Credentials::ROOT)
}

type Flow = std::pin::Pin<Box<dyn Future<Output = Result<()>>>>;

/// A change of a directory that is split, and the mode that it has afterwards.
struct Operation {
    name: &'static str,
    run: fn(TestClient, Handle) -> Flow,
    mode: Option<u32>,
}

fn operations() -> [Operation; 4] {
    [
        Operation {
            name: "mkdir",
            run: |client, _| Box::pin(async move { client.mkdir(ROOT_HANDLE, "new").await.map(drop) }),
            mode: Some(0o755),
        },
        Operation {
            name: "chmod",
            run: |client, dir| {
                Box::pin(async move {
                    let request = SetAttrRequest { mode: Some(0o711), ..nothing(dir) };
                    client.call(dir.server(), &request).await.map(drop)
                })
            },
            mode: Some(0o711),
        },
        Operation { name: "rmdir", run: |client, _| Box::pin(async move { client.rmdir(ROOT_HANDLE, "d").await }), mode: None },
        Operation {
            name: "rename over it",
            run: |client, _| Box::pin(async move { client.rename(ROOT_HANDLE, "other", ROOT_HANDLE, "d").await }),
            mode: None,
        },
    ]
}

/// Runs the operation with a fault at the `polls`-th poll of a server. False if the operation was
/// over before the fault struck.
fn with_fault_at(engine: Engine, operation: &Operation, index: usize, polls: u64, power: bool) -> bool {
    let fault_name = if power { "a power cut" } else { "a crash" };
    let what = format!("{engine}: {} with {fault_name} of server {index} at poll {polls}", operation.name);
    let cluster = Cluster::new(78, usize::from(SERVERS), |config| config.serving.engine = engine);
    let (client, setup) = (cluster.caller(1), cluster.caller(2));
    let dir = cluster.block_on(|| async move {
        let (dir, _) = split_directory(&setup, "d").await;
        setup.mkdir(ROOT_HANDLE, "other").await.expect("another one");
        for server in (0..SERVERS).map(ServerId) {
            setup.call(server, &SyncMetaRequest {}).await.expect("safe");
        }
        dir
    });
    cluster.sim.run_for(SECOND);
    let (node, down_ns) = (cluster.meta[index], 20 * MILLISECOND);
    let fault = if power { Fault::PowerCut { node, down_ns } } else { Fault::Crash { node, down_ns } };
    let polls_before = cluster.sim.polls(node);
    cluster.sim.strike_after_polls(node, polls, fault);
    let (run, actor) = (operation.run, client.clone());
    let result = cluster.block_on(|| async move { run(actor, dir).await });
    let polls_of_run = cluster.sim.polls(node) - polls_before;
    assert_eq!(result, Ok(()), "{what}");
    cluster.sim.run_for(4 * SECOND);
    let (is_mkdir, mode) = (operation.name == "mkdir", operation.mode);
    let audited = what.clone();
    cluster.block_on(|| async move {
        let found = match is_mkdir {
            true => client.lookup(ROOT_HANDLE, "new").await.ok().map(|found| found.handle),
            false => Some(dir),
        };
        let now = match found {
            Some(dir) => agreed(&client, dir, &audited).await,
            None => None,
        };
        assert!(now == mode || power, "{audited}: acknowledged, but {now:?}");
        // Whatever is there can be removed, and nothing stays locked.
        for name in client.list(ROOT_HANDLE).await.expect("the root") {
            client.rmdir(ROOT_HANDLE, &name).await.unwrap_or_else(|status| panic!("{audited}: {name}: {status}"));
        }
        assert_eq!(agreed(&client, dir, &audited).await, None);
        client.audit(usize::from(SERVERS), &audited).await;
    });
    assert!(cluster.errors.borrow().is_empty(), "{what}: {:?}", cluster.errors.borrow());
    polls_of_run >= polls
}

fn at_await_points(engine: Engine, power: bool) {
    for operation in operations() {
        for index in 0..usize::from(SERVERS) {
            let stride = if engine == Engine::Journal { 1 } else { 13 };
            let mut polls = 1;
            while with_fault_at(engine, &operation, index, polls, power) {
                polls += stride;
                assert!(polls < 700, "{} never ends", operation.name);
            }
            assert!(polls > 2, "{}: server {index} took no part, polls {polls}", operation.name);
        }
    }
}

#[test]
fn a_crash_at_any_await_point_leaves_all_partitions_or_none() {
    KEPT.into_iter().for_each(|engine| at_await_points(engine, false));
}

#[test]
fn a_power_cut_at_any_await_point_leaves_all_partitions_or_none() {
    KEPT.into_iter().for_each(|engine| at_await_points(engine, true));
}
