//! The future: events ordered by time, and among equal times by when they were planned.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::ids::{End, NodeId, SlotId};

/// What will happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A wait ends: a sleep or processor work is over, or the deadline of a request has come.
    Timer(SlotId),
    /// A disk operation is done.
    Disk { node: NodeId, operation: u64 },
    /// The first byte of a message reaches the receiver's card.
    Arrive(u32),
    /// A message has been received.
    Deliver(u32),
    /// One end of a connection learns that it is broken.
    Notice { connection: u32, end: End },
    /// A connection attempt is given up if it is still unanswered.
    ConnectTimeout(u32),
    /// A planned fault.
    Fault(u32),
    /// A process starts again, unless something else has happened to its node meanwhile.
    Restart { node: NodeId, epoch: u32 },
    /// A paused node goes on.
    Resume(NodeId),
    /// What filled the disk of a node may be gone.
    SpaceBack(NodeId),
    /// A process looks at what has arrived.
    Look(NodeId),
    /// A client has taken replies from its sockets.
    Taken(NodeId),
}

impl Event {
    /// A word for the trace hash.
    pub(crate) fn code(self) -> u64 {
        match self {
            Event::Timer(slot) => 1 << 56 | u64::from(slot.index),
            Event::Disk { node, operation } => 2 << 56 | u64::from(node.0) << 40 | operation,
            Event::Arrive(message) => 3 << 56 | u64::from(message),
            Event::Deliver(message) => 4 << 56 | u64::from(message),
            Event::Notice { connection, end } => 5 << 56 | (end as u64) << 40 | u64::from(connection),
            Event::ConnectTimeout(connection) => 6 << 56 | u64::from(connection),
            Event::Fault(index) => 7 << 56 | u64::from(index),
            Event::Restart { node, epoch } => 8 << 56 | u64::from(node.0) << 32 | u64::from(epoch),
            Event::Resume(node) => 9 << 56 | u64::from(node.0),
            Event::SpaceBack(node) => 12 << 56 | u64::from(node.0),
            Event::Look(node) => 13 << 56 | u64::from(node.0),
            Event::Taken(node) => 14 << 56 | u64::from(node.0),
        }
    }
}

/// The queue. Timers whose wait is over stay in it as dead entries and are swept out when they are
/// the majority: most requests have a deadline that never comes, and a cancellation must cost
/// nothing.
#[derive(Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Entry>,
    planned: u64,
    dead: usize,
}

struct Entry {
    at: u64,
    order: u64,
    event: Event,
}

/// Below this many dead entries sweeping is not worth it.
const DEAD_MIN: usize = 1024;

impl EventQueue {
    /// Plans `event` for `at` (nanoseconds).
    pub(crate) fn plan(&mut self, at: u64, event: Event) {
        self.planned += 1;
        self.heap.push(Entry { at, order: self.planned, event });
    }

    /// When the next event is due; it may be dead.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// The next event without taking it.
    pub(crate) fn peek(&self) -> Option<Event> {
        self.heap.peek().map(|entry| entry.event)
    }

    /// Takes the next event.
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// A timer in the queue has lost its wait. True if it is time to [`EventQueue::sweep`].
    pub(crate) fn count_dead(&mut self) -> bool {
        self.dead += 1;
        self.dead > DEAD_MIN && self.dead * 2 > self.heap.len()
    }

    /// A dead timer has been taken from the queue.
    pub(crate) fn uncount_dead(&mut self) {
        self.dead = self.dead.saturating_sub(1);
    }

    /// Drops all entries that `is_dead` names.
    pub(crate) fn sweep(&mut self, is_dead: impl Fn(Event) -> bool) {
        self.heap.retain(|entry| !is_dead(entry.event));
        self.dead = 0;
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    /// Reversed, because the heap gives its greatest entry first.
    fn cmp(&self, other: &Entry) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_keep_their_order() {
        let mut queue = EventQueue::default();
        for (at, message) in [(5, 0), (3, 1), (5, 2), (3, 3), (4, 4)] {
            queue.plan(at, Event::Deliver(message));
        }
        let order: Vec<u64> = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event.code() & 0xff).collect();
        assert_eq!(order, [1, 3, 4, 0, 2]);
    }

    #[test]
    fn sweeping_keeps_the_living() {
        let mut queue = EventQueue::default();
        for index in 0..3000 {
            queue.plan(u64::from(index), Event::Timer(SlotId { index, generation: 0 }));
        }
        let mut swept = false;
        for _ in 0..2000 {
            if queue.count_dead() {
                queue.sweep(|event| matches!(event, Event::Timer(slot) if slot.index % 3 != 0));
                swept = true;
            }
        }
        assert!(swept);
        assert_eq!(queue.heap.len(), 1000);
    }
}
