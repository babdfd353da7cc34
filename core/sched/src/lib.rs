//! Cache layers of a data server: which queued access the disk gets next, decided by pure functions
//! of state and time. The real data server and the simulator run the same code. It never does I/O
//! and never reads a clock.
//!
//! The owner of a layer asks [`CacheLayer::accepts`] before it takes the data of a write, hands
//! pieces to [`CacheLayer::add`], and whenever the disk has room for a job, asks
//! [`CacheLayer::next`]. Data itself never comes here; a piece carries a tag by which its owner
//! knows it again.
//!
//! [`classic`] holds the four layers of the 2009 thesis with the exact rules that made its numbers,
//! [`improved`] the same four with the rules that real servers use.

mod chain;
pub mod classic;
pub mod improved;
mod kept;
mod piece;
mod places;

use std::fmt;
use std::str::FromStr;

use weft_base::Nanos;

pub use kept::{Keep, Kept};
pub use piece::{Access, FileKey, Job, JobPiece, LayerStats, Next, Piece, Queued};
pub use places::{AccessCounts, Distance, Places};

use classic::{Aggregation, ClassicConfig, Fifo, ServerDirected};
use improved::{Improved, ImprovedConfig};

/// What every cache layer does.
pub trait CacheLayer {
    /// True if the data of a write of `bytes` bytes may be taken now, with `memory_free` bytes of
    /// memory free. If not, the sender is held back until a job has completed.
    fn accepts(&self, bytes: u64, memory_free: u64) -> bool {
        memory_free > bytes
    }

    /// Queues a piece. Pieces larger than the I/O granularity are cut by the caller
    /// ([`Piece::cut`]).
    fn add(&mut self, now: Nanos, piece: Piece);

    /// What the disk shall do next. For a job, `parts` holds the original pieces it consists of, in
    /// the order that they were merged (reads are answered in this order); else it is empty. Memory
    /// for a read is reserved by the caller when it gets the job, `memory_free` says how much there
    /// is; writes brought theirs when they were accepted.
    fn next(&mut self, now: Nanos, memory_free: u64, parts: &mut Vec<JobPiece>) -> Next;

    /// Removes queued reads that lie wholly within a read job which the disk has just done, and
    /// appends them to its `parts` (which are in order of their offsets, and are again): they
    /// arrived while it was under way, and their bytes are there. To be asked before
    /// [`CacheLayer::completed`].
    fn take_covered(&mut self, job: &Job, parts: &mut Vec<JobPiece>) {
        let _ = (job, parts);
    }

    /// A job has left the disk.
    fn completed(&mut self, now: Nanos, job: &Job) {
        let _ = (now, job);
    }

    /// Queued writes of the file shall go to the disk, as far as the layer does that at all.
    fn flush(&mut self, now: Nanos, file: FileKey) {
        let _ = (now, file);
    }

    /// Appends jobs that a flush has put to the disk at once, beside whatever the disk does
    /// already.
    fn take_flushed(&mut self, jobs: &mut Vec<Job>) {
        let _ = jobs;
    }

    /// Appends what newer writes have replaced in the queue since the last call: these bytes will
    /// be in no job. The layers of 2009 keep no account of it, as the original never freed this
    /// memory.
    fn take_dropped(&mut self, parts: &mut Vec<JobPiece>) {
        let _ = parts;
    }

    /// True if a write of some of these bytes is queued and not begun, or if that is not known.
    fn has_write_in(&self, file: FileKey, start: u64, end: u64) -> bool {
        let _ = (file, start, end);
        true
    }

    /// What waits.
    fn queued(&self, access: Access) -> Queued;

    /// Counters since the layer was made.
    fn stats(&self) -> LayerStats;
}

/// Which layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayerKind {
    /// Access by access.
    None,
    /// Writes are answered before they are on the disk; first in, first out.
    WriteBehind,
    /// And what touches becomes one access.
    Aggregation,
    /// And the server decides the order.
    #[default]
    ServerDirected,
}

impl LayerKind {
    /// All, in the order of the thesis.
    pub const ALL: [LayerKind; 4] = [LayerKind::None, LayerKind::WriteBehind, LayerKind::Aggregation, LayerKind::ServerDirected];

    /// The name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            LayerKind::None => "none",
            LayerKind::WriteBehind => "write_behind",
            LayerKind::Aggregation => "aggregation",
            LayerKind::ServerDirected => "server_directed",
        }
    }

    /// A line for people.
    pub const fn about(self) -> &'static str {
        match self {
            LayerKind::None => "Every access as it comes",
            LayerKind::WriteBehind => "In the order of arrival; writes that continue each other become one",
            LayerKind::Aggregation => "The oldest first; what touches becomes one",
            LayerKind::ServerDirected => "In the order of places on the disk; what touches becomes one",
        }
    }
}

impl fmt::Display for LayerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LayerKind {
    type Err = String;

    fn from_str(name: &str) -> Result<LayerKind, String> {
        let known = LayerKind::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| {
            format!("unknown variant `{name}`, expected one of {}", LayerKind::ALL.map(|kind| format!("`{kind}`")).join(", "))
        })
    }
}

/// Any layer, chosen at run time.
#[derive(Clone, Debug)]
pub enum Layer {
    /// 2009 `none` and `write_behind`.
    ClassicFifo(Fifo),
    /// 2009 `aggregation`.
    ClassicAggregation(Aggregation),
    /// 2009 `server_directed`.
    ClassicServerDirected(ServerDirected),
    /// Any kind with the rules of today.
    Improved(Box<Improved>),
}

impl Layer {
    /// A layer with the rules of 2009.
    pub fn classic(kind: LayerKind, config: &ClassicConfig) -> Layer {
        match kind {
            LayerKind::None => Layer::ClassicFifo(Fifo::none(config)),
            LayerKind::WriteBehind => Layer::ClassicFifo(Fifo::write_behind(config)),
            LayerKind::Aggregation => Layer::ClassicAggregation(Aggregation::new(config)),
            LayerKind::ServerDirected => Layer::ClassicServerDirected(ServerDirected::new(config)),
        }
    }

    /// A layer with the rules of today.
    pub fn improved(kind: LayerKind, config: &ImprovedConfig) -> Layer {
        Layer::Improved(Box::new(Improved::new(kind, config)))
    }
}

/// The same call, whatever the layer.
macro_rules! each {
    ($layer:expr, $inner:ident => $call:expr) => {
        match $layer {
            Layer::ClassicFifo($inner) => $call,
            Layer::ClassicAggregation($inner) => $call,
            Layer::ClassicServerDirected($inner) => $call,
            Layer::Improved($inner) => $call,
        }
    };
}

impl CacheLayer for Layer {
    fn accepts(&self, bytes: u64, memory_free: u64) -> bool {
        each!(self, layer => layer.accepts(bytes, memory_free))
    }

    fn add(&mut self, now: Nanos, piece: Piece) {
        each!(self, layer => layer.add(now, piece));
    }

    fn next(&mut self, now: Nanos, memory_free: u64, parts: &mut Vec<JobPiece>) -> Next {
        each!(self, layer => layer.next(now, memory_free, parts))
    }

    fn take_covered(&mut self, job: &Job, parts: &mut Vec<JobPiece>) {
        each!(self, layer => layer.take_covered(job, parts));
    }

    fn completed(&mut self, now: Nanos, job: &Job) {
        each!(self, layer => layer.completed(now, job));
    }

    fn flush(&mut self, now: Nanos, file: FileKey) {
        each!(self, layer => layer.flush(now, file));
    }

    fn take_flushed(&mut self, jobs: &mut Vec<Job>) {
        each!(self, layer => layer.take_flushed(jobs));
    }

    fn take_dropped(&mut self, parts: &mut Vec<JobPiece>) {
        each!(self, layer => layer.take_dropped(parts));
    }

    fn has_write_in(&self, file: FileKey, start: u64, end: u64) -> bool {
        each!(self, layer => layer.has_write_in(file, start, end))
    }

    fn queued(&self, access: Access) -> Queued {
        each!(self, layer => layer.queued(access))
    }

    fn stats(&self) -> LayerStats {
        each!(self, layer => layer.stats())
    }
}
