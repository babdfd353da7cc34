//! What the query of an address says about a run.

use weft_analysis::run::Run;
use weft_analysis::{histogram, running};
use weft_http::Query;

/// The window of time that is asked for, within the run and not empty.
pub fn window(query: &Query, run: &Run) -> (u64, u64) {
    range(query, "from", "to", run)
}

/// A window of time between two named numbers, within the run and not empty.
pub fn range(query: &Query, from: &str, to: &str, run: &Run) -> (u64, u64) {
    let from = query.number(from, 0).min(run.duration_ns);
    let to = query.number(to, run.duration_ns).min(run.duration_ns.saturating_add(1));
    (from, to.max(from + 1))
}

/// Which running performance is asked for.
pub fn running(query: &Query) -> running::RunningOptions {
    running::RunningOptions {
        source: query.text("source").to_string(),
        kinds: query.numbers("kind"),
        interval_ns: query.number("interval", 0),
        formula: query.text("formula").to_string(),
    }
}

/// Which histogram is asked for.
pub fn histogram(query: &Query) -> histogram::HistogramOptions {
    histogram::HistogramOptions {
        of: query.text("of").to_string(),
        by_time: query.text("per") == "time",
        log: Some(query.text("scale")).filter(|scale| matches!(*scale, "log" | "linear")).map(|scale| scale == "log"),
        width: chart_width(query),
    }
}

/// Pixels of a chart.
pub fn chart_width(query: &Query) -> u32 {
    query.number("width", 960).clamp(320, 3000) as u32
}

/// By kind: true if it is hidden.
pub fn hidden(query: &Query, run: &Run) -> Vec<bool> {
    let mut hidden = vec![false; run.lanes.kinds.len()];
    for kind in query.numbers("hide") {
        if let Some(flag) = hidden.get_mut(kind as usize) {
            *flag = true;
        }
    }
    hidden
}
