//! Results of a plan as bars (Kuhn 2009, figures 6.2 to 6.12): what a user compares most, the cache
//! layers, stands side by side.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use weft_charts::{Axis, Bar, BarSeries, Frame, GroupedBars, Lines, Unit, categorical, stacked};

use crate::rates::panels;

/// Keys that stand side by side, the first that a plan gives several values.
const SIDE_BY_SIDE: [&str; 5] = ["server.cache_layer", "collective", "disk.model", "ties", "phase"];
/// Pixels of a bar, at least.
const BAR_PIXELS: usize = 11;

/// What is drawn: the height of bars.
struct Measure {
    /// The result of this name.
    name: &'static str,
    axis: Axis,
    /// By this a result becomes a value of the axis.
    factor: f64,
}

/// Writes a picture of rows; `parameters` are the keys with several values.
///
/// # Errors
/// Nothing to draw, or a file that cannot be written.
pub fn write(path: &Path, title: &str, rows: &[Value], parameters: &[String]) -> Result<()> {
    let chart = chart(title, rows, parameters)?;
    let name = |row: &Value| {
        parameters.iter().map(|key| format!("{} {}", short(key), shown(key, &row[key.as_str()]))).collect::<Vec<_>>().join(", ")
    };
    let panels = panels(rows, name);
    if panels.is_empty() {
        return write_chart(path, &chart);
    }
    let text = match form(path)? {
        Form::Drawing => {
            let pictures: Vec<String> = std::iter::once(chart.svg()).chain(panels.iter().map(Lines::svg)).collect();
            stacked(title, &pictures)
        }
        // Tables one behind the other, an empty line between them.
        Form::Numbers => {
            let tables: Vec<String> = std::iter::once(chart.table().csv()).chain(panels.iter().map(|panel| panel.table().csv())).collect();
            tables.join("\n")
        }
    };
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// What the file of a picture holds.
enum Form {
    Drawing,
    Numbers,
}

fn form(path: &Path) -> Result<Form> {
    match path.extension().and_then(|end| end.to_str()) {
        Some("svg") => Ok(Form::Drawing),
        Some("csv") => Ok(Form::Numbers),
        _ => bail!("{}: the name of a picture must end in .svg (or in .csv for its numbers)", path.display()),
    }
}

/// Refuses the name of a picture that could not be written, before anything is simulated for it.
///
/// # Errors
/// Its end is neither `.svg` nor `.csv`.
pub fn check(path: &Path) -> Result<()> {
    form(path).map(|_| ())
}

/// Writes a chart, as its name says: `.svg` or `.csv`.
///
/// # Errors
/// Another end of the name, or a file that cannot be written.
pub fn write_chart(path: &Path, chart: &GroupedBars) -> Result<()> {
    let text = match form(path)? {
        Form::Drawing => chart.svg(),
        Form::Numbers => chart.table().csv(),
    };
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn chart(title: &str, rows: &[Value], parameters: &[String]) -> Result<GroupedBars> {
    let Some(measure) = measure(rows) else { bail!("no result of this plan has a rate to draw") };
    let several: Vec<&String> = parameters.iter().filter(|key| distinct(rows, key).len() > 1).collect();
    let known = SIDE_BY_SIDE.iter().find_map(|wanted| several.iter().find(|key| key.as_str() == *wanted));
    let side = known.or(several.last()).copied();
    let names = side.map_or_else(|| vec![measure.axis.label.clone()], |key| distinct(rows, key));
    let others: Vec<&String> = several.iter().copied().filter(|key| Some(*key) != side).collect();
    let category = |row: &Value| others.iter().map(|key| shown(key, &row[key.as_str()])).collect::<Vec<_>>().join(", ");
    let mut categories: Vec<String> = Vec::new();
    let mut series: Vec<BarSeries> =
        (0..).zip(names).map(|(number, name)| BarSeries { name, fill: categorical(number), bars: Vec::new() }).collect();
    for row in rows {
        let category = category(row);
        let place = categories.iter().position(|known| *known == category).unwrap_or_else(|| {
            categories.push(category);
            series.iter_mut().for_each(|series| series.bars.push(None));
            categories.len() - 1
        });
        let own = side.map_or(0, |key| series.iter().position(|series| series.name == shown(key, &row[key.as_str()])).unwrap_or(0));
        series[own].bars[place] = bar(row, &measure);
    }
    let width = (categories.len() * series.len() * BAR_PIXELS + 120).clamp(720, 2400) as u32;
    let is_several = rows.iter().any(|row| row["tie_seeds"].is_u64());
    let note = if is_several { "Bars: the median over orders of simultaneous events; lines: the least and the largest." } else { "" };
    Ok(GroupedBars {
        frame: Frame::new(title, &subtitle(rows, parameters, &several)).with_note(note).sized(width, 460),
        x_label: others.iter().map(|key| short(key)).collect::<Vec<_>>().join(", "),
        categories,
        y: measure.axis,
        series,
        expected: String::new(),
    })
}

/// Number of cases, and the keys that have one value in all of them.
fn subtitle(rows: &[Value], parameters: &[String], several: &[&String]) -> String {
    let same = parameters.iter().filter(|key| !several.contains(key)).map(|key| format!("{} {}", short(key), distinct(rows, key).join("")));
    std::iter::once(format!("{} cases", rows.len())).chain(same).collect::<Vec<_>>().join(", ")
}

fn measure(rows: &[Value]) -> Option<Measure> {
    let has = |name: &str| rows.iter().any(|row| row[name].as_f64().is_some_and(|value| value > 0.0));
    let mib = Measure { name: "mib_per_second", axis: Axis::linear("throughput in MiB/s", Unit::Number), factor: 1.0 };
    let rate = Measure { name: "operations_per_second", axis: Axis::linear("operations a second", Unit::PerSecond), factor: 1.0 };
    let time = Measure { name: "seconds", axis: Axis::linear("time", Unit::Seconds), factor: 1.0 };
    [mib, rate, time].into_iter().find(|measure| has(measure.name))
}

/// The bar of a result. A range of times is one of rates the other way round.
fn bar(row: &Value, measure: &Measure) -> Option<Bar> {
    let number = |name: &str| row[name].as_f64();
    let value = number(measure.name)? * measure.factor;
    let range = match (number("seconds"), number("seconds_min"), number("seconds_max")) {
        (Some(_), Some(least), Some(largest)) if measure.name == "seconds" => Some((least, largest)),
        (Some(seconds), Some(least), Some(largest)) if least > 0.0 => Some((value * seconds / largest, value * seconds / least)),
        _ => None,
    };
    Some(Bar { value, range, ..Bar::default() })
}

/// The values of a key in their order.
fn distinct(rows: &[Value], key: &str) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for row in rows.iter().filter(|row| !row[key].is_null()) {
        let value = shown(key, &row[key]);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

/// The last part of a key.
fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// A value for people: sizes with their unit.
fn shown(key: &str, value: &Value) -> String {
    let is_size = matches!(short(key), "block" | "file" | "stripe" | "memory" | "packet" | "element" | "collective_buffer" | "bytes");
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) if is_size => number.as_f64().map_or_else(String::new, |bytes| Unit::Bytes.format(bytes)),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn keys(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_string()).collect()
    }

    #[test]
    fn cache_layers_stand_side_by_side_in_each_case_of_the_rest() {
        let row = |layer: &str, block: u64, rate: f64| json!({"server.cache_layer": layer, "workload.block": block, "mib_per_second": rate, "seconds": 1.0});
        let rows = [row("none", 5120, 1.0), row("aggregation", 5120, 4.0), row("none", 51200, 2.0), row("aggregation", 51200, 8.0)];
        let chart = chart("layers", &rows, &keys(&["workload.block", "server.cache_layer"])).expect("drawn");
        assert_eq!(chart.categories, ["5 KiB", "50 KiB"]);
        let series: Vec<(&str, Vec<f64>)> =
            chart.series.iter().map(|series| (series.name.as_str(), series.bars.iter().flatten().map(|bar| bar.value).collect())).collect();
        assert_eq!(series, [("none", vec![1.0, 2.0]), ("aggregation", vec![4.0, 8.0])]);
        assert!(chart.svg().contains("50 KiB, aggregation: 8"), "{}", chart.svg());
    }

    #[test]
    fn a_spread_of_times_is_one_of_rates_the_other_way_round() {
        let rows =
            [json!({"ties": "random", "seconds": 2.0, "seconds_min": 1.0, "seconds_max": 4.0, "mib_per_second": 10.0, "tie_seeds": 3})];
        let chart = chart("ties", &rows, &keys(&["ties"])).expect("drawn");
        assert_eq!(chart.series[0].bars, [Some(Bar { value: 10.0, range: Some((5.0, 20.0)), ..Bar::default() })]);
        assert!(chart.svg().contains("the least and the largest"));
    }

    #[test]
    fn without_rates_times_are_drawn_and_without_results_nothing() {
        let rows = [json!({"seconds": 2.0, "mib_per_second": 0.0})];
        assert_eq!(chart("t", &rows, &[]).expect("drawn").y.label, "time");
        assert!(chart("t", &[], &[]).is_err());
        let refused = write(Path::new("/tmp/x.png"), "t", &rows, &[]).expect_err("no such format");
        assert!(refused.to_string().contains("must end in .svg"), "{refused}");
    }
}
