//! Delays at fault points of this process, for laboratories ([`weft_rt::FaultPoint`]).

use std::sync::atomic::{AtomicU64, Ordering};

use weft_rt::{Delays, FaultPoint};

static DELAYS: [AtomicU64; FaultPoint::COUNT] = [const { AtomicU64::new(0) }; FaultPoint::COUNT];

/// Holds up everything in this process that passes these fault points from now on. [`Delays::NONE`]
/// ends that.
pub fn set_delays(delays: &Delays) {
    for point in FaultPoint::ALL {
        DELAYS[*point as usize].store(delays.get(*point), Ordering::Relaxed);
    }
}

/// The delay at a point in nanoseconds; 0: none. One relaxed load.
#[inline]
pub(crate) fn delay_ns(point: FaultPoint) -> u64 {
    DELAYS[point as usize].load(Ordering::Relaxed)
}
