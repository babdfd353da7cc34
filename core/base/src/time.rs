//! Two kinds of time: a monotonic clock for deadlines and a wall clock for timestamps.

use std::fmt;
use std::ops::{Add, Sub};

/// Nanoseconds of a monotonic clock with an arbitrary start (real: boot; simulation: the beginning
/// of the run).
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

/// A time of the last access that is as old, in nanoseconds, is set anew by a reader: a day.
pub const ATIME_DUE_NS: i64 = 86_400 * SECOND as i64;

/// Nanoseconds since 1970-01-01 UTC, as in timestamps of files. Negative before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallTime(pub i64);

impl WallTime {
    /// From the two halves of a `timespec`; saturates at the ends of the 64-bit range (years 1677
    /// and 2262).
    pub fn from_parts(seconds: i64, nanos: u32) -> WallTime {
        WallTime(seconds.saturating_mul(SECOND as i64).saturating_add(i64::from(nanos)))
    }

    /// Whole seconds (rounded down) and the remaining nanoseconds.
    pub fn parts(self) -> (i64, u32) {
        (self.0.div_euclid(SECOND as i64), self.0.rem_euclid(SECOND as i64) as u32)
    }
}

/// When the data of a file was changed last, with the place of this change in their order. The
/// greater one is the later one: epochs decide, and times only within an epoch. So a time that
/// somebody has set stands against all writes before it and none after it, whatever times they
/// have.
///
/// Even epochs are those of writes and truncations, whose times are those of servers' clocks; an
/// odd epoch belongs to one setting of the time. See `docs/decisions/0010-order-of-times.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataTime {
    /// Counts settings of the time and the first writes after them.
    pub epoch: u32,
    /// When, by the clock of a server, or as it was set.
    pub at: WallTime,
}

impl Default for DataTime {
    fn default() -> DataTime {
        DataTime::NONE
    }
}

impl DataTime {
    /// Nothing is known of any change; the smallest.
    pub const NONE: DataTime = DataTime { epoch: 0, at: NEVER };

    /// Nothing was written in this epoch or later.
    pub fn none_in(epoch: u32) -> DataTime {
        DataTime { epoch, at: NEVER }
    }

    /// Whether this tells of a change, and not only of an epoch without one.
    pub fn is_of_a_change(self) -> bool {
        self.at != NEVER
    }

    /// The later one of this and what a data server says, if that tells of a write at all.
    pub fn later(self, written: DataTime) -> DataTime {
        if written.is_of_a_change() { self.max(written) } else { self }
    }

    /// The epoch of writes that come after everything in `epoch`.
    pub fn epoch_of_writes(epoch: u32) -> u32 {
        epoch.saturating_add(epoch & 1)
    }

    /// The epoch of a setting that comes after everything in `epoch` and after all writes that may
    /// come after that.
    pub fn epoch_of_setting(epoch: u32) -> u32 {
        epoch.saturating_add(1) | 1
    }
}

/// The time of no write.
const NEVER: WallTime = WallTime(i64::MIN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_decide_before_times() {
        let at = |epoch, at| DataTime { epoch, at: WallTime(at) };
        for known in 0..9 {
            let (writes, setting) = (DataTime::epoch_of_writes(known), DataTime::epoch_of_setting(known));
            assert!(writes >= known && writes % 2 == 0);
            assert!(setting > writes && setting % 2 == 1, "whoever writes and does not know of the setting writes before it");
            assert!(at(setting, -100) > at(writes, 100) && at(DataTime::epoch_of_writes(setting), -100) > at(setting, 100));
        }
        assert_eq!(at(4, 1).later(at(4, 3)), at(4, 3));
        assert_eq!(at(3, 5).later(at(2, 9)), at(3, 5));
        assert_eq!(at(3, 5).later(DataTime::none_in(4)), at(3, 5), "an epoch without a write is no write");
        assert!(DataTime::NONE < DataTime::none_in(2));
    }
}
