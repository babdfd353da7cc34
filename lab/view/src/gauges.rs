//! Gauges of the nodes: how they go over a window, and what they are called.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weft_analysis::run::Run;
use weft_trace::record::Body;

/// Values of a gauge at most.
const GAUGE_POINTS: u64 = 600;

/// What the gauges of this program say, for people: the event, the name in formulas, the words.
/// Others are called by their name and event.
const TITLES: [(&str, &str, &str); 39] = [
    ("load.server", "queue", "requests of a turn"),
    ("load.server", "in_flight", "requests that wait at the server"),
    ("load.server", "dirty_bytes", "bytes not yet written"),
    ("load.server", "net_in_bytes", "bytes received so far"),
    ("load.server", "net_out_bytes", "bytes sent so far"),
    ("load.disk", "requests", "requests in the cache layer"),
    ("load.disk", "cache_bytes", "bytes in the cache layer"),
    ("load.disk", "operations", "operations at the disk"),
    ("load.disk", "done", "disk operations so far"),
    ("load.disk", "done_bytes", "disk bytes so far"),
    ("load.mount", "waits", "a request waits for a thread"),
    ("load.mount", "busy", "requests in service"),
    ("load.mount", "serving", "threads that work"),
    ("load.mount", "wanted", "threads wanted"),
    ("load.mount", "waited_at_most_ns", "waited for threads so far, at most, ns"),
    ("load.processor", "waited_ns", "waited for a processor so far, ns"),
    ("load.processor", "ran_ns", "processor time so far, ns"),
    ("load.processor", "threads", "threads"),
    ("load.processor", "most_waited_ns", "longest wait for a processor, ns"),
    ("load.processor", "interval_ns", "time between looks, ns"),
    ("load.limit", "stopped_ns", "kept from running by a limit so far, ns"),
    ("load.limit", "last_stopped_ns", "kept from running since the last look, ns"),
    ("load.limit", "interval_ns", "time between looks, ns"),
    ("load.limit", "quota_us", "may run in each period, us"),
    ("load.limit", "period_us", "period of the limit, us"),
    ("load.host", "busy_percent", "processors of the machine work, %"),
    ("load.host", "disk_wait_percent", "processors wait for a disk, %"),
    ("load.host", "stolen_percent", "processors are with another machine, %"),
    ("load.host", "runnable", "threads of the machine that could run"),
    ("load.host", "processors", "processors of the machine"),
    ("load.memory", "used_bytes", "memory of the machine in use, bytes"),
    ("load.memory", "file_bytes", "files in memory, bytes"),
    ("load.memory", "unwritten_bytes", "files not on disk yet, bytes"),
    ("load.memory", "swapped_bytes", "swapped out, bytes"),
    ("load.memory", "memory_bytes", "memory of the machine, bytes"),
    ("load.devices", "cards_in_bytes", "bytes received by the machine so far"),
    ("load.devices", "cards_out_bytes", "bytes sent by the machine so far"),
    ("load.devices", "disks_read_bytes", "bytes read by all its disks so far"),
    ("load.devices", "disks_written_bytes", "bytes written by all its disks so far"),
];

/// What a gauge is called.
fn title(event: &str, name: &str) -> String {
    let known = TITLES.iter().find(|(of, gauge, _)| (*of, *gauge) == (event, name));
    // Groups of HDTrace with more columns than an event has values are several: GROUP, GROUP-2.
    let group = event.trim_end_matches(|letter: char| letter.is_ascii_digit()).strip_suffix('-').unwrap_or(event);
    known.map_or_else(|| format!("{name} ({group})"), |(.., title)| (*title).to_string())
}

/// Gauges in a window: the largest value in each of some hundred pieces of it. A sample holds until
/// the next one of its gauge.
pub fn gauges(run: &Run, from: u64, to: u64) -> Value {
    let piece = (to - from).div_ceil(GAUGE_POINTS).max(1);
    let mut samples: BTreeMap<(usize, u16, usize), Vec<(u64, u64)>> = BTreeMap::new();
    for position in &run.lanes.gauges {
        let at = run.since_origin(run.merged.events.start_ns(*position)).max(0) as u64;
        if at >= to {
            continue;
        }
        let event = run.merged.events.event(*position);
        if let Body::Counter(values) = &event.record.body {
            for (gauge, value) in values.iter().enumerate() {
                let all = samples.entry((event.node, event.record.event.0, gauge)).or_default();
                if at < from {
                    // Of those before the window only the last one is still seen.
                    all.clear();
                }
                all.push((at, *value));
            }
        }
    }
    let mut found: BTreeMap<(usize, u16, usize), BTreeMap<u64, u64>> = BTreeMap::new();
    for (gauge, samples) in samples {
        let points = found.entry(gauge).or_default();
        for (number, (at, value)) in samples.iter().enumerate() {
            let until = samples.get(number + 1).map_or(to, |next| next.0);
            let (first, last) = (at.saturating_sub(from) / piece, until.saturating_sub(from + 1) / piece);
            for place in first..=last.max(first) {
                let largest = points.entry(place).or_default();
                *largest = (*largest).max(*value);
            }
        }
    }
    let gauges = found.into_iter().filter_map(|((node, event, gauge), points)| {
        let info = run.merged.nodes[node].events.get(weft_trace::EventId(event))?;
        let name = &info.parts.get(gauge)?.name;
        let largest = *points.values().max()?;
        let title = title(&info.name, name);
        (largest > 0).then(
            || json!({ "node": node, "name": name, "title": title, "largest": largest, "points": points.into_iter().collect::<Vec<_>>() }),
        )
    });
    json!({ "from": from, "piece": piece, "gauges": gauges.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use weft_trace::{EventKind, EventTable};

    use super::*;
    use crate::api::tests::get;
    use crate::site::tests::site;

    #[test]
    fn every_gauge_of_this_program_has_a_title_of_its_own() {
        let table = EventTable::builtin();
        let gauges =
            || table.iter().filter(|info| info.kind == EventKind::Counter).flat_map(|info| info.parts.iter().map(move |part| (info, part)));
        for (info, part) in gauges() {
            assert!(TITLES.iter().any(|(of, gauge, _)| *of == info.name && *gauge == part.name), "{} {}", info.name, part.name);
        }
        assert_eq!(gauges().count(), TITLES.len());
        assert_eq!(title("other.event", "gauge"), "gauge (other.event)");
        assert_eq!(title("Performance-12", "MEM_USED"), "MEM_USED (Performance)");
    }

    #[test]
    fn gauges_keep_their_largest_value() {
        let site = site(2_000);
        let all = get(&site, "/api/gauges");
        let gauge = &all["gauges"][0];
        let largest = gauge["points"].as_array().unwrap().iter().map(|point| point[1].as_u64().unwrap()).max();
        assert_eq!(gauge["largest"].as_u64(), largest);
        assert_eq!(gauge["name"], "queue");
        // A sample holds until the next one, however narrow the pieces are.
        let points: Vec<u64> = gauge["points"].as_array().unwrap().iter().map(|point| point[0].as_u64().unwrap()).collect();
        assert!(points.len() > 100 && points.windows(2).all(|pair| pair[1] == pair[0] + 1), "{points:?}");
        let narrow = get(&site, "/api/gauges?from=5100000&to=5900000");
        assert!(narrow["gauges"].as_array().unwrap().iter().all(|gauge| gauge["points"][0][0] == 0), "the sample before holds: {narrow}");
    }
}
