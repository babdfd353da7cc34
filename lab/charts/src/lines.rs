//! Lines, steps and dots over two axes: time series, distribution functions, measurements against
//! bounds.

use crate::axis::{Axis, Scale};
use crate::bars::plain;
use crate::frame::{Canvas, Frame, Key, Plot, Room};
use crate::svg::{Anchor, SMALL, shortened, text_width};
use crate::table::Table;

/// How the points of a line are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Straight.
    Line,
    /// Each value holds until the next point: distribution functions, counters.
    Step,
    /// Not at all.
    Dots,
    /// Straight, in long dashes: the second of two runs, told apart without its colour.
    Dashed,
    /// Straight and dashed: a bound that was computed, not measured.
    Bound,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name in the legend. Lines of the same name share one entry.
    pub name: String,
    /// `0xRRGGBB`.
    pub color: u32,
    /// How it is drawn.
    pub style: Style,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// A vertical line with a text: an event, an iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Where.
    pub x: f64,
    /// For example `#3`.
    pub text: String,
}

/// A chart of lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// Title and size.
    pub frame: Frame,
    /// The axis below.
    pub x: Axis,
    /// The axis at the left.
    pub y: Axis,
    /// The lines; those later in the list are drawn on top.
    pub lines: Vec<Line>,
    /// Vertical marks.
    pub marks: Vec<Mark>,
}

impl Lines {
    /// Gives these charts the same axes, from 0 on: else nobody could compare them.
    pub fn share_axes(charts: &mut [Lines]) {
        let points = || charts.iter().flat_map(|chart| &chart.lines).flat_map(|line| &line.points);
        let (right, top) = points().fold((0.0f64, 0.0f64), |(right, top), point| (right.max(point.0), top.max(point.1)));
        for chart in charts {
            chart.x = chart.x.clone().ranging(0.0, right);
            chart.y = chart.y.clone().ranging(0.0, top * 1.05);
        }
    }

    /// The picture.
    pub fn svg(&self) -> String {
        let (mut canvas, x, y) = self.begin();
        canvas.left_axis(&self.y, &y);
        canvas.bottom_axis(&self.x, &x);
        let mut free = f64::NEG_INFINITY;
        for (number, mark) in self.marks.iter().enumerate() {
            let Some(at) = x.pixel(mark.x) else { continue };
            let (top, bottom) = (canvas.top, canvas.bottom);
            canvas.svg.line((at, top), (at, bottom), "mark");
            // Where there is no room for a name its first word stands, which is the number of an
            // iteration; without room for that, nothing.
            let next = self.marks[number + 1..].iter().filter_map(|next| x.pixel(next.x)).find(|next| *next > at);
            let room = (next.unwrap_or(canvas.right + 20.0) - at - 6.0).min(120.0);
            if at >= free && room > 16.0 {
                let fits = text_width(&mark.text) * SMALL <= room;
                let first = || shortened(mark.text.split(' ').next().unwrap_or_default(), room);
                let text = if fits { mark.text.clone() } else { first() };
                canvas.svg.text((at + 3.0, top + 10.0), Anchor::Start, "small", &text);
                free = at + 16.0;
            }
        }
        self.lines.iter().for_each(|line| draw(&mut canvas, line, &x, &y));
        canvas.finish()
    }

    /// Where the area inside the axes lies.
    pub fn plot(&self) -> Plot {
        let (canvas, x, _) = self.begin();
        canvas.plot(&x, self.x.log)
    }

    fn begin(&self) -> (Canvas, Scale, Scale) {
        let bottom = if self.x.beneath.is_empty() { 50.0 } else { 58.0 };
        let canvas = Canvas::new(&self.frame, Room { left: 84.0, right: 30.0, bottom }, &self.legend());
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = self.x.scale(points().map(|point| point.0).chain(self.marks.iter().map(|mark| mark.x)), (canvas.left, canvas.right), 8);
        let y = self.y.scale(points().map(|point| point.1), (canvas.bottom, canvas.top), 6);
        (canvas, x, y)
    }

    /// The same as a table: one row for each point.
    pub fn table(&self) -> Table {
        let mut table = Table::new(&self.frame.title, ["line".to_string(), self.x.label.clone(), self.y.label.clone()]);
        for line in &self.lines {
            for (x, y) in &line.points {
                table.row([line.name.clone(), plain(self.x.unit, *x), plain(self.y.unit, *y)]);
            }
        }
        table
    }

    fn legend(&self) -> Vec<(Key, &str)> {
        let mut legend: Vec<(Key, &str)> = Vec::new();
        for line in self.lines.iter().filter(|line| !line.name.is_empty()) {
            let key = match line.style {
                Style::Dots => Key::Dot(line.color),
                Style::Bound => Key::Line(line.color, DASHES),
                Style::Dashed => Key::Line(line.color, LONG_DASHES),
                Style::Line | Style::Step => Key::Line(line.color, ""),
            };
            if !legend.contains(&(key, &line.name)) {
                legend.push((key, &line.name));
            }
        }
        legend
    }
}

const DASHES: &str = "6 3";
const LONG_DASHES: &str = "9 4";

fn draw(canvas: &mut Canvas, line: &Line, x: &Scale, y: &Scale) {
    let points: Vec<(f64, f64)> = line.points.iter().filter_map(|point| Some((x.pixel(point.0)?, y.pixel(point.1)?))).collect();
    match line.style {
        Style::Dots => points.iter().for_each(|point| canvas.svg.circle(*point, 3.0, line.color, &line.name)),
        Style::Line => canvas.svg.polyline(&points, line.color, 2.0, "", &line.name),
        Style::Dashed => canvas.svg.polyline(&points, line.color, 2.0, LONG_DASHES, &line.name),
        Style::Bound => {
            canvas.svg.polyline(&points, line.color, 1.5, DASHES, &line.name);
        }
        Style::Step => {
            let corners = points.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
            let steps: Vec<(f64, f64)> = corners.chain(points.last().copied()).collect();
            canvas.svg.polyline(&steps, line.color, 2.0, "", &line.name);
        }
    }
}
