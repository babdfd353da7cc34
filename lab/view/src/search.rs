//! Search: the next span that an expression describes, and a list of all of them with their number,
//! their time and where in the run they are.

use serde_json::{Value, json};
use weft_analysis::details;
use weft_analysis::levels::Tracks;
use weft_analysis::pattern::Pattern;
use weft_analysis::run::Run;
use weft_host::parallel::at_once;
use weft_trace::events::before;
use weft_trace::merge::gathered;

/// The next or previous span that an expression describes, seen from nanosecond `at` of the run, or
/// from record `after` if that exists.
pub fn find(run: &Run, tracks: &Tracks, text: &str, back: bool, at: u64, after: u32) -> Value {
    let pattern = match Pattern::new(run, text) {
        Ok(pattern) => pattern,
        Err(reason) => return json!({ "error": reason }),
    };
    let events = &run.merged.events;
    let start = run.origin_ns.saturating_add_unsigned(at);
    let here = if (after as usize) < events.len() { events.order(after) } else { before(start) };
    match events.find(here, back, |position| pattern.holds(position), &at_once) {
        Some(position) => json!({ "found": details::event(run, tracks, position) }),
        None => json!({ "found": Value::Null }),
    }
}

/// Which hits are listed, and how.
#[derive(Clone, Copy, Debug)]
pub struct SearchOptions {
    /// The window: hits that begin in it are counted on their own.
    pub from: u64,
    /// Its end.
    pub to: u64,
    /// The longest first, not the earliest.
    pub longest: bool,
    /// Only those of the window.
    pub within: bool,
    /// Hits that are left out at the beginning of the list.
    pub skip: usize,
    /// Hits in the list, at most.
    pub limit: usize,
    /// Pieces of the run for which their number is told.
    pub pieces: usize,
}

/// All hits of an expression.
pub fn hits(run: &Run, text: &str, asked: SearchOptions) -> Value {
    let pattern = match Pattern::new(run, text) {
        Ok(pattern) => pattern,
        Err(reason) => return json!({ "error": reason }),
    };
    // Start in nanoseconds since the origin, duration, position.
    let of_node = |node| -> Vec<(u64, u64, u32)> {
        let times = run.merged.events.node_times(node);
        let hits = times.iter().filter(|time| pattern.holds(time.position));
        hits.map(|time| (run.since_origin(time.start_ns).max(0) as u64, time.dur_ns, time.position)).collect()
    };
    let mut all = gathered(&at_once, run.merged.nodes.len(), of_node).concat();
    let inside = |hit: &(u64, u64, u32)| hit.0 >= asked.from && hit.0 < asked.to;
    let (count, in_window) = (all.len(), all.iter().filter(|hit| inside(hit)).count());
    let time_ns: u64 = all.iter().map(|hit| hit.1).sum();
    let mut pieces = vec![0u32; asked.pieces.max(1)];
    for (start, ..) in &all {
        let piece = u128::from(*start) * pieces.len() as u128 / u128::from(run.duration_ns.max(1));
        let last = pieces.len() - 1;
        pieces[(piece as usize).min(last)] += 1;
    }
    if asked.within {
        all.retain(|hit| inside(hit));
    }
    // Only what is shown has to be in order.
    let end = asked.skip.saturating_add(asked.limit).min(all.len());
    let key = |hit: &(u64, u64, u32)| if asked.longest { (u64::MAX - hit.1, hit.0, hit.2) } else { (hit.0, 0, hit.2) };
    if end < all.len() {
        all.select_nth_unstable_by_key(end, key);
    }
    let listed = &mut all[..end];
    listed.sort_unstable_by_key(key);
    let row = |(start, dur, position): &(u64, u64, u32)| {
        let event = run.merged.events.event(*position);
        let node = &run.merged.nodes[event.node];
        json!({
            "event": position, "start": start, "dur": dur, "name": node.events.name(event.record.event), "node": node.name,
            "kind": run.lanes.kind(&run.merged.events, *position), "file": details::file_of(run, &event),
            "failed": run.merged.events.is_failed(*position),
        })
    };
    let rows: Vec<Value> = listed.get(asked.skip..).unwrap_or_default().iter().map(row).collect();
    json!({ "count": count, "in_window": in_window, "time": time_ns, "pieces": pieces, "rows": rows, "more": end < all.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, merged};
    use weft_analysis::levels;
    use weft_trace::events::Event;

    fn run() -> Run {
        Run::new(merged(&Sample { operations: 200, ..Sample::default() }), Vec::new())
    }

    const TEXT: &str = "disk node:data0 >10us";

    fn plain(run: &Run) -> Vec<u64> {
        let is_hit = |event: &Event| {
            let node = &run.merged.nodes[event.node];
            node.name == "data0" && node.events.name(event.record.event).contains("disk") && event.dur_ns > 10_000
        };
        let events = &run.merged.events;
        events.in_order().filter(|position| is_hit(&events.event(*position))).map(u64::from).collect()
    }

    #[test]
    fn search_goes_forward_and_back_and_visits_every_hit_once() {
        let run = run();
        let tracks = levels::tracks(&run, Default::default());
        let hits = |back: bool| {
            let mut hits = Vec::new();
            let mut found = find(&run, &tracks, TEXT, back, if back { u64::MAX >> 1 } else { 0 }, u32::MAX);
            while let Some(position) = found["found"]["event"].as_u64() {
                hits.push(position);
                found = find(&run, &tracks, TEXT, back, 0, position as u32);
            }
            hits
        };
        let plain = plain(&run);
        assert!(!plain.is_empty());
        assert_eq!(hits(false), plain);
        assert_eq!(hits(true).into_iter().rev().collect::<Vec<_>>(), plain);
        assert!(find(&run, &tracks, "req:xyz", false, 0, u32::MAX)["error"].is_string());
        assert!(find(&run, &tracks, ">5parsec", false, 0, u32::MAX)["error"].is_string());
    }

    #[test]
    fn the_list_has_every_hit_once_page_by_page_and_counts_them() {
        let run = run();
        let plain = plain(&run);
        let whole = SearchOptions { from: 0, to: run.duration_ns / 2, longest: false, within: false, skip: 0, limit: 7, pieces: 10 };
        let mut listed = Vec::new();
        loop {
            let page = hits(&run, TEXT, SearchOptions { skip: listed.len(), ..whole });
            listed.extend(page["rows"].as_array().unwrap().iter().map(|row| row["event"].as_u64().unwrap()));
            let pieces: u64 = page["pieces"].as_array().unwrap().iter().map(|piece| piece.as_u64().unwrap()).sum();
            assert_eq!((page["count"].as_u64(), pieces), (Some(plain.len() as u64), plain.len() as u64));
            if page["more"] == false {
                break;
            }
        }
        assert_eq!(listed, plain);
        let longest = hits(&run, TEXT, SearchOptions { longest: true, limit: 1000, ..whole });
        let durations: Vec<u64> = longest["rows"].as_array().unwrap().iter().map(|row| row["dur"].as_u64().unwrap()).collect();
        assert!(durations.len() == plain.len() && durations.is_sorted_by(|a, b| a >= b), "{durations:?}");
        let within = hits(&run, TEXT, SearchOptions { within: true, limit: 1000, ..whole });
        assert_eq!(within["rows"].as_array().unwrap().len() as u64, within["in_window"].as_u64().unwrap());
        assert!(hits(&run, "(", whole)["error"].is_string());
    }
}
