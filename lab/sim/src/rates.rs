//! Rates over time as pictures (Vef 2016, figures 4.2 and 4.5 to 4.9): a panel for each case, a
//! line for each client, and how many directory blocks were split in each interval.

use serde_json::Value;
use weft_charts::{Axis, Frame, Line, Lines, Mark, Style, Unit, categorical};

/// Marks for splits in one panel, at most: those with most of them.
const MARKS_MAX: usize = 12;

/// A panel for each row that has rates. `name` says what the row is.
pub fn panels(rows: &[Value], name: impl Fn(&Value) -> String) -> Vec<Lines> {
    let with_rates = rows.iter().filter(|row| row["rates"].as_array().is_some_and(|rates| !rates.is_empty()));
    let mut panels: Vec<Lines> = with_rates.map(|row| panel(row, &name(row))).collect();
    Lines::share_axes(&mut panels);
    panels
}

fn panel(row: &Value, name: &str) -> Lines {
    let points = row["rates"].as_array().map_or(&[][..], Vec::as_slice);
    let until = |point: &Value| point["until_s"].as_f64().unwrap_or(0.0);
    let of_client = |point: &Value, client: usize| point["creates_per_second"][client].as_f64().unwrap_or(0.0);
    let clients = points.first().and_then(|point| point["creates_per_second"].as_array()).map_or(0, Vec::len);
    let mut lines: Vec<Line> = (0..clients)
        .map(|client| Line {
            name: format!("client {}", client + 1),
            color: categorical(client).color,
            style: Style::Line,
            points: points.iter().map(|point| (until(point), of_client(point, client))).collect(),
        })
        .collect();
    if clients > 1 {
        let all = |point: &Value| (0..clients).map(|client| of_client(point, client)).sum();
        let points = points.iter().map(|point| (until(point), all(point))).collect();
        lines.push(Line { name: "all".to_string(), color: categorical(clients).color, style: Style::Dashed, points });
    }
    let mut splits: Vec<(u64, f64)> = points.iter().map(|point| (point["splits"].as_u64().unwrap_or(0), until(point))).collect();
    splits.retain(|(count, _)| *count > 0);
    splits.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    splits.truncate(MARKS_MAX);
    splits.sort_by(|one, other| one.1.total_cmp(&other.1));
    let rate = row["operations_per_second"].as_f64().unwrap_or(0.0);
    Lines {
        frame: Frame::new(name, &format!("{} on the whole", Unit::PerSecond.format(rate)))
            .sized(960, 300)
            .with_note("Vertical: directory blocks split in that interval."),
        x: Axis::linear("time since the start", Unit::Seconds),
        y: Axis::linear("creates", Unit::PerSecond),
        lines,
        marks: splits.into_iter().map(|(count, x)| Mark { x, text: count.to_string() }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_panel_has_a_line_for_each_client_and_their_sum() {
        let rates = |one: f64, other: f64| json!([{"until_s": 5.0, "creates_per_second": [one, other], "splits": 0}, {"until_s": 10.0, "creates_per_second": [1.0, 2.0], "splits": 8}]);
        let rows =
            [json!({"clients": 2, "rates": rates(10.0, 20.0)}), json!({"clients": 1, "rates": rates(40.0, 0.0)}), json!({"seconds": 1.0})];
        let panels = panels(&rows, |row| format!("{} clients", row["clients"]));
        assert_eq!(panels.len(), 2, "a row without rates has none");
        let names: Vec<&str> = panels[0].lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["client 1", "client 2", "all"]);
        assert_eq!(panels[0].lines[2].points, [(5.0, 30.0), (10.0, 3.0)]);
        assert_eq!(panels[0].marks, [Mark { x: 10.0, text: "8".to_string() }]);
        assert_eq!(panels[0].y.range, panels[1].y.range, "they can be compared");
    }
}
