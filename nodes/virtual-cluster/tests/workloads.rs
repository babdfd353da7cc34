//! Whole workloads on whole clusters: what must be true on any hardware, and against closed forms
//! where there are some.

use weft_rt_sim::Profile;
use weft_trace::explain::Analysis;
use weft_trace::file::TraceFile;
use weft_trace::merge::merge;
use weft_virtual_cluster::{ClusterShape, Directories, Durability, Engine, FileLayout, TracedRun, VirtualError, Workload, run, run_traced};

fn names(files: u64, window: usize, directories: Directories) -> Workload {
    Workload::Names { files, window, directories }
}

fn interleaved(bytes: u64, block_bytes: u64, blocks_per_call: u64) -> Workload {
    Workload::Streams { bytes, block_bytes, layout: FileLayout::Interleaved, blocks_per_call, window: 1 }
}

#[test]
fn one_request_for_each_name_and_the_same_result_twice() {
    let shape = ClusterShape { clients: 3, meta: 2, data: 2, ..ClusterShape::default() };
    for directories in [Directories::Shared, Directories::Own] {
        let phases = run(&shape, &names(50, 8, directories)).unwrap();
        assert_eq!(phases.iter().map(|phase| phase.name).collect::<Vec<_>>(), ["create", "stat", "remove"]);
        for phase in &phases {
            assert_eq!((phase.operations, phase.messages), (150, 150), "{}", phase.name);
        }
        assert_eq!(phases, run(&shape, &names(50, 8, directories)).unwrap());
    }
}

#[test]
fn a_synchronous_client_waits_for_the_network_and_a_window_for_the_server() {
    let shape = ClusterShape { storage: Engine::Memory, ..ClusterShape::default() };
    let (net, cpu) = (&shape.profile.net, &shape.profile.cpu);
    // There and back, and the server's work between: cards, latency twice, one request and some
    // records.
    let round_trip = 2 * (net.send_ns + net.latency_ns) + cpu.request_ns + cpu.record_ns;
    let alone = &run(&shape, &names(200, 1, Directories::Shared)).unwrap()[1];
    let ratio = alone.ns as f64 / (200 * round_trip) as f64;
    assert!((0.9..1.3).contains(&ratio), "a stat takes {ratio} of its round trip");
    assert_eq!(alone.bottleneck(), None, "{:?}", alone.shares);
    // A request costs client and server the same here, so it takes several clients to fill the
    // server.
    let many = &run(&ClusterShape { clients: 4, ..shape }, &names(500, 64, Directories::Shared)).unwrap()[1];
    assert!(many.operations_per_s() > 2.0 * alone.operations_per_s(), "a window hides latency");
    assert_eq!(many.bottleneck().map(|share| share.part), Some("processor of metadata servers"), "{:?}", many.shares);
}

#[test]
fn streams_are_as_fast_as_the_slowest_part() {
    // Fast disks and processors: the card of the one client is the limit.
    let shape = ClusterShape { data: 4, storage: Engine::Memory, ..ClusterShape::default() };
    let work = Workload::Streams { bytes: 256 << 20, block_bytes: 4 << 20, layout: FileLayout::Own, blocks_per_call: 1, window: 4 };
    let phases = run(&shape, &work).unwrap();
    for phase in &phases {
        let card = shape.profile.net.bytes_per_s as f64 / f64::from(1 << 20);
        let ratio = phase.mib_per_s() / card;
        assert!((0.8..1.0).contains(&ratio), "{}: {ratio} of the card; {:?}", phase.name, phase.shares);
        assert!(phase.bottleneck().unwrap().part.starts_with("network card of clients"), "{:?}", phase.shares);
    }
}

#[test]
fn on_rotating_disks_list_operations_save_accesses() {
    let shape = ClusterShape {
        profile: Profile::pvs_2009(),
        clients: 10,
        data: 10,
        stripe_bytes: 64 << 10,
        contract: Durability::Batch,
        ..ClusterShape::default()
    };
    let single = run(&shape, &interleaved(1 << 20, 5 << 10, 1)).unwrap();
    let all = run(&shape, &interleaved(1 << 20, 5 << 10, 0)).unwrap();
    for (single, all) in single.iter().zip(&all) {
        assert_eq!(single.bytes, all.bytes);
        assert!(all.ns < single.ns, "{}: {} ns with lists, {} ns without", all.name, all.ns, single.ns);
        assert!(all.messages < single.messages / 10);
    }
    let read = &all[1];
    assert!(read.disk.sequential + read.disk.near + read.disk.far > 0);
}

#[test]
fn nonsense_is_refused_with_the_reason() {
    let invalid = |shape: ClusterShape, work: Workload| match run(&shape, &work) {
        Err(VirtualError::Invalid(why)) => why,
        other => panic!("{other:?}"),
    };
    let shape = ClusterShape::default;
    assert!(invalid(ClusterShape { meta: 0, ..shape() }, names(1, 1, Directories::Own)).contains("metadata server"));
    assert!(invalid(ClusterShape { clients: 0, ..shape() }, names(1, 1, Directories::Own)).contains("client"));
    assert!(invalid(ClusterShape { stripe_bytes: 5000, ..shape() }, names(1, 1, Directories::Own)).contains("5000"));
    assert!(invalid(ClusterShape { stripe_width: 9, ..shape() }, names(1, 1, Directories::Own)).contains("9 of 4"));
    assert!(invalid(shape(), names(0, 1, Directories::Own)).contains("files"));
    assert!(invalid(shape(), interleaved(0, 1, 1)).contains("bytes"));
}

#[test]
fn a_record_of_everything_changes_nothing() {
    let shape = ClusterShape { clients: 2, data: 3, ..ClusterShape::default() };
    // Longer than the rings are, for the one metadata server.
    for work in [names(3000, 32, Directories::Shared), interleaved(1 << 20, 16 << 10, 2)] {
        let TracedRun { phases, files } = run_traced(&shape, &work).unwrap();
        assert_eq!(phases, run(&shape, &work).unwrap());
        let merged = merge(files.iter().map(|(_, bytes)| TraceFile::read(bytes).unwrap()).collect());
        assert!(merged.nodes.iter().all(|node| node.problems.is_empty()) && merged.causality_violations() == 0);
        assert_eq!(files.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>()[0], "meta0");
        let explained = Analysis::new(&merged).explain(1);
        let of = |name: &str| explained.kinds.iter().find(|kind| kind.operation == name).map_or(0, |kind| kind.count);
        let (first, last) = if let Workload::Names { .. } = work { ("create", "unlink") } else { ("write", "read") };
        assert_eq!(
            (of(&format!("client.{first}")) as u64, of(&format!("client.{last}")) as u64),
            (phases[0].operations, phases[0].operations)
        );
        assert!(explained.covered >= 0.95, "{}", explained.covered);
    }
}
