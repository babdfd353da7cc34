//! What a data server is told, and why it stops.

use weft_base::MILLISECOND;
use weft_sched::LayerKind;
use weft_sched::improved::{Delay, DiskCost, ImprovedConfig};
use weft_serving::ServingConfig;

/// A request takes no part in a layer if it is so many times as long as the longest hole that is
/// worth reading: by merging it would save less than one part in so many. Jobs grow no longer than
/// that either: all requests in a job wait for its end.
const LONG: u64 = 16;
/// Bounds of the longest job, in bytes; the upper one is the longest request.
const JOB_BYTES: std::ops::RangeInclusive<u64> = 128 << 10..=8 << 20;

/// The usual [`DataServerConfig::punch_bytes`]: only what a very large file leaves behind.
pub const PUNCH_BYTES_DEFAULT: u64 = 1 << 30;

/// Writes are answered when the cache layer has accepted them. Only for durability `none`: until
/// they are in the container, the death of the server loses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBack {
    /// Most bytes that are answered and not written; beyond that a write waits until it is in the
    /// container.
    pub bytes_max: u64,
    /// Nanoseconds that a write may wait for company.
    pub age_ns: u64,
}

impl Default for WriteBack {
    fn default() -> Self {
        WriteBack { bytes_max: 64 << 20, age_ns: 20 * MILLISECOND }
    }
}

/// How accesses of one turn to the container meet
/// (`docs/decisions/0008-where-the-cache-layer-is.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// What decides about their order and what becomes one.
    pub layer: LayerKind,
    /// What an access costs: decides which holes are read through and which requests are too long
    /// to gain anything.
    pub disk: DiskCost,
    /// Most accesses that are under way at the disk.
    pub depth: usize,
    /// Every access goes through the layer, also the only one of its turn and the long ones. Needed
    /// where accesses must not meet at the disk (direct I/O, with depth 1).
    pub takes_all: bool,
    /// Answer early. Needs `takes_all`: reads must meet the writes that are not done yet.
    pub write_back: Option<WriteBack>,
}

impl Default for CacheConfig {
    /// For a container in the page cache, which gathers by itself: a layer costs more there than it
    /// saves (`docs/measurements.md`).
    fn default() -> Self {
        CacheConfig { layer: LayerKind::None, disk: DiskCost::PAGE_CACHE, depth: 1, takes_all: false, write_back: None }
    }
}

impl CacheConfig {
    /// What the layer is told; a model that is told the same predicts what the server does.
    pub fn rules(&self) -> ImprovedConfig {
        let delay = self.write_back.map(|back| Delay { age_ns: back.age_ns, bytes: back.bytes_max / 2 });
        let granularity = self.long_bytes().clamp(*JOB_BYTES.start(), *JOB_BYTES.end());
        ImprovedConfig { granularity, disk: self.disk, delay, read_reserve: 0, ..ImprovedConfig::default() }
    }

    /// Longer requests gain nothing by the layer, in bytes.
    pub(crate) fn long_bytes(&self) -> u64 {
        LONG * self.disk.hole_bytes_max()
    }
}

/// Everything that a data server needs besides its runtime.
#[derive(Clone, Debug)]
pub struct DataServerConfig {
    /// What every server is told.
    pub serving: ServingConfig,
    /// Most bytes of the container file; `None`: as much as the disk has.
    pub capacity_bytes: Option<u64>,
    /// Freed runs of at least so many bytes are given back to the disk; smaller ones are only used
    /// again. Giving back is slow (a discard at the device), and writing to space that was used
    /// before is faster than to new space.
    pub punch_bytes: u64,
    /// How accesses to the container meet.
    pub cache: CacheConfig,
}

impl DataServerConfig {
    /// The usual settings for the rest.
    pub fn new(serving: ServingConfig) -> DataServerConfig {
        DataServerConfig { serving, capacity_bytes: None, punch_bytes: PUNCH_BYTES_DEFAULT, cache: CacheConfig::default() }
    }
}
