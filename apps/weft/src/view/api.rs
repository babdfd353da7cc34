//! Routes: an exact path each, so that no path ever reaches the file system. Pages and their parts are inside the program; data is JSON, or
//! binary where there is much of it ([`super::window`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weft_charts::views;

use super::compare::Part;
use super::http::Answer;
use super::lanes::Lane;
use super::pattern::Pattern;
use super::run::Run;
use super::site::{Site, State};
use super::sublane::node_order;
use super::window::{WIDTH_MAX, Window, picture};
use super::{compare, details, drawn, filter, gauges, latency, limits, metrics, overview, report, running, search, table};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The page.
const PARTS: [(&str, &str, &str); 20] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/style.css", CSS, include_str!("page/style.css")),
    ("/app.js", SCRIPT, include_str!("page/app.js")),
    ("/core.js", SCRIPT, include_str!("page/core.js")),
    ("/timeline.js", SCRIPT, include_str!("page/timeline.js")),
    ("/paint.js", SCRIPT, include_str!("page/paint.js")),
    ("/side.js", SCRIPT, include_str!("page/side.js")),
    ("/screens.js", SCRIPT, include_str!("page/screens.js")),
    ("/search.js", SCRIPT, include_str!("page/search.js")),
    ("/tracks.js", SCRIPT, include_str!("page/tracks.js")),
    ("/plot.js", SCRIPT, include_str!("page/plot.js")),
    ("/metrics.js", SCRIPT, include_str!("page/metrics.js")),
    ("/live.js", SCRIPT, include_str!("page/live.js")),
    ("/parts.js", SCRIPT, include_str!("page/parts.js")),
    ("/drawn.js", SCRIPT, include_str!("page/drawn.js")),
    ("/running.js", SCRIPT, include_str!("page/running.js")),
    ("/bounds.js", SCRIPT, include_str!("page/bounds.js")),
    ("/report.js", SCRIPT, include_str!("page/report.js")),
    ("/runs.js", SCRIPT, include_str!("page/runs.js")),
    ("/compare.js", SCRIPT, include_str!("page/compare.js")),
];

/// Rows of a table, at most.
const ROWS_MAX: u64 = 100_000;
/// Arrows that are drawn at most: more are a thicket.
const ARROWS_MAX: usize = 400;
/// How long a question how far the loading is waits for its end.
const STATE_WAIT: Duration = Duration::from_millis(100);

/// The query of an address.
#[derive(Debug, Default)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    /// From the text behind the question mark.
    pub fn new(text: &str) -> Query {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        Query(pairs.map(|(name, value)| (name.to_string(), decoded(value))).collect())
    }

    /// The value of a name, or nothing.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A number, or `default` if it is not there or is none.
    pub fn number(&self, name: &str, default: u64) -> u64 {
        // The browser computes with fractions of nanoseconds.
        self.text(name).parse::<f64>().ok().filter(|number| number.is_finite()).map_or(default, |number| number.max(0.0) as u64)
    }

    /// Numbers separated by commas.
    pub fn numbers(&self, name: &str) -> Vec<u64> {
        self.text(name).split(',').filter_map(|number| number.parse().ok()).collect()
    }

    /// The window of time that is asked for, within the run and not empty.
    pub fn window(&self, run: &Run) -> (u64, u64) {
        self.range("from", "to", run)
    }

    /// A window of time between two named numbers, within the run and not empty.
    pub fn range(&self, from: &str, to: &str, run: &Run) -> (u64, u64) {
        let from = self.number(from, 0).min(run.duration_ns);
        let to = self.number(to, run.duration_ns).min(run.duration_ns.saturating_add(1));
        (from, to.max(from + 1))
    }

    fn running(&self) -> running::Asked {
        running::Asked {
            source: self.text("source").to_string(),
            kinds: self.numbers("kind"),
            interval_ns: self.number("interval", 0),
            formula: self.text("formula").to_string(),
        }
    }

    /// Pixels of a chart.
    pub fn chart_width(&self) -> u32 {
        self.number("width", 960).clamp(320, 3000) as u32
    }

    /// By kind: true if it is hidden.
    pub fn hidden(&self, run: &Run) -> Vec<bool> {
        let mut hidden = vec![false; run.lanes.kinds.len()];
        for kind in self.numbers("hide") {
            if let Some(flag) = hidden.get_mut(kind as usize) {
                *flag = true;
            }
        }
        hidden
    }
}

/// `%XX` and `+` undone; what is no text is replaced.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped =
            after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, escaped) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
                continue;
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(*first),
        }
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The answer to a path.
pub fn route(site: &Site, path: &str, query: &Query) -> Answer {
    if let Some((_, content_type, text)) = PARTS.iter().find(|(name, _, _)| *name == path) {
        return Answer::ok(content_type, *text);
    }
    if !path.starts_with("/api/") {
        return Answer::refused(404, "there is no such page");
    }
    if path == "/api/state" {
        return Answer::json(&state(site, query));
    }
    if site.state() != State::Ready {
        return Answer::refused(503, "the trace is not loaded yet");
    }
    let first = first_run(site);
    let Some(run) = asked_run(site, query) else {
        return Answer::refused(404, "there is no such run, or it could not be read");
    };
    let (from, to) = query.window(&run);
    let event = query.number("event", u64::MAX).min(u64::from(u32::MAX)) as u32;
    match path {
        "/api/runs" => Answer::json(&overview::runs(site)),
        "/api/run" => Answer::json(&describe(&run)),
        "/api/window" => {
            let width = query.number("width", 1000).clamp(1, u64::from(WIDTH_MAX)) as u32;
            let shown = match filter::shown(&run, query.text("filter")) {
                Ok(shown) => shown,
                Err(reason) => return Answer::refused(400, &format!("the filter is not understood: {reason}")),
            };
            let picture = picture(&run, &shown, &Window { from, to, width, hidden: query.hidden(&run) });
            site.note_shown();
            Answer::ok("application/octet-stream", picture)
        }
        "/api/totals" => match filter::shown(&run, query.text("filter")) {
            Ok(shown) => Answer::json(&totals(&run, &shown, (from, to), &query.hidden(&run), query.text("colour"))),
            Err(reason) => Answer::refused(400, &reason),
        },
        "/api/gauges" => Answer::json(&gauges::gauges(&run, from, to)),
        "/api/metrics" => match query.text("format") {
            "csv" => Answer::file("text/csv; charset=utf-8", "weft-metrics.csv", metrics::csv(&run, from, to, query.text("formulas"))),
            _ => Answer::json(&metrics::lanes(&run, from, to, query.text("formulas"))),
        },
        "/api/event" => found(details::event(&run, event)),
        "/api/request" => found(details::request(&run, event)),
        "/api/arrows" => Answer::json(&details::arrows(&run, from, to, ARROWS_MAX)),
        "/api/hits" => {
            let number = |name: &str, default: u64, most: u64| query.number(name, default).min(most) as usize;
            let asked = search::Asked {
                from,
                to,
                longest: query.text("sort") == "longest",
                within: query.text("within") == "1",
                skip: number("skip", 0, u64::from(u32::MAX)),
                limit: number("limit", 100, 1000),
                pieces: number("pieces", 1, 4000),
            };
            Answer::json(&search::hits(&run, query.text("q"), asked))
        }
        "/api/find" => Answer::json(&search::find(&run, query.text("q"), query.text("back") == "1", query.number("at", 0), event)),
        "/api/latency" => Answer::json(&latency::distribution(&run, from, to, &query.numbers("kind"))),
        "/api/explain" => {
            let explanation = run.explain(from, to);
            let mut told = json!(explanation);
            told["charts"] = drawn::explained(&explanation, query.chart_width());
            Answer::json(&told)
        }
        "/api/slowest" => Answer::json(&details::slowest(&run, from, to, query.number("count", 20).min(200) as usize)),
        "/api/compare" | "/api/chart/compare" | "/api/chart/stages" => {
            let Some(other) = site.run(query.number("with", first)) else {
                return Answer::refused(404, "there is no such run to compare with, or it could not be read");
            };
            // The window of the second run is its own: runs need not begin alike.
            let (other_from, other_to) = query.range("with_from", "with_to", &other);
            let (a, b) = (Part { run: &run, from, to }, Part { run: &other, from: other_from, to: other_to });
            match path {
                "/api/compare" => Answer::json(&compare::compare(a, b)),
                "/api/chart/stages" => {
                    let rows = compare::stages(a, b);
                    Answer::json(&drawn::chart_json(&rows.svg(), None, &rows.table()))
                }
                _ => Answer::json(&drawn::lines(&compare::ecdf(a, b, query.text("of")))),
            }
        }
        "/api/report" => {
            let others = query.numbers("with").into_iter().filter_map(|number| site.run(number)).collect::<Vec<_>>();
            let runs: Vec<&Run> = std::iter::once(&*run).chain(others.iter().map(|other| &**other)).collect();
            let hardware = if matches!(query.text("hardware"), "tcp" | "2006") { query.text("hardware") } else { "unix" };
            Answer::file(HTML, "weft-report.html", report::html(&runs, hardware))
        }
        "/api/bounds" | "/api/chart/bounds" => {
            let transport = if matches!(query.text("hardware"), "tcp" | "2006") { query.text("hardware") } else { "unix" };
            let typed = |name: &str| query.text(name).parse().ok();
            let facts = limits::facts(&run, &site.ceilings(&run), typed, transport);
            match path {
                "/api/bounds" => Answer::json(&limits::describe(&run, &facts)),
                _ => {
                    let chart = limits::chart(&run, &facts, query.text("of"), query.number("clients", 64), query.chart_width());
                    Answer::json(&drawn::lines(&chart))
                }
            }
        }
        "/api/running" => Answer::json(&running::describe(&run, &query.running())),
        "/api/chart/running" => {
            let other = if query.text("with").is_empty() { None } else { site.run(query.number("with", u64::MAX)) };
            let view = running::View { each: query.text("view") == "each", accumulated: query.text("sum") == "1" };
            Answer::json(&drawn::lines(&running::chart(&run, other.as_deref(), &query.running(), view, query.chart_width())))
        }
        "/api/chart/latency" => Answer::json(&drawn::latency_bins(&run, from, to, &query.numbers("kind"), query.chart_width())),
        "/api/chart/ecdf" => Answer::json(&drawn::lines(&drawn::latency_ecdf(&run, from, to, &query.numbers("kind"), query.chart_width()))),
        "/api/health" => Answer::json(&health(&run)),
        "/api/table" => {
            let filter = match Pattern::new(&run, query.text("filter")) {
                Ok(filter) => filter,
                Err(reason) => return Answer::refused(400, &reason),
            };
            let rows = table::Rows {
                filter: Some(&filter),
                from,
                to,
                hidden: query.hidden(&run),
                skip: query.number("skip", 0),
                limit: query.number("limit", 200).min(ROWS_MAX),
            };
            match query.text("format") {
                "csv" => Answer::file("text/csv; charset=utf-8", "weft-spans.csv", table::csv(&run, &rows)),
                _ => Answer::json(&table::json(&run, &rows)),
            }
        }
        _ => Answer::refused(404, "there is no such page"),
    }
}

/// The run that is shown if none is named.
fn first_run(site: &Site) -> u64 {
    site.runs().next().map_or(0, |(number, _)| number as u64)
}

fn asked_run(site: &Site, query: &Query) -> Option<Arc<Run>> {
    site.run(query.number("run", first_run(site)))
}

/// How far the loading is, and whether the run that is asked for is analysed.
pub fn state(site: &Site, query: &Query) -> Value {
    // Who waits for the trace learns at once that it is there.
    site.await_loaded(STATE_WAIT);
    match site.state() {
        State::Ready => {
            let run = asked_run(site, query);
            json!({ "state": "ready", "analysed": run.is_some_and(|run| run.analysed().is_some()) })
        }
        State::Loading(done, total) => json!({ "state": "loading", "read": done, "total": total }),
        State::Failed(reason) => json!({ "state": "failed", "reason": reason }),
    }
}

fn found(value: Option<Value>) -> Answer {
    value.map_or_else(|| Answer::refused(404, "there is no such record"), |value| Answer::json(&value))
}

/// What does not change with the window.
fn describe(run: &Run) -> Value {
    let order = node_order(run.merged);
    let nodes = run.merged.nodes.iter().enumerate().map(|(number, node)| {
        json!({ "name": node.name, "server": node.server, "order": order[number], "clock_error_ns": run.merged.clocks[number].error_ns })
    });
    let lanes = run.lanes.lanes.iter().map(|lane| {
        let spans: usize = lane.tracks.iter().map(|(_, track)| track.len()).sum();
        json!({ "node": lane.node, "sub": lane.sub_lane, "row": lane.row, "overlaps": lane.overlaps, "spans": spans })
    });
    let marks = run.marks().map(|(event, value)| json!([run.since_origin(event.start_ns), value, event.record.text(), event.node]));
    let kinds = run.lanes.kinds.iter().map(|kind| {
        let mut told = json!(kind);
        told["colour"] = json!(format!("#{:06x}", views::event_fill(&kind.name).color));
        told
    });
    json!({
        "name": run.name,
        "has_trace": run.has_trace(),
        "duration": run.duration_ns,
        "spans": run.spans(),
        "simulated": overview::is_simulated(run),
        "nodes": nodes.collect::<Vec<_>>(),
        "lanes": lanes.collect::<Vec<_>>(),
        "kinds": kinds.collect::<Vec<_>>(),
        "marks": marks.take(2000).collect::<Vec<_>>(),
        "sources": run.sources.iter().map(|source| source.path.display().to_string()).collect::<Vec<_>>(),
        "names": !run.names.is_empty(),
        "lost": run.merged.nodes.iter().map(|node| node.lost).sum::<u64>(),
        "problems": problem_count(run),
    })
}

pub fn problem_count(run: &Run) -> usize {
    let clocks = run.merged.clocks.iter().filter(|clock| clock.error_ns.is_none()).count();
    let refused = run.sources.iter().filter(|source| source.refused.is_some()).count();
    // The analysis looks for them; the page asks again when it is there.
    let violations = usize::from(run.merged.known_violations().is_some_and(|count| count > 0));
    run.merged.nodes.iter().map(|node| node.problems.len()).sum::<usize>() + clocks + refused + violations
}

/// Number and time of the spans that begin in a window, by node and kind: the legend and the profile.
fn totals(run: &Run, shown: &[Lane], (from, to): (u64, u64), hidden: &[bool], colour: &str) -> Value {
    let sums = drawn::totals(run, shown, from, to);
    let rows = sums.into_iter().filter(|(_, (count, _))| *count > 0).map(|((node, kind), (count, time))| json!([node, kind, count, time]));
    json!({ "from": from, "to": to, "rows": rows.collect::<Vec<_>>(), "profile": drawn::profile(run, shown, (from, to), hidden, colour) })
}

/// What is missing, and how far the times can be trusted.
fn health(run: &Run) -> Value {
    let nodes = run.merged.nodes.iter().zip(&run.merged.clocks).enumerate().map(|(number, (node, clock))| {
        json!({
            "name": node.name, "server": node.server, "records": run.merged.events.of_node(number).len(), "lost": node.lost, "problems": node.problems,
            "offset_ns": clock.offset_ns, "error_ns": clock.error_ns, "samples": clock.samples,
        })
    });
    let sources = run
        .sources
        .iter()
        .map(|source| json!({ "path": source.path.display().to_string(), "bytes": source.bytes, "refused": source.refused }));
    let tracks = run.lanes.lanes.iter().flat_map(|lane| &lane.tracks);
    json!({
        "nodes": nodes.collect::<Vec<_>>(),
        "sources": sources.collect::<Vec<_>>(),
        "causality_violations": run.merged.known_violations(),
        "missing": run.analysed().map(|analysed| analysed.explanation.missing.clone()),
        "covered": run.analysed().map(|analysed| analysed.explanation.covered),
        "spans": run.spans(),
        "records": run.merged.events.len(),
        "overlapping_lanes": run.lanes.lanes.iter().filter(|lane| lane.overlaps).count(),
        "lane_bytes": tracks.map(|(_, track)| track.bytes() as u64).sum::<u64>(),
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::view::site::tests::site;

    pub fn get(site: &Site, target: &str) -> Value {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let answer = route(site, path, &Query::new(query));
        assert_eq!(answer.status, 200, "{target}: {}", String::from_utf8_lossy(&answer.body));
        serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{target}: {error}"))
    }

    #[test]
    fn queries_are_decoded_and_never_trusted() {
        let query = Query::new("q=a%20b%3C+%zz%&from=-5&to=1e400&n=12.7&hide=1,x,3");
        assert_eq!((query.text("q"), query.number("from", 9), query.number("to", 9), query.number("n", 0)), ("a b< %zz%", 0, 9, 12));
        assert_eq!(query.numbers("hide"), [1, 3]);
    }

    #[test]
    fn every_route_answers_for_any_window_and_any_record() {
        let site = site(200);
        for window in [
            "",
            "from=0&to=0",
            "from=5&to=2",
            "from=1e18&to=1e19",
            "from=1000&to=2000000&kind=0,1,99&hide=99&event=5&q=create&formulas=count(disk.*);x",
        ] {
            let paths = "runs run totals gauges metrics arrows find hits latency explain slowest health table compare chart/compare chart/stages chart/latency chart/ecdf running chart/running bounds chart/bounds";
            for path in paths.split(' ') {
                get(&site, &format!("/api/{path}?{window}"));
            }
        }
        for path in ["/api/event?event=99999999", "/api/request?event=4e9"] {
            let (path, query) = path.split_once('?').unwrap();
            assert_eq!(route(&site, path, &Query::new(query)).status, 404);
        }
    }

    #[test]
    fn totals_of_the_whole_run_count_every_span_and_two_halves_are_the_whole() {
        let site = site(500);
        let run = get(&site, "/api/run");
        let count = |window: String| -> u64 {
            get(&site, &format!("/api/totals?{window}"))["rows"].as_array().unwrap().iter().map(|row| row[2].as_u64().unwrap()).sum()
        };
        let duration = run["duration"].as_u64().unwrap();
        assert_eq!(count(String::new()), run["spans"].as_u64().unwrap());
        let middle = duration / 2;
        assert_eq!(
            count(format!("from=0&to={middle}")) + count(format!("from={middle}&to={}", duration + 1)),
            run["spans"].as_u64().unwrap()
        );
    }

    #[test]
    fn the_page_asks_for_nothing_outside_and_writes_no_markup_from_data() {
        for (path, _, text) in PARTS {
            let outside = text.match_indices("//").filter(|(at, _)| text[..*at].ends_with("http:") || text[..*at].ends_with("https:"));
            let foreign = outside.filter(|(at, _)| !text[*at..].starts_with("//www.w3.org/2000/svg"));
            assert_eq!(foreign.count(), 0, "{path}");
            for forbidden in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", " onclick=", " style=\""]
            {
                assert!(!text.contains(forbidden), "{path} has {forbidden}");
            }
        }
    }
}
