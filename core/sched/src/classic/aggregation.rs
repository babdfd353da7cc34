//! `aggregation`: the oldest access, plus every queued one of its kind and file that touches what
//! was gathered so far.
//!
//! The original walks the queue again and again: an entry that starts at the present end is
//! appended, one that ends at the present start is put in front; walks go on until one finds
//! nothing, and everything stops when a match would exceed the granularity. Two ordered indices (by
//! start, by end) find the next entry that such a walk would have met in O(log n).

use std::collections::{BTreeSet, VecDeque};

use weft_base::Nanos;

use super::ClassicConfig;
use super::fifo::part;
use crate::{Access, CacheLayer, FileKey, Job, JobPiece, LayerStats, Next, Piece, Queued};

/// Merges whatever touches.
#[derive(Clone, Debug)]
pub struct Aggregation {
    granularity: u64,
    reads: Queue,
    writes: Queue,
    stats: LayerStats,
}

/// Pieces of one kind in the order of their arrival, which numbers them.
#[derive(Clone, Debug, Default)]
struct Queue {
    /// `None`: taken by a merge.
    pieces: VecDeque<Option<Piece>>,
    /// Number of the first of them.
    first: u64,
    by_start: BTreeSet<(FileKey, u64, u64)>,
    by_end: BTreeSet<(FileKey, u64, u64)>,
    bytes: u64,
}

impl Aggregation {
    /// An empty layer.
    pub fn new(config: &ClassicConfig) -> Aggregation {
        Aggregation { granularity: config.granularity, reads: Queue::default(), writes: Queue::default(), stats: LayerStats::default() }
    }
}

impl Queue {
    fn add(&mut self, piece: Piece) {
        let number = self.first + self.pieces.len() as u64;
        self.by_start.insert((piece.file, piece.offset, number));
        self.by_end.insert((piece.file, piece.end(), number));
        self.bytes += piece.bytes;
        self.pieces.push_back(Some(piece));
    }

    fn oldest(&self) -> Option<Piece> {
        self.pieces.front().copied().flatten()
    }

    fn piece(&self, number: u64) -> Piece {
        self.pieces[(number - self.first) as usize].expect("indexed pieces are queued")
    }

    fn take(&mut self, number: u64) -> Piece {
        let piece = self.piece(number);
        self.pieces[(number - self.first) as usize] = None;
        self.by_start.remove(&(piece.file, piece.offset, number));
        self.by_end.remove(&(piece.file, piece.end(), number));
        self.bytes -= piece.bytes;
        while let Some(None) = self.pieces.front() {
            self.pieces.pop_front();
            self.first += 1;
        }
        piece
    }

    /// The first piece from number `from` on that touches the job.
    fn next_touching(&self, job: &Job, from: u64) -> Option<u64> {
        let first = |set: &BTreeSet<(FileKey, u64, u64)>, at: u64| {
            set.range((job.file, at, from)..=(job.file, at, u64::MAX)).next().map(|&(_, _, number)| number)
        };
        match (first(&self.by_start, job.end()), first(&self.by_end, job.offset)) {
            (Some(behind), Some(before)) => Some(behind.min(before)),
            (behind, before) => behind.or(before),
        }
    }

    fn gather(&mut self, access: Access, granularity: u64, parts: &mut Vec<JobPiece>) -> Option<Job> {
        self.oldest()?;
        let base = self.take(self.first);
        parts.push(part(&base));
        let mut job = Job { access, file: base.file, offset: base.offset, bytes: base.bytes };
        let (mut from, mut changed) = (0, false);
        loop {
            let Some(number) = self.next_touching(&job, from) else {
                if !changed {
                    return Some(job);
                }
                (from, changed) = (0, false);
                continue;
            };
            let piece = self.piece(number);
            if job.bytes + piece.bytes > granularity {
                return Some(job);
            }
            self.take(number);
            job.offset = job.offset.min(piece.offset);
            job.bytes += piece.bytes;
            parts.push(part(&piece));
            (from, changed) = (number + 1, true);
        }
    }

    fn queued(&self) -> Queued {
        Queued { entries: self.by_start.len() as u64, bytes: self.bytes }
    }
}

impl CacheLayer for Aggregation {
    fn add(&mut self, _now: Nanos, piece: Piece) {
        self.stats.note_added(&piece);
        match piece.access {
            Access::Read => self.reads.add(piece),
            Access::Write => self.writes.add(piece),
        }
    }

    fn next(&mut self, _now: Nanos, memory_free: u64, parts: &mut Vec<JobPiece>) -> Next {
        parts.clear();
        let job = match self.reads.oldest() {
            // The memory is asked for the base alone.
            Some(base) if memory_free > base.bytes => self.reads.gather(Access::Read, self.granularity, parts),
            _ => self.writes.gather(Access::Write, self.granularity, parts),
        };
        job.inspect(|job| self.stats.note_job(job)).map_or(Next::Idle, Next::Job)
    }

    fn queued(&self, access: Access) -> Queued {
        match access {
            Access::Read => self.reads.queued(),
            Access::Write => self.writes.queued(),
        }
    }

    fn stats(&self) -> LayerStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The walk of the original, literally.
    fn walk(queue: &mut Vec<Piece>, granularity: u64) -> Option<(u64, u64, Vec<u64>)> {
        if queue.is_empty() {
            return None;
        }
        let base = queue.remove(0);
        let (mut start, mut end, mut tags) = (base.offset, base.end(), vec![base.tag]);
        loop {
            let (mut at, mut changed) = (0, false);
            while at < queue.len() {
                let piece = queue[at];
                if piece.file == base.file && (piece.offset == end || piece.end() == start) {
                    if end - start + piece.bytes > granularity {
                        return Some((start, end - start, tags));
                    }
                    (start, end) = (start.min(piece.offset), end.max(piece.end()));
                    tags.push(piece.tag);
                    queue.remove(at);
                    changed = true;
                } else {
                    at += 1;
                }
            }
            if !changed {
                return Some((start, end - start, tags));
            }
        }
    }

    proptest! {
        #[test]
        fn gathers_what_the_repeated_walk_gathers(
            pieces in prop::collection::vec((0u64..2, 0u64..12, 1u64..4), 0..60),
            granularity in 1u64..14,
        ) {
            let mut layer = Aggregation::new(&ClassicConfig { granularity, ..ClassicConfig::default() });
            let mut queue = Vec::new();
            for (tag, (file, offset, bytes)) in pieces.into_iter().enumerate() {
                let piece = Piece { access: Access::Write, file: FileKey(file), offset, bytes, tag: tag as u64 };
                layer.add(Nanos(0), piece);
                queue.push(piece);
            }
            let mut parts = Vec::new();
            while let Some((offset, bytes, tags)) = walk(&mut queue, granularity) {
                let Next::Job(job) = layer.next(Nanos(0), 0, &mut parts) else { panic!("the queue is not empty") };
                prop_assert_eq!((job.offset, job.bytes), (offset, bytes));
                prop_assert_eq!(parts.iter().map(|part| part.tag).collect::<Vec<_>>(), tags);
                prop_assert_eq!(layer.queued(Access::Write).entries, queue.len() as u64);
                prop_assert_eq!(layer.queued(Access::Write).bytes, queue.iter().map(|piece| piece.bytes).sum::<u64>());
            }
            prop_assert_eq!(layer.next(Nanos(0), 0, &mut parts), Next::Idle);
        }
    }

    #[test]
    fn a_read_needs_memory_for_its_base_only() {
        let mut layer = Aggregation::new(&ClassicConfig::default());
        for offset in [10, 0, 20] {
            layer.add(Nanos(0), Piece { access: Access::Read, file: FileKey(1), offset, bytes: 10, tag: offset });
        }
        let mut parts = Vec::new();
        assert_eq!(layer.next(Nanos(0), 10, &mut parts), Next::Idle);
        let all = Job { access: Access::Read, file: FileKey(1), offset: 0, bytes: 30 };
        assert_eq!(layer.next(Nanos(0), 11, &mut parts), Next::Job(all));
        assert_eq!(parts.iter().map(|part| part.tag).collect::<Vec<_>>(), [10, 0, 20], "in the order of merging");
    }
}
