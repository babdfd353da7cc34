//! The distribution of latencies in a window of time, stacked by node.

use serde_json::{Value, json};
use weft_trace::latency::{Latency, SLOTS, Stacked, slot_bounds_ns, slot_label};

use crate::run::Run;
use crate::sublane::SubLane;

/// Percentiles that are shown.
const QUANTILES: [f64; 6] = [0.5, 0.9, 0.95, 0.99, 0.999, 1.0];

/// Spans of some kinds that begin in a window.
pub struct Chosen {
    /// The kinds: those that were asked for, or the outermost operations of clients.
    pub kinds: Vec<u16>,
    /// By node.
    pub stacked: Stacked,
    /// Nanoseconds of the longest one and its record.
    longest: Option<(u64, u32)>,
}

/// These kinds; without any, those of the outermost operations of clients.
pub fn chosen_kinds(run: &Run, kinds: &[u64]) -> Vec<u16> {
    match kinds {
        [] => usual_kinds(run),
        kinds => kinds.iter().filter_map(|kind| u16::try_from(*kind).ok()).collect(),
    }
}

/// Spans of [`chosen_kinds`] that begin in the window.
pub fn chosen(run: &Run, from: u64, to: u64, kinds: &[u64]) -> Chosen {
    let kinds = chosen_kinds(run, kinds);
    let mut stacked = Stacked::default();
    let mut longest: Option<(u64, u32)> = None;
    for lane in &run.lanes.lanes {
        for (kind, track) in &lane.tracks {
            if !kinds.contains(kind) {
                continue;
            }
            let all = run.spans_of(lane.node);
            let bars = track.beginning_in(&all, from, to);
            if bars.len() == 0 {
                continue;
            }
            let part = stacked.part(&run.merged.nodes[lane.node].name);
            for (ns, event) in bars {
                part.record(ns);
                if longest.is_none_or(|(other, _)| ns > other) {
                    longest = Some((ns, event));
                }
            }
        }
    }
    Chosen { kinds, stacked, longest }
}

/// Where the slowest operations begin: the lower bound of the slot of the 90th percentile.
pub fn tail_from_ns(total: &Latency) -> u64 {
    slot_bounds_ns(weft_trace::latency::slot_of(total.quantile_ns(0.9))).0
}

/// The distribution of these spans as numbers.
pub fn distribution(run: &Run, from: u64, to: u64, kinds: &[u64]) -> Value {
    let Chosen { kinds, stacked, longest } = chosen(run, from, to, kinds);
    let total = stacked.total();
    let shares = total.time_shares();
    let slots = (0..SLOTS).map(|slot| {
        let (lower, upper) = slot_bounds_ns(slot);
        let parts: Vec<u64> = stacked.parts().iter().map(|(_, part)| part.slots()[slot].count).collect();
        json!({ "label": slot_label(slot), "from": lower, "to": upper.min(1 << 53), "count": total.slots()[slot].count, "parts": parts, "share": shares[slot] })
    });
    let tail_from = tail_from_ns(&total);
    let (tail_count, tail_time) = total.tail(tail_from);
    json!({
        "kinds": kinds,
        "parts": stacked.parts().iter().map(|(name, part)| summary(name, part)).collect::<Vec<_>>(),
        "total": summary("all", &total),
        "slots": slots.collect::<Vec<_>>(),
        "longest": longest.map(|(ns, event)| json!({ "ns": ns, "event": event })),
        "tail": { "from": tail_from, "count_share": tail_count, "time_share": tail_time },
    })
}

/// Operations of the outermost layer that was recorded at clients; of servers if there is no
/// client.
fn usual_kinds(run: &Run) -> Vec<u16> {
    let of = |sub_lane: SubLane, client: bool| -> Vec<u16> {
        let lanes = run.lanes_of(sub_lane).filter(|(_, lane)| run.merged.nodes[lane.node].server.is_none() == client);
        let mut kinds: Vec<u16> = lanes.flat_map(|(_, lane)| lane.tracks.iter().map(|(kind, _)| *kind)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    };
    let layers = [(SubLane::Application, true), (SubLane::Gateway, true), (SubLane::Operation, true), (SubLane::Operation, false)];
    layers.into_iter().map(|(sub_lane, client)| of(sub_lane, client)).find(|kinds| !kinds.is_empty()).unwrap_or_default()
}

fn summary(name: &str, latency: &Latency) -> Value {
    let quantiles: Vec<(f64, u64)> = QUANTILES.iter().map(|q| (*q, latency.quantile_ns(*q))).collect();
    json!({
        "name": name, "count": latency.count(), "sum": latency.sum_ns(), "min": latency.min_ns(), "max": latency.max_ns(),
        "mean": latency.mean_ns(), "quantiles": quantiles,
    })
}

#[cfg(test)]
mod tests {
    use weft_trace::event;
    use weft_trace::merge::merge;
    use weft_trace::record::{Body, Span, TraceRecord};

    use super::*;
    use crate::sample::{Sample, file_of, merged};

    #[test]
    fn the_distribution_counts_every_operation_once_and_shares_add_up() {
        let run = Run::new(merged(&Sample { operations: 800, ..Sample::default() }), Vec::new());
        let all = distribution(&run, 0, u64::MAX, &[]);
        assert_eq!(all["total"]["count"], 800);
        let sum = |field: &str| all["slots"].as_array().unwrap().iter().map(|slot| slot[field].as_f64().unwrap()).sum::<f64>();
        assert_eq!(sum("count"), 800.0);
        assert!((sum("share") - 1.0).abs() < 1e-9);
        let parts: u64 = all["parts"].as_array().unwrap().iter().map(|part| part["count"].as_u64().unwrap()).sum();
        assert_eq!((parts, all["parts"].as_array().unwrap().len()), (800, 2));
        let longest = all["longest"]["event"].as_u64().unwrap() as u32;
        assert_eq!(run.merged.events.dur_ns(longest), all["total"]["max"].as_u64().unwrap());
    }

    /// A mount records the hand-over of each answer inside its request.
    #[test]
    fn an_operation_of_a_mount_counts_once_with_its_own_time() {
        let node = |number: u64| {
            let span = |event, t0, dur| TraceRecord::new(t0, event, Body::Span(Span { dur, ..Span::default() }));
            let at = 1_000 + number * 1_000_000;
            [span(event::FUSE_REPLY, at + 50_000, 10_000), span(event::FUSE_CREATE, at, 62_000)]
        };
        let records: Vec<TraceRecord> = (0..20).flat_map(node).collect();
        let run = Run::new(merge(vec![file_of("mount", None, &records)]), Vec::new());
        let all = distribution(&run, 0, u64::MAX, &[]);
        assert_eq!((all["total"]["count"].as_u64(), all["total"]["min"].as_u64()), (Some(20), Some(62_000)));
        let names: Vec<&str> = run.lanes.kinds.iter().filter(|kind| kind.is_operation).map(|kind| kind.name.as_str()).collect();
        assert_eq!(names, ["fuse.create"]);
    }

    #[test]
    fn a_window_counts_what_begins_in_it() {
        let run = Run::new(merged(&Sample { operations: 800, ..Sample::default() }), Vec::new());
        let middle = run.duration_ns / 3;
        let count = |from, to| distribution(&run, from, to, &[])["total"]["count"].as_u64().unwrap();
        assert!(count(0, middle) > 0);
        assert_eq!(count(0, middle) + count(middle, u64::MAX), 800);
    }
}
