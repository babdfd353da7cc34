//! Times as the files write them: seconds with a fraction.

use std::fmt;
use std::ops::{Add, Sub};

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// A moment or a distance in nanoseconds. Most moments in the files count from 1970 or from the
/// `timeAdjustment` of their file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub i64);

impl Time {
    /// Reads `seconds[.fraction][s|ms]` with an optional sign, for example `1247131125.06` or
    /// `-5.02ms`. Digits below a nanosecond are dropped. `None` if it is anything else or does not
    /// fit.
    pub fn parse(text: &str) -> Option<Time> {
        let text = text.trim();
        let (text, divisor) = match text.strip_suffix("ms") {
            Some(rest) => (rest, 1000),
            None => (text.strip_suffix('s').unwrap_or(text), 1),
        };
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || whole.len() > 18 || !all_digits(whole) || !all_digits(fraction) {
            return None;
        }
        let nanos = fraction.bytes().chain(std::iter::repeat(b'0')).take(9).fold(0, |sum, digit| sum * 10 + i128::from(digit - b'0'));
        let total = (whole.parse::<i128>().ok()? * NANOS_PER_SECOND + nanos) / divisor;
        i64::try_from(if negative { -total } else { total }).ok().map(Time)
    }
}

impl fmt::Display for Time {
    /// Seconds with at least six and at most nine digits after the point: microseconds are what the
    /// tracing libraries wrote.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = i128::from(self.0).abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        let digits = format!("{:09}", size % NANOS_PER_SECOND);
        let kept = digits.trim_end_matches('0').len().max(6);
        write!(out, "{sign}{}.{}", size / NANOS_PER_SECOND, &digits[..kept])
    }
}

impl Add for Time {
    type Output = Time;
    fn add(self, other: Time) -> Time {
        Time(self.0.saturating_add(other.0))
    }
}

impl Sub for Time {
    type Output = Time;
    fn sub(self, other: Time) -> Time {
        Time(self.0.saturating_sub(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spellings_of_the_tools_are_read() {
        for (text, nanos) in [
            ("0.954082", 954_082_000),
            ("1247131125", 1_247_131_125_000_000_000),
            ("1247131125.06", 1_247_131_125_060_000_000),
            ("-0000000000.000000000", 0),
            ("-1241465909.61045s", -1_241_465_909_610_450_000),
            ("-5.02ms", -5_020_000),
            ("30.001s", 30_001_000_000),
            ("1.0000000019", 1_000_000_001),
        ] {
            assert_eq!(Time::parse(text), Some(Time(nanos)), "{text}");
        }
        for bad in ["", "s", ".5", "1,5", "1.2.3", "--1", "1e9", "99999999999999999999", "9999999999999"] {
            assert_eq!(Time::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_printed_is_read_back() {
        for nanos in [0, 1, -1, 999_999_999, 1_000_000_000, -1_500_000_000, i64::MAX, i64::MIN, 1_247_131_125_060_000_000] {
            assert_eq!(Time::parse(&Time(nanos).to_string()), Some(Time(nanos)));
        }
        assert_eq!(Time(1_034_413_000).to_string(), "1.034413");
    }
}
