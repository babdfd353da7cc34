//! Work by the layer below gateways: what a mount or a library saves by leases, by directories that
//! are its own, and by what it sends later.

use weft_virtual_cluster::{ClusterShape, PhaseReport, VirtualError, run};
use weft_workload::{Dirs, Protocol, Steps, WorkStep, Workload};

const FILES: u64 = 2000;

fn files(protocol: Protocol, size: u64, procs: u32) -> Vec<PhaseReport> {
    let shape = ClusterShape { data: 2, ..ClusterShape::default() };
    let steps = Steps::each(&[WorkStep::Create, WorkStep::Stat, WorkStep::Readdir, WorkStep::Remove]);
    let work = Workload { protocol, procs, size, dirs: Dirs::Own, attrs: true, steps, ..Workload::empty_files(FILES) };
    let phases = run(&shape, &work).expect("nothing fails here");
    assert!(phases.iter().all(|phase| phase.operations == FILES * u64::from(procs)), "every file is made, looked at, listed and removed");
    phases
}

#[test]
fn files_of_an_own_directory_share_messages() {
    for (size, procs) in [(0, 1), (0, 4), (3901, 1)] {
        let phases = files(Protocol::Posix, size, procs);
        let messages: Vec<f64> = phases.iter().map(|phase| phase.messages as f64 / phase.operations as f64).collect();
        let most = if size == 0 { 0.1 } else { 0.4 };
        assert!(messages.iter().all(|messages| *messages < most), "{size} bytes, {procs} processes: {messages:?}");
        assert!(messages[1] < 0.05, "nobody changes what is looked at: {messages:?}");
    }
}

#[test]
fn many_flows_of_one_client_share_messages() {
    let shape = ClusterShape::default();
    for depth in [2, 64] {
        let steps = Steps::each(&[WorkStep::Create]);
        let work = Workload { protocol: Protocol::Posix, depth, dirs: Dirs::Own, steps, ..Workload::empty_files(FILES) };
        let phases = run(&shape, &work).expect("nothing fails here");
        let messages = phases[0].messages as f64 / phases[0].operations as f64;
        assert!(messages < 0.2, "{depth} flows: {messages} messages for a file");
    }
}

#[test]
fn what_is_done_without_asking_takes_time() {
    let rates = |protocol| files(protocol, 0, 1).iter().map(PhaseReport::operations_per_s).collect::<Vec<_>>();
    let (asking, alone) = (rates(Protocol::Weft), rates(Protocol::Posix));
    assert!(alone[0] > 3.0 * asking[0], "creates: {alone:?}, {asking:?}");
    // A change is at least a record, which the processor of the usual profile does in a
    // microsecond.
    assert!(alone[0] < 1e6 && alone[3] < 1e6, "{alone:?}");
}

#[test]
fn a_step_ends_when_servers_have_heard_of_all() {
    // So few that none would be told of while the step runs.
    let shape = ClusterShape::default();
    let work = Workload { protocol: Protocol::Posix, steps: Steps::each(&[WorkStep::Create]), ..Workload::empty_files(5) };
    let phases = run(&shape, &work).expect("nothing fails here");
    assert!(phases[0].messages >= 2, "one that asks, and one that tells: {phases:?}");
    assert!(phases[0].disk.writes > 0, "{phases:?}");
}

#[test]
fn files_are_written_and_read_by_the_layer() {
    let run = |protocol, per_call| {
        let steps = Steps::each(&[WorkStep::Write, WorkStep::Read]);
        let work = Workload { protocol, block: 64 << 10, per_call, size: 8 << 20, steps, ..Workload::stream() };
        let phases = run(&ClusterShape::default(), &work).expect("nothing fails here");
        phases.iter().map(|phase| (phase.name, phase.bytes, phase.messages)).collect::<Vec<_>>()
    };
    let (asking, layered) = (run(Protocol::Weft, 1), run(Protocol::Posix, 1));
    for ((one, bytes, messages), (other, same, fewer)) in asking.iter().zip(&layered) {
        assert_eq!((one, bytes), (other, same));
        assert!(fewer < messages, "{one}: pieces of 64 KiB are sent and fetched together: {fewer} of {messages} messages");
    }
    assert_eq!(run(Protocol::Posix, 4).len(), 2, "lists of blocks");
}

#[test]
fn strips_are_for_the_library() {
    let strips = weft_layout::Strips::parse("strips:0:32K;1:64K").expect("two strips");
    let shape = ClusterShape { data: 2, strips: Some(strips.into()), ..ClusterShape::default() };
    let work = Workload { protocol: Protocol::Posix, steps: Steps::each(&[WorkStep::Write]), ..Workload::stream() };
    let error = run(&shape, &work).expect_err("the layer takes hints");
    assert!(matches!(&error, VirtualError::Invalid(why) if why.contains("set hints")), "{error}");
}
