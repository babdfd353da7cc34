//! From call sites over rings into a file and back.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_trace::event::{self, served};
use weft_trace::file::{FileHeader, FileWriter, Recorded, TraceFile};
use weft_trace::record::{Body, TraceRecord, flags};
use weft_trace::{
    Anchor, Clock, Drain, EventKind, EventTable, Mask, Mode, Tracer, TracerConfig, operation, set_context, set_recorder, span, staged_span,
};
use weft_wire::Op;

/// A node in virtual time.
struct TracedNode {
    time: Arc<AtomicU64>,
    tracer: Tracer,
}

impl TracedNode {
    fn new(mode: Mode, records: usize) -> TracedNode {
        let time = Arc::new(AtomicU64::new(1_000));
        let config =
            TracerConfig { ring_records: records, flags: flags::SIMULATED, ..TracerConfig::new(mode, Clock::Virtual(time.clone())) };
        let tracer = Tracer::new(config);
        tracer.set_mask(Mask::ALL);
        set_recorder(tracer.recorder().map(Rc::new));
        TracedNode { time, tracer }
    }
    fn pass(&self, ns: u64) {
        self.time.fetch_add(ns, Ordering::Relaxed);
    }
    fn records(&self) -> Vec<TraceRecord> {
        let batches = Drain::new(&self.tracer).fetch();
        batches.iter().flat_map(|batch| &batch.records).map(|words| TraceRecord::from_words(words).expect("a known kind")).collect()
    }
}

impl Drop for TracedNode {
    fn drop(&mut self) {
        set_recorder(None);
    }
}

fn body(record: &TraceRecord) -> weft_trace::record::Span {
    match record.body {
        Body::Span(span) => span,
        _ => panic!("{record:?} is not a span"),
    }
}

#[test]
fn children_know_their_operation_and_are_written_first() {
    let node = TracedNode::new(Mode::Bench, 64);
    {
        let mut op = operation(event::CLIENT_CREATE);
        op.object(17);
        node.pass(10);
        {
            let mut call = span(event::NET_CALL);
            node.pass(32);
            call.request(0xABC).peer(3).waited();
            node.pass(100);
        }
        node.pass(5);
        op.result(0);
    }
    let records = node.records();
    let [call, op] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!((call.event, call.req, call.t0), (event::NET_CALL, 0xABC, 1_010));
    assert_eq!((body(call).dur, body(call).peer, body(call).wait), (132, 3, 2));
    assert_eq!((op.event, op.t0, body(op).dur, body(op).obj), (event::CLIENT_CREATE, 1_000, 147, 17));
    assert_eq!(body(call).parent, body(op).span);
    assert_eq!(body(op).parent, 0);
    assert!(records.iter().all(|record| record.flags & flags::SIMULATED != 0 && record.kind() == EventKind::Span));
}

#[test]
fn flows_of_one_thread_are_kept_apart_by_their_context() {
    let node = TracedNode::new(Mode::Bench, 64);
    let a = operation(event::CLIENT_READ);
    let flow_a = set_context(Default::default());
    let b = operation(event::CLIENT_WRITE);
    let flow_b = set_context(flow_a);
    drop(span(event::NET_CALL));
    set_context(flow_b);
    drop(span(event::NET_CALL));
    drop(b);
    set_context(flow_a);
    drop(a);
    let records = node.records();
    let [call_a, call_b, op_b, op_a] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!((body(call_a).parent, body(call_b).parent), (body(op_a).span, body(op_b).span));
    assert_ne!(op_a.lane, op_b.lane, "they overlap");
}

#[test]
fn flows_that_share_a_task_are_not_inside_one_another() {
    use std::future::Future;
    let node = TracedNode::new(Mode::Bench, 64);
    let flow = || {
        weft_trace::within(Default::default(), async {
            let _op = operation(event::CLIENT_CREATE);
            let mut is_second = false;
            std::future::poll_fn(|_| {
                if std::mem::replace(&mut is_second, true) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
            drop(span(event::NET_CALL));
        })
    };
    let mut flows = [Box::pin(flow()), Box::pin(flow())];
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(flows.iter_mut().all(|flow| flow.as_mut().poll(&mut context).is_pending()));
    assert!(flows.iter_mut().all(|flow| flow.as_mut().poll(&mut context).is_ready()));
    let records = node.records();
    let [call_a, op_a, call_b, op_b] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!((body(op_a).parent, body(op_b).parent), (0, 0));
    assert_eq!((body(call_a).parent, body(call_b).parent), (body(op_a).span, body(op_b).span));
    assert_ne!(op_a.lane, op_b.lane);
}

#[test]
fn lanes_are_used_again_and_operations_inside_operations_stay_on_theirs() {
    let node = TracedNode::new(Mode::Bench, 64);
    for _ in 0..3 {
        let _outer = operation(event::CLIENT_CLOSE);
        let _inner = operation(event::CLIENT_FSYNC);
    }
    let records = node.records();
    assert!(records.iter().all(|record| record.lane == 0), "{records:?}");
    assert_eq!(body(&records[0]).parent, body(&records[1]).span);
    assert_eq!(body(&records[1]).parent, 0);
}

#[test]
fn what_runs_is_seen_while_it_runs_with_the_request_that_it_waits_for() {
    let node = TracedNode::new(Mode::Flight, 64);
    let mut op = operation(event::CLIENT_READ);
    op.object(5);
    node.pass(500);
    let mut call = span(event::NET_CALL);
    call.request(77).peer(3);
    node.pass(100);
    let other = std::thread::scope(|scope| scope.spawn(|| node.tracer.in_flight_records()).join().expect("it reads"));
    let seen: Vec<_> = other.iter().map(|record| (record.event, record.t0, body(record).dur, record.flags & flags::OPEN)).collect();
    assert_eq!(seen, [(event::CLIENT_READ, 1_000, 600, flags::OPEN), (event::NET_CALL, 1_500, 100, flags::OPEN)]);
    assert_eq!((body(&other[0]).obj, other[1].req, body(&other[1]).peer, body(&other[1]).parent), (5, 77, 3, body(&other[0]).span));
    assert_eq!(node.tracer.stats().in_flight, 1, "one operation");
    drop(call);
    assert_eq!(node.tracer.in_flight_records().len(), 1);
    drop(op);
    assert_eq!((node.tracer.in_flight_records(), node.tracer.stats().in_flight), (vec![], 0));
}

#[test]
fn an_event_that_is_off_leaves_nothing_and_can_be_switched_while_running() {
    let node = TracedNode::new(Mode::Bench, 64);
    node.tracer.set_mask(Mask::parse("net.*", &EventTable::builtin()).expect("known"));
    {
        let op = operation(event::CLIENT_CREATE);
        assert!(!op.is_on());
        drop(span(event::NET_CALL));
        node.tracer.set_mask(Mask::NONE);
        drop(span(event::NET_CALL));
    }
    assert_eq!(node.records().len(), 1);
}

#[test]
fn phases_add_up_to_the_time_of_the_request() {
    let node = TracedNode::new(Mode::Bench, 64);
    {
        let mut request = staged_span(event::META_CREATE);
        request.request(9, 17, 2);
        for (phase, ns) in [(served::QUEUE, 100), (served::CPU, 33), (served::JOURNAL, 1_007), (served::SEND, 20), (served::CPU, 40)] {
            node.pass(ns);
            request.phase(phase, weft_trace::now());
        }
        request.result(13);
    }
    let records = node.records();
    let Body::StagedSpan(staged_span) = &records[0].body else { panic!("{records:?}") };
    assert_eq!((staged_span.code, staged_span.peer, records[0].req, records[0].res), (17, 2, 9, 13));
    assert_eq!(records[0].duration(), 1_200);
    assert_eq!(records[0].flags & (flags::SERVER | flags::ERROR), flags::SERVER | flags::ERROR);
}

#[test]
fn a_call_knows_when_its_request_was_given_to_the_socket() {
    let node = TracedNode::new(Mode::Bench, 64);
    // Of a request before that nobody recorded.
    weft_trace::note_way(500, 0);
    let waits = |sent: Option<u64>| {
        let mut call = span(event::NET_CALL);
        node.pass(800);
        if let Some(after) = sent {
            weft_trace::note_way(node.time.load(Ordering::Relaxed) - 800 + after, 0);
        }
        call.answered();
    };
    waits(None);
    waits(Some(320));
    waits(None);
    let records: Vec<_> = node.records().iter().map(|record| body(record).wait).collect();
    assert_eq!(records, [0, 320 / 16, 0]);
}

#[test]
fn a_reply_that_leaves_takes_its_staged_span_along() {
    let node = TracedNode::new(Mode::Bench, 64);
    assert!(weft_trace::take_leaving().is_none());
    for key in 1..=2 {
        let mut served = staged_span(event::META_CREATE);
        served.request(key, 17, 0);
        served.leave();
        assert_eq!(node.records().len(), key as usize - 1, "not complete before it was sent");
        if key == 1 {
            let leaving = weft_trace::take_leaving().expect("just left");
            node.pass(160);
            leaving.end_with(served::SEND, weft_trace::now());
            let records = node.records();
            let Body::StagedSpan(body) = records[0].body else { panic!("{records:?}") };
            assert_eq!((records[0].req, body.phases[served::SEND]), (1, 10));
        }
    }
    // Nobody has fetched the second one: it is written before another node runs.
    set_recorder(None);
    assert_eq!(node.records().iter().map(|record| record.req).collect::<Vec<_>>(), [1, 2]);
}

/// The request that ends a recording: its reply leaves when nothing is recorded any more, or only
/// by other nodes of the process (here: other tests).
#[test]
fn what_was_under_way_when_a_recording_ended_is_no_part_of_the_next_one() {
    let node = TracedNode::new(Mode::Bench, 64);
    let last = staged_span(event::META_OTHER);
    let slow = staged_span(event::META_CREATE);
    node.tracer.set_mask(Mask::NONE);
    last.leave();
    node.pass(80_000_000_000);
    let again = Tracer::new(node.tracer.config().clone());
    again.set_mask(Mask::ALL);
    set_recorder(again.recorder().map(Rc::new));
    assert!(weft_trace::take_leaving().is_none(), "the reply of the recording before was sent long ago");
    // A request that was parked all the time.
    drop(slow);
    node.pass(1_000);
    staged_span(event::request(Op::Lookup)).leave();
    drop(weft_trace::take_leaving().expect("just left"));
    let begin_of = |tracer: &Tracer| {
        let batches = Drain::new(tracer).fetch();
        let records = batches.iter().flat_map(|batch| &batch.records);
        records.map(|words| TraceRecord::from_words(words).expect("a known kind").t0).collect::<Vec<_>>()
    };
    assert_eq!((begin_of(&node.tracer), begin_of(&again)), (vec![], vec![80_000_002_000]));
}

#[test]
fn of_sampled_operations_all_or_nothing_is_kept() {
    let node = TracedNode::new(Mode::Bench, 1 << 12);
    node.tracer.set_sampling(3);
    for _ in 0..1_000 {
        let _op = operation(event::CLIENT_CREATE);
        drop(span(event::NET_CALL));
        let _inner = operation(event::CLIENT_FSYNC);
        drop(span(event::NET_CALL));
    }
    let records = node.records();
    let operations: Vec<u32> = records.iter().map(body).filter(|span| span.parent == 0).map(|span| span.span).collect();
    assert!((95..=155).contains(&operations.len()), "one of eight: {}", operations.len());
    assert_eq!(records.len(), 4 * operations.len());
}

#[test]
fn slow_operations_call_for_a_dump() {
    let node = TracedNode::new(Mode::Flight, 64);
    node.tracer.set_slow(1_000);
    let op = operation(event::CLIENT_READ);
    node.pass(900);
    drop(op);
    assert!(!node.tracer.take_dump_wanted());
    let op = operation(event::CLIENT_READ);
    node.pass(1_100);
    drop(op);
    assert!(node.tracer.take_dump_wanted());
    assert!(!node.tracer.take_dump_wanted());
}

#[test]
fn requests_that_are_slow_at_a_server_call_for_a_dump() {
    let node = TracedNode::new(Mode::Flight, 64);
    node.tracer.set_slow(1_000);
    for (ns, wanted) in [(900, false), (1_100, true)] {
        let mut served = staged_span(event::META_CREATE);
        node.pass(ns);
        served.phase(served::CPU, weft_trace::now());
        drop(served);
        assert_eq!(node.tracer.take_dump_wanted(), wanted, "{ns}");
    }
}

#[test]
fn trouble_calls_for_a_dump_only_if_somebody_looks_out_for_it() {
    let node = TracedNode::new(Mode::Flight, 64);
    weft_trace::note_error();
    assert!(!node.tracer.take_dump_wanted());
    node.tracer.set_dump_on_error(true);
    weft_trace::note_error();
    assert!(node.tracer.take_dump_wanted() && !node.tracer.take_dump_wanted());
}

/// The only test that gives the process a tracer: all others give their thread a recorder.
#[test]
fn a_process_may_change_its_tracer_while_spans_run() {
    let time = Arc::new(AtomicU64::new(1_000));
    let tracer = || {
        let tracer = Tracer::new(TracerConfig { ring_records: 16, ..TracerConfig::new(Mode::Bench, Clock::Virtual(time.clone())) });
        tracer.set_mask(Mask::ALL);
        tracer
    };
    let written = |tracer: &Tracer| tracer.stats().written;
    let (first, second) = (tracer(), tracer());
    weft_trace::set_process_tracer(Some(&first));
    drop(operation(event::CLIENT_CREATE));
    assert_eq!(written(&first), 1);
    let running = operation(event::CLIENT_CREATE);
    weft_trace::set_process_tracer(Some(&second));
    drop(running);
    assert_eq!((written(&first), written(&second)), (1, 0), "its lane belongs to the first");
    {
        let _op = operation(event::CLIENT_CREATE);
        drop(span(event::NET_CALL));
    }
    assert_eq!((written(&first), written(&second)), (1, 2));
    assert!(first.recorder().is_some_and(|recorder| recorder.number() == 0), "this thread has given its ring up");
    assert_eq!(second.in_flight_records(), []);
    weft_trace::set_process_tracer(None);
    drop(operation(event::CLIENT_CREATE));
    assert_eq!(written(&second), 2);
}

#[test]
fn a_flight_recorder_says_in_its_file_what_it_has_overwritten() {
    let node = TracedNode::new(Mode::Flight, 8);
    for _ in 0..20 {
        node.pass(16);
        drop(span(event::DISK_READ));
    }
    let file = write_and_read(&node.tracer);
    assert_eq!(file.records.len(), 7 + 1);
    assert_eq!(file.lost(), 13);
    assert_eq!(file.problems.len(), 1, "{:?}", file.problems);
    let last = file.records.iter().rev().find(|recorded| recorded.record.kind() == EventKind::Span).map(|recorded| recorded.record.t0);
    assert_eq!(last, Some(1_000 + 20 * 16));
}

#[test]
fn a_bench_ring_keeps_the_first_and_counts_the_rest() {
    let node = TracedNode::new(Mode::Bench, 8);
    (0..20).for_each(|_| drop(span(event::DISK_READ)));
    let file = write_and_read(&node.tracer);
    let spans: Vec<Recorded> = file.records.iter().filter(|recorded| recorded.record.kind() == EventKind::Span).collect();
    assert_eq!((spans.len(), spans[0].number, file.lost(), file.problems.len()), (8, 0, 12, 1));
    assert_eq!(node.tracer.stats().dropped, 12);
}

#[test]
fn a_thread_takes_over_the_ring_of_one_that_ended() {
    let tracer = Tracer::new(TracerConfig { rings_max: 2, ..TracerConfig::new(Mode::Bench, Clock::Function(|| 7)) });
    let (a, b) = (tracer.recorder().expect("the first"), tracer.recorder().expect("the second"));
    assert!(tracer.recorder().is_none());
    drop(a);
    assert_eq!(tracer.recorder().map(|recorder| recorder.number()), Some(0));
    assert_eq!((b.number(), tracer.stats().rings, tracer.stats().threads_without_ring), (1, 2, 1));
}

#[test]
fn names_longer_than_a_record_come_in_pieces() {
    let node = TracedNode::new(Mode::Bench, 64);
    let long = "directory/".repeat(9);
    weft_trace::name(5, &long);
    let records = node.records();
    assert_eq!(records.len(), 3);
    assert_eq!(records.iter().map(TraceRecord::text).collect::<String>(), long);
}

fn write_and_read(tracer: &Tracer) -> TraceFile {
    let header = FileHeader {
        node: "n".into(),
        server: None,
        process: 1,
        clock: "virtual".into(),
        clock_domain: "s".into(),
        anchor: Anchor::default(),
        events: EventTable::builtin(),
        machine: String::new(),
    };
    let (mut writer, mut bytes) = FileWriter::begin(&header);
    Drain::new(tracer).fetch().iter().for_each(|batch| writer.batch(batch, &mut bytes));
    writer.end(&mut bytes);
    TraceFile::read(&bytes).expect("just written")
}
