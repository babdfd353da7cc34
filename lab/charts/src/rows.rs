//! Horizontal bars, one row each, cut into parts: where the time goes.

use crate::axis::Axis;
use crate::bars::{Series, plain};
use crate::frame::{Canvas, Frame, Key, Room};
use crate::svg::{Anchor, shortened, text_width};
use crate::table::Table;

/// Rows of stacked bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Title and size; the height grows with the rows if it is too small.
    pub frame: Frame,
    /// Names of the rows, from above.
    pub rows: Vec<String>,
    /// The axis below.
    pub x: Axis,
    /// Parts from left to right, one value for each row.
    pub parts: Vec<Series>,
}

/// Pixels of a row.
const ROW: f64 = 30.0;

impl Rows {
    /// The picture.
    pub fn svg(&self) -> String {
        let widest = self.rows.iter().map(|name| text_width(name)).fold(40.0, f64::max).min(260.0);
        let legend: Vec<(Key, &str)> = self.parts.iter().map(|part| (Key::Box(part.fill), part.name.as_str())).collect();
        let needed = 150 + (self.rows.len() as f64 * ROW) as u32 + 18 * (self.parts.len() as u32 / 6);
        let frame = Frame { height: self.frame.height.max(needed), ..self.frame.clone() };
        let mut canvas = Canvas::new(&frame, Room { left: widest + 24.0, right: 30.0, bottom: 50.0 }, &legend);
        let value = |part: &Series, row: usize| part.values.get(row).copied().filter(|value| value.is_finite()).unwrap_or(0.0);
        let totals = (0..self.rows.len()).map(|row| self.parts.iter().map(|part| value(part, row)).sum::<f64>());
        let scale = self.x.scale(totals, (canvas.left, canvas.right), 8);
        canvas.bottom_axis(&self.x, &scale);
        let band = canvas.height() / self.rows.len().max(1) as f64;
        for (row, name) in self.rows.iter().enumerate() {
            let top = canvas.top + band * row as f64 + band * 0.12;
            let height = band * 0.76;
            let left = canvas.left;
            canvas.svg.text((left - 8.0, top + height / 2.0 + 4.0), Anchor::End, "", &shortened(name, widest));
            let mut before = 0.0;
            for part in &self.parts {
                let share = value(part, row);
                let (Some(from), Some(to)) = (scale.pixel(before), scale.pixel(before + share)) else { continue };
                before += share;
                if share <= 0.0 {
                    continue;
                }
                let text = self.x.unit.format(share);
                canvas.svg.rect((from, top), (to - from, height), part.fill, &format!("{name}, {}: {text}", part.name));
                if text_width(&text) + 6.0 < to - from {
                    canvas.svg.text_over(((from + to) / 2.0, top + height / 2.0 + 4.0), part.fill, &text);
                }
            }
        }
        canvas.finish()
    }

    /// The same as a table.
    pub fn table(&self) -> Table {
        let mut table = Table::new(&self.frame.title, [String::new()].into_iter().chain(self.parts.iter().map(|part| part.name.clone())));
        for (row, name) in self.rows.iter().enumerate() {
            let values = self.parts.iter().map(|part| plain(self.x.unit, part.values.get(row).copied().unwrap_or(0.0)));
            table.row([name.clone()].into_iter().chain(values));
        }
        table
    }
}
