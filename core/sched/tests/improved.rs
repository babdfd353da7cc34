//! The rules of today against a naive model: an array of bytes to which every access is applied at
//! once, in the order of arrival.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weft_base::Nanos;
use weft_sched::improved::{Delay, DiskCost, Improved, ImprovedConfig};
use weft_sched::{Access, CacheLayer, FileKey, Job, JobPiece, Keep, Kept, LayerKind, Next, Piece};

const FILES: usize = 2;
const SPACE: usize = 64;

/// A disk whose jobs take effect late, and the owner of a layer before it. Each byte of a write is
/// the tag of its piece.
struct Rig {
    layer: Improved,
    now: u64,
    /// What every byte must be, had everything been done at once.
    model: [[u64; SPACE]; FILES],
    disk: [[u64; SPACE]; FILES],
    running: Vec<(Job, Vec<JobPiece>)>,
    /// By tag: what a read must give, and which of its bytes it has given.
    reads: BTreeMap<u64, (Piece, Vec<u64>, Vec<bool>)>,
    /// By tag: bytes of a write that are neither written nor replaced.
    writes: BTreeMap<u64, u64>,
    /// What was read through, and how many reads that has answered.
    kept: Kept<Vec<u64>>,
    from_kept: u64,
    tag: u64,
}

impl Rig {
    fn new(kind: LayerKind, config: &ImprovedConfig) -> Rig {
        Rig {
            layer: Improved::new(kind, config),
            now: 0,
            model: [[0; SPACE]; FILES],
            disk: [[0; SPACE]; FILES],
            running: Vec::new(),
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            kept: Kept::new(config.keep),
            from_kept: 0,
            tag: 0,
        }
    }

    fn add(&mut self, access: Access, file: usize, offset: u64, bytes: u64) {
        self.tag += 1;
        let piece = Piece { access, file: FileKey(file as u64), offset, bytes, tag: self.tag };
        let range = offset as usize..(offset + bytes) as usize;
        match access {
            Access::Read => {
                let expected = self.model[file][range].to_vec();
                if let Some((data, from)) = self.kept.take(Nanos(self.now), piece.file, offset, bytes) {
                    assert_eq!(data[from as usize..(from + bytes) as usize], expected, "read {} of what was read through", self.tag);
                    self.from_kept += 1;
                    return;
                }
                self.reads.insert(self.tag, (piece, expected, vec![false; bytes as usize]));
            }
            Access::Write => {
                self.model[file][range].fill(self.tag);
                self.kept.written(piece.file, offset, bytes);
                self.writes.insert(self.tag, bytes);
            }
        }
        self.layer.add(Nanos(self.now), piece);
        let mut dropped = Vec::new();
        self.layer.take_dropped(&mut dropped);
        dropped.iter().for_each(|part| self.account(part));
    }

    fn account(&mut self, part: &JobPiece) {
        let left = self.writes.get_mut(&part.tag).expect("a part of a write that is not done");
        *left = left.checked_sub(part.bytes).expect("no byte is done twice");
        if *left == 0 {
            self.writes.remove(&part.tag);
        }
    }

    /// True if a job was started.
    fn start(&mut self, memory_free: u64) -> Next {
        let mut parts = Vec::new();
        let next = self.layer.next(Nanos(self.now), memory_free, &mut parts);
        let mut dropped = Vec::new();
        self.layer.take_dropped(&mut dropped);
        dropped.iter().for_each(|part| self.account(part));
        if let Next::Job(job) = next {
            assert!(job.access == Access::Write || job.bytes <= memory_free);
            self.running.push((job, parts));
        } else {
            assert!(parts.is_empty());
        }
        next
    }

    fn complete(&mut self, index: usize) {
        let (job, mut parts) = self.running.swap_remove(index);
        let started = parts.len();
        self.layer.take_covered(&job, &mut parts);
        assert!(job.access == Access::Read || parts.len() == started, "a write takes nothing along once it has begun");
        let file = job.file.0 as usize;
        let mut end = job.offset;
        for part in &parts {
            assert!(job.offset <= part.offset && part.offset + part.bytes <= job.end(), "parts lie in their job");
            let range = part.offset as usize..(part.offset + part.bytes) as usize;
            match job.access {
                Access::Write => {
                    assert_eq!(part.offset, end, "the parts of a write fill it in order");
                    self.disk[file][range].fill(part.tag);
                    self.account(part);
                }
                Access::Read => {
                    let (piece, expected, given) = self.reads.get_mut(&part.tag).expect("a part of a read that is not done");
                    for at in range {
                        let index = at - piece.offset as usize;
                        assert_eq!(self.disk[file][at], expected[index], "read {} at {at}", part.tag);
                        assert!(!std::mem::replace(&mut given[index], true), "no byte is read twice");
                    }
                    if given.iter().all(|given| *given) {
                        self.reads.remove(&part.tag);
                    }
                }
            }
            end = part.offset + part.bytes;
        }
        if job.access == Access::Read {
            let (layer, disk) = (&self.layer, &self.disk[file]);
            let data = |start: u64, len: u64| disk[start as usize..(start + len) as usize].to_vec();
            self.kept.completed(Nanos(self.now), &job, &parts, |start, end| layer.has_write_in(job.file, start, end), data);
        }
        self.layer.completed(Nanos(self.now), &job);
    }

    fn is_done(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(bool, usize, u64, u64),
    Start(u64),
    Complete(usize),
    Flush(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (any::<bool>(), 0..FILES, 0..SPACE as u64 - 12, 1u64..12).prop_map(|(read, file, at, bytes)| Step::Add(read, file, at, bytes)),
        4 => (4u64..40).prop_map(Step::Start),
        4 => (0usize..4).prop_map(Step::Complete),
        1 => (0..FILES).prop_map(Step::Flush),
        2 => (0u64..60).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..120)
}

fn config() -> impl Strategy<Value = (LayerKind, ImprovedConfig)> {
    let kind = prop::sample::select(LayerKind::ALL.to_vec());
    let delay = prop::option::of((1u64..100, 1u64..60).prop_map(|(age_ns, bytes)| Delay { age_ns, bytes }));
    (kind, 2u64..30, 0u64..5, delay, 1u64..80, 1u64..80).prop_map(|(kind, granularity, hole, delay, read, write)| {
        let disk = DiskCost { access_ns: hole * 1_000_000_000, bytes_per_s: 1, continues_free: false };
        let read_reserve = 8;
        (
            kind,
            ImprovedConfig {
                granularity,
                disk,
                delay,
                read_deadline_ns: read,
                write_deadline_ns: write,
                read_reserve,
                keep: Keep { bytes: 24, age_ns: 300 },
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_no_order_is_violated((kind, config) in config(), depth in 1usize..4, steps in steps()) {
        let mut rig = Rig::new(kind, &config);
        for step in steps {
            match step {
                Step::Add(read, file, at, bytes) => rig.add(if read { Access::Read } else { Access::Write }, file, at, bytes),
                Step::Start(memory) if rig.running.len() < depth => {
                    let idle = rig.running.is_empty() && !rig.is_done() && memory >= config.granularity;
                    match rig.start(memory) {
                        Next::Job(_) => {}
                        Next::At(at) => prop_assert!(config.delay.is_some() && at > Nanos(rig.now), "a time that has come is no reason to wait"),
                        Next::Idle => prop_assert!(!idle, "the disk is idle and something waits"),
                    }
                }
                Step::Complete(index) if !rig.running.is_empty() => rig.complete(index % rig.running.len()),
                Step::Flush(file) => rig.layer.flush(Nanos(rig.now), FileKey(file as u64)),
                Step::Pass(ns) => rig.now += ns,
                _ => {}
            }
        }
        // Everything ends, and soon: each job takes bytes out of the queue, and no delay is longer
        // than its age.
        let pieces = rig.layer.queued(Access::Read).bytes + rig.layer.queued(Access::Write).bytes;
        for _ in 0..=pieces {
            while !rig.running.is_empty() {
                rig.complete(0);
            }
            if let Next::At(at) = rig.start(64) {
                rig.now = at.0;
                rig.start(64);
            }
        }
        prop_assert!(rig.is_done());
        prop_assert_eq!(rig.disk, rig.model);
        prop_assert_eq!(rig.layer.queued(Access::Read).bytes + rig.layer.queued(Access::Write).bytes, 0);
        prop_assert_eq!(rig.layer.queued(Access::Read).entries + rig.layer.queued(Access::Write).entries, 0);
    }
}

fn start(rig: &mut Rig) -> Option<(Access, u64, u64)> {
    match rig.start(u64::MAX) {
        Next::Job(job) => {
            rig.complete(0);
            Some((job.access, job.offset, job.bytes))
        }
        _ => None,
    }
}

fn plain() -> ImprovedConfig {
    ImprovedConfig { granularity: 20, disk: DiskCost { access_ns: 0, bytes_per_s: 1, continues_free: false }, ..ImprovedConfig::default() }
}

#[test]
fn each_layer_takes_along_what_it_says() {
    let expected: [(LayerKind, &[(u64, u64)]); 4] = [
        (LayerKind::None, &[(30, 5), (10, 5), (15, 5), (5, 5), (25, 5)]),
        (LayerKind::WriteBehind, &[(30, 5), (10, 10), (5, 5), (25, 5)]),
        (LayerKind::Aggregation, &[(25, 10), (5, 15)]),
        (LayerKind::ServerDirected, &[(5, 15), (25, 10)]),
    ];
    for (kind, jobs) in expected {
        let mut rig = Rig::new(kind, &plain());
        for offset in [30, 10, 15, 5, 25] {
            rig.add(Access::Write, 0, offset, 5);
        }
        let done: Vec<_> = std::iter::from_fn(|| start(&mut rig)).map(|(_, offset, bytes)| (offset, bytes)).collect();
        assert_eq!(done, jobs, "{}", kind.name());
    }
}

#[test]
fn the_sweep_goes_up_and_starts_again() {
    let mut rig = Rig::new(LayerKind::ServerDirected, &plain());
    rig.add(Access::Write, 0, 20, 2);
    assert_eq!(start(&mut rig), Some((Access::Write, 20, 2)));
    for (file, offset) in [(0, 10), (0, 40), (1, 5), (0, 30)] {
        rig.add(Access::Write, file, offset, 2);
    }
    let order: Vec<_> = std::iter::from_fn(|| start(&mut rig)).map(|(_, offset, _)| offset).collect();
    assert_eq!(order, [30, 40, 5, 10]);
}

#[test]
fn reads_go_over_holes_that_are_cheaper_to_read_and_writes_never() {
    let config = ImprovedConfig { disk: DiskCost { access_ns: 3_000_000_000, bytes_per_s: 1, continues_free: false }, ..plain() };
    for (access, jobs) in [(Access::Read, vec![(0, 10), (14, 2)]), (Access::Write, vec![(0, 4), (7, 3), (14, 2)])] {
        let mut rig = Rig::new(LayerKind::ServerDirected, &config);
        for (offset, bytes) in [(7, 3), (0, 4), (14, 2)] {
            rig.add(access, 0, offset, bytes);
        }
        let done: Vec<_> = std::iter::from_fn(|| start(&mut rig)).map(|(_, offset, bytes)| (offset, bytes)).collect();
        assert_eq!(done, jobs);
        assert_eq!(rig.layer.stats().sieved_bytes, if access == Access::Read { 3 } else { 0 });
    }
}

#[test]
fn writes_wait_for_company_but_not_for_ever() {
    let config = ImprovedConfig { delay: Some(Delay { age_ns: 100, bytes: 10 }), ..plain() };
    let mut rig = Rig::new(LayerKind::ServerDirected, &config);
    rig.add(Access::Write, 0, 0, 4);
    rig.now = 50;
    rig.add(Access::Write, 0, 8, 4);
    assert_eq!(rig.start(u64::MAX), Next::At(Nanos(100)));
    rig.now = 99;
    assert_eq!(rig.start(u64::MAX), Next::At(Nanos(100)));
    rig.now = 100;
    assert_eq!(start(&mut rig), Some((Access::Write, 0, 4)));
    assert_eq!(start(&mut rig), Some((Access::Write, 8, 4)), "what has waited half as long when the oldest becomes ripe goes with it");
    rig.add(Access::Write, 0, 20, 9);
    assert_eq!(start(&mut rig), None);
    rig.add(Access::Write, 0, 40, 1);
    assert_eq!(start(&mut rig), Some((Access::Write, 20, 9)), "ten bytes are enough");
    assert_eq!(start(&mut rig), Some((Access::Write, 40, 1)));
    rig.add(Access::Write, 0, 50, 1);
    rig.add(Access::Write, 1, 50, 1);
    rig.layer.flush(Nanos(100), FileKey(1));
    assert_eq!(start(&mut rig), Some((Access::Write, 50, 1)), "a flush flushes its file");
    assert_eq!(start(&mut rig), None, "and no other");
    assert_eq!(rig.disk[1][50], rig.model[1][50]);
    rig.add(Access::Read, 0, 50, 1);
    assert_eq!(start(&mut rig), Some((Access::Write, 50, 1)), "a read waits for it");
    assert_eq!(start(&mut rig), Some((Access::Read, 50, 1)));
}

#[test]
fn memory_that_is_held_back_writes_becomes_free() {
    let config = ImprovedConfig { delay: Some(Delay { age_ns: 1 << 40, bytes: 1 << 40 }), ..plain() };
    let mut rig = Rig::new(LayerKind::ServerDirected, &config);
    rig.add(Access::Write, 0, 0, 12);
    assert!(matches!(rig.start(12), Next::At(_)));
    assert!(matches!(rig.start(11), Next::Job(_)), "more is held back than is free");
    assert!(rig.layer.accepts(10, 11 + config.read_reserve) && !rig.layer.accepts(11, 11 + config.read_reserve));
}

#[test]
fn nothing_starves_beside_a_stream_of_reads() {
    for kind in LayerKind::ALL {
        let config = ImprovedConfig { granularity: 4, read_deadline_ns: 1000, write_deadline_ns: 200, ..plain() };
        let mut rig = Rig::new(kind, &config);
        rig.add(Access::Write, 0, 0, 4);
        rig.add(Access::Write, 1, 20, 4);
        rig.add(Access::Read, 1, 0, 1);
        let mut jobs = 0;
        while !rig.writes.is_empty() {
            for _ in 0..2 {
                rig.add(Access::Read, 0, 10 + (jobs % 7) * 6, 4);
            }
            assert!(start(&mut rig).is_some());
            rig.now += 10;
            jobs += 1;
            assert!(jobs < 40, "{}: overdue after 20 jobs, each served within 9 more", kind.name());
        }
        assert!(jobs > 15, "{}: reads first while nothing is overdue", kind.name());
    }
}

const M: u64 = 1 << 20;

/// A layer for a disk where holes of 32 KiB are worth reading, with reads at these places of file
/// 1.
fn sweeping(offsets: &[u64], bytes: u64) -> Improved {
    let mut layer = Improved::new(LayerKind::ServerDirected, &ImprovedConfig { disk: DiskCost::SSD, ..ImprovedConfig::default() });
    offsets.iter().for_each(|offset| layer.add(Nanos(0), read(1, *offset, bytes)));
    layer
}

fn read(file: u64, offset: u64, bytes: u64) -> Piece {
    Piece { access: Access::Read, file: FileKey(file), offset, bytes, tag: offset }
}

/// File and offset of the next job, which is done at once.
fn next_place(layer: &mut Improved) -> Option<(u64, u64)> {
    match layer.next(Nanos(0), u64::MAX, &mut Vec::new()) {
        Next::Job(job) => {
            layer.completed(Nanos(0), &job);
            Some((job.file.0, job.offset))
        }
        _ => None,
    }
}

#[test]
fn a_round_serves_what_was_there_and_what_comes_late_on_its_way() {
    let mut layer = sweeping(&[20 * M, 10 * M], 4096);
    assert_eq!(next_place(&mut layer), Some((1, 10 * M)));
    // Ahead of all, on the way, far behind, a little behind.
    for offset in [30 * M, 15 * M, 2 * M, 9 * M] {
        layer.add(Nanos(0), read(1, offset, 4096));
    }
    let places: Vec<_> = std::iter::from_fn(|| next_place(&mut layer)).map(|(_, offset)| offset / M).collect();
    assert_eq!(places, [9, 15, 20, 30, 2], "who is ahead waits for the next round, which goes on upwards");
}

#[test]
fn late_ones_do_not_starve_a_round() {
    let mut layer = sweeping(&[M], 4096);
    layer.add(Nanos(0), read(2, 0, 4096));
    // Whoever is served in file 1 asks for what follows, further than a hole away.
    let mut jobs = 0;
    while let Some((1, offset)) = next_place(&mut layer) {
        layer.add(Nanos(0), read(1, offset + M, 4096));
        jobs += 1;
    }
    assert!((2..10).contains(&jobs), "file 2 came after {jobs} jobs");
}

#[test]
fn long_accesses_go_in_the_order_of_their_arrival() {
    let mut layer = sweeping(&[30 * M, 10 * M, 20 * M], 300_000);
    let places: Vec<_> = std::iter::from_fn(|| next_place(&mut layer)).map(|(_, offset)| offset / M).collect();
    assert_eq!(places, [30, 10, 20]);
    let mut layer = sweeping(&[30 * M, 10 * M, 20 * M], 200_000);
    let places: Vec<_> = std::iter::from_fn(|| next_place(&mut layer)).map(|(_, offset)| offset / M).collect();
    assert_eq!(places, [10, 20, 30]);
}

#[test]
fn writes_that_have_come_just_now_wait_for_their_neighbours() {
    for kind in LayerKind::ALL.into_iter().filter(|kind| *kind != LayerKind::None) {
        let config = ImprovedConfig { delay: Some(Delay { age_ns: 100, bytes: 1000 }), ..plain() };
        let mut rig = Rig::new(kind, &config);
        for (now, offset) in [(0, 0), (50, 10), (90, 20)] {
            rig.now = now;
            rig.add(Access::Write, 0, offset, 4);
        }
        rig.now = 100;
        assert_eq!(start(&mut rig), Some((Access::Write, 0, 4)));
        assert_eq!(start(&mut rig), Some((Access::Write, 10, 4)));
        assert_eq!(rig.start(u64::MAX), Next::At(Nanos(190)), "{}", kind.name());
        rig.add(Access::Write, 0, 14, 6);
        rig.now = 190;
        assert_eq!(start(&mut rig).map(|(_, _, bytes)| bytes), Some(if kind == LayerKind::WriteBehind { 4 } else { 10 }));
    }
}

#[test]
fn a_flush_takes_what_was_there_and_not_what_comes_meanwhile() {
    let config = ImprovedConfig { delay: Some(Delay { age_ns: 1000, bytes: 1000 }), ..plain() };
    let mut rig = Rig::new(LayerKind::ServerDirected, &config);
    rig.add(Access::Write, 0, 0, 2);
    rig.add(Access::Write, 0, 20, 2);
    rig.layer.flush(Nanos(0), FileKey(0));
    rig.add(Access::Write, 0, 10, 2);
    rig.add(Access::Write, 0, 22, 2);
    rig.add(Access::Write, 0, 30, 2);
    assert_eq!(start(&mut rig), Some((Access::Write, 0, 2)));
    assert_eq!(start(&mut rig), Some((Access::Write, 20, 4)), "with what touches it");
    assert_eq!(start(&mut rig), None, "the others wait for company");
}

#[test]
fn a_newer_write_takes_the_place_in_the_queue_of_what_it_replaces() {
    for kind in [LayerKind::WriteBehind, LayerKind::Aggregation, LayerKind::ServerDirected] {
        let config = ImprovedConfig { delay: Some(Delay { age_ns: 100, bytes: 1000 }), ..plain() };
        let mut rig = Rig::new(kind, &config);
        rig.add(Access::Write, 0, 0, 4);
        rig.now = 90;
        rig.add(Access::Write, 0, 2, 4);
        assert_eq!(rig.start(u64::MAX), Next::At(Nanos(100)));
        rig.now = 100;
        let mut written = BTreeMap::new();
        while let Some((_, offset, bytes)) = start(&mut rig) {
            written.insert(offset, bytes);
        }
        assert_eq!(written.values().sum::<u64>(), 6, "{}: what is left of the first, and the second: {written:?}", kind.name());
        // A flush as well takes what stands there now.
        rig.add(Access::Write, 0, 20, 4);
        rig.layer.flush(Nanos(100), FileKey(0));
        rig.add(Access::Write, 0, 20, 4);
        assert_eq!(start(&mut rig), Some((Access::Write, 20, 4)), "{}", kind.name());
    }
}
