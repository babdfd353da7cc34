//! How long things take at each place, of all records: on critical paths a fast place is only seen
//! when it was slow for once, or in part.

use weft_base::FastMap;

use super::index::{Index, wait_ns};
use super::of_node::is_disk;
use super::suspect::{Detail, Place};
use crate::Stage;
use crate::event::{DISK_JOB, NET_CALL, served};
use crate::merge::{Each, gathered};
use crate::record::{Body, flags};

/// Count and nanoseconds by stage, place and what it was; messages by link.
#[derive(Debug, Default)]
pub(super) struct Means(FastMap<(Stage, Place, Detail), (u64, u64)>);

impl Means {
    pub fn new(index: &Index<'_>, each: Each<'_>) -> Means {
        let nodes = gathered(each, index.merged.nodes.len(), |node| of_node(index, node));
        let mut means = Means::default();
        for (key, (count, ns)) in nodes.into_iter().flat_map(|means| means.0) {
            means.add(key, count, ns);
        }
        means
    }

    fn add(&mut self, key: (Stage, Place, Detail), count: u64, ns: u64) {
        let sum = self.0.entry(key).or_default();
        *sum = (sum.0 + count, sum.1 + ns);
    }

    /// The mean of one place; `None` if records do not say it.
    pub fn mean_ns(&self, stage: Stage, place: Place, detail: Detail) -> Option<u64> {
        self.mean_of([place], stage, detail)
    }

    /// The mean of several places together.
    pub fn mean_of(&self, places: impl IntoIterator<Item = Place>, stage: Stage, detail: Detail) -> Option<u64> {
        let found = places.into_iter().filter_map(|place| self.0.get(&(stage, place, detail)));
        let (count, ns) = found.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (count > 0).then(|| ns / count)
    }
}

fn of_node(index: &Index<'_>, node: usize) -> Means {
    let mut means = Means::default();
    for time in index.merged.events.node_times(node).iter() {
        let event = index.event(time.position);
        let (id, own) = (event.record.event, Place::TracedNode(node));
        match &event.record.body {
            Body::Span(span) if id == NET_CALL && event.record.flags & flags::OPEN == 0 => {
                let Some(staged_span) = index.staged_span(&event).map(|staged_span| index.event(staged_span)) else { continue };
                let (wait, link) = (wait_ns(&event, span), Place::Link(node, span.peer));
                means.add((Stage::SendQueue, link, (id, None)), 1, wait);
                means.add((Stage::Network, link, (id, None)), 1, event.dur_ns.saturating_sub(wait).saturating_sub(staged_span.dur_ns));
            }
            Body::Span(span) if is_disk(id) && id != DISK_JOB && event.record.req != 0 => {
                means.add((index.stage(&event), own, (id, None)), 1, event.dur_ns - wait_ns(&event, span));
            }
            Body::StagedSpan(staged_span) if event.record.flags & flags::SERVER != 0 => {
                let total: u64 = staged_span.phases.iter().map(|phase| u64::from(*phase)).sum();
                let ns =
                    |phase: usize| (u128::from(event.dur_ns) * u128::from(staged_span.phases[phase]) / u128::from(total.max(1))) as u64;
                // A wait for a lock has requests to others inside, which are taken out of it
                // elsewhere.
                for (phase, stage) in [(served::QUEUE, Stage::ServerQueue), (served::JOURNAL, Stage::Journal)] {
                    means.add((stage, own, (id, Some(phase as u8))), 1, ns(phase));
                }
                let disks: u64 = index.disks(node, event.record.req).map(|disk| index.event(disk).dur_ns).sum();
                if index.children(time.position).is_empty() {
                    means.add((Stage::Cpu, own, (id, Some(served::CPU as u8))), 1, ns(served::CPU).saturating_sub(disks));
                }
            }
            _ => {}
        }
    }
    means
}
