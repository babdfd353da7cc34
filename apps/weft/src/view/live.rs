//! `weft view --live`: a page with live numbers of a running file system, and `/metrics`. It is a page of its own, so that it works
//! without any trace; with traces the two link to each other. The door is the viewer's.

use serde_json::{Value, json};

use super::api::Query;
use super::http::Answer;
use crate::live::metrics;
use crate::live::watch::{Point, Watch};

const PAGE: &str = include_str!("page/live.html");
const STYLE: &str = include_str!("page/live.css");
const SCRIPT: &str = include_str!("page/live.js");

/// Live numbers behind the viewer.
pub struct Live {
    /// Who asks the servers.
    pub watch: Watch,
    /// There are traces too.
    pub has_traces: bool,
}

impl Live {
    /// The answer to a path, if it is about live numbers.
    pub fn route(&self, path: &str, query: &Query) -> Option<Answer> {
        let answer = match path {
            "/" if !self.has_traces => page(false),
            "/live" => page(self.has_traces),
            "/live.css" => Answer::ok("text/css; charset=utf-8", STYLE),
            "/live.js" => Answer::ok("text/javascript; charset=utf-8", SCRIPT),
            "/api/live" => Answer::json(&self.state(query.text("after").parse().unwrap_or(-1.0))),
            "/metrics" => Answer::ok(metrics::CONTENT_TYPE, metrics::text(&self.watch.snapshot().fs, &self.watch.replies())),
            _ => return None,
        };
        Some(answer)
    }

    /// What is known now, and what has happened after second `after`.
    fn state(&self, after: f64) -> Value {
        let points = |points: Vec<Point>| points.iter().map(point).collect::<Vec<_>>();
        let history: Vec<_> = self.watch.history(after).into_iter().map(points).collect();
        json!({ "now": self.watch.snapshot(), "history": history })
    }
}

/// A link to this page in another one.
pub fn linked(page: &str) -> String {
    page.replacen("</header>", "<a class=\"button\" href=\"/live\">Live</a></header>", 1)
}

fn page(has_traces: bool) -> Answer {
    let link = if has_traces { "<a class=\"button\" href=\"/\">Traces</a></header>" } else { "</header>" };
    Answer::ok("text/html; charset=utf-8", PAGE.replacen("</header>", link, 1))
}

/// As the page reads it: second, bytes read and written, looks, changes, mean queue, requests now, processors.
fn point(point: &Point) -> Value {
    let rates = point.rates;
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    json!([
        rounded(point.at),
        rates.read_bytes_s.round(),
        rates.written_bytes_s.round(),
        rounded(rates.meta_reads_s),
        rounded(rates.meta_changes_s),
        rounded(rates.queue_mean),
        point.queued,
        rounded(rates.cpus),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_link_to_each_other_and_hold_no_code() {
        let text = |answer: Answer| String::from_utf8(answer.body).unwrap();
        assert!(text(page(true)).contains("href=\"/\"") && !text(page(false)).contains("href=\"/\""));
        let index = include_str!("page/index.html");
        assert_eq!(linked(index).matches("href=\"/live\"").count(), 1);
        for page in [PAGE, index] {
            assert!(!page.contains("<script>") && !page.contains("style=") && !page.contains("onclick"), "the policy forbids it");
        }
    }
}
