//! Where the time of several cases went, task by task, beside each other (Vef 2016, Tables 4.2 to
//! 4.4).

use serde_json::Value;
use weft_host::output::Table;

/// Results that are lists of tasks, and what they are called.
const LISTS: [(&str, &str); 3] = [("functions", "all"), ("lookup_tasks", "lookup"), ("create_tasks", "create")];

/// A table for each list of tasks, a column for each row of results; `name` says what a row is.
/// Empty where rows have no tasks.
pub fn side_by_side(rows: &[Value], name: impl Fn(&Value) -> String) -> String {
    let tasks = |row: &Value, list: &str| row[list].as_array().cloned().unwrap_or_default();
    let mut text = String::new();
    for (list, title) in LISTS {
        let of_rows: Vec<Vec<Value>> = rows.iter().map(|row| tasks(row, list)).collect();
        let Some(first) = of_rows.first().filter(|tasks| !tasks.is_empty()) else { continue };
        let headings: Vec<String> = rows.iter().map(|row| format!(">{}", name(row))).collect();
        let headings = std::iter::once(title).chain(headings.iter().map(String::as_str)).collect::<Vec<_>>();
        let mut table = Table::new(&headings);
        for (place, task) in first.iter().enumerate() {
            let cells = of_rows.iter().map(|tasks| cell(tasks, place));
            let task = format!("{}. {}", place + 1, task["task"].as_str().unwrap_or_default());
            table.row(std::iter::once(task).chain(cells).collect());
        }
        text += &format!("\n{}", table.render());
    }
    text
}

/// The share of a task and its seconds.
fn cell(tasks: &[Value], place: usize) -> String {
    let seconds = |task: &Value| task["seconds"].as_f64().unwrap_or(0.0);
    let all: f64 = tasks.iter().map(seconds).sum();
    let of = tasks.get(place).map_or(0.0, seconds);
    format!("{:.1}% ({of:.1} s)", of * 100.0 / all.max(f64::MIN_POSITIVE))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tasks_of_cases_stand_side_by_side() {
        let row = |clients: u64, lookup: f64| json!({"clients": clients, "functions": [{"task": "lookup", "seconds": lookup}, {"task": "create", "seconds": 3.0}]});
        let text = side_by_side(&[row(1, 1.0), row(2, 9.0)], |row| format!("clients {}", row["clients"]));
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        assert!(lines[0].starts_with("all") && lines[0].contains("clients 1") && lines[0].ends_with("clients 2"), "{text}");
        assert!(lines[1].starts_with("1. lookup") && lines[1].contains("25.0% (1.0 s)") && lines[1].ends_with("75.0% (9.0 s)"), "{text}");
        assert_eq!(side_by_side(&[json!({"seconds": 1})], |_| String::new()), "");
    }
}
