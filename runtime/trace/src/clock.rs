//! Clocks of the recorder. A record holds raw ticks; what a tick is, the file says: anchors tie
//! ticks to nanoseconds.
//!
//! The time stamp counter costs 12 ns to read, the system's monotonic clock 30 ns: at two readings
//! a span that decides whether tracing is cheap. The counter is used only where [`tsc_is_sound`]
//! holds, and converted piecewise between anchors, never by one factor: a frequency that was
//! measured once drifts by tens of ppm.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where ticks come from.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The processor's time stamp counter; [`crate::tsc`].
    Tsc,
    /// A function, for example one that asks the system for nanoseconds.
    Function(fn() -> u64),
    /// Virtual time that a simulator keeps, in nanoseconds.
    Virtual(Arc<AtomicU64>),
}

impl Clock {
    /// Now, in ticks.
    #[inline(always)]
    pub fn ticks(&self) -> u64 {
        match self {
            Clock::Tsc => crate::tsc::ticks(),
            Clock::Function(function) => function(),
            Clock::Virtual(now) => now.load(Ordering::Relaxed),
        }
    }

    /// True if a tick is a nanosecond whatever the anchors say.
    pub fn is_nanoseconds(&self) -> bool {
        !matches!(self, Clock::Tsc)
    }
}

/// True if the time stamp counter runs at one speed on all cores: the kernel itself uses it
/// (`clocksource` is the text of
/// `/sys/devices/system/clocksource/clocksource0/current_clocksource`) and the processor promises
/// it (`cpuinfo` is the text of `/proc/cpuinfo`).
pub fn tsc_is_sound(clocksource: &str, cpuinfo: &str) -> bool {
    let Some(line) = cpuinfo.lines().find(|line| line.starts_with("flags")) else { return false };
    let has = |flag| line.split_whitespace().any(|word| word == flag);
    crate::tsc::AVAILABLE && clocksource.trim() == "tsc" && has("constant_tsc") && has("nonstop_tsc")
}

/// The same moment on two or three clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    /// In ticks.
    pub ticks: u64,
    /// The monotonic clock, in nanoseconds.
    pub mono_ns: u64,
    /// The wall clock, in nanoseconds since 1970.
    pub wall_ns: i64,
}

/// Converts ticks of one node into nanoseconds of its monotonic clock: straight lines from anchor
/// to anchor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TickScale {
    /// By ticks, each later than the one before on both clocks.
    anchors: Vec<Anchor>,
}

impl TickScale {
    /// A scale through these anchors; those that go backwards are left out. With no anchor, or one,
    /// a tick is a nanosecond.
    pub fn new(anchors: impl IntoIterator<Item = Anchor>) -> TickScale {
        let mut kept: Vec<Anchor> = Vec::new();
        let mut given: Vec<Anchor> = anchors.into_iter().collect();
        given.sort_by_key(|anchor| anchor.ticks);
        for anchor in given {
            if kept.last().is_none_or(|last| anchor.ticks > last.ticks && anchor.mono_ns > last.mono_ns) {
                kept.push(anchor);
            }
        }
        TickScale { anchors: kept }
    }

    /// Nanoseconds of the monotonic clock at `ticks`. Before the first and after the last anchor
    /// the nearest line goes on.
    pub fn nanos(&self, ticks: u64) -> u64 {
        match self.anchors.as_slice() {
            [] => ticks,
            [only] => (i128::from(ticks) - i128::from(only.ticks) + i128::from(only.mono_ns)).clamp(0, i128::from(u64::MAX)) as u64,
            anchors => {
                let after = anchors.partition_point(|anchor| anchor.ticks <= ticks).clamp(1, anchors.len() - 1);
                let (from, to) = (anchors[after - 1], anchors[after]);
                let rise = i128::from(to.mono_ns - from.mono_ns);
                let run = i128::from(to.ticks - from.ticks);
                // Anchors of a file may be anything.
                let beyond = (i128::from(ticks) - i128::from(from.ticks)).saturating_mul(rise) / run;
                let nanos = i128::from(from.mono_ns).saturating_add(beyond);
                nanos.clamp(0, i128::from(u64::MAX)) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_used_only_if_kernel_and_processor_vouch_for_it() {
        let flags = "processor : 0\nflags\t: fpu constant_tsc nonstop_tsc\n";
        assert_eq!(tsc_is_sound("tsc\n", flags), crate::tsc::AVAILABLE);
        assert!(!tsc_is_sound("kvm-clock\n", flags));
        assert!(!tsc_is_sound("tsc\n", "flags : fpu constant_tsc\n"));
        assert!(!tsc_is_sound("tsc\n", ""));
    }

    #[test]
    fn ticks_follow_the_line_between_their_anchors() {
        let anchor = |ticks, mono_ns| Anchor { ticks, mono_ns, wall_ns: mono_ns as i64 + 7 };
        // 3 ticks a nanosecond, then 2.
        let scale = TickScale::new([anchor(1000, 500), anchor(4000, 1500), anchor(6000, 2500)]);
        assert_eq!([1000, 2500, 4000, 5000, 6000].map(|ticks| scale.nanos(ticks)), [500, 1000, 1500, 2000, 2500]);
        assert_eq!((scale.nanos(8000), scale.nanos(700), scale.nanos(0)), (3500, 400, 167));
    }

    #[test]
    fn anchors_that_go_backwards_are_left_out() {
        let anchor = |ticks, mono_ns| Anchor { ticks, mono_ns, wall_ns: 0 };
        let scale = TickScale::new([anchor(0, 0), anchor(10, 10), anchor(20, 5), anchor(30, 30)]);
        assert_eq!(scale.nanos(25), 25);
        assert_eq!(TickScale::default().nanos(42), 42);
        assert_eq!(TickScale::new([anchor(100, 1000)]).nanos(142), 1042);
    }

    #[test]
    fn anchors_that_no_clock_can_have_give_a_time_all_the_same() {
        let anchor = |ticks, mono_ns| Anchor { ticks, mono_ns, wall_ns: 0 };
        let scale = TickScale::new([anchor(u64::MAX - 1, 0), anchor(u64::MAX, u64::MAX)]);
        assert_eq!((scale.nanos(0), scale.nanos(u64::MAX)), (0, u64::MAX));
    }
}
