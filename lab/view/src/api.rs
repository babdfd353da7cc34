//! Routes: an exact path each, so that no path ever reaches the file system. Pages and their parts
//! are inside the program; data is JSON, or binary where there is much of it
//! ([`weft_analysis::window`]).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weft_analysis::compare::Part;
use weft_analysis::filter::Shown;
use weft_analysis::lanes::Lane;
use weft_analysis::levels::{self, Level, Tracks};
use weft_analysis::limits::Facts;
use weft_analysis::pattern::Pattern;
use weft_analysis::run::Run;
use weft_analysis::window::{WIDTH_MAX, Window, picture};
use weft_analysis::{calls, compare, details, drawn, filter, histogram, latency, limits, metrics, profile, running, table};
use weft_charts::views;
use weft_http::{Answer, Query};
use weft_trace::Stage;

use crate::site::{Site, State};
use crate::{gauges, overview, query, search};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const CSV: &str = "text/csv; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The page.
const PARTS: [(&str, &str, &str); 27] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/style.css", CSS, include_str!("page/style.css")),
    ("/app.js", SCRIPT, include_str!("page/app.js")),
    ("/core.js", SCRIPT, include_str!("page/core.js")),
    ("/address.js", SCRIPT, include_str!("page/address.js")),
    ("/calls.js", SCRIPT, include_str!("page/calls.js")),
    ("/kept.js", SCRIPT, include_str!("page/kept.js")),
    ("/rows.js", SCRIPT, include_str!("page/rows.js")),
    ("/costs.js", SCRIPT, include_str!("page/costs.js")),
    ("/profile.js", SCRIPT, include_str!("page/profile.js")),
    ("/histogram.js", SCRIPT, include_str!("page/histogram.js")),
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

/// What is asked about a run.
struct Question<'a> {
    site: &'a Site,
    run: &'a Run,
    query: &'a Query,
    /// How rows are put together.
    tracks: Arc<Tracks>,
    /// The window of time, nanoseconds since the beginning of the run.
    from: u64,
    to: u64,
}

impl Question<'_> {
    /// The record that is meant.
    fn event(&self) -> u32 {
        self.query.number("event", u64::MAX).min(u64::from(u32::MAX)) as u32
    }

    fn width(&self) -> u32 {
        query::chart_width(self.query)
    }

    fn kinds(&self) -> Vec<u64> {
        self.query.numbers("kind")
    }

    fn stage(&self) -> Option<Stage> {
        Stage::from_name(self.query.text("stage"))
    }

    /// The lanes with the spans that the filter shows.
    fn shown(&self) -> Result<Shown<'_>, Answer> {
        let refused = |reason| Answer::refused(400, &format!("the filter is not understood: {reason}"));
        filter::shown(self.run, &self.tracks, self.query.text("filter")).map_err(refused)
    }

    /// What is said about the spans that the filter shows.
    fn of_shown(&self, tell: impl FnOnce(&[Lane]) -> Value) -> Answer {
        self.shown().map_or_else(|refused| refused, |shown| Answer::json(&tell(&shown)))
    }

    /// Whose bounds count.
    fn hardware(&self) -> &str {
        Some(self.query.text("hardware")).filter(|named| matches!(*named, "tcp" | "2006")).unwrap_or("unix")
    }
}

/// What answers a path.
type Route = fn(&Question<'_>) -> Answer;

/// Every path below `/api/` that asks about a run.
const ROUTES: [(&str, Route); 30] = [
    ("runs", |ask| Answer::json(&overview::runs(ask.site))),
    ("run", |ask| Answer::json(&describe(ask.run, &ask.tracks))),
    ("window", window),
    ("totals", |ask| ask.of_shown(|shown| totals(ask.run, shown, (ask.from, ask.to)))),
    ("profile", |ask| {
        let (hidden, exclusive) = (query::hidden(ask.query, ask.run), ask.query.text("exclusive") == "1");
        ask.of_shown(|shown| profile::profile(ask.run, &ask.tracks, shown, (ask.from, ask.to), &hidden, exclusive))
    }),
    ("histogram", |ask| {
        let asked = query::histogram(ask.query);
        ask.of_shown(|shown| histogram::histogram(ask.run, &ask.tracks, shown, (ask.from, ask.to), &asked))
    }),
    ("gauges", |ask| Answer::json(&gauges::gauges(ask.run, ask.from, ask.to))),
    ("metrics", |ask| match (ask.query.text("format"), ask.query.text("formulas")) {
        ("csv", formulas) => Answer::file(CSV, "weft-metrics.csv", metrics::csv(ask.run, ask.from, ask.to, formulas)),
        (_, formulas) => Answer::json(&metrics::lanes(ask.run, ask.from, ask.to, formulas)),
    }),
    ("event", |ask| found(details::event(ask.run, &ask.tracks, ask.event()))),
    ("request", |ask| found(details::request(ask.run, ask.event()))),
    ("call", |ask| Answer::json(&json!({ "call": calls::call(ask.run, ask.event()) }))),
    ("arrows", |ask| Answer::json(&details::arrows(ask.run, &ask.tracks, (ask.from, ask.to), ARROWS_MAX))),
    ("hits", hits),
    ("find", |ask| {
        let (wanted, back, at) = (ask.query.text("q"), ask.query.text("back") == "1", ask.query.number("at", 0));
        Answer::json(&search::find(ask.run, &ask.tracks, wanted, back, at, ask.event()))
    }),
    ("latency", |ask| Answer::json(&latency::distribution(ask.run, ask.from, ask.to, &ask.kinds(), ask.stage()))),
    ("explain", |ask| {
        let explanation = ask.run.explain(ask.from, ask.to);
        let mut told = json!(explanation);
        told["charts"] = drawn::explained(&explanation, ask.width());
        Answer::json(&told)
    }),
    ("advice", |ask| {
        let twin = weft_predict::advise(&ask.run.explain(ask.from, ask.to), None);
        Answer::json(&json!(twin.unwrap_or_else(|error| weft_predict::Advised::unknown(&error))))
    }),
    ("slowest", |ask| {
        let count = ask.query.number("count", 20).min(200) as usize;
        Answer::json(&details::slowest(ask.run, ask.from, ask.to, count))
    }),
    ("compare", |ask| compared(ask, compare::compare)),
    ("chart/compare", |ask| compared(ask, |a, b| drawn::lines(&compare::ecdf(a, b, ask.query.text("of"))))),
    ("chart/stages", |ask| {
        compared(ask, |a, b| {
            let rows = compare::stages(a, b);
            drawn::chart_json(&rows.svg(), None, &rows.table())
        })
    }),
    ("report", |ask| {
        let others: Vec<Arc<Run>> = ask.query.numbers("with").into_iter().filter_map(|number| ask.site.run(number)).collect();
        let runs: Vec<&Run> = std::iter::once(ask.run).chain(others.iter().map(|other| &**other)).collect();
        Answer::file(HTML, "weft-report.html", weft_report::html(&runs, ask.hardware()))
    }),
    ("bounds", |ask| bounded(ask, |facts| limits::describe(ask.run, facts))),
    ("chart/bounds", |ask| {
        let (of, clients) = (ask.query.text("of"), ask.query.number("clients", 64));
        bounded(ask, |facts| drawn::lines(&limits::chart(ask.run, facts, of, clients, ask.width())))
    }),
    ("running", |ask| Answer::json(&running::describe(ask.run, &query::running(ask.query)))),
    ("chart/running", |ask| {
        let other = if ask.query.text("with").is_empty() { None } else { ask.site.run(ask.query.number("with", u64::MAX)) };
        let view = running::View { each: ask.query.text("view") == "each", accumulated: ask.query.text("sum") == "1" };
        Answer::json(&drawn::lines(&running::chart(ask.run, other.as_deref(), &query::running(ask.query), view, ask.width())))
    }),
    ("chart/latency", |ask| Answer::json(&drawn::latency_bins(ask.run, (ask.from, ask.to), &ask.kinds(), ask.stage(), ask.width()))),
    ("chart/ecdf", |ask| Answer::json(&drawn::lines(&drawn::latency_ecdf(ask.run, ask.from, ask.to, &ask.kinds(), ask.width())))),
    ("health", |ask| Answer::json(&health(ask.run))),
    ("table", rows),
];

/// The answer to a path.
pub fn route(site: &Site, path: &str, query: &Query) -> Answer {
    if let Some((_, content_type, text)) = PARTS.iter().find(|(name, _, _)| *name == path) {
        return Answer::ok(content_type, *text);
    }
    let Some(name) = path.strip_prefix("/api/") else {
        return Answer::refused(404, "there is no such page");
    };
    if name == "state" {
        return Answer::json(&state(site, query));
    }
    if site.state() != State::Ready {
        return Answer::refused(503, "the trace is not loaded yet");
    }
    let Some(run) = asked_run(site, query) else {
        return Answer::refused(404, "there is no such run, or it could not be read");
    };
    let (from, to) = query::window(query, &run);
    let tracks = levels::tracks(&run, Level::of(query.text("by")));
    match ROUTES.iter().find(|(route, _)| *route == name) {
        Some((_, answer)) => answer(&Question { site, run: &run, query, tracks, from, to }),
        None => Answer::refused(404, "there is no such page"),
    }
}

/// The timeline of a window, as [`picture`] packs it.
fn window(ask: &Question<'_>) -> Answer {
    let width = ask.query.number("width", 1000).clamp(1, u64::from(WIDTH_MAX)) as u32;
    let shown = match ask.shown() {
        Ok(shown) => shown,
        Err(refused) => return refused,
    };
    let window = Window { from: ask.from, to: ask.to, width, hidden: query::hidden(ask.query, ask.run) };
    let picture = picture(ask.run, &shown, &window);
    ask.site.note_shown();
    Answer::ok("application/octet-stream", picture)
}

fn hits(ask: &Question<'_>) -> Answer {
    let number = |name: &str, default: u64, most: u64| ask.query.number(name, default).min(most) as usize;
    let asked = search::SearchOptions {
        from: ask.from,
        to: ask.to,
        longest: ask.query.text("sort") == "longest",
        within: ask.query.text("within") == "1",
        skip: number("skip", 0, u64::from(u32::MAX)),
        limit: number("limit", 100, 1000),
        pieces: number("pieces", 1, 4000),
    };
    Answer::json(&search::hits(ask.run, ask.query.text("q"), asked))
}

/// What `compare` says about this run and the one to compare it with.
fn compared(ask: &Question<'_>, compare: impl FnOnce(Part<'_>, Part<'_>) -> Value) -> Answer {
    let Some(other) = ask.site.run(ask.query.number("with", first_run(ask.site))) else {
        return Answer::refused(404, "there is no such run to compare with, or it could not be read");
    };
    // The window of the second run is its own: runs need not begin alike.
    let (from, to) = query::range(ask.query, "with_from", "with_to", &other);
    Answer::json(&compare(Part { run: ask.run, from: ask.from, to: ask.to }, Part { run: &other, from, to }))
}

/// What `describe` says about the bounds of a run, with the facts that a person typed in.
fn bounded(ask: &Question<'_>, describe: impl FnOnce(&Facts) -> Value) -> Answer {
    let typed = |name: &str| ask.query.text(name).parse().ok();
    Answer::json(&describe(&limits::facts(ask.run, &ask.site.ceilings(ask.run), typed, ask.hardware())))
}

fn rows(ask: &Question<'_>) -> Answer {
    let filter = match Pattern::new(ask.run, ask.query.text("filter")) {
        Ok(filter) => filter,
        Err(reason) => return Answer::refused(400, &reason),
    };
    let rows = table::Rows {
        filter: Some(&filter),
        from: ask.from,
        to: ask.to,
        hidden: query::hidden(ask.query, ask.run),
        skip: ask.query.number("skip", 0),
        limit: ask.query.number("limit", 200).min(ROWS_MAX),
    };
    match ask.query.text("format") {
        "csv" => Answer::file(CSV, "weft-spans.csv", table::csv(ask.run, &rows)),
        _ => Answer::json(&table::json(ask.run, &rows)),
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
fn describe(run: &Run, tracks: &Tracks) -> Value {
    let (clients, servers) = run.clients_and_servers();
    let nodes = run.merged.nodes.iter().zip(&run.merged.clocks);
    let nodes = nodes.map(|(node, clock)| json!({ "name": node.name, "server": node.server, "clock_error_ns": clock.error_ns }));
    let all = tracks.tracks.iter().zip(tracks.order(run));
    let all = all.map(|(track, order)| json!({ "name": track.name, "heading": track.heading, "node": track.node, "order": order }));
    let lanes = tracks.lanes(run).iter().zip(&tracks.of_lane).map(|(lane, track)| {
        let spans: usize = lane.tracks.iter().map(|(_, track)| track.len()).sum();
        json!({ "node": lane.node, "track": track, "sub": lane.sub_lane, "row": lane.row, "overlaps": lane.overlaps, "spans": spans })
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
        "simulated": run.is_simulated(),
        "clients": clients,
        "servers": servers,
        "nodes": nodes.collect::<Vec<_>>(),
        "tracks": all.collect::<Vec<_>>(),
        "lanes": lanes.collect::<Vec<_>>(),
        "kinds": kinds.collect::<Vec<_>>(),
        "marks": marks.take(2000).collect::<Vec<_>>(),
        "sources": run.sources.iter().map(|source| source.path.display().to_string()).collect::<Vec<_>>(),
        "names": !run.names.is_empty(),
        "lost": run.merged.nodes.iter().map(|node| node.lost).sum::<u64>(),
        "problems": run.problem_count(),
    })
}

/// Number and time of the spans that begin in a window, by node and kind: the legend.
fn totals(run: &Run, shown: &[Lane], (from, to): (u64, u64)) -> Value {
    let sums = drawn::totals(run, shown, from, to);
    let rows = sums.into_iter().filter(|(_, (count, _))| *count > 0).map(|((node, kind), (count, time))| json!([node, kind, count, time]));
    json!({ "from": from, "to": to, "rows": rows.collect::<Vec<_>>() })
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
pub(crate) mod tests {
    use super::*;
    use crate::site::tests::site;

    pub fn get(site: &Site, target: &str) -> Value {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let answer = route(site, path, &Query::new(query));
        assert_eq!(answer.status, 200, "{target}: {}", String::from_utf8_lossy(&answer.body));
        serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{target}: {error}"))
    }

    #[test]
    fn paths_are_names_of_routes_and_never_of_files() {
        let site = site(20);
        for target in [
            "/../etc/passwd",
            "/..%2f..%2fetc/passwd",
            "//etc/passwd",
            "/page/../../Cargo.toml",
            "/etc/passwd",
            "etc/passwd",
            "",
            "/api/nothing",
        ] {
            let answer = route(&site, target, &Query::new(""));
            assert_eq!(answer.status, 404, "{target}");
            assert!(!String::from_utf8_lossy(&answer.body).contains("passwd"), "an answer never repeats a request");
        }
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
            // These answer with bytes, a file, or one record.
            let others = ["window", "report", "event", "request"];
            for (path, _) in ROUTES.iter().filter(|(path, _)| !others.contains(path)) {
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
