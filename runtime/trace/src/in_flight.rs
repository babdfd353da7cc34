//! What is running now: spans are written when they end, so the operations that have not ended are kept in a table of each thread, which
//! others read without making the thread wait.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::event::EventId;

/// Lanes of one thread, and entries of its table. Operations beyond them run on [`LANE_NONE`] and are not in the table.
pub const LANES: usize = 64;
/// The lane of an operation that found all taken.
pub const LANE_NONE: u16 = u16::MAX;

/// An operation that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The ring of its thread.
    pub ring: u32,
    /// Its lane.
    pub lane: u16,
    /// What runs.
    pub event: EventId,
    /// The span it will have.
    pub span: u32,
    /// Its beginning in ticks.
    pub t0: u64,
    /// The object, 0 if not yet known.
    pub object: u64,
}

#[derive(Debug, Default)]
struct Entry {
    /// 0: free. Stored last, taken back first.
    t0: AtomicU64,
    /// Event and span.
    what: AtomicU64,
    object: AtomicU64,
}

/// The table of one thread.
#[derive(Debug)]
pub(crate) struct Table([Entry; LANES]);

impl Table {
    pub(crate) fn new() -> Table {
        Table(std::array::from_fn(|_| Entry::default()))
    }

    #[inline]
    pub(crate) fn begin(&self, lane: usize, t0: u64, event: EventId, span: u32) {
        let entry = &self.0[lane];
        entry.what.store(u64::from(event.0) << 32 | u64::from(span), Ordering::Relaxed);
        entry.object.store(0, Ordering::Relaxed);
        entry.t0.store(t0.max(1), Ordering::Release);
    }

    #[inline]
    pub(crate) fn set_object(&self, lane: usize, object: u64) {
        self.0[lane].object.store(object, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn end(&self, lane: usize) {
        self.0[lane].t0.store(0, Ordering::Relaxed);
        // The words of the next operation must not be seen beside the time of this one.
        fence(Ordering::Release);
    }

    pub(crate) fn read(&self, ring: u32, out: &mut Vec<InFlight>) {
        for (lane, entry) in self.0.iter().enumerate() {
            let t0 = entry.t0.load(Ordering::Acquire);
            let (what, object) = (entry.what.load(Ordering::Relaxed), entry.object.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if t0 != 0 && entry.t0.load(Ordering::Relaxed) == t0 {
                out.push(InFlight { ring, lane: lane as u16, event: EventId((what >> 32) as u16), span: what as u32, t0, object });
            }
        }
    }
}
