//! What surrounds every chart: title, legend, axes, grid, footnote.

use crate::axis::{Axis, Scale};
use crate::palette::Fill;
use crate::svg::{Anchor, Svg, TEXT, shortened, text_width};

/// Title and size of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// What it shows, in a few words.
    pub title: String,
    /// Numbers and circumstances: how many, of which run.
    pub subtitle: String,
    /// Below the chart: how it was computed, what is missing. Empty: none.
    pub note: String,
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
}

impl Frame {
    /// 960 by 440 pixels.
    pub fn new(title: &str, subtitle: &str) -> Frame {
        Frame { title: title.to_string(), subtitle: subtitle.to_string(), note: String::new(), width: 960, height: 440 }
    }

    /// With a footnote.
    pub fn with_note(mut self, note: &str) -> Frame {
        self.note = note.to_string();
        self
    }

    /// With another size in pixels.
    pub fn sized(mut self, width: u32, height: u32) -> Frame {
        (self.width, self.height) = (width, height);
        self
    }
}

/// Where the area inside the axes lies in a picture, and what its horizontal axis means: what a
/// page needs to let a person choose there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plot {
    /// Pixels from the left edge of the picture.
    pub left: f64,
    /// Pixels from the left edge of the picture.
    pub right: f64,
    /// Pixels from the upper edge of the picture.
    pub top: f64,
    /// Pixels from the upper edge of the picture.
    pub bottom: f64,
    /// The value at `left`.
    pub from: f64,
    /// The value at `right`.
    pub to: f64,
    /// The axis is logarithmic.
    pub log: bool,
}

/// The shape of a legend's key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Key {
    Box(Fill),
    Line(u32, &'static str),
    Dot(u32),
}

/// Room around the plot for axes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

/// A frame that has been drawn, and the area inside it.
pub(crate) struct Canvas {
    pub(crate) svg: Svg,
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
    title: String,
    description: String,
}

/// Room above the first line of text, and beside the frame.
const MARGIN: f64 = 12.0;
/// Least width of a picture, and least height of what is inside the axes, in pixels.
const WIDTH_MIN: f64 = 240.0;
const PLOT_MIN: f64 = 60.0;

impl Canvas {
    pub(crate) fn new(frame: &Frame, room: Room, legend: &[(Key, &str)]) -> Canvas {
        let width = f64::from(frame.width).max(WIDTH_MIN);
        let mut svg = Svg::new(width, 0.0);
        let mut top = MARGIN + 14.0;
        svg.text((MARGIN, top), Anchor::Start, "title", &shortened(&frame.title, (width - 2.0 * MARGIN) * 0.7));
        if !frame.subtitle.is_empty() {
            top += 18.0;
            svg.text((MARGIN, top), Anchor::Start, "sub", &shortened(&frame.subtitle, width - 2.0 * MARGIN));
        }
        top = draw_legend(&mut svg, legend, top, width);
        let note = if frame.note.is_empty() { 0.0 } else { 18.0 };
        // The plot itself never vanishes, however small the frame or long the legend.
        let height = f64::from(frame.height).max(top + 16.0 + PLOT_MIN + room.bottom + note);
        svg.set_height(height);
        if note > 0.0 {
            svg.text((MARGIN, height - 8.0), Anchor::Start, "sub small", &shortened(&frame.note, (width - 2.0 * MARGIN) * 1.2));
        }
        Canvas {
            svg,
            left: room.left,
            right: (width - room.right).max(room.left + 20.0),
            top: top + 16.0,
            bottom: height - room.bottom - note,
            title: frame.title.clone(),
            description: format!("{} {}", frame.subtitle, frame.note).trim().to_string(),
        }
    }

    pub(crate) fn width(&self) -> f64 {
        self.right - self.left
    }

    pub(crate) fn height(&self) -> f64 {
        self.bottom - self.top
    }

    /// Horizontal lines, numbers at the left, and the axis' name above them.
    pub(crate) fn left_axis(&mut self, axis: &Axis, scale: &Scale) {
        for tick in &scale.ticks {
            let Some(y) = scale.pixel(*tick) else { continue };
            self.svg.line((self.left, y), (self.right, y), "grid");
            self.svg.text((self.left - 6.0, y + 4.0), Anchor::End, "", &axis.unit.format(*tick));
        }
        let middle = (self.top + self.bottom) / 2.0;
        let name = shortened(&axis.label, self.height() + 40.0);
        self.svg.text_up((14.0, middle), Anchor::Middle, "", &name);
    }

    /// Numbers at the right.
    pub(crate) fn right_axis(&mut self, axis: &Axis, scale: &Scale, width: f64) {
        for tick in &scale.ticks {
            let Some(y) = scale.pixel(*tick) else { continue };
            self.svg.text((self.right + 6.0, y + 4.0), Anchor::Start, "", &axis.unit.format(*tick));
        }
        let middle = (self.top + self.bottom) / 2.0;
        self.svg.text_up((width - 8.0, middle), Anchor::Middle, "", &shortened(&axis.label, self.height() + 40.0));
    }

    /// Numbers below, and the axis' name below them.
    pub(crate) fn bottom_axis(&mut self, axis: &Axis, scale: &Scale) {
        for tick in &scale.ticks {
            let Some(x) = scale.pixel(*tick) else { continue };
            self.svg.line((x, self.bottom), (x, self.bottom + 4.0), "axis");
            self.svg.text((x, self.bottom + 18.0), Anchor::Middle, "", &axis.unit.format(*tick));
        }
        for (tick, text) in axis.beneath(&scale.ticks) {
            let Some(x) = scale.pixel(tick) else { continue };
            self.svg.text((x, self.bottom + 31.0), Anchor::Middle, "sub small", &text);
        }
        let label = self.bottom + if axis.beneath.is_empty() { 38.0 } else { 48.0 };
        self.svg.line((self.left, self.bottom), (self.right, self.bottom), "axis");
        self.svg.text(((self.left + self.right) / 2.0, label), Anchor::Middle, "", &axis.label);
    }

    /// The area inside the axes over this horizontal scale.
    pub(crate) fn plot(&self, x: &Scale, log: bool) -> Plot {
        Plot { left: self.left, right: self.right, top: self.top, bottom: self.bottom, from: x.from, to: x.to, log }
    }

    pub(crate) fn finish(self) -> String {
        self.svg.finish(&self.title, &self.description)
    }
}

/// Keys with names, in as many rows as they need. Returns the last base line.
pub(crate) fn draw_legend(svg: &mut Svg, legend: &[(Key, &str)], top: f64, width: f64) -> f64 {
    if legend.is_empty() {
        return top;
    }
    let (mut x, mut y) = (MARGIN, top + 22.0);
    for (key, name) in legend {
        let name = shortened(name, width - 2.0 * MARGIN - 36.0);
        let room = 22.0 + text_width(&name) + 14.0;
        if x > MARGIN && x + room > width - MARGIN {
            (x, y) = (MARGIN, y + TEXT + 6.0);
        }
        match key {
            Key::Box(fill) => svg.rect((x, y - 10.0), (14.0, 12.0), *fill, ""),
            Key::Line(color, dash) => svg.polyline(&[(x, y - 4.0), (x + 16.0, y - 4.0)], *color, 2.0, dash, ""),
            Key::Dot(color) => svg.circle((x + 7.0, y - 4.0), 3.5, *color, ""),
        }
        svg.text((x + 20.0, y), Anchor::Start, "", &name);
        x += room;
    }
    y
}
