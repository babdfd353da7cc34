//! Changes that concern two metadata servers: right without trouble, and all or nothing with a
//! crash or a power cut of either server at every await point.

mod common;

use std::collections::BTreeSet;

use common::*;
use weft_base::{FileKind, Handle, MILLISECOND, ROOT_HANDLE, SECOND, ServerId, Status};
use weft_meta_server::Engine;
use weft_rt_sim::Fault;
use weft_wire::Rights;
use weft_wire::ops::*;

#[test]
fn directories_spread_and_names_work_across_servers() {
    let cluster = Cluster::new(1, 2, |_| {});
    let client = cluster.caller(1);
    cluster.block_on(|| async move {
        let here = directory_on(&client, ServerId(0), "here").await;
        let there = directory_on(&client, ServerId(1), "there").await;
        let file = client.create(there, "f", Rights::default()).await.unwrap().handle;
        assert_eq!(file.server(), ServerId(1), "an inode is made where its name is");

        client.rename(there, "f", here, "g").await.unwrap();
        let found = client.lookup(here, "g").await.unwrap();
        assert_eq!((found.handle, found.state.is_none()), (file, true), "the inode stays where it is");
        client.link(file, here, "h").await.unwrap();
        assert_eq!(client.getattr(file).await.unwrap().attr.nlink, 2);
        client.unlink(here, "g").await.unwrap();
        assert_eq!(client.getattr(file).await.unwrap().attr.nlink, 1);
        client.audit(2, "after links").await;

        assert_eq!(client.rmdir(ROOT_HANDLE, "nothing").await, Err(Status::NotFound));
        let sub = client.mkdir(there, "sub").await.unwrap();
        client.rename(there, "sub", here, "moved").await.unwrap();
        assert_eq!(client.rename(here, "moved", sub, "x").await, Err(Status::Invalid), "into itself");
        let deep = client.mkdir(sub, "deep").await.unwrap();
        let deeper = client.mkdir(deep, "deeper").await.unwrap();
        assert_eq!(client.rename(here, "moved", deeper, "x").await, Err(Status::Invalid), "below itself");
        assert_eq!(client.rmdir(here, "moved").await, Err(Status::NotEmpty));
        client.unlink(here, "h").await.unwrap();
        client.audit(2, "at the end").await;
    });
}

#[test]
fn a_rename_replaces_and_exchanges_across_servers() {
    let cluster = Cluster::new(2, 2, |_| {});
    let client = cluster.caller(1);
    cluster.block_on(|| async move {
        let here = directory_on(&client, ServerId(0), "here").await;
        let there = directory_on(&client, ServerId(1), "there").await;
        let a = client.create(here, "a", Rights::default()).await.unwrap().handle;
        let b = client.create(there, "b", Rights::default()).await.unwrap().handle;
        let request = |no_replace, exchange| RenameRequest {
            from: at(here),
            from_name: name("a"),
            to: at(there),
            to_name: name("b"),
            no_replace,
            exchange,
            who: weft_base::Credentials::ROOT,
        };
        assert_eq!(client.call(ServerId(0), &request(true, false)).await, Err(Status::Exists));
        client.call(ServerId(0), &request(false, true)).await.unwrap();
        assert_eq!(client.lookup(here, "a").await.unwrap().handle, b);
        assert_eq!(client.lookup(there, "b").await.unwrap().handle, a);
        client.audit(2, "exchanged").await;
        client.call(ServerId(0), &request(false, false)).await.unwrap();
        assert_eq!(client.lookup(there, "b").await.unwrap().handle, b);
        assert_eq!(client.getattr(a).await.unwrap_err(), Status::Stale, "replaced");
        let d = client.mkdir(here, "d").await.unwrap();
        assert_eq!(client.rename(here, "d", there, "b").await, Err(Status::NotDirectory));
        assert_eq!(client.rename(there, "b", here, "d").await, Err(Status::IsDirectory));
        let e = client.mkdir(there, "e").await.unwrap();
        client.rename(here, "d", there, "e").await.unwrap();
        assert_eq!(client.getattr(e).await.unwrap().attr.nlink, 0, "still seen by who holds it");
        assert_eq!(client.lookup(there, "e").await.unwrap().handle, d);
        client.audit(2, "replaced").await;
    });
}

#[test]
fn a_directory_that_is_gone_has_no_names_wherever_it_was() {
    let cluster = Cluster::new(2, 2, |_| {});
    let client = cluster.caller(1);
    cluster.block_on(|| async move {
        let here = directory_on(&client, ServerId(0), "here").await;
        client.create(here, "a", Rights::default()).await.unwrap();
        let mut servers = BTreeSet::new();
        for number in 0..16 {
            let gone = client.mkdir(here, &format!("gone{number}")).await.unwrap();
            client.rmdir(here, &format!("gone{number}")).await.unwrap();
            assert_eq!(client.rename(here, "a", gone, "b").await, Err(Status::NotFound), "{gone:?}");
            servers.insert(gone.server());
        }
        assert_eq!(servers.len(), 2);
        client.lookup(here, "a").await.unwrap();
        client.audit(2, "at the end").await;
    });
}

type Flow = std::pin::Pin<Box<dyn Future<Output = Result<(), Status>>>>;

/// An operation under test: what it does, and what the tree must look like when it was done.
struct Operation {
    name: &'static str,
    run: fn(TestClient, Fixture) -> Flow,
    done: fn(&Tree) -> bool,
}

/// What every run begins with: one directory on each server, with a file in each, and a second name
/// across.
#[derive(Clone, Copy)]
struct Fixture {
    here: Handle,
    there: Handle,
    file: Handle,
}

async fn fixture(client: &TestClient) -> Fixture {
    let here = directory_on(client, ServerId(0), "here").await;
    let there = directory_on(client, ServerId(1), "there").await;
    let file = client.create(there, "f", Rights::default()).await.unwrap().handle;
    client.create(here, "old", Rights::default()).await.unwrap();
    client.link(file, here, "linked").await.unwrap();
    // A directory whose inode is not where its name is.
    for attempt in 0..64 {
        let name = format!("sub{attempt}");
        let handle = client.mkdir(here, &name).await.unwrap();
        if handle.server() == ServerId(1) {
            client.rename(here, &name, here, "sub").await.unwrap();
            break;
        }
        client.rmdir(here, &name).await.unwrap();
    }
    for index in 0..2 {
        client.call(ServerId(index), &SyncMetaRequest {}).await.unwrap();
    }
    Fixture { here, there, file }
}

fn has(tree: &Tree, end: &str) -> bool {
    tree.keys().any(|path| path.ends_with(end))
}

fn operations() -> Vec<Operation> {
    vec![
        Operation {
            name: "mkdir",
            // Some of these are placed on the other server.
            run: |client, fixture| {
                Box::pin(async move {
                    for name in ["m0", "m1", "m2"] {
                        client.mkdir(fixture.here, name).await?;
                    }
                    Ok(())
                })
            },
            done: |tree| has(tree, "/m0") && has(tree, "/m1") && has(tree, "/m2"),
        },
        Operation {
            name: "rmdir",
            run: |client, fixture| Box::pin(async move { client.rmdir(fixture.here, "sub").await }),
            done: |tree| !has(tree, "/sub"),
        },
        Operation {
            name: "rename of a file",
            run: |client, fixture| Box::pin(async move { client.rename(fixture.there, "f", fixture.here, "g").await }),
            done: |tree| !has(tree, "/f") && has(tree, "/g"),
        },
        Operation {
            name: "rename over a file",
            run: |client, fixture| Box::pin(async move { client.rename(fixture.there, "f", fixture.here, "old").await }),
            done: |tree| !has(tree, "/f") && has(tree, "/old"),
        },
        Operation {
            name: "rename of a directory",
            run: |client, fixture| Box::pin(async move { client.rename(fixture.here, "sub", fixture.there, "moved").await }),
            done: |tree| !has(tree, "/sub") && has(tree, "/moved"),
        },
        Operation {
            name: "link",
            run: |client, fixture| Box::pin(async move { client.link(fixture.file, fixture.here, "third").await.map(|_| ()) }),
            done: |tree| has(tree, "/third") && tree.values().any(|(_, kind, nlink)| *kind == FileKind::File && *nlink == 3),
        },
        Operation {
            name: "unlink",
            run: |client, fixture| Box::pin(async move { client.unlink(fixture.here, "linked").await.map(|_| ()) }),
            done: |tree| !has(tree, "/linked"),
        },
    ]
}

/// Runs the operation with a fault at the `polls`-th poll of a server. False if the operation was
/// over before the fault struck.
fn with_fault_at(engine: Engine, operation: &Operation, index: usize, polls: u64, power: bool) -> bool {
    let what =
        format!("{engine}: {} with {} of server {index} at poll {polls}", operation.name, if power { "a power cut" } else { "a crash" });
    let cluster = Cluster::new(77, 2, |config| config.serving.engine = engine);
    let client = cluster.caller(1);
    let setup = client.clone();
    let fixture = cluster.block_on(|| async move { fixture(&setup).await });
    // Let everything that follows a transaction come to its end.
    cluster.sim.run_for(SECOND);

    let node = cluster.meta[index];
    let down_ns = 20 * MILLISECOND;
    let fault = if power { Fault::PowerCut { node, down_ns } } else { Fault::Crash { node, down_ns } };
    let polls_before = cluster.sim.polls(node);
    cluster.sim.strike_after_polls(node, polls, fault);
    let run = operation.run;
    let actor = client.clone();
    let result = cluster.block_on(|| async move { run(actor, fixture).await });
    let polls_of_run = cluster.sim.polls(node) - polls_before;
    assert_eq!(result, Ok(()), "{what}");
    // Replaced files are kept until their users have had the time to report.
    cluster.sim.run_for(4 * SECOND);
    let auditor = client.clone();
    let audited = what.clone();
    let tree = cluster.block_on(|| async move { auditor.audit(2, &audited).await });
    if !power {
        assert!((operation.done)(&tree), "{what}: acknowledged, but {tree:?}");
    }
    assert!(cluster.errors.borrow().is_empty(), "{what}: {:?}", cluster.errors.borrow());
    polls_of_run >= polls
}

fn at_every_await_point(engine: Engine, power: bool) {
    for operation in operations() {
        for index in 0..2 {
            // Databases make many more accesses to the disk: not each of them.
            let stride = if engine == Engine::Journal { 1 } else { 9 };
            let mut polls = 1;
            while with_fault_at(engine, &operation, index, polls, power) {
                polls += stride;
                assert!(polls < 500, "{} never ends", operation.name);
            }
            assert!(polls > 2, "{}: server {index} took no part, polls {polls}", operation.name);
        }
    }
}

#[test]
fn a_crash_at_any_await_point_leaves_all_or_nothing_and_the_client_gets_its_answer() {
    KEPT.into_iter().for_each(|engine| at_every_await_point(engine, false));
}

#[test]
fn a_power_cut_at_any_await_point_leaves_all_or_nothing() {
    KEPT.into_iter().for_each(|engine| at_every_await_point(engine, true));
}

#[test]
fn the_other_server_being_down_ends_in_busy_and_leaves_nothing() {
    let cluster = Cluster::new(5, 2, |config| config.patience_ns = SECOND);
    let client = cluster.caller(1);
    let setup = client.clone();
    let fixture = cluster.block_on(|| async move { fixture(&setup).await });
    cluster.sim.run_for(SECOND);
    cluster.sim.crash(cluster.meta[1]);
    let actor = client.clone();
    cluster.block_on(|| async move {
        let rename = RenameRequest {
            from: at(fixture.here),
            from_name: name("old"),
            to: at(fixture.there),
            to_name: name("new"),
            no_replace: false,
            exchange: false,
            who: weft_base::Credentials::ROOT,
        };
        let refused = actor.once(ServerId(0), &rename, 3 * SECOND).await.unwrap_err();
        assert!(refused.is_transient(), "{refused}");
        actor.create(fixture.here, "unaffected", Rights::default()).await.unwrap();
    });
    // Whatever the client's last attempt began has ended.
    cluster.sim.run_for(2 * SECOND);
    cluster.sim.restart(cluster.meta[1]);
    cluster.sim.run_for(10 * SECOND);
    let tree = cluster.block_on(|| async move { client.audit(2, "after the restart").await });
    assert!(has(&tree, "/old") && !has(&tree, "/new"));
}

#[test]
fn opposite_moves_at_the_same_time_never_make_a_cycle() {
    for seed in 0..20 {
        let cluster = Cluster::new(seed, 2, |_| {});
        let (one, two) = (cluster.caller(1), cluster.caller(2));
        cluster.block_on(|| async move {
            let a = directory_on(&one, ServerId(0), "a").await;
            let b = directory_on(&one, ServerId(1), "b").await;
            // The names under the root that lead to them.
            let mut names = Vec::new();
            for name in one.list(ROOT_HANDLE).await.unwrap() {
                let handle = one.lookup(ROOT_HANDLE, &name).await.unwrap().handle;
                if handle == a || handle == b {
                    names.push((handle, name));
                }
            }
            let name_of = |handle| names.iter().find(|(other, _)| *other == handle).unwrap().1.clone();
            let (name_a, name_b) = (name_of(a), name_of(b));
            let moves = weft_rt::join_all(
                [(&one, name_a.clone(), b), (&two, name_b.clone(), a)]
                    .map(|(client, name, to)| async move { client.rename(ROOT_HANDLE, &name, to, "inside").await }),
            )
            .await;
            let succeeded = moves.iter().filter(|result| result.is_ok()).count();
            assert_eq!(succeeded, 1, "seed {seed}: {moves:?}");
            assert!(moves.contains(&Err(Status::Invalid)), "seed {seed}: {moves:?}");
            one.audit(2, "opposite moves").await;
        });
    }
}
