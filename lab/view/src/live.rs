//! `weft view --live`: live numbers of a running file system for the screen Live of the page, and
//! `/metrics`. They need no trace.

use serde_json::{Value, json};
use weft_analysis::drawn;
use weft_charts::{Axis, Frame, Line, Lines, Style, Unit, categorical};
use weft_http::{Answer, Query};
use weft_watch::metrics;
use weft_watch::snapshot::{Rates, Snapshot};
use weft_watch::watch::{Point, Watch};

use crate::query::chart_width;

/// The servers whose number a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Data,
    Meta,
    All,
}

/// A number of every server over time: its name, unit, servers, least end of its scale, and the
/// number itself.
type Chart = (&'static str, Unit, Of, f64, fn(&Rates) -> f64);

const CHARTS: [Chart; 6] = [
    ("Read bandwidth", Unit::BytesPerSecond, Of::Data, 1e3, |rates| rates.read_bytes_s),
    ("Write bandwidth", Unit::BytesPerSecond, Of::Data, 1e3, |rates| rates.written_bytes_s),
    ("Metadata reads", Unit::PerSecond, Of::Meta, 10.0, |rates| rates.meta_reads_s),
    ("Metadata changes", Unit::PerSecond, Of::Meta, 10.0, |rates| rates.meta_changes_s),
    ("Queue: mean requests in the server", Unit::Number, Of::All, 1.0, |rates| rates.queue_mean),
    ("Processor time: processors", Unit::Number, Of::All, 1.0, |rates| rates.cpus),
];

/// Seconds that a chart can reach back.
const SPAN_MAX_S: u64 = 600;
/// Points of a line at most: more are no more than pixels.
const POINTS_MAX: usize = 400;

/// The answer to a path, if it is about live numbers.
pub fn route(watch: &Watch, path: &str, query: &Query) -> Option<Answer> {
    match path {
        "/api/live" => Some(Answer::json(&state(watch, query))),
        "/metrics" => Some(Answer::ok(metrics::CONTENT_TYPE, metrics::text(&watch.snapshot().fs, &watch.replies()))),
        _ => None,
    }
}

/// What is known now, and the charts of the last seconds.
fn state(watch: &Watch, query: &Query) -> Value {
    let now = watch.snapshot();
    let span_s = query.number("span", 300).clamp(10, SPAN_MAX_S) as f64;
    let history = watch.history(now.seconds - span_s);
    let charts = charts(&now, &history, span_s, query.text("each") == "1", chart_width(query));
    json!({ "now": now, "charts": charts.iter().map(drawn::lines).collect::<Vec<_>>() })
}

/// A chart for each number with a line for each server, or, if `each`, one for each server on a
/// scale of its own.
fn charts(now: &Snapshot, history: &[Vec<Point>], span_s: f64, each: bool, width: u32) -> Vec<Lines> {
    let mut drawn = Vec::new();
    for (title, unit, of, least, number) in CHARTS {
        let is_shown = |role: &str| of == Of::All || role == if of == Of::Data { "data" } else { "meta" };
        let servers = now.servers.iter().zip(history).enumerate().filter(|(_, (server, _))| is_shown(&server.role));
        let lines: Vec<(&str, Vec<Line>)> = servers
            .map(|(place, (server, points))| {
                let points: Vec<(f64, f64)> = points.iter().map(|point| (point.at - now.seconds, number(&point.rates))).collect();
                (server.name.as_str(), lines_of(&server.name, place, &points, now.interval_s))
            })
            .collect();
        let chart = |title: String, lines: Vec<Line>| {
            let largest = lines.iter().flat_map(|line| &line.points).map(|point| point.1).fold(least, f64::max);
            Lines {
                frame: Frame::new(&title, "").sized(width, 190),
                x: Axis::linear("before now", Unit::Seconds).ranging(-span_s, 0.0),
                y: Axis::linear("", unit).reaching(largest),
                lines,
                marks: Vec::new(),
            }
        };
        if each {
            drawn.extend(lines.into_iter().map(|(name, lines)| chart(format!("{title}, {name}"), lines)));
        } else {
            drawn.push(chart(title.to_string(), lines.into_iter().flat_map(|(_, lines)| lines).collect()));
        }
    }
    drawn
}

/// The line of a server, in pieces: where it was silent there is a gap.
fn lines_of(name: &str, place: usize, points: &[(f64, f64)], interval_s: f64) -> Vec<Line> {
    let style = [Style::Line, Style::Dashed, Style::Bound][place % 3];
    let piece = |points: &[(f64, f64)]| {
        let several = points.len().div_ceil(POINTS_MAX).max(1);
        let mean = |points: &[(f64, f64)]| {
            let sum = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
            (sum.0 / points.len() as f64, sum.1 / points.len() as f64)
        };
        Line { name: name.to_string(), color: categorical(place).color, style, points: points.chunks(several).map(mean).collect() }
    };
    // A server that has not answered yet is in the legend too.
    if points.is_empty() { vec![piece(points)] } else { points.chunk_by(|a, b| b.0 - a.0 <= 2.5 * interval_s).map(piece).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_leaves_a_gap_and_many_points_are_thinned() {
        let points: Vec<(f64, f64)> = (0..10).chain(20..30).map(|second| (f64::from(second), 1.0)).collect();
        let lines = lines_of("data0", 1, &points, 1.0);
        assert_eq!(lines.iter().map(|line| line.points.len()).collect::<Vec<_>>(), [10, 10]);
        assert!(lines.iter().all(|line| line.style == Style::Dashed && line.name == "data0"));
        let many: Vec<(f64, f64)> = (0..6_000).map(|number| (f64::from(number) / 10.0, f64::from(number % 2))).collect();
        let thin = lines_of("data0", 0, &many, 0.1);
        assert!(thin.len() == 1 && thin[0].points.len() <= POINTS_MAX);
        assert!(thin[0].points.iter().all(|point| (0.4..0.6).contains(&point.1)), "means");
        assert_eq!(lines_of("new", 0, &[], 1.0)[0].points, []);
    }
}
