//! Bars over categories, stacked by series, with a line on a second axis.

use crate::axis::{Axis, Scale, Unit};
use crate::frame::{Canvas, Frame, Key, Room};
use crate::palette::Fill;
use crate::svg::{Anchor, shortened, text_width};
use crate::table::Table;

/// One part of all bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its look.
    pub fill: Fill,
    /// One value for each category.
    pub values: Vec<f64>,
}

/// A line over the bars with an axis of its own at the right.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlay {
    /// Its name in the legend.
    pub name: String,
    /// The right axis.
    pub axis: Axis,
    /// `0xRRGGBB`.
    pub color: u32,
    /// One value for each category.
    pub values: Vec<f64>,
}

/// A bar chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Title and size.
    pub frame: Frame,
    /// The name of what the categories are.
    pub x_label: String,
    /// The categories, from left to right.
    pub categories: Vec<String>,
    /// The left axis.
    pub y: Axis,
    /// Stacked from below.
    pub series: Vec<Series>,
    /// A line on a second axis.
    pub overlay: Option<Overlay>,
    /// The sum on top of each bar that is not empty.
    pub totals: bool,
    /// Categories from this one on are shaded, with a text: a tail.
    pub shaded: Option<(usize, String)>,
}

impl Bars {
    /// The picture.
    pub fn svg(&self) -> String {
        self.draw(false)
    }

    /// The picture with an area over each category that a page can make a button: class `target`,
    /// attribute `data-category`.
    pub fn svg_with_targets(&self) -> String {
        self.draw(true)
    }

    fn draw(&self, targets: bool) -> String {
        let widest = self.categories.iter().map(|name| text_width(name)).fold(0.0, f64::max);
        let band = (f64::from(self.frame.width) - 150.0) / self.categories.len().max(1) as f64;
        let upright = widest + 6.0 > band;
        let labels = if upright { widest.min(110.0) + 10.0 } else { 20.0 };
        let right = if self.overlay.is_some() { 72.0 } else { 20.0 };
        let mut canvas = Canvas::new(&self.frame, Room { left: 76.0, right, bottom: labels + 26.0 }, &self.legend());
        // Room for the totals above the highest bar.
        let headroom = if self.totals { 34.0 } else { 0.0 };
        let pixels = (canvas.bottom, (canvas.top + headroom).min(canvas.bottom - 10.0));
        let totals: Vec<f64> = (0..self.categories.len()).map(|category| self.total(category)).collect();
        let scale = self.y.scale(totals.iter().copied(), pixels, 6);
        canvas.left_axis(&self.y, &scale);
        let band = canvas.width() / self.categories.len().max(1) as f64;
        if let Some((first, text)) = &self.shaded {
            let x = canvas.left + band * *first as f64;
            canvas.svg.area((x, canvas.top), (canvas.right - x, canvas.height()), "band", text);
            canvas.svg.text((canvas.right - 4.0, canvas.top + 12.0), Anchor::End, "small", text);
        }
        for (category, name) in self.categories.iter().enumerate() {
            let middle = canvas.left + band * (category as f64 + 0.5);
            self.bar(&mut canvas, &scale, category, (middle, band));
            match upright {
                true => canvas.svg.text_up((middle + 4.0, canvas.bottom + 8.0), Anchor::End, "", &shortened(name, 110.0)),
                false => canvas.svg.text((middle, canvas.bottom + 18.0), Anchor::Middle, "", name),
            }
        }
        canvas.svg.line((canvas.left, canvas.bottom), (canvas.right, canvas.bottom), "axis");
        let middle = (canvas.left + canvas.right) / 2.0;
        canvas.svg.text((middle, canvas.bottom + labels + 14.0), Anchor::Middle, "", &self.x_label);
        self.draw_overlay(&mut canvas, pixels, band);
        for (category, total) in totals.iter().enumerate() {
            let middle = canvas.left + band * (category as f64 + 0.5);
            self.total_text(&mut canvas, &scale, (middle, band), *total);
        }
        for (category, name) in self.categories.iter().enumerate().filter(|_| targets) {
            let x = canvas.left + band * category as f64;
            let text = format!("{name}: {}", self.y.unit.format(totals[category]));
            canvas.svg.target((x, canvas.top), (band, canvas.bottom - canvas.top), category, &text);
        }
        canvas.finish()
    }

    /// The same as a table.
    pub fn table(&self) -> Table {
        let overlay = self.overlay.as_ref();
        let names = self.series.iter().map(|series| series.name.clone());
        let mut table = Table::new(
            &self.frame.title,
            [self.x_label.clone()].into_iter().chain(names).chain(overlay.map(|overlay| overlay.name.clone())),
        );
        for (category, name) in self.categories.iter().enumerate() {
            let values = self.series.iter().map(|series| plain(self.y.unit, at(&series.values, category)));
            let line = overlay.map(|overlay| plain(overlay.axis.unit, at(&overlay.values, category)));
            table.row([name.clone()].into_iter().chain(values).chain(line));
        }
        table
    }

    fn legend(&self) -> Vec<(Key, &str)> {
        let bars = self.series.iter().map(|series| (Key::Box(series.fill), series.name.as_str()));
        bars.chain(self.overlay.as_ref().map(|overlay| (Key::Line(overlay.color, ""), overlay.name.as_str()))).collect()
    }

    fn total(&self, category: usize) -> f64 {
        self.series.iter().map(|series| at(&series.values, category)).sum()
    }

    fn bar(&self, canvas: &mut Canvas, scale: &Scale, category: usize, (middle, band): (f64, f64)) {
        let width = (band * 0.8).max(1.0);
        let mut below = 0.0;
        for series in &self.series {
            let value = at(&series.values, category);
            // On a logarithmic axis the lowest part begins at the axis.
            let bottom = scale.pixel(below).unwrap_or(canvas.bottom);
            below += value;
            if let Some(top) = scale.pixel(below).filter(|_| value > 0.0) {
                let title = format!("{}, {}: {}", self.categories[category], series.name, self.y.unit.format(value));
                canvas.svg.rect((middle - width / 2.0, top), (width, bottom - top), series.fill, &title);
            }
        }
    }

    /// The sum over a bar, in front of what is drawn behind it.
    fn total_text(&self, canvas: &mut Canvas, scale: &Scale, (middle, band): (f64, f64), total: f64) {
        if let Some(top) = scale.pixel(total).filter(|_| self.totals && total > 0.0) {
            let text = self.y.unit.format(total);
            match text_width(&text) > band {
                true => canvas.svg.text_up((middle + 4.0, top - 4.0), Anchor::Start, "small halo", &text),
                false => canvas.svg.text((middle, top - 4.0), Anchor::Middle, "small halo", &text),
            }
        }
    }

    fn draw_overlay(&self, canvas: &mut Canvas, pixels: (f64, f64), band: f64) {
        let Some(overlay) = &self.overlay else { return };
        let scale = overlay.axis.scale(overlay.values.iter().copied(), pixels, 6);
        canvas.right_axis(&overlay.axis, &scale, f64::from(self.frame.width));
        let point = |(category, value): (usize, &f64)| Some((canvas.left + band * (category as f64 + 0.5), scale.pixel(*value)?));
        let points: Vec<(f64, f64)> = overlay.values.iter().enumerate().filter_map(point).collect();
        canvas.svg.polyline(&points, overlay.color, 2.0, "", &overlay.name);
        points.iter().for_each(|point| canvas.svg.circle(*point, 2.0, overlay.color, ""));
    }
}

fn at(values: &[f64], index: usize) -> f64 {
    values.get(index).copied().filter(|value| value.is_finite()).unwrap_or(0.0)
}

/// A number for a table: not rounded to three digits as on axes.
pub(crate) fn plain(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Share => format!("{:.3} %", value * 100.0),
        _ if value == value.trunc() && value.abs() < 1e15 => format!("{value:.0}"),
        _ => {
            let text = format!("{value:.9}");
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
    }
}
