//! Bytes that were read only because they lay between wanted ones. They are kept for a moment:
//! often somebody asks for them next (clients that read blocks in turn and have drifted apart), and
//! reading the same hole again and again costs more than sieving saves.
//!
//! The owner of a layer says what it reads and writes; what it is given back is what a read of the
//! disk would give now. Data is whatever the owner keeps for a range ([`Kept`] only clones it), so
//! a model that has none keeps `()`.

use std::collections::{BTreeMap, VecDeque};

use weft_base::{MILLISECOND, Nanos};

use crate::{FileKey, Job, JobPiece};

/// Bounds of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Most bytes; 0: nothing is kept.
    pub bytes: u64,
    /// For so many nanoseconds.
    pub age_ns: u64,
}

impl Keep {
    /// Nothing is kept.
    pub const NONE: Keep = Keep { bytes: 0, age_ns: 0 };
}

impl Default for Keep {
    fn default() -> Self {
        Keep { bytes: 32 << 20, age_ns: 500 * MILLISECOND }
    }
}

/// What is kept of the files of one layer.
#[derive(Clone, Debug)]
pub struct Kept<T> {
    keep: Keep,
    /// By first byte. They never overlap.
    ranges: BTreeMap<(FileKey, u64), Range<T>>,
    bytes: u64,
    /// First bytes with their times, the oldest first. What is no longer there, or was kept anew,
    /// is skipped.
    ages: VecDeque<(Nanos, FileKey, u64)>,
}

#[derive(Clone, Debug)]
struct Range<T> {
    end: u64,
    since: Nanos,
    /// Where in the file `data` begins.
    data_start: u64,
    data: T,
}

impl<T: Clone> Kept<T> {
    /// Nothing is kept yet.
    pub fn new(keep: Keep) -> Kept<T> {
        Kept { keep, ranges: BTreeMap::new(), bytes: 0, ages: VecDeque::new() }
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A read job has ended, and the layer is about to learn it. Its holes are kept, each with what
    /// `data` gives for its first byte and length, except where `is_written` says that a write is
    /// queued ([`crate::CacheLayer::has_write_in`]): no such write has begun, since none starts
    /// that overlaps a job on the disk, so what was read there is old.
    pub fn completed(
        &mut self,
        now: Nanos,
        job: &Job,
        parts: &[JobPiece],
        is_written: impl Fn(u64, u64) -> bool,
        data: impl Fn(u64, u64) -> T,
    ) {
        if self.keep.bytes == 0 {
            return;
        }
        for (start, end) in holes(job, parts).filter(|(start, end)| !is_written(*start, *end)) {
            self.forget(job.file, start, end);
            self.bytes += end - start;
            self.ages.push_back((now, job.file, start));
            self.ranges.insert((job.file, start), Range { end, since: now, data_start: start, data: data(start, end - start) });
        }
        self.expire(now);
    }

    /// A write of these bytes is queued: whoever reads from now on must see it.
    pub fn written(&mut self, file: FileKey, start: u64, bytes: u64) {
        self.forget(file, start, start + bytes);
    }

    /// All of these bytes, if they are kept: the data of a range, and where in that they begin.
    /// They are not kept any longer.
    pub fn take(&mut self, now: Nanos, file: FileKey, start: u64, bytes: u64) -> Option<(T, u64)> {
        self.expire(now);
        let (_, range) = self.ranges.range((file, 0)..=(file, start)).next_back()?;
        if range.end < start + bytes {
            return None;
        }
        let found = (range.data.clone(), start - range.data_start);
        self.forget(file, start, start + bytes);
        Some(found)
    }

    /// Keeps nothing of these bytes.
    fn forget(&mut self, file: FileKey, start: u64, end: u64) {
        while let Some((&(_, first), range)) = self.ranges.range((file, 0)..(file, end)).next_back()
            && range.end > start
        {
            let range = self.ranges.remove(&(file, first)).expect("just seen");
            self.bytes -= range.end - first;
            for (from, to) in [(first, start), (end, range.end)] {
                if from < to {
                    self.bytes += to - from;
                    self.ages.push_back((range.since, file, from));
                    self.ranges.insert((file, from), Range { end: to, ..range.clone() });
                }
            }
        }
    }

    /// Drops what is too old or too much.
    fn expire(&mut self, now: Nanos) {
        while let Some(&(since, file, start)) = self.ages.front() {
            if self.bytes <= self.keep.bytes && now.since(since) < self.keep.age_ns {
                return;
            }
            self.ages.pop_front();
            if self.ranges.get(&(file, start)).is_some_and(|range| range.since == since) {
                let range = self.ranges.remove(&(file, start)).expect("just seen");
                self.bytes -= range.end - start;
            }
        }
    }
}

/// What nobody wanted between the parts of a job, which are in order: first bytes and ends.
fn holes<'a>(job: &'a Job, parts: &'a [JobPiece]) -> impl Iterator<Item = (u64, u64)> + 'a {
    let mut covered = job.offset;
    parts.iter().filter_map(move |part| {
        let hole = (part.offset > covered).then_some((covered, part.offset));
        covered = covered.max(part.offset + part.bytes);
        hole
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;

    const FILE: FileKey = FileKey(3);

    fn part(offset: u64, bytes: u64) -> JobPiece {
        JobPiece { tag: 0, offset, bytes }
    }

    fn job(parts: &[JobPiece]) -> Job {
        let (first, last) = (parts[0], parts[parts.len() - 1]);
        Job { access: Access::Read, file: FILE, offset: first.offset, bytes: last.offset + last.bytes - first.offset }
    }

    fn read(kept: &mut Kept<u64>, now: u64, parts: &[JobPiece]) {
        kept.completed(Nanos(now), &job(parts), parts, |_, _| false, |start, _| start);
    }

    #[test]
    fn holes_are_given_once_while_they_are_young_and_few() {
        let mut kept = Kept::new(Keep { bytes: 30, age_ns: 100 });
        read(&mut kept, 0, &[part(0, 10), part(20, 10), part(50, 10)]);
        assert_eq!(kept.bytes(), 30, "10 to 20 and 30 to 50");
        assert_eq!(kept.take(Nanos(1), FILE, 5, 10), None, "what was wanted is not kept");
        assert_eq!(kept.take(Nanos(1), FILE, 35, 5), Some((30, 5)));
        assert_eq!(kept.take(Nanos(1), FILE, 35, 5), None);
        assert_eq!(kept.take(Nanos(1), FILE, 40, 10), Some((30, 10)), "what is left of it");
        read(&mut kept, 50, &[part(100, 5), part(130, 5)]);
        assert_eq!((kept.bytes(), kept.take(Nanos(50), FILE, 10, 10)), (30, None), "the oldest went for the newer");
        assert_eq!(kept.take(Nanos(149), FILE, 105, 1), Some((105, 0)));
        assert_eq!((kept.take(Nanos(150), FILE, 110, 1), kept.bytes()), (None, 0));
    }

    #[test]
    fn what_is_written_is_not_kept() {
        let mut kept = Kept::new(Keep { bytes: 1000, age_ns: 100 });
        let parts = [part(0, 10), part(20, 10), part(50, 10)];
        kept.completed(Nanos(0), &job(&parts), &parts, |start, end| start <= 15 && 15 < end, |start, _| start);
        assert_eq!(kept.bytes(), 20, "a queued write overlaps the first hole");
        kept.written(FILE, 35, 5);
        kept.written(FileKey(4), 40, 1);
        assert_eq!(kept.take(Nanos(0), FILE, 34, 2), None);
        assert_eq!(kept.take(Nanos(0), FILE, 40, 10), Some((30, 10)));
        assert_eq!(kept.take(Nanos(0), FILE, 30, 5), Some((30, 0)));
    }
}
