//! Rows of the timeline: on each sub-lane of a node ([`crate::sublane`]) its spans by row and kind,
//! so that spans of one row never hide one another.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use weft_trace::event::{LOAD_DEVICES, LOAD_HOST, LOAD_MEMORY};
use weft_trace::events::{Events, Times};
use weft_trace::file::Sort;
use weft_trace::merge::{Each, Event, Merged, TracedNode, gathered};
use weft_trace::{EventId, EventKind};

use crate::sublane::{Shelf, SubLane, node_order};
use crate::tiles::{Bar, Bars, Track};

/// More rows than this a sub-lane does not get: the last one takes what is left, and there spans
/// overlap.
pub const ROWS_MAX: usize = 24;

/// What a span is, for colours, legend and filter: the event, and at disks the class of the access.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SpanKind {
    /// The name of the event, as the trace file says it. It may be anything: files come from
    /// anywhere.
    pub name: String,
    /// 0: no class; 1 no seek, 2 near seek, 3 far seek.
    pub class: u8,
    /// Where it is drawn.
    pub sub_lane: SubLane,
    /// True for operations of applications, gateways, clients and servers: what latency is about.
    pub is_operation: bool,
}

impl SpanKind {
    /// The name, and at disks the class of the access.
    pub fn title(&self) -> String {
        let class = ["", ", no seek", ", near seek", ", far seek"][usize::from(self.class.min(3))];
        format!("{}{class}", self.name)
    }
}

/// One row of spans.
#[derive(Debug)]
pub struct Lane {
    /// Position of the node.
    pub node: usize,
    /// The part of the node.
    pub sub_lane: SubLane,
    /// Number within the sub-lane.
    pub row: usize,
    /// Spans of this row may overlap.
    pub overlaps: bool,
    /// By kind.
    pub tracks: Vec<(u16, Track)>,
}

/// All rows and kinds of a trace.
#[derive(Debug, Default)]
pub struct Lanes {
    /// By node, sub-lane and row; clients first.
    pub lanes: Vec<Lane>,
    /// By number.
    pub kinds: Vec<SpanKind>,
    /// By node, for each sort of record its kind and where it is drawn; nothing for what takes no
    /// time.
    known: Vec<Vec<Option<Place>>>,
    /// Positions of marks, by time.
    pub marks: Vec<u32>,
    /// Positions of gauges, by node and time.
    pub gauges: Vec<u32>,
    /// Nanoseconds from the origin to the end of the last record.
    pub end_ns: u64,
}

/// The number of a kind, and its sub-lane.
type Place = (u16, SubLane);

impl Lanes {
    /// The rows of a trace whose first record begins at `origin`; nodes are looked at one after the
    /// other or at the same time, as `each` does it.
    pub fn new(merged: &Merged, origin: i64, each: Each<'_>) -> Lanes {
        let mut lanes = Lanes::default();
        let mut numbers: BTreeMap<SpanKind, u16> = BTreeMap::new();
        for (node, about) in merged.nodes.iter().enumerate() {
            let place = |sort: &Sort| {
                matches!(sort.kind, EventKind::Span | EventKind::StagedSpan).then(|| {
                    let kind = kind_of(about, *sort);
                    let (sub_lane, next) = (kind.sub_lane, numbers.len() as u16);
                    (*numbers.entry(kind).or_insert(next), sub_lane)
                })
            };
            lanes.known.push(merged.events.node_times(node).sorts().iter().map(place).collect());
        }
        let mut kinds: Vec<(u16, SpanKind)> = numbers.into_iter().map(|(kind, number)| (number, kind)).collect();
        kinds.sort();
        lanes.kinds = kinds.into_iter().map(|(_, kind)| kind).collect();

        let of_node = |node: usize| OfNode::new(node, Spans { times: merged.events.node_times(node), origin }, &lanes.known[node]);
        for found in gathered(each, merged.nodes.len(), of_node) {
            lanes.lanes.extend(found.lanes);
            lanes.marks.extend(found.marks);
            lanes.gauges.extend(found.gauges);
            lanes.end_ns = lanes.end_ns.max(found.end_ns);
        }
        once_for_each_machine(merged, &mut lanes.gauges);
        let order = node_order(merged);
        lanes.lanes.sort_by_key(|lane| (order[lane.node], lane.sub_lane, lane.row));
        lanes.marks.sort_by_key(|mark| merged.events.order(*mark));
        lanes
    }

    /// The number of a span's kind; `None` for records that take no time.
    pub fn kind(&self, events: &Events, position: u32) -> Option<u16> {
        let node = events.node(position);
        self.known[node][events.sort_number(position) as usize].map(|(kind, _)| kind)
    }
}

/// The spans of one node by their positions.
#[derive(Clone, Copy, Debug)]
pub struct Spans<'a> {
    /// The records of the node.
    pub times: Times<'a>,
    /// Nanoseconds of the reference clock from which times count.
    pub origin: i64,
}

impl Spans<'_> {
    fn at(&self, event: u32, (start_ns, dur_ns): (i64, u64)) -> Bar {
        let start = (start_ns - self.origin).max(0) as u64;
        Bar { start, end: start.saturating_add(dur_ns), event }
    }
}

impl Bars for Spans<'_> {
    fn bar(&self, event: u32) -> Bar {
        self.at(event, self.times.at(event))
    }
}

/// All processes of a machine record what the machine does: of each such gauge those are kept that
/// the process with most of them has.
fn once_for_each_machine(merged: &Merged, gauges: &mut Vec<u32>) {
    let of_machine = |position: u32| {
        let (node, event) = (merged.events.node(position), merged.events.sort(position).event);
        let machine = merged.nodes[node].machine.as_str();
        (matches!(event, LOAD_HOST | LOAD_MEMORY | LOAD_DEVICES) && !machine.is_empty()).then_some(((machine, event), node))
    };
    let mut counts: BTreeMap<(&str, EventId), BTreeMap<usize, u32>> = BTreeMap::new();
    for (of, node) in gauges.iter().filter_map(|position| of_machine(*position)) {
        *counts.entry(of).or_default().entry(node).or_default() += 1;
    }
    // Of several with as many the first one.
    let most = |nodes: BTreeMap<usize, u32>| nodes.into_iter().max_by_key(|(node, count)| (*count, Reverse(*node))).map(|(node, _)| node);
    let kept: BTreeMap<(&str, EventId), Option<usize>> = counts.into_iter().map(|(of, nodes)| (of, most(nodes))).collect();
    gauges.retain(|position| of_machine(*position).is_none_or(|(of, node)| kept[&of] == Some(node)));
}

/// What is found out about one node.
#[derive(Default)]
struct OfNode {
    lanes: Vec<Lane>,
    marks: Vec<u32>,
    gauges: Vec<u32>,
    end_ns: u64,
}

impl OfNode {
    fn new(node: usize, spans: Spans<'_>, known: &[Option<Place>]) -> OfNode {
        let mut of_node = OfNode::default();
        let mut sub_lanes: Vec<SubLane> = known.iter().flatten().map(|(_, sub_lane)| *sub_lane).collect();
        sub_lanes.sort();
        sub_lanes.dedup();
        let mut shelves: Vec<KindShelf> = sub_lanes.iter().map(|_| KindShelf::default()).collect();
        let shelf_of = |place: &Option<Place>| place.and_then(|(kind, sub_lane)| Some((kind, sub_lanes.binary_search(&sub_lane).ok()?)));
        let places: Vec<Option<(u16, usize)>> = known.iter().map(shelf_of).collect();
        for time in spans.times.iter() {
            let bar = spans.at(time.position, (time.start_ns, time.dur_ns));
            match places[time.sort as usize] {
                Some((kind, shelf)) => put(&mut shelves[shelf], kind, bar),
                None => match spans.times.sorts()[time.sort as usize].kind {
                    EventKind::Mark => of_node.marks.push(time.position),
                    EventKind::Counter => of_node.gauges.push(time.position),
                    // The recorder's own records about clocks and losses do not stretch the time
                    // line.
                    _ => continue,
                },
            }
            of_node.end_ns = of_node.end_ns.max(bar.end);
        }
        of_node.lanes = sub_lanes.into_iter().zip(shelves).flat_map(|(sub_lane, shelf)| lanes_of_shelf(node, sub_lane, shelf)).collect();
        of_node
    }
}

/// True if the record took time: a span or a staged span.
pub fn is_span(event: &Event) -> bool {
    matches!(event.record.kind(), EventKind::Span | EventKind::StagedSpan)
}

fn kind_of(node: &TracedNode, sort: Sort) -> SpanKind {
    let sub_lane = SubLane::of(sort.event);
    let is_operation = matches!(sub_lane, SubLane::Application | SubLane::Gateway | SubLane::Operation);
    let class = if sub_lane == SubLane::Disk { sort.class.min(3) } else { 0 };
    SpanKind { name: node.events.name(sort.event), class, sub_lane, is_operation }
}

/// The spans of a sub-lane: by row and kind.
pub(crate) type KindShelf = Shelf<Vec<(u16, Vec<Bar>)>>;

/// The lanes of a sub-lane of a node.
pub(crate) fn lanes_of_shelf(node: usize, sub_lane: SubLane, shelf: KindShelf) -> impl Iterator<Item = Lane> {
    let overflowed = shelf.overflowed;
    shelf.rows.into_iter().enumerate().map(move |(row, tracks)| {
        let tracks = tracks.into_iter().map(|(kind, bars)| (kind, Track::new(&bars))).collect();
        Lane { node, sub_lane, row, overlaps: overflowed && row + 1 == ROWS_MAX, tracks }
    })
}

/// Puts a span on the lowest free row of its sub-lane; spans come by their beginnings.
pub(crate) fn put(shelf: &mut KindShelf, kind: u16, bar: Bar) {
    let row = shelf.row((bar.start, bar.end), ROWS_MAX);
    let tracks = &mut shelf.rows[row];
    match tracks.iter_mut().find(|(other, _)| *other == kind) {
        Some((_, bars)) => bars.push(bar),
        None => tracks.push((kind, vec![bar])),
    }
}

#[cfg(test)]
mod tests {
    use weft_trace::merge::in_turn;

    use super::*;
    use crate::sample::{Sample, merged};

    #[test]
    fn spans_of_a_row_never_overlap_and_none_is_lost() {
        let merged = merged(&Sample { operations: 400, ..Sample::default() });
        let lanes = Lanes::new(&merged, 0, &in_turn);
        let mut found = 0;
        for lane in &lanes.lanes {
            let spans = Spans { times: merged.events.node_times(lane.node), origin: 0 };
            let mut bars: Vec<Bar> = lane.tracks.iter().flat_map(|(_, track)| track.bars(&spans)).collect();
            bars.sort_by_key(|bar| bar.start);
            found += bars.len();
            assert!(lane.overlaps || bars.is_sorted_by(|a, b| a.end <= b.start), "{lane:?}");
        }
        assert_eq!(found, merged.events.iter().filter(is_span).count());
    }

    #[test]
    fn a_full_shelf_says_that_its_last_row_overlaps() {
        let mut shelf = KindShelf::default();
        for number in 0..ROWS_MAX as u64 + 2 {
            put(&mut shelf, 0, Bar { start: number, end: 1_000, event: 0 });
        }
        assert!(shelf.overflowed);
        assert_eq!((shelf.rows.len(), shelf.rows[ROWS_MAX - 1][0].1.len()), (ROWS_MAX, 3));
    }

    #[test]
    fn what_several_processes_recorded_of_their_machine_is_there_once() {
        use weft_trace::file::{FileHeader, FileWriter, TraceFile};
        use weft_trace::record::{Body, TraceRecord};
        use weft_trace::{Anchor, Batch, EventTable, event};
        let file = |node: &str, machine: &str, looks: u64| {
            let header = FileHeader {
                node: node.into(),
                server: None,
                process: 1,
                clock: "virtual".into(),
                clock_domain: "test".into(),
                anchor: Anchor::default(),
                events: EventTable::builtin(),
                machine: machine.into(),
            };
            let gauges =
                |at| [event::LOAD_HOST, event::LOAD_PROCESSOR].map(|id| TraceRecord::new(at, id, Body::Counter([at; 5])).to_words());
            let (mut writer, mut bytes) = FileWriter::begin(&header);
            writer.batch(&Batch { ring: 0, first: 0, records: (0..looks).flat_map(gauges).collect() }, &mut bytes);
            writer.end(&mut bytes);
            TraceFile::read(&bytes).expect("written just now")
        };
        // Two of one machine, one of another, and one of a file that does not say it.
        let files = [file("a", "m", 3), file("b", "m", 5), file("c", "n", 2), file("d", "", 1)];
        let merged = weft_trace::merge::merge(files.into());
        let lanes = Lanes::new(&merged, 0, &in_turn);
        let of = |event| {
            let of_event = lanes.gauges.iter().filter(|position| merged.events.sort(**position).event == event);
            let nodes: Vec<&str> = of_event.map(|position| merged.nodes[merged.events.node(*position)].name.as_str()).collect();
            ["a", "b", "c", "d"].map(|name| nodes.iter().filter(|node| **node == name).count())
        };
        assert_eq!((of(event::LOAD_HOST), of(event::LOAD_PROCESSOR)), ([0, 5, 2, 1], [3, 5, 2, 1]));
    }

    #[test]
    fn clients_come_first_then_metadata_and_data_servers() {
        let merged = merged(&Sample { operations: 40, ..Sample::default() });
        let lanes = Lanes::new(&merged, 0, &in_turn);
        let mut names: Vec<&str> = lanes.lanes.iter().map(|lane| merged.nodes[lane.node].name.as_str()).collect();
        names.dedup();
        assert_eq!(names, ["client0", "client1", "meta0", "meta1", "data0", "data1", "data2", "data3"]);
    }
}
