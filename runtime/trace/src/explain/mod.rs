//! Where did the time go? From the records of clients and servers ([`crate::merge`]) to the stages of every operation, and from there to a
//! report that names the places worth looking at.
//!
//! The time of an operation is split along its critical path: of things that ran at the same time the one that ended last counts, for only
//! it made the operation wait (Zhang et al., CRISP: Critical Path Analysis of Large-Scale Microservice Architectures, USENIX ATC 2022,
//! section 3). So the stages of an operation add up to its duration exactly; what no record explains is a stage of its own
//! ([`crate::Stage::Unseen`]) and lowers `covered`.

mod critical;
mod index;
mod report;
mod suspect;
mod waterfall;

use std::collections::BTreeSet;

pub use report::{Explanation, KindReport, StageReport};
pub use suspect::Suspect;
pub use waterfall::{Step, Waterfall};

use crate::merge::Merged;
use crate::{EventId, Stage};
use index::Index;

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
    /// The phase of a ladder.
    pub phase: Option<u8>,
    /// Nanoseconds of the reference clock.
    pub start_ns: i64,
    /// Nanoseconds.
    pub dur_ns: u64,
    /// The part of it during which a disk access ran that served several requests (the journal's write or flush), in nanoseconds.
    pub shared_disk_ns: u64,
}

/// An operation of a client with its critical path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The kind: the name of the outermost event, for example `client.create` or `app.read`.
    pub event: EventId,
    /// The client.
    pub node: usize,
    /// The object, 0 if not recorded.
    pub object: u64,
    /// Nanoseconds of the reference clock.
    pub start_ns: i64,
    /// Nanoseconds.
    pub dur_ns: u64,
    /// The errno or status of a failure.
    pub result: u8,
    /// By time; they add up to `dur_ns`.
    pub path: Vec<Segment>,
}

/// All operations of a merged trace.
#[derive(Debug)]
pub struct Analysis<'a> {
    merged: &'a Merged,
    operations: Vec<Operation>,
    /// Requests whose server wrote no record, by server.
    unanswered: BTreeSet<u16>,
    /// Requests without a record of their server.
    unseen_requests: u64,
}

impl<'a> Analysis<'a> {
    /// Splits every operation of the trace.
    pub fn new(merged: &'a Merged) -> Analysis<'a> {
        let index = Index::new(merged);
        let mut operations = Vec::new();
        for root in index.roots() {
            let event = &merged.events[root];
            let mut path = Vec::new();
            critical::path(&index, root, (event.start_ns, event.end_ns()), &mut path);
            path.retain(|segment| segment.dur_ns > 0);
            path.sort_by_key(|segment| segment.start_ns);
            operations.push(Operation {
                event: event.record.event,
                node: event.node,
                object: index.object(root),
                start_ns: event.start_ns,
                dur_ns: event.dur_ns,
                result: event.record.res,
                path,
            });
        }
        let (unanswered, unseen_requests) = index.unseen();
        Analysis { merged, operations, unanswered, unseen_requests }
    }

    /// The operations, by beginning.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Where the time of each kind of operation goes, and the `suspects` places with the most time per list.
    pub fn explain(&self, suspects: usize) -> Explanation {
        report::explain(self, &self.operations, suspects)
    }

    /// The same for the operations that begin in [`from_ns`, `to_ns`) of the reference clock.
    pub fn explain_between(&self, suspects: usize, from_ns: i64, to_ns: i64) -> Explanation {
        report::explain(self, self.between(from_ns, to_ns), suspects)
    }

    /// The operations that begin in [`from_ns`, `to_ns`) of the reference clock.
    pub fn between(&self, from_ns: i64, to_ns: i64) -> &[Operation] {
        let first = self.operations.partition_point(|operation| operation.start_ns < from_ns);
        let last = self.operations.partition_point(|operation| operation.start_ns < to_ns);
        &self.operations[first..last.max(first)]
    }

    /// The `count` operations that took longest.
    pub fn slowest(&self, count: usize) -> Vec<Waterfall> {
        self.slowest_between(count, i64::MIN, i64::MAX)
    }

    /// Of those that begin in [`from_ns`, `to_ns`) of the reference clock, the `count` operations that took longest.
    pub fn slowest_between(&self, count: usize, from_ns: i64, to_ns: i64) -> Vec<Waterfall> {
        let mut order: Vec<&Operation> = self.between(from_ns, to_ns).iter().collect();
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
