//! The four layers of the 2009 thesis (Kuhn, "Evaluation of I/O optimizations in a cluster
//! simulator", chapters 4 and 5), with the behaviour of the program that made its numbers, which
//! differs from the text in places:
//! - `none` and `write_behind` do merge adjacent writes that follow each other in the queue;
//! - memory suffices if *more* than what is needed is free;
//! - no layer keeps data for later reads, and none cuts a hole;
//! - delayed writes (thesis, Table 6.5 only) have no timer: a held-back write is looked at again
//!   when something is added or completes.
//!
//! The results are those of the original's repeated list walks; the costs are not: queues are
//! ordered trees, so an addition and a merge take O(log n).

mod aggregation;
mod fifo;
mod server_directed;
mod sorted;

pub use aggregation::Aggregation;
pub use fifo::Fifo;
pub use server_directed::ServerDirected;

use crate::FileKey;

/// Bytes below which an offset counts as near the last one (thesis, section 4.4.3: the disk model's
/// "close").
pub const NEAR_BYTES: u64 = 5 << 20;

/// Which of several files with equally many queued bytes the server-directed layer turns to. The
/// original asked a hash table of objects without hash codes of their own, so it went by their
/// addresses: another order in each run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileOrder {
    /// The lowest number.
    #[default]
    Ascending,
    /// What comes first in this list of the files 0 to 9; other files after them.
    Listed([u8; 10]),
}

impl FileOrder {
    /// The lower, the earlier.
    fn rank(self, file: FileKey) -> u64 {
        match self {
            FileOrder::Ascending => file.0,
            FileOrder::Listed(files) => {
                files.iter().position(|listed| u64::from(*listed) == file.0).map_or(file.0.max(10), |place| place as u64)
            }
        }
    }
}

/// Which entry of the chosen file the server-directed layer takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PickRule {
    /// State T (Appendix C): the lowest offset if it is near, else the largest of the others.
    #[default]
    Lowest,
    /// State P (Tables 6.4 and 6.5): an entry that continues at the last offset at once; else the
    /// nearest if it is near; else the largest that was never the nearest seen.
    Continue,
}

/// Writes are held back unless much is queued or nothing was written for a while (Table 6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedWrites {
    /// From so many queued bytes on, write at once.
    pub bytes_min: u64,
    /// Nanoseconds since the last write after which one is issued anyway.
    pub pause_ns: u64,
}

impl Default for DelayedWrites {
    fn default() -> Self {
        DelayedWrites { bytes_min: 50 << 20, pause_ns: 330_000_000 }
    }
}

/// What the 2009 layers can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassicConfig {
    /// Most bytes of a merged job. The thesis: 10 MiB (10 485 760); its model file for
    /// partdiff-par: 10 000 000.
    pub granularity: u64,
    /// Which entry the server-directed layer takes.
    pub rule: PickRule,
    /// Server-directed only. `None`: a flush has no effect.
    pub delayed: Option<DelayedWrites>,
    /// Server-directed only: a write into the middle of a queued one loses what that one had behind
    /// it, as the original did.
    pub loses_tails: bool,
    /// Server-directed only.
    pub file_order: FileOrder,
}

impl Default for ClassicConfig {
    fn default() -> Self {
        ClassicConfig { granularity: 10 << 20, rule: PickRule::Lowest, delayed: None, loses_tails: true, file_order: FileOrder::Ascending }
    }
}
