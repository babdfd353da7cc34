//! A directory that goes from server to server while clients work in it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use bytes::Bytes;
use weft_base::{Credentials, Handle, MILLISECOND, ROOT_HANDLE, SECOND};
use weft_client::{Client, CreateOptions};
use weft_rt::Runtime;
use weft_rt_sim::{Joined, Profile, Sim, SimRt};
use weft_sim_tests::cluster::{Cluster, ClusterConfig};
use weft_sim_tests::stage::Stage;

/// Names that are there all the while.
const NAMES: usize = 60;
/// Names that are made meanwhile.
const MORE: usize = 25;
const WHO: &Credentials = &Credentials::ROOT;

fn name(kind: &str, number: usize) -> Bytes {
    Bytes::from(format!("{kind}{number}"))
}

async fn make(client: &Client<SimRt>, dir: Handle, names: &[Bytes]) {
    for made in client.create_many(WHO, dir, names, &CreateOptions::default()).await {
        made.expect("a new name");
    }
}

/// All names by one listing, in pages of a few.
async fn listed(client: &Client<SimRt>, dir: Handle) -> BTreeSet<Bytes> {
    let (mut names, mut cookie) = (BTreeSet::new(), 0);
    loop {
        let page = client.readdir(WHO, dir, cookie, 400, false).await.expect("it is there");
        for entry in &page.entries {
            assert!(entry.cookie >= cookie, "in the order of cookies");
            assert!(names.insert(entry.name.clone()), "{:?} is listed twice", entry.name);
        }
        match page.entries.last() {
            Some(last) if !page.end => cookie = last.cookie,
            _ => return names,
        }
    }
}

/// What others see while a directory is spread and brought back again and again: its size is exact,
/// and a listing has each name once.
#[test]
fn promise_splits_are_not_seen() {
    for seed in 0..2 {
        let config = ClusterConfig { meta: 3, slice_names: 7, ..ClusterConfig::small() };
        let mut stage = Stage::new(seed, &config, 0);
        stage.wait_for_servers().expect("a new cluster serves");
        let (made, is_over) = (Rc::new(Cell::new((0, 0))), Rc::new(Cell::new(false)));
        let dir = stage.with_auditor(async |worker| {
            let dir = worker.client.mkdir(WHO, ROOT_HANDLE, b"d", 0o755).await.map_err(|error| error.to_string())?.handle;
            make(&worker.client, dir, &(0..NAMES).map(|number| name("old", number)).collect::<Vec<_>>()).await;
            Ok(dir)
        });
        let dir = dir.expect("no fault strikes");
        let mut running = Vec::new();

        let (node, worker) = stage.add_worker("maker", 30 * SECOND);
        let (counted, over) = (made.clone(), is_over.clone());
        running.push(stage.begin(node, worker, async move |worker| {
            let rt = worker.client.rt();
            for number in 0..MORE {
                counted.set((number, number + 1));
                make(&worker.client, dir, &[name("new", number)]).await;
                counted.set((number + 1, number + 1));
                rt.sleep_until(rt.now() + 10 * MILLISECOND).await;
            }
            over.set(true);
        }));

        let (node, worker) = stage.add_worker("splitter", 30 * SECOND);
        let over = is_over.clone();
        let moved = Rc::new(Cell::new(0));
        let sum = moved.clone();
        running.push(stage.begin(node, worker, async move |worker| {
            let rt = worker.client.rt();
            for servers in [3, 1, 2, 3].into_iter().cycle() {
                let mut state = worker.client.split_directory(WHO, dir, servers).await.expect("its owner asks");
                while state.goal.is_some() {
                    rt.sleep_until(rt.now() + 5 * MILLISECOND).await;
                    state = worker.client.split_directory(WHO, dir, 0).await.expect("it is there");
                }
                assert_eq!(state.map.servers().len(), usize::from(servers), "{state:?}");
                sum.set(sum.get() + state.moved_names);
                if over.get() {
                    break;
                }
            }
        }));

        let looks = Rc::new(Cell::new(0));
        for number in 0..3 {
            let (node, worker) = stage.add_worker(&format!("looker{number}"), 30 * SECOND);
            if number > 0 {
                stage.cluster.keep_leases(node, &worker.client);
            }
            let (counted, over, looks) = (made.clone(), is_over.clone(), looks.clone());
            running.push(stage.begin(node, worker, async move |worker| {
                let client = worker.client.clone();
                while !over.get() {
                    let before = counted.get().0;
                    let attr = client.getattr(dir).await.expect("it is there");
                    let most = counted.get().1;
                    assert!((NAMES + before..=NAMES + most).contains(&(attr.size as usize)), "{} of {before} to {most} more", attr.size);
                    let before = counted.get().0;
                    let names = listed(&client, dir).await;
                    let all = (0..NAMES).map(|number| name("old", number)).chain((0..before).map(|number| name("new", number)));
                    let missing: Vec<Bytes> = all.filter(|name| !names.contains(name)).collect();
                    assert!(missing.is_empty(), "a listing has not {missing:?}");
                    for number in 0..8 {
                        client.lookup(WHO, dir, &name("old", number * 7)).await.expect("it is there");
                        assert!(client.lookup(WHO, dir, &name("none", number)).await.is_err());
                    }
                    looks.set(looks.get() + 1);
                }
            }));
        }
        stage.wait(&running).expect("all come to their end");
        assert!(running.into_iter().all(|joined| joined.take().is_some()), "nobody has panicked");
        assert!(looks.get() > 8 && moved.get() > 2 * NAMES as u64, "{} looks, {} names have moved", looks.get(), moved.get());
    }
}

/// Names wait while a slice with them moves, and no longer. `WEFT_NAMES=1000000` in a release build
/// takes some minutes.
#[test]
fn a_create_waits_at_most_ten_milliseconds_for_a_split() {
    let names = std::env::var("WEFT_NAMES").map_or(6_000, |count| count.parse().expect("a number of names"));
    let sim = Sim::new(1, Profile::ethernet_10g());
    let config = ClusterConfig { meta: 4, segment_bytes: 64 << 20, checkpoint_bytes: 1 << 40, ..ClusterConfig::small() };
    let cluster = Cluster::start(&sim, &config);
    sim.run_for(SECOND);
    let (node, filler) = cluster.add_client("filler", 60 * SECOND);
    let filled = sim.spawn_on(node, |_| async move {
        let dir = filler.mkdir(WHO, ROOT_HANDLE, b"d", 0o755).await.expect("a new directory").handle;
        for from in (0..names).step_by(1_000) {
            make(&filler, dir, &(from..(from + 1_000).min(names)).map(|number| name("old", number)).collect::<Vec<_>>()).await;
        }
        dir
    });
    sim.run_until_true(sim.now() + 3600 * SECOND, || filled.is_over()).expect("every wait has an end");
    let dir = filled.take().expect("nobody dies");

    let creates = |count: usize, until: Rc<Cell<bool>>, kind: &'static str| {
        let (node, client) = cluster.add_client(kind, 60 * SECOND);
        sim.spawn_on(node, move |rt: SimRt| async move {
            let mut taken = Vec::new();
            for number in 0.. {
                if taken.len() >= count && until.get() {
                    break;
                }
                let begun = rt.now();
                make(&client, dir, &[name(kind, number)]).await;
                taken.push(rt.now().since(begun));
            }
            taken.sort_unstable();
            taken
        })
    };
    let wait = |flow: &Joined<Vec<u64>>| {
        sim.run_until_true(sim.now() + 3600 * SECOND, || flow.is_over()).expect("every wait has an end");
    };
    let before = creates(300, Rc::new(Cell::new(true)), "before");
    wait(&before);
    let before = before.take().expect("nobody dies");

    let is_over = Rc::new(Cell::new(false));
    let during = creates(0, is_over.clone(), "during");
    let (node, client) = cluster.add_client("splitter", 60 * SECOND);
    let over = is_over.clone();
    let splits = sim.spawn_on(node, move |rt: SimRt| async move {
        let begun = rt.now();
        let mut state = client.split_directory(WHO, dir, 4).await.expect("its owner asks");
        while state.goal.is_some() {
            rt.sleep_until(rt.now() + MILLISECOND).await;
            state = client.split_directory(WHO, dir, 0).await.expect("it is there");
        }
        over.set(true);
        (state.moved_names, rt.now().since(begun))
    });
    wait(&during);
    let (moved, took_ns) = splits.take().expect("nobody dies");
    let during = during.take().expect("nobody dies");
    let ms = |time_ns: u64| time_ns as f64 / 1e6;
    let say = |what: &str, taken: &[u64]| {
        let at = |per_mille: usize| ms(taken[(taken.len() - 1) * per_mille / 1000]);
        println!("{what}: {} creates, median {} ms, p99 {}, most {}", taken.len(), at(500), at(990), at(1000));
    };
    println!("{names} names, {moved} of them moved in {} ms", ms(took_ns));
    say("before", &before);
    say("during", &during);
    assert!(moved > names as u64 / 2, "{moved} names have moved");
    assert!(during.len() > 100, "{} creates during the split", during.len());
    let most = *during.last().expect("some");
    assert!(most <= 10 * MILLISECOND, "a create took {} ms", ms(most));
}

/// Many clients make files in one directory: its server is busy, the others have nothing to do. It
/// spreads the directory over them by itself, soon enough that few names are elsewhere than their
/// files.
#[test]
fn a_hot_directory_is_spread_over_idle_servers() {
    const CLIENTS: usize = 14;
    let sim = Sim::new(1, Profile::ethernet_10g());
    let config = ClusterConfig { meta: 4, segment_bytes: 64 << 20, checkpoint_bytes: 1 << 40, ..ClusterConfig::small() };
    let cluster = Cluster::start(&sim, &config);
    sim.run_for(SECOND);
    let (node, first) = cluster.add_client("first", 60 * SECOND);
    let made = sim.spawn_on(node, |_| async move { first.mkdir(WHO, ROOT_HANDLE, b"d", 0o755).await.expect("a new directory").handle });
    sim.run_until_true(sim.now() + SECOND, || made.is_over()).expect("it serves");
    let dir = made.take().expect("nobody dies");

    let (counted, is_over) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(false)));
    let makers: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (node, client) = cluster.add_client(&format!("maker{number}"), 60 * SECOND);
            let (counted, over) = (counted.clone(), is_over.clone());
            sim.spawn_on(node, move |_| async move {
                for file in (0..).take_while(|_| !over.get()) {
                    make(&client, dir, &[name(&format!("of{number}-"), file)]).await;
                    counted.set(counted.get() + 1);
                }
            })
        })
        .collect();
    let creates_of = |time_ns: u64| {
        let before = counted.get();
        sim.run_for(time_ns);
        counted.get() - before
    };
    // Before anybody has looked at a window.
    let before = creates_of(50 * MILLISECOND);
    sim.run_for(SECOND);
    let after = creates_of(50 * MILLISECOND);
    is_over.set(true);
    sim.run_until_true(sim.now() + SECOND, || makers.iter().all(Joined::is_over)).expect("every wait has an end");
    let (node, last) = cluster.add_client("last", 60 * SECOND);
    let asked = sim.spawn_on(node, move |_| async move { last.split_directory(WHO, dir, 0).await.expect("it is there") });
    sim.run_until_true(sim.now() + SECOND, || asked.is_over()).expect("it serves");
    let state = asked.take().expect("nobody dies");
    let away = state.moved_names as f64 / counted.get() as f64;
    println!("{before} creates in 50 ms before, {after} after; {} names have moved, {away:.4} of all then", state.moved_names);
    assert_eq!((state.map.servers().len(), state.spread_from), (4, Some(1)), "{state:?}");
    assert!(10 * after > 17 * before, "{after} creates after, {before} before");
}
