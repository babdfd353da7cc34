//! What a server did while a request waited in its queue, or for the commit of a turn with many requests. The wait is only the effect: the
//! place worth looking at is what the others needed the time for.

use weft_base::FastMap;

use super::Segment;
use super::index::Turns;
use crate::Stage;
use crate::event::{DISK_JOB, JOURNAL_COMMIT, JOURNAL_SYNC, served};
use crate::events::Event;
use crate::merge::Merged;
use crate::record::{Body, fine, flags};

/// Kinds of work; of kinds at the same time the one first asked for counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// An access to the disk for one request.
    Disk,
    /// A processor at work for one request.
    Cpu,
    /// A write or flush of the journal within a turn, which waits for it.
    Commit,
    /// Any access to the disk that is not for one request.
    Shared,
}

/// A piece of work: beginning, end (nanoseconds of the merged clock) and what it was.
type Piece = (i64, i64, Stage);

/// What each node did, by time.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Pieces of work by their beginning. Within a kind they do not overlap.
    pieces: FastMap<(usize, Kind), Vec<Piece>>,
}

impl Work {
    /// Of all events of a trace.
    pub fn new(merged: &Merged, turns: &Turns) -> Work {
        let mut work = Work::default();
        for position in 0..merged.events.len() as u32 {
            let event = &merged.events.event(position);
            let span = (event.start_ns, event.end_ns());
            let stage = || merged.nodes[event.node].events.get(event.record.event).map_or(Stage::Unseen, |info| info.stage);
            let mut add = |kind, (from, to), stage| work.pieces.entry((event.node, kind)).or_default().push((from, to, stage));
            match &event.record.body {
                Body::Ladder(_) if event.record.flags & flags::SERVER != 0 => add(Kind::Cpu, cpu_phase(event), Stage::Cpu),
                Body::Span(_) if matches!(event.record.event, JOURNAL_COMMIT | JOURNAL_SYNC) && turns.enclose(&merged.events, event.node, span) => {
                    add(Kind::Commit, span, Stage::Journal)
                }
                // The time of its requests is in records of their own.
                Body::Span(_) if event.record.event == DISK_JOB => {}
                Body::Span(_) if super::index::is_disk(event) => match event.record.req {
                    0 => add(Kind::Shared, span, Stage::Journal),
                    _ => add(Kind::Disk, span, stage().with_class(event.record.class)),
                },
                _ => {}
            }
        }
        for pieces in work.pieces.values_mut() {
            pieces.sort_by_key(|(from, to, _)| (*from, std::cmp::Reverse(*to)));
            let mut until = i64::MIN;
            for (from, to, _) in pieces.iter_mut() {
                *from = until.max(*from);
                until = until.max(*to);
            }
            pieces.retain(|(from, to, _)| from < to);
        }
        work
    }

    /// Parts of free intervals during which the node did work of a kind, by stage; they are free no longer.
    fn take(&self, node: usize, kind: Kind, free: &mut Vec<(i64, i64)>) -> Vec<(Stage, u64)> {
        let mut found = Vec::new();
        let Some(pieces) = self.pieces.get(&(node, kind)) else { return found };
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

    /// What the server did during a segment that is a wait, by stage. A wait for the journal is one for other work only while the storage
    /// did nothing.
    pub fn during(&self, segment: &Segment) -> Vec<(Stage, u64)> {
        if !matches!(segment.stage, Stage::ServerQueue | Stage::Journal) {
            return Vec::new();
        }
        let mut free = vec![(segment.start_ns, segment.start_ns.saturating_add_unsigned(segment.dur_ns))];
        let mut take = |kind| self.take(segment.node, kind, &mut free);
        match segment.stage {
            Stage::ServerQueue => [take(Kind::Disk), take(Kind::Cpu), take(Kind::Commit)].concat(),
            Stage::Journal => {
                take(Kind::Shared);
                [take(Kind::Disk), take(Kind::Cpu)].concat()
            }
            _ => Vec::new(),
        }
    }
}

/// When the processor worked on a request.
fn cpu_phase(event: &Event) -> (i64, i64) {
    let Body::Ladder(ladder) = &event.record.body else { return (0, 0) };
    let total: u64 = ladder.phases.iter().map(|phase| fine(*phase)).sum();
    let place = |ticks: u64| {
        let ns = u128::from(event.dur_ns) * u128::from(ticks) / u128::from(total.max(1));
        event.start_ns.saturating_add_unsigned(ns as u64)
    };
    let before: u64 = ladder.phases[..served::CPU].iter().map(|phase| fine(*phase)).sum();
    (place(before), place(before + fine(ladder.phases[served::CPU])))
}
