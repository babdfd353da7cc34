//! Time in which a process could go on and had to wait for a processor. The kernel counts it for
//! each thread; a gauge (`load.processor`) says for pieces of time how long the thread of a process
//! that waited most had waited. So of a piece of a path that lies there, the same part is taken to
//! be such a wait: between two gauges nobody knows it more exactly.

use super::Segment;
use crate::Stage;
use crate::event::LOAD_PROCESSOR;
use crate::merge::{Each, Merged, gathered};
use crate::record::Body;

/// A smaller part of the time is what every machine has.
const SHARE_MIN: f64 = 0.05;

/// By node pieces of time (beginning, end, share of it), by their beginning; they do not overlap.
#[derive(Debug)]
pub(super) struct Starved {
    nodes: Vec<Vec<(i64, i64, f64)>>,
    /// Nodes by the number of the server.
    servers: Vec<(u16, usize)>,
}

impl Starved {
    pub fn new(merged: &Merged, each: Each<'_>) -> Starved {
        let nodes = gathered(each, merged.nodes.len(), |node| of_node(merged, node));
        let servers = merged.nodes.iter().enumerate().filter_map(|(position, node)| Some((node.server?, position))).collect();
        Starved { nodes, servers }
    }

    /// By node the part of a window in which its thread that waited most had to wait, 0 to 1.
    pub fn shares(&self, (from_ns, to_ns): (i64, i64)) -> impl Iterator<Item = f64> {
        let window_ns = to_ns.saturating_sub(from_ns).max(1) as f64;
        self.nodes.iter().map(move |pieces| {
            let part = |(from, to, share): &(i64, i64, f64)| (to.min(&to_ns) - from.max(&from_ns)).max(0) as f64 * share;
            pieces.iter().map(part).sum::<f64>() / window_ns
        })
    }

    /// Takes waits for a processor out of the segments of a path, which stay one after the other.
    pub fn split(&self, path: &mut Vec<Segment>) {
        if self.nodes.iter().all(Vec::is_empty) {
            return;
        }
        let mut split = Vec::with_capacity(path.len() + 4);
        for segment in path.drain(..) {
            let (node, ns) = self.of(&segment);
            if ns == 0 {
                split.push(segment);
                continue;
            }
            let left = segment.dur_ns - ns;
            if left > 0 {
                split.push(Segment { dur_ns: left, storage_ns: segment.storage_ns.map(|ns| ns.min(left)), ..segment });
            }
            let start_ns = segment.start_ns.saturating_add_unsigned(left);
            let none = Default::default();
            split.push(Segment {
                stage: Stage::Processor,
                node,
                peer: None,
                phase: None,
                start_ns,
                dur_ns: ns,
                storage_ns: none,
                ..segment
            });
        }
        *path = split;
    }

    /// Who had to wait in this segment, and how long. Of a message that is one of both ends.
    fn of(&self, segment: &Segment) -> (usize, u64) {
        let is_message = matches!(segment.stage, Stage::Network | Stage::SendQueue) && segment.phase.is_none();
        let can_wait = matches!(segment.stage, Stage::Client | Stage::Kernel | Stage::ServerQueue | Stage::Cpu | Stage::Journal);
        if !is_message && !can_wait {
            return (segment.node, 0);
        }
        let peer = segment.peer.filter(|_| is_message);
        let peer = peer.and_then(|peer| self.servers.iter().find(|(number, _)| *number == peer)).map(|(_, node)| *node);
        let ends = [Some(segment.node), peer].into_iter().flatten();
        ends.map(|node| (node, self.waited_ns(node, segment))).max_by_key(|(_, ns)| *ns).unwrap_or((segment.node, 0))
    }

    fn waited_ns(&self, node: usize, segment: &Segment) -> u64 {
        let (from, to) = (segment.start_ns, segment.start_ns.saturating_add_unsigned(segment.dur_ns));
        let pieces = &self.nodes[node];
        let first = pieces.partition_point(|piece| piece.1 <= from);
        let part = |(start, end, share): &(i64, i64, f64)| ((to.min(*end) - from.max(*start)).max(0) as f64 * share) as u64;
        let sum: u64 = pieces[first..].iter().take_while(|piece| piece.0 < to).map(part).sum();
        sum.min(segment.dur_ns)
    }
}

fn of_node(merged: &Merged, node: usize) -> Vec<(i64, i64, f64)> {
    let times = merged.events.node_times(node);
    let mut pieces: Vec<(i64, i64, f64)> = Vec::new();
    if !times.sorts().iter().any(|sort| sort.event == LOAD_PROCESSOR) {
        return pieces;
    }
    for time in times.iter().filter(|time| times.sorts()[time.sort as usize].event == LOAD_PROCESSOR) {
        let Body::Counter([_, _, _, most_ns, interval_ns]) = times.record(time.position).body else { continue };
        let share = (most_ns as f64 / interval_ns.max(1) as f64).min(1.0);
        let from = time.start_ns.saturating_sub_unsigned(interval_ns);
        if share < SHARE_MIN {
            continue;
        }
        // A long wait is counted when it is over: it reaches back over gauges that knew nothing of
        // it.
        while pieces.last().is_some_and(|last| last.0 >= from) {
            pieces.pop();
        }
        if let Some(last) = pieces.last_mut() {
            last.1 = last.1.min(from);
        }
        pieces.push((from, time.start_ns, share));
    }
    pieces
}
