//! What the records of one node say: its requests, accesses to its disk, and who belongs to whom.

use weft_base::FastMap;

use super::Storage;
use crate::event::{
    CLIENT_AHEAD, CLIENT_LOCK, CLIENT_PAUSE, CLIENT_WINDOW, DATA_TURN, DISK_JOB, DISK_SYNC, DISK_WRITE, JOURNAL_COMMIT, JOURNAL_SYNC,
    META_TURN, NET_CALL,
};
use crate::events::Events;
use crate::merge::Merged;
use crate::record::{Body, flags};
use crate::{EventId, EventKind};

/// Layers of applications, gateways and client libraries; see the table of events.
const CLIENT_LAYERS: std::ops::RangeInclusive<usize> = 0..=2;
pub(super) const APPLICATION_LAYER: usize = 0;
/// The layers whose spans name a thread in `req`.
const THREAD_LAYERS: std::ops::RangeInclusive<usize> = 0..=1;
const DISK_LAYER: usize = 7;

/// Beginning and end in nanoseconds of the reference clock.
pub(super) type Interval = (i64, i64);

/// The turns of a server's loop, by beginning.
#[derive(Debug, Default)]
pub(super) struct Turns(pub(super) Vec<Interval>);

impl Turns {
    /// True if the interval lies within a turn.
    pub fn enclose(&self, (start_ns, end_ns): Interval) -> bool {
        let after = self.0.partition_point(|turn| turn.0 <= start_ns);
        self.0[..after].last().is_some_and(|turn| end_ns <= turn.1)
    }
}

/// What the storage of a node did for several requests, by beginning; and the longest of it in
/// nanoseconds: how far back one may begin that is still running.
#[derive(Debug, Default)]
pub(super) struct Busy {
    pub(super) all: Vec<Interval>,
    pub(super) longest_ns: u64,
}

/// What concerns one node.
#[derive(Default)]
pub(super) struct OfNode {
    /// Server records by request.
    pub(super) staged_spans: Vec<(u64, u32)>,
    /// Disk accesses by request and time; request 0: for several requests.
    pub(super) disks: Vec<(u64, u32)>,
    pub(super) storage: [Busy; Storage::ALL.len()],
    pub(super) turns: Turns,
    pub(super) calls: Vec<u32>,
    /// Parent and child.
    pub(super) children: Vec<(u32, u32)>,
    /// Outermost operations, by beginning.
    pub(super) roots: Vec<u32>,
    /// Spans that name a thread, each with the parent that it names itself.
    pub(super) of_threads: Vec<(u32, Option<u32>)>,
    /// Requests of a client whose operation has no record.
    pub(super) orphans: u64,
    /// Requests that nobody has answered: given up, or still under way at the end.
    pub(super) open_calls: Vec<u32>,
    /// When each server last answered this node.
    pub(super) answered: FastMap<u16, i64>,
    /// From the first to the last record of any kind.
    pub(super) recorded: Option<Interval>,
    /// The shortest way of a message to a server, in nanoseconds.
    pub(super) least_way_ns: FastMap<u16, u64>,
}

impl OfNode {
    pub(super) fn new(merged: &Merged, node: usize) -> OfNode {
        let events = &merged.events;
        let times = events.node_times(node);
        let mut found = OfNode::default();
        let mut spans: FastMap<u32, u32> = FastMap::default();
        // Whose parents are to be found, and what may have been done inside commits and flushes,
        // which are to be known before.
        let (mut inner, mut shared) = (Vec::new(), Vec::new());
        for time in times.iter() {
            let sort = times.sorts()[time.sort as usize];
            let interval = (time.start_ns, time.start_ns.saturating_add_unsigned(time.dur_ns));
            let (first, last) = found.recorded.unwrap_or(interval);
            found.recorded = Some((first.min(interval.0), last.max(interval.1)));
            match sort.kind {
                EventKind::Span if matches!(sort.event, META_TURN | DATA_TURN) => {
                    found.turns.0.push(interval);
                    inner.push(time.position);
                }
                // The time of its requests is in records of their own.
                EventKind::Span if sort.event == DISK_JOB => {}
                EventKind::Span if sort.event.layer() == DISK_LAYER => {
                    let request = times.record(time.position).req;
                    found.disks.push((request, time.position));
                    shared.extend((request == 0).then_some((sort.event, interval)));
                }
                EventKind::Span if matches!(sort.event, JOURNAL_COMMIT | JOURNAL_SYNC) => {
                    found.note_storage(sort.event, interval);
                    inner.push(time.position);
                }
                EventKind::Span => {
                    if let Body::Span(span) = &times.record(time.position).body
                        && span.span != 0
                    {
                        spans.insert(span.span, time.position);
                    }
                    inner.push(time.position);
                }
                EventKind::StagedSpan => {
                    let record = times.record(time.position);
                    if let Body::StagedSpan(staged_span) = &record.body
                        && record.flags & flags::SERVER != 0
                    {
                        found.staged_spans.push((record.req, time.position));
                        if staged_span.span != 0 {
                            spans.insert(staged_span.span, time.position);
                        }
                    }
                }
                _ => {}
            }
        }
        found.disks.sort_unstable();
        shared.into_iter().for_each(|(event, interval)| found.note_storage(event, interval));
        for position in inner {
            found.find_parent(merged, node, position, &spans);
        }
        found
    }

    /// Notes work of the storage. The journal's own accesses to the disk lie inside its commits and
    /// flushes, which are to be noted first.
    fn note_storage(&mut self, event: EventId, interval: Interval) {
        let encloses = |kind: Storage| {
            let all = &self.storage[kind as usize].all;
            let after = all.partition_point(|other| other.0 <= interval.0);
            all[..after].last().is_some_and(|last| last.1 >= interval.1)
        };
        let kind = match event {
            JOURNAL_COMMIT => Storage::JournalWrite,
            JOURNAL_SYNC => Storage::JournalFlush,
            DISK_SYNC if !encloses(Storage::JournalFlush) => Storage::DataFlush,
            DISK_WRITE if !encloses(Storage::JournalWrite) => Storage::JournalWrite,
            _ => return,
        };
        let busy = &mut self.storage[kind as usize];
        busy.all.push(interval);
        busy.longest_ns = (interval.1.abs_diff(interval.0)).max(busy.longest_ns);
    }

    fn find_parent(&mut self, merged: &Merged, node: usize, position: u32, spans: &FastMap<u32, u32>) {
        let times = merged.events.node_times(node);
        let record = times.record(position);
        let Body::Span(span) = &record.body else { return };
        let (start_ns, dur_ns) = times.at(position);
        let interval = (start_ns, start_ns.saturating_add_unsigned(dur_ns));
        let named = if span.parent == 0 { None } else { spans.get(&span.parent).copied() };
        let named = named.filter(|parent| *parent != position && encloses(&merged.events, *parent, interval));
        let layer = record.event.layer();
        if record.event == NET_CALL {
            self.calls.push(position);
            if record.flags & flags::OPEN == 0 {
                let last = self.answered.entry(span.peer).or_insert(interval.1);
                *last = interval.1.max(*last);
            } else {
                self.open_calls.push(position);
            }
        }
        if record.event == CLIENT_AHEAD
            && let Some(awaited) = u32::try_from(span.off).ok().and_then(|number| spans.get(&number))
        {
            self.children.push((position, *awaited));
        }
        match named {
            named if THREAD_LAYERS.contains(&layer) => self.of_threads.push((position, named)),
            Some(parent) => self.children.push((parent, position)),
            None if CLIENT_LAYERS.contains(&layer) && span.parent == 0 && !is_inner(record.event) => self.roots.push(position),
            // Its operation is still running, or its record was lost, or nobody waits for it.
            None if record.event == NET_CALL && span.parent != 0 && merged.nodes[node].server.is_none() => self.orphans += 1,
            None => {}
        }
    }
}

/// True for an access to a disk.
pub(super) fn is_disk(event: EventId) -> bool {
    event.layer() == DISK_LAYER
}

/// True for what only happens inside operations: waits and pauses.
fn is_inner(event: EventId) -> bool {
    matches!(event, CLIENT_WINDOW | CLIENT_LOCK | CLIENT_PAUSE | CLIENT_AHEAD)
}

pub(super) fn encloses(events: &Events, outer: u32, (start_ns, end_ns): Interval) -> bool {
    // Two readings of a clock on two threads may be a little out of order.
    const SLACK_NS: i64 = 1_000;
    let (start, end) = (events.start_ns(outer), events.end_ns(outer));
    start <= start_ns + SLACK_NS && start_ns <= end && end_ns <= end + SLACK_NS
}
