//! Files of several nodes on one time line, that of the first. Files of one clock domain share a clock; how other clocks stand to it is
//! computed from the requests themselves ([`crate::offsets`]). That is always stated with its error, and never applied silently:
//! [`Merged::clocks`] shows it, and the times without it can be had.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::event::EventTable;
use crate::file::{FileHeader, TraceFile};
pub use crate::offsets::NodeClock;
use crate::offsets::{FourTimes, causality_violations, clocks};
use crate::record::{Body, Record, fine, flags};

/// A record on the common time line.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Beginning in nanoseconds of the reference clock.
    pub start_ns: i64,
    /// Duration in nanoseconds.
    pub dur_ns: u64,
    /// Position of its file among the files.
    pub node: usize,
    /// Ring.
    pub ring: u32,
    /// The record; its times are in ticks of its node.
    pub record: Record,
}

impl Event {
    /// The end in nanoseconds of the reference clock.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add_unsigned(self.dur_ns)
    }
}

/// What is known about a node of a merged trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
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
    pub nodes: Vec<Node>,
    /// Their clocks.
    pub clocks: Vec<NodeClock>,
    /// Everything that was recorded, by beginning.
    pub events: Vec<Event>,
    /// Requests whose server worked on them before they were sent or after they were answered, by more than the clocks' error: on one
    /// machine there must be none.
    pub causality_violations: u64,
}

/// Puts files on one time line, that of the first file.
pub fn merge(files: Vec<TraceFile>) -> Merged {
    let mut merged = Merged::default();
    let domains: Vec<String> = files.iter().map(|file| file.header.clock_domain.clone()).collect();
    for (node, file) in files.into_iter().enumerate() {
        let lost = file.lost();
        let problems = file.problems.iter().map(ToString::to_string).collect();
        for recorded in file.records {
            let end_ticks = recorded.record.t0.saturating_add(recorded.record.duration());
            let start = file.scale.nanos(recorded.record.t0);
            let dur_ns = file.scale.nanos(end_ticks).saturating_sub(start);
            merged.events.push(Event { start_ns: start as i64, dur_ns, node, ring: recorded.ring, record: recorded.record });
        }
        let FileHeader { node, machine, server, events, .. } = file.header;
        merged.nodes.push(Node { name: node, machine, server, events, lost, problems });
    }
    let requests = four_times(&merged.events);
    merged.clocks = clocks(&domains, &spans(&merged), &requests);
    for event in &mut merged.events {
        let clock = &merged.clocks[event.node];
        let end_ns = clock.common(event.end_ns());
        event.start_ns = clock.common(event.start_ns);
        event.dur_ns = end_ns.saturating_sub(event.start_ns).max(0) as u64;
    }
    merged.causality_violations = causality_violations(&domains, &merged.clocks, &requests);
    merged.events.sort_by_key(|event| (event.start_ns, std::cmp::Reverse(event.dur_ns), event.node, event.ring));
    merged
}

/// The first and the last moment that each node has recorded, by its own clock.
fn spans(merged: &Merged) -> Vec<RangeInclusive<i64>> {
    let mut spans: Vec<Option<(i64, i64)>> = vec![None; merged.nodes.len()];
    for event in &merged.events {
        let span = spans[event.node].get_or_insert((event.start_ns, event.end_ns()));
        *span = (span.0.min(event.start_ns), span.1.max(event.end_ns()));
    }
    spans.into_iter().map(|span| span.map_or(0..=0, |(first, last)| first..=last)).collect()
}

/// Pairs of a client's span and a server's ladder with the same key. A request that was repeated or given up has no clear times and is left
/// out.
fn four_times(events: &[Event]) -> Vec<FourTimes> {
    let mut calls: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
    let mut served: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
    for event in events.iter().filter(|event| event.record.req != 0) {
        match &event.record.body {
            Body::Span(span) if event.record.event == crate::event::NET_CALL && span.dur > 0 && event.record.flags & flags::OPEN == 0 => {
                calls.entry(event.record.req).or_default().push(event);
            }
            Body::Ladder(_) if event.record.flags & flags::SERVER != 0 => served.entry(event.record.req).or_default().push(event),
            _ => {}
        }
    }
    let pairs = calls.iter().filter_map(|(key, calls)| match (calls.as_slice(), served.get(key)?.as_slice()) {
        ([call], [ladder]) => Some((*call, *ladder)),
        _ => None,
    });
    pairs
        .map(|(call, ladder)| {
            let Body::Span(span) = &call.record.body else { unreachable!("chosen above") };
            // The wait is in ticks like the duration: their ratio is that of the times.
            let wait_ns = (u128::from(fine(span.wait).min(span.dur)) * u128::from(call.dur_ns) / u128::from(span.dur.max(1))) as i64;
            let (t1, t4) = (call.start_ns + wait_ns, call.end_ns());
            FourTimes { client: call.node, server: ladder.node, t1, t2: ladder.start_ns, t3: ladder.end_ns(), t4 }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event;
    use crate::file::FileWriter;
    use crate::record::{Ladder, Span, coarse};
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
            machine: String::new(),
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
        // Half of 4 800 ns, and a little for what the clocks may drift in half a millisecond.
        assert!((2_400..2_700).contains(&error) && clock.samples == 10, "{clock:?}");
        assert!(clock.offset_ns.abs_diff(-1_000_000) <= error, "{clock:?}");
        assert_eq!(merged.causality_violations, 0);
        assert!(merged.events.is_sorted_by_key(|event| event.start_ns));
    }

    #[test]
    fn one_clock_domain_needs_no_offset_and_shows_every_violation() {
        let good = merge(vec![file("c", None, "m", &[call(1, 100, 1_000)]), file("meta0", Some(0), "m", &[served(1, 200, 800)])]);
        assert_eq!((good.clocks[1].offset_ns, good.clocks[1].error_ns, good.causality_violations), (0, Some(0), 0));
        let bad = merge(vec![file("c", None, "m", &[call(1, 100, 1_000)]), file("meta0", Some(0), "m", &[served(1, 50, 800)])]);
        assert_eq!(bad.causality_violations, 1);
    }

    #[test]
    fn a_request_that_its_sender_gave_up_violates_nothing() {
        let given_up = Record { flags: flags::OPEN, ..call(1, 100, 1_000) };
        let merged = merge(vec![file("meta0", Some(0), "m", &[given_up]), file("meta1", Some(1), "m", &[served(1, 800, 1_600)])]);
        assert_eq!(merged.causality_violations, 0);
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
