//! Bars side by side: in each category one for each series, with a range and a point beside what
//! was found, where they are known.

use crate::axis::{Axis, Scale};
use crate::bars::plain;
use crate::frame::{Canvas, Frame, Key, Room};
use crate::palette::Fill;
use crate::svg::{Anchor, shortened, text_width};
use crate::table::Table;

/// A bar.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bar {
    /// Its height.
    pub value: f64,
    /// From the least to the largest of what the value is the middle of.
    pub range: Option<(f64, f64)>,
    /// What somebody else found there.
    pub expected: Option<f64>,
    /// Between these half of everything lies: then it is a box from one to the other with a line at
    /// the value, and no bar.
    pub quartiles: Option<(f64, f64)>,
}

/// The bars of one colour.
#[derive(Clone, Debug, PartialEq)]
pub struct BarSeries {
    /// Its name in the legend.
    pub name: String,
    /// Its look.
    pub fill: Fill,
    /// One for each category; `None`: nothing is known there.
    pub bars: Vec<Option<Bar>>,
}

/// A chart of bars side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupedBars {
    /// Title and size.
    pub frame: Frame,
    /// The name of what the categories are.
    pub x_label: String,
    /// From left to right.
    pub categories: Vec<String>,
    /// The axis of the values.
    pub y: Axis,
    /// From left to right within a category.
    pub series: Vec<BarSeries>,
    /// What [`Bar::expected`] is, in the legend.
    pub expected: String,
}

const EXPECTED: u32 = 0x202020;

impl GroupedBars {
    /// The picture.
    pub fn svg(&self) -> String {
        let widest = self.categories.iter().map(|name| text_width(name)).fold(0.0, f64::max);
        let band = (f64::from(self.frame.width) - 100.0) / self.categories.len().max(1) as f64;
        let upright = widest + 6.0 > band;
        let labels = if upright { widest.min(150.0) + 10.0 } else { 20.0 };
        let mut canvas = Canvas::new(&self.frame, Room { left: 76.0, right: 20.0, bottom: labels + 26.0 }, &self.legend());
        let values = self.bars().flat_map(|bar| [Some(bar.value), bar.range.map(|range| range.1), bar.expected]).flatten();
        let scale = self.y.scale(values, (canvas.bottom, canvas.top + 10.0), 6);
        canvas.left_axis(&self.y, &scale);
        let band = canvas.width() / self.categories.len().max(1) as f64;
        for (category, name) in self.categories.iter().enumerate() {
            let left = canvas.left + band * category as f64;
            let middle = left + band / 2.0;
            let width = band * 0.86 / self.series.len().max(1) as f64;
            for (number, series) in self.series.iter().enumerate() {
                if let Some(bar) = series.bars.get(category).copied().flatten() {
                    let at = left + band * 0.07 + width * number as f64;
                    self.bar(&mut canvas, &scale, (at, width), series, &bar, name);
                }
            }
            match upright {
                true => canvas.svg.text_up((middle + 4.0, canvas.bottom + 8.0), Anchor::End, "", &shortened(name, 150.0)),
                false => canvas.svg.text((middle, canvas.bottom + 18.0), Anchor::Middle, "", name),
            }
        }
        canvas.svg.line((canvas.left, canvas.bottom), (canvas.right, canvas.bottom), "axis");
        let middle = (canvas.left + canvas.right) / 2.0;
        canvas.svg.text((middle, canvas.bottom + labels + 14.0), Anchor::Middle, "", &self.x_label);
        canvas.finish()
    }

    /// The same as a table: a line for each bar.
    pub fn table(&self) -> Table {
        let mut table =
            Table::new(&self.frame.title, [self.x_label.as_str(), "", self.y.label.as_str(), "least", "largest", self.expected.as_str()]);
        for (category, name) in self.categories.iter().enumerate() {
            for series in &self.series {
                let Some(bar) = series.bars.get(category).copied().flatten() else { continue };
                let number = |value: Option<f64>| value.map_or(String::new(), |value| plain(self.y.unit, value));
                let (least, largest) = (bar.range.map(|range| range.0), bar.range.map(|range| range.1));
                table.row([
                    name.clone(),
                    series.name.clone(),
                    number(Some(bar.value)),
                    number(least),
                    number(largest),
                    number(bar.expected),
                ]);
            }
        }
        table
    }

    fn bars(&self) -> impl Iterator<Item = &Bar> {
        self.series.iter().flat_map(|series| series.bars.iter().flatten())
    }

    fn legend(&self) -> Vec<(Key, &str)> {
        let named = self.series.iter().filter(|series| !series.name.is_empty());
        let series = named.map(|series| (Key::Box(series.fill), series.name.as_str()));
        let expected = self.bars().any(|bar| bar.expected.is_some()).then_some((Key::Dot(EXPECTED), self.expected.as_str()));
        series.chain(expected).collect()
    }

    fn bar(&self, canvas: &mut Canvas, scale: &Scale, (left, width): (f64, f64), series: &BarSeries, bar: &Bar, category: &str) {
        let text = |value: f64| self.y.unit.format(value);
        let mut title = format!("{category}, {}: {}", series.name, text(bar.value));
        if let Some((least, largest)) = bar.range {
            title += &format!(" ({} to {})", text(least), text(largest));
        }
        if let Some(expected) = bar.expected {
            title += &format!("; {}: {}", self.expected, text(expected));
        }
        let middle = left + width / 2.0;
        if let Some((low, high)) = bar.quartiles
            && let (Some(bottom), Some(top)) = (scale.pixel(low), scale.pixel(high))
        {
            title += &format!("; half of them from {} to {}", text(low), text(high));
            canvas.svg.rect((left, top), ((width - 1.0).max(1.0), (bottom - top).max(1.0)), series.fill, &title);
        } else if let Some(top) = scale.pixel(bar.value).filter(|_| bar.value > 0.0) {
            canvas.svg.rect((left, top), ((width - 1.0).max(1.0), canvas.bottom - top), series.fill, &title);
        }
        if let Some((least, largest)) = bar.range
            && let (Some(low), Some(high)) = (scale.pixel(least), scale.pixel(largest))
        {
            let cap = (width / 4.0).min(5.0);
            canvas.svg.line((middle, low), (middle, high), "axis");
            canvas.svg.line((middle - cap, low), (middle + cap, low), "axis");
            canvas.svg.line((middle - cap, high), (middle + cap, high), "axis");
        }
        if let Some(at) = scale.pixel(bar.value).filter(|_| bar.quartiles.is_some()) {
            canvas.svg.line((left, at), (left + (width - 1.0).max(1.0), at), "axis");
        }
        if let Some(y) = bar.expected.and_then(|expected| scale.pixel(expected)) {
            canvas.svg.circle((middle, y), 2.5, EXPECTED, &title);
        }
    }
}
