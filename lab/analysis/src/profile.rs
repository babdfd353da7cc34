//! Profiles: what the spans of a window cost, by host, process, thread or client, and by kind.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::lanes::Lane;
use crate::levels::Tracks;
use crate::run::Run;

/// What the spans of one kind cost in one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    calls: u64,
    /// Nanoseconds from beginning to end; spans that run at once count each.
    inclusive_ns: u64,
    /// Nanoseconds of it in which no other span of the process ran inside of them.
    exclusive_ns: u64,
    longest_ns: u64,
    /// The record of the longest.
    longest: u32,
}

/// The cost of the spans that begin in a window, by group of the tracks and kind. Without the
/// analysis of the run there are no exclusive times; `exclusive` waits for it.
pub fn profile(run: &Run, tracks: &Tracks, shown: &[Lane], (from, to): (u64, u64), hidden: &[bool], exclusive: bool) -> Value {
    let analysed = if exclusive { Some(run.analyse()) } else { run.analysed() };
    let order = tracks.order(run);
    // Groups by name, in the order of the page.
    let mut numbers: Vec<usize> = (0..tracks.tracks.len()).collect();
    numbers.sort_by_key(|track| order[*track]);
    let mut names: Vec<&str> = Vec::new();
    let mut group = vec![0; numbers.len()];
    for track in numbers {
        let name = tracks.profiled_as(track);
        group[track] = names.iter().position(|other| *other == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
    }
    let mut costs: BTreeMap<(usize, u16), Cost> = BTreeMap::new();
    for (lane, track) in shown.iter().zip(&tracks.of_lane) {
        let all = run.spans_of(lane.node);
        for (kind, spans) in lane.tracks.iter().filter(|(kind, _)| !hidden.get(usize::from(*kind)).copied().unwrap_or(false)) {
            let mut spans = spans.beginning_in(&all, from, to).peekable();
            if spans.peek().is_none() {
                continue;
            }
            let cost = costs.entry((group[*track], *kind)).or_default();
            for (ns, event) in spans {
                cost.calls += 1;
                cost.inclusive_ns += ns;
                cost.exclusive_ns += analysed.map_or(0, |analysed| ns - analysed.covered_ns(lane.node, event).min(ns));
                if cost.calls == 1 || ns > cost.longest_ns {
                    (cost.longest_ns, cost.longest) = (ns, event);
                }
            }
        }
    }
    let rows = costs.into_iter().map(|((group, kind), cost)| {
        let exclusive_ns = analysed.map(|_| cost.exclusive_ns);
        json!([group, kind, cost.calls, cost.inclusive_ns, exclusive_ns, cost.longest_ns, cost.longest])
    });
    json!({ "groups": names, "rows": rows.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use weft_trace::record::Body;

    use super::*;
    use crate::lanes::is_span;
    use crate::levels::{self, Level};
    use crate::sample::{Sample, merged};

    /// Sums of a column over all rows.
    fn sum(told: &Value, column: usize) -> u64 {
        told["rows"].as_array().unwrap().iter().map(|row| row[column].as_u64().unwrap()).sum()
    }

    #[test]
    fn a_profile_has_every_span_of_the_window_once_whatever_the_level() {
        let run = Run::new(merged(&Sample { operations: 300, ..Sample::default() }), Vec::new());
        let (from, to) = (run.duration_ns / 4, run.duration_ns / 2);
        let events = || run.merged.events.iter().filter(is_span);
        let inside: Vec<_> = events().filter(|event| (from..to).contains(&(run.since_origin(event.start_ns) as u64))).collect();
        for level in [Level::Host, Level::Rank, Level::Thread, Level::Relation] {
            let tracks = levels::tracks(&run, level);
            let told = profile(&run, &tracks, tracks.lanes(&run), (from, to), &[], true);
            assert_eq!(sum(&told, 2), inside.len() as u64, "{level:?}");
            assert_eq!(sum(&told, 3), inside.iter().map(|event| event.dur_ns).sum::<u64>());
            let longest = told["rows"].as_array().unwrap().iter().map(|row| row[5].as_u64().unwrap()).max();
            assert_eq!(longest, inside.iter().map(|event| event.dur_ns).max());
        }
    }

    /// Against a look at every nanosecond that any child covers.
    #[test]
    fn exclusive_time_is_what_no_span_inside_covers() {
        let run = Run::new(merged(&Sample { operations: 60, ..Sample::default() }), Vec::new());
        let all: Vec<_> = run.merged.events.iter().filter(is_span).collect();
        let mut wanted = 0;
        for event in &all {
            let own = match &event.record.body {
                Body::Span(span) => span.span,
                Body::StagedSpan(staged) => staged.span,
                _ => 0,
            };
            let is_inside = |other: &&weft_trace::events::Event| {
                matches!(&other.record.body, Body::Span(span) if own != 0 && span.parent == own) && other.node == event.node
            };
            let inside: Vec<(i64, i64)> = all.iter().filter(is_inside).map(|other| (other.start_ns, other.end_ns())).collect();
            wanted += (event.start_ns..event.end_ns()).filter(|at| !inside.iter().any(|(from, to)| from <= at && at < to)).count() as u64;
        }
        let tracks = levels::tracks(&run, Level::Rank);
        let told = profile(&run, &tracks, tracks.lanes(&run), (0, u64::MAX), &[], true);
        assert!(wanted < sum(&told, 3), "something lies inside something");
        // Staged spans are found by their identity only where the recorder gave one.
        assert_eq!(sum(&told, 4), wanted);
    }

    #[test]
    fn exclusive_times_are_not_made_up_before_they_are_known() {
        let run = Run::new(merged(&Sample { operations: 20, ..Sample::default() }), Vec::new());
        let tracks = levels::tracks(&run, Level::Rank);
        let tell = |exclusive| profile(&run, &tracks, tracks.lanes(&run), (0, u64::MAX), &[], exclusive)["rows"][0][4].clone();
        assert!(tell(false).is_null() && tell(true).is_u64() && tell(false).is_u64());
    }
}
