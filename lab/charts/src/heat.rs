//! Heat maps: rows over time, the shade says how much.

use crate::axis::{Axis, Unit};
use crate::bars::plain;
use crate::frame::{Canvas, Frame, Room};
use crate::palette::{Fill, sequential};
use crate::svg::{Anchor, shortened, text_width};
use crate::table::Table;

/// A heat map.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMap {
    /// Title and size.
    pub frame: Frame,
    /// The axis below; its range is that of the columns together.
    pub x: Axis,
    /// Names of the rows, from above.
    pub rows: Vec<String>,
    /// One list for each row, from left to right; `None`: nothing is known, which is drawn hatched
    /// and not as zero.
    pub values: Vec<Vec<Option<f64>>>,
    /// What a value is.
    pub label: String,
    /// Its unit.
    pub unit: Unit,
    /// Shades by the logarithm of the value.
    pub log: bool,
}

impl HeatMap {
    /// The picture.
    pub fn svg(&self) -> String {
        let widest = self.rows.iter().map(|name| text_width(name)).fold(40.0, f64::max).min(200.0);
        let mut canvas = Canvas::new(&self.frame, Room { left: widest + 24.0, right: 110.0, bottom: 50.0 }, &[]);
        let range = self.range();
        let x = self.x.scale(std::iter::empty(), (canvas.left, canvas.right), 8);
        let band = canvas.height() / self.rows.len().max(1) as f64;
        for (row, name) in self.rows.iter().enumerate() {
            let top = canvas.top + band * row as f64;
            let left = canvas.left;
            canvas.svg.text((left - 8.0, top + band / 2.0 + 4.0), Anchor::End, "", &shortened(name, widest));
            let values = self.values.get(row).map_or(&[][..], Vec::as_slice);
            let width = canvas.width() / values.len().max(1) as f64;
            for (column, value) in values.iter().enumerate() {
                let (fill, text) = match value.filter(|value| value.is_finite()) {
                    Some(value) => (Fill::plain(sequential(self.share(value, range))), self.unit.format(value)),
                    None => (UNKNOWN, "not known".to_string()),
                };
                let at = (left + width * column as f64, top + 0.5);
                // A little wider, so that no seam shows between cells.
                canvas.svg.rect(at, (width + 0.3, band - 1.0), fill, &format!("{name}: {text}"));
            }
        }
        canvas.bottom_axis(&self.x, &x);
        self.color_bar(&mut canvas, range);
        canvas.finish()
    }

    /// The same as a table.
    pub fn table(&self) -> Table {
        let columns = self.values.iter().map(Vec::len).max().unwrap_or(0);
        let (from, to) = self.x.range.unwrap_or((0.0, columns as f64));
        let begin = |column: usize| from + (to - from) * column as f64 / columns.max(1) as f64;
        let names = (0..columns).map(|column| format!("from {}", self.x.unit.format(begin(column))));
        let mut table = Table::new(&self.frame.title, [self.label.clone()].into_iter().chain(names));
        for (row, name) in self.rows.iter().enumerate() {
            let values = self.values.get(row).map_or(&[][..], Vec::as_slice);
            let cells = values.iter().map(|value| value.map_or_else(String::new, |value| plain(self.unit, value)));
            table.row([name.clone()].into_iter().chain(cells));
        }
        table
    }

    /// Smallest and largest value that has a shade.
    fn range(&self) -> (f64, f64) {
        let values = self.values.iter().flatten().flatten().filter(|value| value.is_finite() && (!self.log || **value > 0.0));
        let (min, max) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| (min.min(*value), max.max(*value)));
        match (min <= max, self.log) {
            (false, _) => (0.0, 1.0),
            (true, true) => (min, max.max(min * 1.001)),
            (true, false) => (min.min(0.0), if max > min.min(0.0) { max } else { 1.0 }),
        }
    }

    fn share(&self, value: f64, (min, max): (f64, f64)) -> f64 {
        match self.log {
            true if value <= 0.0 => 0.0,
            true => (value / min).ln() / (max / min).ln(),
            false => (value - min) / (max - min),
        }
    }

    fn color_bar(&self, canvas: &mut Canvas, range: (f64, f64)) {
        const STEPS: usize = 24;
        let (left, top, height) = (canvas.right + 16.0, canvas.top, canvas.height());
        let step = height / STEPS as f64;
        for number in 0..STEPS {
            let share = (number as f64 + 0.5) / STEPS as f64;
            let y = top + height - step * (number + 1) as f64;
            canvas.svg.rect((left, y), (14.0, step + 0.3), Fill::plain(sequential(share)), "");
        }
        for share in [0.0, 0.5, 1.0] {
            let value = match self.log {
                true => range.0 * (range.1 / range.0).powf(share),
                false => range.0 + (range.1 - range.0) * share,
            };
            let y = top + height * (1.0 - share) + if share == 1.0 { 10.0 } else { 4.0 - 4.0 * (1.0 - share) };
            canvas.svg.text((left + 18.0, y), Anchor::Start, "small", &self.unit.format(value));
        }
        canvas.svg.text((left, top - 6.0), Anchor::Start, "small", &shortened(&self.label, 110.0));
    }
}

/// Cells of which nothing is known.
const UNKNOWN: Fill = Fill { color: 0xDDDDDD, pattern: crate::Pattern::Hatch };
