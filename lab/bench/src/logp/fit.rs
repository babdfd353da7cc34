//! Straight lines through measured times.

use serde::Serialize;

/// A line `fixed + bytes * per_byte`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// Microseconds of a message without bytes.
    pub fixed_us: f64,
    /// Nanoseconds of each byte.
    pub per_byte_ns: f64,
    /// The largest difference of a point from the line, by the point.
    pub off_by: f64,
}

impl Fit {
    /// The line with the least squares of relative differences, through points of bytes and
    /// microseconds: those of small messages count as much as those of large ones. `None` with
    /// fewer than two different sizes, or a time that is not positive.
    pub fn through(points: &[(f64, f64)]) -> Option<Fit> {
        if points.iter().any(|(bytes, us)| !us.is_finite() || *us <= 0.0 || !bytes.is_finite()) {
            return None;
        }
        // Normal equations of the weights 1 / us².
        let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(bytes, us)| of(*bytes, *us) / (us * us)).sum::<f64>();
        let (one, x, xx) = (sum(&|_, _| 1.0), sum(&|bytes, _| bytes), sum(&|bytes, _| bytes * bytes));
        let (y, xy) = (sum(&|_, us| us), sum(&|bytes, us| bytes * us));
        let determinant = one * xx - x * x;
        if points.len() < 2 || determinant <= f64::EPSILON * one * xx {
            return None;
        }
        let (fixed_us, per_byte_us) = ((xx * y - x * xy) / determinant, (one * xy - x * y) / determinant);
        let off = |(bytes, us): &(f64, f64)| (fixed_us + bytes * per_byte_us - us).abs() / us;
        Some(Fit { fixed_us, per_byte_ns: per_byte_us * 1e3, off_by: points.iter().map(off).fold(0.0, f64::max) })
    }

    /// Microseconds of a message.
    pub fn at(&self, bytes: f64) -> f64 {
        self.fixed_us + bytes * self.per_byte_ns / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_give_that_line() {
        let points: Vec<(f64, f64)> = [0.0, 1024.0, 65536.0, 4e6].map(|bytes| (bytes, 12.5 + bytes * 0.001)).into();
        let fit = Fit::through(&points).expect("a line");
        assert!((fit.fixed_us - 12.5).abs() < 1e-6 && (fit.per_byte_ns - 1.0).abs() < 1e-6 && fit.off_by < 1e-6, "{fit:?}");
        assert!((fit.at(1e6) - 1012.5).abs() < 1e-3);
    }

    #[test]
    fn small_messages_count_as_much_as_large_ones() {
        let fit = Fit::through(&[(0.0, 10.0), (100.0, 12.0), (1e7, 1.1e5), (2e7, 1.8e5)]).expect("a line");
        assert!((9.0..12.0).contains(&fit.fixed_us), "{fit:?}");
        assert!(fit.off_by > 0.05 && fit.off_by < 0.2, "{fit:?}");
    }

    #[test]
    fn what_is_no_line_is_none() {
        for points in [&[][..], &[(1.0, 1.0)], &[(1.0, 1.0), (1.0, 2.0)], &[(0.0, 0.0), (1.0, 1.0)], &[(0.0, f64::NAN), (1.0, 1.0)]] {
            assert_eq!(Fit::through(points), None, "{points:?}");
        }
    }
}
