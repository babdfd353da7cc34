//! Small stacked rows for the side of a page, without axes: a name, a bar cut into parts, perhaps
//! the sum behind it.

use crate::axis::Unit;
use crate::bars::{Series, plain};
use crate::frame::{Key, draw_legend};
use crate::svg::{Anchor, Svg, shortened, text_width};
use crate::table::Table;

/// Rows of parts side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct SmallRows {
    /// What it shows, for those who cannot see it.
    pub title: String,
    /// Pixels; the height follows from the rows.
    pub width: u32,
    /// Names, from above.
    pub rows: Vec<String>,
    /// Parts from left to right, one value for each row.
    pub parts: Vec<Series>,
    /// What the values are.
    pub unit: Unit,
    /// Every row is as long as there is room: its parts are shares. Otherwise all rows have one
    /// scale.
    pub shares: bool,
    /// The sum stands behind each bar.
    pub sums: bool,
    /// The parts are named above the rows.
    pub legend: bool,
}

/// Pixels of a bar, and from one to the next.
const BAR: f64 = 18.0;
const ROW: f64 = 23.0;
/// Pixels of a sum behind a bar.
const SUM: f64 = 62.0;

impl SmallRows {
    /// The picture.
    pub fn svg(&self) -> String {
        let width = f64::from(self.width.max(200));
        let mut svg = Svg::new(width, 0.0);
        let used = self.parts.iter().filter(|part| (0..self.rows.len()).any(|row| value(part, row) > 0.0));
        let legend: Vec<(Key, &str)> = used.map(|part| (Key::Box(part.fill), part.name.as_str())).collect();
        let top = if self.legend && !legend.is_empty() { draw_legend(&mut svg, &legend, -8.0, width) + 14.0 } else { 2.0 };
        let label = self.rows.iter().map(|name| text_width(name)).fold(30.0, f64::max).min(width * 0.3) + 12.0;
        let room = width - label - if self.sums { SUM } else { 8.0 };
        let sum = |row: usize| self.parts.iter().map(|part| value(part, row)).sum::<f64>();
        let largest = (0..self.rows.len()).map(sum).fold(0.0, f64::max);
        for (row, name) in self.rows.iter().enumerate() {
            let y = top + row as f64 * ROW;
            svg.text((label - 6.0, y + BAR - 5.0), Anchor::End, "", &shortened(name, label - 12.0));
            let whole = if self.shares { sum(row) } else { largest };
            let scale = if whole > 0.0 { room / whole } else { 0.0 };
            let mut x = label;
            for part in &self.parts {
                let wide = value(part, row) * scale;
                if wide <= 0.0 {
                    continue;
                }
                let share = Unit::Share.format(value(part, row) / sum(row));
                let number = if self.unit == Unit::Share { String::new() } else { format!("{}, ", self.unit.format(value(part, row))) };
                // A hair between the parts, and the smallest part is seen.
                svg.rect((x, y), ((wide - 0.5).max(0.4), BAR), part.fill, &format!("{name}, {}: {number}{share}", part.name));
                x += wide;
            }
            if self.sums {
                svg.text((x + 5.0, y + BAR - 5.0), Anchor::Start, "sub", &self.unit.format(sum(row)));
            }
        }
        svg.set_height(top + self.rows.len() as f64 * ROW);
        svg.finish(&self.title, "")
    }

    /// The same as a table.
    pub fn table(&self) -> Table {
        let mut table = Table::new(&self.title, [String::new()].into_iter().chain(self.parts.iter().map(|part| part.name.clone())));
        for (row, name) in self.rows.iter().enumerate() {
            table.row([name.clone()].into_iter().chain(self.parts.iter().map(|part| plain(self.unit, value(part, row)))));
        }
        table
    }
}

fn value(part: &Series, row: usize) -> f64 {
    part.values.get(row).copied().filter(|value| value.is_finite()).unwrap_or(0.0).max(0.0)
}
