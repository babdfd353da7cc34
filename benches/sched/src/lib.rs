//! What the cache layers cost: time for each addition to a queue of n pieces, and for each piece on
//! its way out, for n from 10^4 to 10^6. It never judges; it prints the ratio between the largest
//! and the smallest queue, which for O(log n) is 1.5 plus what caches of the processor add
//! (`tree_ns` is a bare ordered map of the same size in the same run).

use std::collections::BTreeMap;
use std::time::Instant;

use weft_base::Nanos;
use weft_sched::classic::ClassicConfig;
use weft_sched::improved::{DiskCost, ImprovedConfig};
use weft_sched::{Access, CacheLayer, FileKey, JobPiece, Layer, LayerKind, Next, Piece};

/// How the pieces of a measurement arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// In random order, every second one missing, so that nothing can be merged.
    Scattered,
    /// In random order, all of one range, so that everything becomes one access.
    Dense,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Pieces in the queue when the measured additions begin; they add a tenth.
    pub pieces: u64,
    /// Nanoseconds for each of the additions.
    pub add_ns: f64,
    /// Nanoseconds for each piece until the queue is empty.
    pub next_ns: f64,
    /// Jobs that all pieces became.
    pub jobs: u64,
    /// Nanoseconds for each insertion into a bare ordered map of as many keys.
    pub tree_ns: f64,
}

/// Bytes of a piece.
const PIECE_BYTES: u64 = 512;

/// The layers that are measured.
pub fn layers() -> Vec<(&'static str, Layer)> {
    let classic = ClassicConfig::default();
    let improved = ImprovedConfig { disk: DiskCost { access_ns: 0, bytes_per_s: 1, continues_free: false }, ..ImprovedConfig::default() };
    vec![
        ("2009 aggregation", Layer::classic(LayerKind::Aggregation, &classic)),
        ("2009 server_directed", Layer::classic(LayerKind::ServerDirected, &classic)),
        ("server_directed", Layer::improved(LayerKind::ServerDirected, &improved)),
    ]
}

/// Fills the layer with `pieces` writes, measures the addition of a tenth more, then empties it.
pub fn measure(mut layer: Layer, pattern: Pattern, pieces: u64) -> Row {
    let step = if pattern == Pattern::Scattered { 2 * PIECE_BYTES } else { PIECE_BYTES };
    let order = shuffled(pieces + pieces / 10);
    let (first, more) = order.split_at(pieces as usize);
    let write = |layer: &mut Layer, place: u64| {
        let piece = Piece { access: Access::Write, file: FileKey(1), offset: place * step, bytes: PIECE_BYTES, tag: place };
        layer.add(Nanos(0), piece);
    };
    first.iter().for_each(|place| write(&mut layer, *place));
    let began = Instant::now();
    more.iter().for_each(|place| write(&mut layer, *place));
    let add_ns = began.elapsed().as_nanos() as f64 / more.len() as f64;

    let mut parts: Vec<JobPiece> = Vec::new();
    let (mut jobs, mut bytes) = (0, 0);
    let began = Instant::now();
    while let Next::Job(job) = layer.next(Nanos(0), u64::MAX, &mut parts) {
        layer.completed(Nanos(0), &job);
        jobs += 1;
        bytes += job.bytes;
    }
    let next_ns = began.elapsed().as_nanos() as f64 / order.len() as f64;
    assert_eq!(bytes, order.len() as u64 * PIECE_BYTES, "everything leaves the queue once");

    let mut tree: BTreeMap<(u64, u64, u64), (u64, u64, u64)> = first.iter().map(|place| ((1, *place, 0), (*place, 0, 0))).collect();
    let began = Instant::now();
    for place in more {
        tree.insert((1, *place, 0), (*place, 0, 0));
    }
    let tree_ns = began.elapsed().as_nanos() as f64 / more.len() as f64;
    assert_eq!(tree.len(), order.len());
    Row { pieces, add_ns, next_ns, jobs, tree_ns }
}

/// The numbers below `count` in an order that repeats with every run.
fn shuffled(count: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for last in (1..numbers.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        numbers.swap(last, (state % (last as u64 + 1)) as usize);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_pieces_become_few_jobs_and_scattered_ones_as_many() {
        for (name, layer) in layers() {
            let dense = measure(layer.clone(), Pattern::Dense, 30_000);
            assert!(dense.jobs <= 3, "{name}: 16 MiB in {} jobs", dense.jobs);
            assert_eq!(measure(layer, Pattern::Scattered, 1000).jobs, 1100, "{name}");
        }
    }
}
