use super::*;
use weft_base::{ClientId, FsId, Handle, ServerId};
use weft_wire::ops::{ClientName, LatencySlot, ServerInfo, WaitingRequest};

/// An answer with these totals of one operation each.
pub fn reply(id: ServerId, boot: u32, creates: u64, written_bytes: u64) -> LiveReply {
    let info = ServerInfo {
        fs_id: FsId(7),
        fs_name: "demo".into(),
        server: id,
        name: id.to_string(),
        owns_root: id == ServerId(0),
        engine: "journal".into(),
        durability: "batch".into(),
        state: "serving".into(),
        uptime_ms: 61_000,
        boot,
        objects: 10,
        used_bytes: 4096,
        capacity_bytes: 1000,
        free_bytes: 250,
        cpu_us: creates * 100,
        journal_writes: 3,
        journal_syncs: 2,
        ..ServerInfo::default()
    };
    let slots = vec![LatencySlot { slot: 2, count: creates }];
    let create = OperationUse { op: Op::Create.code(), count: creates, failed: 1, total_ns: creates * 3000, slots };
    LiveReply {
        info,
        read_bytes: 0,
        written_bytes,
        queued: 2,
        clients: 3,
        cache_bytes: 0,
        cache_bytes_max: 0,
        operations: if creates > 0 { vec![create] } else { vec![] },
        top_ns: 10_000_000_000,
        clients_by_requests: vec![TopRow { key: 0xc1, count: 500, error: 100 }],
        clients_by_bytes: vec![],
        objects_by_requests: vec![TopRow { key: 1, count: 300, error: 0 }],
        objects_by_bytes: vec![TopRow { key: 9, count: 10_000, error: 0 }],
        oldest: vec![WaitingRequest { op: Op::Rmdir.code(), client: ClientId(5), object: Handle(1), age_ns: 2_500_000_000 }],
        client_names: vec![ClientName { client: ClientId(0xc1), name: "pid 77".into() }],
        page_memory_bytes: Some(4096),
        page_file_bytes: None,
    }
}

pub fn seen(id: ServerId, last: Option<(f64, LiveReply)>, before: Option<(f64, LiveReply)>) -> Seen {
    let entry = ServerEntry { id, name: id.to_string(), address: "unix:/s".into() };
    Seen { entry, problem: last.is_none().then(|| "refused".to_string()), last, before }
}

fn of(seen: &[Seen], now: f64) -> Snapshot {
    snapshot(("demo".into(), "7".into()), seen, (now, 1.0, 3.0), |key| (key == 1).then(|| "/".to_string()))
}

#[test]
fn rates_are_differences_over_time() {
    let meta = ServerId(0);
    let now = of(&[seen(meta, Some((12.0, reply(meta, 1, 3000, 0))), Some((10.0, reply(meta, 1, 1000, 0))))], 12.5);
    let rates = now.servers[0].rates.unwrap();
    assert_eq!((rates.seconds, rates.meta_changes_s, rates.requests_s, rates.meta_reads_s), (2.0, 1000.0, 1000.0, 0.0));
    assert!((rates.cpus - 0.1).abs() < 1e-9, "100 us of processor time for each of 1000 creates a second");
    assert!((rates.queue_mean - 0.003).abs() < 1e-9, "3 us in the server for each of 1000 a second");
    let create = &now.operations[0];
    assert_eq!((create.name, create.count, create.per_s, create.mean_us, create.p99_us), ("Create", 3000, 1000.0, 3.0, 4.096));
    assert_eq!((now.servers[0].age_s, now.servers[0].space), (Some(0.5), Some(Space::Yellow)));
    assert!(now.ok && now.sums == rates);
}

#[test]
fn a_restart_or_silence_is_no_rate() {
    let (meta, data) = (ServerId(0), ServerId::data(0));
    let restarted = seen(meta, Some((12.0, reply(meta, 2, 10, 0))), Some((11.0, reply(meta, 1, 1000, 0))));
    let silent = seen(data, Some((5.0, reply(data, 1, 0, 10))), Some((4.0, reply(data, 1, 0, 0))));
    let never = seen(ServerId::data(1), None, None);
    let now = of(&[restarted, silent, never], 12.0);
    assert!(now.servers.iter().all(|server| server.rates.is_none()) && !now.ok);
    assert_eq!(now.servers.iter().map(|server| server.answers).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!((now.servers[1].age_s, now.servers[2].age_s, now.servers[2].problem.as_deref()), (Some(7.0), None, Some("refused")));
    assert_eq!(now.oldest.len(), 1, "what a silent server said is not now");
}

#[test]
fn the_busiest_are_added_up_over_servers_and_named() {
    let (a, b) = (ServerId(0), ServerId(1));
    let now = of(&[seen(a, Some((1.0, reply(a, 1, 0, 0))), None), seen(b, Some((1.0, reply(b, 1, 0, 0))), None)], 1.0);
    let client = &now.clients[0];
    assert_eq!(
        (client.id.as_str(), client.name.as_deref(), client.requests_s),
        ("cc1", Some("pid 77"), 80.0),
        "at least: the error is not counted"
    );
    let objects: Vec<_> = now.objects.iter().map(|row| (row.id.as_str(), row.name.as_deref(), row.requests_s, row.bytes_s)).collect();
    assert_eq!(objects, [("h0.1", Some("/"), 60.0, 0.0), ("h0.9", None, 0.0, 2000.0)]);
    assert_eq!((now.oldest[0].operation, now.oldest[0].age_s, now.oldest[0].name.as_deref()), ("Rmdir", 2.5, Some("/")));
}

#[test]
fn quantiles_end_at_a_slot() {
    let mut slots = [0; SLOTS];
    assert_eq!(quantile_us(&slots, 0.5), 0.0);
    (slots[1], slots[5]) = (98, 2);
    assert_eq!((quantile_us(&slots, 0.5), quantile_us(&slots, 0.98), quantile_us(&slots, 0.99)), (2.048, 2.048, 32.768));
}
