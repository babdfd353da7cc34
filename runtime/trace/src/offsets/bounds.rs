//! The lines that the bounds of all requests between two clocks allow, and the one that is chosen.

use super::{Line, RATE_MAX};

/// A time of the first clock, and what the second one then showed at most or at least.
pub(super) type Point = (i64, i64);

/// What ties two clocks: the second one minus the first, as a function of the first one's time.
pub(super) struct Tie {
    pub(super) line: Line,
    /// The corners of the set of all lines that the bounds allow: value at `line.at_ns`, less
    /// `line.offset_ns`, and rate.
    corners: Vec<(f64, f64)>,
    /// The bounds contradict each other by so many nanoseconds each: a clock was turned.
    pub(super) slack: f64,
    /// Half the distance between the outermost lines where there are requests.
    pub(super) error: f64,
    pub(super) samples: u64,
}

impl Tie {
    /// The distance of the chosen line to the farthest one that is possible, in nanoseconds.
    pub(super) fn error_at(&self, at_ns: i64) -> f64 {
        let x = at_ns.saturating_sub(self.line.at_ns) as f64;
        let farthest = self.corners.iter().map(|(value, rate)| (value + (rate - self.line.rate) * x).abs()).fold(0.0, f64::max);
        farthest + self.slack
    }
}

/// What the requests between two clocks say of them.
#[derive(Default)]
pub(super) struct Bounds {
    upper: Vec<Point>,
    lower: Vec<Point>,
}

impl Bounds {
    /// The second clock showed at most `at_most.1` when the first one showed `at_most.0`, and so
    /// on.
    pub(super) fn request(&mut self, at_most: Point, at_least: Point) {
        self.upper.push(at_most);
        self.lower.push(at_least);
    }

    pub(super) fn tie(&self) -> Option<Tie> {
        // Everything is relative to the first request, so that no digit is lost.
        let (at_ns, shown) = *self.upper.first()?;
        let base = shown.saturating_sub(at_ns);
        let relative = |(at, shown): &Point| (at.saturating_sub(at_ns) as f64, shown.saturating_sub(*at).saturating_sub(base) as f64);
        let upper = lower_hull(self.upper.iter().map(relative).collect());
        let lower = upper_hull(self.lower.iter().map(relative).collect());
        let slack = slack(&upper, &lower);
        let (slowest, fastest) = rates(&upper, &lower, slack);
        let range = |rate: f64| {
            let least = lower.iter().map(|(x, y)| y - rate * x).fold(f64::NEG_INFINITY, f64::max) - slack;
            let most = upper.iter().map(|(x, y)| y - rate * x).fold(f64::INFINITY, f64::min) + slack;
            (least, most)
        };
        // That they drift is said only if it is certain; then all possible rates are as good.
        let rate = if slowest <= 0.0 && 0.0 <= fastest { 0.0 } else { (slowest + fastest) / 2.0 };
        let (least, most) = range(rate);
        let value = (least + most) / 2.0;
        let offset = value.round();
        let slopes = upper.windows(2).chain(lower.windows(2)).map(|ends| (ends[1].1 - ends[0].1) / (ends[1].0 - ends[0].0));
        let rates = slopes.filter(|slope| (slowest..=fastest).contains(slope)).chain([slowest, fastest]);
        let corners: Vec<(f64, f64)> = rates.flat_map(|rate| [range(rate).0, range(rate).1].map(|value| (value - offset, rate))).collect();
        let line = Line { at_ns, offset_ns: base.saturating_add(offset as i64), rate };
        let mut tie = Tie { line, corners, slack, error: 0.0, samples: self.upper.len() as u64 };
        let ends = upper.iter().chain(&lower).map(|(x, _)| *x);
        let (first, last) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(first, last), x| (first.min(x), last.max(x)));
        tie.error = [first, last].map(|x| tie.error_at(at_ns.saturating_add(x as i64))).into_iter().fold(0.0, f64::max);
        Some(tie)
    }
}

/// The smallest and the largest rate of a line that is `slack` below all lower bounds at most, and
/// above all upper ones. The first is larger than the second if there is no such line.
fn rates(upper: &[(f64, f64)], lower: &[(f64, f64)], slack: f64) -> (f64, f64) {
    let (mut slowest, mut fastest) = (-RATE_MAX, RATE_MAX);
    for (above_x, above) in upper {
        for (below_x, below) in lower {
            let (run, room) = (above_x - below_x, above - below + 2.0 * slack);
            // below + rate * run <= above
            if run > 0.0 {
                fastest = fastest.min(room / run);
            } else if run < 0.0 {
                slowest = slowest.max(room / run);
            } else if room < 0.0 {
                return (1.0, -1.0);
            }
        }
    }
    (slowest, fastest)
}

/// By how much all bounds must be widened so that one line keeps to them, in nanoseconds: 0 unless
/// a clock was turned or changed its rate.
fn slack(upper: &[(f64, f64)], lower: &[(f64, f64)]) -> f64 {
    let is_enough = |slack: f64| {
        let (slowest, fastest) = rates(upper, lower, slack);
        slowest <= fastest
    };
    if is_enough(0.0) {
        return 0.0;
    }
    let mut most = 1.0;
    while !is_enough(most) {
        most *= 2.0;
    }
    let mut least = most / 2.0;
    // Beyond 2^53 ns neighbouring numbers are further apart than one nanosecond.
    while most - least > f64::max(1.0, most * 2.0 * f64::EPSILON) {
        let middle = (least + most) / 2.0;
        if is_enough(middle) { most = middle } else { least = middle }
    }
    most
}

/// The points that a line from below can touch, by the first coordinate (Andrew's monotone chain).
fn lower_hull(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    points.dedup_by_key(|point| point.0);
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for point in points {
        while let [.., before, last] = hull[..] {
            let is_below = (last.0 - before.0) * (point.1 - before.1) > (last.1 - before.1) * (point.0 - before.0);
            if is_below {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

/// The points that a line from above can touch.
fn upper_hull(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let mirrored = |points: Vec<(f64, f64)>| points.into_iter().map(|(x, y)| (x, -y)).collect();
    mirrored(lower_hull(mirrored(points)))
}
