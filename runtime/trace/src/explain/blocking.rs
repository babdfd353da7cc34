//! What a server did while a request waited in its queue, or for the commit of a turn with many
//! requests. The wait is only the effect: the place worth looking at is what the others needed the
//! time for.

use super::Segment;
use super::of_node::Turns;
use crate::event::{DISK_JOB, JOURNAL_COMMIT, JOURNAL_SYNC, served};
use crate::merge::{Each, Merged, gathered};
use crate::record::{Body, TraceRecord, fine, flags};
use crate::{EventKind, Stage};

/// Kinds of work; of kinds at the same time the one first asked for counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// An access to the disk for one request.
    Disk,
    /// A processor at work for one request.
    Cpu,
    /// A write or flush of the journal within a turn, which waits for it.
    Commit,
    /// Any access to the disk that is not for one request.
    Shared,
}

/// Number of kinds.
const KINDS: usize = 4;

/// A piece of work: beginning, end (nanoseconds of the merged clock) and what it was.
type Piece = (i64, i64, Stage);

/// What each node did, by time.
#[derive(Debug)]
pub(super) struct Work {
    /// By node and kind pieces of work by their beginning. Within a kind they do not overlap.
    nodes: Vec<[Vec<Piece>; KINDS]>,
}

impl Work {
    /// Of all events of a trace.
    pub fn new<'t>(merged: &Merged, each: Each<'_>, turns: impl Fn(usize) -> &'t Turns + Sync) -> Work {
        let nodes = gathered(each, merged.nodes.len(), |node| of_node(merged, node, turns(node)));
        Work { nodes }
    }

    /// Parts of free intervals during which the node did work of a kind, by stage; they are free no
    /// longer.
    fn take(&self, node: usize, kind: Does, free: &mut Vec<(i64, i64)>) -> Vec<(Stage, u64)> {
        let mut found = Vec::new();
        let pieces = &self.nodes[node][kind as usize];
        for (from, to) in std::mem::take(free) {
            let begin = pieces.partition_point(|piece| piece.1 <= from);
            let mut at = from;
            for (start, end, stage) in pieces[begin..].iter().take_while(|piece| piece.0 < to) {
                let (start, end) = ((*start).max(at), (*end).min(to));
                free.push((at, start));
                found.push((*stage, (end - start) as u64));
                at = end;
            }
            free.push((at, to));
        }
        free.retain(|(from, to)| from < to);
        found
    }

    /// What the server did during a segment that is a wait, by stage. A wait for the journal is one
    /// for other work only while the storage did nothing.
    pub fn during(&self, segment: &Segment) -> Vec<(Stage, u64)> {
        if !matches!(segment.stage, Stage::ServerQueue | Stage::Journal) {
            return Vec::new();
        }
        let mut free = vec![(segment.start_ns, segment.start_ns.saturating_add_unsigned(segment.dur_ns))];
        let mut take = |kind| self.take(segment.node, kind, &mut free);
        match segment.stage {
            Stage::ServerQueue => [take(Does::Disk), take(Does::Cpu), take(Does::Commit)].concat(),
            Stage::Journal => {
                take(Does::Shared);
                [take(Does::Disk), take(Does::Cpu)].concat()
            }
            _ => Vec::new(),
        }
    }
}

fn of_node(merged: &Merged, node: usize, turns: &Turns) -> [Vec<Piece>; KINDS] {
    let times = merged.events.node_times(node);
    let stages = times.sorts().iter().map(|sort| {
        let stage = merged.nodes[node].events.get(sort.event).map_or(Stage::Unseen, |info| info.stage);
        stage.with_class(sort.class)
    });
    let stages: Vec<Stage> = stages.collect();
    let mut found: [Vec<Piece>; KINDS] = Default::default();
    for time in times.iter() {
        let sort = times.sorts()[time.sort as usize];
        let span = (time.start_ns, time.start_ns.saturating_add_unsigned(time.dur_ns));
        let (kind, (from, to), stage) = match sort.kind {
            EventKind::StagedSpan => match cpu_phase(&times.record(time.position), span.0, time.dur_ns) {
                Some(phase) => (Does::Cpu, phase, Stage::Cpu),
                None => continue,
            },
            EventKind::Span if matches!(sort.event, JOURNAL_COMMIT | JOURNAL_SYNC) && turns.enclose(span) => {
                (Does::Commit, span, Stage::Journal)
            }
            // The time of its requests is in records of their own.
            EventKind::Span if sort.event == DISK_JOB => continue,
            EventKind::Span if super::of_node::is_disk(sort.event) => match times.record(time.position).req {
                0 => (Does::Shared, span, Stage::Journal),
                _ => (Does::Disk, span, stages[time.sort as usize]),
            },
            _ => continue,
        };
        found[kind as usize].push((from, to, stage));
    }
    for pieces in &mut found {
        pieces.sort_by_key(|(from, to, _)| (*from, std::cmp::Reverse(*to)));
        let mut until = i64::MIN;
        for (from, to, _) in pieces.iter_mut() {
            *from = until.max(*from);
            until = until.max(*to);
        }
        pieces.retain(|(from, to, _)| from < to);
    }
    found
}

/// When the processor worked on a request; `None` if the record is no server's.
fn cpu_phase(record: &TraceRecord, start_ns: i64, dur_ns: u64) -> Option<(i64, i64)> {
    let Body::StagedSpan(staged_span) = &record.body else { return None };
    let total: u64 = staged_span.phases.iter().map(|phase| fine(*phase)).sum();
    let place = |ticks: u64| {
        let ns = u128::from(dur_ns) * u128::from(ticks) / u128::from(total.max(1));
        start_ns.saturating_add_unsigned(ns as u64)
    };
    let before: u64 = staged_span.phases[..served::CPU].iter().map(|phase| fine(*phase)).sum();
    let phase = (place(before), place(before + fine(staged_span.phases[served::CPU])));
    (record.flags & flags::SERVER != 0).then_some(phase)
}
