//! A picture of results: lines over numbers, bars over words, or the numbers of one result beside
//! what somebody else printed.

use std::path::Path;

use anyhow::{Context, Result};
use weft_charts::{Axis, Bar, BarSeries, Frame, GroupedBars, Line, Lines, Style, Unit, categorical};

/// Of what was printed elsewhere.
const PRINTED: &str = "as printed";
const PRINTED_COLOR: u32 = 0x0020_2020;
/// Of the only line of a picture, where something else stands beside it.
const ALONE: &str = "Weft";

/// A picture of a sweep or of one result.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// What is the same in all of it, as the name of a file without its end.
    pub name: String,
    pub(super) chart: Chart,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Chart {
    /// Over numbers.
    Lines(Lines),
    /// Over words.
    Bars(GroupedBars),
}

/// A number of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// What it is of.
    pub label: String,
    /// What came out.
    pub found: f64,
    /// What is printed elsewhere.
    pub printed: Option<f64>,
}

impl Picture {
    /// A bar for each number.
    pub fn of_numbers(title: &str, subtitle: &str, unit: &str, numbers: &[Number]) -> Picture {
        let bar = |number: &Number| Some(Bar { value: number.found, expected: number.printed, ..Bar::default() });
        let series = BarSeries { name: String::new(), fill: categorical(0), bars: numbers.iter().map(bar).collect() };
        let chart = GroupedBars {
            frame: Frame::new(title, subtitle).sized(720, 420),
            x_label: String::new(),
            categories: numbers.iter().map(|number| number.label.clone()).collect(),
            y: Axis::linear(unit, Unit::Number),
            series: vec![series],
            expected: PRINTED.to_string(),
        };
        Picture { name: String::new(), chart: Chart::Bars(chart) }
    }

    /// The same with dots for what is printed elsewhere, by the numbers of the axis below; nothing
    /// where that has words.
    pub fn with_printed(mut self, printed: Vec<(f64, f64)>) -> Picture {
        if let Chart::Lines(lines) = &mut self.chart
            && !printed.is_empty()
        {
            let unnamed = lines.lines.iter_mut().filter(|line| line.name.is_empty() && line.style == Style::Line);
            unnamed.for_each(|line| line.name = ALONE.to_string());
            lines.lines.push(Line { name: PRINTED.to_string(), color: PRINTED_COLOR, style: Style::Dots, points: printed });
        }
        self
    }

    /// It as SVG.
    pub fn svg(&self) -> String {
        match &self.chart {
            Chart::Lines(lines) => lines.svg(),
            Chart::Bars(bars) => bars.svg(),
        }
    }
}

/// Writes a picture into a folder; the path of its file.
///
/// # Errors
/// It cannot be written.
pub fn write(folder: &Path, picture: &Picture) -> Result<String> {
    let path = folder.join(format!("{}.svg", picture.name));
    std::fs::write(&path, picture.svg()).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_stands_beside_what_came_out() {
        let number = |label: &str, printed| Number { label: label.to_string(), found: 2.0, printed };
        let bars = Picture::of_numbers("t", "s", "%", &[number("one", Some(1.5)), number("other", None)]);
        let svg = bars.clone().with_printed(vec![(1.0, 1.0)]).svg();
        assert_eq!((svg.matches("<circle").count(), svg.contains("as printed")), (2, true), "one in the legend: {svg}");
        let frame = || Frame::new("t", "s");
        let line = Line { name: String::new(), color: 1, style: Style::Line, points: vec![(1.0, 2.0), (2.0, 3.0)] };
        let lines = Lines {
            frame: frame(),
            x: Axis::linear("x", Unit::Count),
            y: Axis::linear("y", Unit::Count),
            lines: vec![line],
            marks: vec![],
        };
        let picture = Picture { name: "n".to_string(), chart: Chart::Lines(lines) };
        assert_eq!(picture.clone().with_printed(vec![]), picture);
        let svg = picture.clone().with_printed(vec![(1.0, 2.5)]).svg();
        assert!(svg.contains("as printed") && svg.contains("Weft") && !picture.svg().contains("Weft"), "{svg}");
    }
}
