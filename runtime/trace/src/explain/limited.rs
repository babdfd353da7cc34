//! Processes that may have a part of the processors only, and that the kernel has kept from running
//! for that (`load.limit`).

use super::of_node::Interval;
use crate::event::LOAD_LIMIT;
use crate::merge::{Each, Merged, gathered};
use crate::record::Body;

/// By node when a gauge was written, and what it says.
#[derive(Debug)]
pub(super) struct Limited(Vec<Vec<(i64, [u64; 5])>>);

/// A process that was kept from running.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct KeptBack {
    pub node: usize,
    pub seconds: f64,
    /// Of one processor, as it was at the end.
    pub part: f64,
}

impl Limited {
    pub fn new(merged: &Merged, each: Each<'_>) -> Limited {
        Limited(gathered(each, merged.nodes.len(), |node| of_node(merged, node)))
    }

    /// Who was kept from running within a window, the longest first.
    pub fn between(&self, (from_ns, to_ns): Interval) -> Vec<KeptBack> {
        let of_node = |(node, gauges): (usize, &Vec<(i64, [u64; 5])>)| {
            let mut within = gauges.iter().filter(|(at, _)| (from_ns..=to_ns).contains(at));
            let stopped_ns: u64 = within.clone().map(|(_, [_, last_ns, ..])| last_ns).sum();
            let (_, [.., quota_us, period_us]) = within.next_back()?;
            let part = *quota_us as f64 / (*period_us).max(1) as f64;
            (stopped_ns > 0).then_some(KeptBack { node, seconds: stopped_ns as f64 / 1e9, part })
        };
        let mut kept: Vec<KeptBack> = self.0.iter().enumerate().filter_map(of_node).collect();
        kept.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        kept
    }
}

fn of_node(merged: &Merged, node: usize) -> Vec<(i64, [u64; 5])> {
    let times = merged.events.node_times(node);
    if !times.sorts().iter().any(|sort| sort.event == LOAD_LIMIT) {
        return Vec::new();
    }
    let gauges = times.iter().filter(|time| times.sorts()[time.sort as usize].event == LOAD_LIMIT);
    let values = gauges.filter_map(|time| match times.record(time.position).body {
        Body::Counter(values) => Some((time.start_ns, values)),
        _ => None,
    });
    values.collect()
}
