//! The tracer of one process or one simulated node: its mask, its rings, and how they are fetched.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::clock::Clock;
use crate::event;
use crate::mask::{Mask, SharedMask};
use crate::record::{Body, TraceRecord, Words};
use crate::recorder::{Recorder, open_spans};
use crate::ring::{Ring, RingWriter, WhenFull};

/// What rings are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Large enough for a whole run and fetched at its end; what does not fit is not recorded, but
    /// counted.
    Bench,
    /// The last moments are kept, and fetched when something calls for it.
    Flight,
    /// Fetched while the program runs; what the reader is too slow for is not recorded, but
    /// counted.
    Stream,
}

impl Mode {
    fn when_full(self) -> WhenFull {
        match self {
            Mode::Flight => WhenFull::Overwrite,
            Mode::Bench | Mode::Stream => WhenFull::DropNew,
        }
    }
}

/// What a tracer must know.
#[derive(Clone, Debug)]
pub struct TracerConfig {
    /// The use of the rings.
    pub mode: Mode,
    /// Records of one thread's ring, 64 bytes each; rounded up to a power of two.
    pub ring_records: usize,
    /// Rings at most; threads beyond them record nothing and are counted in
    /// [`TracerStats::threads_without_ring`].
    pub rings_max: usize,
    /// The clock of all records.
    pub clock: Clock,
    /// Set in the flags of every record, for example [`crate::record::flags::SIMULATED`].
    pub flags: u16,
}

impl TracerConfig {
    /// Rings of 65 536 records (4 MiB), at most 256 of them.
    pub fn new(mode: Mode, clock: Clock) -> TracerConfig {
        TracerConfig { mode, ring_records: 1 << 16, rings_max: 256, clock, flags: 0 }
    }
}

/// Counters of a tracer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TracerStats {
    /// Rings, one for each thread that recorded (a later thread takes over the ring of one that
    /// ended).
    pub rings: usize,
    /// Records written.
    pub written: u64,
    /// Records that full rings did not take.
    pub dropped: u64,
    /// Records in whose place the rings have newer ones, fetched or not.
    pub overwritten: u64,
    /// Threads that found no ring.
    pub threads_without_ring: u64,
    /// Operations that have not ended.
    pub in_flight: usize,
}

/// The recorder of a process or a node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tracer(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) mask: SharedMask,
    pub(crate) config: TracerConfig,
    /// When it was made, in ticks.
    pub(crate) begun: u64,
    pub(crate) next_span: AtomicU32,
    /// One operation of 2^n is kept.
    pub(crate) sampling_bits: AtomicU32,
    /// An operation that takes longer, in ticks, calls for a dump.
    pub(crate) slow_ticks: AtomicU64,
    dump_wanted: AtomicBool,
    /// An error calls for a dump.
    dump_on_error: AtomicBool,
    threads_without_ring: AtomicU64,
    rings: Mutex<Vec<Arc<Ring>>>,
}

impl Tracer {
    /// A tracer with no event switched on.
    pub fn new(config: TracerConfig) -> Tracer {
        let begun = config.clock.ticks();
        Tracer(Arc::new(Shared {
            mask: SharedMask::new(),
            config,
            begun,
            next_span: AtomicU32::new(1),
            sampling_bits: AtomicU32::new(0),
            slow_ticks: AtomicU64::new(u64::MAX),
            dump_wanted: AtomicBool::new(false),
            dump_on_error: AtomicBool::new(false),
            threads_without_ring: AtomicU64::new(0),
            rings: Mutex::default(),
        }))
    }

    /// Records these events from now on.
    pub fn set_mask(&self, mask: Mask) {
        self.0.mask.set(mask);
    }

    /// The events that are recorded.
    pub fn mask(&self) -> Mask {
        self.0.mask.get()
    }

    /// Keeps one operation of 2^`bits` with everything below it, chosen by its span's number; 0
    /// keeps all. At most 31.
    pub fn set_sampling(&self, bits: u32) {
        self.0.sampling_bits.store(bits.min(31), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn sampling_bits(&self) -> u32 {
        self.0.sampling_bits.load(Ordering::Relaxed)
    }

    /// An operation, or a request at a server, that takes longer than so many ticks calls for a
    /// dump; `u64::MAX`: none does.
    pub fn set_slow(&self, ticks: u64) {
        self.0.slow_ticks.store(ticks, Ordering::Relaxed);
    }

    /// Failures that should not happen ([`crate::note_error`]) call for a dump, or do not (at
    /// first).
    pub fn set_dump_on_error(&self, on: bool) {
        self.0.dump_on_error.store(on, Ordering::Relaxed);
    }

    pub(crate) fn note_error(&self) {
        if self.0.dump_on_error.load(Ordering::Relaxed) {
            self.want_dump();
        }
    }

    /// Something calls for a dump: an operation was slow, or an error, a signal or a command says
    /// so.
    pub fn want_dump(&self) {
        self.0.dump_wanted.store(true, Ordering::Relaxed);
    }

    /// True once after [`Tracer::want_dump`].
    pub fn take_dump_wanted(&self) -> bool {
        self.0.dump_wanted.load(Ordering::Relaxed) && self.0.dump_wanted.swap(false, Ordering::Relaxed)
    }

    /// Now, by the clock of the records.
    pub fn ticks(&self) -> u64 {
        self.0.config.clock.ticks()
    }

    /// What the tracer was made with.
    pub fn config(&self) -> &TracerConfig {
        &self.0.config
    }

    /// A recorder for one thread (or one simulated node): a ring that nobody writes into any more,
    /// or a new one. `None` if there are [`TracerConfig::rings_max`] already.
    pub fn recorder(&self) -> Option<Recorder> {
        let mut rings = self.rings();
        for (number, ring) in rings.iter().enumerate() {
            if let Some(writer) = ring.writer() {
                return Some(self.recorder_of(number, writer));
            }
        }
        if rings.len() >= self.0.config.rings_max {
            self.0.threads_without_ring.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let ring = Ring::new(self.0.config.ring_records, self.0.config.mode.when_full());
        let writer = ring.writer().expect("nobody else knows the new ring");
        rings.push(ring);
        Some(self.recorder_of(rings.len() - 1, writer))
    }

    fn recorder_of(&self, number: usize, writer: RingWriter) -> Recorder {
        Recorder::new(self.clone(), number as u32, writer)
    }

    /// What has not ended as records: operations and what is open inside them, up to now and with
    /// [`crate::record::flags::OPEN`], by their beginnings.
    pub fn in_flight_records(&self) -> Vec<TraceRecord> {
        let own = |(_, mut record): (bool, TraceRecord)| {
            record.flags |= self.0.config.flags;
            record
        };
        open_spans(self.0.mask.short_number(), self.ticks()).into_iter().map(own).collect()
    }

    /// Counters.
    pub fn stats(&self) -> TracerStats {
        let in_flight = open_spans(self.0.mask.short_number(), 0).iter().filter(|(is_operation, _)| *is_operation).count();
        let rings = self.rings();
        TracerStats {
            rings: rings.len(),
            written: rings.iter().map(|ring| ring.written()).sum(),
            dropped: rings.iter().map(|ring| ring.dropped()).sum(),
            overwritten: rings.iter().map(|ring| ring.overwritten()).sum(),
            threads_without_ring: self.0.threads_without_ring.load(Ordering::Relaxed),
            in_flight,
        }
    }

    fn rings(&self) -> MutexGuard<'_, Vec<Arc<Ring>>> {
        self.0.rings.lock().expect("no code panics while it holds this lock")
    }
}

/// Fetches what a tracer has recorded, each record once. One drain at a time for each tracer.
#[derive(Debug)]
pub struct Drain {
    tracer: Tracer,
    cursors: Vec<Cursor>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    next: u64,
    /// Overwritten so far.
    overwritten: u64,
    /// Lost records that were reported.
    reported: u64,
}

/// Records of one ring, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The ring.
    pub ring: u32,
    /// The number of the first record in its ring; numbers of lost records are missing.
    pub first: u64,
    /// The records, and behind them a [`Body::Lost`] if some were lost.
    pub records: Vec<Words>,
}

impl Drain {
    /// From the beginning of every ring.
    pub fn new(tracer: &Tracer) -> Drain {
        Drain { tracer: tracer.clone(), cursors: Vec::new() }
    }

    /// Records that were overwritten before they were fetched, so far.
    pub fn overwritten(&self) -> u64 {
        self.cursors.iter().map(|cursor| cursor.overwritten).sum()
    }

    /// Everything that was recorded since the last call.
    pub fn fetch(&mut self) -> Vec<Batch> {
        let rings: Vec<Arc<Ring>> = self.tracer.rings().clone();
        self.cursors.resize(rings.len(), Cursor::default());
        let mut batches = Vec::new();
        for (number, (ring, cursor)) in rings.iter().zip(&mut self.cursors).enumerate() {
            let mut batch = Batch { ring: number as u32, first: cursor.next, records: Vec::new() };
            let fetched = ring.read(&mut cursor.next, |number, words| {
                if batch.records.is_empty() {
                    batch.first = number;
                }
                batch.records.push(words);
            });
            cursor.overwritten += fetched.overwritten;
            let total = cursor.overwritten + ring.dropped();
            if total > cursor.reported {
                let mut lost =
                    TraceRecord::new(self.tracer.ticks(), event::TRACE_LOST, Body::Lost { count: total - cursor.reported, total });
                lost.flags = self.tracer.0.config.flags;
                // Only overwritten records had numbers.
                lost.class = u8::from(self.tracer.0.config.mode == Mode::Flight);
                batch.records.push(lost.to_words());
                cursor.reported = total;
            }
            if !batch.records.is_empty() {
                batches.push(batch);
            }
        }
        batches
    }
}
