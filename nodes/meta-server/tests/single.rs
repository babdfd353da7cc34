//! One metadata server: what it promises without any other.

mod common;

use common::*;
use weft_base::{ROOT_HANDLE, SECOND, ServerId, Status};
use weft_meta_server::{Durability, Engine};
use weft_rt::Runtime;
use weft_wire::Rights;
use weft_wire::ops::*;

#[test]
fn names_work_under_every_contract() {
    for (engine, durability) in contracts() {
        let cluster = Cluster::new(1, 1, |config| (config.serving.engine, config.serving.durability) = (engine, durability));
        let client = cluster.caller(1);
        cluster.block_on(|| async move {
            let dir = client.mkdir(ROOT_HANDLE, "d").await.unwrap();
            let file = client.create(dir, "f", Rights::default()).await.unwrap();
            assert_eq!(client.create(dir, "f", Rights::default()).await.unwrap_err(), Status::Exists);
            assert_eq!(client.lookup(dir, "f").await.unwrap().handle, file.handle);
            assert_eq!(client.rmdir(ROOT_HANDLE, "d").await, Err(Status::NotEmpty));
            client.rename(dir, "f", ROOT_HANDLE, "g").await.unwrap();
            assert_eq!(client.list(ROOT_HANDLE).await.unwrap(), ["d", "g"]);
            client.rmdir(ROOT_HANDLE, "d").await.unwrap();
            // Whoever holds it still sees a directory without a name, in which nothing can be made.
            assert_eq!(client.getattr(dir).await.unwrap().attr.nlink, 0);
            assert_eq!(client.mkdir(dir, "below").await.unwrap_err(), Status::NotFound);
            assert_eq!(client.unlink(ROOT_HANDLE, "g").await, Ok(file.handle));
            assert_eq!(client.list(ROOT_HANDLE).await.unwrap(), Vec::<String>::new());
        });
    }
}

#[test]
fn a_create_is_one_request_and_one_reply_and_a_turn_is_one_journal_write() {
    let cluster = Cluster::new(2, 2, |_| {});
    let client = cluster.caller(1);
    cluster.block_on(|| async move {
        client.create(ROOT_HANDLE, "first", Rights::default()).await.unwrap();
        let before = client.call(ServerId(0), &PingRequest {}).await.unwrap();
        let sent = client.caller.stats().requests;
        let reply = client.create(ROOT_HANDLE, "f", Rights::READ.with(Rights::WRITE)).await.unwrap();
        assert!(reply.created && reply.capability.is_some() && reply.state.is_some());
        assert_eq!(client.caller.stats().requests, sent + 1);
        let after = client.call(ServerId(0), &PingRequest {}).await.unwrap();
        assert_eq!(after.journal_writes, before.journal_writes + 1);
        // The create and the second ping: nothing else arrived, and the other server was not asked.
        assert_eq!(after.requests, before.requests + 2);
        assert_eq!(client.call(ServerId(1), &PingRequest {}).await.unwrap().requests, 1);
    });
}

#[test]
fn requests_that_arrive_together_share_a_journal_write() {
    let cluster = Cluster::new(3, 1, |_| {});
    let client = cluster.caller(1);
    cluster.block_on(|| async move {
        client.create(ROOT_HANDLE, "warm", Rights::default()).await.unwrap();
        let before = client.call(ServerId(0), &PingRequest {}).await.unwrap();
        let names: Vec<String> = (0..100).map(|i| format!("f{i}")).collect();
        let replies = weft_rt::join_all(names.iter().map(|name| client.create(ROOT_HANDLE, name, Rights::default()))).await;
        assert!(replies.iter().all(|reply| reply.as_ref().is_ok_and(|reply| reply.created)));
        let after = client.call(ServerId(0), &PingRequest {}).await.unwrap();
        let (writes, turns) = (after.journal_writes - before.journal_writes, after.turns - before.turns);
        assert!(writes <= turns && writes < 50, "{writes} writes in {turns} turns for 100 creates");
    });
}

#[test]
fn acknowledged_changes_survive_the_death_of_the_process() {
    KEPT.into_iter().for_each(acknowledged_changes_survive_the_death_of_the_process_in);
}

fn acknowledged_changes_survive_the_death_of_the_process_in(engine: Engine) {
    for durability in [Durability::None, Durability::Batch, Durability::Sync] {
        let cluster = Cluster::new(4, 1, |config| (config.serving.engine, config.serving.durability) = (engine, durability));
        let client = cluster.caller(1);
        for round in 0..5 {
            let creator = client.clone();
            cluster.block_on(|| async move {
                for i in 0..20 {
                    creator.create(ROOT_HANDLE, &format!("r{round}f{i}"), Rights::default()).await.unwrap();
                }
            });
            cluster.crash_and_restart(0);
            let lister = client.clone();
            let names = cluster.block_on(|| async move { lister.list(ROOT_HANDLE).await.unwrap() });
            assert_eq!(names.len(), 20 * (round + 1), "{engine} {durability}");
        }
    }
}

#[test]
fn synced_changes_survive_a_power_cut() {
    KEPT.into_iter().for_each(synced_changes_survive_a_power_cut_in);
}

fn synced_changes_survive_a_power_cut_in(engine: Engine) {
    for (durability, wait_ns) in [(Durability::Sync, 0), (Durability::Batch, SECOND)] {
        for seed in 0..5 {
            let cluster = Cluster::new(seed, 1, |config| (config.serving.engine, config.serving.durability) = (engine, durability));
            let client = cluster.caller(1);
            let creator = client.clone();
            cluster.block_on(|| async move {
                for i in 0..20 {
                    creator.create(ROOT_HANDLE, &format!("f{i}"), Rights::default()).await.unwrap();
                }
            });
            // `batch` promises the interval, `sync` promises at once.
            cluster.sim.run_for(wait_ns);
            cluster.power_cycle(0);
            let names = cluster.block_on(|| async move { client.list(ROOT_HANDLE).await.unwrap() });
            assert_eq!(names.len(), 20, "{engine} {durability} seed {seed}: {names:?}");
        }
    }
}

#[test]
fn sync_meta_makes_everything_durable_even_without_a_contract() {
    KEPT.into_iter().for_each(sync_meta_makes_everything_durable_even_without_a_contract_in);
}

fn sync_meta_makes_everything_durable_even_without_a_contract_in(engine: Engine) {
    for seed in 0..5 {
        let cluster = Cluster::new(seed, 1, |config| (config.serving.engine, config.serving.durability) = (engine, Durability::None));
        let client = cluster.caller(1);
        let creator = client.clone();
        cluster.block_on(|| async move {
            for i in 0..20 {
                creator.create(ROOT_HANDLE, &format!("f{i}"), Rights::default()).await.unwrap();
            }
            creator.call(ServerId(0), &SyncMetaRequest {}).await.unwrap();
        });
        cluster.power_cycle(0);
        let names = cluster.block_on(|| async move { client.list(ROOT_HANDLE).await.unwrap() });
        assert_eq!(names.len(), 20, "{engine} seed {seed}");
    }
}

#[test]
fn checkpoints_bound_the_journal_and_lose_nothing() {
    let cluster = Cluster::new(5, 1, |config| {
        config.serving.journal_segment_bytes = 256 << 10;
        config.serving.checkpoint_bytes = 512 << 10;
    });
    let client = cluster.caller(1);
    let (total, batch) = (12_000usize, 400);
    for first in (0..total).step_by(batch) {
        let creator = client.clone();
        cluster.block_on(|| async move {
            let names: Vec<String> = (first..first + batch).map(|i| format!("file-{i}")).collect();
            for reply in weft_rt::join_all(names.iter().map(|name| creator.create(ROOT_HANDLE, name, Rights::default()))).await {
                reply.unwrap();
            }
        });
        if first % 4000 == 2000 {
            cluster.crash_and_restart(0);
        }
    }
    cluster.sim.run_for(5 * SECOND);
    let listed: Vec<String> = cluster.sim.disk_files(cluster.meta[0]).into_iter().map(|(name, _)| name).collect();
    let segments = listed.iter().filter(|name| name.starts_with("journal.")).count();
    assert!(listed.iter().any(|name| name.starts_with("checkpoint.")), "{listed:?}");
    assert!(segments <= 6, "old segments are given back: {listed:?}");
    cluster.crash_and_restart(0);
    let names = cluster.block_on(|| async move { client.list(ROOT_HANDLE).await.unwrap() });
    assert_eq!(names.len(), total);
}

#[test]
fn a_repeated_request_is_answered_from_the_table_even_after_a_restart() {
    KEPT.into_iter().for_each(a_repeated_request_is_answered_from_the_table_even_after_a_restart_in);
}

fn a_repeated_request_is_answered_from_the_table_even_after_a_restart_in(engine: Engine) {
    use weft_base::{ClientId, RequestId};
    use weft_rt::{Bulk, Outgoing, Runtime};
    use weft_wire::{Flags, Header, Op, Wire};

    let cluster = Cluster::new(6, 1, |config| config.serving.engine = engine);
    let send = |sequence: u64, span: u32, file: &'static str| {
        let rt = cluster.sim.rt(cluster.client);
        cluster.block_on(move || async move {
            let request = RequestId { client: ClientId(9), incarnation: 1, sequence };
            let mut header = Header::request(Op::Create, ServerId(0), request, span);
            header.flags = Flags::RETRY;
            let body = create_request(ROOT_HANDLE, file, Rights::default()).to_bytes();
            let deadline = rt.now() + 5 * SECOND;
            let frame = rt.request(ServerId(0), Outgoing { header, body, bulk: Bulk::None }, deadline).await?;
            frame.status()?;
            CreateReply::from_bytes(frame.body)
        })
    };
    let first = send(1, 0, "f").unwrap();
    assert_eq!(send(1, 0, "f"), Ok(first.clone()), "not \"exists\"");
    assert_eq!(send(2, 1, "f"), Err(Status::Exists), "another request is another request");
    cluster.crash_and_restart(0);
    cluster.sim.run_for(SECOND);
    assert_eq!(send(1, 0, "f"), Ok(first));
    assert_eq!(send(3, 0, "g").map(|reply| reply.created), Ok(true));
    assert_eq!(send(1, 0, "f"), Err(Status::StaleRequest), "the client has said that it has this answer");
}

#[test]
fn starting_needs_a_directory_of_this_server() {
    use weft_base::FsId;
    use weft_meta_server::{ServerError, run};
    use weft_rt_sim::{NodeConfig, Profile, Sim};

    let sim = Sim::new(7, Profile::instant());
    let node = sim.add_node(NodeConfig::server(ServerId(0)));
    let start = |config: weft_meta_server::MetaServerConfig| {
        let result = std::rc::Rc::new(std::cell::RefCell::new(None));
        let into = std::rc::Rc::clone(&result);
        sim.set_main(node, move |rt| {
            let (config, into) = (config.clone(), std::rc::Rc::clone(&into));
            async move { *into.borrow_mut() = run(rt, config).await.err() }
        });
        sim.restart(node);
        sim.run_for(SECOND);
        sim.crash(node);
        sim.run_for(SECOND);
        result.take()
    };
    let map = map(2);
    let good = config(ServerId(0), &map);
    let without = |change: &dyn Fn(&mut weft_meta_server::MetaServerConfig)| {
        let mut changed = good.clone();
        changed.serving.create = false;
        change(&mut changed);
        changed
    };
    assert!(matches!(start(without(&|_| {})), Some(ServerError::NotFormatted(_))));
    assert_eq!(start(good.clone()), None, "it serves until it is killed");
    assert_eq!(start(without(&|_| {})), None);
    assert!(matches!(start(without(&|config| config.serving.map.fs_id = FsId(1))), Some(ServerError::Store(_))));
    assert!(matches!(start(without(&|config| config.serving.server = ServerId(1))), Some(ServerError::Store(_))));
    assert!(matches!(start(without(&|config| config.serving.server = ServerId(5))), Some(ServerError::Config(_))));
    assert!(matches!(start(without(&|config| config.serving.map.data.clear())), Some(ServerError::Config(_))));
    assert_eq!(start(without(&|config| config.serving.engine = Engine::Memory)), None, "memory ignores the directory");
}

#[test]
fn a_full_disk_refuses_changes_answers_questions_and_recovers() {
    KEPT.into_iter().for_each(a_full_disk_refuses_changes_answers_questions_and_recovers_in);
}

fn a_full_disk_refuses_changes_answers_questions_and_recovers_in(engine: Engine) {
    let cluster = Cluster::new(8, 1, |config| (config.serving.engine, config.serving.journal_segment_bytes) = (engine, 256 << 10));
    let client = cluster.caller(1);
    let node = cluster.meta[0];
    let first = client.clone();
    cluster.block_on(|| async move { first.create(ROOT_HANDLE, "before", Rights::default()).await.unwrap() });
    cluster.sim.fill_disk(node, 3600 * SECOND);
    let filler = client.clone();
    let made = cluster.block_on(|| async move {
        let mut made = 0;
        loop {
            match filler.create(ROOT_HANDLE, &format!("f{made}"), Rights::default()).await {
                Ok(_) => made += 1,
                Err(Status::NoSpace) => break made,
                Err(other) => panic!("{other}"),
            }
            assert!(made < 100_000, "the disk never fills");
        }
    });
    let looker = client.clone();
    cluster.block_on(|| async move {
        assert!(looker.lookup(ROOT_HANDLE, "before").await.is_ok(), "questions go on");
        looker.unlink(ROOT_HANDLE, "f0").await.expect("what gives space back still fits");
        assert!(looker.call(ServerId(0), &PingRequest {}).await.unwrap().state.contains("full"));
    });
    // Until nothing fits any more, not even what usually does; and a restart in that state.
    let changer = client.clone();
    cluster.block_on(|| async move {
        let handle = changer.lookup(ROOT_HANDLE, "before").await.unwrap().handle;
        for mode in (0..100_000).map(|number| Some(0o600 + number % 2)) {
            let who = weft_base::Credentials::ROOT;
            let request = SetAttrRequest { mode, ..SetAttrRequest::of(handle, who) };
            match changer.call(ServerId(0), &request).await {
                Ok(_) => {}
                Err(Status::NoSpace) => return,
                Err(other) => panic!("{other}"),
            }
        }
        panic!("there is always room for changes of modes");
    });
    cluster.crash_and_restart(0);
    let reader = client.clone();
    cluster.block_on(|| async move {
        let before = reader.lookup(ROOT_HANDLE, "before").await.unwrap().handle;
        let open = |rights, open_sequence| OpenRequest::of(before, rights, open_sequence, weft_base::Credentials::ROOT);
        reader.call(ServerId(0), &open(Rights::READ, 1)).await.expect("reading writes nothing");
        assert_eq!(reader.call(ServerId(0), &open(Rights::READ.with(Rights::WRITE), 2)).await.unwrap_err(), Status::NoSpace);
        let close = CloseRequest { handle: before, open_sequence: 2, keeps: Rights::default(), written: None };
        reader.call(ServerId(0), &close).await.expect("and so does closing");
    });
    cluster.sim.heal();
    let after = client.clone();
    cluster.block_on(|| async move { after.create(ROOT_HANDLE, "after", Rights::default()).await.unwrap() });
    cluster.crash_and_restart(0);
    let names = cluster.block_on(|| async move { client.list(ROOT_HANDLE).await.unwrap() });
    assert_eq!(names.len(), made + 1, "before, after, and all but one in between");
}

/// Records of removals are small, and what they remove may be large.
#[test]
fn what_is_removed_from_a_full_disk_makes_room_soon() {
    for disk_bytes in [15 << 18, 5 << 20, 8 << 20] {
        let cluster = Cluster::new(9, 1, |_| {});
        let client = cluster.caller(1);
        cluster.sim.set_disk_bytes(cluster.meta[0], disk_bytes);
        for round in 0..4 {
            let filler = client.clone();
            let (made, free_bytes) = cluster.block_on(|| async move {
                let made = fill(&filler).await;
                (made, filler.call(ServerId(0), &PingRequest {}).await.expect("an answer").free_bytes)
            });
            assert!(free_bytes < disk_bytes / 8, "{free_bytes} of {disk_bytes} bytes seem to be free, and no name fits");
            cluster.crash_and_restart(0);
            let remover = client.clone();
            cluster.block_on(|| async move {
                for number in 0..made * 3 / 4 {
                    remover.unlink(ROOT_HANDLE, &format!("f{number}")).await.expect("removing goes on");
                }
                let rt = remover.caller.rt();
                rt.sleep_until(rt.now() + 20 * SECOND).await;
                let again = remover.create(ROOT_HANDLE, "again", Rights::default()).await;
                assert!(again.is_ok(), "{disk_bytes} bytes, round {round}: {made} fit, and three quarters of it are no room");
                remover.unlink(ROOT_HANDLE, "again").await.expect("it is removed");
                for number in made * 3 / 4..made {
                    remover.unlink(ROOT_HANDLE, &format!("f{number}")).await.expect("removing goes on");
                }
            });
        }
    }
}

/// Makes files with large attributes until the disk is full; how many.
async fn fill(client: &TestClient) -> usize {
    let mut made = 0;
    loop {
        assert!(made < 10_000, "the disk never fills");
        let handle = match client.create(ROOT_HANDLE, &format!("f{made}"), Rights::default()).await {
            Ok(reply) => reply.handle,
            Err(status) => {
                assert_eq!(status, Status::NoSpace);
                break made;
            }
        };
        made += 1;
        let (name, value) = (name("user.large"), vec![7; 1_900].into());
        let who = weft_base::Credentials::ROOT;
        let request = SetXattrRequest { handle, name, value, create_only: false, replace_only: false, who };
        match client.call(ServerId(0), &request).await {
            Ok(()) => {}
            Err(status) => {
                assert_eq!(status, Status::NoSpace);
                break made;
            }
        }
    }
}
