//! All records of several files on one time line. They stay as they lie in their files; beside each
//! are its beginning and duration, by which the records of a node are sorted. A record is known by
//! its position: those of the first node come first, by time, then those of the second. Who wants
//! all of them by time gets them so ([`Events::in_order`]); most questions are about one node.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::file::{Brief, Sort, TraceRecords};
use crate::merge::Each;
use crate::record::{TraceRecord, Words, flags};
use crate::time_order;

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
    pub record: TraceRecord,
}

impl Event {
    /// The end in nanoseconds of the reference clock.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add_unsigned(self.dur_ns)
    }
}

/// The order of time: beginning, the longer first, then by node and ring, and as they lie in the
/// file.
pub type Order = (i64, Reverse<u64>, u32);

/// Records that are searched before it is looked whether another node was faster.
const SEARCHED_BETWEEN: u32 = 1024;

/// The order before everything that begins at `ns` or later.
pub fn before(ns: i64) -> Order {
    (ns, Reverse(u64::MAX), 0)
}

/// The records of several nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Events {
    nodes: Vec<OfNode>,
    /// By node, one behind the position of its last record.
    ends: Vec<u32>,
}

/// The records of one node.
#[derive(Clone, Debug, PartialEq)]
struct OfNode {
    records: TraceRecords,
    /// By time.
    briefs: Vec<Brief>,
}

impl Events {
    /// Adds a node whose briefs are in nanoseconds already and sorted.
    pub(crate) fn push(&mut self, records: TraceRecords, briefs: Vec<Brief>) {
        let end = u32::try_from(self.len() + briefs.len()).expect("memory holds fewer records");
        self.ends.push(end);
        self.nodes.push(OfNode { records, briefs });
    }

    /// Changes the times of a node by a function that rises.
    pub(crate) fn shift(&mut self, node: usize, time: impl Fn(i64) -> i64) {
        let OfNode { records, briefs } = &mut self.nodes[node];
        for brief in briefs.iter_mut() {
            let end = time(brief.start.saturating_add_unsigned(brief.dur));
            brief.start = time(brief.start);
            brief.dur = end.saturating_sub(brief.start).max(0) as u64;
        }
        // What began at two times may now begin at one.
        time_order::sort(briefs, &mut Vec::new(), |unit| records.ring(unit));
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.last().map_or(0, |end| *end as usize)
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Positions of the records of a node, by time.
    pub fn of_node(&self, node: usize) -> Range<u32> {
        self.first(node)..self.ends[node]
    }

    #[inline]
    fn first(&self, node: usize) -> u32 {
        node.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// The node of a record.
    #[inline]
    pub fn node(&self, position: u32) -> usize {
        self.ends.partition_point(|end| *end <= position)
    }

    /// A record, or `None` if there is none at this position.
    pub fn get(&self, position: u32) -> Option<Event> {
        ((position as usize) < self.len()).then(|| self.event(position))
    }

    /// A record.
    ///
    /// # Panics
    /// If there is none at this position; the same holds below.
    #[inline]
    pub fn event(&self, position: u32) -> Event {
        let (node, brief) = self.place(position);
        let records = &self.nodes[node].records;
        Event { start_ns: brief.start, dur_ns: brief.dur, node, ring: records.ring(brief.unit), record: records.record(brief.unit) }
    }

    /// What a record has in common with others.
    #[inline]
    pub fn sort(&self, position: u32) -> Sort {
        let (node, brief) = self.place(position);
        self.nodes[node].records.sorts()[brief.sort as usize]
    }

    /// The number of that among the sorts of its node ([`Times::sorts`]).
    #[inline]
    pub fn sort_number(&self, position: u32) -> u32 {
        self.place(position).1.sort
    }

    /// True if the record says that something failed.
    pub fn is_failed(&self, position: u32) -> bool {
        let head = self.words(position)[2];
        (head >> 48) as u8 != 0 || (head >> 32) as u16 & flags::ERROR != 0
    }

    /// The request of a record, or what its event says in this place.
    pub fn request(&self, position: u32) -> u64 {
        self.words(position)[1]
    }

    /// The bits of a record.
    #[inline]
    pub(crate) fn words(&self, position: u32) -> Words {
        let (node, brief) = self.place(position);
        self.nodes[node].records.words(brief.unit)
    }

    /// Beginning in nanoseconds of the reference clock.
    #[inline]
    pub fn start_ns(&self, position: u32) -> i64 {
        self.place(position).1.start
    }

    /// Duration in nanoseconds.
    #[inline]
    pub fn dur_ns(&self, position: u32) -> u64 {
        self.place(position).1.dur
    }

    /// The end in nanoseconds of the reference clock.
    #[inline]
    pub fn end_ns(&self, position: u32) -> i64 {
        let brief = self.place(position).1;
        brief.start.saturating_add_unsigned(brief.dur)
    }

    /// Its place in time among all.
    #[inline]
    pub fn order(&self, position: u32) -> Order {
        let brief = self.place(position).1;
        (brief.start, Reverse(brief.dur), position)
    }

    #[inline]
    fn place(&self, position: u32) -> (usize, &Brief) {
        let node = self.node(position);
        (node, &self.nodes[node].briefs[(position - self.first(node)) as usize])
    }

    /// The records of one node one after the other.
    pub fn node_times(&self, node: usize) -> Times<'_> {
        let OfNode { records, briefs } = &self.nodes[node];
        Times { first: self.first(node), briefs, sorts: records.sorts(), records }
    }

    /// All records by time.
    pub fn iter(&self) -> impl Iterator<Item = Event> {
        self.in_order().map(|position| self.event(position))
    }

    /// The positions of all records by time.
    pub fn in_order(&self) -> impl Iterator<Item = u32> {
        self.from(before(i64::MIN))
    }

    /// The positions of the records that are not before `order`, by time.
    pub fn from(&self, order: Order) -> impl Iterator<Item = u32> {
        // For each node the record that comes next.
        let next = |position: u32, end: u32| (position < end).then(|| Reverse((self.order(position), end)));
        let firsts = (0..self.nodes.len()).filter_map(|node| next(self.first_from(node, order), self.ends[node]));
        let mut heads: BinaryHeap<_> = firsts.collect();
        std::iter::from_fn(move || {
            let mut head = heads.peek_mut()?;
            let Reverse(((_, _, position), end)) = *head;
            match next(position + 1, end) {
                Some(later) => *head = later,
                None => drop(std::collections::binary_heap::PeekMut::pop(head)),
            }
            Some(position)
        })
    }

    /// Of the records after `order` (or before it: `back`) that hold the nearest; nodes are
    /// searched one after the other or at the same time, as `each` does it.
    pub fn find(&self, order: Order, back: bool, holds: impl Fn(u32) -> bool + Sync, each: Each<'_>) -> Option<u32> {
        let nearest: Mutex<Option<Order>> = Mutex::new(None);
        let known = || *nearest.lock().unwrap_or_else(PoisonError::into_inner);
        each(self.nodes.len(), &|node| {
            let (first, here, end) = (self.first(node), self.first_from(node, order), self.ends[node]);
            let is_farther = |position: u32, known: Order| if back { self.order(position) < known } else { self.order(position) > known };
            let count = if back { here - first } else { end - here };
            for step in 0..count {
                let position = if back { here - 1 - step } else { here + step };
                // Another node may have found a nearer one meanwhile.
                if step % SEARCHED_BETWEEN == 0 && known().is_some_and(|known| is_farther(position, known)) {
                    return;
                }
                if self.order(position) != order && holds(position) {
                    let mut nearest = nearest.lock().unwrap_or_else(PoisonError::into_inner);
                    if nearest.is_none_or(|known| !is_farther(position, known)) {
                        *nearest = Some(self.order(position));
                    }
                    return;
                }
            }
        });
        known().map(|(_, _, position)| position)
    }

    /// Position of the first record of a node that is not before `order`, or the end of the node.
    fn first_from(&self, node: usize, order: Order) -> u32 {
        let first = self.first(node);
        let briefs = &self.nodes[node].briefs;
        // Equal times within a node are in the order of positions already.
        let (mut low, mut high) = (0, briefs.len());
        while low < high {
            let middle = (low + high) / 2;
            let brief = &briefs[middle];
            if (brief.start, Reverse(brief.dur), first + middle as u32) < order { low = middle + 1 } else { high = middle }
        }
        first + low as u32
    }
}

/// The records of one node, for loops over all of them.
#[derive(Clone, Copy, Debug)]
pub struct Times<'a> {
    first: u32,
    briefs: &'a [Brief],
    sorts: &'a [Sort],
    records: &'a TraceRecords,
}

/// One of [`Times`].
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Position of the record.
    pub position: u32,
    /// Beginning in nanoseconds of the reference clock.
    pub start_ns: i64,
    /// Duration in nanoseconds.
    pub dur_ns: u64,
    /// Its number among [`Times::sorts`].
    pub sort: u32,
}

impl<'a> Times<'a> {
    /// The sorts of records of this node.
    pub fn sorts(&self) -> &'a [Sort] {
        self.sorts
    }

    /// How many records the node has.
    pub fn len(&self) -> usize {
        self.briefs.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.briefs.is_empty()
    }

    /// The records by time.
    pub fn iter(&self) -> impl Iterator<Item = Time> + use<'a> {
        let first = self.first;
        let time = move |(number, brief): (u32, &Brief)| Time {
            position: first + number,
            start_ns: brief.start,
            dur_ns: brief.dur,
            sort: brief.sort,
        };
        (0u32..).zip(self.briefs).map(time)
    }

    /// Beginning and duration of the record at a position of this node, in nanoseconds.
    #[inline]
    pub fn at(&self, position: u32) -> (i64, u64) {
        let brief = &self.briefs[(position - self.first) as usize];
        (brief.start, brief.dur)
    }

    /// The record at a position of this node.
    #[inline]
    pub fn record(&self, position: u32) -> TraceRecord {
        self.records.record(self.briefs[(position - self.first) as usize].unit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::DISK_READ;
    use crate::merge::in_turn;
    use crate::record::{Body, Span};

    /// Nodes with spans of these beginnings and durations.
    fn events(nodes: &[Vec<(i64, u64)>]) -> Events {
        let mut events = Events::default();
        for times in nodes {
            let record = |(number, (start, dur)): (usize, &(i64, u64))| crate::file::Recorded {
                ring: number as u32 % 2,
                number: number as u64,
                record: TraceRecord::new(*start as u64, DISK_READ, Body::Span(Span { dur: *dur, ..Span::default() })),
            };
            let mut records: TraceRecords = times.iter().enumerate().map(record).collect();
            let mut briefs = records.take_briefs();
            time_order::sort(&mut briefs, &mut Vec::new(), |unit| records.ring(unit));
            events.push(records, briefs);
        }
        events
    }

    proptest! {
        #[test]
        fn all_by_time_and_a_search_from_any_place_are_those_of_a_plain_sort(
            nodes in prop::collection::vec(prop::collection::vec((0i64..40, 0u64..4), 0..60), 0..5),
            at in 0i64..45,
            place in any::<prop::sample::Index>(),
        ) {
            let events = events(&nodes);
            let mut plain: Vec<u32> = (0..events.len() as u32).collect();
            plain.sort_by_key(|position| {
                let event = events.event(*position);
                (event.start_ns, Reverse(event.dur_ns), event.node, event.ring, event.record.t0)
            });
            prop_assert_eq!(events.in_order().collect::<Vec<_>>(), plain.clone());
            let somewhere = if plain.is_empty() { before(at) } else { events.order(plain[place.index(plain.len())]) };
            for order in [before(at), somewhere] {
                let (earlier, later): (Vec<u32>, Vec<u32>) = plain.iter().partition(|position| events.order(**position) < order);
                prop_assert_eq!(&events.from(order).collect::<Vec<_>>(), &later);
                let holds = |position: u32| events.dur_ns(position) == 2;
                let ahead = later.iter().copied().find(|position| holds(*position) && events.order(*position) != order);
                prop_assert_eq!(events.find(order, false, holds, &in_turn), ahead);
                prop_assert_eq!(events.find(order, true, holds, &in_turn), earlier.into_iter().rfind(|position| holds(*position)));
            }
        }
    }
}
