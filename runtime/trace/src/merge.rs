//! Files of several nodes on one time line, that of the first. Files of one clock domain share a
//! clock; how other clocks stand to it is computed from the requests themselves
//! ([`crate::offsets`]). That is always stated with its error, and never applied silently:
//! [`Merged::clocks`] shows it, and the times without it can be had.

use std::ops::RangeInclusive;
use std::sync::{Mutex, OnceLock, PoisonError};

use weft_base::FastMap;

use crate::event::{EventKind, EventTable, NET_CALL};
pub use crate::events::{Event, Events};
use crate::file::{Brief, FileHeader, TraceFile, TraceRecords};
pub use crate::offsets::NodeClock;
use crate::offsets::{FourTimes, causality_violations, clocks};
use crate::record::{DURATION_MAX, fine, flags};
use crate::{TickScale, time_order};

/// No clock shows more: 36 years. A file may say anything; times that are no longer than this can
/// be added and subtracted.
const TIME_MAX_NS: u64 = 1 << 60;

/// What is known about a node of a merged trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedNode {
    /// Its name.
    pub name: String,
    /// The machine that it ran on; empty in files that do not say it.
    pub machine: String,
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
    pub nodes: Vec<TracedNode>,
    /// Their clocks.
    pub clocks: Vec<NodeClock>,
    /// Everything that was recorded.
    pub events: Events,
    /// By node, what names its clock.
    domains: Vec<String>,
    violations: OnceLock<u64>,
}

impl Merged {
    /// Requests whose server worked on them before they were sent or after they were answered, by
    /// more than the clocks' error: on one machine there must be none. The first call may have to
    /// look for them.
    pub fn causality_violations(&self) -> u64 {
        *self.violations.get_or_init(|| causality_violations(&self.domains, &self.clocks, &four_times(&self.events)))
    }

    /// The same if they have been looked for already.
    pub fn known_violations(&self) -> Option<u64> {
        self.violations.get().copied()
    }
}

/// Does pieces of work that do not depend on one another, in any order or at the same time: calls
/// the function once with each number below the count, and returns when all are done.
pub type Each<'a> = &'a dyn Fn(usize, &(dyn Fn(usize) + Sync));

/// One piece after the other.
pub fn in_turn(count: usize, work: &(dyn Fn(usize) + Sync)) {
    (0..count).for_each(work);
}

/// What `work` gives for each number below `count`, in their order; `each` says whether one after
/// the other or at the same time.
pub fn gathered<R: Send>(each: Each<'_>, count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let cells: Vec<Mutex<Option<R>>> = (0..count).map(|_| Mutex::default()).collect();
    each(count, &|number| {
        let result = work(number);
        *cells[number].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    });
    let results = cells.into_iter().map(|cell| cell.into_inner().unwrap_or_else(PoisonError::into_inner));
    results.map(|result| result.expect("each number was called")).collect()
}

/// The same for things that are given away.
pub(crate) fn gathered_of<T: Send, R: Send>(each: Each<'_>, given: Vec<T>, work: impl Fn(usize, T) -> R + Sync) -> Vec<R> {
    let given: Vec<Mutex<Option<T>>> = given.into_iter().map(|one| Mutex::new(Some(one))).collect();
    gathered(each, given.len(), |number| {
        let one = given[number].lock().unwrap_or_else(PoisonError::into_inner).take();
        work(number, one.expect("each number is called once"))
    })
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
        times.push((file.records, file.scale));
        let FileHeader { node, machine, server, events, .. } = file.header;
        merged.nodes.push(TracedNode { name: node, machine, server, events, lost, problems });
    }
    // Memory for sorting goes from one to the next.
    let spares = Mutex::new(Vec::new());
    let nodes = gathered_of(each, times, |_, (mut records, scale)| {
        let mut spare = spares.lock().ok().and_then(|mut spares| spares.pop()).unwrap_or_default();
        let briefs = on_time_line(&mut records, &scale, &mut spare);
        if let Ok(mut spares) = spares.lock() {
            spares.push(spare);
        }
        (records, briefs)
    });
    drop(spares);
    nodes.into_iter().for_each(|(records, briefs)| merged.events.push(records, briefs));
    if domains.windows(2).all(|pair| pair[0] == pair[1]) {
        // One clock needs no requests; whoever wants to know whether they violate it can wait.
        merged.clocks = clocks(&domains, &vec![0..=0; domains.len()], &[]);
    } else {
        let requests = four_times(&merged.events);
        merged.clocks = clocks(&domains, &spans(&merged.events), &requests);
        merged.violations = OnceLock::from(causality_violations(&domains, &merged.clocks, &requests));
        for (node, clock) in merged.clocks.iter().enumerate() {
            let most = TIME_MAX_NS as i64;
            merged.events.shift(node, |ns| clock.common(ns).clamp(-most, most));
        }
    }
    merged.domains = domains;
    merged
}

/// The times of the records of a node in nanoseconds of its own clock, sorted.
fn on_time_line(records: &mut TraceRecords, scale: &TickScale, spare: &mut Vec<Brief>) -> Vec<Brief> {
    let mut briefs = records.take_briefs();
    for brief in &mut briefs {
        let ticks = brief.start as u64;
        let time_ns = |ticks: u64| scale.nanos(ticks).min(TIME_MAX_NS);
        let start_ns = time_ns(ticks);
        // A tick is a nanosecond at most, so no sum of durations overflows either.
        brief.dur = time_ns(ticks.saturating_add(brief.dur)).saturating_sub(start_ns).min(DURATION_MAX);
        brief.start = start_ns as i64;
    }
    time_order::sort(&mut briefs, spare, |unit| records.ring(unit));
    briefs
}

/// The first and the last moment that each node has recorded, by its own clock.
fn spans(events: &Events) -> Vec<RangeInclusive<i64>> {
    let span = |node| {
        let first = events.node_times(node).iter().next().map_or(0, |time| time.start_ns);
        let last = events.node_times(node).iter().map(|time| time.start_ns.saturating_add_unsigned(time.dur_ns)).max();
        first..=last.unwrap_or(first)
    };
    (0..events.nodes()).map(span).collect()
}

/// Pairs of a client's span and a server's staged span with the same key. A request that was
/// repeated or given up has no clear times and is left out.
fn four_times(events: &Events) -> Vec<FourTimes> {
    let mut calls: FastMap<u64, Option<u32>> = FastMap::default();
    let mut served: FastMap<u64, Option<u32>> = FastMap::default();
    for node in 0..events.nodes() {
        let times = events.node_times(node);
        for time in times.iter() {
            let sort = times.sorts()[time.sort as usize];
            let is_call = sort.kind == EventKind::Span && sort.event == NET_CALL;
            if !is_call && sort.kind != EventKind::StagedSpan {
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
    let times = |(_, call, staged_span): (u64, u32, u32)| {
        let (client, server) = (events.node(call), events.node(staged_span));
        let words = events.words(call);
        let ticks = words[3] & DURATION_MAX;
        let (start, dur_ns) = (events.start_ns(call), events.dur_ns(call));
        // The wait is in ticks like the duration: their ratio is that of the times.
        let wait_ns = u128::from(fine((words[7] >> 32) as u32).min(ticks)) * u128::from(dur_ns) / u128::from(ticks.max(1));
        let end_of = |position: u32| events.start_ns(position).saturating_add_unsigned(events.dur_ns(position));
        FourTimes {
            client,
            server,
            t1: start + wait_ns as i64,
            t2: events.start_ns(staged_span),
            t3: end_of(staged_span),
            t4: end_of(call),
        }
    };
    pairs.into_iter().map(times).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event;
    use crate::file::FileWriter;
    use crate::record::{Body, Span, StagedSpan, TraceRecord, coarse};
    use crate::tracer::Batch;

    fn file(node: &str, server: Option<u16>, domain: &str, records: &[TraceRecord]) -> TraceFile {
        let header = FileHeader {
            node: node.into(),
            server,
            process: 1,
            clock: "virtual".into(),
            clock_domain: domain.into(),
            anchor: Default::default(),
            events: EventTable::builtin(),
            machine: String::new(),
        };
        let (mut writer, mut bytes) = FileWriter::begin(&header);
        writer.batch(&Batch { ring: 0, first: 0, records: records.iter().map(TraceRecord::to_words).collect() }, &mut bytes);
        writer.end(&mut bytes);
        TraceFile::read(&bytes).expect("sound")
    }

    fn call(key: u64, t0: u64, dur: u64) -> TraceRecord {
        TraceRecord { req: key, ..TraceRecord::new(t0, event::NET_CALL, Body::Span(Span { dur, ..Span::default() })) }
    }

    fn served(key: u64, t0: u64, dur: u64) -> TraceRecord {
        let staged_span = StagedSpan { phases: [0, 0, coarse(dur), 0, 0, 0, 0, 0], ..StagedSpan::default() };
        TraceRecord { req: key, flags: flags::SERVER, ..TraceRecord::new(t0, event::META_CREATE, Body::StagedSpan(staged_span)) }
    }

    /// A server whose clock is 1 000 000 ns ahead; 3 200 ns there, 1 600 ns back, so the error is
    /// real and bounded.
    #[test]
    fn the_offset_of_another_machine_is_found_within_its_stated_error() {
        let client: Vec<_> = (0..10).map(|i| call(100 + i, 50_000 * i + 1, 12_800 + 160 * i)).collect();
        let server: Vec<_> = (0..10).map(|i| served(100 + i, 50_000 * i + 1 + 3_200 + 1_000_000, 8_000)).collect();
        let merged = merge(vec![file("c", None, "boron", &client), file("meta0", Some(0), "chlorine", &server)]);
        let clock = &merged.clocks[1];
        let error = clock.error_ns.expect("tied by ten requests");
        // Half of 4 800 ns, and a little for what the clocks may drift in half a millisecond.
        assert!((2_400..2_700).contains(&error) && clock.samples == 10, "{clock:?}");
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
        let given_up = TraceRecord { flags: flags::OPEN, ..call(1, 100, 1_000) };
        let merged = merge(vec![file("meta0", Some(0), "m", &[given_up]), file("meta1", Some(1), "m", &[served(1, 800, 1_600)])]);
        assert_eq!(merged.causality_violations(), 0);
    }

    #[test]
    fn times_that_no_clock_shows_are_put_on_the_line_all_the_same() {
        let late = u64::MAX - 5;
        let client = [call(1, 0, 3_200), call(2, late, DURATION_MAX), call(3, 1 << 63, 160), call(4, 1 << 62, 16)];
        let server = [served(1, late, 1_600), served(2, 3, DURATION_MAX), served(3, 7, 160), served(4, late, 16)];
        for domain in ["m", "another"] {
            let merged = merge(vec![file("c", None, "m", &client), file("meta0", Some(0), domain, &server)]);
            let first = merged.events.iter().map(|event| event.start_ns).min().unwrap_or(0);
            assert!(merged.events.iter().all(|event| (event.end_ns() - first) < 1 << 62), "{domain}: {:?}", merged.clocks);
            assert!(merged.causality_violations() <= 4);
        }
    }

    #[test]
    fn a_third_machine_is_reached_over_the_second() {
        let a = file("a", None, "a", &[call(1, 0, 3_200)]);
        let b = file("b", Some(0), "b", &[served(1, 5_800, 1_600), call(2, 5_900, 1_600)]);
        let c = file("c", Some(1), "c", &[served(2, 90_000, 800)]);
        let merged = merge(vec![a, b, c]);
        assert_eq!(merged.clocks[1].offset_ns, -5_000);
        assert_eq!(merged.clocks[2].offset_ns, -5_000 - (90_400 - 6_700));
        assert!(merged.clocks[2].error_ns.is_some_and(|error| (1_200..1_300).contains(&error)), "{:?}", merged.clocks[2]);
    }

    #[test]
    fn a_node_that_nothing_ties_says_so() {
        let merged = merge(vec![file("a", None, "a", &[call(1, 0, 3_200)]), file("b", Some(0), "b", &[served(7, 5, 160)])]);
        assert_eq!(merged.clocks[1].error_ns, None);
    }
}
