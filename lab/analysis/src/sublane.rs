//! The sub-lanes of a node, and the rows on which spans lie that run at once: the one layout of the
//! page ([`Shelf`], for millions of spans), of pictures, reports and exports ([`Layout`]).

use std::collections::BTreeMap;

use serde::Serialize;
use weft_trace::EventId;
use weft_trace::event::{DATA_TURN, FUSE_REPLY, META_TURN, NET_RECEIVE, NET_SEND};
use weft_trace::merge::Merged;

/// A part of a node's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SubLane {
    /// Calls of applications.
    Application,
    /// Requests of the kernel.
    Gateway,
    /// Operations of a client, requests at a server.
    Operation,
    /// Waiting inside an operation, and the hand-over of its answer to the kernel.
    Wait,
    /// Requests under way, from the submission to the reply.
    Calls,
    /// Sends on sockets.
    Sent,
    /// Receives from sockets.
    Received,
    /// Turns of a server's loop.
    Turn,
    /// The journal.
    Journal,
    /// Disk accesses.
    Disk,
    /// Events that this program does not know.
    Other,
}

const DISK_LAYER: usize = 7;
/// Codes of the client's layer from which on they say what happens inside an operation.
const CLIENT_INSIDE: u16 = 32;

impl SubLane {
    /// Where an event is shown.
    pub fn of(id: EventId) -> SubLane {
        match id.layer() {
            0 => SubLane::Application,
            // It is inside the request that it answers, which would count twice.
            _ if id == FUSE_REPLY => SubLane::Wait,
            1 => SubLane::Gateway,
            2 if id.0 & 63 >= CLIENT_INSIDE => SubLane::Wait,
            _ if id == META_TURN || id == DATA_TURN => SubLane::Turn,
            2 | 4 | 5 => SubLane::Operation,
            _ if id == NET_SEND => SubLane::Sent,
            _ if id == NET_RECEIVE => SubLane::Received,
            3 => SubLane::Calls,
            6 => SubLane::Journal,
            DISK_LAYER => SubLane::Disk,
            _ => SubLane::Other,
        }
    }

    /// For people, file names and columns.
    pub fn name(self) -> &'static str {
        match self {
            SubLane::Application => "application",
            SubLane::Gateway => "gateway",
            SubLane::Operation => "operation",
            SubLane::Wait => "wait",
            SubLane::Calls => "calls",
            SubLane::Sent => "sent",
            SubLane::Received => "received",
            SubLane::Turn => "turn",
            SubLane::Journal => "journal",
            SubLane::Disk => "disk",
            SubLane::Other => "other",
        }
    }
}

/// The class of a disk access; empty for everything else.
pub fn class_name(id: EventId, class: u8) -> &'static str {
    if SubLane::of(id) == SubLane::Disk { ["", "no seek", "near seek", "far seek"][usize::from(class.min(3))] } else { "" }
}

/// For each node its place on the page: clients, metadata servers, data servers, each by name.
pub fn node_order(merged: &Merged) -> Vec<usize> {
    let mut order = vec![0; merged.nodes.len()];
    for (place, node) in nodes_in_order(merged).into_iter().enumerate() {
        order[node] = place;
    }
    order
}

/// Nodes: clients, metadata servers, data servers, each by name.
pub fn nodes_in_order(merged: &Merged) -> Vec<usize> {
    let mut nodes: Vec<usize> = (0..merged.nodes.len()).collect();
    nodes.sort_by_key(|node| (merged.nodes[*node].server, &merged.nodes[*node].name));
    nodes
}

/// Rows of one sub-lane, filled up from the lowest: spans of one row do not overlap.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// For each row the end of its last span.
    ends: Vec<u64>,
}

impl Rows {
    /// The lowest row that is free when a span begins; spans come by their beginnings. If all of
    /// `rows_max` rows are taken, nothing, and the last one shall hold the span, on another one.
    pub fn place(&mut self, (start, end): (u64, u64), rows_max: usize) -> Option<usize> {
        let free = self.ends.iter().position(|end| *end <= start);
        let row = free.unwrap_or(self.ends.len());
        // A span without length takes its nanosecond, or two of them would lie on each other.
        let end = end.max(start + 1);
        if row == rows_max {
            let last = self.ends.last_mut()?;
            *last = end.max(*last);
            return None;
        }
        self.ends.resize(self.ends.len().max(row + 1), 0);
        self.ends[row] = end;
        Some(row)
    }
}

/// The rows of one sub-lane with what lies on each.
#[derive(Clone, Debug)]
pub struct Shelf<T> {
    placed: Rows,
    /// From the lowest.
    pub rows: Vec<T>,
    /// Spans of the last row may overlap.
    pub overflowed: bool,
}

impl<T> Default for Shelf<T> {
    fn default() -> Shelf<T> {
        Shelf { placed: Rows::default(), rows: Vec::new(), overflowed: false }
    }
}

impl<T: Default> Shelf<T> {
    /// The row for a span, one of at most `rows_max`; spans come by their beginnings.
    pub fn row(&mut self, span: (u64, u64), rows_max: usize) -> usize {
        let row = self.placed.place(span, rows_max).unwrap_or_else(|| {
            self.overflowed = true;
            rows_max - 1
        });
        if row == self.rows.len() {
            self.rows.push(T::default());
        }
        row
    }
}

/// A row of a sub-lane of a node, with what lies on it.
#[derive(Clone, Debug)]
pub struct Laid<T> {
    /// Position of the node.
    pub node: usize,
    /// The part of the node.
    pub sub_lane: SubLane,
    /// Number within the sub-lane, from 0.
    pub row: usize,
    /// In the order in which it was put there.
    pub items: Vec<T>,
}

/// By place of the node on the page: its number, and what lies there.
type Shelves<T> = BTreeMap<(usize, SubLane), (usize, Shelf<Vec<T>>)>;

/// Spans on the lanes of their nodes, so that no two of a row overlap.
pub struct Layout<T> {
    order: Vec<usize>,
    shelves: Shelves<T>,
}

impl<T> Layout<T> {
    /// No spans yet.
    pub fn new(merged: &Merged) -> Layout<T> {
        Layout { order: node_order(merged), shelves: BTreeMap::new() }
    }

    /// Puts something where its span belongs; spans come by their beginnings.
    pub fn put(&mut self, (node, sub_lane): (usize, SubLane), span: (u64, u64), item: T) {
        let (_, shelf) = self.shelves.entry((self.order[node], sub_lane)).or_insert_with(|| (node, Shelf::default()));
        let row = shelf.row(span, usize::MAX);
        shelf.rows[row].push(item);
    }

    /// All rows from above: clients first, by sub-lane and row.
    pub fn lanes(self) -> impl Iterator<Item = Laid<T>> {
        self.shelves.into_iter().flat_map(|((_, sub_lane), (node, shelf))| {
            shelf.rows.into_iter().enumerate().map(move |(row, items)| Laid { node, sub_lane, row, items })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each span lies on the lowest row on which it overlaps nothing, as a look at all rows
        /// says.
        #[test]
        fn a_span_lies_on_the_lowest_free_row(mut spans in proptest::collection::vec((0u64..500, 0u64..60), 1..120)) {
            spans.sort_unstable();
            let mut rows = Rows::default();
            let mut placed: Vec<(usize, u64, u64)> = Vec::new();
            for (start, length) in spans {
                let end = start + length.max(1);
                let row = rows.place((start, start + length), usize::MAX).unwrap();
                let is_free = |row: usize| !placed.iter().any(|(other, _, until)| *other == row && *until > start);
                prop_assert!(is_free(row) && (0..row).all(|lower| !is_free(lower)));
                placed.push((row, start, end));
            }
        }
    }

    #[test]
    fn full_rows_say_so() {
        let mut rows = Rows::default();
        assert_eq!([0, 0, 1].map(|start| rows.place((start, 9), 2)), [Some(0), Some(1), None]);
        assert_eq!(rows.place((9, 10), 2), Some(0), "the last row was taken until 9, the first is lower");
    }
}
