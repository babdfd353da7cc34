//! The I/O servers: requests in, jobs to the disk in the order that the cache layer wants, data and
//! completions out (thesis section 4.6).

mod arrivals;
mod memory;
mod service;

use std::collections::VecDeque;

use weft_base::Nanos;
use weft_model::Disk;
use weft_sched::{Access, CacheLayer, Job, JobPiece, Kept, Layer, Piece};

use crate::config::ServerConfig;

pub use memory::Ram;

use arrivals::Announced;
use memory::{Copies, ReadCache};

/// Bytes of a request before its list of extents.
pub const REQUEST_BYTES: u64 = 20;
/// Bytes of each extent in a request.
pub const REQUEST_EXTENT_BYTES: u64 = 8;
/// Bytes of the message that ends a write.
pub const COMPLETION_BYTES: u64 = 15;

/// Bytes of the message that asks for the data of a write.
pub const ASK_BYTES: u64 = 20;

/// A packet of a write's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPacket {
    /// The request it belongs to.
    pub request: u32,
    /// Its length.
    pub bytes: u64,
    /// It holds the end of the data (and may have overtaken others).
    pub last: bool,
}

struct Running {
    job: Job,
    parts: Vec<JobPiece>,
}

/// One server.
pub struct Server {
    /// Its process.
    pub process: u32,
    /// Its disk.
    pub disk: Disk,
    /// Its cache layer.
    pub layer: Layer,
    /// Jobs that it has at its disk at once.
    disk_concurrency: u32,
    /// Largest piece that the cache layer is given, bytes.
    granularity: u64,
    memory_bytes: u64,
    memory_free: u64,
    /// The least that was free.
    memory_low: u64,
    copies: Option<Copies>,
    cache: ReadCache,
    /// Bytes answered from the read cache.
    cached_bytes: u64,
    announced: Option<Announced>,
    /// Of what it has read through.
    kept: Kept<()>,
    /// Jobs at the disk.
    scheduled: u32,
    running: Vec<Running>,
    free_running: Vec<u32>,
    /// Write packets that wait for the cache layer to accept them.
    refused: VecDeque<DataPacket>,
    wake_at: Option<u64>,
    flushed: Vec<Job>,
    dropped: Vec<JobPiece>,
}

impl Server {
    /// An idle server.
    pub fn new(process: u32, config: &ServerConfig) -> Server {
        Server {
            process,
            disk: Disk::new(config.disk.clone()),
            layer: config.cache_layer.build(),
            disk_concurrency: config.disk_concurrency,
            granularity: config.cache_layer.granularity(),
            memory_bytes: config.memory_bytes - config.read_cache_bytes,
            memory_free: config.memory_bytes - config.read_cache_bytes,
            memory_low: config.memory_bytes - config.read_cache_bytes,
            copies: config.ram.map(Copies::new),
            cache: ReadCache::new(config.read_cache_bytes),
            cached_bytes: 0,
            announced: config.arrival_window.map(Announced::new),
            kept: Kept::new(config.cache_layer.keep()),
            scheduled: 0,
            running: Vec::new(),
            free_running: Vec::new(),
            refused: VecDeque::new(),
            wake_at: None,
            flushed: Vec::new(),
            dropped: Vec::new(),
        }
    }

    /// The most memory that requests took at a time, bytes.
    pub fn memory_max(&self) -> u64 {
        self.memory_bytes - self.memory_low
    }

    /// Bytes that reads got from the read cache.
    pub fn cached_bytes(&self) -> u64 {
        self.cached_bytes
    }

    /// Whether clients wait until it asks for the data of their writes.
    pub fn orders_arrivals(&self) -> bool {
        self.announced.is_some()
    }

    /// Whether it has nothing to do any more.
    pub fn is_idle(&self) -> bool {
        self.scheduled == 0
            && self.refused.is_empty()
            && self.announced.as_ref().is_none_or(Announced::is_empty)
            && self.layer.queued(Access::Read).entries == 0
            && self.layer.queued(Access::Write).entries == 0
    }

    /// Whether the disk has nothing to do while something is queued.
    pub fn idles_with_work(&self) -> bool {
        let queued = self.layer.queued(Access::Read).entries + self.layer.queued(Access::Write).entries;
        self.scheduled == 0 && queued > 0
    }

    /// Keeps what a read job has read through.
    fn keep_holes(&mut self, now: Nanos, job: &Job, parts: &[JobPiece]) {
        self.keep(|kept, layer| kept.completed(now, job, parts, |start, end| layer.has_write_in(job.file, start, end), |_, _| ()));
    }

    /// Changes what is kept, which takes memory.
    fn keep(&mut self, change: impl FnOnce(&mut Kept<()>, &Layer)) {
        let before = self.kept.bytes();
        change(&mut self.kept, &self.layer);
        self.take_memory(self.kept.bytes().saturating_sub(before));
        self.add_memory(before.saturating_sub(self.kept.bytes()));
    }

    /// True if a read needs no disk because its bytes were read through; their memory goes over to
    /// the reply.
    fn take_kept(&mut self, now: Nanos, piece: &Piece) -> bool {
        let mut found = false;
        self.keep(|kept, _| found = kept.take(now, piece.file, piece.offset, piece.bytes).is_some());
        if found {
            self.take_memory(piece.bytes);
        }
        found
    }

    fn take_memory(&mut self, bytes: u64) {
        self.memory_free = self.memory_free.saturating_sub(bytes);
        self.memory_low = self.memory_low.min(self.memory_free);
    }

    fn add_memory(&mut self, bytes: u64) {
        // Overlapping reads are answered with more bytes than were read, so the count might grow
        // beyond what there is.
        self.memory_free = (self.memory_free + bytes).min(self.memory_bytes);
    }
}
