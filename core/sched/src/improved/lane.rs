//! Queued accesses of one kind: fragments by file and offset, and by age. They are merged when a
//! job is made of them, not before: a job walks over exactly the fragments that it takes, so
//! merging costs nothing beyond their removal.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use weft_base::Nanos;

use crate::{FileKey, JobPiece, Piece, Queued};

/// File, first byte, number of arrival.
pub type FragmentKey = (FileKey, u64, u64);

/// A piece or what is left of it.
#[derive(Clone, Copy, Debug)]
pub struct Fragment {
    pub bytes: u64,
    pub tag: u64,
    /// When its piece arrived.
    pub since: Nanos,
}

/// One kind. Writes of a lane never overlap, reads may.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    fragments: BTreeMap<FragmentKey, Fragment>,
    /// Number of arrival and first byte: what a cut leaves of a piece has its number.
    ages: BTreeMap<(u64, u64), FileKey>,
    bytes: u64,
    /// No fragment was longer since the lane was empty.
    longest: u64,
    /// Chosen by place, not by age: the two sets below are kept.
    sweeps: bool,
    /// What the present round of the sweep serves.
    round: BTreeSet<FragmentKey>,
    /// What has arrived since it began.
    fresh: BTreeSet<FragmentKey>,
}

/// The fragments of a job to be: from the first one up to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub first: FragmentKey,
    pub end: u64,
}

impl Stretch {
    pub fn start(&self) -> u64 {
        self.first.1
    }

    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start() < end && start < self.end
    }
}

impl Lane {
    /// An empty lane; `sweeps`: [`Lane::sweep`] will be asked.
    pub fn new(sweeps: bool) -> Lane {
        Lane { sweeps, ..Lane::default() }
    }

    pub fn queued(&self) -> Queued {
        Queued { entries: self.fragments.len() as u64, bytes: self.bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    fn put(&mut self, key: FragmentKey, fragment: Fragment, in_round: bool) {
        if self.sweeps {
            let set = if in_round { &mut self.round } else { &mut self.fresh };
            set.insert(key);
        }
        if self.fragments.is_empty() {
            self.longest = 0;
        }
        self.longest = self.longest.max(fragment.bytes);
        self.bytes += fragment.bytes;
        self.fragments.insert(key, fragment);
        self.ages.insert((key.2, key.1), key.0);
    }

    /// Gives the fragment, and whether the present round was to serve it.
    fn remove(&mut self, key: FragmentKey) -> (Fragment, bool) {
        let fragment = self.fragments.remove(&key).expect("only keys of queued fragments are removed");
        self.ages.remove(&(key.2, key.1));
        self.bytes -= fragment.bytes;
        let in_round = self.sweeps && self.round.remove(&key);
        if self.sweeps && !in_round {
            self.fresh.remove(&key);
        }
        (fragment, in_round)
    }

    /// Adds a read.
    pub fn append(&mut self, number: u64, now: Nanos, piece: &Piece) {
        self.put((piece.file, piece.offset, number), Fragment { bytes: piece.bytes, tag: piece.tag, since: now }, false);
    }

    /// Adds a write. What it replaces is appended to `dropped`; gives the bytes of that. It takes
    /// the place in the queue of the oldest that it replaces: bytes that are written again and
    /// again would else be the youngest for ever, and whoever waits for the first would wait as
    /// long.
    pub fn overwrite(&mut self, number: u64, now: Nanos, piece: &Piece, dropped: &mut Vec<JobPiece>) -> u64 {
        let (start, end) = (piece.offset, piece.end());
        let mut replaced = 0;
        let (mut number, mut since, mut in_round) = (number, now, false);
        while let Some((key, fragment)) = self.last_before(piece.file, end)
            && key.1 + fragment.bytes > start
        {
            let (_, was_in_round) = self.remove(key);
            in_round |= was_in_round;
            if key.2 < number {
                (number, since) = (key.2, fragment.since);
            }
            let fragment_end = key.1 + fragment.bytes;
            if fragment_end > end {
                self.put((key.0, end, key.2), Fragment { bytes: fragment_end - end, ..fragment }, was_in_round);
            }
            let (from, to) = (key.1.max(start), fragment_end.min(end));
            dropped.push(JobPiece { tag: fragment.tag, offset: from, bytes: to - from });
            replaced += to - from;
            if key.1 < start {
                self.put(key, Fragment { bytes: start - key.1, ..fragment }, was_in_round);
                break;
            }
        }
        self.put((piece.file, start, number), Fragment { bytes: piece.bytes, tag: piece.tag, since }, in_round);
        replaced
    }

    /// The last fragment of the file that starts before `offset`.
    fn last_before(&self, file: FileKey, offset: u64) -> Option<(FragmentKey, Fragment)> {
        self.fragments.range((file, 0, 0)..(file, offset, 0)).next_back().map(|(&key, &fragment)| (key, fragment))
    }

    /// The first fragment that overlaps the range. Exact, and O(log n) for writes; for reads it
    /// looks at everything that starts up to the longest read before the range.
    pub fn first_overlapping(&self, file: FileKey, start: u64, end: u64) -> Option<FragmentKey> {
        let from = start.saturating_sub(self.longest.saturating_sub(1));
        let mut near = self.fragments.range((file, from, 0)..(file, end, 0));
        near.find(|(key, fragment)| key.1 + fragment.bytes > start).map(|(&key, _)| key)
    }

    /// Whether a write overlaps the range; writes do not overlap each other, so only the last one
    /// before its end can.
    pub fn has_write_in(&self, file: FileKey, start: u64, end: u64) -> Option<FragmentKey> {
        let (key, fragment) = self.last_before(file, end)?;
        (key.1 + fragment.bytes > start).then_some(key)
    }

    /// The oldest fragment and the time of its arrival.
    pub fn oldest(&self) -> Option<(FragmentKey, Nanos)> {
        let (&(number, offset), &file) = self.ages.first_key_value()?;
        let key = (file, offset, number);
        Some((key, self.fragments[&key].since))
    }

    /// Length of a queued fragment.
    pub fn bytes_of(&self, key: FragmentKey) -> u64 {
        self.fragments[&key].bytes
    }

    /// Begins a round if the last one has ended: with all that is queued and arrived up to this
    /// number. Gives the number of fragments of a new round.
    pub fn begin_round(&mut self, newest: u64) -> Option<usize> {
        debug_assert!(self.sweeps, "rounds are kept only where they are asked for");
        if !self.round.is_empty() {
            return None;
        }
        std::mem::swap(&mut self.round, &mut self.fresh);
        if newest < u64::MAX {
            (self.round, self.fresh) = std::mem::take(&mut self.round).into_iter().partition(|key| key.2 <= newest);
        }
        Some(self.round.len())
    }

    /// The first fragment of the round at or behind a place, in the order of files and offsets,
    /// starting again at the lowest.
    pub fn sweep(&self, file: FileKey, offset: u64) -> Option<FragmentKey> {
        self.round.range((file, offset, 0)..).next().or_else(|| self.round.first()).copied()
    }

    /// The first fragment of one file from an offset on that has arrived since the round began.
    pub fn fresh_from(&self, file: FileKey, offset: u64) -> Option<FragmentKey> {
        self.fresh.range((file, offset, 0)..=(file, u64::MAX, u64::MAX)).next().copied()
    }

    /// The first fragment of one file at or behind an offset that arrived up to this number.
    pub fn first_from(&self, file: FileKey, offset: u64, newest: u64) -> Option<FragmentKey> {
        let mut behind = self.fragments.range((file, offset, 0)..=(file, u64::MAX, u64::MAX));
        behind.find(|(key, _)| key.2 <= newest).map(|(&key, _)| key)
    }

    /// This fragment alone, at most `limit` bytes of it.
    pub fn alone(&self, key: FragmentKey, limit: u64) -> Stretch {
        Stretch { first: key, end: key.1 + self.fragments[&key].bytes.min(limit) }
    }

    /// This fragment and what arrived directly after it and continues where it ends.
    pub fn following(&self, key: FragmentKey, limit: u64) -> Stretch {
        let mut span = self.alone(key, limit);
        let mut number = key.2;
        while let Some((&(next, offset), &file)) = self.ages.range((number + 1, 0)..).next()
            && (file, offset) == (key.0, span.end)
            && let bytes = self.fragments[&(file, offset, next)].bytes
            && span.end + bytes - key.1 <= limit
        {
            (span.end, number) = (span.end + bytes, next);
        }
        span
    }

    /// Everything that touches this fragment, or lies at most `hole` bytes beside it, at most
    /// `limit` bytes together. What lies before it comes first, as far as the fragment itself still
    /// fits.
    pub fn touching(&self, key: FragmentKey, limit: u64, hole: u64) -> Stretch {
        let own_end = key.1 + self.fragments[&key].bytes;
        let mut first = key;
        let mut before = self.fragments.range((key.0, 0, 0)..key);
        while let Some((&previous, fragment)) = before.next_back()
            && previous.1 + fragment.bytes + hole >= first.1
            && own_end - previous.1 <= limit
        {
            first = previous;
        }
        let mut span = self.alone(first, limit);
        let behind = (Bound::Excluded(first), Bound::Included((key.0, u64::MAX, u64::MAX)));
        for (next, fragment) in self.fragments.range(behind) {
            let end = span.end.max(next.1 + fragment.bytes);
            if next.1 > span.end.saturating_add(hole) || end - first.1 > limit {
                break;
            }
            span.end = end;
        }
        span
    }

    /// Removes the fragments that lie wholly in a range and appends them to `parts`. True if there
    /// were any.
    pub fn take_within(&mut self, file: FileKey, start: u64, end: u64, parts: &mut Vec<JobPiece>) -> bool {
        let near = self.fragments.range((file, start, 0)..(file, end, 0));
        let within: Vec<FragmentKey> = near.filter(|(key, fragment)| key.1 + fragment.bytes <= end).map(|(&key, _)| key).collect();
        for key in &within {
            let (fragment, _) = self.remove(*key);
            parts.push(JobPiece { tag: fragment.tag, offset: key.1, bytes: fragment.bytes });
        }
        !within.is_empty()
    }

    /// Removes the fragments of a span that lie wholly in it, and what it takes of the first;
    /// `parts` gets them in order. Gives the bytes of the span that nobody wanted.
    pub fn take(&mut self, span: Stretch, parts: &mut Vec<JobPiece>) -> u64 {
        let (file, start, _) = span.first;
        let mut key = span.first;
        let (mut covered, mut unwanted) = (start, 0);
        loop {
            let end = key.1 + self.fragments[&key].bytes;
            if end <= span.end || key == span.first {
                let (fragment, in_round) = self.remove(key);
                let taken = end.min(span.end) - key.1;
                if taken < fragment.bytes {
                    self.put((file, key.1 + taken, key.2), Fragment { bytes: fragment.bytes - taken, ..fragment }, in_round);
                }
                parts.push(JobPiece { tag: fragment.tag, offset: key.1, bytes: taken });
                unwanted += key.1.saturating_sub(covered);
                covered = covered.max(key.1 + taken);
            }
            let rest = (Bound::Excluded(key), Bound::Excluded((file, span.end, 0)));
            match self.fragments.range(rest).next() {
                Some((&next, _)) => key = next,
                None => return unwanted,
            }
        }
    }
}
