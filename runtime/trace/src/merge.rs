//! Files of several nodes on one time line. Files of one clock domain share a clock; between domains the offset is measured from the
//! requests themselves: each traced request has four times, sent (t1) and answered (t4) by the client's clock, received (t2) and replied
//! (t3) by the server's. As in NTP (Mills, RFC 5905, section 8): offset = ((t2 - t1) + (t3 - t4)) / 2, within half the time on the way,
//! delta = (t4 - t1) - (t3 - t2). The request with the smallest delta says it best. The offset is always stated with its error, and never
//! applied silently: [`Merged::clocks`] shows it, and the times without it can be had.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

use weft_base::FastMap;

use crate::event::{EventTable, Kind, NET_CALL};
pub use crate::events::{Event, Events};
use crate::file::{Brief, Records, TraceFile};
use crate::record::{DURATION_MAX, fine, flags};
use crate::{TickScale, time_order};

/// A node's clock against that of the first node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeClock {
    /// Was added to the node's times, in nanoseconds.
    pub offset_ns: i64,
    /// The offset is right within so many nanoseconds, if all went well; `None`: nothing ties the node to the first one, its times are not
    /// comparable.
    pub error_ns: Option<u64>,
    /// Requests it was computed from.
    pub samples: u64,
}

/// What is known about a node of a merged trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The server's number; `None` for a client.
    pub server: Option<u16>,
    /// Its events.
    pub events: EventTable,
    /// Records that it lost while recording.
    pub lost: u64,
    /// Sentences about what is missing in its file.
    pub problems: Vec<String>,
}

/// Several files on one time line.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Merged {
    /// The nodes, in the order of the files.
    pub nodes: Vec<Node>,
    /// Their clocks.
    pub clocks: Vec<NodeClock>,
    /// Everything that was recorded.
    pub events: Events,
    violations: OnceLock<u64>,
}

impl Merged {
    /// Requests whose server worked on them before they were sent or after they were answered, by more than the clocks' error: on one
    /// machine there must be none. The first call may have to look for them.
    pub fn causality_violations(&self) -> u64 {
        *self.violations.get_or_init(|| violations(&four_times(&self.events), &self.clocks))
    }

    /// The same if they have been looked for already.
    pub fn known_violations(&self) -> Option<u64> {
        self.violations.get().copied()
    }
}

/// The four times of one request, each in nanoseconds of its node.
#[derive(Clone, Copy)]
struct FourTimes {
    client: usize,
    server: usize,
    t1: i64,
    t2: i64,
    t3: i64,
    t4: i64,
}

impl FourTimes {
    fn offset(&self) -> i64 {
        (((i128::from(self.t2) - i128::from(self.t1)) + (i128::from(self.t3) - i128::from(self.t4))) / 2) as i64
    }
    fn on_the_way(&self) -> i64 {
        (self.t4 - self.t1) - (self.t3 - self.t2)
    }
}

/// Does pieces of work that do not depend on one another, in any order or at the same time: calls the function once with each number below
/// the count, and returns when all are done.
pub type Each<'a> = &'a dyn Fn(usize, &(dyn Fn(usize) + Sync));

/// One piece after the other.
pub fn in_turn(count: usize, work: &(dyn Fn(usize) + Sync)) {
    (0..count).for_each(work);
}

/// Puts files on one time line, that of the first file.
pub fn merge(files: Vec<TraceFile>) -> Merged {
    merge_by(files, &in_turn)
}

/// The same with the files one after the other or at the same time, as `each` does it.
pub fn merge_by(files: Vec<TraceFile>, each: Each<'_>) -> Merged {
    let mut merged = Merged::default();
    let domains: Vec<String> = files.iter().map(|file| file.header.clock_domain.clone()).collect();
    let mut times = Vec::new();
    for file in files {
        let lost = file.lost();
        let problems = file.problems.iter().map(ToString::to_string).collect();
        times.push(Mutex::new((file.records, Vec::new(), file.scale)));
        merged.nodes.push(Node { name: file.header.node, server: file.header.server, events: file.header.events, lost, problems });
    }
    // Memory for sorting goes from one to the next.
    let spares = Mutex::new(Vec::new());
    each(times.len(), &|node| {
        let mut own = times[node].lock().expect("nobody else works on this node");
        let (records, briefs, scale) = &mut *own;
        let mut spare = spares.lock().ok().and_then(|mut spares| spares.pop()).unwrap_or_default();
        *briefs = on_time_line(records, scale, &mut spare);
        if let Ok(mut spares) = spares.lock() {
            spares.push(spare);
        }
    });
    drop(spares);
    for own in times {
        let (records, briefs, _) = own.into_inner().expect("nobody has panicked");
        merged.events.push(records, briefs);
    }
    // One clock needs no requests; whoever wants to know whether they violate it can wait.
    let is_one_clock = domains.windows(2).all(|pair| pair[0] == pair[1]);
    let requests = if is_one_clock { Vec::new() } else { four_times(&merged.events) };
    merged.clocks = clocks(&domains, &requests);
    if !is_one_clock {
        merged.violations = OnceLock::from(violations(&requests, &merged.clocks));
    }
    for (node, clock) in merged.clocks.iter().enumerate().filter(|(_, clock)| clock.offset_ns != 0) {
        merged.events.shift(node, |ns| ns.saturating_add(clock.offset_ns));
    }
    merged
}

/// The times of the records of a node in nanoseconds of its own clock, sorted.
fn on_time_line(records: &mut Records, scale: &TickScale, spare: &mut Vec<Brief>) -> Vec<Brief> {
    let mut briefs = records.take_briefs();
    for brief in &mut briefs {
        let ticks = brief.start as u64;
        let start_ns = scale.nanos(ticks);
        brief.dur = scale.nanos(ticks.saturating_add(brief.dur)).saturating_sub(start_ns);
        brief.start = start_ns as i64;
    }
    time_order::sort(&mut briefs, spare, |unit| records.ring(unit));
    briefs
}

/// Pairs of a client's span and a server's ladder with the same key. A request that was repeated or given up has no clear times and is left
/// out.
fn four_times(events: &Events) -> Vec<FourTimes> {
    let mut calls: FastMap<u64, Option<u32>> = FastMap::default();
    let mut served: FastMap<u64, Option<u32>> = FastMap::default();
    for node in 0..events.nodes() {
        let times = events.node_times(node);
        for time in times.iter() {
            let sort = times.sorts()[time.sort as usize];
            let is_call = sort.kind == Kind::Span && sort.event == NET_CALL;
            if !is_call && sort.kind != Kind::Ladder {
                continue;
            }
            let words = events.words(time.position);
            let flags = (words[2] >> 32) as u16;
            let is_clear = if is_call { words[3] & DURATION_MAX > 0 && flags & flags::OPEN == 0 } else { flags & flags::SERVER != 0 };
            if words[1] != 0 && is_clear {
                let all = if is_call { &mut calls } else { &mut served };
                // Of two of them none is clear.
                all.entry(words[1]).and_modify(|first| *first = None).or_insert(Some(time.position));
            }
        }
    }
    let mut pairs: Vec<(u64, u32, u32)> = calls.iter().filter_map(|(key, call)| Some((*key, (*call)?, (*served.get(key)?)?))).collect();
    pairs.sort_unstable();
    let times = |(_, call, ladder): (u64, u32, u32)| {
        let (client, server) = (events.node(call), events.node(ladder));
        let words = events.words(call);
        let ticks = words[3] & DURATION_MAX;
        let (start, dur_ns) = (events.start_ns(call), events.dur_ns(call));
        // The wait is in ticks like the duration: their ratio is that of the times.
        let wait_ns = u128::from(fine((words[7] >> 32) as u32).min(ticks)) * u128::from(dur_ns) / u128::from(ticks.max(1));
        let end_of = |position: u32| events.start_ns(position).saturating_add_unsigned(events.dur_ns(position));
        FourTimes { client, server, t1: start + wait_ns as i64, t2: events.start_ns(ladder), t3: end_of(ladder), t4: end_of(call) }
    };
    pairs.into_iter().map(times).collect()
}

fn clocks(domains: &[String], requests: &[FourTimes]) -> Vec<NodeClock> {
    /// What ties two nodes: add `offset` to the first one's time to get the second one's.
    #[derive(Clone, Copy)]
    struct Tie {
        offset: i64,
        error: u64,
        samples: u64,
    }
    let mut ties: BTreeMap<(usize, usize), Tie> = BTreeMap::new();
    for request in requests.iter().filter(|request| domains[request.client] != domains[request.server]) {
        let error = request.on_the_way().unsigned_abs() / 2;
        for (key, offset) in [((request.client, request.server), request.offset()), ((request.server, request.client), -request.offset())] {
            let tie = ties.entry(key).or_insert(Tie { offset, error, samples: 0 });
            tie.samples += 1;
            if error < tie.error {
                (tie.offset, tie.error) = (offset, error);
            }
        }
    }
    for (a, domain) in domains.iter().enumerate() {
        for b in (0..domains.len()).filter(|b| *b != a && domains[*b] == *domain) {
            ties.insert((a, b), Tie { offset: 0, error: 0, samples: 0 });
        }
    }
    // The surest way from the first node to each (Dijkstra over the errors).
    let unknown = NodeClock { offset_ns: 0, error_ns: None, samples: 0 };
    let mut clocks = vec![unknown; domains.len()];
    let mut open: BTreeMap<usize, NodeClock> = BTreeMap::new();
    if !domains.is_empty() {
        open.insert(0, NodeClock { offset_ns: 0, error_ns: Some(0), samples: 0 });
    }
    while let Some(node) = open.iter().min_by_key(|(_, clock)| clock.error_ns).map(|(node, _)| *node) {
        let Some(clock) = open.remove(&node) else { break };
        for ((_, next), tie) in ties.range((node, 0)..=(node, usize::MAX)) {
            let error = clock.error_ns.unwrap_or(0).saturating_add(tie.error);
            let is_better = open.get(next).is_none_or(|known| known.error_ns.is_none_or(|known| error < known));
            if clocks[*next].error_ns.is_none() && *next != node && is_better {
                open.insert(
                    *next,
                    NodeClock {
                        offset_ns: clock.offset_ns.saturating_sub(tie.offset),
                        error_ns: Some(error),
                        samples: clock.samples + tie.samples,
                    },
                );
            }
        }
        clocks[node] = clock;
    }
    clocks
}

fn violations(requests: &[FourTimes], clocks: &[NodeClock]) -> u64 {
    requests.iter().filter(|request| violates(request, clocks)).count() as u64
}

fn violates(request: &FourTimes, clocks: &[NodeClock]) -> bool {
    let (client, server) = (&clocks[request.client], &clocks[request.server]);
    let (Some(client_error), Some(server_error)) = (client.error_ns, server.error_ns) else { return false };
    // A coarse phase may be rounded down by one unit each, never up.
    let slack = (client_error + server_error) as i64;
    let shift = server.offset_ns - client.offset_ns;
    request.t2 + shift + slack < request.t1 || request.t3 + shift > request.t4 + slack
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event;
    use crate::file::{FileHeader, FileWriter};
    use crate::record::{Body, Ladder, Record, Span, coarse};
    use crate::tracer::Batch;

    fn file(node: &str, server: Option<u16>, domain: &str, records: &[Record]) -> TraceFile {
        let header = FileHeader {
            node: node.into(),
            server,
            process: 1,
            clock: "virtual".into(),
            clock_domain: domain.into(),
            anchor: Default::default(),
            events: EventTable::builtin(),
        };
        let (mut writer, mut bytes) = FileWriter::begin(&header);
        writer.batch(&Batch { ring: 0, first: 0, records: records.iter().map(Record::to_words).collect() }, &mut bytes);
        writer.end(&mut bytes);
        TraceFile::read(&bytes).expect("sound")
    }

    fn call(key: u64, t0: u64, dur: u64) -> Record {
        Record { req: key, ..Record::new(t0, event::NET_CALL, Body::Span(Span { dur, ..Span::default() })) }
    }

    fn served(key: u64, t0: u64, dur: u64) -> Record {
        let ladder = Ladder { phases: [0, 0, coarse(dur), 0, 0, 0, 0, 0], ..Ladder::default() };
        Record { req: key, flags: flags::SERVER, ..Record::new(t0, event::META_CREATE, Body::Ladder(ladder)) }
    }

    /// A server whose clock is 1 000 000 ns ahead; 3 200 ns there, 1 600 ns back, so the error is real and bounded.
    #[test]
    fn the_offset_of_another_machine_is_found_within_its_stated_error() {
        let client: Vec<_> = (0..10).map(|i| call(100 + i, 50_000 * i + 1, 12_800 + 160 * i)).collect();
        let server: Vec<_> = (0..10).map(|i| served(100 + i, 50_000 * i + 1 + 3_200 + 1_000_000, 8_000)).collect();
        let merged = merge(vec![file("c", None, "boron", &client), file("meta0", Some(0), "chlorine", &server)]);
        let clock = &merged.clocks[1];
        let error = clock.error_ns.expect("tied by ten requests");
        assert_eq!((error, clock.samples), (2_400, 10));
        assert!(clock.offset_ns.abs_diff(-1_000_000) <= error, "{clock:?}");
        assert_eq!(merged.causality_violations(), 0);
        assert!(merged.events.iter().is_sorted_by_key(|event| event.start_ns));
    }

    #[test]
    fn one_clock_domain_needs_no_offset_and_shows_every_violation() {
        let good = merge(vec![file("c", None, "m", &[call(1, 100, 1_000)]), file("meta0", Some(0), "m", &[served(1, 200, 800)])]);
        assert_eq!((good.clocks[1].offset_ns, good.clocks[1].error_ns, good.causality_violations()), (0, Some(0), 0));
        let bad = merge(vec![file("c", None, "m", &[call(1, 100, 1_000)]), file("meta0", Some(0), "m", &[served(1, 50, 800)])]);
        assert_eq!(bad.causality_violations(), 1);
    }

    #[test]
    fn a_request_that_its_sender_gave_up_violates_nothing() {
        let given_up = Record { flags: flags::OPEN, ..call(1, 100, 1_000) };
        let merged = merge(vec![file("meta0", Some(0), "m", &[given_up]), file("meta1", Some(1), "m", &[served(1, 800, 1_600)])]);
        assert_eq!(merged.causality_violations(), 0);
    }

    #[test]
    fn a_third_machine_is_reached_over_the_second() {
        let a = file("a", None, "a", &[call(1, 0, 3_200)]);
        let b = file("b", Some(0), "b", &[served(1, 5_800, 1_600), call(2, 5_900, 1_600)]);
        let c = file("c", Some(1), "c", &[served(2, 90_000, 800)]);
        let merged = merge(vec![a, b, c]);
        assert_eq!(merged.clocks[1].offset_ns, -5_000);
        assert_eq!(merged.clocks[2].offset_ns, -5_000 - (90_400 - 6_700));
        assert_eq!(merged.clocks[2].error_ns, Some(800 + 400));
    }

    #[test]
    fn a_node_that_nothing_ties_says_so() {
        let merged = merge(vec![file("a", None, "a", &[call(1, 0, 3_200)]), file("b", Some(0), "b", &[served(7, 5, 160)])]);
        assert_eq!(merged.clocks[1].error_ns, None);
    }
}
