//! Many lanes with many thousands of blocks: runs one above another on one time axis. Unlike
//! [`crate::Timeline`], what lies within half a pixel is drawn as one, in the colour of the class
//! with most time in it, and each lane is one shape for each class: a picture of a million blocks
//! stays small.

use std::fmt::Write;

use crate::axis::{Axis, Scale};
use crate::bars::plain;
use crate::frame::{Canvas, Frame, Key, Room};
use crate::lines::Mark;
use crate::palette::Fill;
use crate::svg::{Anchor, number, shortened};
use crate::table::Table;
use crate::timeline::keep_used;

/// A block of a lane, in the unit of the axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Strip {
    /// Begin.
    pub from: f64,
    /// End.
    pub to: f64,
    /// Position in [`Strips::classes`].
    pub class: usize,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct StripLane {
    /// Its name; rows without one belong to the one above.
    pub name: String,
    /// Drawn half as high.
    pub is_minor: bool,
    /// What is on it, in any order; blocks may overlap.
    pub strips: Vec<Strip>,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Panel {
    /// Its heading.
    pub title: String,
    /// From above.
    pub lanes: Vec<StripLane>,
    /// Vertical lines through its lanes.
    pub marks: Vec<Mark>,
}

/// Runs one above another.
#[derive(Clone, Debug, PartialEq)]
pub struct Strips {
    /// Title and width; the height follows from the lanes.
    pub frame: Frame,
    /// Time, the same for all panels.
    pub x: Axis,
    /// Kinds of blocks, for the legend.
    pub classes: Vec<(String, Fill)>,
    /// From above.
    pub panels: Vec<Panel>,
}

/// Pixels of a lane, of a minor lane, of a panel's heading.
const LANE: f64 = 15.0;
const MINOR: f64 = 7.0;
const HEADING: f64 = 24.0;
/// Pixels that are drawn as one.
const COLUMN: f64 = 0.5;

impl Strips {
    /// The picture.
    pub fn svg(&self) -> String {
        let legend: Vec<(Key, &str)> = self.classes.iter().map(|(name, fill)| (Key::Box(*fill), name.as_str())).collect();
        let lanes = || self.panels.iter().flat_map(|panel| &panel.lanes);
        let inside: f64 = lanes().map(height_of).sum::<f64>() + HEADING * self.panels.len() as f64;
        // Title, legend and axis around it; the frame makes room if that is too little.
        let frame = Frame { height: (inside + 150.0) as u32, ..self.frame.clone() };
        let mut canvas = Canvas::new(&frame, Room { left: 104.0, right: 24.0, bottom: 50.0 }, &legend);
        let ends = lanes().flat_map(|lane| &lane.strips).map(|strip| strip.to);
        let x = self.x.scale(ends, (canvas.left, canvas.right), 10);
        let mut y = canvas.top;
        for panel in &self.panels {
            canvas.svg.text((12.0, y + 14.0), Anchor::Start, "sub", &shortened(&panel.title, canvas.right - 12.0));
            y += HEADING - 4.0;
            let top = y;
            for (number, lane) in panel.lanes.iter().enumerate() {
                // The name stands beside all rows that belong to it.
                let rows = panel.lanes[number + 1..].iter().take_while(|next| next.name.is_empty());
                let rows_high = height_of(lane) + rows.map(height_of).sum::<f64>();
                if !lane.name.is_empty() {
                    let left = canvas.left;
                    canvas.svg.text((left - 6.0, y + rows_high / 2.0 + 4.0), Anchor::End, "", &shortened(&lane.name, left - 14.0));
                    canvas.svg.line((left, y), (canvas.right, y), "grid");
                }
                self.lane(&mut canvas, lane, &x, y);
                y += height_of(lane);
            }
            for mark in &panel.marks {
                let Some(at) = x.pixel(mark.x) else { continue };
                canvas.svg.line((at, top - 2.0), (at, y), "mark");
                canvas.svg.text((at + 2.0, top - 2.0), Anchor::Start, "small", &mark.text);
            }
            y += 4.0;
        }
        canvas.bottom = y + 4.0;
        canvas.bottom_axis(&self.x, &x);
        canvas.svg.set_height(y + 60.0 + if self.frame.note.is_empty() { 0.0 } else { 18.0 });
        canvas.finish()
    }

    /// Leaves classes that no block has out of the legend.
    pub fn keep_used_classes(&mut self) {
        let lanes = self.panels.iter_mut().flat_map(|panel| &mut panel.lanes);
        keep_used(&mut self.classes, lanes.flat_map(|lane| &mut lane.strips).map(|strip| &mut strip.class).collect());
    }

    /// The same as a table.
    pub fn table(&self) -> Table {
        let mut table = Table::new(&self.frame.title, ["run", "lane", "class", "from", "to"]);
        for panel in &self.panels {
            let mut name = "";
            for lane in &panel.lanes {
                name = if lane.name.is_empty() { name } else { &lane.name };
                for strip in &lane.strips {
                    let class = self.classes.get(strip.class).map_or("", |(name, _)| name.as_str());
                    let (from, to) = (plain(self.x.unit, strip.from), plain(self.x.unit, strip.to));
                    table.row([panel.title.clone(), name.to_string(), class.to_string(), from, to]);
                }
            }
        }
        table
    }

    fn lane(&self, canvas: &mut Canvas, lane: &StripLane, x: &Scale, y: f64) {
        let (top, high) = (y + 1.0, height_of(lane) - 2.0);
        let columns = columns(lane, x, (canvas.left, canvas.right), self.classes.len());
        for (class, (name, fill)) in self.classes.iter().enumerate() {
            let mut path = String::new();
            let mut from = 0;
            while from < columns.len() {
                let run = columns[from..].iter().take_while(|column| **column == columns[from]).count();
                if columns[from] == Some(class) {
                    let (left, wide) = (canvas.left + from as f64 * COLUMN, run as f64 * COLUMN);
                    let _ = write!(path, "M{} {}h{}v{}h-{}z", number(left), number(top), number(wide), number(high), number(wide));
                }
                from += run;
            }
            if !path.is_empty() {
                canvas.svg.path(&path, *fill, name);
            }
        }
    }
}

fn height_of(lane: &StripLane) -> f64 {
    if lane.is_minor { MINOR } else { LANE }
}

/// For each column of the plot the class with most time in it; `None` where nothing is.
fn columns(lane: &StripLane, x: &Scale, (left, right): (f64, f64), classes: usize) -> Vec<Option<usize>> {
    let count = ((right - left) / COLUMN).ceil() as usize;
    let mut time = vec![0.0f32; count * classes];
    for strip in lane.strips.iter().filter(|strip| strip.class < classes) {
        let (Some(from), Some(to)) = (x.pixel(strip.from), x.pixel(strip.to)) else { continue };
        let (from, to) = ((from - left) / COLUMN, (to - left) / COLUMN);
        let last = (to.ceil() as usize).max(from as usize + 1).min(count);
        for column in (from as usize).min(count)..last {
            let share = (to.min(column as f64 + 1.0) - from.max(column as f64)).max(1e-6);
            time[column * classes + strip.class] += share as f32;
        }
    }
    let dominant = |times: &[f32]| {
        let most = times.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
        (*most.1 > 0.0).then_some(most.0)
    };
    if classes == 0 { vec![None; count] } else { time.chunks(classes).map(dominant).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axis::Unit;
    use crate::palette::{Pattern, seek};

    fn chart(strips: Vec<Strip>) -> Strips {
        let lane = StripLane { name: "server0".into(), is_minor: false, strips };
        let minor = StripLane { is_minor: true, ..StripLane::default() };
        Strips {
            frame: Frame::new("Disks", "two classes"),
            x: Axis::linear("time", Unit::Seconds).ranging(0.0, 10.0),
            classes: vec![("no seek".into(), seek(1)), ("far seek".into(), seek(3))],
            panels: vec![Panel { title: "none <&>".into(), lanes: vec![lane, minor], marks: vec![Mark { x: 5.0, text: "#1".into() }] }],
        }
    }

    #[test]
    fn a_hundred_thousand_blocks_are_a_small_picture() {
        let strips = (0..100_000).map(|number| Strip {
            from: f64::from(number) / 1e4,
            to: f64::from(number) / 1e4 + 5e-5,
            class: number as usize % 2,
        });
        let svg = chart(strips.collect()).svg();
        assert!(svg.len() < 100_000 && svg.contains("none &lt;&amp;&gt;") && !svg.contains("NaN"), "{} bytes", svg.len());
    }

    #[test]
    fn the_class_with_most_time_wins_a_column_and_the_shortest_block_is_seen() {
        let strips = vec![
            Strip { from: 1.0, to: 1.004, class: 0 },
            Strip { from: 1.0, to: 1.003, class: 1 },
            Strip { from: 7.0, to: 7.0, class: 1 },
        ];
        let chart = chart(strips);
        let scale = chart.x.scale(std::iter::empty(), (0.0, 1000.0), 10);
        let columns = columns(&chart.panels[0].lanes[0], &scale, (0.0, 1000.0), 2);
        let used: Vec<(usize, usize)> = columns.iter().enumerate().filter_map(|(at, class)| Some((at, (*class)?))).collect();
        assert_eq!(used, [(200, 0), (1400, 1)]);
        let svg = chart.svg();
        assert_eq!(svg.matches("<path").count() - svg.matches("<pattern").count(), 2, "one shape for each class, and the hatch: {svg}");
        assert_eq!(seek(3).pattern, Pattern::Hatch);
        assert_eq!(chart.table().csv().lines().count(), 4);
    }
}
