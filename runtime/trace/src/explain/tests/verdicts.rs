//! What limits, how much of the time on the wall it has, and whether it is called by the right
//! name.

use weft_base::{Handle, ServerId, Status};
use weft_wire::Op;

use super::super::*;
use super::cluster::{CLIENTS, Cluster, Delay, MS, SERVERS};
use crate::event::{self, served};
use crate::record::{Body, StagedSpan, TraceRecord, coarse, flags};

fn explained(cluster: Cluster) -> Explanation {
    Analysis::new(&cluster.merged()).explain(3)
}

/// The cause of the first verdict about a place.
fn first(explanation: &Explanation) -> (Cause, Option<&str>) {
    let verdict = &explanation.verdict[0];
    assert!(!verdict.advice.is_empty(), "{verdict:?}");
    (verdict.cause, verdict.place.as_deref())
}

/// A request that spends all of its time in one phase at a server; returns its end.
fn request(cluster: &mut Cluster, op: Op, server: (&'static str, u16), (t0, parent): (u64, u32), (phase, ns): (usize, u64)) -> u64 {
    cluster.keys += 1;
    let (key, call) = (cluster.keys, cluster.span_number());
    let mut phases = [0; 8];
    phases[phase] = coarse(ns);
    let body = Body::StagedSpan(StagedSpan { span: 0, code: op.code(), peer: server.1, phases });
    let record = TraceRecord { req: key, flags: flags::SERVER, ..TraceRecord::new(t0 + 10_000, event::request(op), body) };
    cluster.records.entry(server.0).or_default().push(record);
    cluster.span("c0", event::NET_CALL, key, (t0, ns + 20_000), (call, parent)).peer = server.1;
    t0 + ns + 20_000
}

#[test]
fn slow_places_are_called_by_what_they_are() {
    for (stage, place, cause) in [
        (Stage::DiskFar, "data0", Cause::Disk),
        (Stage::DiskNear, "data2", Cause::Disk),
        (Stage::Journal, "meta1", Cause::Disk),
        (Stage::Network, "data1", Cause::Link),
        (Stage::Network, "c1", Cause::Link),
        (Stage::Cpu, "meta1", Cause::HotServer),
        (Stage::ServerQueue, "meta0", Cause::HotServer),
    ] {
        let merged = Cluster::new(Some(Delay { stage, place, every: 1 }), 0).run(60);
        let explanation = Analysis::new(&merged).explain(3);
        assert_eq!(first(&explanation), (cause, Some(place)), "{stage:?}: {:#?}", explanation.verdict);
        assert_eq!(explanation.verdict[0].stage, Some(stage.name()));
        let share = explanation.verdict[0].share;
        assert!((0.2..=1.0).contains(&share), "{share}");
    }
}

/// Two clients wait for the same disk, one from 0 to 60 ms, one from 40 to 100 ms, of 200 ms.
#[test]
fn what_two_wait_for_at_once_counts_once() {
    let mut cluster = Cluster::new(None, 0);
    for (client, t0) in [("c0", 0), ("c1", 40 * MS)] {
        let (root, call) = (cluster.span_number(), cluster.span_number());
        cluster.keys += 1;
        let key = cluster.keys;
        cluster.span(client, event::CLIENT_READ, 0, (t0, 60 * MS), (root, 0));
        cluster.span(client, event::NET_CALL, key, (t0, 60 * MS), (call, root)).peer = 0x8000;
        let phases = [0, 0, coarse(60 * MS), 0, 0, 0, 0, 0];
        let body = Body::StagedSpan(StagedSpan { phases, ..StagedSpan::default() });
        let record = TraceRecord { req: key, flags: flags::SERVER, ..TraceRecord::new(t0, event::DATA_READ, body) };
        cluster.records.entry("data0").or_default().push(record);
        cluster.span("data0", event::DISK_READ, key, (t0, 60 * MS), (0, 0));
    }
    let root = cluster.span_number();
    cluster.span("c0", event::CLIENT_READ, 0, (200 * MS - 1, 1), (root, 0));
    let explanation = explained(cluster);
    let disk = explanation.verdict.iter().find(|verdict| verdict.cause == Cause::Disk).expect("it is the only place");
    assert!((disk.share - 0.5).abs() < 0.001, "{disk:?}");
    assert!(disk.sentence.starts_with("The disk of data0 limits: for 50 % of the time on the wall (0.10 s of 0.20 s)"), "{disk:?}");
    assert!(explanation.suspects[0].share > 0.99, "of the operations' own time it is all");
}

#[test]
fn programs_that_wait_for_one_another_s_locks_are_told_so() {
    let mut cluster = Cluster::new(None, 0);
    let mut now = MS;
    for _ in 0..30 {
        let root = cluster.span_number();
        let end = request(&mut cluster, Op::Lock, SERVERS[0], (now, root), (served::LOCK, 8 * MS));
        cluster.span("c0", event::FUSE_OTHER, 501, (now, end - now), (root, 0));
        now = end + 5_000;
    }
    let explanation = explained(cluster);
    assert_eq!(first(&explanation), (Cause::ApplicationLock, Some("meta0")), "{:#?}", explanation.verdict);
    assert!(explanation.verdict[0].advice.contains("flock"), "{:?}", explanation.verdict);
}

/// The last of them still waits when the recording ends.
#[test]
fn a_server_at_which_a_program_waits_for_a_lock_is_not_silent() {
    for (op, silent) in [(Op::Lock, 0), (Op::Create, 1)] {
        let mut cluster = Cluster::new(None, 0);
        let (root, call) = (cluster.span_number(), cluster.span_number());
        cluster.span("c0", event::FUSE_OTHER, 501, (MS, 2_000 * MS), (root, 0));
        let span = cluster.span("c0", event::NET_CALL, 1 << 60, (MS, 2_000 * MS), (call, root));
        span.off = u64::from(op.code());
        cluster.records.get_mut("c0").expect("just pushed").iter_mut().for_each(|record| record.flags |= flags::OPEN);
        assert_eq!(explained(cluster).silent.len(), silent, "{op:?}");
    }
}

#[test]
fn a_directory_that_everybody_uses_is_named_with_its_server() {
    let directory = Handle::new(ServerId(1), 77).0;
    let mut cluster = Cluster::new(None, 0);
    let mut now = MS;
    for turn in 0..60u64 {
        let root = cluster.span_number();
        let (server, object, ns) =
            if turn % 10 == 0 { (SERVERS[0], Handle::new(ServerId(0), turn).0, 20_000) } else { (SERVERS[1], directory, 4 * MS) };
        let end = request(&mut cluster, Op::Create, server, (now, root), (served::CPU, ns));
        cluster.span("c0", event::FUSE_CREATE, 501, (now, end - now), (root, 0)).obj = object;
        now = end + 5_000;
    }
    let explanation = explained(cluster);
    assert_eq!(first(&explanation), (Cause::HotServer, Some("meta1")), "{:#?}", explanation.verdict);
    let sentence = &explanation.verdict[0].sentence;
    assert!(sentence.contains(&format!("100 % of what it is asked about names is in one directory ({})", Handle(directory))), "{sentence}");
}

/// Reads whose time lies on the way; `at_once` of them begin together.
fn reads(bytes: u32, at_once: u64) -> Explanation {
    let mut cluster = Cluster::new(None, 0);
    let mut now = MS;
    for turn in 0..150 {
        let mut end = now;
        for thread in 0..at_once {
            let root = cluster.span_number();
            let here = cluster.call("c0", SERVERS[2 + ((turn + thread) % 3) as usize], event::request(Op::Lookup), now, root) + 200_000;
            cluster.span("c0", event::FUSE_READ, 501 + thread, (now, here - now), (root, 0)).len = bytes;
            end = end.max(here);
        }
        now = end + 1_000;
    }
    explained(cluster)
}

#[test]
fn small_pieces_and_one_request_at_a_time_are_told_before_places() {
    let small = reads(4096, 4);
    assert_eq!(small.verdict[0].cause, Cause::SmallPieces, "{:#?}", small.verdict);
    assert!(small.verdict[0].sentence.contains("600 reads and writes of 4.0 KiB"), "{:?}", small.verdict);
    assert!(small.verdict.iter().all(|verdict| verdict.cause != Cause::FewInFlight), "{:#?}", small.verdict);
    let few = reads(1 << 20, 1);
    assert_eq!(few.verdict[0].cause, Cause::FewInFlight, "{:#?}", few.verdict);
    assert!(few.verdict[0].sentence.contains("1.0 operations were under way at once"), "{:?}", few.verdict);
    assert!(few.verdict.iter().all(|verdict| verdict.cause != Cause::SmallPieces), "{:#?}", few.verdict);
    let fine = reads(1 << 20, 4);
    assert!(!fine.verdict.iter().any(|verdict| matches!(verdict.cause, Cause::SmallPieces | Cause::FewInFlight)), "{:#?}", fine.verdict);
}

#[test]
fn servers_that_are_all_busy_alike_are_no_fault() {
    let mut cluster = Cluster::new(None, 0);
    let mut now = MS;
    for _ in 0..40 {
        let mut end = now;
        for server in [SERVERS[2], SERVERS[3], SERVERS[4]] {
            let root = cluster.span_number();
            let here = request(&mut cluster, Op::Read, server, (now, root), (served::CPU, 3 * MS));
            cluster.span("c0", event::CLIENT_READ, 0, (now, here - now), (root, 0));
            end = end.max(here);
        }
        now = end + 10_000;
    }
    // Metadata servers have next to nothing to do, and all are there.
    ["meta0", "meta1"].into_iter().for_each(|name| {
        cluster.span(name, event::META_TURN, 0, (MS, 1_000), (0, 0));
    });
    let explanation = explained(cluster);
    assert_eq!(explanation.verdict[0].cause, Cause::Limit, "{:#?}", explanation.verdict);
    assert!(explanation.verdict[0].sentence.contains("all 3 data servers are busy alike"), "{:?}", explanation.verdict);
}

#[test]
fn full_and_failing_disks_come_before_places() {
    for (status, cause) in [(Status::NoSpace, Cause::DiskFull), (Status::Io, Cause::DiskErrors), (Status::NotFound, Cause::FewInFlight)] {
        let mut cluster = Cluster::new(None, 0);
        let mut now = MS;
        for (number, client) in CLIENTS.into_iter().enumerate() {
            for turn in 0..20 {
                now = cluster.operation(client, turn + number as u64, now) + 1_000;
            }
        }
        cluster
            .records
            .get_mut("data1")
            .and_then(|all| all.iter_mut().find(|one| one.flags & flags::SERVER != 0))
            .expect("it served")
            .res = status.code() as u8;
        cluster
            .records
            .get_mut("data1")
            .expect("it served")
            .iter_mut()
            .filter(|one| one.res != 0)
            .for_each(|one| one.flags |= flags::ERROR);
        let explanation = explained(cluster);
        assert_eq!(explanation.verdict[0].cause, cause, "{:#?}", explanation.verdict);
        if cause != Cause::FewInFlight {
            assert_eq!(explanation.verdict[0].place.as_deref(), Some("data1"));
        }
    }
}
