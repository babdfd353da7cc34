//! Where did the time go? Whole clusters in virtual time with trace records on: the stages of every
//! operation add up, and what is slow is named first.

use std::rc::Rc;

use weft_base::{Credentials, MILLISECOND, ROOT_HANDLE, SECOND};
use weft_client::{Client, CreateOptions};
use weft_rt::Bulk;
use weft_rt_sim::{Fault, NodeId, Profile, Sim, SimRt};
use weft_sim_tests::cluster::{Cluster, ClusterConfig, Durability};
use weft_trace::Mask;
use weft_trace::explain::{Analysis, Explanation};
use weft_trace::file::TraceFile;
use weft_trace::merge::{Merged, merge};

/// Files of each client.
const FILES: usize = 12;
/// Four stripes of the test cluster's 4 KiB.
const BYTES: usize = 16 << 10;

/// Two clients make files, write, read and remove them, on two metadata and three data servers that
/// promise stable storage.
fn traced(profile: Profile, slow: Option<(usize, u32)>) -> Vec<Vec<u8>> {
    let sim = Sim::new(7, profile);
    let config = ClusterConfig { meta: 2, data: 3, contract: Durability::Sync, ..ClusterConfig::small() };
    let cluster = Cluster::start(&sim, &config);
    let clients: Vec<(NodeId, Client<SimRt>)> = ["c0", "c1"].into_iter().map(|name| cluster.add_client(name, 60 * SECOND)).collect();
    // Servers make their file system, and clients connect, before anything is recorded.
    for (node, client) in &clients {
        let client = client.clone();
        let pinged = sim.block_on(*node, 60 * SECOND, move |_| async move { client.ping_all().await });
        assert!(pinged.expect("servers answer").iter().all(|(_, answer)| answer.is_ok()));
    }
    if let Some((server, percent)) = slow {
        sim.strike(&Fault::Slow { node: cluster.servers()[server], percent, ns: 3600 * SECOND });
    }
    sim.start_tracing(Mask::ALL, 1 << 14);
    let flows: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(number, (node, client))| sim.spawn_on(node, move |_| async move { work(&client, number).await }))
        .collect();
    let flows = Rc::new(flows);
    sim.run_until_true(sim.now() + 600 * SECOND, || flows.iter().all(|flow| flow.is_over())).expect("the work ends");
    assert!(flows.iter().all(|flow| flow.take().is_some()), "no client has died");
    sim.take_trace_files().into_iter().map(|(_, bytes)| bytes).collect()
}

async fn work(client: &Client<SimRt>, number: usize) {
    let (who, data) = (&Credentials::ROOT, vec![7; BYTES]);
    let dir = client.mkdir(who, ROOT_HANDLE, format!("d{number}").as_bytes(), 0o755).await.expect("a new directory").handle;
    for file in 0..FILES {
        let name = format!("f{file}");
        let (_, open, _) = client.create(who, dir, name.as_bytes(), &CreateOptions::default()).await.expect("a new file");
        client.write(&open, 0, Bulk::Slices(vec![&data])).await.expect("there is room");
        client.fsync(&open, false).await.expect("disks work");
        let read = client.read(&open, 0, BYTES as u64).await.expect("it was written");
        assert_eq!(read.iter().map(|piece| piece.len()).sum::<u64>(), BYTES as u64);
        client.close(open).await.expect("it is open");
        client.unlink(who, dir, name.as_bytes()).await.expect("it is there");
    }
}

fn merged(files: &[Vec<u8>]) -> Merged {
    let merged = merge(files.iter().map(|bytes| TraceFile::read(bytes).expect("just written")).collect());
    assert!(merged.nodes.iter().all(|node| node.problems.is_empty()), "{:?}", merged.nodes);
    merged
}

fn explained(profile: Profile, slow: Option<(usize, u32)>) -> Explanation {
    let merged = merged(&traced(profile, slow));
    let explanation = Analysis::new(&merged).explain(4);
    assert!(explanation.covered > 0.99, "{explanation:#?}");
    assert_eq!(explanation.missing, Vec::<String>::new());
    explanation
}

fn first(explanation: &Explanation, operation: &str) -> (&'static str, String) {
    let kind = explanation.kinds.iter().find(|kind| kind.operation == operation).unwrap_or_else(|| panic!("no {operation}"));
    (kind.suspects[0].stage, kind.suspects[0].place.clone())
}

#[test]
fn stages_cover_the_time_of_every_operation_and_nothing_is_served_before_it_is_sent() {
    let merged = merged(&traced(Profile::ethernet_10g(), None));
    assert_eq!(merged.causality_violations(), 0);
    let analysis = Analysis::new(&merged);
    for operation in analysis.operations() {
        assert_eq!(analysis.path(operation).iter().map(|segment| segment.dur_ns).sum::<u64>(), operation.dur_ns);
    }
    let explanation = analysis.explain(3);
    let count = |name: &str| explanation.kinds.iter().find(|kind| kind.operation == name).map_or(0, |kind| kind.count as usize);
    for name in ["client.create", "client.write", "client.fsync", "client.read", "client.close", "client.unlink"] {
        assert_eq!(count(name), 2 * FILES, "{name}");
    }
    assert_eq!(count("client.mkdir"), 2);
    assert!(explanation.covered > 0.99 && explanation.missing.is_empty(), "{explanation:#?}");
}

#[test]
fn the_same_seed_records_the_same_bytes() {
    assert_eq!(traced(Profile::ethernet_10g(), None), traced(Profile::ethernet_10g(), None));
}

#[test]
fn tracing_changes_nothing_that_happens() {
    let hash = |on: bool| {
        let sim = Sim::new(3, Profile::ethernet_10g());
        let cluster = Cluster::start(&sim, &ClusterConfig::small());
        let (node, client) = cluster.add_client("c", 60 * SECOND);
        if on {
            sim.start_tracing(Mask::ALL, 1 << 14);
        }
        sim.block_on(node, 600 * SECOND, move |_| async move { work(&client, 0).await }).expect("the work ends");
        sim.trace_hash()
    };
    assert_eq!(hash(false), hash(true));
}

#[test]
fn a_slow_flush_is_named_as_the_journal() {
    let mut profile = Profile::ethernet_10g();
    profile.disk.sync_ns = 5 * MILLISECOND;
    let explanation = explained(profile, None);
    assert_eq!(first(&explanation, "client.create").0, "journal", "{explanation:#?}");
    assert_eq!(first(&explanation, "client.unlink").0, "journal");
}

#[test]
fn a_slow_network_is_named() {
    let mut profile = Profile::ethernet_10g();
    profile.net.latency_ns = 5 * MILLISECOND;
    let explanation = explained(profile, None);
    for operation in ["client.create", "client.read", "client.write", "client.close"] {
        assert_eq!(first(&explanation, operation).0, "network", "{operation}: {explanation:#?}");
    }
}

/// Cards that need 4 ms for a stripe: the stripes of a write wait for one another at the client,
/// and replies of reads at the servers.
#[test]
fn a_busy_card_is_named_as_the_send_queue() {
    let mut profile = Profile::ethernet_10g();
    profile.net.bytes_per_s = 1 << 20;
    let explanation = explained(profile, None);
    let waits = |operation: &str| {
        let kind = explanation.kinds.iter().find(|kind| kind.operation == operation).expect("it was done");
        kind.stages.iter().find(|stage| stage.stage == "send_queue").map_or(0.0, |stage| stage.share)
    };
    // Of the last of three messages: twice the time of one, beside its own time and the way back.
    assert!(waits("client.write") > 0.5, "{explanation:#?}");
    assert!(waits("client.read") > 0.01, "{explanation:#?}");
    assert!(waits("client.create") < 0.05, "{explanation:#?}");
}

#[test]
fn a_slow_disk_is_named() {
    let mut profile = Profile::ethernet_10g();
    (profile.disk.reads_cached, profile.disk.read_ns) = (false, 5 * MILLISECOND);
    let explanation = explained(profile, None);
    assert!(first(&explanation, "client.read").0.starts_with("disk_"), "{explanation:#?}");
}

/// Everything on one server takes a hundred times as long.
#[test]
fn a_slow_server_is_named() {
    for (server, name, operation) in
        [(0, "meta0", "client.create"), (2, "data0", "client.read"), (3, "data1", "client.read"), (4, "data2", "client.write")]
    {
        let explanation = explained(Profile::ethernet_10g(), Some((server, 10_000)));
        assert_eq!(first(&explanation, operation).1, name, "{operation}: {explanation:#?}");
    }
}
