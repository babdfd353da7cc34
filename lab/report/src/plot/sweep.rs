//! `weft plot sweep`: what came out of a plan, over one of its keys.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use weft_analysis::inputs::refuse_to_overwrite;
use weft_analysis::limits::{CLUSTER_2006, Facts};
use weft_analysis::results::Results;
use weft_charts::{Axis, Bar, BarSeries, Frame, GroupedBars, Line, Lines, Style, Unit, categorical, stacked};
use weft_host::in_order::{by_key, once_each};
use weft_host::units::ByteSize;

use super::picture::{Chart, Picture, write};
use super::results::{CLIENTS, Row, read, row, short};

const MIB: f64 = (1u64 << 20) as f64;
/// Most lines of a picture, unless more are asked for.
const LINES_MAX: usize = 8;
const SPREAD: &str = "Lines: medians, with the smallest and the largest repetition.";
const BOUNDS: &str = "Dashed: estimated upper bounds (Kunkel 2006, chapter 4).";

/// Options of the command.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Results of weft bench run --json, or of weft sim run --json
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// The file to write, with all pictures below each other
    #[arg(short, long, value_name = "FILE", required_unless_present = "out")]
    output: Option<PathBuf>,
    /// A folder for the pictures, a file for each
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Heading of the file with all pictures
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// What an input is called; once for each
    #[arg(long = "label", value_name = "TEXT")]
    labels: Vec<String>,
    /// The key of the plan that is the axis below, as clients, files_in_all or block: lines over
    /// numbers and sizes, bars over words [default: the numbers with most values]
    #[arg(long, visible_alias = "x", value_name = "KEY")]
    over: Option<String>,
    /// A key with a line for each of its values; the others have a picture for each combination
    /// [default: all keys whose values are words, for no more than eight lines]
    #[arg(long, value_name = "KEY")]
    lines: Vec<String>,
    /// The result that is drawn, such as seconds or disk_operations [default: bytes a second, else
    /// operations a second, else seconds]
    #[arg(long = "y", value_name = "RESULT")]
    field: Option<String>,
    /// Boxes instead of lines or bars: half of all repetitions, a line at the median, and from the
    /// smallest to the largest (results of weft lab show --json and of weft bench run --json)
    #[arg(long)]
    boxes: bool,
    /// Where bounds come from: the cluster of Kunkel 2006, or the ceilings of unix or tcp sockets
    #[arg(long, value_name = "WHICH", default_value = "unix", value_parser = ["unix", "tcp", "2006"])]
    hardware: String,
    /// The file of `weft bench ceiling --json`; without it and without 2006 there are no bounds
    #[arg(long, value_name = "FILE")]
    ceiling: Option<PathBuf>,
}

/// What is wanted of a sweep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'w> {
    /// The key that is the axis below; `None`: the numbers with most values.
    pub over: Option<&'w str>,
    /// Keys with a line for each value; none: all whose values are words.
    pub lines: &'w [String],
    /// The result; `None`: the usual one.
    pub field: Option<&'w str>,
    /// Boxes of repetitions.
    pub boxes: bool,
}

/// Smallest, median and largest at each place of a line, and quartiles.
type Points = Vec<(String, [f64; 3], Option<(f64, f64)>)>;

impl Args {
    /// Writes the pictures.
    ///
    /// # Errors
    /// If an input cannot be read or holds nothing to draw.
    pub(super) fn run(self) -> Result<()> {
        let ceilings = match &self.ceiling {
            None => Vec::new(),
            Some(path) => {
                let mut results = Results::default();
                let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
                results.add_json(&bytes).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
                results.ceilings
            }
        };
        let facts = |meta: usize, data: usize| match &self.hardware[..] {
            "2006" => Facts { meta: Some(meta as f64), data: Some(data as f64), ..CLUSTER_2006 },
            transport => Facts::measured(&ceilings, transport, meta, data),
        };
        let wanted = Wanted { over: self.over.as_deref(), lines: &self.lines, field: self.field.as_deref(), boxes: self.boxes };
        let mut all = Vec::new();
        for (path, label) in super::panels(&self.inputs, &self.labels)? {
            let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            let rows = read(&text, wanted.field).with_context(|| path.display().to_string())?;
            let mut found = charts(&rows, wanted, &label, &facts).with_context(|| path.display().to_string())?;
            if self.inputs.len() > 1 {
                found.iter_mut().for_each(|picture| picture.name = file_name(&[&label, &picture.name]));
            }
            all.extend(found);
        }
        if let Some(folder) = &self.out {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            for picture in &all {
                let name = write(folder, picture)?;
                weft_host::output::tell(&format!("wrote {name}"));
            }
        }
        let Some(output) = &self.output else { return Ok(()) };
        refuse_to_overwrite(output, &self.inputs)?;
        let title = self.title.as_deref().unwrap_or("A sweep");
        let pictures: Vec<String> = all.iter().map(Picture::svg).collect();
        std::fs::write(output, stacked(title, &pictures)).with_context(|| format!("cannot write {}", output.display()))
    }
}

/// The pictures of rows of JSON, without bounds.
///
/// # Errors
/// There is no such result, or no key with several values.
pub fn pictures(rows: &[Value], wanted: Wanted<'_>, label: &str) -> Result<Vec<Picture>> {
    let rows = rows.iter().map(|value| row(value, wanted.field)).collect::<Result<Vec<Row>>>()?;
    charts(&rows, wanted, label, &|meta, data| Facts::measured(&[], "unix", meta, data))
}

/// Words as the name of a file: letters, digits and single dashes.
pub fn file_name(words: &[&str]) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '.' || letter == '_';
    let text: String = words.join("-").chars().map(|letter| if is_plain(letter) { letter.to_ascii_lowercase() } else { '-' }).collect();
    text.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// A chart for each step and combination of the keys that are neither the axis nor the lines.
fn charts(rows: &[Row], wanted: Wanted<'_>, label: &str, facts: &dyn Fn(usize, usize) -> Facts) -> Result<Vec<Picture>> {
    let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    rows.iter().flat_map(|row| &row.values).for_each(|(key, value)| {
        keys.entry(key).or_default().insert(value);
    });
    keys.retain(|_, values| values.len() > 1);
    let is_number = |key: &str| keys[key].iter().all(|value| number(value).is_some());
    let known = || if keys.is_empty() { "none".into() } else { keys.keys().copied().collect::<Vec<_>>().join(", ") };
    let find = |wanted: &str| keys.keys().find(|key| **key == wanted || short(key) == wanted).copied();
    let over = match wanted.over {
        Some(over) => find(over),
        None => keys.keys().max_by_key(|key| (is_number(key), keys[*key].len())).copied(),
    };
    let Some(over) = over else { bail!("nothing to draw over: keys with several values are {}", known()) };
    let mut lines = Vec::new();
    for key in wanted.lines {
        let Some(key) = find(key) else { bail!("no lines of {key}: keys with several values are {}", known()) };
        lines.push(key);
    }
    // File systems are told apart by words, what is done on them by numbers.
    let is_line = |key: &&str| if wanted.lines.is_empty() { !is_number(key) } else { lines.contains(key) };
    let (mut lines, mut panels): (Vec<&str>, Vec<&str>) = keys.keys().filter(|key| **key != over).partition(|key| is_line(key));
    // As many lines as there are colours; the keys with most values stay together.
    while wanted.lines.is_empty() && lines.len() > 1 && lines.iter().map(|key| keys[key].len()).product::<usize>() > LINES_MAX {
        let fewest = (0..lines.len()).min_by_key(|place| keys[lines[*place]].len()).unwrap_or(0);
        panels.push(lines.remove(fewest));
    }
    let name = |row: &Row, keys: &[&str], with: bool| {
        let is_truth = |value: &str| matches!(value, "true" | "false");
        let told = |key: &str, value: &String| if with || is_truth(value) { format!("{} {value}", short(key)) } else { value.clone() };
        keys.iter().filter_map(|key| Some(told(key, row.values.get(*key)?))).collect::<Vec<String>>().join(", ")
    };
    let families = by_key(rows.iter().map(|row| ((&row.step[..], name(row, &panels, true)), row)));
    let with_keys = lines.iter().any(|key| is_number(key));
    let picture = |((step, family), members): ((&str, String), Vec<&Row>)| {
        let with_key = members.iter().copied().filter(|row| row.values.contains_key(over));
        let named = by_key(with_key.map(|row| (name(row, &lines, with_keys), row)));
        let named: Vec<(String, Points)> = named.into_iter().map(|(line, rows)| (line, points(over, &rows))).collect();
        let subtitle = if family.is_empty() { label.to_string() } else { format!("{family} ({label})") };
        let heading = heading(step, members[0]);
        let name = file_name(&[&heading, &family]);
        let frame = Frame::new(&heading, &subtitle).sized(900, 420);
        let is_number = |key: &str| is_number(key) && !wanted.boxes;
        let bounds = if is_number(over) { bounds(over, step, &members, facts) } else { Vec::new() };
        let chart = match is_number(over) {
            true => Chart::Lines(lines_over(over, frame, members[0], named, bounds)),
            false => Chart::Bars(bars_over(over, frame, members[0], named, wanted.boxes)),
        };
        Picture { name, chart }
    };
    Ok(families.into_iter().map(picture).collect())
}

/// The step; with the result, if that is no rate.
fn heading(step: &str, row: &Row) -> String {
    match row.unit {
        _ if step.is_empty() => row.field.clone(),
        Unit::BytesPerSecond | Unit::PerSecond => step.to_string(),
        _ => format!("{step}: {}", row.field),
    }
}

/// What was found at each value of the axis, in the order of the rows: rows of the same value are
/// repetitions.
fn points(over: &str, rows: &[&Row]) -> Points {
    let median = |mut found: Vec<[f64; 3]>| {
        found.sort_by(|one, other| one[1].total_cmp(&other[1]));
        let least = found.iter().map(|found| found[0]).fold(f64::MAX, f64::min);
        let most = found.iter().map(|found| found[2]).fold(f64::MIN, f64::max);
        [least, found[found.len() / 2][1], most]
    };
    let points = by_key(rows.iter().map(|row| (&row.values[over], *row)));
    let point = |(at, rows): (&String, Vec<&Row>)| (at.clone(), median(rows.iter().map(|row| row.found).collect()), rows[0].quartiles);
    points.into_iter().map(point).collect()
}

fn lines_over(over: &str, frame: Frame, row: &Row, mut named: Vec<(String, Points)>, bounds: Vec<Line>) -> Lines {
    if let [(name, _)] = &mut named[..]
        && name.is_empty()
        && !bounds.is_empty()
    {
        "measured".clone_into(name);
    }
    let has_spread = named.iter().flat_map(|(_, points)| points).any(|(_, found, _)| found[0] < found[2]);
    let notes = [(has_spread, SPREAD), (!bounds.is_empty(), BOUNDS)];
    let note: Vec<&str> = notes.into_iter().filter(|(is_there, _)| *is_there).map(|(_, note)| note).collect();
    let frame = frame.with_note(&note.join(" "));
    let lines: Vec<Line> = bounds.into_iter().chain(named.into_iter().enumerate().flat_map(measured)).collect();
    let is_size = |at: &str| short(over) == "block" || at.parse::<f64>().is_err();
    let below = if row.values.get(over).is_some_and(|at| is_size(at)) { Unit::Bytes } else { Unit::Count };
    let points = || lines.iter().flat_map(|line| &line.points);
    let axis = |name: &str, unit, is_log| if is_log { Axis::log(name, unit) } else { Axis::linear(name, unit) };
    let x = axis(short(over), below, points().all(|point| point.0 > 0.0));
    let y = axis(named_axis(row), row.unit, points().all(|point| point.1 > 0.0));
    Lines { frame, x, y, lines, marks: Vec::new() }
}

fn bars_over(over: &str, frame: Frame, row: &Row, named: Vec<(String, Points)>, boxes: bool) -> GroupedBars {
    let categories = once_each(named.iter().flat_map(|(_, points)| points).map(|(at, ..)| at.clone()));
    let bar = |points: &Points, category: &String| {
        let (_, [least, median, most], quartiles) = points.iter().find(|(at, ..)| at == category)?;
        let quartiles = quartiles.filter(|_| boxes);
        Some(Bar { value: *median, range: (least < most).then_some((*least, *most)), expected: None, quartiles })
    };
    let series = named.into_iter().enumerate().map(|(number, (name, points))| BarSeries {
        name,
        fill: categorical(number),
        bars: categories.iter().map(|category| bar(&points, category)).collect(),
    });
    let series = series.collect();
    let y = Axis::linear(named_axis(row), row.unit);
    GroupedBars { frame, x_label: short(over).to_string(), categories, y, series, expected: String::new() }
}

fn named_axis(row: &Row) -> &str {
    match row.unit {
        Unit::BytesPerSecond => "all clients",
        Unit::PerSecond => "operations",
        _ => &row.field,
    }
}

/// A line through the medians, and a bar from the smallest to the largest at each.
fn measured((color, (name, points)): (usize, (String, Points))) -> Vec<Line> {
    let color = categorical(color).color;
    let mut points: Vec<(f64, [f64; 3])> = points.into_iter().filter_map(|(at, found, _)| Some((number(&at)?, found))).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let medians: Vec<(f64, f64)> = points.iter().map(|(at, found)| (*at, found[1])).collect();
    let dots = Line { name: String::new(), color, style: Style::Dots, points: medians.clone() };
    let bar = |(at, [least, _, most]): &(f64, [f64; 3])| vec![(*at, *least), (*at, *most)];
    let bars = points.iter().filter(|(_, found)| found[0] < found[2]);
    let bars = bars.map(|point| Line { name: String::new(), color, style: Style::Line, points: bar(point) });
    [Line { name, color, style: Style::Line, points: medians }].into_iter().chain(bars).chain([dots]).collect()
}

/// What bounds a family of measurements at each value of the axis.
fn bounds(over: &str, step: &str, members: &[&Row], facts: &dyn Fn(usize, usize) -> Facts) -> Vec<Line> {
    let value = |row: &Row, key: &str| row.values.get(key).and_then(|value| number(value));
    type Bound = (&'static str, fn(&Facts, f64, f64) -> Option<f64>);
    let of_creates: [Bound; 4] = [
        ("network", |facts, clients, _| facts.create_network(clients)),
        ("disk, each create", |facts, clients, _| facts.create_synchronous(clients)),
        ("on the worst disk", |facts, clients, _| facts.create_worst(clients)),
        ("on the best disk", |facts, clients, _| facts.create_optimistic(clients)),
    ];
    let of_data: [Bound; 2] = [
        ("network", |facts, clients, block| {
            Some((clients * facts.small_network(block)?).min(facts.large_network(clients).unwrap_or(f64::INFINITY)))
        }),
        ("disks", |facts, _, _| facts.large_disk()),
    ];
    let bounds: &[Bound] = match step {
        "create" | "remove" => &of_creates,
        _ if members.iter().any(|row| row.block_bytes.is_some()) => &of_data,
        _ => &[],
    };
    let line = |(number, (name, bound)): (usize, &Bound)| {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for row in members {
            let count = |key: &str| value(row, key).map_or(1, |count| count as usize);
            let facts = facts(count("weft.metadata_servers"), count("servers"));
            let clients = value(row, CLIENTS).unwrap_or(1.0);
            points.push((value(row, over)?, bound(&facts, clients, row.block_bytes.unwrap_or(MIB))?));
        }
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points.dedup();
        Some(Line { name: format!("bound: {name}"), color: categorical(6 - number).color, style: Style::Bound, points })
    };
    bounds.iter().enumerate().filter_map(line).collect()
}

/// A number, or a size with its unit.
fn number(text: &str) -> Option<f64> {
    text.parse().ok().or_else(|| text.parse::<ByteSize>().ok().map(|bytes| bytes.0 as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(engine: &str, files: u64, meta: u64, rate: f64) -> Value {
        serde_json::json!({
            "weft.engine": engine, "weft.metadata_servers": meta, "workload.files_in_all": files, "phase": "create", "procs": 5,
            "ops_per_s": { "median": rate, "min": rate / 2.0, "max": rate * 2.0 }, "mib_per_s": null,
        })
    }

    fn drawn(rows_of: &[Value], over: Option<&str>) -> Result<Vec<Lines>> {
        let text = serde_json::to_vec(rows_of).expect("JSON");
        let facts = |meta: usize, data: usize| Facts { meta: Some(meta as f64), data: Some(data as f64), ..CLUSTER_2006 };
        let pictures = charts(&read(&text, None)?, Wanted { over, ..Wanted::default() }, "test", &facts)?;
        let lines = pictures.into_iter().map(|picture| match picture.chart {
            Chart::Lines(lines) => Ok(lines),
            Chart::Bars(_) => bail!("bars"),
        });
        lines.collect()
    }

    #[test]
    fn a_sweep_is_a_panel_for_each_number_and_a_line_for_each_engine() {
        let rows = [
            sample("db", 800, 1, 20.0),
            sample("db", 200, 1, 10.0),
            sample("dbpf", 200, 1, 1.0),
            sample("dbpf", 800, 1, 2.0),
            sample("db", 200, 5, 30.0),
            sample("db", 800, 5, 40.0),
        ];
        let charts = drawn(&rows, Some("files_in_all")).expect("a sweep");
        assert_eq!(charts.len(), 2, "one and five metadata servers");
        let line = |chart: usize, name: &str| charts[chart].lines.iter().find(|line| line.name == name).map(|line| line.points.clone());
        assert_eq!(line(0, "db"), Some(vec![(200.0, 10.0), (800.0, 20.0)]));
        assert_eq!(line(0, "dbpf"), Some(vec![(200.0, 1.0), (800.0, 2.0)]));
        assert_eq!((line(1, "db").is_some(), line(1, "dbpf")), (true, None));
        assert!(charts[0].lines.iter().any(|bar| bar.name.is_empty() && bar.points == [(200.0, 5.0), (200.0, 20.0)]), "an error bar");
        let worst = line(0, "bound: on the worst disk").expect("2006 knows it");
        assert_eq!(worst[0], (200.0, CLUSTER_2006.create_worst(5.0).expect("known")));
        let five = line(1, "bound: on the worst disk").expect("2006 knows it");
        assert!(five[0].1 > 4.0 * worst[0].1, "five servers have five disks");
        assert_eq!(drawn(&rows, None).expect("a sweep").len(), 2, "of two keys with as many values the last one");
    }

    #[test]
    fn a_picture_has_as_many_lines_as_there_are_colours() {
        let row = |collective: usize, layer: usize, access: &str, block: u64| {
            serde_json::json!({ "collective": format!("c{collective}"), "server.cache_layer": format!("l{layer}"),
                "workload.access": access, "workload.block": block, "seconds": 1.0 })
        };
        let each = |number: usize| row(number % 3, number / 3 % 3, ["read", "write"][number / 9 % 2], (number / 18 + 1) as u64);
        let found =
            pictures(&(0..36).map(each).collect::<Vec<_>>(), Wanted { over: Some("block"), ..Wanted::default() }, "t").expect("drawn");
        assert_eq!(found.len(), 6, "eighteen lines are too many, and so are nine");
        for picture in &found {
            let Chart::Lines(lines) = &picture.chart else { panic!("lines") };
            assert_eq!(lines.lines.iter().filter(|line| line.style == Style::Line).count(), 3);
        }
    }

    #[test]
    fn what_cannot_be_drawn_says_why() {
        let rows = [sample("db", 200, 1, 10.0), sample("dbpf", 200, 1, 10.0)];
        let error = |over| format!("{:#}", drawn(&rows, over).expect_err("nothing to draw"));
        assert!(error(Some("files_in_all")).contains("keys with several values are weft.engine"), "{}", error(Some("files_in_all")));
        let one = drawn(&rows[..1], None).expect_err("one row").to_string();
        assert!(one.contains("are none"), "{one}");
        assert!([&b"{}"[..], b"[{\"phase\": \"create\"}]", b"x"].into_iter().all(|text| read(text, None).is_err()));
        let lines = ["block".to_string()];
        let wanted = Wanted { lines: &lines, ..Wanted::default() };
        assert!(pictures(&rows, wanted, "").expect_err("no such key").to_string().contains("no lines of block"));
    }

    #[test]
    fn words_are_bars_seeds_are_repetitions_and_lines_may_be_numbers() {
        let found = |layer: &str, block: &str, seed: u64, seconds: f64| {
            serde_json::json!({
                "server.cache_layer": layer, "workload.block": block, "workload.seed": seed, "seconds": seconds, "bytes": 0,
            })
        };
        let rows = [
            found("none", "5KiB", 0, 4.0),
            found("none", "5KiB", 1, 6.0),
            found("none", "5KiB", 2, 5.0),
            found("aggregation", "5KiB", 0, 2.0),
            found("none", "1MiB", 0, 1.0),
            found("aggregation", "1MiB", 0, 0.5),
        ];
        let over = |over| pictures(&rows, Wanted { over: Some(over), ..Wanted::default() }, "test").expect("drawn");
        let lines = over("block");
        let [Picture { chart: Chart::Lines(chart), .. }] = &lines[..] else { panic!("one picture of lines") };
        assert_eq!((chart.x.unit, chart.lines[0].points.clone()), (Unit::Bytes, vec![(5120.0, 5.0), (1048576.0, 1.0)]));
        assert_eq!(chart.lines[1].points, [(5120.0, 4.0), (5120.0, 6.0)], "the spread of three seeds");
        let bars = over("cache_layer");
        assert_eq!(bars.iter().map(|picture| picture.name.as_str()).collect::<Vec<_>>(), ["seconds-block-5kib", "seconds-block-1mib"]);
        let Chart::Bars(chart) = &bars[0].chart else { panic!("bars over words") };
        assert_eq!(chart.categories, ["none", "aggregation"]);
        assert_eq!(chart.series[0].bars[0], Some(Bar { value: 5.0, range: Some((4.0, 6.0)), ..Bar::default() }));
        let boxed = [("none", [1.0, 2.0, 3.0]), ("write_behind", [4.0, 6.0, 9.0])].map(|(layer, rates)| {
            let spread = serde_json::json!({ "min": rates[0], "median": rates[1], "max": rates[2] });
            serde_json::json!({ "server.cache_layer": layer, "phase": "write", "ops_per_s": spread, "samples": rates })
        });
        let [Picture { chart: Chart::Bars(chart), .. }] =
            &pictures(&boxed, Wanted { boxes: true, ..Wanted::default() }, "test").expect("drawn")[..]
        else {
            panic!("one picture of boxes")
        };
        let drawn: Vec<_> = chart.series[0].bars.iter().flatten().map(|bar| (bar.value, bar.quartiles)).collect();
        assert_eq!(drawn, [(2.0, Some((1.5, 2.5))), (6.0, Some((5.0, 7.5)))]);
        let keys = ["block".to_string()];
        let both = pictures(&rows, Wanted { over: Some("cache_layer"), lines: &keys, ..Wanted::default() }, "test").expect("drawn");
        let [Picture { chart: Chart::Bars(chart), .. }] = &both[..] else { panic!("one picture of bars") };
        assert_eq!(chart.series.iter().map(|series| series.name.as_str()).collect::<Vec<_>>(), ["block 5KiB", "block 1MiB"]);
    }
}
