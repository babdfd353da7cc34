//! Faults of whole clusters in virtual time, put in from outside: the verdict names the cause, the
//! place and the stage first. The same with real processes is in `tests/system/tests/verdicts.rs`.

use std::rc::Rc;

use weft_base::{Credentials, Handle, MILLISECOND, SECOND};
use weft_client::{Client, CreateOptions};
use weft_rt::{Bulk, FaultPoint, Runtime};
use weft_rt_sim::{DiskFaultKind, Fault, Joined, NodeId, Profile, Sim, SimRt};
use weft_sim_tests::cluster::{Cluster, ClusterConfig, Durability};
use weft_sim_tests::delays::{DELAY_NS, two_directories};
use weft_trace::Mask;
use weft_trace::explain::{Analysis, Cause, Explanation};
use weft_trace::file::TraceFile;
use weft_trace::merge::merge;
use weft_wire::ops::{Family, Lock, LockKind, Unlock};

/// Three stripes of 4 KiB.
const BYTES: usize = 12 << 10;
/// Servers in the order of their nodes.
const SERVERS: [&str; 5] = ["meta0", "meta1", "data0", "data1", "data2"];

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    /// Files in directories of their own: made, written, synced, read, removed.
    Files,
    /// Files that are only made, all in one directory of `meta1`.
    OneDirectory,
    /// Reads of one file each.
    Reads,
    /// One lock that all want, and keep for so long.
    Lock,
    /// Between two files the program does something else.
    Sleepy,
}

struct Case {
    work: Work,
    /// Of the two clients so many work.
    clients: usize,
    /// Flows of each of them.
    flows: usize,
    profile: Profile,
    contract: Durability,
    /// Makes the trouble: gets the servers, then the clients.
    fault: fn(&Sim, &[NodeId], &[NodeId]),
}

/// A calm cluster with work.
fn case(work: Work, flows: usize, fault: fn(&Sim, &[NodeId], &[NodeId])) -> Case {
    Case { work, clients: 2, flows, profile: Profile::ethernet_10g(), contract: Durability::Batch, fault }
}

/// What is said about three seconds at most.
fn explained(case: &Case) -> Explanation {
    let sim = Sim::new(11, case.profile.clone());
    let config = ClusterConfig { meta: 2, data: 3, contract: case.contract, ..ClusterConfig::small() };
    let cluster = Cluster::start(&sim, &config);
    let clients: Vec<(NodeId, Client<SimRt>)> = ["c0", "c1"].into_iter().map(|name| cluster.add_client(name, 20 * SECOND)).collect();
    let mut dirs = Vec::new();
    for (number, (node, client)) in clients.iter().enumerate() {
        let client = client.clone();
        let made = sim.block_on(*node, 60 * SECOND, move |_| async move { two_directories(&client, number).await });
        dirs.push(made.expect("servers answer"));
    }
    sim.run_for(SECOND);
    let (servers, nodes) = (cluster.servers(), clients.iter().map(|(node, _)| *node).collect::<Vec<_>>());
    let shared = dirs[0][1];
    let begin = |number: usize, flow: usize| {
        let (node, client) = &clients[number];
        let (client, work) = (client.clone(), case.work);
        let dir = if work == Work::Lock || work == Work::OneDirectory { shared } else { dirs[number][flow % 2] };
        sim.spawn_on(*node, move |rt| async move { flow_of(&rt, &client, work, dir, (number, flow)).await })
    };
    let begin_all = || (0..case.clients).flat_map(|number| (0..case.flows).map(move |flow| (number, flow)));
    (case.fault)(&sim, servers, &nodes);
    sim.start_tracing(Mask::ALL, 1 << 16);
    let flows: Rc<Vec<Joined<()>>> = Rc::new(begin_all().map(|(number, flow)| begin(number, flow)).collect());
    // Some of these never end.
    let _ = sim.run_until_true(sim.now() + 3 * SECOND, || flows.iter().all(Joined::is_over));
    let merged = merge(sim.take_trace_files().iter().map(|(_, bytes)| TraceFile::read(bytes).expect("just written")).collect());
    assert!(merged.nodes.iter().all(|node| node.problems.is_empty()), "{:?}", merged.nodes);
    Analysis::new(&merged).explain(3)
}

/// Errors are no reason to stop.
async fn flow_of(rt: &SimRt, client: &Client<SimRt>, work: Work, dir: Handle, (number, flow): (usize, usize)) {
    let (who, data) = (&Credentials::ROOT, vec![7; BYTES]);
    let rounds = if work == Work::OneDirectory { 40 } else { 12 };
    let create = CreateOptions::default();
    if work == Work::Lock {
        // Whoever comes first makes it.
        let made = client.create(who, dir, b"lock", &create).await.map(|(attr, ..)| attr.handle);
        let file = match made {
            Ok(file) => file,
            Err(_) => client.lookup(who, dir, b"lock").await.expect("somebody has made it").handle,
        };
        return locks(rt, client, file, number * 100 + flow).await;
    }
    let kept =
        if work == Work::Reads { client.create(who, dir, format!("kept{number}.{flow}").as_bytes(), &create).await.ok() } else { None };
    if let Some((_, open, _)) = &kept {
        let _ = client.write(open, 0, Bulk::Slices(vec![&data])).await;
        for _ in 0..20 {
            let _ = client.read(open, 0, BYTES as u64).await;
        }
        return;
    }
    for round in 0..rounds {
        let name = format!("f{number}.{flow}.{round}");
        if let Ok((_, open, _)) = client.create(who, dir, name.as_bytes(), &create).await {
            if work != Work::OneDirectory {
                let _ = client.write(&open, 0, Bulk::Slices(vec![&data])).await;
                let _ = client.fsync(&open, false).await;
                let _ = client.read(&open, 0, BYTES as u64).await;
            }
            let _ = client.close(open).await;
        }
        match work {
            Work::OneDirectory => {}
            Work::Sleepy => rt.sleep_until(rt.now() + 50 * MILLISECOND).await,
            _ => drop(client.unlink(who, dir, name.as_bytes()).await),
        }
    }
}

/// Takes the same lock again and again and keeps it for a while.
async fn locks(rt: &SimRt, client: &Client<SimRt>, file: Handle, owner: usize) {
    let lock = Lock { family: Family::Fcntl, owner: owner as u64, kind: LockKind::Exclusive, start: 0, end: u64::MAX, process: 7, file: 1 };
    for _ in 0..10 {
        client.lock(file, lock, Some(&|| true)).await.expect("its turn comes");
        rt.sleep_until(rt.now() + 20 * MILLISECOND).await;
        let range = Unlock { family: Family::Fcntl, owner: owner as u64, start: 0, end: u64::MAX };
        client.unlock(file, &range).await.expect("it is held");
    }
}

fn nothing(_: &Sim, _: &[NodeId], _: &[NodeId]) {}

/// The cause of the first finding, its place if one is asked for, and one of these stages.
#[track_caller]
fn assert_told(case: &Case, cause: Cause, place: Option<&str>, stages: &[&str]) {
    let told = explained(case).verdict;
    let first = &told[0];
    assert_eq!(first.cause, cause, "{told:#?}");
    assert!(place.is_none() || first.place.as_deref() == place, "{told:#?}");
    assert!(stages.is_empty() || first.stage.is_some_and(|stage| stages.contains(&stage)), "{told:#?}");
    assert!((0.0..=1.0).contains(&first.share) && !first.advice.is_empty(), "{told:#?}");
}

#[test]
fn a_slow_disk_of_one_data_server() {
    let delay = |sim: &Sim, servers: &[NodeId], _: &[NodeId]| sim.delay(servers[3], FaultPoint::DataRead, DELAY_NS);
    assert_told(&case(Work::Files, 2, delay), Cause::Disk, Some(SERVERS[3]), &["disk_no_seek", "disk_near", "disk_far"]);
}

#[test]
fn a_slow_disk_of_a_journal() {
    let delay = |sim: &Sim, servers: &[NodeId], _: &[NodeId]| sim.delay(servers[0], FaultPoint::JournalFlush, DELAY_NS);
    let case = Case { contract: Durability::Sync, ..case(Work::Files, 2, delay) };
    assert_told(&case, Cause::Disk, Some("meta0"), &["journal"]);
}

#[test]
fn a_slow_link_of_a_server() {
    let delay = |sim: &Sim, servers: &[NodeId], _: &[NodeId]| sim.delay(servers[2], FaultPoint::NetRequest, DELAY_NS);
    assert_told(&case(Work::Files, 2, delay), Cause::Link, Some("data0"), &["network"]);
}

#[test]
fn a_slow_link_of_a_client() {
    let delay = |sim: &Sim, _: &[NodeId], clients: &[NodeId]| sim.delay(clients[1], FaultPoint::NetReply, DELAY_NS);
    assert_told(&case(Work::Files, 2, delay), Cause::Link, Some("c1"), &["network"]);
}

/// Nothing stands out; a millisecond is too much for one room all the same.
#[test]
fn links_that_are_slow_everywhere() {
    let mut profile = Profile::ethernet_10g();
    profile.net.latency_ns = 4 * MILLISECOND;
    assert_told(&Case { profile, ..case(Work::Files, 2, nothing) }, Cause::Link, None, &["network"]);
}

#[test]
fn a_stopped_server() {
    let stop = |sim: &Sim, servers: &[NodeId], _: &[NodeId]| sim.strike(&Fault::Pause { node: servers[3], ns: 3600 * SECOND });
    assert_told(&case(Work::Files, 2, stop), Cause::NoAnswer, Some("data1"), &["no_answer"]);
}

#[test]
fn a_stopped_metadata_server() {
    let stop = |sim: &Sim, servers: &[NodeId], _: &[NodeId]| sim.strike(&Fault::Pause { node: servers[1], ns: 3600 * SECOND });
    assert_told(&case(Work::Files, 2, stop), Cause::NoAnswer, Some("meta1"), &["no_answer"]);
}

#[test]
fn a_full_disk() {
    let fill = |sim: &Sim, servers: &[NodeId], _: &[NodeId]| sim.fill_disk(servers[4], 3600 * SECOND);
    assert_told(&case(Work::Files, 2, fill), Cause::DiskFull, Some("data2"), &[]);
}

#[test]
fn a_failing_disk() {
    let fail = |sim: &Sim, servers: &[NodeId], _: &[NodeId]| sim.fail_disk(servers[2], DiskFaultKind::Read, 5);
    assert_told(&case(Work::Files, 2, fail), Cause::DiskErrors, Some("data0"), &[]);
}

#[test]
fn one_directory_for_everybody() {
    let case = Case { contract: Durability::None, ..case(Work::OneDirectory, 24, nothing) };
    assert_told(&case, Cause::HotServer, Some("meta1"), &["server_queue", "cpu"]);
}

#[test]
fn a_busy_processor_of_one_server() {
    let delay = |sim: &Sim, servers: &[NodeId], _: &[NodeId]| sim.delay(servers[1], FaultPoint::ServerCpu, DELAY_NS);
    assert_told(&case(Work::Files, 2, delay), Cause::HotServer, Some("meta1"), &["cpu", "server_queue"]);
}

#[test]
fn one_lock_for_everybody() {
    assert_told(&case(Work::Lock, 2, nothing), Cause::ApplicationLock, Some("meta1"), &["lock"]);
}

#[test]
fn one_request_after_the_other() {
    let case = Case { clients: 1, contract: Durability::None, ..case(Work::Reads, 1, nothing) };
    assert_told(&case, Cause::FewInFlight, None, &[]);
}

#[test]
fn a_program_that_does_something_else() {
    assert_told(&case(Work::Sleepy, 1, nothing), Cause::Program, None, &[]);
}

/// Processor, card and disk of a node take a hundred times as long.
#[test]
fn a_slow_machine() {
    let slow = |sim: &Sim, servers: &[NodeId], _: &[NodeId]| {
        sim.strike(&Fault::Slow { node: servers[4], percent: 10_000, ns: 3600 * SECOND });
    };
    let told = explained(&case(Work::Files, 2, slow)).verdict;
    assert_eq!(told[0].place.as_deref(), Some("data2"), "{told:#?}");
}
