//! Results of plans as rows: the JSON of `weft bench run` and of `weft sim run`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use weft_charts::Unit;

const MIB: f64 = (1u64 << 20) as f64;
/// The number of processes: the key `clients` of a plan.
pub const CLIENTS: &str = "clients";
/// Keys of plans that have no table before them; the others have a dot.
const TOP: [&str; 16] = [
    "place",
    "servers",
    "stripe",
    CLIENTS,
    "profile",
    "cluster_model",
    "behaviour",
    "striping",
    "collective",
    "collective_buffer",
    "exchange",
    "bcast",
    "reduce",
    "allreduce",
    "system",
    "ties",
];

/// What was measured, and the values of the keys under which it was.
#[derive(Clone, Debug)]
pub struct Row {
    /// The keys of the plan.
    pub values: BTreeMap<String, String>,
    /// What was done; empty where a plan does one thing.
    pub step: String,
    /// Smallest, median, largest.
    pub found: [f64; 3],
    /// Half of all repetitions lie between these, where they are told one by one.
    pub quartiles: Option<(f64, f64)>,
    /// What `found` is.
    pub unit: Unit,
    /// The result that `found` is, as the file names it.
    pub field: String,
    /// Of a block, where data was moved on this machine: bounds need it.
    pub block_bytes: Option<f64>,
}

/// Rows of a file. `field` is the result that is wanted: else bytes a second where data was moved,
/// operations a second where not, seconds where there is neither.
///
/// # Errors
/// It is neither, or a row has no such result.
pub fn read(text: &[u8], field: Option<&str>) -> Result<Vec<Row>> {
    let Ok(Value::Array(rows)) = serde_json::from_slice(text) else {
        bail!("this is no JSON of weft bench run, weft sim run or weft lab show, which is an array: it comes with --json");
    };
    rows.iter().map(|value| row(value, field)).collect()
}

/// A row.
///
/// # Errors
/// It has no such result.
pub fn row(value: &Value, field: Option<&str>) -> Result<Row> {
    let step = value["phase"].as_str().unwrap_or_default().to_string();
    let (field, found) = match field {
        Some(field) => (field.trim_end_matches(".median"), spread(value, field.trim_end_matches(".median"))),
        None => usual(value),
    };
    let found = found.with_context(|| format!("a row of the step \"{step}\" has no number {field}"))?;
    let (unit, factor) = unit(field);
    let is_key = |key: &str| (key.contains('.') || TOP.contains(&key)) && short(key) != "seed";
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    let keys = value.as_object().into_iter().flatten().filter(|(key, _)| is_key(key));
    let mut values: BTreeMap<String, String> = keys.map(|(key, value)| (key.clone(), text(value))).collect();
    if !value["procs"].is_null() {
        values.insert(CLIENTS.into(), text(&value["procs"]));
    }
    let block_bytes = value["block_bytes"].as_f64().filter(|_| unit == Unit::BytesPerSecond);
    let found = found.map(|number| number * factor);
    let quartiles = quartiles(value).filter(|_| matches!(unit, Unit::PerSecond | Unit::BytesPerSecond));
    let quartiles = quartiles.map(|(low, median, high)| (found[1] * low / median, found[1] * high / median));
    Ok(Row { values, step, found, quartiles, unit, field: field.to_string(), block_bytes })
}

/// First quartile, median and third of the rates of all repetitions; bytes a second are as much of
/// theirs.
fn quartiles(value: &Value) -> Option<(f64, f64, f64)> {
    let mut rates: Vec<f64> = value["samples"].as_array()?.iter().filter_map(Value::as_f64).collect();
    rates.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = share * (rates.len().checked_sub(1)? as f64);
        let (low, high) = (*rates.get(place.floor() as usize)?, *rates.get(place.ceil() as usize)?);
        Some(low + (high - low) * place.fract())
    };
    Some((at(0.25)?, at(0.5).filter(|median| *median > 0.0)?, at(0.75)?))
}

/// What is looked at if nobody says.
fn usual(value: &Value) -> (&'static str, Option<[f64; 3]>) {
    let moved = value["bytes"].as_f64().is_none_or(|bytes| bytes > 0.0);
    let all = ["mib_per_s", "ops_per_s", "mib_per_second", "operations_per_second", "seconds"];
    let fits = |field: &&str| (moved || *field != "mib_per_second") && spread(value, field).is_some();
    let field = all.into_iter().find(fits).unwrap_or("seconds");
    (field, spread(value, field))
}

/// Smallest, median and largest; all the same where there is one number. Dots stand between the
/// names of what is inside each other.
fn spread(value: &Value, field: &str) -> Option<[f64; 3]> {
    let inside = |of: Option<&Value>, name: &str| {
        let of = of?;
        name.parse::<usize>().ok().and_then(|position| of.get(position)).or_else(|| of.get(name)).cloned()
    };
    let found = value.get(field).cloned().or_else(|| field.split('.').try_fold(value.clone(), |of, name| inside(Some(&of), name)))?;
    if let Some(number) = found.as_f64() {
        // A range of times is one of rates the other way round.
        let of_times = |end: &str| Some(number * value["seconds"].as_f64()? / value[end].as_f64()?);
        let of_rate = |end: &str| of_times(end).filter(|_| field.ends_with("_per_second")).unwrap_or(number);
        let bound = |end: &str, other: &str| value[format!("{field}_{end}")].as_f64().unwrap_or_else(|| of_rate(other));
        return Some([bound("min", "seconds_max"), number, bound("max", "seconds_min")]);
    }
    let number = |of: &str| found[of].as_f64();
    Some([number("min")?, number("median")?, number("max")?])
}

/// The unit of a result, and what it is multiplied by for it.
fn unit(field: &str) -> (Unit, f64) {
    match short(field) {
        "mib_per_s" | "mib_per_second" => (Unit::BytesPerSecond, MIB),
        "ops_per_s" | "operations_per_second" => (Unit::PerSecond, 1.0),
        name if name.ends_with("_us") => (Unit::Seconds, 1e-6),
        name if name.ends_with("seconds") || name.ends_with("_s") => (Unit::Seconds, 1.0),
        name if name.ends_with("bytes") || name == "memory_max" => (Unit::Bytes, 1.0),
        name if name.ends_with("busy") => (Unit::Share, 1.0),
        _ => (Unit::Count, 1.0),
    }
}

/// The key without its table.
pub fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_simulations_are_read() {
        let text = b"[{\"workload.block\": \"64KiB\", \"clients\": 4, \"bytes\": 8, \"mib_per_second\": 2.0, \"seconds\": 3.5}]";
        let [row] = &read(text, None).expect("rows")[..] else { panic!("one row") };
        assert_eq!((row.found, row.unit, row.step.as_str()), ([2.0 * MIB; 3], Unit::BytesPerSecond, ""));
        let values: Vec<(&str, &str)> = row.values.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(values, [("clients", "4"), ("workload.block", "64KiB")]);
        let seconds = read(text, Some("seconds")).expect("rows");
        assert_eq!((seconds[0].found, seconds[0].unit), ([3.5; 3], Unit::Seconds));
        assert!(read(text, Some("nonsense")).expect_err("no such result").to_string().contains("no number nonsense"));
    }

    #[test]
    fn quartiles_are_those_of_the_repetitions() {
        let rates = "\"ops_per_s\": {\"min\": 1, \"median\": 3, \"max\": 9}, \"samples\": [9, 1, 2, 3, 4]";
        let of = |text: &str| row(&serde_json::from_str(text).expect("JSON"), None).expect("a row").quartiles;
        assert_eq!(of(&format!("{{{rates}}}")), Some((2.0, 4.0)));
        let moved = format!("{{{rates}, \"mib_per_s\": {{\"min\": 2, \"median\": 6, \"max\": 18}}}}");
        assert_eq!(of(&moved), Some((4.0 * MIB, 8.0 * MIB)));
        assert_eq!(of("{\"seconds\": 2}"), None);
    }

    #[test]
    fn spreads_are_those_of_repetitions_and_of_ties() {
        let of = |text: &str, field| row(&serde_json::from_str(text).expect("JSON"), field).expect("a row").found;
        assert_eq!(of("{\"seconds\": 2, \"seconds_min\": 1, \"seconds_max\": 4}", Some("seconds")), [1.0, 2.0, 4.0]);
        let rate = "{\"mib_per_second\": 10, \"seconds\": 2, \"seconds_min\": 1, \"seconds_max\": 4}";
        assert_eq!(of(rate, None), [5.0 * MIB, 10.0 * MIB, 20.0 * MIB]);
        assert_eq!(of("{\"ops_per_s\": {\"min\": 1, \"median\": 2, \"max\": 3}}", Some("ops_per_s.median")), [1.0, 2.0, 3.0]);
        assert_eq!(of("{\"functions\": [{\"seconds\": 7}]}", Some("functions.0.seconds")), [7.0; 3]);
        assert_eq!(of("{\"bytes\": 0, \"mib_per_second\": 0.0, \"operations_per_second\": 9.0}", None), [9.0; 3]);
    }
}
