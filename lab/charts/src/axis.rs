//! Axes: units, ranges, ticks.

/// What numbers on an axis mean, and how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count: `48.5k`.
    Count,
    /// Seconds, written with a prefix: `4 ms`.
    Seconds,
    /// Bytes: `64 KiB`.
    Bytes,
    /// Bytes per second: `1.2 GB/s`.
    BytesPerSecond,
    /// Per second: `12k/s`.
    PerSecond,
    /// A share from 0 to 1, written as `62 %`.
    Share,
    /// A plain number.
    Number,
}

impl Unit {
    /// The value for people, three digits at most.
    pub fn format(self, value: f64) -> String {
        match self {
            Unit::Count => prefixed(value, 1000.0, &["", "k", "M", "G", "T"]),
            Unit::PerSecond => prefixed(value, 1000.0, &["/s", "k/s", "M/s", "G/s"]),
            Unit::BytesPerSecond => prefixed(value, 1000.0, &[" B/s", " kB/s", " MB/s", " GB/s", " TB/s"]),
            Unit::Bytes => prefixed(value, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB"]),
            Unit::Share => format!("{} %", digits(value * 100.0)),
            Unit::Number => digits(value),
            Unit::Seconds => seconds(value),
        }
    }

    /// What the steps of an axis are powers of.
    pub(crate) fn base(self) -> f64 {
        if self == Unit::Bytes { 2.0 } else { 10.0 }
    }
}

fn seconds(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return "0 s".to_string();
    }
    let (scale, unit) = match magnitude {
        m if m >= 0.9995 => (1.0, "s"),
        m if m >= 0.9995e-3 => (1e3, "ms"),
        m if m >= 0.9995e-6 => (1e6, "µs"),
        _ => (1e9, "ns"),
    };
    format!("{} {unit}", digits(value * scale))
}

fn prefixed(value: f64, step: f64, names: &[&str]) -> String {
    let mut scaled = value;
    let mut name = 0;
    while scaled.abs() >= step * 0.9995 && name + 1 < names.len() {
        scaled /= step;
        name += 1;
    }
    format!("{}{}", digits(scaled), names[name])
}

/// About three digits.
fn digits(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_string();
    }
    let decimals = match value.abs() {
        m if m == 0.0 || m >= 99.95 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.0995 => 2,
        m if m >= 0.00995 => 3,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    let text = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_string() } else { text.to_string() }
}

/// One axis of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its name.
    pub label: String,
    /// What its numbers mean.
    pub unit: Unit,
    /// Logarithmic. Values that are not positive are then not drawn.
    pub log: bool,
    /// From and to; `None`: as the data asks, from 0 if it is linear.
    pub range: Option<(f64, f64)>,
    /// A second number under each tick, on a line through these points: how many files existed at
    /// that time. Empty: none.
    pub beneath: Vec<(f64, f64)>,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: &str, unit: Unit) -> Axis {
        Axis { label: label.to_string(), unit, log: false, range: None, beneath: Vec::new() }
    }

    /// A logarithmic axis.
    pub fn log(label: &str, unit: Unit) -> Axis {
        Axis { log: true, ..Axis::linear(label, unit) }
    }

    /// With a fixed range.
    pub fn ranging(mut self, from: f64, to: f64) -> Axis {
        self.range = Some((from, to));
        self
    }

    /// From 0 to the round number above this value, whatever the data are.
    pub fn reaching(self, value: f64) -> Axis {
        let top = self.clone().linear_scale((0.0, value), (0.0, 1.0), 6).to;
        self.ranging(0.0, top)
    }

    /// With a count under each tick: points of (value of the axis, count), by value.
    pub fn counting(mut self, points: Vec<(f64, f64)>) -> Axis {
        self.beneath = points;
        self
    }

    /// Ticks with the text under each: the count on a straight line between the two points around
    /// it.
    pub(crate) fn beneath(&self, ticks: &[f64]) -> Vec<(f64, String)> {
        let points = &self.beneath;
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
        let count = |at: f64| {
            let after = points.partition_point(|point| point.0 < at);
            match (after.checked_sub(1).map(|before| points[before]), points.get(after)) {
                (Some(before), Some(next)) if next.0 > before.0 => before.1 + (next.1 - before.1) * (at - before.0) / (next.0 - before.0),
                (Some(_), None) => last.1,
                (_, _) => first.1,
            }
        };
        ticks.iter().map(|tick| (*tick, format!("({})", Unit::Count.format(count(*tick))))).collect()
    }

    /// The scale for these values on `pixels` (from, to).
    pub(crate) fn scale(&self, values: impl Iterator<Item = f64>, pixels: (f64, f64), ticks: usize) -> Scale {
        let usable = values.filter(|value| value.is_finite() && (!self.log || *value > 0.0));
        let found = usable.fold(None, |range: Option<(f64, f64)>, value| match range {
            None => Some((value, value)),
            Some((min, max)) => Some((min.min(value), max.max(value))),
        });
        let (min, max) = self.range.or(found).unwrap_or((if self.log { 1.0 } else { 0.0 }, 1.0));
        if self.log { self.log_scale((min, max), pixels, ticks) } else { self.linear_scale((min, max), pixels, ticks) }
    }

    fn linear_scale(&self, (min, max): (f64, f64), pixels: (f64, f64), ticks: usize) -> Scale {
        let (min, max) = if self.range.is_none() { (min.min(0.0), max.max(0.0)) } else { (min, max) };
        let max = if max > min { max } else { min + min.abs().max(1.0) };
        let step = nice_step((max - min) / ticks.max(1) as f64);
        // Half a client or half an operation is nothing.
        let step = if self.unit == Unit::Count { step.max(1.0) } else { step };
        let top = if self.range.is_some() { max } else { (max / step).ceil() * step };
        let first = (min / step).ceil() as i64;
        let last = (top / step + 1e-9).floor() as i64;
        let ticks = (first..=last).map(|number| number as f64 * step).collect();
        Scale { from: min, to: top, log: false, pixels, ticks }
    }

    fn log_scale(&self, (min, max): (f64, f64), pixels: (f64, f64), ticks: usize) -> Scale {
        let base = self.unit.base();
        let max = if max > min { max } else { min * base };
        let power = |value: f64, round: fn(f64) -> f64| round((value.ln() / base.ln() * 1e6).round() / 1e6) as i32;
        let (first, last) = (power(min, f64::floor), power(max, f64::ceil));
        let (from, to) = if self.range.is_some() { (min, max) } else { (base.powi(first), base.powi(last)) };
        let every = ((last - first) as usize).div_ceil(ticks.max(1)).max(1);
        let powers = (first..=last).step_by(every).map(|power| base.powi(power));
        let ticks = powers.filter(|tick| *tick >= from * 0.999_999 && *tick <= to * 1.000_001).collect();
        Scale { from, to, log: true, pixels, ticks }
    }
}

/// 1, 2 or 5 times a power of ten, at least `step`.
fn nice_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| power * factor >= step * 0.999_999).unwrap_or(10.0);
    power * factor
}

/// From values to pixels.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) from: f64,
    pub(crate) to: f64,
    log: bool,
    pixels: (f64, f64),
    pub(crate) ticks: Vec<f64>,
}

impl Scale {
    /// The pixel of a value, kept inside the axis; `None` if it has none.
    pub(crate) fn pixel(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || (self.log && value <= 0.0) {
            return None;
        }
        let share = match self.log {
            true => (value / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        Some(self.pixels.0 + (self.pixels.1 - self.pixels.0) * share.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_prefixes_and_about_three_digits() {
        let cases = [
            (Unit::Count, 48_500.0, "48.5k"),
            (Unit::Count, 999.96, "1k"),
            (Unit::Seconds, 0.000_07, "70 µs"),
            (Unit::Seconds, 0.5, "500 ms"),
            (Unit::Seconds, 90.0, "90 s"),
            (Unit::Bytes, 65_536.0, "64 KiB"),
            (Unit::BytesPerSecond, 1.234e9, "1.23 GB/s"),
            (Unit::Share, 0.623, "62.3 %"),
            (Unit::PerSecond, 0.0, "0/s"),
            (Unit::Number, -0.0, "0"),
        ];
        for (unit, value, text) in cases {
            assert_eq!(unit.format(value), text);
        }
    }

    #[test]
    fn ticks_are_round_numbers_inside_the_range() {
        let scale = Axis::linear("", Unit::Count).scale([3.0, 97.0].into_iter(), (0.0, 100.0), 5);
        assert_eq!((scale.ticks.as_slice(), scale.to), ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0].as_slice(), 100.0));
        let scale = Axis::log("", Unit::Seconds).scale([2e-6, 0.3].into_iter(), (0.0, 100.0), 8);
        assert_eq!(scale.ticks.len(), 7);
        assert!((scale.pixel(1e-3).expect("positive") - 50.0).abs() < 1e-6 && scale.pixel(0.0).is_none());
        let scale = Axis::log("", Unit::Bytes).scale([4096.0, 1048576.0].into_iter(), (0.0, 1.0), 20);
        assert_eq!((scale.ticks[0], scale.ticks[8], scale.ticks.len()), (4096.0, 1048576.0, 9));
    }

    #[test]
    fn counts_under_ticks_lie_on_the_line_between_their_points() {
        let axis = Axis::linear("time", Unit::Seconds).counting(vec![(0.0, 0.0), (10.0, 100.0), (20.0, 300.0)]);
        let texts: Vec<String> = axis.beneath(&[-1.0, 0.0, 5.0, 10.0, 15.0, 30.0]).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["(0)", "(0)", "(50)", "(100)", "(200)", "(300)"]);
        assert!(Axis::linear("time", Unit::Seconds).beneath(&[1.0]).is_empty());
    }

    #[test]
    fn no_data_and_equal_data_still_make_an_axis() {
        for axis in [Axis::linear("", Unit::Count), Axis::log("", Unit::Count)] {
            for values in [vec![], vec![5.0, 5.0], vec![f64::NAN], vec![0.0]] {
                let scale = axis.scale(values.into_iter(), (0.0, 10.0), 5);
                assert!(scale.to > scale.from && !scale.ticks.is_empty(), "{scale:?}");
            }
        }
    }
}
