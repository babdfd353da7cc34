//! Two kinds of time: a monotonic clock for deadlines and a wall clock for timestamps.

use std::fmt;
use std::ops::{Add, Sub};

/// Nanoseconds of a monotonic clock with an arbitrary start (real: boot; simulation: the beginning of the run).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

/// One second in nanoseconds.
pub const SECOND: u64 = 1_000_000_000;
/// One millisecond in nanoseconds.
pub const MILLISECOND: u64 = 1_000_000;

impl Nanos {
    /// A time that never comes.
    pub const NEVER: Nanos = Nanos(u64::MAX);

    /// Nanoseconds from `earlier` to `self`, 0 if `earlier` is later.
    pub fn since(self, earlier: Nanos) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Nanos {
    type Output = Nanos;
    /// This many nanoseconds later; saturates at [`Nanos::NEVER`].
    fn add(self, nanos: u64) -> Nanos {
        Nanos(self.0.saturating_add(nanos))
    }
}
impl Sub<u64> for Nanos {
    type Output = Nanos;
    fn sub(self, nanos: u64) -> Nanos {
        Nanos(self.0.saturating_sub(nanos))
    }
}
impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / SECOND, self.0 % SECOND)
    }
}

/// Nanoseconds since 1970-01-01 UTC, as in timestamps of files. Negative before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallTime(pub i64);

impl WallTime {
    /// From the two halves of a `timespec`; saturates at the ends of the 64-bit range (years 1677 and 2262).
    pub fn from_parts(seconds: i64, nanos: u32) -> WallTime {
        WallTime(seconds.saturating_mul(SECOND as i64).saturating_add(i64::from(nanos)))
    }

    /// Whole seconds (rounded down) and the remaining nanoseconds.
    pub fn parts(self) -> (i64, u32) {
        (self.0.div_euclid(SECOND as i64), self.0.rem_euclid(SECOND as i64) as u32)
    }
}
