//! Who belongs to whom: children of spans, ladders of requests, disk accesses of ladders.

use std::cell::RefCell;
use std::collections::BTreeSet;

use weft_base::FastMap;

use super::Storage;
use super::blocking::Work;
use crate::event::{
    CLIENT_LOCK, CLIENT_PAUSE, CLIENT_WINDOW, DATA_TURN, DISK_JOB, DISK_SYNC, DISK_WRITE, EventInfo, JOURNAL_COMMIT, JOURNAL_SYNC,
    META_TURN, NET_CALL,
};
use crate::events::{Event, Events};
use crate::merge::Merged;
use crate::record::{Body, Span, fine, flags};
use crate::{EventId, Kind, Stage};

/// Layers of applications, gateways and client libraries; see the table of events.
const CLIENT_LAYERS: std::ops::RangeInclusive<usize> = 0..=2;
/// The layers whose spans name a thread in `req`.
const THREAD_LAYERS: std::ops::RangeInclusive<usize> = 0..=1;
const DISK_LAYER: usize = 7;

/// The turns of each server's loop, by beginning.
#[derive(Debug, Default)]
pub(super) struct Turns(FastMap<usize, Vec<u32>>);

impl Turns {
    /// True if the event lies within a turn of its node.
    pub fn enclose(&self, events: &Events, node: usize, (start_ns, end_ns): (i64, i64)) -> bool {
        let Some(turns) = self.0.get(&node) else { return false };
        let after = turns.partition_point(|turn| events.start_ns(*turn) <= start_ns);
        turns[..after].last().is_some_and(|turn| end_ns <= events.end_ns(*turn))
    }
}

pub(super) struct Index<'a> {
    pub merged: &'a Merged,
    /// Positions of children by position of the parent (a span, or the ladder of a request that asks other servers), by end.
    children: FastMap<u32, Vec<u32>>,
    /// Outermost operations.
    roots: Vec<u32>,
    /// Server records by request.
    ladders: FastMap<u64, Vec<u32>>,
    /// Disk accesses by node and request; request 0: for several requests.
    disks: FastMap<(usize, u64), Vec<u32>>,
    /// What the storage of each node did for several requests, by beginning; and the longest of it in nanoseconds: how far back one may
    /// begin that is still running.
    storage: FastMap<(usize, Storage), (Vec<u32>, u64)>,
    turns: Turns,
    /// The shortest way of a message between a client and a server, in nanoseconds.
    least_way_ns: FastMap<(usize, u16), u64>,
    /// Requests of clients whose operation has no record.
    pub orphans: u64,
    unseen: RefCell<(BTreeSet<u16>, u64)>,
}

impl<'a> Index<'a> {
    pub fn new(merged: &'a Merged) -> Index<'a> {
        let mut index = Index {
            merged,
            children: FastMap::default(),
            roots: Vec::new(),
            ladders: FastMap::default(),
            disks: FastMap::default(),
            storage: FastMap::default(),
            turns: Turns::default(),
            least_way_ns: FastMap::default(),
            orphans: 0,
            unseen: RefCell::default(),
        };
        let events = &merged.events;
        let mut spans: FastMap<(usize, u32), u32> = FastMap::default();
        for position in 0..events.len() as u32 {
            let event = events.event(position);
            match &event.record.body {
                Body::Span(_) if matches!(event.record.event, META_TURN | DATA_TURN) => {
                    index.turns.0.entry(event.node).or_default().push(position)
                }
                // The time of its requests is in records of their own.
                Body::Span(_) if event.record.event == DISK_JOB => {}
                Body::Span(_) if is_disk(&event) => {
                    index.disks.entry((event.node, event.record.req)).or_default().push(position);
                }
                Body::Span(_) if matches!(event.record.event, JOURNAL_COMMIT | JOURNAL_SYNC) => {
                    index.note_storage(position);
                }
                Body::Span(span) if span.span != 0 => {
                    spans.insert((event.node, span.span), position);
                }
                Body::Ladder(ladder) if event.record.flags & flags::SERVER != 0 => {
                    index.ladders.entry(event.record.req).or_default().push(position);
                    if ladder.span != 0 {
                        spans.insert((event.node, ladder.span), position);
                    }
                }
                _ => {}
            }
        }
        for position in 0..events.len() as u32 {
            let event = events.event(position);
            if is_disk(&event) && event.record.req == 0 {
                index.note_storage(position);
            }
        }
        index.find_parents(&spans);
        index.find_least_ways();
        for children in index.children.values_mut() {
            children.sort_by_key(|child| (events.end_ns(*child), events.order(*child)));
        }
        for ladders in index.ladders.values_mut() {
            ladders.sort_by_key(|ladder| events.order(*ladder));
        }
        index.roots.sort_by_key(|root| events.order(*root));
        index
    }

    /// Notes work of the storage. The journal's own accesses to the disk lie inside its commits and flushes, which are to be noted first.
    fn note_storage(&mut self, position: u32) {
        let event = self.event(position);
        let encloses = |kind| {
            let Some((all, _)) = self.storage.get(&(event.node, kind)) else { return false };
            let after = all.partition_point(|other| self.start_ns(*other) <= event.start_ns);
            all[..after].last().is_some_and(|last| self.end_ns(*last) >= event.end_ns())
        };
        let kind = match event.record.event {
            JOURNAL_COMMIT => Storage::JournalWrite,
            JOURNAL_SYNC => Storage::JournalFlush,
            DISK_SYNC if !encloses(Storage::JournalFlush) => Storage::DataFlush,
            DISK_WRITE if !encloses(Storage::JournalWrite) => Storage::JournalWrite,
            _ => return,
        };
        let (all, longest) = self.storage.entry((event.node, kind)).or_default();
        all.push(position);
        *longest = event.dur_ns.max(*longest);
    }

    fn find_parents(&mut self, spans: &FastMap<(usize, u32), u32>) {
        let events = &self.merged.events;
        // Spans of applications and gateways by thread, outer before inner, of all nodes.
        let is_of_thread = |position: &u32| {
            let sort = events.sort(*position);
            sort.kind == Kind::Span && THREAD_LAYERS.contains(&sort.event.layer())
        };
        let mut of_threads: Vec<u32> = (0..events.len() as u32).filter(is_of_thread).collect();
        of_threads.sort_by_key(|position| events.order(*position));
        let mut threads: FastMap<u64, Vec<u32>> = FastMap::default();
        let mut around: FastMap<u32, u32> = FastMap::default();
        for position in of_threads {
            let event = events.event(position);
            if event.record.req == 0 {
                continue;
            }
            let stack = threads.entry(event.record.req).or_default();
            while stack.last().is_some_and(|outer| !self.encloses(*outer, &event)) {
                stack.pop();
            }
            around.extend(stack.last().map(|outer| (position, *outer)));
            stack.push(position);
        }
        for position in 0..events.len() as u32 {
            let event = events.event(position);
            let Body::Span(span) = &event.record.body else { continue };
            if is_disk(&event) {
                continue;
            }
            let named = (span.parent != 0).then(|| spans.get(&(event.node, span.parent))).flatten().copied();
            let named = named.filter(|parent| *parent != position && self.encloses(*parent, &event));
            match named.or_else(|| around.get(&position).copied()) {
                Some(parent) => self.children.entry(parent).or_default().push(position),
                None if CLIENT_LAYERS.contains(&event.record.event.layer()) && span.parent == 0 && !is_inner(&event) => {
                    self.roots.push(position)
                }
                // Its operation is still running, or its record was lost, or nobody waits for it.
                None if is_call(&event) && span.parent != 0 && self.merged.nodes[event.node].server.is_none() => self.orphans += 1,
                None => {}
            }
        }
    }

    fn encloses(&self, outer: u32, inner: &Event) -> bool {
        // Two readings of a clock on two threads may be a little out of order.
        const SLACK_NS: i64 = 1_000;
        let (start, end) = (self.start_ns(outer), self.end_ns(outer));
        start <= inner.start_ns + SLACK_NS && inner.start_ns <= end && inner.end_ns() <= end + SLACK_NS
    }

    fn find_least_ways(&mut self) {
        let mut ways: FastMap<(usize, u16), u64> = FastMap::default();
        let events = &self.merged.events;
        for position in (0..events.len() as u32).filter(|position| events.sort(*position).event == NET_CALL) {
            let call = events.event(position);
            if let (Body::Span(span), Some(ladder)) = (&call.record.body, self.ladder(&call)) {
                let sent = call.start_ns.saturating_add_unsigned(wait_ns(&call, span));
                // The way back counts as well: a client may never meet its server idle, but no reply waits for one.
                let (there, back) = (self.start_ns(ladder).saturating_sub(sent), call.end_ns().saturating_sub(self.end_ns(ladder)));
                let way = there.min(back).max(0) as u64;
                let least = ways.entry((call.node, span.peer)).or_insert(way);
                *least = way.min(*least);
            }
        }
        self.least_way_ns = ways;
    }

    /// How long a request waited at its server before the turn that took it: what its way [sent, begun) took longer than the shortest
    /// way, if the server was busy with turns before meanwhile. Nobody sees when a message arrives at a busy server.
    pub fn queued_ns(&self, call: &Event, peer: u16, ladder: &Event, sent: i64, begun: i64) -> u64 {
        let way = (begun - sent).max(0) as u64;
        let longer = way - self.least_way_ns.get(&(call.node, peer)).copied().unwrap_or(0).min(way);
        let Some(turns) = self.turns.0.get(&ladder.node).filter(|_| longer > 0) else { return 0 };
        let after = turns.partition_point(|position| self.start_ns(*position) < begun);
        let (mut busy, mut until) = (0, begun);
        for position in turns[..after].iter().rev() {
            let (start_ns, end_ns) = (self.start_ns(*position), self.end_ns(*position));
            if end_ns <= sent {
                break;
            }
            let (from, to) = (start_ns.max(sent), end_ns.min(until));
            if from < to {
                busy += (to - from) as u64;
                until = from;
            }
        }
        busy.min(longer)
    }

    /// What the servers did by time.
    pub fn work(&self) -> Work {
        Work::new(self.merged, &self.turns)
    }

    /// Positions of the outermost operations, by beginning.
    pub fn roots(&self) -> Vec<u32> {
        self.roots.clone()
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
        self.children.get(&position).map_or(&[], Vec::as_slice)
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

    /// The server's record of a call: of several (the request was repeated) the one that fits into the call best.
    pub fn ladder(&self, call: &Event) -> Option<u32> {
        let candidates = self.ladders.get(&call.record.req)?;
        let outside = |ladder: u32| {
            let early = call.start_ns.saturating_sub(self.start_ns(ladder)).max(0);
            early + self.end_ns(ladder).saturating_sub(call.end_ns()).max(0)
        };
        candidates.iter().copied().min_by_key(|position| outside(*position))
    }

    /// Positions of the disk accesses of a request at a node.
    pub fn disks(&self, node: usize, request: u64) -> &[u32] {
        self.disks.get(&(node, request)).map_or(&[], Vec::as_slice)
    }

    /// Nanoseconds of [from, to) during which the storage of a node did this for several requests.
    pub fn storage_ns(&self, node: usize, kind: Storage, from: i64, to: i64) -> u64 {
        let Some((all, longest)) = self.storage.get(&(node, kind)) else { return 0 };
        let begin = all.partition_point(|position| self.start_ns(*position) < from.saturating_sub_unsigned(*longest));
        let (mut covered, mut until) = (0, from);
        for position in &all[begin..] {
            let (start_ns, end_ns) = (self.start_ns(*position), self.end_ns(*position));
            if start_ns >= to {
                break;
            }
            let (a, b) = (start_ns.max(until), end_ns.min(to));
            if b > a {
                covered += (b - a) as u64;
                until = b;
            }
        }
        covered
    }

    /// A call whose server wrote nothing.
    pub fn note_unseen(&self, call: &Span) {
        let mut unseen = self.unseen.borrow_mut();
        unseen.0.insert(call.peer);
        unseen.1 += 1;
    }

    pub fn unseen(&self) -> (BTreeSet<u16>, u64) {
        self.unseen.borrow().clone()
    }
}

/// The time of a call in its send queue, in nanoseconds: its ticks have the same ratio to the duration.
pub(super) fn wait_ns(call: &Event, span: &Span) -> u64 {
    (u128::from(fine(span.wait).min(span.dur)) * u128::from(call.dur_ns) / u128::from(span.dur.max(1))) as u64
}

/// True if a span is one attempt of a request.
pub(super) fn is_call(event: &Event) -> bool {
    event.record.event == NET_CALL
}

/// True for an access to a disk.
pub(super) fn is_disk(event: &Event) -> bool {
    event.record.event.layer() == DISK_LAYER
}

/// True for what only happens inside operations: waits and pauses.
fn is_inner(event: &Event) -> bool {
    matches!(event.record.event, CLIENT_WINDOW | CLIENT_LOCK | CLIENT_PAUSE)
}
