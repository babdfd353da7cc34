//! The layer: two lanes, the order between them, and the choice of the next job.
//!
//! # How order is kept
//! A read that overlaps a queued write must not overtake it, and a write must not overtake a read.
//! So:
//! 1. A read that overlaps a queued write is *blocked*: it waits outside the lanes, and so does
//!    everything after it that lies within the bounds of what is blocked in its file. Thus whatever
//!    read is in a lane is older than all writes there that it overlaps.
//! 2. A write job does not start while a read in the lane overlaps it; that read starts first.
//! 3. Nothing starts that overlaps a job on the disk, unless both are reads.
//!
//! Writes that block a read are served before anything that is not overdue, so a blocked read waits
//! little longer than any other.

use std::collections::{BTreeMap, VecDeque};

use weft_base::Nanos;

use super::ImprovedConfig;
use super::lane::{FragmentKey, Lane, Stretch};
use crate::{Access, CacheLayer, FileKey, Job, JobPiece, LayerKind, LayerStats, Next, Piece, Queued};

/// So many jobs are chosen by place between two that are chosen because they are overdue: an
/// overloaded disk must not fall back to the order of arrival.
const PLACED_BETWEEN_OVERDUE: u32 = 8;
/// A sweep turns back for what has arrived late at most so many times the longest hole behind it.
const BEHIND: u64 = 64;
/// A fragment so many times as long as the longest hole is served when it is the oldest: nearly all
/// of its time is its transfer, so the order of places gains next to nothing, and requests that are
/// served one after another are done sooner than those that take turns.
const LONG: u64 = 8;
/// For each fragment of a round, and besides, so many that have arrived later may be served in it.
const LATE_EACH: usize = 2;
/// A read that does not fit into memory is cut, but not smaller than this.
const READ_BYTES_MIN: u64 = 64 << 10;

/// A layer with the rules of today.
#[derive(Clone, Debug)]
pub struct Improved {
    kind: LayerKind,
    config: ImprovedConfig,
    hole: u64,
    reads: Lane,
    writes: Lane,
    blocked: BTreeMap<FileKey, Blocked>,
    blocked_total: Counts,
    on_disk: Vec<Job>,
    arrivals: u64,
    clock: Clock,
    /// Where the sweep is: the end of the last job.
    place: (FileKey, u64),
    placed_left: u32,
    /// So many late fragments may still be served in the round; reads and writes.
    late_left: [usize; 2],
    /// Writes that arrived up to this number are no longer held back.
    release: u64,
    /// Files that are being flushed: what had arrived up to the number and lies behind the offset
    /// is still to go. Not more: where clients are writing, a flush would take every write by
    /// itself as it comes.
    flushes: BTreeMap<FileKey, (u64, u64)>,
    dropped: Vec<JobPiece>,
    stats: LayerStats,
}

/// What waits in one file for writes to be done, in the order of arrival.
#[derive(Clone, Debug)]
struct Blocked {
    pieces: VecDeque<(u64, Nanos, Piece)>,
    start: u64,
    end: u64,
}

/// Knows roughly how many pieces had arrived at a time not long ago.
#[derive(Clone, Debug)]
struct Clock {
    /// Nanoseconds between two marks.
    step_ns: u64,
    /// Times with the number of the first piece that arrived then.
    marks: VecDeque<(Nanos, u64)>,
}

impl Clock {
    /// Marks an age are kept by so many.
    const MARKS: u64 = 16;

    /// One that looks back `age_ns`.
    fn new(age_ns: u64) -> Clock {
        Clock { step_ns: age_ns / Clock::MARKS, marks: VecDeque::new() }
    }

    /// Piece `number` has arrived.
    fn tick(&mut self, now: Nanos, number: u64) {
        if self.marks.back().is_none_or(|(last, _)| last.0 + self.step_ns < now.0) {
            self.marks.push_back((now, number));
            if self.marks.len() as u64 > 2 * Clock::MARKS {
                self.marks.pop_front();
            }
        }
    }

    /// The number of a piece before which all had arrived at this time; 0 if that is too long ago.
    fn arrivals_at(&self, time: Nanos) -> u64 {
        let at = self.marks.partition_point(|(mark, _)| *mark <= time);
        at.checked_sub(1).map_or(0, |at| self.marks[at].1)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    reads: Queued,
    writes: Queued,
}

impl Counts {
    fn of(&mut self, access: Access) -> &mut Queued {
        match access {
            Access::Read => &mut self.reads,
            Access::Write => &mut self.writes,
        }
    }
}

impl Improved {
    /// An empty layer.
    pub fn new(kind: LayerKind, config: &ImprovedConfig) -> Improved {
        let hole = if kind == LayerKind::ServerDirected { config.disk.hole_bytes_max() } else { 0 };
        Improved {
            kind,
            config: *config,
            hole,
            reads: Lane::new(kind == LayerKind::ServerDirected),
            writes: Lane::new(kind == LayerKind::ServerDirected),
            blocked: BTreeMap::new(),
            blocked_total: Counts::default(),
            on_disk: Vec::new(),
            arrivals: 0,
            clock: Clock::new(config.delay.map_or(0, |delay| delay.age_ns)),
            place: (FileKey(0), 0),
            placed_left: 0,
            late_left: [0; 2],
            release: 0,
            flushes: BTreeMap::new(),
            dropped: Vec::new(),
            stats: LayerStats::default(),
        }
    }

    /// Puts a piece into its lane.
    fn admit(&mut self, number: u64, since: Nanos, piece: &Piece) {
        match piece.access {
            Access::Read => self.reads.append(number, since, piece),
            Access::Write => {
                self.stats.overwritten_bytes += self.writes.overwrite(number, since, piece, &mut self.dropped);
            }
        }
    }

    /// Lets go what is no longer blocked in a file.
    fn unblock(&mut self, file: FileKey) {
        while let Some(blocked) = self.blocked.get_mut(&file) {
            let Some(&(number, since, piece)) = blocked.pieces.front() else {
                self.blocked.remove(&file);
                return;
            };
            if piece.access == Access::Read && self.writes.has_write_in(file, piece.offset, piece.end()).is_some() {
                return;
            }
            blocked.pieces.pop_front();
            let counts = self.blocked_total.of(piece.access);
            counts.entries -= 1;
            counts.bytes -= piece.bytes;
            self.admit(number, since, &piece);
        }
    }

    /// Tries candidates in the order of their right to be next.
    fn choose(&mut self, now: Nanos, memory_free: u64) -> Option<(Access, Stretch)> {
        let reads_fit = !self.reads.is_empty() && memory_free >= READ_BYTES_MIN.min(self.config.granularity);
        if self.placed_left > 0 {
            self.placed_left -= 1;
        } else if let Some((access, key)) = self.overdue(now, reads_fit) {
            self.placed_left = PLACED_BETWEEN_OVERDUE;
            return self.span(access, key, memory_free);
        }
        if let Some(key) = self.awaited_write() {
            return self.span(Access::Write, key, memory_free);
        }
        if reads_fit {
            let key = self.by_place(Access::Read, u64::MAX)?;
            return self.span(Access::Read, key, memory_free);
        }
        let key = self.flushed_write().or_else(|| self.ripe_write(now, memory_free))?;
        self.span(Access::Write, key, memory_free)
    }

    /// The access whose deadline passed first.
    fn overdue(&self, now: Nanos, reads_fit: bool) -> Option<(Access, FragmentKey)> {
        let held_ns = self.config.delay.map_or(0, |delay| delay.age_ns);
        let read = self.reads.oldest().filter(|_| reads_fit).map(|(key, since)| (since + self.config.read_deadline_ns, Access::Read, key));
        let write = self.writes.oldest().map(|(key, since)| (since + held_ns + self.config.write_deadline_ns, Access::Write, key));
        let first = match (read, write) {
            (Some(read), Some(write)) => read.min(write),
            (read, write) => read.or(write)?,
        };
        (first.0 <= now).then_some((first.1, first.2))
    }

    /// A write for which a read waits that is the oldest of those.
    fn awaited_write(&self) -> Option<FragmentKey> {
        let heads = self.blocked.values().filter_map(|blocked| blocked.pieces.front());
        let (_, _, read) = heads.min_by_key(|(number, _, _)| *number)?;
        self.writes.has_write_in(read.file, read.offset, read.end())
    }

    /// The next one by the rule of the layer, of those that arrived up to this number.
    fn by_place(&mut self, access: Access, newest: u64) -> Option<FragmentKey> {
        let (lane, late_left) = match access {
            Access::Read => (&mut self.reads, &mut self.late_left[0]),
            Access::Write => (&mut self.writes, &mut self.late_left[1]),
        };
        let (oldest, _) = lane.oldest()?;
        let is_long = self.hole > 0 && lane.bytes_of(oldest) >= LONG * self.hole;
        if self.kind != LayerKind::ServerDirected || is_long {
            return Some(oldest);
        }
        if let Some(fragments) = lane.begin_round(newest) {
            *late_left = LATE_EACH * (fragments + 1);
        }
        let (file, offset) = self.place;
        let next = lane.sweep(file, offset)?;
        let ahead = next >= (file, offset, 0);
        let late = lane.fresh_from(file, offset.saturating_sub(BEHIND * self.hole));
        let is_on_the_way = |late: &FragmentKey| if ahead { *late < next } else { late.1 < offset };
        match late.filter(|late| *late_left > 0 && late.2 <= newest && is_on_the_way(late)) {
            Some(late) => {
                *late_left -= 1;
                Some(late)
            }
            None => Some(next),
        }
    }

    /// The next write of a flush; ends flushes that have nothing left.
    fn flushed_write(&mut self) -> Option<FragmentKey> {
        while let Some((&file, &(from, newest))) = self.flushes.first_key_value() {
            match self.writes.first_from(file, from, newest) {
                Some(key) => {
                    self.flushes.insert(file, (key.1, newest));
                    return Some(key);
                }
                None => self.flushes.remove(&file),
            };
        }
        None
    }

    /// The next write, if writes are not held back.
    fn ripe_write(&mut self, now: Nanos, memory_free: u64) -> Option<FragmentKey> {
        let (oldest, since) = self.writes.oldest()?;
        let Some(delay) = self.config.delay else { return self.by_place(Access::Write, u64::MAX) };
        let bytes = self.writes.queued().bytes;
        if bytes >= delay.bytes || bytes > memory_free {
            self.release = self.arrivals;
        } else if oldest.2 > self.release {
            if since + delay.age_ns > now {
                return None;
            }
            // What has come just now is where its neighbours are still coming.
            self.release = oldest.2.max(self.clock.arrivals_at(Nanos(now.0.saturating_sub(delay.age_ns / 2))));
        }
        self.by_place(Access::Write, self.release)
    }

    /// The job around a fragment, by the rule of the layer.
    fn span(&self, access: Access, key: FragmentKey, memory_free: u64) -> Option<(Access, Stretch)> {
        let (lane, limit, hole) = match access {
            Access::Read => (&self.reads, self.config.granularity.min(memory_free), self.hole),
            Access::Write => (&self.writes, self.config.granularity, 0),
        };
        let span = match (self.kind, access) {
            (LayerKind::None, _) | (LayerKind::WriteBehind, Access::Read) => lane.alone(key, limit),
            (LayerKind::WriteBehind, Access::Write) => lane.following(key, limit),
            // What lies behind a hole may wait: its price is the same when the disk has come to the
            // hole, and by then it may be wanted.
            (LayerKind::ServerDirected, Access::Read) if self.config.disk.continues_free => lane.touching(key, limit, 0),
            (LayerKind::Aggregation | LayerKind::ServerDirected, _) => lane.touching(key, limit, hole),
        };
        if access == Access::Write
            && let Some(read) = self.reads.first_overlapping(key.0, span.start(), span.end)
        {
            // Whoever holds all the memory can still be read from: a part of the reserve is free.
            return (memory_free > 0).then(|| self.span(Access::Read, read, memory_free)).flatten();
        }
        let overlaps = |job: &Job| {
            job.file == key.0 && span.overlaps(job.offset, job.end()) && (access == Access::Write || job.access == Access::Write)
        };
        (!self.on_disk.iter().any(overlaps)).then_some((access, span))
    }

    fn start(&mut self, (access, span): (Access, Stretch), parts: &mut Vec<JobPiece>) -> Job {
        let file = span.first.0;
        let offset = if access == Access::Read { self.read_from(file, span.start()) } else { span.start() };
        match access {
            Access::Read => self.stats.sieved_bytes += self.reads.take(span, parts) + (span.start() - offset),
            Access::Write => {
                self.writes.take(span, parts);
                self.unblock(file);
            }
        }
        let job = Job { access, file, offset, bytes: span.end - offset };
        self.place = (file, span.end);
        self.on_disk.push(job);
        self.stats.note_job(&job);
        job
    }

    /// Where a read begins for which the first wanted byte is at `start`: at the place of the disk,
    /// if reading the hole from there costs less than to skip it.
    fn read_from(&self, file: FileKey, start: u64) -> u64 {
        let (place_file, place) = self.place;
        let is_near = self.config.disk.continues_free && place_file == file && place < start && start - place <= self.hole;
        let is_changing = |job: &Job| job.access == Access::Write && job.file == file && job.offset < start && place < job.end();
        if is_near && !self.on_disk.iter().any(is_changing) { place } else { start }
    }

    /// When writes that are held back become ripe.
    fn ripe_at(&self) -> Next {
        match (self.config.delay, self.writes.oldest()) {
            (Some(delay), Some((_, since))) => Next::At(since + delay.age_ns),
            _ => Next::Idle,
        }
    }
}

impl CacheLayer for Improved {
    fn accepts(&self, bytes: u64, memory_free: u64) -> bool {
        match self.kind {
            LayerKind::None => self.writes.is_empty() && self.blocked_total.writes.entries == 0,
            _ => memory_free > bytes.saturating_add(self.config.read_reserve),
        }
    }

    fn add(&mut self, now: Nanos, piece: Piece) {
        assert!(piece.bytes > 0, "nothing to do");
        self.stats.note_added(&piece);
        self.arrivals += 1;
        self.clock.tick(now, self.arrivals);
        let number = self.arrivals;
        if let Some(blocked) = self.blocked.get_mut(&piece.file)
            && piece.offset < blocked.end
            && blocked.start < piece.end()
        {
            (blocked.start, blocked.end) = (blocked.start.min(piece.offset), blocked.end.max(piece.end()));
            blocked.pieces.push_back((number, now, piece));
        } else if piece.access == Access::Read && self.writes.has_write_in(piece.file, piece.offset, piece.end()).is_some() {
            let empty = || Blocked { pieces: VecDeque::new(), start: piece.offset, end: piece.end() };
            let blocked = self.blocked.entry(piece.file).or_insert_with(empty);
            (blocked.start, blocked.end) = (blocked.start.min(piece.offset), blocked.end.max(piece.end()));
            blocked.pieces.push_back((number, now, piece));
        } else {
            return self.admit(number, now, &piece);
        }
        let counts = self.blocked_total.of(piece.access);
        counts.entries += 1;
        counts.bytes += piece.bytes;
    }

    fn next(&mut self, now: Nanos, memory_free: u64, parts: &mut Vec<JobPiece>) -> Next {
        parts.clear();
        match self.choose(now, memory_free) {
            Some(chosen) => Next::Job(self.start(chosen, parts)),
            None if self.on_disk.is_empty() && self.reads.is_empty() => self.ripe_at(),
            None => Next::Idle,
        }
    }

    fn take_covered(&mut self, job: &Job, parts: &mut Vec<JobPiece>) {
        // Whatever read is in the lane is older than the queued writes that it overlaps, and none
        // of these has begun beside the job.
        if job.access == Access::Read && self.hole > 0 && self.reads.take_within(job.file, job.offset, job.end(), parts) {
            parts.sort_unstable_by_key(|part| part.offset);
        }
    }

    fn completed(&mut self, _now: Nanos, job: &Job) {
        let at = self.on_disk.iter().position(|started| started == job).expect("only started jobs complete, once each");
        self.on_disk.swap_remove(at);
    }

    fn flush(&mut self, _now: Nanos, file: FileKey) {
        self.flushes.insert(file, (0, self.arrivals));
    }

    fn take_dropped(&mut self, parts: &mut Vec<JobPiece>) {
        parts.append(&mut self.dropped);
    }

    fn has_write_in(&self, file: FileKey, start: u64, end: u64) -> bool {
        let overlaps = |piece: &Piece| piece.access == Access::Write && piece.offset < end && start < piece.end();
        let mut blocked = self.blocked.get(&file).into_iter().flat_map(|blocked| &blocked.pieces);
        self.writes.has_write_in(file, start, end).is_some() || blocked.any(|(_, _, piece)| overlaps(piece))
    }

    fn queued(&self, access: Access) -> Queued {
        let (lane, blocked) = match access {
            Access::Read => (self.reads.queued(), self.blocked_total.reads),
            Access::Write => (self.writes.queued(), self.blocked_total.writes),
        };
        Queued { entries: lane.entries + blocked.entries, bytes: lane.bytes + blocked.bytes }
    }

    fn stats(&self) -> LayerStats {
        self.stats
    }
}
