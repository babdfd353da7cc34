//! Lanes over time: who did what when, with arrows for requests.

use crate::axis::Axis;
use crate::bars::plain;
use crate::frame::{Canvas, Frame, Key, Room};
use crate::lines::Mark;
use crate::palette::Fill;
use crate::svg::{Anchor, shortened, text_width};
use crate::table::Table;

/// Something on a lane.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// In the unit of the axis.
    pub from: f64,
    /// In the unit of the axis.
    pub to: f64,
    /// Position in [`Timeline::classes`].
    pub class: usize,
    /// Shown if there is room, and when the pointer rests on it.
    pub text: String,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Lane {
    /// Lanes of one group stand under one heading.
    pub group: String,
    /// Its name.
    pub name: String,
    /// What is on it; blocks of one lane should not overlap.
    pub blocks: Vec<Block>,
}

/// From a lane to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrow {
    /// Lane and time.
    pub from: (usize, f64),
    /// Lane and time.
    pub to: (usize, f64),
    /// For the pointer.
    pub text: String,
}

/// A chart of lanes.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Title and size; the height grows with the lanes if it is too small.
    pub frame: Frame,
    /// Time.
    pub x: Axis,
    /// Kinds of blocks, for the legend.
    pub classes: Vec<(String, Fill)>,
    /// From above.
    pub lanes: Vec<Lane>,
    /// Requests.
    pub arrows: Vec<Arrow>,
    /// Dashed lines through all lanes, for example iterations.
    pub marks: Vec<Mark>,
}

/// Pixels of a lane and of a heading.
const LANE: f64 = 20.0;
const HEADING: f64 = 18.0;

impl Timeline {
    /// The picture. Lanes of a group should stand together in the list.
    pub fn svg(&self) -> String {
        let widest = self.lanes.iter().map(|lane| text_width(&lane.name)).fold(60.0, f64::max).min(200.0);
        let legend: Vec<(Key, &str)> = self.classes.iter().map(|(name, fill)| (Key::Box(*fill), name.as_str())).collect();
        let headings = (0..self.lanes.len()).filter(|lane| self.begins_group(*lane)).count();
        let content = self.lanes.len() as f64 * LANE + headings as f64 * HEADING;
        let frame = Frame { height: self.frame.height.max(content as u32 + 160), ..self.frame.clone() };
        let mut canvas = Canvas::new(&frame, Room { left: widest + 28.0, right: 20.0, bottom: 50.0 }, &legend);
        let ends = self.lanes.iter().flat_map(|lane| &lane.blocks).flat_map(|block| [block.from, block.to]);
        let x = self.x.scale(ends, (canvas.left, canvas.right), 8);
        let stretch = ((canvas.height() - headings as f64 * HEADING) / self.lanes.len().max(1) as f64).min(2.0 * LANE);
        let mut y = canvas.top;
        let mut middles = Vec::new();
        for (number, lane) in self.lanes.iter().enumerate() {
            if self.begins_group(number) {
                let left = canvas.left;
                canvas.svg.text((12.0, y + 13.0), Anchor::Start, "sub", &shortened(&lane.group, left + 200.0));
                y += HEADING;
            }
            self.lane(&mut canvas, lane, &x, (y, stretch));
            middles.push(y + stretch / 2.0);
            y += stretch;
        }
        for mark in &self.marks {
            let Some(at) = x.pixel(mark.x) else { continue };
            let top = canvas.top;
            canvas.svg.line((at, top - 4.0), (at, y), "mark");
            canvas.svg.text((at + 3.0, top + 6.0), Anchor::Start, "small", &shortened(&mark.text, 120.0));
        }
        for arrow in &self.arrows {
            let point = |(lane, time): (usize, f64)| Some((x.pixel(time)?, *middles.get(lane)?));
            if let (Some(from), Some(to)) = (point(arrow.from), point(arrow.to)) {
                canvas.svg.arrow(from, to, 0x222222, &arrow.text);
            }
        }
        canvas.bottom = y + 4.0;
        canvas.bottom_axis(&self.x, &x);
        canvas.finish()
    }

    /// The same as a table, and what each class sums up to.
    pub fn table(&self) -> Table {
        let mut table = Table::new(&self.frame.title, ["group", "lane", "class", "from", "to", "text"]);
        for lane in &self.lanes {
            for block in &lane.blocks {
                let class = self.classes.get(block.class).map_or("", |(name, _)| name.as_str());
                let (from, to) = (plain(self.x.unit, block.from), plain(self.x.unit, block.to));
                table.row([lane.group.clone(), lane.name.clone(), class.to_string(), from, to, block.text.clone()]);
            }
        }
        table
    }

    /// Leaves classes that no block has out of the legend.
    pub fn keep_used_classes(&mut self) {
        keep_used(&mut self.classes, self.lanes.iter_mut().flat_map(|lane| &mut lane.blocks).map(|block| &mut block.class).collect());
    }

    fn begins_group(&self, lane: usize) -> bool {
        let group = |lane: usize| self.lanes.get(lane).map(|lane| lane.group.as_str());
        !self.lanes[lane].group.is_empty() && (lane == 0 || group(lane - 1) != group(lane))
    }

    fn lane(&self, canvas: &mut Canvas, lane: &Lane, x: &crate::axis::Scale, (y, height): (f64, f64)) {
        let (left, right) = (canvas.left, canvas.right);
        canvas.svg.text((left - 8.0, y + height / 2.0 + 4.0), Anchor::End, "", &shortened(&lane.name, left - 26.0));
        canvas.svg.line((left, y + height), (right, y + height), "grid");
        let (top, height) = (y + height * 0.1, height * 0.8);
        for block in &lane.blocks {
            let (Some(from), Some(to)) = (x.pixel(block.from), x.pixel(block.to)) else { continue };
            let (name, fill) = self.classes.get(block.class).map_or(("", Fill::plain(0x666666)), |(name, fill)| (name.as_str(), *fill));
            let length = self.x.unit.format(block.to - block.from);
            // What is shorter than a pixel is still seen.
            canvas.svg.rect((from, top), ((to - from).max(0.8), height), fill, format!("{} {name} {length}", block.text).trim_start());
            if !block.text.is_empty() && text_width(&block.text) + 6.0 < to - from {
                canvas.svg.text_over(((from + to) / 2.0, top + height / 2.0 + 4.0), fill, &block.text);
            }
        }
    }
}

/// Leaves classes out that nothing is of.
pub(crate) fn keep_used(classes: &mut Vec<(String, Fill)>, of: Vec<&mut usize>) {
    let used: Vec<usize> = (0..classes.len()).filter(|class| of.iter().any(|other| **other == *class)).collect();
    for class in of {
        *class = used.binary_search(class).unwrap_or(0);
    }
    *classes = used.into_iter().map(|class| classes[class].clone()).collect();
}
