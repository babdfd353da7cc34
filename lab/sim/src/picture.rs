//! Results of a plan as one picture: what `weft plot sweep` draws of them, and below it rates over
//! time, where a system tells them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weft_charts::{Lines, stacked};
use weft_report::plot::{Picture, Wanted, pictures};

use crate::rates::panels;

/// Keys with a line or bar for each value: the first to which a plan gives several.
const SIDE_BY_SIDE: [&str; 4] = ["server.cache_layer", "collective", "disk.model", "ties"];

/// Refuses the name of a picture before anything is simulated for it.
///
/// # Errors
/// It does not end in `.svg`.
pub fn check(path: &Path) -> Result<()> {
    ensure!(path.extension().is_some_and(|end| end == "svg"), "{}: the name of a picture must end in .svg", path.display());
    Ok(())
}

/// Writes a picture of rows; `parameters` are the keys with several values.
///
/// # Errors
/// Nothing to draw, or a file that cannot be written.
pub fn write(path: &Path, title: &str, rows: &[Value], parameters: &[String]) -> Result<()> {
    let several = |key: &&str| parameters.iter().any(|known| known == key) && rows.iter().any(|row| row[*key] != rows[0][*key]);
    let lines: Vec<String> = SIDE_BY_SIDE.iter().find(|key| several(key)).map(|key| key.to_string()).into_iter().collect();
    let panels = panels(rows, |row| name(row, parameters));
    let swept = match pictures(rows, Wanted { lines: &lines, ..Wanted::default() }, title) {
        // One case has rates over time and nothing else.
        Err(_) if !panels.is_empty() => Vec::new(),
        swept => swept?,
    };
    let all: Vec<String> = swept.iter().map(Picture::svg).chain(panels.iter().map(Lines::svg)).collect();
    std::fs::write(path, stacked(title, &all)).with_context(|| format!("cannot write {}", path.display()))
}

/// What a row is: the keys with several values and their values.
pub fn name(row: &Value, parameters: &[String]) -> String {
    let short = |key: &str| key.rsplit('.').next().unwrap_or_default().to_string();
    let words = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    parameters.iter().map(|key| format!("{} {}", short(key), words(&row[key]))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn drawn(rows: &[Value], keys: &[&str]) -> Result<String> {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("p.svg");
        let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
        write(&path, "a plan", rows, &keys)?;
        Ok(std::fs::read_to_string(path).expect("there"))
    }

    #[test]
    fn cache_layers_are_lines_and_the_rest_has_pictures() {
        let row = |layer: &str, block: u64, access: &str, rate: f64| json!({"server.cache_layer": layer, "workload.block": block, "workload.access": access, "mib_per_second": rate, "bytes": 1});
        let rows: Vec<Value> = [5120, 51200]
            .into_iter()
            .flat_map(|block| ["none", "aggregation"].map(|layer| ["read", "write"].map(|access| row(layer, block, access, 1.5))))
            .flatten()
            .collect();
        let svg = drawn(&rows, &["server.cache_layer", "workload.block", "workload.access"]).expect("drawn");
        assert_eq!(svg.matches("<svg y=").count(), 2, "reading and writing");
        assert!(svg.contains("access read") && svg.contains(">aggregation<") && !svg.contains("layer aggregation"), "{svg}");
    }

    #[test]
    fn a_case_alone_has_its_rates_over_time_or_nothing() {
        let rates = json!([{"until_s": 5.0, "creates_per_second": [1.0, 2.0], "splits": 0}]);
        assert!(drawn(&[json!({"operations_per_second": 3.0, "rates": rates})], &[]).expect("drawn").contains("client 2"));
        assert!(drawn(&[json!({"seconds": 2.0})], &[]).is_err());
        assert!(check(Path::new("p.png")).expect_err("no such form").to_string().contains("must end in .svg"));
    }
}
