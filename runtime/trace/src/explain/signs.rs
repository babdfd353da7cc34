//! Signs of what is the matter, beside the places with much time: refusals of servers, pieces that
//! are small, directories that everybody uses, requests of programs for locks.

use std::collections::BTreeMap;

use weft_base::{FastMap, Handle, ServerId, Status};
use weft_wire::Op;

use super::{Analysis, ClientOperation};
use crate::event::{
    APP_CREATE, APP_MKDIR, APP_OPEN, APP_READ, APP_RMDIR, APP_UNLINK, APP_WRITE, CLIENT_READ, CLIENT_WRITE, FUSE_CREATE, FUSE_GETATTR,
    FUSE_LOOKUP, FUSE_MKDIR, FUSE_OPEN, FUSE_READ, FUSE_RMDIR, FUSE_SETATTR, FUSE_UNLINK, FUSE_WRITE, request,
};
use crate::merge::{Each, Merged, gathered};
use crate::{EventId, EventKind, Stage};

/// A request that a server refused because of its disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Refused {
    pub server: u16,
    pub start_ns: i64,
    pub status: Status,
}

/// Refusals of all servers: the disk is full, or fails.
pub(super) fn refused(merged: &Merged, each: Each<'_>) -> Vec<Refused> {
    let events = &merged.events;
    let of_node = |node: usize| {
        let Some(server) = merged.nodes[node].server else { return Vec::new() };
        let is_failure = |position: &u32| events.sort(*position).kind == EventKind::StagedSpan && events.is_failed(*position);
        let refusal = |position: u32| {
            let event = events.event(position);
            let status = [Status::NoSpace, Status::Io].into_iter().find(|status| status.code() == u16::from(event.record.res))?;
            Some(Refused { server, start_ns: event.start_ns, status })
        };
        events.of_node(node).filter(is_failure).filter_map(refusal).collect()
    };
    gathered(each, merged.nodes.len(), of_node).into_iter().flatten().collect()
}

/// Reads and writes of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pieces {
    pub count: u64,
    pub bytes: u64,
    pub dur_ns: u64,
}

/// A directory with a large part of the changes at its server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Directory {
    pub handle: Handle,
    /// Its share of them, 0 to 1.
    pub share: f64,
}

/// Fewer changes say nothing about directories.
const CHANGES_MIN: u64 = 20;

impl Analysis<'_> {
    /// Servers that refused requests of the window because of their disks, and how many.
    pub(super) fn refusals(&self, from_ns: i64, to_ns: i64) -> BTreeMap<(u16, u16), u64> {
        let mut found = BTreeMap::new();
        for one in self.refused.iter().filter(|one| one.start_ns >= from_ns && one.start_ns < to_ns) {
            *found.entry((one.server, one.status.code())).or_default() += 1;
        }
        // Of a server without records, what programs were told after its answer.
        let status = |result: u8| [Status::NoSpace, Status::Io].into_iter().find(|status| status.errno() == i32::from(result));
        for operation in self.between(from_ns, to_ns).iter().filter(|_| !self.unrecorded.is_empty()) {
            let Some(status) = status(operation.result) else { continue };
            let path = self.path(operation);
            let unseen = path.iter().rev().find(|segment| segment.stage == Stage::Unseen).and_then(|segment| segment.peer);
            if let Some(server) = unseen.filter(|server| self.unrecorded.contains(server)) {
                *found.entry((server, status.code())).or_default() += 1;
            }
        }
        found
    }
}

/// Reads and writes whose length was recorded.
pub(super) fn moved(operations: &[ClientOperation]) -> [Pieces; 2] {
    let mut sums = [Pieces::default(); 2];
    for operation in operations.iter().filter(|operation| operation.bytes > 0) {
        let sum = match operation.event {
            APP_READ | FUSE_READ | CLIENT_READ => &mut sums[0],
            APP_WRITE | FUSE_WRITE | CLIENT_WRITE => &mut sums[1],
            _ => continue,
        };
        *sum = Pieces { count: sum.count + 1, bytes: sum.bytes + u64::from(operation.bytes), dur_ns: sum.dur_ns + operation.dur_ns };
    }
    sums
}

/// Both together.
pub(super) fn pieces(operations: &[ClientOperation]) -> Pieces {
    let [reads, writes] = moved(operations);
    Pieces { count: reads.count + writes.count, bytes: reads.bytes + writes.bytes, dur_ns: reads.dur_ns + writes.dur_ns }
}

/// The directory in which most names of this server are made and removed, if that is most of all.
pub(super) fn directory(operations: &[ClientOperation], server: ServerId) -> Option<Directory> {
    let mut counts: FastMap<u64, u64> = FastMap::default();
    let names = operations.iter().filter(|operation| is_of_a_directory(operation.event) && operation.object != 0);
    names.filter(|operation| Handle(operation.object).server() == server).for_each(|one| *counts.entry(one.object).or_default() += 1);
    let all: u64 = counts.values().sum();
    let (object, most) = counts.into_iter().max_by_key(|(object, count)| (*count, *object))?;
    let share = most as f64 / all as f64;
    (all >= CHANGES_MIN && share > 0.5).then_some(Directory { handle: Handle(object), share })
}

/// The one directory or file that most operations on names and attributes are about, which take
/// most of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Crowd {
    pub handle: Handle,
    pub is_directory: bool,
    /// Operations on it.
    pub count: u64,
    /// Their share of the time of all operations, 0 to 1.
    pub part: f64,
    /// Threads of programs that were at it, on the mean of the time between their first and their
    /// last operation on it.
    pub callers: f64,
}

/// An object with this share of what is asked about names and attributes is the one.
const CROWD: f64 = 0.8;

/// The object that everybody wants, if there is one.
pub(super) fn crowd(operations: &[ClientOperation]) -> Option<Crowd> {
    let mut objects: FastMap<u64, (bool, u64, u64)> = FastMap::default();
    let (mut all, mut all_ns) = (0, 0);
    for operation in operations {
        all_ns += operation.dur_ns;
        let is_directory = is_of_a_directory(operation.event);
        if operation.object == 0 || !is_directory && !matches!(operation.event, FUSE_OPEN | FUSE_SETATTR | FUSE_GETATTR | APP_OPEN) {
            continue;
        }
        let (is_one, count, ns) = objects.entry(operation.object).or_default();
        (*is_one, *count, *ns, all) = (*is_one || is_directory, *count + 1, *ns + operation.dur_ns, all + 1);
    }
    let (object, (is_directory, count, ns)) = objects.into_iter().max_by_key(|(object, (_, count, _))| (*count, *object))?;
    if all < CHANGES_MIN || (count as f64) < CROWD * all as f64 {
        return None;
    }
    let mut callers: FastMap<(usize, u64), (i64, i64)> = FastMap::default();
    for one in operations.iter().filter(|one| one.object == object) {
        let (first, last) = callers.entry((one.node, one.caller)).or_insert((one.start_ns, i64::MIN));
        (*first, *last) = ((*first).min(one.start_ns), (*last).max(one.start_ns.saturating_add_unsigned(one.dur_ns)));
    }
    let length = |(first, last): (i64, i64)| last.saturating_sub(first) as f64;
    let (first, last) = callers.values().fold((i64::MAX, i64::MIN), |all, one| (all.0.min(one.0), all.1.max(one.1)));
    let callers = callers.values().map(|one| length(*one)).sum::<f64>() / length((first, last)).max(1.0);
    Some(Crowd { handle: Handle(object), is_directory, count, part: ns as f64 / all_ns as f64, callers })
}

/// The object of such a request of the kernel is the directory.
pub(super) fn is_of_a_directory(event: EventId) -> bool {
    matches!(event, FUSE_CREATE | FUSE_LOOKUP | FUSE_MKDIR | FUSE_UNLINK | FUSE_RMDIR | APP_CREATE | APP_MKDIR | APP_UNLINK | APP_RMDIR)
}

/// A program asks for a lock (`flock`, `fcntl`).
pub(super) fn asks_for_lock(event: EventId) -> bool {
    event == request(Op::Lock)
}

/// A request that changes names.
pub(super) fn changes_names(event: EventId) -> bool {
    [Op::Create, Op::Mkdir, Op::Unlink, Op::Rmdir, Op::Rename].into_iter().any(|op| event == request(op))
}
