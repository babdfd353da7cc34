//! Whole workloads on whole clusters: what must be true on any hardware, and against closed forms
//! where there are some.

use weft_rt_sim::Profile;
use weft_rt_sim::models::{DiskProfile, NetProfile, ProcessProfile, SeekProfile};
use weft_trace::explain::Analysis;
use weft_trace::file::TraceFile;
use weft_trace::merge::merge;
use weft_virtual_cluster::{ClusterShape, Durability, Engine, TracedRun, VirtualError, run, run_traced};
use weft_workload::{Dirs, Sharing, Steps, WorkStep, Workload};

fn names(procs: u32, files: u64, depth: u32, dirs: Dirs) -> Workload {
    let steps = Steps::each(&[WorkStep::Create, WorkStep::Stat, WorkStep::Remove]);
    Workload { procs, depth, dirs, steps, ..Workload::empty_files(files) }
}

fn stream(procs: u32, size: u64, block: u64) -> Workload {
    let steps = Steps::each(&[WorkStep::Write, WorkStep::Read]);
    Workload { procs, size, block, fsync: true, steps, ..Workload::stream() }
}

fn interleaved(procs: u32, size: u64, block: u64, per_call: u64) -> Workload {
    Workload { per_call, sharing: Sharing::Interleaved, ..stream(procs, size, block) }
}

#[test]
fn one_request_for_each_change_and_the_same_result_twice() {
    let shape = ClusterShape { meta: 2, data: 2, ..ClusterShape::default() };
    for dirs in [Dirs::Shared, Dirs::Own] {
        let phases = run(&shape, &names(3, 50, 8, dirs)).unwrap();
        assert_eq!(phases.iter().map(|phase| phase.name).collect::<Vec<_>>(), ["create", "stat", "remove"]);
        // A look at 50 files with 8 in flight is 7 lists of handles, each to a server or two.
        for phase in &phases {
            let messages = if phase.name == "stat" { 3 * 7..=3 * 7 * 2 } else { 150..=150 };
            assert!(phase.operations == 150 && messages.contains(&phase.messages), "{phase:?}");
        }
        assert_eq!(phases, run(&shape, &names(3, 50, 8, dirs)).unwrap());
    }
}

#[test]
fn a_synchronous_client_waits_for_the_network_and_a_window_for_the_server() {
    let shape = ClusterShape { storage: Engine::Memory, ..ClusterShape::default() };
    let (net, cpu) = (&shape.profile.net, &shape.profile.cpu);
    // There and back, and the server's work between: cards, latency twice, one request and some
    // records.
    let round_trip = 2 * (net.send_ns + net.latency_ns) + cpu.request_ns + cpu.record_ns;
    let alone = &run(&shape, &names(1, 200, 1, Dirs::Shared)).unwrap()[1];
    let ratio = alone.ns as f64 / (200 * round_trip) as f64;
    assert!((0.9..1.3).contains(&ratio), "a stat takes {ratio} of its round trip");
    assert_eq!(alone.bottleneck(), None, "{:?}", alone.shares);
    // A request costs client and server the same here, so it takes several clients to fill the
    // server.
    let many = &run(&shape, &names(4, 500, 64, Dirs::Shared)).unwrap()[1];
    assert!(many.operations_per_s() > 2.0 * alone.operations_per_s(), "a window hides latency");
    assert_eq!(many.bottleneck().map(|share| share.part), Some("processor of metadata servers"), "{:?}", many.shares);
}

#[test]
fn messages_that_take_longer_than_anybody_waits_are_told() {
    let mut shape = ClusterShape::default();
    shape.profile.net.latency_ns = 2_000_000_000;
    let Err(VirtualError::Stuck(why)) = run(&shape, &names(1, 1, 1, Dirs::Shared)) else { panic!("nobody is answered in time") };
    assert!(why.contains("messages take too long"), "{why}");
}

#[test]
fn streams_are_as_fast_as_the_slowest_part() {
    // Fast disks and processors: the card of the one client is the limit.
    let shape = ClusterShape { data: 4, storage: Engine::Memory, ..ClusterShape::default() };
    let work = Workload { depth: 4, ..stream(1, 256 << 20, 4 << 20) };
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
    let usual = Profile::ethernet_10g();
    let disk = DiskProfile {
        reads_cached: false,
        read_ns: 0,
        sync_ns: 0,
        read_bytes_per_s: 50 << 20,
        write_bytes_per_s: 50 << 20,
        seek: Some(SeekProfile { near_ns: 5_166_666, far_ns: 14_166_666, near_bytes: 5 << 20 }),
        ..usual.disk
    };
    let net = NetProfile { bytes_per_s: 100 << 20, send_ns: 5_000, latency_ns: 400_000, ..usual.net };
    let shape = ClusterShape {
        profile: Profile { net, disk, ..usual },
        data: 10,
        stripe_bytes: 64 << 10,
        contracts: Durability::Batch.into(),
        ..ClusterShape::default()
    };
    let single = run(&shape, &interleaved(10, 1 << 20, 5 << 10, 1)).unwrap();
    let all = run(&shape, &interleaved(10, 1 << 20, 5 << 10, 0)).unwrap();
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
    assert!(invalid(ClusterShape { meta: 0, ..shape() }, names(1, 1, 1, Dirs::Own)).contains("metadata server"));
    assert!(invalid(shape(), names(0, 1, 1, Dirs::Own)).contains("client"));
    assert!(invalid(ClusterShape { stripe_bytes: 5000, ..shape() }, names(1, 1, 1, Dirs::Own)).contains("5000"));
    assert!(invalid(ClusterShape { stripe_width: 9, ..shape() }, names(1, 1, 1, Dirs::Own)).contains("9 of 4"));
    assert!(invalid(shape(), names(1, 0, 1, Dirs::Own)).contains("files"));
    assert!(invalid(shape(), interleaved(1, 0, 1, 1)).contains("bytes"));
}

#[test]
fn a_record_of_everything_changes_nothing() {
    let shape = ClusterShape { data: 3, ..ClusterShape::default() };
    // Longer than the rings are, for the one metadata server.
    for work in [names(2, 3000, 32, Dirs::Shared), interleaved(2, 1 << 20, 16 << 10, 2)] {
        let TracedRun { phases, files } = run_traced(&shape, &work).unwrap();
        assert_eq!(phases, run(&shape, &work).unwrap());
        let merged = merge(files.iter().map(|(_, bytes)| TraceFile::read(bytes).unwrap()).collect());
        assert!(merged.nodes.iter().all(|node| node.problems.is_empty()) && merged.causality_violations() == 0);
        assert_eq!(files.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>()[0], "meta0");
        let explained = Analysis::new(&merged).explain(1);
        let of = |name: &str| explained.kinds.iter().find(|kind| kind.operation == name).map_or(0, |kind| kind.count);
        let (first, last) = if work.size == 0 { ("create", "unlink") } else { ("write", "read") };
        assert_eq!(
            (of(&format!("client.{first}")) as u64, of(&format!("client.{last}")) as u64),
            (phases[0].operations, phases[0].operations)
        );
        assert!(explained.covered >= 0.95, "{}", explained.covered);
    }
}

#[test]
fn files_read_together_cost_few_messages() {
    let shape = ClusterShape { meta: 2, data: 4, ..ClusterShape::default() };
    let read = |per_call: u64, dirs| {
        let steps = Steps::of(WorkStep::ReadMany);
        let work = Workload { steps, size: 3901, per_call, procs: 2, dirs, ..Workload::empty_files(512) };
        run(&shape, &work).expect("nothing fails here").remove(0)
    };
    let [one, some, many] = [1, 16, 256].map(|per_call| read(per_call, Dirs::Own));
    for phase in [&one, &some, &many] {
        assert_eq!((phase.operations, phase.bytes), (1024, 1024 * 3901));
    }
    assert_eq!((one.messages, many.messages), (2 * 1024, 4 * 5), "a question and a read each; one message to each server");
    assert!(some.messages <= 64 * 5);
    assert!(many.ns < some.ns && some.ns < one.ns);
    assert_eq!(read(256, Dirs::Shared).messages, many.messages);
}

/// A machine whose processes pay for messages and sleep.
fn shared(cores: usize, wake_ns: u64) -> ClusterShape {
    let process = ProcessProfile {
        send_ns: 700,
        receive_ns: 700,
        wake_ns,
        waker_ns: 1_000,
        woken_ns: 1_000,
        client_request_ns: 1_000,
        untold_change_ns: 1_000,
        untold_removal_ns: 800,
        told_record_ns: 300,
        known_record_ns: 200,
        copy_bytes_per_s: 8_000_000_000,
    };
    let mut profile = Profile { process: Some(process), ..Profile::default() };
    profile.net.loopback_ns = 0;
    ClusterShape { profile, data: 1, shared_cores: Some(cores), storage: Engine::Memory, ..ClusterShape::default() }
}

#[test]
fn servers_and_clients_on_one_machine_share_its_cores() {
    let rate = |shape: &ClusterShape, procs, depth| {
        let work = Workload { steps: Steps::of(WorkStep::Create), ..names(procs, 512 / u64::from(procs), depth, Dirs::Own) };
        let create = &run(shape, &work).unwrap()[0];
        assert_eq!((create.operations, create.messages), (512, 512));
        let busy = (create.client_cpu_ns + create.server_cpu_ns) as f64 / (create.ns as f64 * shape.shared_cores.unwrap() as f64);
        let told = create.shares.iter().find(|share| share.part == "processors of the machine").unwrap().busiest;
        // One core may still be sending when the last client is done.
        assert!((busy - told).abs() < 0.01 && told < 1.01, "{busy} and {told}");
        create.operations_per_s()
    };
    let two = shared(2, 6_000);
    let [alone, with_window] = [1, 64].map(|depth| rate(&two, 1, depth));
    assert!(with_window > 3.0 * alone, "a window shares wake-ups: {alone} and {with_window}");
    let [slower, same] = [1, 64].map(|depth| rate(&shared(2, 60_000), 1, depth));
    assert!(slower < 0.3 * alone && same > 0.5 * with_window, "who never sleeps is not woken: {slower} and {same}");
    let [crowded, roomy] = [1, 4].map(|cores| rate(&shared(cores, 6_000), 8, 1));
    assert!(roomy > 1.2 * crowded, "eight clients need more than one core: {crowded} and {roomy}");
}
