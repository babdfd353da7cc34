//! `server_directed`: the server decides the order. A queue for each file and kind, sorted and
//! merged; the file with most queued bytes first (the one used last counts tenfold), in it what is
//! near, else what is large.

use std::collections::BTreeMap;

use weft_base::Nanos;

use super::sorted::{Entry, SortKey, Sorted};
use super::{ClassicConfig, DelayedWrites, FileOrder, NEAR_BYTES, PickRule};
use crate::chain::{Chain, Chains};
use crate::{Access, CacheLayer, FileKey, Job, JobPiece, LayerStats, Next, Piece, Queued};

/// How much more the file used last counts.
const LAST_FILE_WEIGHT: u64 = 10;

/// The layer. Write jobs have no parts: a write job of `n` bytes frees `n` bytes of memory.
#[derive(Clone, Debug, Default)]
pub struct ServerDirected {
    config: ClassicConfig,
    reads: Files,
    writes: Files,
    chains: Chains,
    last_file: Option<FileKey>,
    last_offset: Option<u64>,
    write_issued: Option<Nanos>,
    flushed: Vec<Job>,
    stats: LayerStats,
}

/// The queues of one kind.
#[derive(Clone, Debug, Default)]
struct Files {
    queues: BTreeMap<FileKey, Sorted>,
    bytes: u64,
}

impl Files {
    /// The file with most bytes, the first among equals.
    fn fullest(&self, last: Option<FileKey>, order: FileOrder) -> Option<FileKey> {
        let mut best = (0, None);
        for (&file, queue) in &self.queues {
            let weight = if last == Some(file) { LAST_FILE_WEIGHT } else { 1 };
            let bytes = queue.bytes().saturating_mul(weight);
            let first_of_equals = bytes > 0 && bytes == best.0 && best.1.is_some_and(|best| order.rank(file) < order.rank(best));
            if bytes > best.0 || first_of_equals {
                best = (bytes, Some(file));
            }
        }
        best.1
    }

    /// Lets a change of one queue count.
    fn change<T>(&mut self, file: FileKey, change: impl FnOnce(&mut Sorted) -> T) -> T {
        let queue = self.queues.entry(file).or_default();
        let before = queue.bytes();
        let result = change(queue);
        self.bytes = self.bytes - before + queue.bytes();
        result
    }

    fn queued(&self) -> Queued {
        Queued { entries: self.queues.values().map(|queue| queue.len() as u64).sum(), bytes: self.bytes }
    }
}

impl ServerDirected {
    /// An empty layer.
    pub fn new(config: &ClassicConfig) -> ServerDirected {
        ServerDirected { config: *config, ..ServerDirected::default() }
    }

    fn files(&mut self, access: Access) -> &mut Files {
        match access {
            Access::Read => &mut self.reads,
            Access::Write => &mut self.writes,
        }
    }

    /// The entry that is to be next, still queued.
    fn pick(&mut self, access: Access) -> Option<(FileKey, SortKey, Entry)> {
        let (last, order) = (self.last_file, self.config.file_order);
        let file = self.files(access).fullest(last, order)?;
        if last != Some(file) {
            (self.last_file, self.last_offset) = (None, None);
        }
        self.settle(access, file);
        let (rule, last_offset) = (self.config.rule, self.last_offset);
        let queue = &self.files(access).queues[&file];
        let (key, entry) = match rule {
            PickRule::Lowest => lowest_or_large(queue, last_offset),
            PickRule::Continue => continued_or_large(queue, last_offset),
        }?;
        Some((file, key, entry))
    }

    fn settle(&mut self, access: Access, file: FileKey) {
        let mut chains = std::mem::take(&mut self.chains);
        let granularity = self.config.granularity;
        self.files(access).change(file, |queue| queue.settle(granularity, &mut chains));
        self.chains = chains;
    }

    fn issue(&mut self, access: Access, (file, key, entry): (FileKey, SortKey, Entry), parts: &mut Vec<JobPiece>) -> Next {
        self.files(access).change(file, |queue| queue.remove(key, entry));
        self.chains.drain(entry.parts, parts);
        (self.last_file, self.last_offset) = (Some(file), Some(entry.end));
        let job = Job { access, file, offset: key.0, bytes: entry.end - key.0 };
        self.stats.note_job(&job);
        Next::Job(job)
    }

    fn is_held_back(&self, delayed: &DelayedWrites, now: Nanos) -> bool {
        self.writes.bytes < delayed.bytes_min && self.write_issued.is_some_and(|at| at + delayed.pause_ns > now)
    }
}

fn is_near(offset: u64, last_offset: Option<u64>) -> bool {
    last_offset.is_some_and(|last| offset.abs_diff(last) < NEAR_BYTES)
}

/// State T.
fn lowest_or_large(queue: &Sorted, last_offset: Option<u64>) -> Option<(SortKey, Entry)> {
    let close = queue.lowest()?;
    if is_near(close.0.0, last_offset) {
        return Some(close);
    }
    queue.largest_except(close.0).or(Some(close))
}

/// State P. Walking up, each entry before the last offset is nearer than the one before it; behind
/// the last offset only the first can be nearer still. So those never compete as large ones, and
/// the nearest is found without a walk.
fn continued_or_large(queue: &Sorted, last_offset: Option<u64>) -> Option<(SortKey, Entry)> {
    let Some(last) = last_offset else {
        let close = queue.lowest()?;
        return queue.largest_except(close.0).or(Some(close));
    };
    let (below, above) = (queue.last_before(last), queue.from(last).next());
    let (close, skipped) = match (below, above) {
        (_, Some(entry)) if entry.0.0 == last => return Some(entry),
        (Some(below), Some(above)) if last - below.0.0 <= above.0.0 - last => (below, 0),
        (_, Some(above)) => (above, 1),
        (below, None) => (below?, 0),
    };
    if is_near(close.0.0, last_offset) {
        return Some(close);
    }
    let size = |(key, entry): &(SortKey, Entry)| entry.end - key.0;
    let large = queue.from(last).skip(skipped).reduce(|best, entry| if size(&entry) > size(&best) { entry } else { best });
    large.or(Some(close))
}

impl CacheLayer for ServerDirected {
    fn add(&mut self, _now: Nanos, piece: Piece) {
        self.stats.note_added(&piece);
        match piece.access {
            Access::Read => {
                let parts = self.chains.one(super::fifo::part(&piece));
                self.reads.change(piece.file, |queue| queue.append(piece.offset, piece.bytes, parts));
            }
            Access::Write => {
                let loses_tails = self.config.loses_tails;
                let replaced = self.writes.change(piece.file, |queue| queue.overwrite(piece.offset, piece.bytes, loses_tails));
                self.stats.overwritten_bytes += replaced.overwritten;
                self.stats.lost_bytes += replaced.lost;
            }
        }
    }

    fn next(&mut self, now: Nanos, memory_free: u64, parts: &mut Vec<JobPiece>) -> Next {
        parts.clear();
        if let Some(read) = self.pick(Access::Read)
            && memory_free > read.2.end - read.1.0
        {
            return self.issue(Access::Read, read, parts);
        }
        let Some(write) = self.pick(Access::Write) else { return Next::Idle };
        if self.config.delayed.is_some_and(|delayed| self.is_held_back(&delayed, now)) {
            return Next::Idle;
        }
        self.write_issued = Some(now);
        self.issue(Access::Write, write, parts)
    }

    fn flush(&mut self, _now: Nanos, file: FileKey) {
        if self.config.delayed.is_none() || !self.writes.queues.contains_key(&file) {
            return;
        }
        self.settle(Access::Write, file);
        while let Some((key, entry)) = self.writes.queues[&file].lowest() {
            self.writes.change(file, |queue| queue.remove(key, entry));
            debug_assert_eq!(entry.parts, Chain::EMPTY);
            let job = Job { access: Access::Write, file, offset: key.0, bytes: entry.end - key.0 };
            self.stats.note_job(&job);
            self.flushed.push(job);
        }
    }

    fn take_flushed(&mut self, jobs: &mut Vec<Job>) {
        jobs.append(&mut self.flushed);
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

    const MIB: u64 = 1 << 20;

    fn piece(access: Access, file: u64, offset: u64, bytes: u64) -> Piece {
        Piece { access, file: FileKey(file), offset, bytes, tag: offset }
    }

    fn take(layer: &mut ServerDirected, now: u64) -> Option<(u64, u64, u64)> {
        match layer.next(Nanos(now), u64::MAX, &mut Vec::new()) {
            Next::Job(job) => Some((job.file.0, job.offset, job.bytes)),
            _ => None,
        }
    }

    fn layer(config: ClassicConfig) -> ServerDirected {
        ServerDirected::new(&config)
    }

    #[test]
    fn near_before_large_and_the_last_file_counts_tenfold() {
        let mut layer = layer(ClassicConfig::default());
        for (file, offset, bytes) in [(1, 0, 10), (1, 100 * MIB, 30), (1, 200 * MIB, 20), (2, 0, 59), (3, 0, 601)] {
            layer.add(Nanos(0), piece(Access::Read, file, offset, bytes));
        }
        assert_eq!(take(&mut layer, 0), Some((3, 0, 601)), "most bytes");
        assert_eq!(take(&mut layer, 0), Some((1, 100 * MIB, 30)), "file 1 has 60 bytes; no last offset there: the largest but the first");
        layer.add(Nanos(0), piece(Access::Read, 2, 300 * MIB, 240));
        assert_eq!(take(&mut layer, 0), Some((1, 200 * MIB, 20)), "30 x 10 > 299; the first is not near");
        layer.add(Nanos(0), piece(Access::Read, 1, 5 * MIB, 1));
        assert_eq!(take(&mut layer, 0), Some((2, 300 * MIB, 240)), "11 x 10 < 299");
        assert_eq!(take(&mut layer, 0), Some((2, 0, 59)));
        layer.add(Nanos(0), piece(Access::Read, 2, 2 * MIB, 9));
        layer.add(Nanos(0), piece(Access::Read, 2, 4 * MIB, 10));
        assert_eq!(take(&mut layer, 0), Some((2, 2 * MIB, 9)), "near what was last");
    }

    #[test]
    fn among_files_with_equally_many_bytes_the_order_decides() {
        let orders = [(FileOrder::Ascending, [3, 7, 12]), (FileOrder::Listed([7, 9, 3, 0, 1, 2, 4, 5, 6, 8]), [7, 3, 12])];
        for (file_order, expected) in orders {
            let mut layer = layer(ClassicConfig { file_order, ..ClassicConfig::default() });
            for file in [12, 7, 3] {
                layer.add(Nanos(0), piece(Access::Read, file, 0, 100));
            }
            assert_eq!([(); 3].map(|()| take(&mut layer, 0).expect("three are queued").0), expected);
        }
    }

    #[test]
    fn overwriting_with_and_without_the_lost_tail() {
        for loses_tails in [true, false] {
            let mut layer = layer(ClassicConfig { loses_tails, ..ClassicConfig::default() });
            layer.add(Nanos(0), piece(Access::Write, 1, 0, 100));
            layer.add(Nanos(0), piece(Access::Write, 1, 40, 20));
            let all = if loses_tails { 60 } else { 100 };
            assert_eq!((layer.queued(Access::Write).bytes, layer.stats().overwritten_bytes), (all, 20));
            assert_eq!(layer.stats().lost_bytes, 100 - all);
            assert_eq!(take(&mut layer, 0), Some((1, 0, all)));
        }
    }

    #[test]
    fn rule_p_continues_first_then_takes_the_nearest() {
        let mut layer = layer(ClassicConfig { rule: PickRule::Continue, ..ClassicConfig::default() });
        layer.add(Nanos(0), piece(Access::Write, 1, 50 * MIB, 100));
        assert_eq!(take(&mut layer, 0), Some((1, 50 * MIB, 100)));
        for (offset, bytes) in [(0, 90), (47 * MIB, 80), (50 * MIB + 100, 1), (52 * MIB, 2), (80 * MIB, 70), (90 * MIB, 71)] {
            layer.add(Nanos(0), piece(Access::Write, 1, offset, bytes));
        }
        assert_eq!(take(&mut layer, 0), Some((1, 50 * MIB + 100, 1)), "exactly where the last one ended");
        assert_eq!(take(&mut layer, 0), Some((1, 52 * MIB, 2)), "2 MiB away, the other 3");
        assert_eq!(
            take(&mut layer, 0),
            Some((1, 90 * MIB, 71)),
            "nothing is near; those before were each the nearest once, so none of them"
        );
        assert_eq!(take(&mut layer, 0), Some((1, 80 * MIB, 70)), "nothing is behind: the nearest");
    }

    #[test]
    fn delayed_writes_wait_for_bytes_or_time_and_a_flush_issues_them() {
        let delayed = Some(DelayedWrites { bytes_min: 100, pause_ns: 50 });
        let mut layer = layer(ClassicConfig { delayed, ..ClassicConfig::default() });
        layer.add(Nanos(0), piece(Access::Write, 1, 0, 10));
        assert_eq!(take(&mut layer, 0), Some((1, 0, 10)), "the first is not held back");
        layer.add(Nanos(1), piece(Access::Write, 1, 10, 10));
        assert_eq!(take(&mut layer, 49), None);
        assert_eq!(take(&mut layer, 50), Some((1, 10, 10)));
        layer.add(Nanos(50), piece(Access::Write, 1, 20, 99));
        assert_eq!(take(&mut layer, 51), None);
        layer.add(Nanos(51), piece(Access::Write, 2, 0, 1));
        assert_eq!(take(&mut layer, 51), Some((1, 20, 99)));
        layer.add(Nanos(52), piece(Access::Write, 2, 1, 1));
        layer.add(Nanos(52), piece(Access::Write, 2, 9, 1));
        layer.flush(Nanos(52), FileKey(2));
        let mut jobs = Vec::new();
        layer.take_flushed(&mut jobs);
        assert_eq!(jobs.iter().map(|job| (job.offset, job.bytes)).collect::<Vec<_>>(), [(0, 2), (9, 1)]);
        assert_eq!(layer.queued(Access::Write), Queued::default());
    }
}
