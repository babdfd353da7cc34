//! What is the matter although no operation says it: processes that stood still, that had no
//! processor, that answered no command; and everybody at one object.

use weft_base::{Handle, ServerId, Status};
use weft_wire::Op;

use super::super::*;
use super::cluster::{Cluster, MS, SERVERS};
use super::gauge;
use crate::event;
use crate::record::{Body, StagedSpan, TraceRecord, coarse, flags};

fn verdict(cluster: Cluster) -> Vec<Finding> {
    Analysis::new(&cluster.merged()).explain(3).verdict
}

/// Operations of `c0` until about so many milliseconds.
fn working(until_ms: u64) -> Cluster {
    let mut cluster = Cluster::new(None, 0);
    let (mut now, mut turn) = (MS, 0);
    while now < until_ms * MS {
        now = cluster.operation("c0", turn, now) + MS;
        turn += 1;
    }
    cluster
}

#[test]
fn servers_that_work_for_somebody_without_a_record_are_told() {
    let all = working(100).merged();
    assert!(Analysis::new(&all).explain(3).missing.is_empty());
    let mut cluster = working(100);
    cluster.records.remove("c0");
    let explanation = Analysis::new(&cluster.merged()).explain(3);
    let verdict = &explanation.verdict.last().expect("a sentence").sentence;
    assert!(explanation.operations == 0 && verdict.starts_with("No operation was under way of those who were recorded"), "{verdict}");
    assert!(explanation.missing.iter().any(|told| told.contains("has no record of them")), "{:?}", explanation.missing);
}

/// Of ten looks of its thread one comes 600 ms late.
fn with_a_late_look(work_meanwhile: bool, waited: f64) -> Vec<Finding> {
    let mut cluster = working(1500);
    for (at, interval) in (1..=9).map(|number| (number * 50 * MS, 50 * MS)).chain([(1050 * MS, 600 * MS)]) {
        gauge(&mut cluster, "c1", at, interval, waited);
    }
    if work_meanwhile {
        for number in 9..21 {
            cluster.span("c1", event::CLIENT_LOCK, 0, (number * 50 * MS, MS), (0, 0));
        }
    }
    verdict(cluster)
}

#[test]
fn a_process_that_stood_still_is_named() {
    let told = with_a_late_look(false, 0.0);
    assert_eq!((told[0].cause, told[0].place.as_deref()), (Cause::NoAnswer, Some("c1")), "{told:#?}");
    assert!(told[0].sentence.starts_with("c1 stood still for 0.60 s"), "{told:#?}");
    for told in [with_a_late_look(true, 0.0), with_a_late_look(false, 0.9)] {
        assert!(told.iter().all(|one| one.cause != Cause::NoAnswer), "it worked, or waited for a processor: {told:#?}");
    }
}

#[test]
fn a_process_without_a_processor_is_named_before_idle_programs() {
    for (others, cause) in [(0.1, Cause::Processor), (0.8, Cause::Program)] {
        let mut cluster = working(100);
        for number in 1..=20 {
            gauge(&mut cluster, "c0", number * 50 * MS, 50 * MS, 0.9);
            gauge(&mut cluster, "data1", number * 50 * MS, 50 * MS, others);
        }
        // The recording goes on without an operation.
        cluster.span("c0", event::CLIENT_LOCK, 0, (1_000 * MS, MS), (0, 0));
        let told = verdict(cluster);
        assert_eq!(told[0].cause, cause, "{told:#?}");
        assert!(cause == Cause::Program || told[0].place.as_deref() == Some("c0"), "{told:#?}");
    }
}

/// A process with a fifth of a processor: named before idle programs, and not as one that stood
/// still.
#[test]
fn a_process_that_is_kept_from_running_by_a_limit_is_named_first() {
    for (kept_back, is_limit) in [(0.7, true), (0.15, true), (0.05, false)] {
        let mut cluster = working(100);
        for (at, interval) in (1..=9).map(|number| (number * 50 * MS, 50 * MS)).chain([(1050 * MS, 600 * MS)]) {
            gauge(&mut cluster, "c1", at, interval, 0.0);
            let last_ns = (interval as f64 * kept_back) as u64;
            let values = [0, last_ns, interval, 20_000, 100_000];
            let record = TraceRecord::new(at, event::LOAD_LIMIT, Body::Counter(values));
            cluster.records.entry("c1").or_default().push(record);
        }
        let told = verdict(cluster);
        let cause = if is_limit { Cause::Processor } else { Cause::NoAnswer };
        assert_eq!((told[0].cause, told[0].place.as_deref()), (cause, Some("c1")), "{told:#?}");
        assert_eq!(told[0].sentence.starts_with("c1 may have 20 % of a processor"), is_limit, "{told:#?}");
        let of_it = told.iter().filter(|one| matches!(one.cause, Cause::Processor | Cause::NoAnswer));
        assert_eq!(of_it.count(), 1, "{told:#?}");
    }
}

#[test]
fn one_directory_that_several_programs_want_is_named() {
    let directory = Handle::new(ServerId(1), 77).0;
    for (callers, cause) in [(3, Cause::HotDirectory), (1, Cause::FewInFlight)] {
        let mut cluster = Cluster::new(None, 0);
        let mut now = MS;
        // One after the other, as the kernel lets them.
        for turn in 0..90 {
            let root = cluster.span_number();
            let end = cluster.call("c0", SERVERS[1], event::request(Op::Lookup), now, root);
            cluster.span("c0", event::FUSE_CREATE, 501 + turn % callers, (now, end - now), (root, 0)).obj = directory;
            now = end + 5_000;
        }
        let told = verdict(cluster);
        assert_eq!(told[0].cause, cause, "{told:#?}");
        assert!(callers == 1 || told[0].place.as_deref() == Some("meta1") && told[0].sentence.contains("one directory"), "{told:#?}");
    }
}

/// The server writes no record; what programs were told names its disk.
#[test]
fn a_failing_disk_of_a_server_without_records_is_named() {
    let mut cluster = Cluster::new(None, 0);
    let mut now = MS;
    for turn in 0..40 {
        let root = cluster.span_number();
        let end = cluster.call("c0", SERVERS[2 + turn % 2], event::DATA_READ, now, root);
        cluster.span("c0", event::FUSE_READ, 501, (now, end - now), (root, 0)).len = 1 << 20;
        if turn % 2 == 1 {
            let failed = cluster.records.get_mut("c0").and_then(|records| records.last_mut()).expect("just pushed");
            (failed.res, failed.flags) = (Status::Io.errno() as u8, failed.flags | flags::ERROR);
        }
        now = end + 5_000;
    }
    cluster.records.remove("data1");
    let told = verdict(cluster);
    assert_eq!((told[0].cause, told[0].place.as_deref()), (Cause::DiskErrors, Some("data1")), "{told:#?}");
    assert!(told[0].sentence.contains("20 requests"), "{told:#?}");
}

/// Two requests are under way for 0.3 s when the recording ends.
#[test]
fn a_server_that_has_just_answered_is_not_silent() {
    for (last_answer, silent) in [(890, 0), (700, 1)] {
        let mut cluster = Cluster::new(None, 0);
        let (root, call, key) = (cluster.span_number(), cluster.span_number(), 1 << 50);
        cluster.span("c0", event::CLIENT_READ, 0, ((last_answer - 10) * MS, 10 * MS), (root, 0));
        cluster.span("c0", event::NET_CALL, key, ((last_answer - 10) * MS, 10 * MS), (call, root)).peer = 0x8001;
        let phases = [0, 0, coarse(9 * MS), 0, 0, 0, 0, 0];
        let body = Body::StagedSpan(StagedSpan { phases, ..StagedSpan::default() });
        let record = TraceRecord { req: key, flags: flags::SERVER, ..TraceRecord::new((last_answer - 10) * MS, event::DATA_READ, body) };
        cluster.records.entry("data1").or_default().push(record);
        for _ in 0..2 {
            let (root, call) = (cluster.span_number(), cluster.span_number());
            cluster.span("c0", event::CLIENT_READ, 0, (700 * MS, 300 * MS), (root, 0));
            cluster.span("c0", event::NET_CALL, 1 << 51, (700 * MS, 300 * MS), (call, root)).peer = 0x8001;
            cluster.records.get_mut("c0").expect("just pushed").iter_mut().rev().take(2).for_each(|record| record.flags |= flags::OPEN);
        }
        let merged = cluster.merged();
        assert_eq!(Analysis::new(&merged).explain(1).silent.len(), silent, "{last_answer}");
    }
}

#[test]
fn who_answered_no_command_is_named_once() {
    let merged = working(100).merged();
    let mut explanation = Analysis::new(&merged).explain(3);
    explanation.note_silent(&["mount-mnt".into(), "data1".into()]);
    explanation.note_silent(&["data1".into()]);
    let places: Vec<Option<&str>> = explanation.verdict.iter().take(3).map(|one| one.place.as_deref()).collect();
    assert_eq!(places[..2], [Some("mount-mnt"), Some("data1")]);
    assert_ne!(places[2], Some("data1"));
}
