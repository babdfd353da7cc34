//! Figures 6.2 to 6.12 of the thesis from the simulations behind its tables: bars as simulated,
//! dots as printed.

use std::path::Path;

use anyhow::{Context, Result};
use weft_charts::{Axis, Bar, BarSeries, Frame, GroupedBars, Unit, categorical};
use weft_host::in_order::once_each;
use weft_piosim::thesis::{Case, RunResult};
use weft_sched::LayerKind;

/// Figures of one section of Appendix C: number, section, what was tested.
const SECTIONS: [(&str, &str, &str); 9] = [
    ("6.2", "C.1", "Random I/O"),
    ("6.3", "C.2.1", "Individual I/O, 1 block per operation"),
    ("6.4", "C.2.2", "Individual I/O, 100 blocks per operation"),
    ("6.5", "C.2.3", "Individual I/O, all blocks in one operation"),
    ("6.6", "C.3.1", "Two-Phase"),
    ("6.7", "C.3.2", "Interleaved Two-Phase"),
    ("6.11a", "C.4.1", "Database, contiguous"),
    ("6.11b", "C.4.2", "Database, ten operations at once"),
    ("6.11c", "C.4.3", "Database, a thousand operations at once"),
];
/// Figures that put all sections of one block size together.
const SUMMARIES: [(&str, u64); 3] = [("6.8", 5 << 10), ("6.9", 50 << 10), ("6.10", 512 << 10)];
/// Of these, the sections.
const SUMMARISED: usize = 6;

/// A case with its runs.
pub type Ran<'a> = (&'a Case, &'a [RunResult]);

/// A table of the traced application: its number and layer, seconds as simulated and as printed.
pub type Traced = (String, f64, f64);

/// Draws every figure whose cases were run into a folder; gives the names of the files.
///
/// # Errors
/// A file that cannot be written.
pub fn write(folder: &Path, ran: &[Ran<'_>], traced: &[Traced]) -> Result<Vec<String>> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut files = Vec::new();
    let mut put = |number: &str, chart: GroupedBars| -> Result<()> {
        let name = format!("figure-{number}.svg");
        std::fs::write(folder.join(&name), chart.svg()).with_context(|| format!("cannot write {name}"))?;
        files.push(name);
        Ok(())
    };
    for (number, section, title) in SECTIONS {
        let of_section: Vec<&Ran<'_>> = ran.iter().filter(|(case, _)| case.table() == section).collect();
        if !of_section.is_empty() {
            let category =
                |case: &Case| format!("{}, {}", case.access().name().replace('_', "-"), Unit::Bytes.format(case.block_bytes() as f64));
            put(number, rates(&format!("Figure {number}: {title}"), &of_section, "access and block", &category))?;
        }
    }
    for (number, block) in SUMMARIES {
        let is_summarised = |case: &Case| SECTIONS[..SUMMARISED].iter().any(|(_, section, _)| *section == case.table());
        let all: Vec<&Ran<'_>> = ran.iter().filter(|(case, _)| case.block_bytes() == block && is_summarised(case)).collect();
        let sections = SECTIONS.iter().filter(|(_, section, _)| all.iter().any(|(case, _)| case.table() == *section)).count();
        if sections > 1 {
            let title = |case: &Case| SECTIONS.iter().find(|(_, section, _)| *section == case.table()).map_or("", |(.., title)| title);
            let category = |case: &Case| format!("{}: {}", case.access().name(), title(case));
            let name = format!("Figure {number}: all tests with blocks of {}", Unit::Bytes.format(block as f64));
            let mut sorted = all;
            sorted.sort_by_key(|(case, _)| case.access().name());
            put(number, rates(&name, &sorted, "access and test", &category))?;
        }
    }
    if !traced.is_empty() {
        put("6.12", times(traced))?;
    }
    Ok(files)
}

/// Throughput by category and cache layer. Of several runs the mean, as printed, and the range.
fn rates(title: &str, ran: &[&Ran<'_>], x_label: &str, category: &dyn Fn(&Case) -> String) -> GroupedBars {
    let categories = once_each(ran.iter().map(|(case, _)| category(case)));
    let series = (0..).zip(LayerKind::ALL).map(|(number, layer)| {
        let bar = |name: &String| {
            let (case, runs) = ran.iter().find(|(case, _)| case.layer() == layer && category(case) == *name)?;
            Some(rate(case, runs))
        };
        BarSeries { name: layer.name().to_string(), fill: categorical(number), bars: categories.iter().map(bar).collect() }
    });
    let series: Vec<BarSeries> = series.collect();
    let width = (categories.len() * series.len() * 14 + 160).clamp(720, 2000) as u32;
    GroupedBars {
        frame: Frame::new(title, "10 clients, 10 servers (Kuhn 2009)")
            .with_note("Lines: the least and the largest of ten runs.")
            .sized(width, 460),
        x_label: x_label.to_string(),
        categories,
        y: Axis::linear("throughput in MiB/s", Unit::Number),
        series,
        expected: "as printed".to_string(),
    }
}

fn rate(case: &Case, runs: &[RunResult]) -> Bar {
    let mean = |of: &dyn Fn(&RunResult) -> f64| runs.iter().map(of).sum::<f64>() / runs.len().max(1) as f64;
    let mib = mean(&|run| run.bytes as f64) / f64::from(1 << 20);
    let each = || runs.iter().map(|run| run.bytes as f64 / f64::from(1 << 20) / (run.nanos as f64 / 1e9));
    let range = (runs.len() > 1).then(|| (each().fold(f64::INFINITY, f64::min), each().fold(0.0, f64::max)));
    Bar { value: mib / mean(&|run| run.nanos as f64 / 1e9), range, expected: Some(mib / case.printed_seconds()), ..Bar::default() }
}

/// The traced application: a bar for each table.
fn times(traced: &[Traced]) -> GroupedBars {
    let bars = traced.iter().map(|(_, simulated, printed)| Some(Bar { value: *simulated, expected: Some(*printed), ..Bar::default() }));
    GroupedBars {
        frame: Frame::new("Figure 6.12: partdiff-par, the traced application", "5 clients, 5 servers (Kuhn 2009, Tables 6.1 to 6.5)")
            .sized(720, 420),
        x_label: "table and cache layer".to_string(),
        categories: traced.iter().map(|(name, ..)| name.clone()).collect(),
        y: Axis::linear("time", Unit::Seconds),
        series: vec![BarSeries { name: "time".to_string(), fill: categorical(0), bars: bars.collect() }],
        expected: "as printed".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use weft_piosim::thesis::cases;

    use super::*;

    #[test]
    fn each_figure_has_its_layers_and_what_is_printed() {
        let all: Vec<Case> = cases("C.2.3").into_iter().chain(cases("C.3.1")).collect();
        let runs: Vec<Vec<RunResult>> =
            all.iter().map(|case| vec![RunResult { nanos: (case.printed_seconds() * 1e9) as u64, events: 1, bytes: 1000 << 20 }]).collect();
        let ran: Vec<Ran<'_>> = all.iter().zip(&runs).map(|(case, runs)| (case, runs.as_slice())).collect();
        let folder = tempfile::tempdir().expect("a directory");
        let files = write(folder.path(), &ran, &[("6.1 none".to_string(), 8.0, 8.04)]).expect("written");
        assert_eq!(files, ["figure-6.5.svg", "figure-6.6.svg", "figure-6.8.svg", "figure-6.9.svg", "figure-6.10.svg", "figure-6.12.svg"]);
        let of_section: Vec<&Ran<'_>> = ran.iter().filter(|(case, _)| case.table() == "C.2.3").collect();
        let chart = rates("t", &of_section, "x", &|case| format!("{} {}", case.access().name(), case.block_bytes()));
        assert_eq!((chart.categories.len(), chart.series.len()), (6, 4));
        for bar in chart.series.iter().flat_map(|series| &series.bars) {
            let bar = bar.expect("every layer was tested");
            assert!((bar.value / bar.expected.expect("printed") - 1.0).abs() < 1e-6);
        }
        let svg = std::fs::read_to_string(folder.path().join("figure-6.12.svg")).expect("there");
        assert!(svg.contains("as printed"), "{svg}");
    }
}
