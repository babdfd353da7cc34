//! Where did the time go? From the records of clients and servers ([`crate::merge`]) to the stages
//! of every operation, and from there to a report that names the places worth looking at.
//!
//! The time of an operation is split along its critical path: of things that ran at the same time
//! the one that ended last counts, for only it made the operation wait (Zhang et al., CRISP:
//! Critical Path Analysis of Large-Scale Microservice Architectures, USENIX ATC 2022, section 3).
//! So the stages of an operation add up to its duration exactly; what no record explains is a stage
//! of its own ([`crate::Stage::Unseen`]) and lowers `covered`.

mod asked;
mod blocking;
mod critical;
mod finding;
mod index;
mod limited;
mod means;
mod of_node;
mod paths;
mod programs;
mod report;
mod signs;
mod starved;
mod stopped;
mod suspect;
mod tally;
mod unfinished;
mod verdict;
mod wall;
mod waterfall;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub use asked::AskedFor;
pub use finding::{Cause, Finding};
pub use report::{Explanation, KindReport, StageReport};
pub use suspect::Suspect;
pub use unfinished::{Silent, Unfinished};
pub use verdict::advice;
pub use wall::Wall;
pub use waterfall::{Step, Waterfall};

use crate::merge::{Each, Merged, gathered_of, in_turn};
use crate::{EventId, Stage};
use index::Index;
use paths::Paths;

/// A piece of an operation's critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where the time belongs.
    pub stage: Stage,
    /// The node: position among the merged nodes. Of messages, the client.
    pub node: usize,
    /// The server that a message went to or came from.
    pub peer: Option<u16>,
    /// The event whose record says so.
    pub event: EventId,
    /// The phase of a staged span.
    pub phase: Option<u8>,
    /// Nanoseconds of the reference clock.
    pub start_ns: i64,
    /// Nanoseconds.
    pub dur_ns: u64,
    /// The parts of it during which the server's storage worked for several requests, in
    /// nanoseconds, in the order of [`Storage::ALL`].
    pub storage_ns: [u64; Storage::ALL.len()],
}

/// What the storage of a server does for several requests together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// The journal is written.
    JournalWrite = 0,
    /// The journal is flushed.
    JournalFlush = 1,
    /// Data is flushed.
    DataFlush = 2,
}

impl Storage {
    /// Every kind.
    pub const ALL: [Storage; 3] = [Storage::JournalWrite, Storage::JournalFlush, Storage::DataFlush];

    /// For people: what happens.
    pub fn title(self) -> &'static str {
        ["the journal was written", "the journal was flushed", "data was flushed"][self as usize]
    }
}

/// An operation of a client; [`Analysis::path`] is its critical path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOperation {
    /// The kind: the name of the outermost event, for example `client.create` or `app.read`.
    pub event: EventId,
    /// The client.
    pub node: usize,
    /// The thread that asked, as the kernel names it; 0 if not recorded.
    pub caller: u64,
    /// The object, 0 if not recorded.
    pub object: u64,
    /// Nanoseconds of the reference clock.
    pub start_ns: i64,
    /// Nanoseconds.
    pub dur_ns: u64,
    /// Bytes that were asked for, 0 if not recorded.
    pub bytes: u32,
    /// The errno or status of a failure.
    pub result: u8,
    /// Its segments among those of all operations.
    segments: Range<u32>,
}

/// All operations of a merged trace.
#[derive(Debug)]
pub struct Analysis<'a> {
    merged: &'a Merged,
    operations: Vec<ClientOperation>,
    paths: Paths,
    /// Servers that wrote no record of a request.
    unrecorded: BTreeSet<u16>,
    /// Requests without a record of their server.
    unseen_requests: u64,
    /// Requests of clients whose operation has no record.
    orphans: u64,
    /// Requests at servers that no recorded process has sent, and all at servers.
    uncalled: (u64, u64),
    /// Operations that were not over when the recording ended.
    open: Vec<unfinished::Open>,
    /// Requests that nobody answered.
    unanswered: Vec<unfinished::Unanswered>,
    /// When the servers of these last answered anybody.
    last_answers: BTreeMap<u16, i64>,
    /// When processes stood still.
    stopped: stopped::Stopped,
    /// When they waited for a processor.
    starved: starved::Starved,
    /// When they were kept from running by a limit.
    limited: limited::Limited,
    /// Requests that servers refused because of their disks.
    refused: Vec<signs::Refused>,
    /// How long things take at each place.
    means: means::Means,
    /// The first and the last moment of all records.
    recorded: (i64, i64),
    /// The same of clients.
    recorded_of_clients: (i64, i64),
}

/// Operations that are split at once.
const CHUNK: usize = 1 << 14;

impl<'a> Analysis<'a> {
    /// Splits every operation of the trace.
    pub fn new(merged: &'a Merged) -> Analysis<'a> {
        Analysis::by(merged, &in_turn)
    }

    /// The same with parts of the work one after the other or at the same time, as `each` does it.
    pub fn by(merged: &'a Merged, each: Each<'_>) -> Analysis<'a> {
        let index = Index::new(merged, each);
        let work = index.work(each);
        let (starved, limited) = (starved::Starved::new(merged, each), limited::Limited::new(merged, each));
        let (refused, stopped) = (signs::refused(merged, each), stopped::Stopped::new(merged, each));
        let means = means::Means::new(&index, each);
        let chunks: Vec<&[u32]> = index.roots.chunks(CHUNK).collect();
        let parts = gathered_of(each, chunks, |_, roots| {
            let (mut operations, mut paths, mut path) = (Vec::with_capacity(roots.len()), Paths::default(), Vec::new());
            for root in roots {
                let event = merged.events.event(*root);
                critical::path(&index, *root, (event.start_ns, event.end_ns()), &mut path);
                path.retain(|segment| segment.dur_ns > 0);
                path.sort_by_key(|segment| segment.start_ns);
                starved.split(&mut path);
                operations.push(ClientOperation {
                    event: event.record.event,
                    node: event.node,
                    caller: event.record.req,
                    object: index.object(*root),
                    start_ns: event.start_ns,
                    dur_ns: event.dur_ns,
                    bytes: index.bytes(*root),
                    result: event.record.res,
                    segments: paths.push(event.start_ns, &path, &work),
                });
                path.clear();
            }
            (operations, paths)
        });
        let (mut operations, mut paths) = (Vec::with_capacity(index.roots.len()), Paths::default());
        for (part, of_part) in parts {
            let before = paths.append(of_part);
            let moved = |one: ClientOperation| ClientOperation { segments: one.segments.start + before..one.segments.end + before, ..one };
            operations.extend(part.into_iter().map(moved));
        }
        let uncalled = (index.uncalled, index.served);
        let (orphans, recorded, recorded_of_clients) = (index.orphans, index.recorded(), index.recorded_of_clients());
        let (open, unanswered) = (unfinished::open_operations(&index), unfinished::unanswered(&index));
        let last_answer = |call: &unfinished::Unanswered| Some((call.server, index.last_answer(call.server)?));
        let last_answers = unanswered.iter().filter_map(last_answer).collect();
        let (unrecorded, unseen_requests) = index.unseen();
        Analysis {
            merged,
            operations,
            paths,
            unrecorded,
            unseen_requests,
            orphans,
            uncalled,
            open,
            unanswered,
            last_answers,
            stopped,
            starved,
            limited,
            refused,
            means,
            recorded,
            recorded_of_clients,
        }
    }

    /// The critical path of an operation by time; the segments add up to its duration.
    pub fn path(&self, operation: &ClientOperation) -> Vec<Segment> {
        self.paths.path(operation.start_ns, operation.segments.clone())
    }

    /// The operations, by beginning.
    pub fn operations(&self) -> &[ClientOperation] {
        &self.operations
    }

    /// Where the time of each kind of operation goes, and the `suspects` places with the most time
    /// per list.
    pub fn explain(&self, suspects: usize) -> Explanation {
        self.explain_between(suspects, i64::MIN, i64::MAX)
    }

    /// The same for the operations that begin in [`from_ns`, `to_ns`) of the reference clock.
    pub fn explain_between(&self, suspects: usize, from_ns: i64, to_ns: i64) -> Explanation {
        self.explain_by(suspects, from_ns, to_ns, &in_turn)
    }

    /// The same with parts of the work one after the other or at the same time, as `each` does it.
    pub fn explain_by(&self, suspects: usize, from_ns: i64, to_ns: i64, each: Each<'_>) -> Explanation {
        report::explain(self, (from_ns, to_ns), suspects, each)
    }

    /// The operations that begin in [`from_ns`, `to_ns`) of the reference clock.
    pub fn between(&self, from_ns: i64, to_ns: i64) -> &[ClientOperation] {
        let first = self.operations.partition_point(|operation| operation.start_ns < from_ns);
        let last = self.operations.partition_point(|operation| operation.start_ns < to_ns);
        &self.operations[first..last.max(first)]
    }

    /// The `count` operations that took longest.
    pub fn slowest(&self, count: usize) -> Vec<Waterfall> {
        self.slowest_between(count, i64::MIN, i64::MAX)
    }

    /// Of those that begin in [`from_ns`, `to_ns`) of the reference clock, the `count` operations
    /// that took longest.
    pub fn slowest_between(&self, count: usize, from_ns: i64, to_ns: i64) -> Vec<Waterfall> {
        let mut order: Vec<&ClientOperation> = self.between(from_ns, to_ns).iter().collect();
        order.sort_by_key(|operation| (std::cmp::Reverse(operation.dur_ns), operation.start_ns));
        order.into_iter().take(count).map(|operation| Waterfall::new(self, operation)).collect()
    }

    fn name(&self, node: usize, event: EventId) -> String {
        self.merged.nodes[node].events.name(event)
    }

    /// The name of a server by its number: that of its file, or what the number says.
    fn server_name(&self, server: u16) -> String {
        let known = self.merged.nodes.iter().find(|node| node.server == Some(server));
        known.map_or_else(|| weft_base::ServerId(server).to_string(), |node| node.name.clone())
    }
}

#[cfg(test)]
mod tests;
