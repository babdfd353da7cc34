//! Who belongs to whom: children of spans, staged spans of requests, disk accesses of staged spans.
//! What concerns one node is found out for all nodes at the same time, then put together.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use weft_base::FastMap;

use super::Storage;
use super::blocking::Work;
use super::of_node::{APPLICATION_LAYER, Interval, OfNode, encloses};
use crate::event::{DATA_OTHER, EventInfo, META_OTHER, NET_CALL};
use crate::events::Event;
use crate::merge::{Each, Merged, gathered, gathered_of};
use crate::record::{Body, Span, fine, flags};
use crate::{EventId, Stage};

pub(super) struct Index<'a> {
    pub merged: &'a Merged,
    nodes: Vec<OfNode>,
    /// Positions of children by position of the parent (a span, or the staged span of a request
    /// that asks other servers), by end.
    children: Groups,
    /// The server's record of each request.
    staged_spans: FastMap<u64, u32>,
    /// Where there are several (the request was repeated), all of them by time.
    repeated: FastMap<u64, Vec<u32>>,
    /// Outermost operations of all nodes, by beginning.
    pub roots: Vec<u32>,
    /// Of them those that were not over when the recording ended.
    pub open_roots: Vec<u32>,
    /// Requests of clients whose operation has no record.
    pub orphans: u64,
    /// Requests at servers that no recorded process has sent.
    pub uncalled: u64,
    /// All requests at servers.
    pub served: u64,
    unseen: Mutex<(BTreeSet<u16>, u64)>,
}

impl<'a> Index<'a> {
    pub fn new(merged: &'a Merged, each: Each<'_>) -> Index<'a> {
        let events = &merged.events;
        let nodes = gathered(each, merged.nodes.len(), |node| OfNode::new(merged, node));
        let mut staged_spans = FastMap::default();
        staged_spans.reserve(nodes.iter().map(|node| node.staged_spans.len()).sum());
        let mut repeated: FastMap<u64, Vec<u32>> = FastMap::default();
        for (request, position) in nodes.iter().flat_map(|node| &node.staged_spans) {
            if let Some(first) = staged_spans.insert(*request, *position) {
                repeated.entry(*request).or_insert_with(|| vec![first]).push(*position);
            }
        }
        repeated.values_mut().for_each(|all| all.sort_by_key(|staged_span| events.order(*staged_span)));
        let mut index = Index {
            merged,
            nodes: Vec::new(),
            children: Groups::default(),
            staged_spans,
            repeated,
            roots: Vec::new(),
            open_roots: Vec::new(),
            orphans: nodes.iter().map(|node| node.orphans).sum(),
            uncalled: 0,
            served: 0,
            unseen: Mutex::default(),
        };
        let nodes = gathered_of(each, nodes, |node, found| OfNode { least_way_ns: index.least_ways(node, &found.calls), ..found });
        index.nodes = nodes;
        index.count_uncalled();
        index.join_threads();
        index
    }

    /// How many requests were served, and of how many nobody has recorded the sender. Commands that
    /// look at a file system, such as those for traces themselves, are not counted.
    fn count_uncalled(&mut self) {
        let events = &self.merged.events;
        let mut is_called = vec![false; events.len()];
        for call in self.nodes.iter().flat_map(|node| &node.calls) {
            if let Some(staged_span) = self.staged_spans.get(&events.words(*call)[1]) {
                is_called[*staged_span as usize] = true;
            }
        }
        for staged_span in self.staged_spans.values() {
            if !matches!(events.sort(*staged_span).event, META_OTHER | DATA_OTHER) {
                self.served += 1;
                self.uncalled += u64::from(!is_called[*staged_span as usize]);
            }
        }
    }

    /// Finds parents of the spans of applications and gateways that name none, whatever node
    /// recorded them: the innermost span of an application of the same thread that encloses them. A
    /// gateway's span encloses nothing: the kernel waits for no answer to a release, so a slow one
    /// begins before the next call of its thread and ends after it.
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
                if event.record.event.layer() == APPLICATION_LAYER {
                    stack.push(position);
                }
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
            if let (Body::Span(span), Some(staged_span)) = (&record.body, self.staged_span_of(record.req, (start_ns, end_ns))) {
                let sent = start_ns.saturating_add_unsigned(wait_of(dur_ns, span));
                // The way back counts as well: a client may never meet its server idle, but no
                // reply waits for one.
                let (there, back) = (self.start_ns(staged_span).saturating_sub(sent), end_ns.saturating_sub(self.end_ns(staged_span)));
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
    pub fn queued_ns(&self, call: &Event, peer: u16, staged_span: &Event, sent: i64, begun: i64) -> u64 {
        let way = (begun - sent).max(0) as u64;
        let longer = way - self.nodes[call.node].least_way_ns.get(&peer).copied().unwrap_or(0).min(way);
        let turns = &self.nodes[staged_span.node].turns.0;
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

    /// The span's length in bytes, or that of the first operation inside it which has one.
    pub fn bytes(&self, position: u32) -> u32 {
        let event = self.event(position);
        match &event.record.body {
            // Of messages it is something else.
            Body::Span(span) if span.len > 0 && !is_call(&event) => span.len,
            _ => self.children(position).iter().map(|child| self.bytes(*child)).find(|bytes| *bytes > 0).unwrap_or(0),
        }
    }

    /// The server's record of a call: of several (the request was repeated) the one that fits into
    /// the call best.
    pub fn staged_span(&self, call: &Event) -> Option<u32> {
        self.staged_span_of(call.record.req, (call.start_ns, call.end_ns()))
    }

    fn staged_span_of(&self, request: u64, (start_ns, end_ns): Interval) -> Option<u32> {
        let only = *self.staged_spans.get(&request)?;
        let Some(candidates) = self.repeated.get(&request) else { return Some(only) };
        let outside = |staged_span: u32| {
            let early = start_ns.saturating_sub(self.start_ns(staged_span)).max(0);
            early + self.end_ns(staged_span).saturating_sub(end_ns).max(0)
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

    /// From the first to the last record of clients, if there are any: a server that is slow begins
    /// and ends later, and nobody knows what was asked meanwhile.
    pub fn recorded_of_clients(&self) -> Interval {
        let is_client = |number: &usize| self.merged.nodes[*number].server.is_none() && self.nodes[*number].recorded.is_some();
        let clients: Vec<usize> = (0..self.nodes.len()).filter(is_client).collect();
        if clients.is_empty() { self.recorded() } else { self.recorded_by(clients.into_iter()) }
    }

    /// From the first to the last record of all nodes.
    pub fn recorded(&self) -> Interval {
        self.recorded_by(0..self.nodes.len())
    }

    fn recorded_by(&self, nodes: impl Iterator<Item = usize> + Clone) -> Interval {
        let all = || nodes.clone().filter_map(|number| self.nodes[number].recorded);
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
