//! What outlives a process, and what outlives a power cut.

use weft_base::MILLISECOND;

/// What keeps the state of a server over a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Nothing: everything is lost with the process, on purpose. The upper bound for speed.
    Memory,
    /// A journal and checkpoints.
    Journal,
}

impl Engine {
    /// Its name in configurations, superblocks and statistics.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Memory => "memory",
            Engine::Journal => "journal",
        }
    }
}

/// What an acknowledged change has survived. See `docs/semantics.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Everything: it is on stable storage.
    Sync,
    /// The death of the server at once, a power cut after at most so many nanoseconds.
    Batch {
        /// Nanoseconds between flushes while there is something to flush.
        interval: u64,
    },
    /// The death of the server at once; a power cut only after an explicit flush. Data servers have
    /// nothing to gain by that and treat it as a batch of 50 ms, but may answer writes before they
    /// are in the container.
    None,
}

impl Durability {
    /// The default: a power cut loses at most 50 ms.
    pub const BATCH_DEFAULT: Durability = Durability::Batch { interval: 50 * MILLISECOND };

    /// Its name in configurations and statistics.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Batch { .. } => "batch",
            Durability::None => "none",
        }
    }
}
