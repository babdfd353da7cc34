//! From answers of servers to what a person or a program reads: rates between two answers, the
//! busiest over all servers, and how full the disks are.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_base::ServerEntry;
use weft_host::output::show_name;
use weft_live::{SLOTS, slot_upper_ns};
use weft_wire::Op;
use weft_wire::ops::{Class, LiveReply, OperationUse, TopRow};

use crate::space;
use crate::space::Space;

/// All servers at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// Name of the file system.
    pub fs: String,
    /// Its id.
    pub fs_id: String,
    /// Seconds since the watching began.
    pub seconds: f64,
    /// Seconds between two questions.
    pub interval_s: f64,
    /// True if every server answers and serves.
    pub ok: bool,
    /// Every server, metadata servers first.
    pub servers: Vec<Server>,
    /// Sums of the rates of all servers that answer.
    pub sums: Rates,
    /// The busiest clients of the last seconds, by requests.
    pub clients: Vec<Busy>,
    /// The busiest files and directories of the last seconds, by requests.
    pub objects: Vec<Busy>,
    /// Operations over all servers, those that took most time first.
    pub operations: Vec<Operation>,
    /// Requests that have waited longest.
    pub oldest: Vec<Waiting>,
}

/// One server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Server {
    /// Its name in the configuration.
    pub name: String,
    /// `meta` or `data`.
    pub role: String,
    /// Where it listens.
    pub address: String,
    /// It has answered lately.
    pub answers: bool,
    /// Why not.
    pub problem: Option<String>,
    /// Seconds since it last answered.
    pub age_s: Option<f64>,
    /// `serving`, or what it does instead.
    pub state: Option<String>,
    /// Seconds since its start.
    pub uptime_s: Option<f64>,
    /// Counts its starts.
    pub boot: Option<u32>,
    /// Requests there that were not answered when it was asked.
    pub queued: Option<u32>,
    /// Clients with a connection.
    pub clients: Option<u32>,
    /// Bytes in its cache.
    pub cache_bytes: Option<u64>,
    /// Bytes that its cache may hold.
    pub cache_bytes_max: Option<u64>,
    /// Bytes of memory that its names and inodes take, but for those in its page file.
    pub page_memory_bytes: Option<u64>,
    /// Bytes of names and inodes in its page file.
    pub page_file_bytes: Option<u64>,
    /// Objects that it keeps.
    pub objects: Option<u64>,
    /// Bytes that they take on its disk.
    pub used_bytes: Option<u64>,
    /// Bytes that are free for it.
    pub free_bytes: Option<u64>,
    /// Bytes that it may fill in all.
    pub capacity_bytes: Option<u64>,
    /// `green`, `yellow` (less than 30 % of its disk is free) or `red` (less than 10 %).
    pub space: Option<Space>,
    /// Share of its disk that is free, whoever uses the rest.
    pub free_share: Option<f64>,
    /// Since its start.
    pub totals: Option<Totals>,
    /// Between its last two answers; none if it is silent or has restarted.
    pub rates: Option<Rates>,
}

/// Sums since the start of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Bytes of files that clients were given.
    pub read_bytes: u64,
    /// Bytes of files that clients wrote.
    pub written_bytes: u64,
    /// Requests that looked at names or inodes.
    pub meta_reads: u64,
    /// Requests that changed names or inodes.
    pub meta_changes: u64,
    /// Requests of any kind that were answered.
    pub requests: u64,
    /// Of these, answered with an error.
    pub failed: u64,
    /// Time of all requests in the server.
    pub busy_ns: u64,
    /// Processor time of the server, in microseconds.
    pub cpu_us: u64,
    /// Writes to the journal.
    pub journal_writes: u64,
    /// Flushes of the journal.
    pub journal_syncs: u64,
}

/// Per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// The time that was looked at.
    pub seconds: f64,
    /// Bytes of files that clients were given.
    pub read_bytes_s: f64,
    /// Bytes of files that clients wrote.
    pub written_bytes_s: f64,
    /// Requests that looked at names or inodes.
    pub meta_reads_s: f64,
    /// Requests that changed names or inodes.
    pub meta_changes_s: f64,
    /// Requests of any kind that were answered.
    pub requests_s: f64,
    /// Of these, answered with an error.
    pub failed_s: f64,
    /// Processors that were busy.
    pub cpus: f64,
    /// Mean number of requests in the server (Little's law).
    pub queue_mean: f64,
}

/// A client, file or directory with much to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Busy {
    /// Its number, as in traces: `c1f` or `h0.17`.
    pub id: String,
    /// Where a client is, or the path of an object, if that was found; anything that is not
    /// printable is escaped.
    pub name: Option<String>,
    /// Requests per second, at least.
    pub requests_s: f64,
    /// Bytes of files per second, at least.
    pub bytes_s: f64,
    /// The number of the client or object.
    #[serde(skip)]
    pub key: u64,
}

/// One kind of operation over all servers.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    /// As in `docs/wire.md`.
    pub name: &'static str,
    /// Since the starts of the servers.
    pub count: u64,
    /// Of these, answered with an error.
    pub failed: u64,
    /// Time of all of them in the servers, in seconds.
    pub total_s: f64,
    /// The rest is between the last two answers: requests per second.
    pub per_s: f64,
    /// Mean time in the server.
    pub mean_us: f64,
    /// Half of them took no longer, to the next power of two.
    pub p50_us: f64,
    /// 99 of 100 took no longer, to the next power of two.
    pub p99_us: f64,
}

/// A request that is not answered.
#[derive(Clone, Debug, Serialize)]
pub struct Waiting {
    /// Where it waits.
    pub server: String,
    /// What it asks for.
    pub operation: &'static str,
    /// Who asks.
    pub client: String,
    /// Where the client is, if that is known.
    pub client_name: Option<String>,
    /// The object or directory it is about.
    pub object: Option<String>,
    /// The path of the object, if that was found.
    pub name: Option<String>,
    /// Seconds since it came.
    pub age_s: f64,
    /// The number of the client or object.
    #[serde(skip)]
    pub key: u64,
}

/// What is known about one server.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Where it stands in the cluster map.
    pub entry: ServerEntry,
    /// The last answer and the one before, with the second each came.
    pub last: Option<(f64, LiveReply)>,
    /// The answer before the last one.
    pub before: Option<(f64, LiveReply)>,
    /// Why it does not answer.
    pub problem: Option<String>,
}

/// Sums of an answer.
pub fn totals(reply: &LiveReply) -> Totals {
    let mut totals = Totals {
        read_bytes: reply.read_bytes,
        written_bytes: reply.written_bytes,
        cpu_us: reply.info.cpu_us,
        journal_writes: reply.info.journal_writes,
        journal_syncs: reply.info.journal_syncs,
        ..Totals::default()
    };
    for row in &reply.operations {
        totals.requests += row.count;
        totals.failed += row.failed;
        totals.busy_ns += row.total_ns;
        match Op::from_code(row.op).map_or(Class::Other, Op::class) {
            Class::MetaRead => totals.meta_reads += row.count,
            Class::MetaChange => totals.meta_changes += row.count,
            Class::DataRead | Class::DataWrite | Class::Other => {}
        }
    }
    totals
}

/// Rates between two answers of one life of a server, `seconds` apart.
pub fn rates(before: &LiveReply, now: &LiveReply, seconds: f64) -> Option<Rates> {
    if before.info.boot != now.info.boot || seconds <= 0.0 {
        return None;
    }
    let (a, b) = (totals(before), totals(now));
    let per_s = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    Some(Rates {
        seconds,
        read_bytes_s: per_s(a.read_bytes, b.read_bytes),
        written_bytes_s: per_s(a.written_bytes, b.written_bytes),
        meta_reads_s: per_s(a.meta_reads, b.meta_reads),
        meta_changes_s: per_s(a.meta_changes, b.meta_changes),
        requests_s: per_s(a.requests, b.requests),
        failed_s: per_s(a.failed, b.failed),
        cpus: per_s(a.cpu_us, b.cpu_us) / 1e6,
        queue_mean: per_s(a.busy_ns, b.busy_ns) / 1e9,
    })
}

/// What is seen of all servers at second `now`; a server is silent if its last answer is older than
/// `patience_s`. `name` finds paths.
pub fn snapshot(
    (fs, fs_id): (String, String),
    seen: &[Seen],
    (now, interval_s, patience_s): (f64, f64, f64),
    name: impl Fn(u64) -> Option<String>,
) -> Snapshot {
    let mut servers: Vec<Server> = seen.iter().map(|seen| server(seen, now, patience_s)).collect();
    space::tell(&mut servers);
    let fresh: Vec<(&Seen, &LiveReply)> = seen
        .iter()
        .zip(&servers)
        .filter_map(|(seen, server)| Some((seen, seen.last.as_ref().filter(|_| server.answers).map(|(_, reply)| reply)?)))
        .collect();
    let mut sums = Rates::default();
    for rates in servers.iter().filter_map(|server| server.rates) {
        sums = Rates {
            seconds: rates.seconds,
            read_bytes_s: sums.read_bytes_s + rates.read_bytes_s,
            written_bytes_s: sums.written_bytes_s + rates.written_bytes_s,
            meta_reads_s: sums.meta_reads_s + rates.meta_reads_s,
            meta_changes_s: sums.meta_changes_s + rates.meta_changes_s,
            requests_s: sums.requests_s + rates.requests_s,
            failed_s: sums.failed_s + rates.failed_s,
            cpus: sums.cpus + rates.cpus,
            queue_mean: sums.queue_mean + rates.queue_mean,
        };
    }
    let replies = || fresh.iter().map(|(_, reply)| *reply);
    let mut clients =
        busiest(replies(), |reply| (&reply.clients_by_requests, &reply.clients_by_bytes), |key| format!("c{key:x}"), |_| None);
    for client in &mut clients {
        client.name = replies().find_map(|reply| client_name(reply, client.key));
    }
    let objects = busiest(replies(), |reply| (&reply.objects_by_requests, &reply.objects_by_bytes), handle_text, &name);
    let mut oldest: Vec<Waiting> = Vec::new();
    for (seen, reply) in &fresh {
        oldest.extend(reply.oldest.iter().map(|waiting| Waiting {
            server: seen.entry.name.clone(),
            operation: operation_name(waiting.op),
            client: format!("{:?}", waiting.client),
            client_name: client_name(reply, waiting.client.0),
            object: (waiting.object.0 != 0).then(|| handle_text(waiting.object.0)),
            name: name(waiting.object.0),
            age_s: waiting.age_ns as f64 / 1e9,
            key: waiting.object.0,
        }));
    }
    oldest.sort_by(|a, b| b.age_s.total_cmp(&a.age_s));
    oldest.truncate(ROWS_MAX);
    let ok = servers.iter().all(|server| server.answers && server.state.as_deref() == Some("serving"));
    Snapshot { fs, fs_id, seconds: now, interval_s, ok, servers, sums, clients, objects, operations: operations(seen), oldest }
}

/// Rows of a list of the busiest or the oldest, at most.
const ROWS_MAX: usize = 32;

fn server(seen: &Seen, now: f64, patience_s: f64) -> Server {
    let nothing = Server {
        name: seen.entry.name.clone(),
        role: seen.entry.id.role().to_string(),
        address: seen.entry.address.clone(),
        problem: seen.problem.clone(),
        ..Server::default()
    };
    let Some((at, reply)) = &seen.last else { return nothing };
    let age_s = (now - at).max(0.0);
    let answers = age_s <= patience_s;
    let rates = seen.before.as_ref().filter(|_| answers).and_then(|(before_at, before)| rates(before, reply, at - before_at));
    let info = &reply.info;
    Server {
        answers,
        problem: if answers { None } else { nothing.problem.clone() },
        age_s: Some(age_s),
        state: Some(info.state.clone()),
        uptime_s: Some(info.uptime_ms as f64 / 1000.0),
        boot: Some(info.boot),
        queued: Some(reply.queued),
        clients: Some(reply.clients),
        cache_bytes: Some(reply.cache_bytes),
        cache_bytes_max: Some(reply.cache_bytes_max),
        page_memory_bytes: reply.page_memory_bytes,
        page_file_bytes: reply.page_file_bytes,
        objects: Some(info.objects),
        used_bytes: Some(info.used_bytes),
        free_bytes: Some(info.free_bytes),
        capacity_bytes: Some(info.capacity_bytes),
        totals: Some(totals(reply)),
        rates,
        ..nothing
    }
}

fn busiest<'a>(
    replies: impl Iterator<Item = &'a LiveReply>,
    lists: impl Fn(&LiveReply) -> (&Vec<TopRow>, &Vec<TopRow>),
    id: impl Fn(u64) -> String,
    name: impl Fn(u64) -> Option<String>,
) -> Vec<Busy> {
    let mut found: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for reply in replies {
        let seconds = (reply.top_ns as f64 / 1e9).max(1e-3);
        let (requests, bytes) = lists(reply);
        let per_s = |row: &TopRow| row.count.saturating_sub(row.error) as f64 / seconds;
        requests.iter().for_each(|row| found.entry(row.key).or_default().0 += per_s(row));
        bytes.iter().for_each(|row| found.entry(row.key).or_default().1 += per_s(row));
    }
    let busy = |(key, (requests_s, bytes_s))| Busy { id: id(key), name: None, requests_s, bytes_s, key };
    let mut rows: Vec<Busy> = found.into_iter().map(busy).collect();
    rows.sort_by(|a, b| b.requests_s.total_cmp(&a.requests_s).then(b.bytes_s.total_cmp(&a.bytes_s)));
    rows.truncate(ROWS_MAX);
    rows.iter_mut().for_each(|row| row.name = name(row.key));
    rows
}

/// Operations over all servers.
fn operations(seen: &[Seen]) -> Vec<Operation> {
    #[derive(Default)]
    struct Sum {
        count: u64,
        failed: u64,
        total_ns: u64,
        lately: u64,
        lately_ns: u64,
        per_s: f64,
        slots: [u64; SLOTS],
    }
    let mut sums: BTreeMap<u16, Sum> = BTreeMap::new();
    for seen in seen {
        let Some((at, reply)) = &seen.last else { continue };
        let before = seen.before.as_ref().filter(|(_, before)| before.info.boot == reply.info.boot);
        for row in &reply.operations {
            let old = before.and_then(|(_, before)| before.operations.iter().find(|old| old.op == row.op));
            let sum = sums.entry(row.op).or_default();
            sum.count += row.count;
            sum.failed += row.failed;
            sum.total_ns += row.total_ns;
            let Some((before_at, _)) = before else { continue };
            let lately = row.count - old.map_or(0, |old| old.count.min(row.count));
            sum.lately += lately;
            sum.lately_ns += row.total_ns - old.map_or(0, |old| old.total_ns.min(row.total_ns));
            sum.per_s += lately as f64 / (at - before_at).max(1e-3);
            for slot in &row.slots {
                let place = usize::from(slot.slot).min(SLOTS - 1);
                sum.slots[place] += slot.count.saturating_sub(old.map_or(0, |old| slot_count(old, slot.slot)));
            }
        }
    }
    let mut rows: Vec<(u64, Operation)> = sums
        .into_iter()
        .map(|(op, sum)| {
            let operation = Operation {
                name: operation_name(op),
                count: sum.count,
                failed: sum.failed,
                total_s: sum.total_ns as f64 / 1e9,
                per_s: sum.per_s,
                mean_us: if sum.lately == 0 { 0.0 } else { sum.lately_ns as f64 / sum.lately as f64 / 1e3 },
                p50_us: quantile_us(&sum.slots, 0.5),
                p99_us: quantile_us(&sum.slots, 0.99),
            };
            (sum.lately_ns, operation)
        })
        .collect();
    rows.sort_by(|(a_ns, a), (b_ns, b)| b_ns.cmp(a_ns).then(b.total_s.total_cmp(&a.total_s)));
    rows.into_iter().map(|(_, row)| row).collect()
}

fn slot_count(row: &OperationUse, slot: u8) -> u64 {
    row.slots.iter().find(|there| there.slot == slot).map_or(0, |there| there.count)
}

/// The end of the slot in which a share of all is reached, in microseconds; 0 if there are none.
pub fn quantile_us(slots: &[u64; SLOTS], share: f64) -> f64 {
    let total: u64 = slots.iter().sum();
    let wanted = ((total as f64 * share).ceil() as u64).max(1);
    let mut sum = 0;
    for (slot, count) in slots.iter().enumerate() {
        sum += count;
        if sum >= wanted {
            let end = slot_upper_ns(slot).or_else(|| slot_upper_ns(SLOTS - 2)).expect("the last slot but one has an end");
            return end as f64 / 1e3;
        }
    }
    0.0
}

/// The name of an operation; `unknown` for a number that this program does not know.
pub fn operation_name(op: u16) -> &'static str {
    Op::from_code(op).map_or("unknown", Op::name)
}

/// Where a client is, as a server says; the name is escaped, as a server may say anything.
fn client_name(reply: &LiveReply, key: u64) -> Option<String> {
    let found = reply.client_names.iter().find(|there| there.client.0 == key);
    found.map(|found| show_name(found.name.as_bytes()))
}

fn handle_text(key: u64) -> String {
    weft_base::Handle(key).to_string()
}

#[cfg(test)]
pub(crate) mod tests;
