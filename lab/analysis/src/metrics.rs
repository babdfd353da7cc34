//! Metrics of the timeline: lanes whose values a person writes as a formula, one lane for each node
//! that has what the formula names.
//!
//! | in a formula | value in a piece of the window |
//! |---|---|
//! | `count(EVENTS)` | spans that begin in it |
//! | `busy(EVENTS)` | seconds of it spent in such spans; those that run at once count each |
//! | `bytes(EVENTS)`, `failed(EVENTS)` | lengths, and failures, of the spans that begin in it |
//! | `GAUGE` | mean of the samples in it; without any, the last one before it |
//! | `rise(GAUGE)` | by how much a gauge rises in it, between samples along a straight line |
//! | `time` | its seconds |
//!
//! EVENTS are names as the legend has them, with `*` for any letters: `disk.*`. Without them:
//! operations of clients, requests at servers. A formula behind `sum:`, `mean:`, `least:` or
//! `largest:` has one lane, of all nodes together.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};
use weft_charts::csv_line;
use weft_trace::record::{Body, flags};

use crate::formula::Formula;
use crate::kept::{Field, Gauges, Sums};
use crate::lanes::SpanKind;
use crate::pattern::is_like;
use crate::run::Run;
use crate::sublane::SubLane;

/// Pieces of a window at most.
const PIECES_MAX: u64 = 600;
/// Formulas that are asked for at once, and sums that are kept.
const FORMULAS_MAX: usize = 12;
const KEPT_MAX: usize = 16;

/// What a name of a formula means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Quantity {
    Time,
    Count(String),
    Busy(String),
    Sum(Field, String),
    Gauge(String),
    Rise(String),
}

/// A metric in a window.
struct Metric {
    formula: String,
    /// Why it was not understood.
    problem: Option<String>,
    lanes: Values,
}

/// For each node that has what a formula names, or for all together: the values of the pieces where
/// it has one.
pub(crate) type Values = Vec<(Option<usize>, Vec<(u64, f64)>)>;

/// How the values of all nodes become one.
type Together = fn(&[f64]) -> f64;
const TOGETHER: [(&str, Together); 4] = [
    ("sum:", |values| values.iter().sum()),
    ("mean:", |values| values.iter().sum::<f64>() / values.len() as f64),
    ("least:", |values| values.iter().copied().fold(f64::INFINITY, f64::min)),
    ("largest:", |values| values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
];

/// Pieces of a window: tiles of the grid that all pyramids share.
#[derive(Clone, Copy)]
struct Pieces {
    level: u32,
    first: u64,
    last: u64,
}

impl Pieces {
    fn new(from: u64, to: u64) -> Pieces {
        let level = (to - from).div_ceil(PIECES_MAX).max(1).next_power_of_two().ilog2();
        Pieces { level, first: from >> level, last: (to - 1) >> level }
    }

    fn len(&self) -> usize {
        (self.last - self.first + 1) as usize
    }

    fn ns(&self) -> u64 {
        1 << self.level
    }

    /// Nanosecond at which a piece begins.
    fn begin(&self, piece: usize) -> u64 {
        (self.first + piece as u64) << self.level
    }
}

/// Metrics in a window, for the page: formulas are separated by semicolons.
pub fn lanes(run: &Run, from: u64, to: u64, formulas: &str) -> Value {
    let pieces = Pieces::new(from, to);
    let metrics = metrics(run, pieces, formulas).into_iter().map(|metric| {
        let values = || metric.lanes.iter().flat_map(|(_, points)| points).map(|point| point.1);
        // One scale for all nodes, so that they can be held against one another.
        let (least, largest) = (values().fold(0.0, f64::min), values().fold(0.0, f64::max));
        let lanes = metric.lanes.iter().map(|(node, points)| {
            let own = || points.iter().map(|point| point.1);
            let mean = own().sum::<f64>() / points.len().max(1) as f64;
            json!({ "node": node, "sum": own().sum::<f64>(), "least": own().fold(f64::INFINITY, f64::min), "mean": mean, "largest": own().fold(f64::NEG_INFINITY, f64::max), "points": points })
        });
        json!({ "formula": metric.formula, "problem": metric.problem, "least": least, "largest": largest, "lanes": lanes.collect::<Vec<_>>() })
    });
    let metrics: Vec<Value> = metrics.collect();
    json!({ "from": pieces.begin(0), "piece": pieces.ns(), "metrics": metrics, "gauges": gauge_names(run) })
}

/// The same as lines of CSV: a line for each value.
pub fn csv(run: &Run, from: u64, to: u64, formulas: &str) -> String {
    let pieces = Pieces::new(from, to);
    let mut text = csv_line(&["from_ns", "to_ns", "node", "metric", "value"]);
    for metric in metrics(run, pieces, formulas) {
        for (node, points) in &metric.lanes {
            for (piece, value) in points {
                let from = pieces.begin(*piece as usize);
                let name = node.map_or("all", |node| run.merged.nodes[node].name.as_str());
                text += &csv_line(&[&from.to_string(), &(from + pieces.ns()).to_string(), name, &metric.formula, &value.to_string()]);
            }
        }
    }
    text
}

fn metrics(run: &Run, pieces: Pieces, formulas: &str) -> Vec<Metric> {
    let formulas = formulas.split(';').map(str::trim).filter(|formula| !formula.is_empty());
    formulas.take(FORMULAS_MAX).map(|formula| metric(run, pieces, formula)).collect()
}

/// Nanoseconds of a piece of a window, and the values of a formula in them.
///
/// # Errors
/// Why it is no formula.
pub(crate) fn values(run: &Run, from: u64, to: u64, formula: &str) -> Result<(u64, Values), String> {
    let pieces = Pieces::new(from, to);
    let metric = metric(run, pieces, formula);
    metric.problem.map_or(Ok((pieces.ns(), metric.lanes)), Err)
}

fn metric(run: &Run, pieces: Pieces, text: &str) -> Metric {
    let mut quantities: Vec<Quantity> = Vec::new();
    let together = TOGETHER.into_iter().find(|(word, _)| text.starts_with(word));
    let formula = text.strip_prefix(together.map_or("", |(word, _)| word)).unwrap_or(text);
    let formula = Formula::new(formula, &mut |word, inside| {
        quantities.push(meaning(run, word, inside)?);
        Ok(quantities.len() - 1)
    });
    let mut metric = Metric { formula: text.to_string(), problem: None, lanes: Vec::new() };
    let formula = match formula {
        Ok(formula) => formula,
        Err(misread) => {
            metric.problem = Some(misread.to_string());
            return metric;
        }
    };
    let mut columns: Vec<Vec<Option<Vec<f64>>>> = quantities.iter().map(|quantity| column(run, pieces, quantity)).collect();
    for node in 0..run.merged.nodes.len() {
        let own: Vec<Option<Vec<f64>>> = columns.iter_mut().map(|column| column[node].take()).collect();
        let is_there = own.iter().zip(&quantities).any(|(column, quantity)| column.is_some() && *quantity != Quantity::Time);
        if !is_there {
            continue;
        }
        let values = |piece: usize| -> Vec<f64> { own.iter().map(|column| column.as_ref().map_or(0.0, |column| column[piece])).collect() };
        let points = (0..pieces.len()).filter_map(|piece| Some((piece as u64, formula.value(&values(piece))?)));
        metric.lanes.push((Some(node), points.collect()));
    }
    if let Some((_, together)) = together {
        let mut values: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for (piece, value) in metric.lanes.drain(..).flat_map(|(_, points)| points) {
            values.entry(piece).or_default().push(value);
        }
        metric.lanes.push((None, values.into_iter().map(|(piece, values)| (piece, together(&values))).collect()));
    }
    metric
}

fn meaning(run: &Run, word: &str, inside: Option<&str>) -> Result<Quantity, String> {
    let events = || match inside {
        None => Ok(String::new()),
        Some(events) if run.lanes.kinds.iter().any(|kind| is_meant(kind, events)) => Ok(events.to_string()),
        Some(events) => Err(format!("no event of this trace is called {events}")),
    };
    let gauge = |name: &str| {
        let names = gauge_names(run);
        if names.contains(&name) { Ok(name.to_string()) } else { Err(unknown(name, &names)) }
    };
    match (word, inside) {
        ("time", None) => Ok(Quantity::Time),
        ("count", _) => events().map(Quantity::Count),
        ("busy", _) => events().map(Quantity::Busy),
        ("bytes", _) => events().map(|events| Quantity::Sum(Field::Bytes, events)),
        ("failed", _) => events().map(|events| Quantity::Sum(Field::Failed, events)),
        ("rise", Some(name)) => gauge(name).map(Quantity::Rise),
        (name, None) => gauge(name).map(Quantity::Gauge),
        (name, Some(_)) => Err(unknown(name, &gauge_names(run))),
    }
}

fn unknown(name: &str, gauges: &[&str]) -> String {
    let gauges = if gauges.is_empty() { String::new() } else { format!(", the gauges {} and rise(GAUGE)", gauges.join(", ")) };
    format!("{name} is unknown; there are time, count, busy, bytes and failed, each also with (EVENTS), min, max{gauges}")
}

/// True if these events are meant by a pattern: `*` is any letters, nothing is operations of
/// clients and requests at servers.
fn is_meant(kind: &SpanKind, pattern: &str) -> bool {
    if pattern.is_empty() { kind.sub_lane == SubLane::Operation } else { is_like(&kind.name, pattern) }
}

/// By node the values of all pieces; none for a node that has nothing of the kind.
fn column(run: &Run, pieces: Pieces, quantity: &Quantity) -> Vec<Option<Vec<f64>>> {
    let nodes = run.merged.nodes.len();
    match quantity {
        Quantity::Time => vec![Some(vec![pieces.ns() as f64 / 1e9; pieces.len()]); nodes],
        Quantity::Count(events) => tiled(run, pieces, events, |tile| f64::from(tile.count)),
        Quantity::Busy(events) => tiled(run, pieces, events, |tile| tile.busy as f64 / 1e9),
        Quantity::Sum(field, events) => {
            let of_node = |sums: &Vec<(u64, u64)>| {
                let upto = |ns: u64| match sums.partition_point(|entry| entry.0 < ns) {
                    0 => 0,
                    entries => sums[entries - 1].1,
                };
                let value = |piece: usize| (upto(pieces.begin(piece + 1)) - upto(pieces.begin(piece))) as f64;
                (!sums.is_empty()).then(|| (0..pieces.len()).map(value).collect())
            };
            sums(run, *field, events).iter().map(of_node).collect()
        }
        Quantity::Gauge(name) => sampled(run, name, |samples| (0..pieces.len()).map(|piece| mean(samples, pieces, piece)).collect()),
        Quantity::Rise(name) => sampled(run, name, |samples| {
            let rise = |piece: usize| between(samples, pieces.begin(piece + 1)) - between(samples, pieces.begin(piece));
            (0..pieces.len()).map(rise).collect()
        }),
    }
}

fn tiled(run: &Run, pieces: Pieces, events: &str, value: impl Fn(crate::tiles::Tile) -> f64) -> Vec<Option<Vec<f64>>> {
    let mut columns: Vec<Option<Vec<f64>>> = vec![None; run.merged.nodes.len()];
    for lane in &run.lanes.lanes {
        let all = run.spans_of(lane.node);
        for (_, track) in lane.tracks.iter().filter(|(kind, _)| is_meant(&run.lanes.kinds[usize::from(*kind)], events)) {
            let column = columns[lane.node].get_or_insert_with(|| vec![0.0; pieces.len()]);
            track.tiles(&all, pieces.level, pieces.first, pieces.last, |tile| column[(tile.index - pieces.first) as usize] += value(tile));
        }
    }
    columns
}

fn sampled(run: &Run, name: &str, values: impl Fn(&[(u64, u64)]) -> Vec<f64>) -> Vec<Option<Vec<f64>>> {
    let gauges = gauges(run);
    (0..run.merged.nodes.len()).map(|node| gauges.get(&(node, name.to_string())).map(|samples| values(samples))).collect()
}

fn mean(samples: &[(u64, u64)], pieces: Pieces, piece: usize) -> f64 {
    let first = samples.partition_point(|sample| sample.0 < pieces.begin(piece));
    let last = samples.partition_point(|sample| sample.0 < pieces.begin(piece + 1));
    match &samples[first..last] {
        // Before the first sample nothing is known.
        [] => samples.get(first.wrapping_sub(1)).map_or(f64::NAN, |sample| sample.1 as f64),
        inside => inside.iter().map(|sample| sample.1 as f64).sum::<f64>() / inside.len() as f64,
    }
}

/// A gauge at a moment: on the straight line between two samples, and as the nearest sample beyond
/// them.
fn between(samples: &[(u64, u64)], ns: u64) -> f64 {
    let after = samples.partition_point(|sample| sample.0 <= ns);
    match (samples.get(after.wrapping_sub(1)), samples.get(after)) {
        (Some(before), Some(after)) => {
            let share = (ns - before.0) as f64 / (after.0 - before.0) as f64;
            before.1 as f64 + share * (after.1 as f64 - before.1 as f64)
        }
        (Some(only), None) | (None, Some(only)) => only.1 as f64,
        (None, None) => 0.0,
    }
}

/// By node the samples of a gauge: nanoseconds since the beginning of the run, and value.
pub(crate) fn samples_of<'a>(run: &'a Run, name: &str) -> Vec<(usize, &'a [(u64, u64)])> {
    gauges(run).iter().filter(|((_, gauge), _)| gauge == name).map(|((node, _), samples)| (*node, samples.as_slice())).collect()
}

/// Names of all gauges, each once.
pub(crate) fn gauge_names(run: &Run) -> Vec<&str> {
    let mut names: Vec<&str> = gauges(run).keys().map(|(_, name)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn gauges(run: &Run) -> &Gauges {
    run.metrics.gauges.get_or_init(|| {
        let mut gauges = Gauges::new();
        for event in run.lanes.gauges.iter().map(|position| run.merged.events.event(*position)) {
            let Body::Counter(values) = &event.record.body else { continue };
            let Some(info) = run.merged.nodes[event.node].events.get(event.record.event) else { continue };
            let at = run.since_origin(event.start_ns).max(0) as u64;
            for (part, value) in info.parts.iter().zip(values) {
                gauges.entry((event.node, part.name.clone())).or_default().push((at, *value));
            }
        }
        gauges
    })
}

fn sums(run: &Run, field: Field, events: &str) -> Arc<Sums> {
    let mut kept = run.metrics.sums.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() >= KEPT_MAX {
        kept.clear();
    }
    kept.entry((field, events.to_string())).or_insert_with(|| Arc::new(sum_up(run, field, events))).clone()
}

fn sum_up(run: &Run, field: Field, events: &str) -> Sums {
    let mut nodes: Sums = vec![Vec::new(); run.merged.nodes.len()];
    for lane in &run.lanes.lanes {
        let all = run.spans_of(lane.node);
        for (_, track) in lane.tracks.iter().filter(|(kind, _)| is_meant(&run.lanes.kinds[usize::from(*kind)], events)) {
            nodes[lane.node].extend(track.bars(&all).map(|bar| {
                let record = run.merged.events.event(bar.event).record;
                let value = match (field, &record.body) {
                    (Field::Bytes, Body::Span(span)) => u64::from(span.len),
                    (Field::Bytes, _) => 0,
                    (Field::Failed, _) => u64::from(record.res != 0 || record.flags & flags::ERROR != 0),
                };
                (bar.start, value)
            }));
        }
    }
    for entries in &mut nodes {
        entries.sort_unstable();
        let mut sum = 0;
        for entry in entries {
            sum += entry.1;
            entry.1 = sum;
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::is_span;
    use crate::sample::{Sample, merged};

    fn run() -> Run {
        Run::new(merged(&Sample { operations: 1_500, ..Sample::default() }), Vec::new())
    }

    fn sum(told: &Value, metric: usize, node: &str, run: &Run) -> f64 {
        let node = run.merged.nodes.iter().position(|other| other.name == node).unwrap();
        let lanes = told["metrics"][metric]["lanes"].as_array().unwrap();
        let lane = lanes.iter().find(|lane| lane["node"] == node).unwrap_or_else(|| panic!("node {node} has no lane: {told}"));
        lane["points"].as_array().unwrap().iter().map(|point| point[1].as_f64().unwrap()).sum()
    }

    /// Whatever the window, pieces add up to what a look at every record gives.
    #[test]
    fn pieces_add_up_to_the_records() {
        let run = run();
        let tell =
            |from: u64, to: u64| lanes(&run, from, to, "count(disk.*); bytes(disk.*); busy(disk.write); failed(disk.*); time + 0 * count");
        for (from, to) in [(0, run.duration_ns + 1), (run.duration_ns / 3, run.duration_ns / 2), (1_000_000, 1_000_700)] {
            let told = tell(from, to);
            let piece = told["piece"].as_u64().unwrap();
            let (first, last) = (told["from"].as_u64().unwrap(), ((to - 1) / piece + 1) * piece);
            assert!((to - from).div_ceil(piece) <= PIECES_MAX && first <= from && from < first + piece);
            let (mut count, mut bytes, mut busy) = (0.0, 0.0, 0.0);
            for event in run.merged.events.iter().filter(|event| is_span(event) && run.merged.nodes[event.node].name == "data1") {
                let name = run.merged.nodes[event.node].events.name(event.record.event);
                let start = run.since_origin(event.start_ns) as u64;
                let Body::Span(span) = &event.record.body else { continue };
                if name.starts_with("disk.") && (first..last).contains(&start) {
                    count += 1.0;
                    bytes += f64::from(span.len);
                }
                if name == "disk.write" {
                    busy += (start + event.dur_ns).min(last).saturating_sub(start.max(first)) as f64 / 1e9;
                }
            }
            assert_eq!((sum(&told, 0, "data1", &run), sum(&told, 1, "data1", &run)), (count, bytes), "{from}..{to}");
            assert!((sum(&told, 2, "data1", &run) - busy).abs() < 1e-9, "{from}..{to}");
            assert_eq!(sum(&told, 3, "data1", &run), 0.0);
            assert!((sum(&told, 4, "data1", &run) - (last - first) as f64 / 1e9).abs() < 1e-9);
        }
    }

    #[test]
    fn only_nodes_that_have_what_is_named_get_a_lane() {
        let run = run();
        let told = lanes(&run, 0, run.duration_ns, "count(client.*);queue;count");
        let names = |metric: usize| -> Vec<&str> {
            let lanes = told["metrics"][metric]["lanes"].as_array().unwrap();
            lanes.iter().map(|lane| run.merged.nodes[lane["node"].as_u64().unwrap() as usize].name.as_str()).collect()
        };
        assert_eq!(names(0), ["client0", "client1"]);
        assert!(names(1).iter().all(|name| !name.starts_with("client")) && !names(1).is_empty());
        assert_eq!(names(2).len(), run.merged.nodes.len());
    }

    #[test]
    fn nodes_together_are_one_lane() {
        let run = run();
        let told = lanes(&run, 0, run.duration_ns, "count(disk.*); sum: count(disk.*); largest:count(disk.*); mean: count(disk.*)");
        let points = |metric: usize| -> Vec<f64> {
            let lanes = told["metrics"][metric]["lanes"].as_array().unwrap();
            let points = lanes.iter().flat_map(|lane| lane["points"].as_array().unwrap());
            points.map(|point| point[1].as_f64().unwrap()).collect()
        };
        assert!(told["metrics"][1]["lanes"].as_array().unwrap().len() == 1 && told["metrics"][1]["lanes"][0]["node"].is_null());
        let of_nodes = told["metrics"][0]["lanes"].as_array().unwrap().len() as f64;
        assert!(of_nodes > 1.0 && points(0).iter().sum::<f64>() == points(1).iter().sum::<f64>());
        assert!(points(1).iter().zip(points(2)).zip(points(3)).all(|((sum, largest), mean)| *sum >= largest && largest >= mean));
        assert!((points(3).iter().sum::<f64>() * of_nodes - points(1).iter().sum::<f64>()).abs() < 1e-6);
    }

    #[test]
    fn gauges_hold_until_their_next_sample_and_rise_along_a_line() {
        let samples = [(10, 4), (20, 8), (22, 10)];
        let pieces = Pieces { level: 3, first: 0, last: 4 };
        let means: Vec<f64> = (0..5).map(|piece| mean(&samples, pieces, piece)).collect();
        assert!(means[0].is_nan() && means[1..] == [4.0, 9.0, 10.0, 10.0], "{means:?}");
        assert_eq!((between(&samples, 0), between(&samples, 15), between(&samples, 99)), (4.0, 6.0, 10.0));
    }

    #[test]
    fn what_is_not_understood_says_what_there_is() {
        let run = run();
        let told = lanes(&run, 0, run.duration_ns, "bites; count(nothing.*); rise(count(x)); ;rise(queue) / time");
        let problem = |metric: usize| told["metrics"][metric]["problem"].as_str().unwrap_or_default().to_string();
        assert!(problem(0).contains("bites is unknown") && problem(0).contains("queue"), "{}", problem(0));
        assert!(problem(1).contains("no event of this trace is called nothing.*"));
        assert!(!problem(2).is_empty() && told["metrics"][3]["problem"].is_null());
        assert_eq!(told["metrics"].as_array().unwrap().len(), 4);
        assert!(is_like("disk.write", "d*k.*e") && is_like("disk", "disk*") && !is_like("disk.write", "disk") && !is_like("a", "*b"));
        let text = csv(&run, 0, run.duration_ns, "count(disk.*)");
        let sum: f64 = text.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse::<f64>().unwrap()).sum();
        let disks =
            run.merged.events.iter().filter(|event| run.merged.nodes[event.node].events.name(event.record.event).starts_with("disk."));
        assert_eq!(sum, disks.count() as f64);
    }
}
