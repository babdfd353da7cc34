//! Rows of the timeline: on each sub-lane of a node ([`super::sublane`]) its spans by row and kind, so that spans of one row never hide one
//! another.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_trace::Kind;
use weft_trace::merge::{Event, Merged};

use super::sublane::{Rows, SubLane, node_order};
use super::tiles::{Bar, Track};

/// More rows than this a sub-lane does not get: the last one takes what is left, and there spans overlap.
pub const ROWS_MAX: usize = 24;

/// What a span is, for colours, legend and filter: the event, and at disks the class of the access.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SpanKind {
    /// The name of the event, as the trace file says it. It may be anything: files come from anywhere.
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
    /// Numbers by node, event and class.
    known: BTreeMap<(usize, u16, u8), (u16, SubLane)>,
}

impl Lanes {
    /// The rows of a trace whose first event begins at `origin`.
    pub fn new(merged: &Merged, origin: i64) -> Lanes {
        let mut numbers: BTreeMap<SpanKind, u16> = BTreeMap::new();
        let mut shelves: BTreeMap<(usize, SubLane), Shelf> = BTreeMap::new();
        // What is asked of every event is looked up once for each kind of them.
        let mut known: BTreeMap<(usize, u16, u8), (u16, SubLane)> = BTreeMap::new();
        for (position, event) in merged.events.iter().enumerate() {
            if !is_span(event) {
                continue;
            }
            let key = key(event);
            let (number, sub_lane) = *known.entry(key).or_insert_with(|| {
                let kind = kind_of(merged, event, key.2);
                let sub_lane = kind.sub_lane;
                let next = numbers.len() as u16;
                (*numbers.entry(kind).or_insert(next), sub_lane)
            });
            let start = (event.start_ns - origin).max(0) as u64;
            let bar = Bar { start, end: start.saturating_add(event.dur_ns), event: position as u32 };
            shelves.entry((event.node, sub_lane)).or_default().put(number, bar);
        }
        let mut kinds: Vec<(u16, SpanKind)> = numbers.into_iter().map(|(kind, number)| (number, kind)).collect();
        kinds.sort();
        let mut lanes: Vec<Lane> = Vec::new();
        for ((node, sub_lane), shelf) in shelves {
            for (row, tracks) in shelf.rows.into_iter().enumerate() {
                let tracks = tracks.into_iter().map(|(kind, bars)| (kind, Track::new(bars))).collect();
                lanes.push(Lane { node, sub_lane, row, overlaps: shelf.overflowed && row + 1 == ROWS_MAX, tracks });
            }
        }
        let order = node_order(merged);
        lanes.sort_by_key(|lane| (order[lane.node], lane.sub_lane, lane.row));
        Lanes { lanes, kinds: kinds.into_iter().map(|(_, kind)| kind).collect(), known }
    }

    /// The number of a span's kind; `None` for records that take no time.
    pub fn kind(&self, event: &Event) -> Option<u16> {
        if is_span(event) { self.known.get(&key(event)).map(|(kind, _)| *kind) } else { None }
    }
}

/// What decides about the kind of an event.
fn key(event: &Event) -> (usize, u16, u8) {
    let class = if SubLane::of(event.record.event) == SubLane::Disk { event.record.class.min(3) } else { 0 };
    (event.node, event.record.event.0, class)
}

/// True if the record took time: a span or a ladder.
pub fn is_span(event: &Event) -> bool {
    matches!(event.record.kind(), Kind::Span | Kind::Ladder)
}

fn kind_of(merged: &Merged, event: &Event, class: u8) -> SpanKind {
    let id = event.record.event;
    let sub_lane = SubLane::of(id);
    let is_operation = matches!(sub_lane, SubLane::Application | SubLane::Gateway | SubLane::Operation);
    SpanKind { name: merged.nodes[event.node].events.name(id), class, sub_lane, is_operation }
}

/// The spans of a sub-lane, on their rows.
#[derive(Default)]
struct Shelf {
    placed: Rows,
    rows: Vec<BTreeMap<u16, Vec<Bar>>>,
    overflowed: bool,
}

impl Shelf {
    fn put(&mut self, kind: u16, bar: Bar) {
        let row = self.placed.place((bar.start, bar.end), ROWS_MAX).unwrap_or_else(|| {
            self.overflowed = true;
            ROWS_MAX - 1
        });
        if row == self.rows.len() {
            self.rows.push(BTreeMap::new());
        }
        self.rows[row].entry(kind).or_default().push(bar);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::sample::{Sample, merged};

    #[test]
    fn spans_of_a_row_never_overlap_and_none_is_lost() {
        let merged = merged(&Sample { operations: 400, ..Sample::default() });
        let lanes = Lanes::new(&merged, merged.events[0].start_ns);
        let mut found = 0;
        for lane in &lanes.lanes {
            let mut bars: Vec<Bar> = lane.tracks.iter().flat_map(|(_, track)| track.bars()).copied().collect();
            bars.sort_by_key(|bar| bar.start);
            found += bars.len();
            assert!(lane.overlaps || bars.is_sorted_by(|a, b| a.end <= b.start), "{lane:?}");
        }
        assert_eq!(found, merged.events.iter().filter(|event| is_span(event)).count());
    }

    #[test]
    fn a_full_shelf_says_that_its_last_row_overlaps() {
        let mut shelf = Shelf::default();
        for number in 0..ROWS_MAX as u64 + 2 {
            shelf.put(0, Bar { start: number, end: 1_000, event: 0 });
        }
        assert!(shelf.overflowed);
        assert_eq!((shelf.rows.len(), shelf.rows[ROWS_MAX - 1][&0].len()), (ROWS_MAX, 3));
    }

    #[test]
    fn clients_come_first_then_metadata_and_data_servers() {
        let merged = merged(&Sample { operations: 40, ..Sample::default() });
        let lanes = Lanes::new(&merged, 0);
        let mut names: Vec<&str> = lanes.lanes.iter().map(|lane| merged.nodes[lane.node].name.as_str()).collect();
        names.dedup();
        assert_eq!(names, ["client0", "client1", "meta0", "meta1", "data0", "data1", "data2", "data3"]);
    }
}
