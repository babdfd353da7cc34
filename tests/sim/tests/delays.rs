//! A delay of 5 ms at one place of a whole cluster in virtual time: `explain` names that place first, whichever it is. The table of places is
//! that of `docs/trace.md`; the same with real processes is in `tests/system/tests/delays.rs`.

use std::rc::Rc;

use weft_base::{Credentials, Handle, MILLISECOND, ROOT_HANDLE, SECOND};
use weft_client::{Client, CreateOptions, RenameFlags, SetAttr};
use weft_rt::{Bulk, FaultPoint};
use weft_rt_sim::{NodeId, Profile, Sim, SimRt};
use weft_sim_tests::cluster::{Cluster, ClusterConfig, Durability};
use weft_trace::Mask;
use weft_trace::explain::{Analysis, Explanation};
use weft_trace::file::TraceFile;
use weft_trace::merge::merge;

/// Files of each client.
const FILES: usize = 12;
/// Four stripes of the test cluster's 4 KiB.
const BYTES: usize = 16 << 10;
const DELAY_NS: u64 = 5 * MILLISECOND;

/// Where a flow is held up, on which node, and what must be named: stage, place, and words of the evidence.
struct Row(FaultPoint, &'static str, (&'static str, &'static str), &'static str);

#[rustfmt::skip]
const PLACES: &[Row] = &[
    Row(FaultPoint::ClientCode,   "c1",    ("client", "c1"), ""),
    Row(FaultPoint::ClientLock,   "c1",    ("lock", "c1"), ""),
    Row(FaultPoint::ClientSend,   "c0",    ("send_queue", "c0"), ""),
    Row(FaultPoint::ClientRetry,  "c1",    ("retry", "c1"), ""),
    Row(FaultPoint::NetReply,     "c1",    ("network", "c1"), ""),
    Row(FaultPoint::NetReply,     "meta0", ("network", "meta0"), ""),
    Row(FaultPoint::NetRequest,   "meta0", ("network", "meta0"), ""),
    Row(FaultPoint::NetRequest,   "meta1", ("network", "meta1"), ""),
    Row(FaultPoint::NetRequest,   "data0", ("network", "data0"), ""),
    Row(FaultPoint::NetRequest,   "data2", ("network", "data2"), ""),
    Row(FaultPoint::ServerQueue,  "meta0", ("server_queue", "meta0"), ""),
    Row(FaultPoint::ServerQueue,  "data1", ("server_queue", "data1"), ""),
    Row(FaultPoint::ServerCpu,    "meta1", ("cpu", "meta1"), ""),
    Row(FaultPoint::ServerCpu,    "data2", ("cpu", "data2"), ""),
    Row(FaultPoint::TxLock,       "meta0", ("lock", "meta0"), ""),
    Row(FaultPoint::TxPrepare,    "meta1", ("cpu", "meta1"), "meta.prepare"),
    Row(FaultPoint::JournalWrite, "meta0", ("journal", "meta0"), "while the journal was written"),
    Row(FaultPoint::JournalFlush, "meta1", ("journal", "meta1"), "while the journal was flushed"),
    Row(FaultPoint::JournalWrite, "data1", ("journal", "data1"), "while the journal was written"),
    Row(FaultPoint::DataRead,     "data0", ("disk", "data0"), "disk.read"),
    Row(FaultPoint::DataWrite,    "data1", ("disk", "data1"), "disk.write"),
    Row(FaultPoint::DataFlush,    "data2", ("journal", "data2"), "while data was flushed"),
    Row(FaultPoint::DataTruncate, "data1", ("cpu", "data1"), "data.truncate"),
];

/// Two clients work on two metadata and three data servers that promise stable storage, one of all these with a delay.
fn explained(seed: u64, delay: Option<(FaultPoint, &str)>) -> Explanation {
    let mut profile = Profile::ethernet_10g();
    (profile.net.jitter_ns, profile.disk.jitter_ns) = (5_000, 5_000);
    let sim = Sim::new(seed, profile);
    let config = ClusterConfig { meta: 2, data: 3, durability: Durability::Sync, ..ClusterConfig::small() };
    let cluster = Cluster::start(&sim, &config);
    let clients: Vec<(NodeId, Client<SimRt>)> = ["c0", "c1"].into_iter().map(|name| cluster.add_client(name, 60 * SECOND)).collect();
    // Servers make their file system, and clients connect and make directories, before anything is recorded.
    let mut places = Vec::new();
    for (number, (node, client)) in clients.iter().enumerate() {
        let client = client.clone();
        let made = sim.block_on(*node, 60 * SECOND, move |_| async move { two_directories(&client, number).await });
        places.push(made.expect("servers answer"));
    }
    if let Some((point, node)) = delay {
        let node = sim.nodes().into_iter().find(|other| sim.name(*other) == node).expect("a node of the cluster");
        sim.delay(node, point, DELAY_NS);
    }
    sim.start_tracing(Mask::ALL, 1 << 14);
    let flows =
        clients.into_iter().zip(places).map(|((node, client), dirs)| sim.spawn_on(node, move |_| async move { work(&client, dirs).await }));
    let flows: Rc<Vec<_>> = Rc::new(flows.collect());
    sim.run_until_true(sim.now() + 600 * SECOND, || flows.iter().all(|flow| flow.is_over())).expect("the work ends");
    assert!(flows.iter().all(|flow| flow.take().is_some()), "no client has died");
    let merged = merge(sim.take_trace_files().iter().map(|(_, bytes)| TraceFile::read(bytes).expect("just written")).collect());
    assert_eq!(merged.causality_violations, 0);
    Analysis::new(&merged).explain(4)
}

/// A directory of this client on each metadata server.
async fn two_directories(client: &Client<SimRt>, number: usize) -> [Handle; 2] {
    let mut found = [None; 2];
    for name in 0.. {
        let name = format!("d{number}.{name}");
        let dir = client.mkdir(&Credentials::ROOT, ROOT_HANDLE, name.as_bytes(), 0o755).await.expect("a new directory").handle;
        found[usize::from(dir.server().0)] = Some(dir);
        if let [Some(first), Some(second)] = found {
            assert!(client.ping_all().await.iter().all(|(_, answer)| answer.is_ok()));
            return [first, second];
        }
    }
    unreachable!("a server whom no directory falls to")
}

/// Everything that programs do: files are made in both directories in turn, written, read, cut, moved to the other one and removed.
async fn work(client: &Client<SimRt>, dirs: [Handle; 2]) {
    let (who, data) = (&Credentials::ROOT, vec![7; BYTES]);
    for file in 0..FILES {
        let (from, to) = (dirs[file % 2], dirs[(file + 1) % 2]);
        let name = format!("f{file}");
        let (attr, open, _) = client.create(who, from, name.as_bytes(), &CreateOptions::default()).await.expect("a new file");
        client.write(&open, 0, Bulk::Slices(vec![&data])).await.expect("there is room");
        client.fsync(&open, false).await.expect("disks work");
        let read = client.read(&open, 0, BYTES as u64).await.expect("it was written");
        assert_eq!(read.iter().map(|piece| piece.len()).sum::<u64>(), BYTES as u64);
        let cut = SetAttr { size: Some(100), ..SetAttr::default() };
        client.setattr(who, attr.handle, &cut).await.expect("it can be cut");
        client.close(open).await.expect("it is open");
        client.lookup(who, from, name.as_bytes()).await.expect("it is there");
        client.rename(who, from, name.as_bytes(), to, name.as_bytes(), RenameFlags::default()).await.expect("it can be moved");
        client.unlink(who, to, name.as_bytes()).await.expect("it is there");
    }
}

#[test]
fn a_delay_in_any_place_is_named_first() {
    let mut wrong = Vec::new();
    for seed in [7, 8, 9] {
        for Row(point, node, expected, words) in PLACES {
            let explanation = explained(seed, Some((*point, node)));
            let first = &explanation.suspects[0];
            // Where a disk has to seek to is not the point.
            let stage = if first.stage.starts_with("disk") { "disk" } else { first.stage };
            let named = (stage, first.place.as_str());
            if named != *expected || !first.evidence.contains(words) || explanation.covered < 0.95 || !explanation.missing.is_empty() {
                let list: Vec<_> = explanation
                    .suspects
                    .iter()
                    .map(|suspect| format!("\n    {:.4} + {:.4} {}", suspect.seconds, suspect.excess_seconds, suspect.evidence))
                    .collect();
                wrong.push(format!(
                    "seed {seed}, {} at {node}: covered {:.3}, {:?}{}",
                    point.name(),
                    explanation.covered,
                    explanation.missing,
                    list.concat()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), 3 * PLACES.len(), wrong.join("\n"));
}

#[test]
fn without_a_delay_nothing_is_slow() {
    let explanation = explained(7, None);
    assert!(explanation.suspects.iter().all(|suspect| suspect.p99_us < 1_000.0), "{:#?}", explanation.suspects);
}

/// The table of `docs/trace.md`, with what is said now: `cargo test -p weft-sim-tests --test delays -- --ignored --nocapture`
#[test]
#[ignore = "prints what explain says, for people"]
fn what_is_said_about_each_place() {
    for Row(point, node, _, _) in PLACES {
        println!("{} at {node}: {}", point.name(), explained(7, Some((*point, node))).suspects[0].evidence);
    }
}
