//! A synthetic cluster whose every delay is known.

mod cluster;
mod unseen;
mod verdicts;

use weft_wire::Op;

use self::cluster::{CLIENTS, Cluster, Delay, MS, SERVERS};
use super::*;
use crate::event::{self, served};
use crate::record::{Body, StagedSpan, TraceRecord, coarse, flags};

#[rustfmt::skip]
const PLACES: [(Stage, &str); 21] = [
    (Stage::Kernel, "c1"), (Stage::Client, "c0"), (Stage::SendQueue, "c0"), (Stage::Network, "meta0"), (Stage::Network, "meta1"),
    (Stage::Network, "data0"), (Stage::Network, "data1"), (Stage::Network, "data2"), (Stage::Network, "c1"), (Stage::ServerQueue, "meta0"),
    (Stage::ServerQueue, "data1"), (Stage::Cpu, "meta1"), (Stage::Cpu, "data2"), (Stage::Journal, "meta0"), (Stage::Journal, "meta1"),
    (Stage::Journal, "data0"), (Stage::DiskFar, "data0"), (Stage::DiskNear, "data2"), (Stage::Lock, "meta0"), (Stage::Lock, "c0"),
    (Stage::Retry, "c1"),
];

#[test]
fn a_delay_in_any_place_is_named_first() {
    for (stage, place) in PLACES {
        for (every, skew) in [(1, 0), (1, 77 * MS), (4, 0)] {
            let merged = Cluster::new(Some(Delay { stage, place, every }), skew).run(60);
            let explanation = Analysis::new(&merged).explain(3);
            let first = &explanation.suspects[0];
            assert_eq!(
                (first.stage, first.place.as_str()),
                (stage.name(), place),
                "every {every}, skew {skew}: {:#?}",
                explanation.suspects
            );
            assert!(explanation.covered > 0.999 && explanation.missing.is_empty(), "{:?}", explanation.missing);
        }
    }
}

#[test]
fn without_a_delay_no_place_stands_out_much() {
    let merged = Cluster::new(None, 0).run(60);
    let explanation = Analysis::new(&merged).explain(50);
    for suspect in &explanation.suspects {
        assert!(suspect.excess_seconds <= 0.35 * suspect.seconds, "{suspect:?}");
    }
}

#[test]
fn stages_add_up_to_the_time_of_every_operation() {
    for delay in [None, Some(Delay { stage: Stage::Network, place: "data1", every: 3 })] {
        let merged = Cluster::new(delay, 0).run(30);
        let analysis = Analysis::new(&merged);
        assert_eq!(analysis.operations().len(), 60, "one for each call of an application, whatever lies inside");
        for operation in analysis.operations() {
            assert_eq!(analysis.path(operation).iter().map(|segment| segment.dur_ns).sum::<u64>(), operation.dur_ns);
            let mut at = operation.start_ns;
            for segment in &analysis.path(operation) {
                assert_eq!(segment.start_ns, at, "no gap and no overlap");
                at += segment.dur_ns as i64;
            }
        }
        let explanation = analysis.explain(1);
        for kind in &explanation.kinds {
            let sum: f64 = kind.stages.iter().map(|stage| stage.seconds).sum();
            assert!((sum - kind.seconds).abs() < 1e-9 && (kind.stages.iter().map(|stage| stage.share).sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }
}

/// A release is answered at once and its work goes on: the next call of the same thread may lie
/// within it and is an operation all the same.
#[test]
fn what_happens_during_a_slow_release_is_not_part_of_it() {
    let mut cluster = Cluster::new(None, 0);
    let release = cluster.span_number();
    cluster.span("c0", event::FUSE_RELEASE, 501, (MS, 2 * MS), (release, 0));
    for turn in 0..3 {
        let number = cluster.span_number();
        cluster.span("c0", event::FUSE_CREATE, 501, (MS + 1_000 * (turn + 1), 500), (number, 0));
    }
    let merged = cluster.merged();
    let kinds = Analysis::new(&merged).explain(1).kinds;
    let mut counts: Vec<(&str, u64)> = kinds.iter().map(|kind| (kind.operation.as_str(), kind.count)).collect();
    counts.sort_unstable();
    assert_eq!(counts, [("fuse.create", 3), ("fuse.release", 1)]);
}

#[test]
fn a_server_without_records_lowers_what_is_covered_and_is_named() {
    let mut cluster = Cluster::new(None, 0);
    let mut now = MS;
    for turn in 0..30 {
        now = cluster.operation("c0", turn, now);
    }
    cluster.records.remove("meta1");
    let merged = cluster.merged();
    let explanation = Analysis::new(&merged).explain(5);
    let create = explanation.kinds.iter().find(|kind| kind.operation == "app.create").expect("there were creates");
    assert!((0.3..0.8).contains(&create.covered), "{}", create.covered);
    assert!(
        explanation.missing.iter().any(|sentence| {
            sentence.starts_with("5 requests")
                && sentence.contains("meta1")
                && sentence.contains(&format!("{:.1} %", (1.0 - explanation.covered) * 100.0))
        }),
        "{:?}",
        explanation.missing
    );
    assert!(explanation.suspects.iter().any(|suspect| (suspect.stage, suspect.place.as_str()) == ("unseen", "meta1")));
}

#[test]
fn requests_of_an_operation_that_was_not_over_are_told() {
    let mut cluster = Cluster::new(None, 0);
    cluster.operation("c0", 0, MS);
    cluster.call("c0", SERVERS[0], event::META_CREATE, 90 * MS, 77_777);
    let merged = cluster.merged();
    let missing = Analysis::new(&merged).explain(1).missing;
    assert!(missing.iter().any(|sentence| sentence.starts_with("1 requests belong to no recorded operation")), "{missing:?}");
}

/// Two clients, two servers; a server asks the other one on behalf of a client.
#[test]
fn what_a_server_asks_others_is_part_of_the_request_and_one_slow_link_is_named() {
    let mut cluster = Cluster::new(None, 0);
    let mut now = MS;
    for turn in 0..20 {
        for (client, server) in [("c0", SERVERS[0]), ("c1", SERVERS[1]), ("c1", SERVERS[0]), ("c0", SERVERS[1])] {
            let root = cluster.span_number();
            let end = cluster.call(client, server, event::request(Op::Lookup), now, root);
            cluster.span(client, event::CLIENT_LOOKUP, 0, (now, end - now), (root, 0));
            now = end + 1_000;
        }
        // A rename: meta0 works 10 us on it, asks meta1, and that takes 5 ms on the way.
        let (root, staged_span, inner, key) = (cluster.span_number(), 5_000_000 + turn, cluster.span_number(), 1 << 50 | u64::from(turn));
        let begin = now + 16_000;
        cluster.span("c0", event::CLIENT_RENAME, 0, (now, 5_200_000), (root, 0));
        let call = cluster.span_number();
        cluster.span("c0", event::NET_CALL, key, (now, 5_200_000), (call, root)).peer = 0;
        let mut phases = [0; 8];
        (phases[served::CPU], phases[served::LOCK]) = (coarse(16_000), coarse(5_136_000));
        let body = Body::StagedSpan(StagedSpan { span: staged_span, code: 21, peer: 0, phases });
        let record = TraceRecord { req: key, flags: flags::SERVER, ..TraceRecord::new(begin, event::request(Op::Rename), body) };
        cluster.records.entry("meta0").or_default().push(record);
        let asked = cluster.call("meta0", SERVERS[1], event::request(Op::TxPrepare), begin + 32_000, staged_span);
        let Some(Body::Span(span)) = cluster.records.get_mut("meta0").and_then(|all| all.last_mut()).map(|record| &mut record.body) else {
            unreachable!("the call was recorded last")
        };
        (span.dur, span.span) = (span.dur + 5 * MS - (asked - begin - 32_000).min(MS), inner);
        now += 6_000_000;
    }
    let merged = cluster.merged();
    let analysis = Analysis::new(&merged);
    for operation in analysis.operations() {
        assert_eq!(analysis.path(operation).iter().map(|segment| segment.dur_ns).sum::<u64>(), operation.dur_ns);
    }
    let first = &analysis.explain(3).suspects[0];
    assert_eq!((first.stage, first.place.as_str()), ("network", "meta0 - meta1"), "{first:?}");
}

#[test]
fn the_tail_is_told_apart_from_the_median() {
    let merged = Cluster::new(Some(Delay { stage: Stage::Journal, place: "meta0", every: 25 }), 0).run(150);
    let explanation = Analysis::new(&merged).explain(3);
    let create = explanation.kinds.iter().find(|kind| kind.operation == "app.create").expect("there were creates");
    let journal = create.stages.iter().find(|stage| stage.stage == "journal").expect("creates wait for it");
    assert!(journal.median_share < 0.5 && journal.share > 0.6 && journal.tail_share > 0.9, "{journal:?}");
    assert!(journal.p50_us < 100.0 && journal.p99_us > 5_000.0 && create.p99_us > 5_000.0);
}

#[test]
fn the_slowest_are_shown_step_by_step() {
    let merged = Cluster::new(Some(Delay { stage: Stage::DiskFar, place: "data0", every: 7 }), 0).run(40);
    let slowest = Analysis::new(&merged).slowest(3);
    assert_eq!(slowest.len(), 3);
    assert!(slowest.is_sorted_by(|a, b| a.dur_us >= b.dur_us));
    let first = &slowest[0];
    let longest = first.steps.iter().max_by(|a, b| a.dur_us.total_cmp(&b.dur_us)).expect("it has steps");
    assert_eq!((longest.stage, longest.place.as_str(), longest.event.as_str()), ("disk_far", "data0", "disk.read"));
    let text = first.to_string();
    assert_eq!(text.lines().count(), first.steps.len() + 1);
    assert!(text.lines().skip(1).all(|line| line.matches('|').count() == 2 && line.contains('#')), "{text}");
    assert!(text.contains("c0 - data0") || text.contains("c1 - data0"), "{text}");
}

#[test]
fn a_request_that_came_during_a_turn_waited_in_the_server_s_queue() {
    let mut cluster = Cluster::new(None, 0);
    // The shortest way is 1 600 ns; the second request comes while the turn of the first runs until
    // 50 000.
    for (key, t0, served_at) in [(1, 10_000, 11_600), (2, 20_000, 50_000)] {
        let (root, call) = (cluster.span_number(), cluster.span_number());
        cluster.span("c0", event::CLIENT_CREATE, 0, (t0, 60_000), (root, 0));
        cluster.span("c0", event::NET_CALL, key, (t0, 60_000), (call, root)).peer = 0;
        let mut phases = [0; 8];
        phases[served::CPU] = coarse(16_000);
        let record = TraceRecord::new(served_at, event::META_CREATE, Body::StagedSpan(StagedSpan { phases, ..StagedSpan::default() }));
        cluster.records.entry("meta0").or_default().push(TraceRecord { req: key, flags: flags::SERVER, ..record });
    }
    cluster.span("meta0", event::META_TURN, 0, (11_600, 38_400), (9_000, 0));
    let merged = cluster.merged();
    let analysis = Analysis::new(&merged);
    let queued = |number: usize| {
        let path = analysis.path(&analysis.operations()[number]);
        path.iter().filter(|piece| piece.stage == Stage::ServerQueue).map(|piece| (piece.start_ns, piece.dur_ns)).collect::<Vec<_>>()
    };
    assert_eq!((queued(0), queued(1)), (vec![], vec![(21_600, 28_400)]));
}

#[test]
fn of_parallel_requests_the_last_counts() {
    let mut cluster = Cluster::new(None, 0);
    let root = cluster.span_number();
    cluster.span("c0", event::CLIENT_READ, 0, (0, 100_000), (root, 0));
    // Without servers' records, so that each call is one piece.
    for (t0, end, peer) in [(10_000, 40_000, 0x8000), (12_000, 90_000, 0x8001), (5_000, 13_000, 0x8002)] {
        let number = cluster.span_number();
        cluster.span("c0", event::NET_CALL, number.into(), (t0, end - t0), (number, root)).peer = peer;
    }
    let merged = cluster.merged();
    let analysis = Analysis::new(&merged);
    let path: Vec<_> = analysis.path(&analysis.operations()[0]).iter().map(|piece| (piece.start_ns, piece.dur_ns, piece.peer)).collect();
    assert_eq!(path, [(0, 5_000, None), (5_000, 7_000, Some(0x8002)), (12_000, 78_000, Some(0x8001)), (90_000, 10_000, None)]);
}

#[test]
fn who_waits_for_what_is_read_ahead_waits_for_its_servers() {
    let mut cluster = Cluster::new(None, 0);
    let [ahead, read, inside, call] = [(); 4].map(|()| cluster.span_number());
    cluster.span("c0", event::CLIENT_READ_AHEAD, 0, (0, 90_000), (ahead, 0));
    cluster.span("c0", event::NET_CALL, call.into(), (10_000, 70_000), (call, ahead)).peer = 0x8000;
    cluster.span("c0", event::CLIENT_READ, 0, (50_000, 50_000), (read, 0));
    cluster.span("c0", event::CLIENT_AHEAD, 0, (52_000, 40_000), (inside, read)).off = ahead.into();
    let merged = cluster.merged();
    let analysis = Analysis::new(&merged);
    let [_, read] = analysis.operations() else { panic!("two operations: {:?}", analysis.operations()) };
    let path: Vec<_> = analysis.path(read).iter().map(|piece| (piece.start_ns, piece.dur_ns, piece.peer)).collect();
    let around = [(80_000, 10_000, None), (90_000, 2_000, None), (92_000, 8_000, None)];
    assert_eq!(path[..2], [(50_000, 2_000, None), (52_000, 28_000, Some(0x8000))]);
    assert_eq!(path[2..], around);
}

/// As a recorder writes what has not ended: up to the end of the recording.
fn open(cluster: &mut Cluster, node: &'static str, event: EventId, (t0, end): (u64, u64), span: (u32, u32), peer: u16) {
    let req = if event == event::NET_CALL { 1 << 60 | u64::from(span.0) } else { 0 };
    cluster.span(node, event, req, (t0, end - t0), span).peer = peer;
    cluster.records.get_mut(node).and_then(|all| all.last_mut()).expect("just pushed").flags |= flags::OPEN;
}

#[test]
fn a_server_that_hangs_is_named_first_with_the_time_of_its_last_answer() {
    let mut cluster = Cluster::new(None, 0);
    let mut now = MS;
    for turn in 0..30 {
        now = cluster.operation("c0", turn, now);
    }
    let (last_answer, end) = (now, now + 2_000 * MS);
    // A read that was given up once, and still waits.
    let root = cluster.span_number();
    open(&mut cluster, "c0", event::CLIENT_READ, (now + MS, end), (root, 0), 0);
    for (from, to) in [(now + MS, now + 900 * MS), (now + 950 * MS, end)] {
        let call = cluster.span_number();
        open(&mut cluster, "c0", event::NET_CALL, (from, to), (call, root), 0x8001);
    }
    // One that had only just begun.
    let (root, call) = (cluster.span_number(), cluster.span_number());
    open(&mut cluster, "c1", event::CLIENT_CREATE, (end - 50_000, end), (root, 0), 0);
    open(&mut cluster, "c1", event::NET_CALL, (end - 40_000, end), (call, root), 0);
    let merged = cluster.merged();
    let analysis = Analysis::new(&merged);
    let explanation = analysis.explain(3);
    assert_eq!(explanation.operations, 30, "what has not ended is not counted among what has: its time is not known");
    assert!(explanation.kinds.iter().all(|kind| kind.p99_us < 5_000.0), "{:?}", explanation.kinds);
    assert_eq!((explanation.unfinished_count, explanation.silent.len()), (2, 1), "{:?}", explanation.silent);
    let [longest, short] = &explanation.unfinished[..] else { panic!("{:?}", explanation.unfinished) };
    assert_eq!(
        (longest.operation.as_str(), longest.inside.as_str(), longest.server.as_deref()),
        ("client.read", "net.call", Some("data1"))
    );
    assert_eq!((short.client.as_str(), short.server.as_deref()), ("c1", Some("meta0")));
    let silent = &explanation.silent[0];
    assert_eq!((silent.server.as_str(), silent.requests, silent.has_answered, silent.answers_others), ("data1", 2, true, false));
    assert!((silent.since_seconds - (end - last_answer) as f64 / 1e9).abs() < 0.01, "{silent:?}");
    let first = &explanation.suspects[0];
    assert_eq!((first.stage, first.place.as_str()), ("no_answer", "data1"));
    assert!(explanation.verdict[0].sentence.starts_with("2 requests wait for data1, no answer since 2.0"), "{:?}", explanation.verdict);
    assert!(
        explanation.verdict[1].sentence.contains("2 operations were not over")
            && explanation.verdict[1].sentence.contains("waits for data1")
    );
    assert!(explanation.missing.is_empty(), "{:?}", explanation.missing);
}

#[test]
fn a_recording_in_which_nothing_ended_covers_nothing_and_names_who_is_silent() {
    let mut cluster = Cluster::new(None, 0);
    // Its operation began before the recording.
    open(&mut cluster, "c0", event::NET_CALL, (MS, 3_000 * MS), (5, 4), 0x8001);
    let merged = cluster.merged();
    let explanation = Analysis::new(&merged).explain(3);
    assert_eq!((explanation.operations, explanation.covered), (0, 0.0));
    assert!(explanation.verdict[0].sentence.starts_with("1 request waits for data1, no answer since 3.00 s"), "{:?}", explanation.verdict);
    assert!(explanation.verdict[1].sentence.starts_with("No operation was under way in the 3.00 s"), "{:?}", explanation.verdict);
}

/// A mount asks meta0, which asks data1 for the size of an open file.
#[test]
fn of_servers_that_wait_for_one_another_the_last_is_named() {
    let mut cluster = Cluster::new(None, 0);
    let (root, call, inner) = (cluster.span_number(), cluster.span_number(), cluster.span_number());
    open(&mut cluster, "c0", event::CLIENT_OPEN, (MS, 3_000 * MS), (root, 0), 0);
    open(&mut cluster, "c0", event::NET_CALL, (2 * MS, 3_000 * MS), (call, root), 0);
    open(&mut cluster, "meta0", event::NET_CALL, (3 * MS, 3_000 * MS), (inner, 900), 0x8001);
    let merged = cluster.merged();
    let explanation = Analysis::new(&merged).explain(3);
    assert_eq!(explanation.suspects[0].place, "data1");
    assert!(explanation.verdict[0].sentence.starts_with("1 request waits for data1, no answer since"), "{:?}", explanation.verdict);
    assert!(explanation.verdict[1].sentence.contains("for meta0, which itself waits for data1"), "{:?}", explanation.verdict);
    let open = &explanation.unfinished[0];
    assert_eq!((open.server.as_deref(), open.through.as_deref()), (Some("data1"), Some("meta0")));
}

/// As before, but meta0 has said once that it is not done yet, and was asked again.
#[test]
fn a_server_that_answers_and_waits_for_another_one_is_named_with_it() {
    let mut cluster = Cluster::new(None, 0);
    let (root, inner) = (cluster.span_number(), cluster.span_number());
    open(&mut cluster, "c0", event::CLIENT_OPEN, (MS, 3_000 * MS), (root, 0), 0);
    let now = cluster.call("c0", SERVERS[0], event::META_CREATE, 2 * MS, root);
    let again = cluster.span_number();
    let request = cluster.records["c0"].last().expect("the call").req;
    open(&mut cluster, "c0", event::NET_CALL, (now, 3_000 * MS), (again, root), 0);
    cluster.records.get_mut("c0").and_then(|all| all.last_mut()).expect("just pushed").req = request;
    open(&mut cluster, "meta0", event::NET_CALL, (3 * MS, 3_000 * MS), (inner, 900), 0x8001);
    let merged = cluster.merged();
    let explanation = Analysis::new(&merged).explain(3);
    assert_eq!(explanation.silent.len(), 1, "{:?}", explanation.silent);
    let open = &explanation.unfinished[0];
    assert_eq!((open.server.as_deref(), open.through.as_deref()), (Some("data1"), Some("meta0")));
}

#[test]
fn an_attempt_that_was_given_up_is_time_without_an_answer() {
    let mut cluster = Cluster::new(None, 0);
    let root = cluster.span_number();
    cluster.span("c0", event::CLIENT_CREATE, 0, (MS, 2_100 * MS), (root, 0));
    let call = cluster.span_number();
    open(&mut cluster, "c0", event::NET_CALL, (MS, 2_001 * MS), (call, root), 0);
    cluster.call("c0", SERVERS[0], event::META_CREATE, 2_050 * MS, root);
    let merged = cluster.merged();
    let explanation = Analysis::new(&merged).explain(3);
    let first = &explanation.suspects[0];
    assert_eq!((first.stage, first.place.as_str()), ("no_answer", "meta0"), "{:?}", explanation.suspects);
    assert!(explanation.covered > 0.99 && explanation.missing.is_empty(), "{:?}", explanation.missing);
}

#[test]
fn how_much_of_the_time_operations_were_under_way_is_told() {
    let mut cluster = Cluster::new(None, 0);
    for (t0, dur) in [(0, 100), (50, 100), (900, 100)] {
        let root = cluster.span_number();
        cluster.span("c0", event::CLIENT_READ, 0, (t0 * MS, dur * MS), (root, 0));
    }
    let merged = cluster.merged();
    let analysis = Analysis::new(&merged);
    let all = analysis.explain(3);
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(near(all.wall.recorded_seconds, 1.0) && near(all.wall.busy_seconds, 0.25) && near(all.wall.at_once, 1.2), "{all:?}");
    assert!(all.verdict[0].sentence.starts_with("Operations were under way for 25 % of the time only"), "{:?}", all.verdict);
    let part = analysis.explain_between(3, 800_000_000, 1_000_000_000);
    assert!(near(part.wall.recorded_seconds, 0.2) && near(part.wall.busy_seconds, 0.1), "{part:?}");
}

/// A commit encloses its flush; two waits at once are one.
#[test]
fn the_shares_of_a_wait_for_the_journal_add_up() {
    let mut cluster = Cluster::new(None, 0);
    let mut now = MS;
    for _ in 0..10 {
        let (root, call) = (cluster.span_number(), cluster.span_number());
        cluster.keys += 1;
        let key = cluster.keys;
        cluster.span("c0", event::CLIENT_CREATE, 0, (now, 1_100_000), (root, 0));
        cluster.span("c0", event::NET_CALL, key, (now, 1_100_000), (call, root)).peer = 0;
        let mut phases = [0; 8];
        phases[served::JOURNAL] = coarse(1_000_000);
        let record = TraceRecord::new(now + 50_000, event::META_CREATE, Body::StagedSpan(StagedSpan { phases, ..StagedSpan::default() }));
        cluster.records.entry("meta0").or_default().push(TraceRecord { req: key, flags: flags::SERVER, ..record });
        cluster.span("meta0", event::JOURNAL_COMMIT, 0, (now + 50_000, 930_000), (0, 0));
        cluster.span("meta0", event::JOURNAL_SYNC, 0, (now + 350_000, 430_000), (0, 0));
        now += 2 * MS;
    }
    let merged = cluster.merged();
    let evidence = Analysis::new(&merged).explain(1).suspects.remove(0).evidence;
    assert!(evidence.contains("50 % of it while the journal was written"), "{evidence}");
    assert!(evidence.contains("43 % of it while the journal was flushed"), "{evidence}");
}

/// A gauge says that a thread of the node had to wait for a processor for this share of the time
/// before it.
fn gauge(cluster: &mut Cluster, node: &'static str, at: u64, interval: u64, share: f64) {
    let gauges = [0, 0, 3, (interval as f64 * share) as u64, interval];
    cluster.records.entry(node).or_default().push(TraceRecord::new(at, event::LOAD_PROCESSOR, Body::Counter(gauges)));
}

#[test]
fn a_server_without_a_processor_is_named_and_not_the_network() {
    for (place, share) in [("meta0", 0.9), ("data2", 0.95), ("c1", 0.9)] {
        let mut cluster = Cluster::new(Some(Delay { stage: Stage::Network, place, every: 1 }), 0);
        let mut end = MS;
        for (number, client) in CLIENTS.into_iter().enumerate() {
            let mut now = MS + number as u64 * 7_000;
            for turn in 0..30 {
                now = cluster.operation(client, turn, now) + 1_000;
            }
            end = now.max(end);
        }
        // All have gauges, and one of them waits.
        for at in (1..=end / (50 * MS) + 1).map(|number| number * 50 * MS) {
            ["meta0", "meta1", "data0", "data2", "c0", "c1"].into_iter().for_each(|node| {
                gauge(&mut cluster, node, at, 50 * MS, if node == place { share } else { 0.01 });
            });
        }
        let merged = cluster.merged();
        let analysis = Analysis::new(&merged);
        for operation in analysis.operations() {
            assert_eq!(analysis.path(operation).iter().map(|segment| segment.dur_ns).sum::<u64>(), operation.dur_ns);
        }
        let explanation = analysis.explain(3);
        let first = &explanation.suspects[0];
        assert_eq!((first.stage, first.place.as_str()), ("processor", place), "{:#?}", explanation.suspects);
        assert!(
            explanation.verdict.iter().any(|verdict| verdict.cause == Cause::Processor && verdict.place.as_deref() == Some(place)),
            "{:?}",
            explanation.verdict
        );
    }
}

#[test]
fn a_wait_for_a_processor_that_is_longer_than_a_gauge_reaches_back() {
    let mut cluster = Cluster::new(None, 0);
    let root = cluster.span_number();
    cluster.span("c0", event::CLIENT_READ, 0, (0, 200 * MS), (root, 0));
    // Nothing is counted until the thread runs again.
    gauge(&mut cluster, "c0", 50 * MS, 50 * MS, 0.0);
    gauge(&mut cluster, "c0", 100 * MS, 50 * MS, 0.1);
    gauge(&mut cluster, "c0", 150 * MS, 120 * MS, 1.0);
    let merged = cluster.merged();
    let stages = &Analysis::new(&merged).explain(1).kinds[0].stages;
    let waited = stages.iter().find(|stage| stage.stage == "processor").expect("it waited");
    assert!((waited.seconds - 0.12).abs() < 1e-6, "{waited:?}");
}

/// Of parallel reads the one at the slow disk always ends last; the other disk is on a critical
/// path only when it was slow for once.
#[test]
fn a_slow_disk_is_compared_with_all_accesses_of_others() {
    let mut cluster = Cluster::new(None, 0);
    let mut now = MS;
    for turn in 0..40u64 {
        let root = cluster.span_number();
        let mut end = now;
        for (name, number, us) in [("data1", 0x8001, 5_000), ("data2", 0x8002, if turn == 7 { 6_000 } else { 250 })] {
            let (dur, call) = (us * 1_000, cluster.span_number());
            cluster.keys += 1;
            let key = cluster.keys;
            let mut phases = [0; 8];
            phases[served::CPU] = coarse(dur + 16_000);
            let record = TraceRecord::new(now + 20_000, event::DATA_READ, Body::StagedSpan(StagedSpan { phases, ..StagedSpan::default() }));
            cluster.records.entry(name).or_default().push(TraceRecord { req: key, flags: flags::SERVER, ..record });
            cluster.span(name, event::DISK_READ, key, (now + 28_000, dur), (0, 0));
            cluster.span("c0", event::NET_CALL, key, (now, dur + 60_000), (call, root)).peer = number;
            end = end.max(now + dur + 60_000);
        }
        cluster.span("c0", event::CLIENT_READ, 0, (now, end - now), (root, 0));
        now = end + 10_000;
    }
    let merged = cluster.merged();
    let first = Analysis::new(&merged).explain(1).suspects.remove(0);
    assert_eq!((first.stage, first.place.as_str()), ("disk_no_seek", "data1"));
    // 5000 us against a mean of (39 x 250 + 6000) / 40 = 394 us.
    assert!(first.evidence.contains("12.7 times what comparable places need"), "{}", first.evidence);
}
