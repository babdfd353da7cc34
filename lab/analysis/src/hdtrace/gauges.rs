//! Statistics as gauges: a value holds from the beginning of its interval on.

use weft_hdtrace::{Statistics, Value, ValueDescription, ValueKind};
use weft_trace::record::{Body, TraceRecord};

use super::events::Events;
use super::process::{OWN_RING, Process};

/// Gauges of one record.
const GAUGES: usize = 5;

/// Adds the numbers of a statistics file; texts have no gauge. Values that may have fractions are
/// counted in thousandths, which their names say.
///
/// # Errors
/// A sentence: a value below zero, which no gauge can show.
pub fn put(statistics: &Statistics, process: &mut Process, events: &mut Events) -> Result<(), String> {
    let numbers: Vec<usize> =
        (0..statistics.group.values.len()).filter(|column| statistics.group.values[*column].kind != ValueKind::Text).collect();
    let adjustment = statistics.group.time_adjustment;
    for (part, columns) in numbers.chunks(GAUGES).enumerate() {
        let scales: Vec<f64> = columns.iter().map(|column| scale(statistics, *column)).collect();
        let names: Vec<String> =
            columns.iter().zip(&scales).map(|(column, scale)| name(&statistics.group.values[*column], *scale)).collect();
        // Weft's own gauges are what is at a moment, not what was in an interval.
        let (id, moments) = events.gauges(&statistics.group.name, part, &names);
        let mut begin = statistics.start;
        for (number, row) in statistics.rows.iter().enumerate() {
            let mut gauges = [0; GAUGES];
            for ((gauge, column), scale) in gauges.iter_mut().zip(columns).zip(&scales) {
                let value = number_of(&row.values[*column]) * scale;
                if value < 0.0 || value.is_nan() {
                    let column = &statistics.group.values[*column].name;
                    return Err(format!("row {number}: {column} is {}, and gauges have no such values", value / scale));
                }
                *gauge = value.round() as u64;
            }
            let at = if moments { row.end } else { begin };
            let record = TraceRecord::new(process.at(at + adjustment), id, Body::Counter(gauges));
            process.put(OWN_RING + 1, record);
            begin = row.end;
        }
    }
    Ok(())
}

fn number_of(value: &Value) -> f64 {
    match value {
        Value::Int32(number) => f64::from(*number),
        Value::Int64(number) => *number as f64,
        Value::Float(number) => f64::from(*number),
        Value::Double(number) => *number,
        Value::Text(_) => 0.0,
    }
}

/// 1000 for a column that may have fractions.
fn scale(statistics: &Statistics, column: usize) -> f64 {
    match statistics.group.values[column].kind {
        ValueKind::Float | ValueKind::Double => 1000.0,
        ValueKind::Int32 | ValueKind::Int64 | ValueKind::Text => 1.0,
    }
}

/// `CPU_TOTAL.millipercent`: a name that formulas can use, with its unit.
fn name(column: &ValueDescription, scale: f64) -> String {
    let plain = |text: &str| -> String {
        text.chars().map(|letter| if letter.is_ascii_alphanumeric() || letter == '-' || letter == '.' { letter } else { '_' }).collect()
    };
    let unit = match column.unit.as_str() {
        "%" => "percent".to_string(),
        "B" => "bytes".to_string(),
        "#" => String::new(),
        unit => plain(unit),
    };
    let base = plain(&column.name);
    let milli = if scale > 1.0 { "milli" } else { "" };
    match (unit.as_str(), milli) {
        ("", "") => base,
        ("", milli) => format!("{base}.{milli}"),
        (unit, "") if base.ends_with(unit) => base,
        (unit, milli) => format!("{base}.{milli}{unit}"),
    }
}
