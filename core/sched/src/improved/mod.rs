//! The rules of today: the same four layers, without the faults of 2009, for real servers.
//!
//! All four keep queued accesses as *fragments* in the order of file and offset (`lane.rs`), and
//! guarantee the same (`queue.rs`):
//! - **Order.** Overlapping accesses take effect in the order of their arrival, also with several
//!   jobs on the disk at once: a read gives what was written before it was added, and nothing that
//!   was written after.
//! - **No byte is lost.** A newer write replaces exactly the bytes that it covers; what is replaced
//!   is reported ([`crate::CacheLayer::take_dropped`]), so that its memory comes back.
//! - **Nothing starves.** Reads go first, but whatever waits longer than its deadline is served
//!   next, oldest first.
//! - **Memory pushes back.** A write is accepted while there is memory for it and some is left for
//!   reads; a read that does not fit is made smaller, not refused.
//! - **Cost.** An addition takes O(log n) with n queued fragments; a job of k fragments takes O(k
//!   log n).
//!
//! What differs between them is the choice of the next job and what it takes along:
//!
//! | layer | next | takes along |
//! |---|---|---|
//! | `none` | oldest | nothing |
//! | `write_behind` | oldest | writes that arrived directly after it and continue where it ends |
//! | `aggregation` | oldest | everything that touches it |
//! | `server_directed` | sweep over file and offset | everything that touches it; reads also over holes that are cheaper to read than to skip |
//!
//! The sweep goes upward and starts again at the lowest (C-LOOK: Worthington, Ganger, Patt,
//! "Scheduling algorithms for modern disk drives", SIGMETRICS 1994, section 2), with deadlines
//! beside it. It goes in rounds: what arrives meanwhile and is not touched anyway waits for the
//! next one (FSCAN: Coffman, Klimko, Ryan, "Analysis of scanning policies for reducing disk seek
//! times", SIAM Journal on Computing 1972). Clients that wait for their answers need that: without
//! rounds whoever is ahead is served again and again, because its next request is ahead of the
//! sweep too; the clients drift apart, and what they ask for no longer touches. For the same reason
//! what arrives late on the way of the sweep, or a little behind it, is served in the round, up to
//! a bound: so who has fallen behind catches up, and those ahead wait. Long accesses are served in
//! the order of their arrival.

mod lane;
mod queue;

pub use queue::Improved;

use weft_base::{MILLISECOND, SECOND};

use crate::Keep;

/// What the disk needs for an access, as far as the order of accesses depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskCost {
    /// Nanoseconds that another access near the last one costs before its first byte moves:
    /// settling and half a rotation, or the way through the operating system.
    pub access_ns: u64,
    /// Bytes a second once it moves.
    pub bytes_per_s: u64,
    /// An access that continues where the last one ended costs nothing before its first byte: a
    /// disk that turns, with nothing between.
    pub continues_free: bool,
}

impl DiskCost {
    /// The page cache of a local file system: a system call of 1 us, 4 GiB/s.
    pub const PAGE_CACHE: DiskCost = DiskCost { access_ns: 1_000, bytes_per_s: 4 << 30, continues_free: false };
    /// A solid state disk behind the kernel: 30 us, 1 GiB/s (measured on a virtual one by direct
    /// reads: 29 us for 5 KiB, 66 us for 50 KiB).
    pub const SSD: DiskCost = DiskCost { access_ns: 30_000, bytes_per_s: 1 << 30, continues_free: false };

    /// The longest hole between two wanted ranges that is read rather than skipped, in bytes.
    /// Reading `h` bytes that nobody wants takes `h / bytes_per_s`, skipping them takes `access_ns`
    /// for one more access: reading is cheaper below `access_ns * bytes_per_s`. (Data sieving:
    /// Thakur, Gropp, Lusk, "Data sieving and collective I/O in ROMIO", Frontiers 1999, section 4,
    /// which reads all holes up to the size of its buffer; the break-even is ours.) Writes are
    /// never sieved: a hole would have to be read first, which is an access of its own, and written
    /// back, so that nothing is saved for two ranges.
    pub fn hole_bytes_max(&self) -> u64 {
        (u128::from(self.access_ns) * u128::from(self.bytes_per_s) / u128::from(SECOND)) as u64
    }
}

/// Writes are held back to find company.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Until the oldest has waited so many nanoseconds: then everything goes that has waited half
    /// as long (what has come just now is where neighbours are still to come),
    pub age_ns: u64,
    /// or so many bytes are queued: then everything goes.
    pub bytes: u64,
}

/// What the layers can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImprovedConfig {
    /// Most bytes of a job.
    pub granularity: u64,
    /// Decides about holes.
    pub disk: DiskCost,
    /// `None`: writes go when no read waits. Only for owners that answer before a write is on the
    /// disk.
    pub delay: Option<Delay>,
    /// Nanoseconds after which a read is served whatever else there is.
    pub read_deadline_ns: u64,
    /// The same for a write (after the end of its delay at the latest).
    pub write_deadline_ns: u64,
    /// Bytes of memory that are kept free for reads.
    pub read_reserve: u64,
    /// How much of what is read through is kept for a moment, by the owner of the layer: see
    /// [`crate::Kept`].
    pub keep: Keep,
}

impl Default for ImprovedConfig {
    fn default() -> Self {
        ImprovedConfig {
            granularity: 8 << 20,
            disk: DiskCost::SSD,
            delay: None,
            read_deadline_ns: 100 * MILLISECOND,
            write_deadline_ns: SECOND,
            read_reserve: 8 << 20,
            keep: Keep::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hole_where_reading_and_skipping_cost_the_same() {
        // The disk of the thesis (section 6.1): 1 ms track to track, half a rotation; 50 MiB/s.
        let of_2009 = DiskCost { access_ns: 5_166_666, bytes_per_s: 50 << 20, continues_free: true };
        assert_eq!(of_2009.hole_bytes_max(), 270_882);
        assert_eq!(DiskCost::PAGE_CACHE.hole_bytes_max(), 4294);
        assert_eq!(DiskCost { access_ns: 0, bytes_per_s: u64::MAX, continues_free: false }.hole_bytes_max(), 0);
    }
}
