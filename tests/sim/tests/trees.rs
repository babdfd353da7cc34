//! Whole trees are removed while servers die, messages are lost, and others make names in them:
//! what is left is a file system, and the removal can be begun again.

use bytes::Bytes;
use weft_base::{Credentials, MILLISECOND, ROOT_HANDLE, SECOND, Status};
use weft_client::{Client, CreateOptions, SumNews, TreeNews, TreeRemoved};
use weft_rt::Runtime;
use weft_rt_sim::{FaultPlan, FaultSettings, MessageFaults, SimRt};
use weft_sim_tests::cluster::{ClusterConfig, Durability};
use weft_sim_tests::stage::{Stage, Tolerance};
use weft_sim_tests::workload::Worker;

const WHO: Credentials = Credentials::ROOT;
const DIRS: usize = 12;
const FILES: usize = 60;

/// Asks until it is answered: what was done by an answer that was lost is done.
async fn surely<T>(rt: &SimRt, mut ask: impl AsyncFnMut() -> weft_client::Result<T>, done: &[Status]) -> Option<T> {
    for _ in 0..100 {
        match ask().await {
            Ok(answer) => return Some(answer),
            Err(error) if done.contains(&error.status) => return None,
            Err(_) => rt.sleep_until(rt.now() + 100 * MILLISECOND).await,
        }
    }
    panic!("no answer for long")
}

/// Directories, some in others, with files, some of which have a name in another directory too.
async fn make(client: &Client<SimRt>) {
    let top = client.mkdir(&WHO, ROOT_HANDLE, b"top", 0o755).await.expect("a new directory").handle;
    let (mut above, mut before) = (top, None);
    for dir in 0..DIRS {
        let made = client.mkdir(&WHO, above, format!("d{dir}").as_bytes(), 0o755).await.expect("a new directory").handle;
        let names: Vec<Bytes> = (0..FILES).map(|file| format!("f{file}").into()).collect();
        let files = client.create_many(&WHO, made, &names, &CreateOptions::default()).await;
        let first = files[0].as_ref().expect("a new file").handle;
        if let Some(before) = before.replace(first) {
            client.link(&WHO, before, made, b"linked").await.expect("a second name");
        }
        above = if dir % 3 == 2 { top } else { made };
    }
}

async fn remove(client: &Client<SimRt>) -> (TreeRemoved, Vec<Status>) {
    let mut failed = Vec::new();
    let find = async || client.lookup_handle(&WHO, ROOT_HANDLE, b"top").await;
    let Some((top, _)) = surely(client.rt(), find, &[Status::NotFound]).await else { return Default::default() };
    let tell = |news: TreeNews<'_, TreeRemoved>| {
        if let TreeNews::Failed { error, .. } = news {
            failed.push(error.status);
        }
    };
    (client.remove_tree(&WHO, ROOT_HANDLE, &Bytes::from_static(b"top"), top, tell).await, failed)
}

fn run(seed: u64) {
    let config = ClusterConfig { meta: 3, data: 2, contract: Durability::Batch, ..ClusterConfig::small() };
    let mut stage = Stage::new(seed, &config, 0);
    stage.wait_for_servers().expect("a new cluster serves");
    let made = async |worker: &mut Worker| {
        make(&worker.client).await;
        Ok(())
    };
    stage.with_auditor(made).expect("it is made");
    let settings = FaultSettings {
        crashes: 4,
        breaks: 4,
        partitions: 2,
        messages: MessageFaults::BAD,
        down_max_ns: 200 * MILLISECOND,
        ..FaultSettings::none(2 * SECOND)
    };
    let servers = stage.cluster.servers().to_vec();
    let clients: Vec<_> = (0..3).map(|number| stage.add_worker(["one", "two", "maker"][number], 3 * SECOND)).collect();
    let nodes: Vec<_> = clients.iter().map(|(node, _)| *node).collect();
    let plan = FaultPlan::draw(&settings, &servers, &nodes, &mut stage.random);
    stage.sim.schedule(&plan);
    // Two remove it at once, one of whom dies, and a third makes names in it.
    let flows: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(number, (node, worker))| {
            stage.begin(node, worker, async move |worker| {
                let client = &worker.client;
                if number < 2 {
                    return drop(remove(client).await);
                }
                for round in 0..40 {
                    let path = format!("/top/d{}", round % 3);
                    if let Ok(dir) = client.resolve(&WHO, path.as_bytes(), false).await {
                        client.mkdir(&WHO, dir.handle, format!("late{round}").as_bytes(), 0o755).await.ok();
                    }
                    client.rt().sleep_until(client.rt().now() + 5 * MILLISECOND).await;
                }
            })
        })
        .collect();
    stage.sim.run_for(20 * MILLISECOND);
    stage.sim.crash(nodes[0]);
    stage.wait(&flows).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    stage.recover().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    stage.bury_the_dead();
    let seen = stage.with_auditor(async |worker| {
        // Sums and removal see the same tree.
        let client = &worker.client;
        let top = client.lookup_handle(&WHO, ROOT_HANDLE, b"top").await;
        let mut failed = Vec::new();
        let sums = match top {
            Ok((top, _)) => {
                let tell = |news: SumNews<'_>| {
                    if let SumNews::Failed { error, .. } = news {
                        failed.push(error.status);
                    }
                };
                client.sum_tree(&WHO, top, tell).await
            }
            Err(_) => Default::default(),
        };
        assert_eq!(failed, []);
        let (removed, failed) = remove(client).await;
        assert_eq!((removed.directories, removed.failed, failed), (sums.directories, 0, vec![]));
        // What has two names counts once in sums.
        assert!(removed.files >= sums.files && removed.files <= sums.files + DIRS as u64, "{removed:?} {sums:?}");
        let left = client.readdir(&WHO, ROOT_HANDLE, 0, 1 << 20, false).await.expect("the servers answer").entries;
        assert!(left.is_empty(), "{left:?}");
        Ok(removed.directories)
    });
    seen.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    // Nothing is left of it: no inode without a name, no datafile.
    stage.examine(true, Tolerance::default()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

#[test]
fn a_tree_is_removed_whoever_dies() {
    (9100..9130).for_each(run);
}
