//! `weft plot sweep`: what came out of a plan, over one of its keys.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use weft_analysis::limits::{CLUSTER_2006, Facts};
use weft_analysis::results::Results;
use weft_charts::{Axis, Frame, Line, Lines, Style, Unit, categorical, stacked};
use weft_host::units::ByteSize;

use super::Common;

const MIB: f64 = (1u64 << 20) as f64;
/// The number of processes: the key `clients` of a plan.
const CLIENTS: &str = "clients";

/// Options of the command.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// The key of the plan that is the axis below, as clients, files_in_all or block [default: that
    /// with most values]
    #[arg(long, value_name = "KEY")]
    over: Option<String>,
    /// Where bounds come from: the cluster of Kunkel 2006, or the ceilings of unix or tcp sockets
    #[arg(long, value_name = "WHICH", default_value = "unix", value_parser = ["unix", "tcp", "2006"])]
    hardware: String,
    /// The file of `weft bench ceiling --json`; without it and without 2006 there are no bounds
    #[arg(long, value_name = "FILE")]
    ceiling: Option<PathBuf>,
}

/// A line by its name: where, and the smallest, the median and the largest rate there.
type Named = (String, Vec<(f64, [f64; 3])>);

/// A rate, and the values of the keys under which it was measured.
struct Row {
    values: BTreeMap<String, String>,
    step: String,
    /// Smallest, median, largest.
    rates: [f64; 3],
    /// Of a block, where data was moved: then rates are bytes a second.
    block_bytes: Option<f64>,
}

impl Args {
    /// Writes the picture.
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
        let mut pictures = Vec::new();
        for (path, label) in self.common.panels()? {
            let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            let rows = rows(&text).with_context(|| path.display().to_string())?;
            let charts = charts(&rows, self.over.as_deref(), &label, &facts).with_context(|| path.display().to_string())?;
            pictures.extend(charts.iter().map(Lines::svg));
        }
        self.common.write(&stacked(&self.common.title("A sweep"), &pictures))
    }
}

fn rows(text: &[u8]) -> Result<Vec<Row>> {
    let value: Value = serde_json::from_slice(text).context("this is no JSON of weft bench run")?;
    let rows = value.as_array().context("this is no JSON of weft bench run")?;
    rows.iter().map(row).collect()
}

fn row(value: &Value) -> Result<Row> {
    let step = value["phase"].as_str().context("a row has no phase")?.to_string();
    let spread = |key: &str| {
        let number = |of: &str| value[key][of].as_f64();
        Some([number("min")?, number("median")?, number("max")?])
    };
    let bytes = spread("mib_per_s").map(|rates| rates.map(|rate| rate * MIB));
    let block_bytes = value["block_bytes"].as_f64().filter(|_| bytes.is_some());
    let rates = bytes.or_else(|| spread("ops_per_s")).with_context(|| format!("a row of the step {step} has no rate"))?;
    // Keys of plans have a table before them, but for those at the top; the rest is of the phase.
    let is_key = |key: &str| key.contains('.') || matches!(key, "servers" | "stripe");
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    let keys = value.as_object().into_iter().flatten().filter(|(key, _)| is_key(key));
    let mut values: BTreeMap<String, String> = keys.map(|(key, value)| (key.clone(), text(value))).collect();
    values.insert(CLIENTS.into(), text(&value["procs"]));
    Ok(Row { values, step, rates, block_bytes })
}

/// A chart for each step and combination of the keys that are neither the axis nor the lines.
fn charts(rows: &[Row], over: Option<&str>, label: &str, facts: &dyn Fn(usize, usize) -> Facts) -> Result<Vec<Lines>> {
    let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    rows.iter().flat_map(|row| &row.values).for_each(|(key, value)| {
        keys.entry(key).or_default().insert(value);
    });
    keys.retain(|_, values| values.len() > 1);
    let is_number = |key: &str| keys[key].iter().all(|value| number(value).is_some());
    let over = match over {
        Some(over) => keys.keys().find(|key| short(key) == short(over)).copied(),
        None => keys.keys().filter(|key| is_number(key)).max_by_key(|key| keys[*key].len()).copied(),
    };
    let Some(over) = over.filter(|key| is_number(key)) else {
        let known: Vec<&str> = keys.keys().filter(|key| is_number(key)).map(|key| short(key)).collect();
        bail!("nothing to draw over: keys with several numbers are {}", if known.is_empty() { "none".into() } else { known.join(", ") });
    };
    // File systems are told apart by words, what is done on them by numbers.
    let (panels, lines): (Vec<&str>, Vec<&str>) = keys.keys().filter(|key| **key != over).partition(|key| is_number(key));
    let name = |row: &Row, keys: &[&str], with: bool| {
        let value = |key: &&str| row.values.get(*key).map(|value| if with { format!("{} {value}", short(key)) } else { value.clone() });
        keys.iter().filter_map(value).collect::<Vec<String>>().join(", ")
    };
    let mut families: Vec<((&str, String), Vec<&Row>)> = Vec::new();
    for row in rows {
        let family = (&row.step[..], name(row, &panels, true));
        match families.iter_mut().find(|(known, _)| *known == family) {
            Some((_, members)) => members.push(row),
            None => families.push((family, vec![row])),
        }
    }
    let chart = |((step, family), members): ((&str, String), Vec<&Row>)| {
        let mut named: Vec<Named> = Vec::new();
        for row in &members {
            let (line, Some(at)) = (name(row, &lines, false), number(&row.values[over])) else { continue };
            match named.iter_mut().find(|(known, _)| *known == line) {
                Some((_, points)) => points.push((at, row.rates)),
                None => named.push((line, vec![(at, row.rates)])),
            }
        }
        let is_data = members.iter().any(|row| row.block_bytes.is_some());
        let unit = if is_data { Unit::BytesPerSecond } else { Unit::PerSecond };
        let below = if short(over) == "block" { Unit::Bytes } else { Unit::Count };
        let subtitle = if family.is_empty() { label.to_string() } else { format!("{family} ({label})") };
        let lines = bounds(over, step, &members, facts).into_iter().chain(named.into_iter().enumerate().flat_map(measured)).collect();
        Lines {
            frame: Frame::new(step, &subtitle).sized(900, 420).with_note(
                "Lines: medians, with the smallest and the largest repetition. Dashed: estimated upper bounds (Kunkel 2006, chapter 4).",
            ),
            x: Axis::log(short(over), below),
            y: Axis::log(if is_data { "all clients" } else { "operations" }, unit),
            lines,
            marks: Vec::new(),
        }
    };
    Ok(families.into_iter().map(chart).collect())
}

/// A line through the medians, and a bar from the smallest to the largest at each.
fn measured((number, (name, mut points)): (usize, Named)) -> Vec<Line> {
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let color = categorical(number).color;
    let medians = points.iter().map(|(at, rates)| (*at, rates[1])).collect();
    let bar = |(at, [least, _, most]): &(f64, [f64; 3])| vec![(*at, *least), (*at, *most)];
    let bars = points.iter().map(|point| Line { name: String::new(), color, style: Style::Line, points: bar(point) });
    let name = if name.is_empty() { "measured".into() } else { name };
    [Line { name, color, style: Style::Line, points: medians }].into_iter().chain(bars).collect()
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

/// The key without its table.
fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
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
        charts(&rows(&text)?, over, "test", &facts)
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
    fn what_cannot_be_drawn_says_why() {
        let rows = [sample("db", 200, 1, 10.0), sample("dbpf", 200, 1, 10.0)];
        let error = |over| format!("{:#}", drawn(&rows, over).expect_err("nothing to draw"));
        assert!(error(Some("engine")).contains("none") && error(None).contains("none"));
        assert!(rows_error(b"{}") && rows_error(b"[{\"phase\": \"create\"}]") && rows_error(b"x"));
    }

    fn rows_error(text: &[u8]) -> bool {
        rows(text).is_err()
    }
}
