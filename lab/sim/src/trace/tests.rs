use weft_piosim::program::WORLD;
use weft_piosim::workloads::{Manner, Transfer};
use weft_piosim::{Application, ClusterConfig, Report, Simulation};
use weft_sched::LayerKind;
use weft_trace::explain::{Analysis, Explanation};
use weft_trace::file::TraceFile;
use weft_trace::merge::merge;
use weft_workload::{Sharing, Workload};

use super::*;
use crate::workload::Places;

#[test]
fn files_hold_every_command_every_access_with_its_seek_and_every_byte() {
    let application =
        Transfer { work: &Workload { per_call: 4, ..Workload::sharing(Sharing::Interleaved, 2, 4 << 20, 64 << 10) }, writes: true }
            .individual(Manner::default());
    let config = ClusterConfig::thesis(2, 3, LayerKind::Aggregation);
    let (report, recording) = Simulation::new(&config, &application).expect("sound").run_recorded().expect("ends");
    let commands: usize = application.programs.iter().map(|program| program.commands.len()).sum();
    let workloads = [Load { nodes: vec![0, 1], application, places: Places::default() }];
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), &workloads, 3, &recording).expect("written");
    let names = ["client0", "client1", "server0", "server1", "server2"];
    let read = |name: &str| TraceFile::read(&std::fs::read(dir.path().join(format!("{name}.wtrace"))).expect("is there")).expect("sound");
    let merged = merge(names.map(read).to_vec());
    assert!(merged.nodes.iter().all(|node| node.problems.is_empty()));
    let of = |layer: usize| merged.events.iter().filter(move |event| event.record.event.layer() == layer);
    assert_eq!(of(0).count(), commands);
    // Calls of a file name it, as their requests do.
    let named = |event: &weft_trace::events::Event| matches!(&event.record.body, Body::Span(span) if span.obj == 1);
    assert!(of(0).all(|event| named(&event)) && of(0).count() > 4, "all commands of this program are about its file");
    assert_eq!(weft_trace::names::Names::new(&merged).get(1), Some(workloads[0].application.files[0].name.as_str()));
    let disks = report.disks();
    let accesses = || of(7).filter(|event| event.record.flags & flags::SHARED == 0);
    let classes: Vec<u64> = (1..=3).map(|class| accesses().filter(|event| event.record.class == class).count() as u64).collect();
    assert_eq!(classes, [disks.no_seek, disks.fast, disks.slow]);
    let moved = |id: EventId| -> u64 {
        let spans = merged.events.iter().filter(|event| event.record.event == id);
        spans.map(|event| if let Body::Span(span) = &event.record.body { u64::from(span.len) } else { 0 }).sum()
    };
    assert_eq!((moved(event::NET_RECEIVE), moved(event::NET_SEND)), (report.network_bytes, report.network_bytes));
    assert_eq!(merged.events.iter().map(|event| event.end_ns()).max(), Some(report.end_nanos as i64));
}

/// The report on a run, written and read again.
fn explained(config: &ClusterConfig, application: Application) -> (Report, Explanation) {
    let (report, recording) = Simulation::new(config, &application).expect("sound").run_recorded().expect("ends");
    let nodes = (0..application.ranks()).map(|rank| rank % config.clients).collect();
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), &[Load { nodes, application, places: Places::default() }], config.servers, &recording).expect("written");
    let files = std::fs::read_dir(dir.path()).expect("is there").map(|entry| entry.expect("is there").path());
    let files: Vec<_> = files.map(|path| TraceFile::read(&std::fs::read(path).expect("is there")).expect("sound")).collect();
    let merged = merge(files);
    let explanation = Analysis::new(&merged).explain(5);
    (report, explanation)
}

/// Seconds of the kinds of operations whose names begin so, in these stages.
fn seconds(explanation: &Explanation, kind: &str, stages: &[Stage]) -> f64 {
    let kinds = explanation.kinds.iter().filter(|report| report.operation.starts_with(kind));
    let all = kinds.flat_map(|report| &report.stages);
    all.filter(|report| stages.iter().any(|stage| stage.name() == report.stage)).map(|report| report.seconds).sum()
}

/// All clients do the same: their messages are compared with those of the others, and none is
/// said to be beyond comparison.
fn alike(explanation: &Explanation) {
    let messages = explanation.suspects.iter().filter(|suspect| suspect.stage == "network");
    for suspect in messages {
        assert!(suspect.excess_seconds < 0.7 * suspect.seconds, "{suspect:#?}");
        assert!(!suspect.evidence.contains("nothing like it"), "{suspect:#?}");
    }
}

const DISKS: [Stage; 3] = [Stage::DiskNoSeek, Stage::DiskNear, Stage::DiskFar];

#[test]
fn the_disk_of_one_that_reads_alone_is_all_that_its_reads_wait_for_beside_the_network() {
    let application = || {
        Transfer { work: &Workload { per_call: 1, ..Workload::sharing(Sharing::Interleaved, 1, 4 << 20, 64 << 10) }, writes: false }
            .individual(Manner::default())
    };
    let config = ClusterConfig::thesis(1, 1, LayerKind::None);
    let (report, explanation) = explained(&config, application());
    let (disk, all) = (seconds(&explanation, "app.read", &DISKS), seconds(&explanation, "app.read", &Stage::ALL));
    let busy = report.disks().busy_nanos as f64 / 1e9;
    assert!((disk - busy).abs() < busy * 1e-3, "{disk} s of disk in the reads, it was busy for {busy} s");
    let rest = seconds(&explanation, "app.read", &[Stage::Network, Stage::SendQueue, Stage::Client]);
    assert!((all - disk - rest).abs() < all * 1e-3, "{all} = {disk} + {rest}: nobody else is there to wait for");
    assert!(explanation.covered > 0.999, "{}", explanation.covered);
}

#[test]
fn a_collective_read_waits_for_the_disks_that_are_busy_meanwhile() {
    let application = Transfer { work: &Workload::sharing(Sharing::Interleaved, 4, 64 << 20, 64 << 10), writes: false }.collective();
    let config = ClusterConfig::thesis(4, 3, LayerKind::None);
    let (report, explanation) = explained(&config, application);
    let all = seconds(&explanation, "app.read_all", &Stage::ALL);
    let at_servers = [&DISKS[..], &[Stage::ServerQueue]].concat();
    let served = seconds(&explanation, "app.read_all", &at_servers) / all;
    let busy = report.disks().busy_nanos as f64 / 3.0 / report.end_nanos as f64;
    assert!(served > busy * 0.7, "{served:.2} of the time is at servers whose disks are busy for {busy:.2} of it: {explanation:#?}");
    let waits = seconds(&explanation, "app.read_all", &[Stage::Network]) / all;
    assert!(waits < 0.6 && explanation.covered > 0.999, "{waits:.2} of the time is network: {:#?}", explanation.kinds);
    let named = explanation.suspects.iter().any(|suspect| suspect.stage.starts_with("disk_") && suspect.blocking_seconds > 0.1);
    assert!(named, "what others wait for at a server is its disk: {:#?}", explanation.suspects);
    alike(&explanation);
}

#[test]
fn a_write_is_explained_whether_the_server_has_room_or_not() {
    let application = || {
        Transfer { work: &Workload { per_call: 4, ..Workload::sharing(Sharing::Interleaved, 4, 32 << 20, 64 << 10) }, writes: true }
            .individual(Manner::default())
    };
    let roomy = ClusterConfig::thesis(4, 2, LayerKind::WriteBehind);
    let (_, with_room) = explained(&roomy, application());
    let mut narrow = roomy;
    narrow.server.memory_bytes = 1 << 20;
    let (_, without) = explained(&narrow, application());
    let queue = |of: &Explanation| seconds(of, "app.write", &[Stage::ServerQueue]) / seconds(of, "app.write", &Stage::ALL);
    let network = |of: &Explanation| seconds(of, "app.write", &[Stage::Network]) / seconds(of, "app.write", &Stage::ALL);
    assert!(queue(&with_room) < 0.05 && network(&with_room) > 0.5, "{:#?}", with_room.kinds);
    let disk = seconds(&without, "app.write", &DISKS) / seconds(&without, "app.write", &Stage::ALL);
    assert!(queue(&without) + disk > 0.5, "{:#?}", without.kinds);
    assert!(with_room.covered > 0.999 && without.covered > 0.999);
    alike(&with_room);
}

#[test]
fn a_message_is_known_where_it_was_sent_and_where_it_was_taken() {
    let mut application = Application::new("messages", 3);
    application.push(0, Command::Send { comm: WORLD, to: 1, tag: 0, bytes: 100, request: None });
    application.push(0, Command::Send { comm: WORLD, to: 1, tag: 1, bytes: 1 << 20, request: None });
    application.push(1, Command::Recv { comm: WORLD, from: Some(0), tag: 0, request: None });
    application.push(1, Command::Recv { comm: WORLD, from: None, tag: 1, request: None });
    (0..3).for_each(|rank| application.push(rank, Command::Bcast { comm: WORLD, root: 0, bytes: 50 }));
    let config = ClusterConfig::thesis(3, 1, LayerKind::None);
    let (_, recording) = Simulation::new(&config, &application).expect("sound").run_recorded().expect("ends");
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), &[Load { nodes: vec![0, 1, 2], application, places: Places::default() }], 1, &recording).expect("written");
    let read = |rank: u32| {
        let path = dir.path().join(format!("client{rank}.wtrace"));
        TraceFile::read(&std::fs::read(path).expect("is there")).expect("sound")
    };
    let merged = merge((0..3).map(read).collect());
    let of = |id: EventId| -> Vec<(u64, usize, i64, i64, Span)> {
        let events = merged.events.iter().filter(|event| event.record.event == id);
        let span = |body| if let Body::Span(span) = body { span } else { Span::default() };
        let mut all: Vec<_> =
            events.map(|event| (event.record.req, event.node, event.start_ns, event.end_ns(), span(event.record.body.clone()))).collect();
        all.sort_by_key(|message| message.0);
        all
    };
    let (sent, taken) = (of(messages::SENT), of(messages::TAKEN));
    // Two of the program, the larger of them after a question, and two of the broadcast.
    assert_eq!((sent.len(), taken.len()), (4, 4), "{sent:?}");
    for (left, came) in sent.iter().zip(&taken) {
        assert_eq!((left.0, left.4.off as usize, came.4.off as usize), (came.0, came.1, left.1));
        assert!(left.2 < left.3 && left.3 == came.2 && left.4.len == came.4.len);
    }
    let mut lengths: Vec<u32> = sent.iter().map(|message| message.4.len).collect();
    lengths.sort_unstable();
    // A broadcast has a head.
    assert_eq!((lengths[0] >= 50, lengths[0] == lengths[1], &lengths[2..]), (true, true, &[100, 1 << 20][..]));
}

#[test]
fn a_rank_that_comes_late_is_waited_for_and_no_network_is_blamed() {
    let mut application = Application::new("late", 2);
    application.push(0, Command::Compute { cycles: 10_000_000_000 });
    application.push(0, Command::Send { comm: WORLD, to: 1, tag: 0, bytes: 1 << 20, request: None });
    application.push(1, Command::Recv { comm: WORLD, from: Some(0), tag: 0, request: None });
    let (_, explanation) = explained(&ClusterConfig::thesis(2, 1, LayerKind::None), application);
    let received = |stage| seconds(&explanation, "app.recv", &[stage]);
    assert!(received(Stage::Peers) > 10.0 * received(Stage::Network), "{:#?}", explanation.kinds);
    // A MiB at 100 MiB/s.
    assert!(received(Stage::Network) > 0.01, "{:#?}", explanation.kinds);
}
