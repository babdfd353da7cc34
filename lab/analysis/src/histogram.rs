//! Histograms of any statistic in a window: attributes of spans, samples of gauges, values of
//! formulas; how often a value was there, or for how long.
//!
//! | statistic | its values |
//! |---|---|
//! | `duration`, `wait` | seconds of each span that begins in the window |
//! | `bytes`, `offset` | of each such span |
//! | the same with `(EVENTS)` | of these events, `*` for any letters; without: operations of clients |
//! | the name of a gauge | its samples; each holds until the next one |
//! | any other formula of lanes | its values in the pieces of the window ([`crate::metrics`]) |

use serde_json::{Value, json};
use weft_charts::{Axis, Bars, Frame, Series, Unit, categorical};
use weft_trace::record::Body;

use crate::lanes::Lane;
use crate::levels::Tracks;
use crate::metrics;
use crate::pattern::is_like;
use crate::run::Run;
use crate::{details, drawn, latency};

/// Bins, at most; where each whole number has its own, so many.
const BINS_MAX: usize = 48;
/// Bars have so many parts at most; further groups are one part.
const PARTS_MAX: usize = 12;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct HistogramOptions {
    /// The statistic.
    pub of: String,
    /// Bars are seconds during which the value was there, not how often.
    pub by_time: bool,
    /// The horizontal axis: logarithmic, linear, or what fits.
    pub log: Option<bool>,
    /// Pixels.
    pub width: u32,
}

/// A value, how often it counts, and for how many nanoseconds it was there.
type Take<'a> = dyn FnMut(usize, f64, u64, u64) + 'a;

/// Where values come from.
enum Source<'a> {
    Spans {
        kinds: Vec<u16>,
        attribute: Attribute,
    },
    Samples(Vec<(usize, &'a [(u64, u64)])>),
    /// Nanoseconds of a piece; by node the values.
    Pieces(u64, metrics::Values),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Attribute {
    Duration,
    Wait,
    Bytes,
    Offset,
}

impl Source<'_> {
    fn unit(&self) -> Unit {
        match self {
            Source::Spans { attribute: Attribute::Duration | Attribute::Wait, .. } => Unit::Seconds,
            Source::Spans { .. } => Unit::Bytes,
            Source::Samples(_) | Source::Pieces(..) => Unit::Count,
        }
    }
}

/// What the values of a group add up to.
#[derive(Clone, Debug)]
struct Sum {
    name: String,
    count: u64,
    sum: f64,
    least: f64,
    largest: f64,
    /// Values times the seconds for which they were there, and these seconds.
    weighted: (f64, f64),
    bins: Vec<f64>,
}

impl Sum {
    fn new(name: &str) -> Sum {
        let (least, largest) = (f64::INFINITY, f64::NEG_INFINITY);
        Sum { name: name.to_string(), count: 0, sum: 0.0, least, largest, weighted: (0.0, 0.0), bins: Vec::new() }
    }

    fn take(&mut self, value: f64, count: u64, ns: u64) {
        let seconds = ns as f64 / 1e9;
        self.count += count;
        self.sum += value * count as f64;
        (self.least, self.largest) = (self.least.min(value), self.largest.max(value));
        self.weighted = (self.weighted.0 + value * seconds, self.weighted.1 + seconds);
    }

    fn add(&mut self, other: &Sum) {
        self.count += other.count;
        self.sum += other.sum;
        (self.least, self.largest) = (self.least.min(other.least), self.largest.max(other.largest));
        self.weighted = (self.weighted.0 + other.weighted.0, self.weighted.1 + other.weighted.1);
        self.bins.resize(self.bins.len().max(other.bins.len()), 0.0);
        self.bins.iter_mut().zip(&other.bins).for_each(|(bin, more)| *bin += more);
    }

    fn told(&self) -> Value {
        let known = |value: f64| value.is_finite().then_some(value);
        json!({
            "name": self.name, "count": self.count, "sum": self.sum, "least": known(self.least), "largest": known(self.largest),
            "mean": known(self.sum / self.count as f64), "over_time": known(self.weighted.0 / self.weighted.1),
        })
    }
}

/// The histogram of a statistic as a picture, and what its values add up to, by group of the tracks
/// and together; or why it is not understood.
pub fn histogram(run: &Run, tracks: &Tracks, shown: &[Lane], (from, to): (u64, u64), asked: &HistogramOptions) -> Value {
    let source = match source(run, &asked.of, from, to) {
        Ok(source) => source,
        Err(problem) => return json!({ "problem": problem, "gauges": metrics::gauge_names(run) }),
    };
    let mut groups: Vec<Sum> = Vec::new();
    let mut group_of: Vec<Option<usize>> = vec![None; tracks.tracks.len() + 1];
    let each = |take: &mut Take<'_>| values(run, tracks, shown, (from, to), &source, take);
    each(&mut |track, value, count, ns| {
        let group = *group_of[track].get_or_insert_with(|| {
            let name = if track == tracks.tracks.len() { "all nodes" } else { tracks.profiled_as(track) };
            groups.iter().position(|group| group.name == name).unwrap_or_else(|| {
                groups.push(Sum::new(name));
                groups.len() - 1
            })
        });
        groups[group].take(value, count, ns);
    });
    let mut total = Sum::new("all");
    groups.iter().for_each(|group| total.add(group));
    let bins = Bins::new(&total, asked.log, &source);
    groups.iter_mut().for_each(|group| group.bins = vec![0.0; bins.edges.len().saturating_sub(1)]);
    each(&mut |track, value, count, ns| {
        let group = group_of[track].expect("known from the first look");
        groups[group].bins[bins.of(value)] += if asked.by_time { ns as f64 / 1e9 } else { count as f64 };
    });
    let told: Vec<Value> = groups.iter().map(Sum::told).collect();
    json!({
        "problem": Value::Null, "gauges": metrics::gauge_names(run), "unit": match source.unit() { Unit::Seconds => "seconds", Unit::Bytes => "bytes", _ => "" },
        "log": bins.log, "groups": told, "total": total.told(), "chart": picture(groups, &bins, &source, asked),
    })
}

fn source<'a>(run: &'a Run, of: &str, from: u64, to: u64) -> Result<Source<'a>, String> {
    let of = of.trim();
    let (word, events) = match of.split_once('(').and_then(|(word, rest)| Some((word, rest.strip_suffix(')')?))) {
        Some((word, events)) => (word.trim(), Some(events.trim())),
        None => (of, None),
    };
    let attribute = match word {
        "" | "duration" => Some(Attribute::Duration),
        "wait" => Some(Attribute::Wait),
        "bytes" => Some(Attribute::Bytes),
        "offset" => Some(Attribute::Offset),
        _ => None,
    };
    if let Some(attribute) = attribute {
        let kinds = match events {
            None => latency::chosen_kinds(run, &[]),
            Some(events) => {
                let is = |(_, kind): &(usize, &crate::lanes::SpanKind)| is_like(&kind.name, events);
                run.lanes.kinds.iter().enumerate().filter(is).map(|(number, _)| number as u16).collect()
            }
        };
        return match events {
            Some(events) if kinds.is_empty() => Err(format!("no event of this trace is called {events}")),
            _ => Ok(Source::Spans { kinds, attribute }),
        };
    }
    let samples = metrics::samples_of(run, of);
    if !samples.is_empty() {
        return Ok(Source::Samples(samples));
    }
    let (piece_ns, lanes) = metrics::values(run, from, to, of)?;
    Ok(Source::Pieces(piece_ns, lanes))
}

/// Every value with its track; what belongs to none has the number behind the last.
fn values(run: &Run, tracks: &Tracks, shown: &[Lane], (from, to): (u64, u64), source: &Source<'_>, take: &mut Take<'_>) {
    let nobody = tracks.tracks.len();
    let track_of = |node: usize| tracks.tracks.iter().position(|track| track.node == node).unwrap_or(nobody);
    match source {
        Source::Spans { kinds, attribute } => {
            for (lane, track) in shown.iter().zip(&tracks.of_lane) {
                let all = run.spans_of(lane.node);
                for (_, spans) in lane.tracks.iter().filter(|(kind, _)| kinds.contains(kind)) {
                    for (ns, position) in spans.beginning_in(&all, from, to) {
                        let event = || run.merged.events.event(position);
                        let length = |of: fn(&weft_trace::record::Span) -> u64| match &event().record.body {
                            Body::Span(span) => of(span) as f64,
                            _ => 0.0,
                        };
                        let value = match attribute {
                            Attribute::Duration => ns as f64 / 1e9,
                            Attribute::Wait => details::wait_ns(&event()) as f64 / 1e9,
                            Attribute::Bytes => length(|span| u64::from(span.len)),
                            Attribute::Offset => length(|span| span.off),
                        };
                        take(*track, value, 1, ns);
                    }
                }
            }
        }
        Source::Samples(nodes) => {
            for (node, samples) in nodes {
                let track = track_of(*node);
                for (number, (at, value)) in samples.iter().enumerate() {
                    let until = samples.get(number + 1).map_or(to, |next| next.0).min(to);
                    // One from before the window is not counted, but it holds until the next.
                    if until > from && *at < to {
                        take(track, *value as f64, u64::from(*at >= from), until - (*at).max(from));
                    }
                }
            }
        }
        Source::Pieces(piece_ns, lanes) => {
            for (node, points) in lanes {
                let track = node.map_or(nobody, track_of);
                points.iter().for_each(|(_, value)| take(track, *value, 1, *piece_ns));
            }
        }
    }
}

/// Where bins begin and end.
#[derive(Debug)]
struct Bins {
    log: bool,
    /// Rising; a bin has its lower edge, the last one both.
    edges: Vec<f64>,
    labels: Vec<String>,
}

impl Bins {
    fn new(total: &Sum, log: Option<bool>, source: &Source<'_>) -> Bins {
        let unit = source.unit();
        let (least, largest) = (total.least, total.largest);
        if !least.is_finite() {
            return Bins { log: false, edges: Vec::new(), labels: Vec::new() };
        }
        let log = least > 0.0 && log.unwrap_or(largest > 50.0 * least && unit != Unit::Count);
        let is_whole = matches!(source, Source::Samples(_)) || unit == Unit::Bytes;
        let is_bytes = unit == Unit::Bytes;
        let edges = match (log, is_bytes) {
            (true, true) => powers_of_two(least, largest),
            (true, false) => decades(least, largest),
            (false, _) => steps(least, largest, is_whole, is_bytes),
        };
        let single = is_whole && !log && edges.windows(2).all(|pair| pair[1] - pair[0] <= 1.0);
        let label = |pair: &[f64]| if single { unit.format(pair[0]) } else { format!("from {}", unit.format(pair[0])) };
        Bins { log, labels: edges.windows(2).map(label).collect(), edges }
    }

    fn of(&self, value: f64) -> usize {
        self.edges.partition_point(|edge| *edge <= value).saturating_sub(1).min(self.edges.len().saturating_sub(2))
    }
}

/// Edges at powers of two: there are at most 64 of them for lengths.
fn powers_of_two(least: f64, largest: f64) -> Vec<f64> {
    let (first, last) = (least.log2().floor() as i32, largest.log2().floor() as i32);
    (first..=last + 1).map(|power| 2f64.powi(power)).collect()
}

/// Edges of one leading digit, or, where they were too many, of the digits 1, 2 and 5, or of powers
/// of ten.
fn decades(least: f64, largest: f64) -> Vec<f64> {
    let (first, last) = (least.log10().floor() as i32, largest.log10().floor() as i32);
    for digits in [&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0][..], &[1.0, 2.0, 5.0], &[1.0]] {
        let all = (first..=last + 1).flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)));
        let all: Vec<f64> = all.collect();
        let from = all.partition_point(|edge| *edge <= least).saturating_sub(1);
        let to = all.partition_point(|edge| *edge <= largest).min(all.len() - 1);
        if to - from <= BINS_MAX || digits.len() == 1 {
            return all[from..=to].to_vec();
        }
    }
    Vec::new()
}

/// Edges at multiples of 1, 2 or 5 times a power of ten, of lengths at multiples of a power of two.
fn steps(least: f64, largest: f64, is_whole: bool, is_bytes: bool) -> Vec<f64> {
    let raw = (largest - least).max(largest.abs() * 1e-9).max(f64::MIN_POSITIVE) / (BINS_MAX as f64 - 2.0);
    let power = 10f64.powf(raw.log10().floor());
    let decimal = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= raw).unwrap_or(raw);
    let step = if is_bytes { 2f64.powf(raw.log2().ceil()) } else { decimal };
    let step = if is_whole { step.max(1.0) } else { step };
    let first = (least / step).floor();
    let count = ((largest / step).floor() - first) as usize + 1;
    (0..=count.min(BINS_MAX)).map(|number| (first + number as f64) * step).collect()
}

fn picture(mut groups: Vec<Sum>, bins: &Bins, source: &Source<'_>, asked: &HistogramOptions) -> Value {
    if bins.labels.is_empty() {
        return Value::Null;
    }
    let weight = |group: &Sum| group.bins.iter().sum::<f64>();
    if groups.len() > PARTS_MAX {
        groups.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        let mut others = Sum::new("others");
        groups.split_off(PARTS_MAX - 1).iter().for_each(|group| others.add(group));
        groups.push(others);
    }
    let of = if asked.of.trim().is_empty() { "duration" } else { asked.of.trim() };
    let things = match source {
        Source::Spans { .. } => "spans",
        Source::Samples(_) => "samples",
        Source::Pieces(..) => "pieces of the window",
    };
    let (title, y) = match asked.by_time {
        true => (format!("{of}: how long each value was there"), Axis::linear("time", Unit::Seconds)),
        false => (format!("{of}: how often each value was there"), Axis::linear(things, Unit::Count)),
    };
    let series = groups.into_iter().enumerate();
    let bars = Bars {
        frame: Frame::new(&title, "").sized(asked.width, 400),
        x_label: of.to_string(),
        categories: bins.labels.clone(),
        y,
        series: series.map(|(number, group)| Series { name: group.name, fill: categorical(number), values: group.bins }).collect(),
        overlay: None,
        totals: false,
        shaded: None,
    };
    drawn::chart_json(&bars.svg(), None, &bars.table())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::is_span;
    use crate::levels::{self, Level};
    use crate::sample::{Sample, merged};

    fn run() -> Run {
        Run::new(merged(&Sample { operations: 600, ..Sample::default() }), Vec::new())
    }

    fn tell(run: &Run, of: &str, by_time: bool, window: (u64, u64)) -> Value {
        let tracks = levels::tracks(run, Level::Rank);
        histogram(run, &tracks, tracks.lanes(run), window, &HistogramOptions { of: of.into(), by_time, log: None, width: 900 })
    }

    /// The sum over all bars.
    fn bars(told: &Value) -> f64 {
        let rows = told["chart"]["rows"].as_array().unwrap();
        let parts = told["groups"].as_array().unwrap().len().min(PARTS_MAX);
        rows.iter().map(|row| (1..=parts).map(|part| row[part].as_str().unwrap().parse::<f64>().unwrap()).sum::<f64>()).sum()
    }

    #[test]
    fn statistics_of_spans_are_those_of_the_records() {
        let run = run();
        let (from, to) = (run.duration_ns / 3, run.duration_ns / 2);
        let writes = run.merged.events.iter().filter(|event| {
            let start = run.since_origin(event.start_ns) as u64;
            is_span(event) && run.merged.nodes[event.node].events.name(event.record.event) == "disk.write" && (from..to).contains(&start)
        });
        let lengths: Vec<f64> =
            writes.map(|event| if let Body::Span(span) = &event.record.body { f64::from(span.len) } else { 0.0 }).collect();
        let told = tell(&run, "bytes(disk.write)", false, (from, to));
        let total = &told["total"];
        assert!(lengths.len() > 20 && total["count"] == lengths.len(), "{told}");
        assert_eq!(total["sum"].as_f64(), Some(lengths.iter().sum()));
        assert_eq!(total["largest"].as_f64(), lengths.iter().copied().reduce(f64::max));
        assert_eq!(total["least"].as_f64(), lengths.iter().copied().reduce(f64::min));
        assert_eq!(bars(&told), lengths.len() as f64, "every span is in a bar");
        // By time the bars are the time of the spans.
        let long = tell(&run, "duration(disk.write)", true, (from, to));
        assert!((bars(&long) - long["total"]["sum"].as_f64().unwrap()).abs() < 1e-3 * bars(&long));
        let parts: u64 = told["groups"].as_array().unwrap().iter().map(|group| group["count"].as_u64().unwrap()).sum();
        assert_eq!(parts, lengths.len() as u64);
    }

    #[test]
    fn lengths_have_bins_of_powers_of_two() {
        let run = run();
        let told = tell(&run, "bytes(disk.*)", false, (0, u64::MAX));
        let labels: Vec<&str> = told["chart"]["rows"].as_array().unwrap().iter().map(|row| row[0].as_str().unwrap()).collect();
        assert!(labels.len() > 4 && labels[..3] == ["from 4 KiB", "from 8 KiB", "from 16 KiB"], "{labels:?}");
    }

    #[test]
    fn a_gauge_holds_until_its_next_sample_and_to_the_end_of_the_window() {
        let run = run();
        let (from, to) = (run.duration_ns / 2, run.duration_ns);
        let told = tell(&run, "queue", true, (from, to));
        let nodes = told["groups"].as_array().unwrap().len();
        assert!(nodes > 1, "{told}");
        // Each node has a value at every moment.
        assert!((bars(&told) - nodes as f64 * (to - from) as f64 / 1e9).abs() < 1e-3 * bars(&told), "{told}");
        let (mean, least, largest) = (&told["total"]["over_time"], &told["total"]["least"], &told["total"]["largest"]);
        assert!(least.as_f64() <= mean.as_f64() && mean.as_f64() <= largest.as_f64());
    }

    #[test]
    fn formulas_have_histograms_and_what_is_none_says_so() {
        let run = run();
        let told = tell(&run, "count / time", false, (0, run.duration_ns));
        assert!(told["total"]["count"].as_u64().unwrap() > 100, "{told}");
        for (of, words) in [("duration(nothing.*)", "nothing.*"), ("bites", "unknown"), ("count /", "missing")] {
            assert!(tell(&run, of, false, (0, 10))["problem"].as_str().unwrap().contains(words), "{of}");
        }
        assert_eq!(tell(&run, "", false, (1, 2))["chart"], Value::Null, "nothing begins there");
    }

    #[test]
    fn every_value_has_a_bin() {
        for (least, largest) in [(1.0, 1.0), (0.0, 0.0), (3.0, 47.0), (1e-9, 12.0), (5.0, 1e18), (0.1, 0.7), (-3.5, 2.0), (9.99, 10.0)] {
            let mut total = Sum::new("all");
            total.take(least, 1, 1);
            total.take(largest, 1, 1);
            let bytes = || Source::Spans { kinds: Vec::new(), attribute: Attribute::Bytes };
            for (log, source) in [
                (Some(true), bytes()),
                (Some(false), bytes()),
                (Some(false), Source::Samples(Vec::new())),
                (None, Source::Pieces(1, Vec::new())),
                (Some(true), Source::Pieces(1, Vec::new())),
            ] {
                let bins = Bins::new(&total, log, &source);
                assert!(bins.edges.is_sorted() && !bins.labels.is_empty() && bins.labels.len() <= 64, "{bins:?}");
                for value in [least, largest, (least + largest) / 2.0] {
                    let bin = bins.of(value);
                    assert!(
                        bins.edges[bin] <= value && (value < bins.edges[bin + 1] || bin + 2 == bins.edges.len()),
                        "{value} in {bins:?}"
                    );
                }
            }
        }
    }
}
