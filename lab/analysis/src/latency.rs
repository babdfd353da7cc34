//! The distribution of latencies in a window of time, stacked by node.

use serde_json::{Value, json};
use weft_trace::Stage;
use weft_trace::events::before;
use weft_trace::explain::ClientOperation;
use weft_trace::latency::{Latency, SLOTS, Stacked, slot_bounds_ns, slot_label};

use crate::details::phases;
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

/// Of the operations of clients and requests at servers that begin in the window, and are of
/// [`chosen_kinds`], how long each was in one stage; those that were never in it do not count. With
/// the record of the longest. Other records have no stages inside.
pub fn in_stage(run: &Run, from: u64, to: u64, kinds: &[u64], stage: Stage) -> Chosen {
    let kinds = chosen_kinds(run, kinds);
    let names: Vec<&str> = kinds.iter().map(|kind| run.lanes.kinds[usize::from(*kind)].name.as_str()).collect();
    let (analysis, (begin, end)) = (&run.analyse().analysis, run.absolute(from, to));
    let mut stacked = Stacked::default();
    let mut longest: Option<(u64, &ClientOperation)> = None;
    for operation in analysis.between(begin, end) {
        let node = &run.merged.nodes[operation.node];
        if !names.contains(&node.events.name(operation.event).as_str()) {
            continue;
        }
        let ns = analysis.path(operation).iter().filter(|segment| segment.stage == stage).map(|segment| segment.dur_ns).sum();
        if ns > 0 {
            stacked.part(&node.name).record(ns);
            longest = longest.filter(|(other, _)| *other >= ns).or(Some((ns, operation)));
        }
    }
    let mut longest = longest.and_then(|(ns, operation)| Some((ns, record_of(run, operation)?)));
    for lane in &run.lanes.lanes {
        let all = run.spans_of(lane.node);
        for (_, track) in lane.tracks.iter().filter(|(kind, _)| kinds.contains(kind)) {
            for (_, position) in track.beginning_in(&all, from, to) {
                let phases = phases(run, &run.merged.events.event(position));
                let ns = phases.iter().filter(|(_, of, _)| *of == stage.name()).map(|(.., ns)| ns).sum();
                if ns > 0 {
                    stacked.part(&run.merged.nodes[lane.node].name).record(ns);
                    longest = longest.filter(|(other, _)| *other >= ns).or(Some((ns, position)));
                }
            }
        }
    }
    Chosen { kinds, stacked, longest }
}

/// The record of an operation.
fn record_of(run: &Run, operation: &ClientOperation) -> Option<u32> {
    let events = &run.merged.events;
    let at_once = events.from(before(operation.start_ns)).take_while(|position| events.start_ns(*position) == operation.start_ns);
    let is = |position: &u32| {
        events.node(*position) == operation.node
            && events.sort(*position).event == operation.event
            && events.dur_ns(*position) == operation.dur_ns
    };
    at_once.into_iter().find(is)
}

/// The whole operations, or one stage of each.
pub fn of(run: &Run, from: u64, to: u64, kinds: &[u64], stage: Option<Stage>) -> Chosen {
    match stage {
        Some(stage) => in_stage(run, from, to, kinds, stage),
        None => chosen(run, from, to, kinds),
    }
}

/// Where the slowest operations begin: the lower bound of the slot of the 90th percentile.
pub fn tail_from_ns(total: &Latency) -> u64 {
    slot_bounds_ns(weft_trace::latency::slot_of(total.quantile_ns(0.9))).0
}

/// The distribution of these spans, or of one stage of these operations, as numbers.
pub fn distribution(run: &Run, from: u64, to: u64, kinds: &[u64], stage: Option<Stage>) -> Value {
    let Chosen { kinds, stacked, longest } = of(run, from, to, kinds, stage);
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
        let all = distribution(&run, 0, u64::MAX, &[], None);
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
        let all = distribution(&run, 0, u64::MAX, &[], None);
        assert_eq!((all["total"]["count"].as_u64(), all["total"]["min"].as_u64()), (Some(20), Some(62_000)));
        let names: Vec<&str> = run.lanes.kinds.iter().filter(|kind| kind.is_operation).map(|kind| kind.name.as_str()).collect();
        assert_eq!(names, ["fuse.create"]);
    }

    #[test]
    fn a_window_counts_what_begins_in_it() {
        let run = Run::new(merged(&Sample { operations: 800, ..Sample::default() }), Vec::new());
        let middle = run.duration_ns / 3;
        let count = |from, to| distribution(&run, from, to, &[], None)["total"]["count"].as_u64().unwrap();
        assert!(count(0, middle) > 0);
        assert_eq!(count(0, middle) + count(middle, u64::MAX), 800);
    }

    #[test]
    fn stages_of_all_operations_add_up_to_their_time() {
        let run = Run::new(merged(&Sample { operations: 800, ..Sample::default() }), Vec::new());
        let whole = chosen(&run, 0, u64::MAX, &[]).stacked.total();
        let of = |stage| in_stage(&run, 0, u64::MAX, &[], stage);
        let sum: u64 = Stage::ALL.into_iter().map(|stage| of(stage).stacked.total().sum_ns()).sum();
        assert_eq!(sum, whole.sum_ns());
        let explained = run.explain(0, u64::MAX);
        let journal = of(Stage::Journal).stacked.total();
        let told: f64 = explained.kinds.iter().flat_map(|kind| &kind.stages).filter(|of| of.stage == "journal").map(|of| of.seconds).sum();
        assert!((journal.sum_ns() as f64 / 1e9 - told).abs() < 1e-6 && (1..800).contains(&journal.count()), "{}", journal.count());
        // Of one kind, and in a window.
        let create = run.lanes.kinds.iter().position(|kind| kind.name == "client.create").expect("the sample has some") as u64;
        let some = in_stage(&run, 0, run.duration_ns / 2, &[create], Stage::Journal);
        assert!(some.stacked.total().count() > 0 && some.stacked.total().count() < journal.count());
        let (ns, longest) = some.longest.expect("there are some");
        assert!(run.merged.events.dur_ns(longest) >= ns);
        // Requests at servers have phases.
        let served = run.lanes.kinds.iter().position(|kind| kind.name == "meta.create").expect("the sample has some") as u64;
        let of_server = in_stage(&run, 0, u64::MAX, &[served], Stage::Journal).stacked;
        let requests = chosen(&run, 0, u64::MAX, &[served]).stacked.total();
        assert!(of_server.parts().iter().all(|(name, _)| name.starts_with("meta")), "{:?}", of_server.parts());
        assert!(of_server.total().count() > 0 && of_server.total().sum_ns() < requests.sum_ns());
        assert_eq!(distribution(&run, 0, u64::MAX, &[], Some(Stage::Journal))["total"]["count"], journal.count());
    }
}
