//! A directory that goes from server to server while clients work in it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use bytes::Bytes;
use weft_base::{Credentials, Handle, MILLISECOND, ROOT_HANDLE, SECOND};
use weft_client::{Client, CreateOptions};
use weft_rt::Runtime;
use weft_rt_sim::SimRt;
use weft_sim_tests::cluster::ClusterConfig;
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
