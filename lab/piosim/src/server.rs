//! The I/O servers: requests in, jobs to the disk in the order that the cache layer wants, data and
//! completions out (thesis section 4.6).

mod service;

use std::collections::VecDeque;

use weft_base::Nanos;
use weft_model::Disk;
use weft_sched::{Access, CacheLayer, Job, JobPiece, Keep, Kept, Layer, Piece};

/// Bytes of a request before its list of extents.
pub const REQUEST_BYTES: u64 = 20;
/// Bytes of each extent in a request.
pub const REQUEST_EXTENT_BYTES: u64 = 8;
/// Bytes of the message that ends a write.
pub const COMPLETION_BYTES: u64 = 15;

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
    memory_bytes: u64,
    memory_free: u64,
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
    pub fn new(process: u32, disk: Disk, layer: Layer, keep: Keep, memory_bytes: u64) -> Server {
        Server {
            process,
            disk,
            layer,
            memory_bytes,
            memory_free: memory_bytes,
            kept: Kept::new(keep),
            scheduled: 0,
            running: Vec::new(),
            free_running: Vec::new(),
            refused: VecDeque::new(),
            wake_at: None,
            flushed: Vec::new(),
            dropped: Vec::new(),
        }
    }

    /// Whether it has nothing to do any more.
    pub fn is_idle(&self) -> bool {
        self.scheduled == 0
            && self.refused.is_empty()
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
        self.memory_free = self.memory_free.saturating_sub(self.kept.bytes().saturating_sub(before));
        self.add_memory(before.saturating_sub(self.kept.bytes()));
    }

    /// True if a read needs no disk because its bytes were read through; their memory goes over to
    /// the reply.
    fn take_kept(&mut self, now: Nanos, piece: &Piece) -> bool {
        let mut found = false;
        self.keep(|kept, _| found = kept.take(now, piece.file, piece.offset, piece.bytes).is_some());
        if found {
            self.memory_free = self.memory_free.saturating_sub(piece.bytes);
        }
        found
    }

    fn add_memory(&mut self, bytes: u64) {
        // Overlapping reads are answered with more bytes than were read, so the count might grow
        // beyond what there is.
        self.memory_free = (self.memory_free + bytes).min(self.memory_bytes);
    }
}
