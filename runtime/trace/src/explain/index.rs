//! Who belongs to whom: children of spans, ladders of requests, disk accesses of ladders. What
//! concerns one node is found out for all nodes at the same time, then put together.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use weft_base::FastMap;

use super::Storage;
use super::blocking::Work;
use crate::event::{
    CLIENT_LOCK, CLIENT_PAUSE, CLIENT_WINDOW, DATA_TURN, DISK_JOB, DISK_SYNC, DISK_WRITE, EventInfo, JOURNAL_COMMIT, JOURNAL_SYNC,
    META_TURN, NET_CALL,
};
use crate::events::{Event, Events};
use crate::merge::{Each, Merged};
use crate::record::{Body, Span, fine, flags};
use crate::{EventId, Kind, Stage};

/// Layers of applications, gateways and client libraries; see the table of events.
const CLIENT_LAYERS: std::ops::RangeInclusive<usize> = 0..=2;
/// The layers whose spans name a thread in `req`.
const THREAD_LAYERS: std::ops::RangeInclusive<usize> = 0..=1;
const DISK_LAYER: usize = 7;

/// Beginning and end in nanoseconds of the reference clock.
type Interval = (i64, i64);

/// The turns of a server's loop, by beginning.
#[derive(Debug, Default)]
pub(super) struct Turns(Vec<Interval>);

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
struct Busy {
    all: Vec<Interval>,
    longest_ns: u64,
}

/// What concerns one node.
#[derive(Default)]
struct OfNode {
    /// Server records by request.
    ladders: Vec<(u64, u32)>,
    /// Disk accesses by request and time; request 0: for several requests.
    disks: Vec<(u64, u32)>,
    storage: [Busy; Storage::ALL.len()],
    turns: Turns,
    calls: Vec<u32>,
    /// Parent and child.
    children: Vec<(u32, u32)>,
    /// Outermost operations, by beginning.
    roots: Vec<u32>,
    /// Spans that name a thread, each with the parent that it names itself.
    of_threads: Vec<(u32, Option<u32>)>,
    /// Requests of a client whose operation has no record.
    orphans: u64,
    /// Requests that nobody has answered: given up, or still under way at the end.
    open_calls: Vec<u32>,
    /// When each server last answered this node.
    answered: FastMap<u16, i64>,
    /// From the first to the last record of any kind.
    recorded: Option<Interval>,
    /// The shortest way of a message to a server, in nanoseconds.
    least_way_ns: FastMap<u16, u64>,
}

pub(super) struct Index<'a> {
    pub merged: &'a Merged,
    nodes: Vec<OfNode>,
    /// Positions of children by position of the parent (a span, or the ladder of a request that
    /// asks other servers), by end.
    children: Groups,
    /// The server's record of each request.
    ladders: FastMap<u64, u32>,
    /// Where there are several (the request was repeated), all of them by time.
    repeated: FastMap<u64, Vec<u32>>,
    /// Outermost operations of all nodes, by beginning.
    pub roots: Vec<u32>,
    /// Of them those that were not over when the recording ended.
    pub open_roots: Vec<u32>,
    /// Requests of clients whose operation has no record.
    pub orphans: u64,
    unseen: Mutex<(BTreeSet<u16>, u64)>,
}

impl<'a> Index<'a> {
    pub fn new(merged: &'a Merged, each: Each<'_>) -> Index<'a> {
        let events = &merged.events;
        let nodes = for_each(each, vec![(); merged.nodes.len()], |node, ()| OfNode::new(merged, node));
        let mut ladders = FastMap::default();
        ladders.reserve(nodes.iter().map(|node| node.ladders.len()).sum());
        let mut repeated: FastMap<u64, Vec<u32>> = FastMap::default();
        for (request, position) in nodes.iter().flat_map(|node| &node.ladders) {
            if let Some(first) = ladders.insert(*request, *position) {
                repeated.entry(*request).or_insert_with(|| vec![first]).push(*position);
            }
        }
        repeated.values_mut().for_each(|all| all.sort_by_key(|ladder| events.order(*ladder)));
        let mut index = Index {
            merged,
            nodes: Vec::new(),
            children: Groups::default(),
            ladders,
            repeated,
            roots: Vec::new(),
            open_roots: Vec::new(),
            orphans: nodes.iter().map(|node| node.orphans).sum(),
            unseen: Mutex::default(),
        };
        let nodes = for_each(each, nodes, |node, found| OfNode { least_way_ns: index.least_ways(node, &found.calls), ..found });
        index.nodes = nodes;
        index.join_threads();
        index
    }

    /// Finds parents among the spans of applications and gateways of one thread, whatever node
    /// recorded them: outer before inner.
    fn join_threads(&mut self) {
        let events = &self.merged.events;
        let mut children: Vec<(u32, u32)> = self.nodes.iter_mut().flat_map(|node| std::mem::take(&mut node.children)).collect();
        let mut roots: Vec<u32> = self.nodes.iter_mut().flat_map(|node| std::mem::take(&mut node.roots)).collect();
        let mut of_threads: Vec<(u32, Option<u32>)> = self.nodes.iter_mut().flat_map(|node| std::mem::take(&mut node.of_threads)).collect();
        of_threads.sort_by_key(|(position, _)| events.order(*position));
        let mut threads: FastMap<u64, Vec<u32>> = FastMap::default();
        for (position, named) in of_threads {
            let event = events.event(position);
            let interval = (event.start_ns, event.end_ns());
            let mut parent = named;
            if event.record.req != 0 {
                let stack = threads.entry(event.record.req).or_default();
                while stack.last().is_some_and(|outer| !encloses(events, *outer, interval)) {
                    stack.pop();
                }
                parent = parent.or(stack.last().copied());
                stack.push(position);
            }
            match (parent, &event.record.body) {
                (Some(parent), _) => children.push((parent, position)),
                (None, Body::Span(span)) if span.parent == 0 => roots.push(position),
                _ => {}
            }
        }
        self.children = Groups::new(events.len(), &children, |child| (events.end_ns(child), events.order(child)));
        roots.sort_by_key(|root| events.order(*root));
        (self.open_roots, self.roots) = roots.into_iter().partition(|root| events.event(*root).record.flags & flags::OPEN != 0);
    }

    fn least_ways(&self, node: usize, calls: &[u32]) -> FastMap<u16, u64> {
        let times = self.merged.events.node_times(node);
        let mut ways: FastMap<u16, u64> = FastMap::default();
        for position in calls {
            let (start_ns, dur_ns) = times.at(*position);
            let record = times.record(*position);
            let end_ns = start_ns.saturating_add_unsigned(dur_ns);
            if record.flags & flags::OPEN != 0 {
                continue;
            }
            if let (Body::Span(span), Some(ladder)) = (&record.body, self.ladder_of(record.req, (start_ns, end_ns))) {
                let sent = start_ns.saturating_add_unsigned(wait_of(dur_ns, span));
                // The way back counts as well: a client may never meet its server idle, but no
                // reply waits for one.
                let (there, back) = (self.start_ns(ladder).saturating_sub(sent), end_ns.saturating_sub(self.end_ns(ladder)));
                let way = there.min(back).max(0) as u64;
                let least = ways.entry(span.peer).or_insert(way);
                *least = way.min(*least);
            }
        }
        ways
    }

    /// How long a request waited at its server before the turn that took it: what its way [sent,
    /// begun) took longer than the shortest way, if the server was busy with turns before
    /// meanwhile. Nobody sees when a message arrives at a busy server.
    pub fn queued_ns(&self, call: &Event, peer: u16, ladder: &Event, sent: i64, begun: i64) -> u64 {
        let way = (begun - sent).max(0) as u64;
        let longer = way - self.nodes[call.node].least_way_ns.get(&peer).copied().unwrap_or(0).min(way);
        let turns = &self.nodes[ladder.node].turns.0;
        if longer == 0 || turns.is_empty() {
            return 0;
        }
        let after = turns.partition_point(|turn| turn.0 < begun);
        let (mut busy, mut until) = (0, begun);
        for (start_ns, end_ns) in turns[..after].iter().rev() {
            if *end_ns <= sent {
                break;
            }
            let (from, to) = (sent.max(*start_ns), until.min(*end_ns));
            if from < to {
                busy += (to - from) as u64;
                until = from;
            }
        }
        busy.min(longer)
    }

    /// What the servers did by time.
    pub fn work(&self, each: Each<'_>) -> Work {
        Work::new(self.merged, each, |node| &self.nodes[node].turns)
    }

    pub fn event(&self, position: u32) -> Event {
        self.merged.events.event(position)
    }

    pub fn start_ns(&self, position: u32) -> i64 {
        self.merged.events.start_ns(position)
    }

    pub fn end_ns(&self, position: u32) -> i64 {
        self.merged.events.end_ns(position)
    }

    pub fn info(&self, node: usize, event: EventId) -> Option<&'a EventInfo> {
        self.merged.nodes[node].events.get(event)
    }

    /// The stage of a span's own time.
    pub fn stage(&self, event: &Event) -> Stage {
        let stage = self.info(event.node, event.record.event).map_or(Stage::Unseen, |info| info.stage);
        stage.with_class(event.record.class)
    }

    pub fn children(&self, position: u32) -> &[u32] {
        self.children.of(position)
    }

    /// The span's object, or that of the first operation inside it which names one.
    pub fn object(&self, position: u32) -> u64 {
        let own = match &self.event(position).record.body {
            Body::Span(span) => span.obj,
            _ => 0,
        };
        if own != 0 {
            return own;
        }
        self.children(position).iter().map(|child| self.object(*child)).find(|object| *object != 0).unwrap_or(0)
    }

    /// The server's record of a call: of several (the request was repeated) the one that fits into
    /// the call best.
    pub fn ladder(&self, call: &Event) -> Option<u32> {
        self.ladder_of(call.record.req, (call.start_ns, call.end_ns()))
    }

    fn ladder_of(&self, request: u64, (start_ns, end_ns): Interval) -> Option<u32> {
        let only = *self.ladders.get(&request)?;
        let Some(candidates) = self.repeated.get(&request) else { return Some(only) };
        let outside = |ladder: u32| {
            let early = start_ns.saturating_sub(self.start_ns(ladder)).max(0);
            early + self.end_ns(ladder).saturating_sub(end_ns).max(0)
        };
        candidates.iter().copied().min_by_key(|position| outside(*position))
    }

    /// Positions of the disk accesses of a request at a node.
    pub fn disks(&self, node: usize, request: u64) -> impl Iterator<Item = u32> {
        let disks = &self.nodes[node].disks;
        let first = disks.partition_point(|(other, _)| *other < request);
        disks[first..].iter().take_while(move |(other, _)| *other == request).map(|(_, position)| *position)
    }

    /// Nanoseconds of [from, to) during which the storage of a node did each kind of work for
    /// several requests, in the order of [`Storage::ALL`]. What happens at once counts once: a
    /// flush before the write that waits for it.
    pub fn storage_ns(&self, node: usize, from: i64, to: i64) -> [u64; Storage::ALL.len()] {
        let mut found = [0; Storage::ALL.len()];
        let mut free = vec![(from, to)];
        for kind in [Storage::JournalFlush, Storage::DataFlush, Storage::JournalWrite] {
            let busy = &self.nodes[node].storage[kind as usize];
            let mut left = Vec::with_capacity(free.len());
            for (from, to) in free {
                let begin = busy.all.partition_point(|access| access.0 < from.saturating_sub_unsigned(busy.longest_ns));
                let mut until = from;
                for (start_ns, end_ns) in busy.all[begin..].iter().take_while(|access| access.0 < to) {
                    let (a, b) = (until.max(*start_ns), to.min(*end_ns));
                    if b > a {
                        found[kind as usize] += (b - a) as u64;
                        left.extend((a > until).then_some((until, a)));
                        until = b;
                    }
                }
                left.extend((to > until).then_some((until, to)));
            }
            free = left;
        }
        found
    }

    /// From the first to the last record of all nodes.
    pub fn recorded(&self) -> Interval {
        let all = || self.nodes.iter().filter_map(|node| node.recorded);
        (all().map(|range| range.0).min().unwrap_or(0), all().map(|range| range.1).max().unwrap_or(0))
    }

    /// Requests that nobody has answered, by node.
    pub fn open_calls(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().flat_map(|node| &node.open_calls).copied()
    }

    /// When this server last answered anybody.
    pub fn last_answer(&self, server: u16) -> Option<i64> {
        self.nodes.iter().filter_map(|node| node.answered.get(&server)).copied().max()
    }

    /// A call whose server wrote nothing.
    pub fn note_unseen(&self, call: &Span) {
        let mut unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        unseen.0.insert(call.peer);
        unseen.1 += 1;
    }

    pub fn unseen(self) -> (BTreeSet<u16>, u64) {
        self.unseen.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfNode {
    fn new(merged: &Merged, node: usize) -> OfNode {
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
                Kind::Span if matches!(sort.event, META_TURN | DATA_TURN) => {
                    found.turns.0.push(interval);
                    inner.push(time.position);
                }
                // The time of its requests is in records of their own.
                Kind::Span if sort.event == DISK_JOB => {}
                Kind::Span if sort.event.layer() == DISK_LAYER => {
                    let request = times.record(time.position).req;
                    found.disks.push((request, time.position));
                    shared.extend((request == 0).then_some((sort.event, interval)));
                }
                Kind::Span if matches!(sort.event, JOURNAL_COMMIT | JOURNAL_SYNC) => {
                    found.note_storage(sort.event, interval);
                    inner.push(time.position);
                }
                Kind::Span => {
                    if let Body::Span(span) = &times.record(time.position).body
                        && span.span != 0
                    {
                        spans.insert(span.span, time.position);
                    }
                    inner.push(time.position);
                }
                Kind::Ladder => {
                    let record = times.record(time.position);
                    if let Body::Ladder(ladder) = &record.body
                        && record.flags & flags::SERVER != 0
                    {
                        found.ladders.push((record.req, time.position));
                        if ladder.span != 0 {
                            spans.insert(ladder.span, time.position);
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

/// Positions in groups, each known by one position.
#[derive(Default)]
struct Groups {
    /// Where each group ends; it begins where the one before ends.
    ends: Vec<u32>,
    members: Vec<u32>,
}

impl Groups {
    /// From pairs of group and member; members are sorted by a key.
    fn new<K: Ord>(groups: usize, pairs: &[(u32, u32)], key: impl Fn(u32) -> K) -> Groups {
        let mut ends = vec![0u32; groups];
        pairs.iter().for_each(|(group, _)| ends[*group as usize] += 1);
        let mut sum = 0;
        for end in &mut ends {
            sum += std::mem::replace(end, sum);
        }
        let mut members = vec![0; pairs.len()];
        for (group, member) in pairs {
            let place = &mut ends[*group as usize];
            members[*place as usize] = *member;
            *place += 1;
        }
        let mut begin = 0;
        for end in &ends {
            let group = &mut members[begin..*end as usize];
            if group.len() > 1 {
                group.sort_by_key(|member| key(*member));
            }
            begin = *end as usize;
        }
        Groups { ends, members }
    }

    fn of(&self, group: u32) -> &[u32] {
        let begin = group.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        &self.members[begin as usize..self.ends[group as usize] as usize]
    }
}

/// Does something with each of these, one after the other or at the same time, as `each` does it;
/// results are in the order of what was given.
pub(super) fn for_each<T: Send, R: Send>(each: Each<'_>, given: Vec<T>, work: impl Fn(usize, T) -> R + Sync) -> Vec<R> {
    let cells: Vec<Mutex<(Option<T>, Option<R>)>> = given.into_iter().map(|one| Mutex::new((Some(one), None))).collect();
    each(cells.len(), &|number| {
        let mut cell = cells[number].lock().unwrap_or_else(PoisonError::into_inner);
        cell.1 = cell.0.take().map(|one| work(number, one));
    });
    let results = cells.into_iter().map(|cell| cell.into_inner().unwrap_or_else(PoisonError::into_inner).1);
    results.map(|result| result.expect("each number was called")).collect()
}

/// The time of a call in its send queue, in nanoseconds: its ticks have the same ratio to the
/// duration.
pub(super) fn wait_ns(call: &Event, span: &Span) -> u64 {
    wait_of(call.dur_ns, span)
}

fn wait_of(dur_ns: u64, span: &Span) -> u64 {
    (u128::from(fine(span.wait).min(span.dur)) * u128::from(dur_ns) / u128::from(span.dur.max(1))) as u64
}

/// True if a span is one attempt of a request.
pub(super) fn is_call(event: &Event) -> bool {
    event.record.event == NET_CALL
}

/// True for an access to a disk.
pub(super) fn is_disk(event: EventId) -> bool {
    event.layer() == DISK_LAYER
}

/// True for what only happens inside operations: waits and pauses.
fn is_inner(event: EventId) -> bool {
    matches!(event, CLIENT_WINDOW | CLIENT_LOCK | CLIENT_PAUSE)
}

fn encloses(events: &Events, outer: u32, (start_ns, end_ns): Interval) -> bool {
    // Two readings of a clock on two threads may be a little out of order.
    const SLACK_NS: i64 = 1_000;
    let (start, end) = (events.start_ns(outer), events.end_ns(outer));
    start <= start_ns + SLACK_NS && start_ns <= end && end_ns <= end + SLACK_NS
}
