//! The ring of one thread: one writer, readers that never make it wait.
//!
//! A slot is eight atomic words, so a reader that comes too late reads wrong words but no undefined
//! ones, and finds out: it copies slots and looks at the head again. The writer announces nothing
//! per slot; `head` counts the records that are complete.
//!
//! Orders (checked with loom): the writer stores `head = n` and then, behind a release fence, the
//! words of record `n`. A reader that sees one of these words and passes its acquire fence must
//! also see `head >= n`, and so knows that the record which lay in the slot before, number
//! `n - capacity`, is gone.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::cell::Cell;
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use crate::record::{RECORD_WORDS, Words};

/// What a full ring does with the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It replaces the oldest: the ring holds the last moments (flight recorder).
    Overwrite,
    /// It is not written but counted: what was recorded first stays (bench) or is being fetched
    /// (stream).
    DropNew,
}

/// One cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Slot([AtomicU64; RECORD_WORDS]);

/// A ring of records.
#[derive(Debug)]
pub struct Ring {
    slots: Box<[Slot]>,
    when_full: WhenFull,
    /// Records ever written.
    head: AtomicU64,
    /// Records before this number have been fetched; their slots are free in a ring that drops new
    /// records.
    tail: AtomicU64,
    /// Records that a full ring did not take.
    dropped: AtomicU64,
    has_writer: AtomicBool,
}

/// What [`Ring::read`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Fetched {
    /// Records passed on.
    pub records: u64,
    /// Records that were overwritten before they could be fetched.
    pub overwritten: u64,
}

impl Ring {
    /// A ring of `capacity` records, rounded up to a power of two.
    pub fn new(capacity: usize, when_full: WhenFull) -> Arc<Ring> {
        let capacity = capacity.max(2).next_power_of_two();
        let slots = (0..capacity).map(|_| Slot(std::array::from_fn(|_| AtomicU64::new(0)))).collect();
        Arc::new(Ring {
            slots,
            when_full,
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            has_writer: AtomicBool::new(false),
        })
    }

    /// The one writer; `None` if the ring has one. A writer that was dropped can be succeeded, also
    /// on another thread.
    pub fn writer(self: &Arc<Self>) -> Option<RingWriter> {
        // Acquire: what the predecessor wrote is seen.
        if self.has_writer.swap(true, Ordering::Acquire) {
            return None;
        }
        let head = self.head.load(Ordering::Relaxed);
        Some(RingWriter { head: Cell::new(head), tail_seen: Cell::new(self.tail.load(Ordering::Acquire)), ring: self.clone() })
    }

    /// Records that it can hold.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Records written so far.
    pub fn written(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// Records that have made room for newer ones.
    pub fn overwritten(&self) -> u64 {
        match self.when_full {
            WhenFull::Overwrite => self.written().saturating_sub(self.slots.len() as u64),
            WhenFull::DropNew => 0,
        }
    }

    /// Records that were not taken because the ring was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Passes the records from number `cursor` on to `each`, with their numbers, and moves the
    /// cursor behind the last one. In a ring that drops new records their slots become free; such a
    /// ring has one reader at a time.
    pub fn read(&self, cursor: &mut u64, mut each: impl FnMut(u64, Words)) -> Fetched {
        let mut fetched = Fetched::default();
        let end = self.head.load(Ordering::Acquire);
        while *cursor < end {
            let oldest = end.saturating_sub(self.capacity() as u64);
            if *cursor < oldest {
                fetched.overwritten += oldest - *cursor;
                *cursor = oldest;
            }
            let words = self.copy(*cursor);
            // Acquire fence: whoever saw a newer word sees the head that came before it.
            fence(Ordering::Acquire);
            let head = self.head.load(Ordering::Relaxed);
            // The writer may be at work in the slot of record `head`.
            if self.when_full == WhenFull::Overwrite && *cursor + self.capacity() as u64 <= head {
                fetched.overwritten += 1;
            } else {
                each(*cursor, words);
                fetched.records += 1;
            }
            *cursor += 1;
        }
        if self.when_full == WhenFull::DropNew {
            // Release: the copies are made before the writer may use the slots again.
            self.tail.store(*cursor, Ordering::Release);
        }
        fetched
    }

    fn copy(&self, number: u64) -> Words {
        let slot = self.slot(number);
        std::array::from_fn(|word| slot.0[word].load(Ordering::Relaxed))
    }

    #[inline]
    fn slot(&self, number: u64) -> &Slot {
        &self.slots[number as usize & (self.slots.len() - 1)]
    }
}

/// The right to write into a ring. It stays on one thread at a time.
#[derive(Debug)]
pub struct RingWriter {
    ring: Arc<Ring>,
    /// As in the ring, without the need to load it.
    head: Cell<u64>,
    /// The tail when it was last looked at.
    tail_seen: Cell<u64>,
}

impl RingWriter {
    /// Writes a record; false if the ring is full and keeps what it has.
    #[inline]
    pub fn push(&self, words: &Words) -> bool {
        let ring = &*self.ring;
        let head = self.head.get();
        if ring.when_full == WhenFull::DropNew && head - self.tail_seen.get() >= ring.slots.len() as u64 && !self.has_room(head) {
            // The only writer: no need for an atomic addition.
            ring.dropped.store(ring.dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return false;
        }
        // Release fence: see the head of this file. No instruction on x86-64.
        fence(Ordering::Release);
        for (cell, word) in ring.slot(head).0.iter().zip(words) {
            cell.store(*word, Ordering::Relaxed);
        }
        ring.head.store(head + 1, Ordering::Release);
        self.head.set(head + 1);
        true
    }

    /// The ring.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    #[cold]
    fn has_room(&self, head: u64) -> bool {
        self.tail_seen.set(self.ring.tail.load(Ordering::Acquire));
        head - self.tail_seen.get() < self.ring.slots.len() as u64
    }
}

impl Drop for RingWriter {
    fn drop(&mut self) {
        self.ring.has_writer.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(number: u64) -> Words {
        std::array::from_fn(|word| number * 8 + word as u64)
    }

    fn all(ring: &Ring, cursor: &mut u64) -> (Vec<u64>, Fetched) {
        let mut numbers = Vec::new();
        let fetched = ring.read(cursor, |number, words| {
            assert_eq!(words, record(number));
            numbers.push(number);
        });
        (numbers, fetched)
    }

    #[test]
    fn an_overwriting_ring_keeps_the_last_and_says_how_many_it_lost() {
        let ring = Ring::new(4, WhenFull::Overwrite);
        let writer = ring.writer().expect("the first");
        (0..10).for_each(|number| assert!(writer.push(&record(number))));
        // Record 6 lies in the slot that the writer may be filling next.
        assert_eq!(all(&ring, &mut 0), (vec![7, 8, 9], Fetched { records: 3, overwritten: 7 }));
    }

    #[test]
    fn a_ring_that_keeps_counts_what_it_does_not_take_and_goes_on_when_fetched() {
        let ring = Ring::new(4, WhenFull::DropNew);
        let writer = ring.writer().expect("the first");
        assert_eq!((0..6).map(|number| writer.push(&record(number))).filter(|taken| *taken).count(), 4);
        assert_eq!(ring.dropped(), 2);
        let mut cursor = 0;
        assert_eq!(all(&ring, &mut cursor).0, [0, 1, 2, 3]);
        assert!(writer.push(&record(4)));
        assert_eq!(all(&ring, &mut cursor).0, [4]);
    }

    #[test]
    fn a_second_writer_must_wait_for_the_first_to_go() {
        let ring = Ring::new(4, WhenFull::Overwrite);
        let writer = ring.writer().expect("the first");
        writer.push(&record(0));
        assert!(ring.writer().is_none());
        drop(writer);
        ring.writer().expect("the successor").push(&record(1));
        assert_eq!(all(&ring, &mut 0).0, [0, 1]);
    }

    proptest! {
        /// Writes and reads in any order: nothing is passed on twice, out of order, or lost without
        /// a count.
        #[test]
        fn written_is_fetched_plus_lost(steps in prop::collection::vec((any::<bool>(), 1u64..9), 0..60), overwrite: bool) {
            let ring = Ring::new(8, if overwrite { WhenFull::Overwrite } else { WhenFull::DropNew });
            let writer = ring.writer().expect("the first");
            let (mut next, mut cursor, mut fetched, mut lost) = (0, 0, 0, 0);
            for (is_write, count) in steps.into_iter().chain([(false, 1)]) {
                if is_write {
                    for _ in 0..count {
                        if writer.push(&record(next)) { next += 1 } else { lost += 1 }
                    }
                } else {
                    let (numbers, found) = all(&ring, &mut cursor);
                    prop_assert!(numbers.is_sorted());
                    fetched += found.records;
                    lost += found.overwritten;
                }
            }
            prop_assert_eq!(ring.dropped() + next, fetched + lost);
        }
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p weft-trace --lib --release loom_`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    fn record(number: u64) -> Words {
        [number + 1; RECORD_WORDS]
    }

    fn fetch(ring: &Ring, cursor: &mut u64) -> Fetched {
        ring.read(cursor, |number, words| assert_eq!(words, record(number), "a torn record was passed on"))
    }

    /// All interleavings with at most three switches that a thread does not ask for: with all of
    /// them the first test alone takes six minutes (and passes). Without the writer's release fence
    /// it fails.
    fn model(test: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(test);
    }

    #[test]
    fn loom_a_reader_never_passes_on_a_torn_record() {
        model(|| {
            let ring = Ring::new(2, WhenFull::Overwrite);
            let writer = ring.writer().expect("the first");
            writer.push(&record(0));
            let theirs = ring.clone();
            let reader = loom::thread::spawn(move || fetch(&theirs, &mut 0));
            writer.push(&record(1));
            writer.push(&record(2));
            let fetched = reader.join().expect("no panic");
            assert!(fetched.records + fetched.overwritten >= 1);
        });
    }

    #[test]
    fn loom_a_keeping_ring_loses_nothing_that_it_took() {
        model(|| {
            let ring = Ring::new(2, WhenFull::DropNew);
            let writer = ring.writer().expect("the first");
            let theirs = ring.clone();
            let reader = loom::thread::spawn(move || {
                let mut cursor = 0;
                (fetch(&theirs, &mut cursor).records, cursor)
            });
            let mut taken = 0;
            for _ in 0..3 {
                taken += u64::from(writer.push(&record(taken)));
            }
            let (first, mut cursor) = reader.join().expect("no panic");
            assert_eq!(first + fetch(&ring, &mut cursor).records, taken);
            assert_eq!(taken + ring.dropped(), 3);
        });
    }

    #[test]
    fn loom_writers_succeed_one_another() {
        model(|| {
            let ring = Ring::new(4, WhenFull::Overwrite);
            let theirs = ring.clone();
            let other = loom::thread::spawn(move || theirs.writer().map(|writer| writer.push(&record(theirs.written()))).is_some());
            let mine = ring.writer().map(|writer| writer.push(&record(ring.written()))).is_some();
            let written = u64::from(other.join().expect("no panic")) + u64::from(mine);
            assert_eq!(fetch(&ring, &mut 0).records, written);
        });
    }
}
