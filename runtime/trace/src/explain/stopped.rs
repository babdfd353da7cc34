//! Processes that stood still: stopped by a signal or a debugger, frozen, or paused with their
//! machine. The thread that writes a trace looks at the clock all the time (`load.processor`); if
//! it came far too late, no thread waited for a processor, and nothing began in the process
//! meanwhile, then nothing of it ran.

use super::of_node::Interval;
use super::tally::seconds;
use super::wall::Union;
use crate::event::LOAD_PROCESSOR;
use crate::merge::{Each, Merged, gathered};
use crate::record::Body;

/// Less may be a busy machine.
const STOOD_NS: u64 = 500_000_000;
/// Whoever waited for a processor for this part of the time did not stand still.
const WAITED: f64 = 0.5;

/// By node the times in which it stood still.
#[derive(Debug)]
pub(super) struct Stopped(Vec<Vec<Interval>>);

impl Stopped {
    pub fn new(merged: &Merged, each: Each<'_>) -> Stopped {
        Stopped(gathered(each, merged.nodes.len(), |node| of_node(merged, node)))
    }

    /// The nodes that stood still within a window, and for how many seconds.
    pub fn between(&self, (from_ns, to_ns): Interval) -> impl Iterator<Item = (usize, f64)> {
        let of_node = move |(node, gaps): (usize, &Vec<Interval>)| {
            let mut union = Union::default();
            gaps.iter()
                .map(|gap| (gap.0.max(from_ns), gap.1.min(to_ns)))
                .filter(|gap| gap.0 < gap.1)
                .for_each(|gap| union.add(gap.0, gap.1));
            (node, seconds(union.end()))
        };
        self.0.iter().enumerate().map(of_node).filter(|(_, seconds)| *seconds > 0.0)
    }
}

fn of_node(merged: &Merged, node: usize) -> Vec<Interval> {
    let times = merged.events.node_times(node);
    let is_gauge = |sort: u32| times.sorts()[sort as usize].event == LOAD_PROCESSOR;
    if !(0..times.sorts().len() as u32).any(is_gauge) {
        return Vec::new();
    }
    let mut gaps = Vec::new();
    // What began since the last look.
    let mut begun: Vec<i64> = Vec::new();
    for time in times.iter() {
        begun.push(time.start_ns);
        if !is_gauge(time.sort) {
            continue;
        }
        if let Body::Counter([_, _, _, most_ns, interval_ns]) = times.record(time.position).body
            && interval_ns >= STOOD_NS
            && (most_ns as f64) < WAITED * interval_ns as f64
        {
            begun.insert(0, time.start_ns.saturating_sub_unsigned(interval_ns));
            let between = begun.windows(2).map(|pair| (pair[0], pair[1]));
            gaps.extend(between.filter(|(from, to)| to.saturating_sub(*from) >= STOOD_NS as i64));
        }
        begun.clear();
    }
    gaps
}
