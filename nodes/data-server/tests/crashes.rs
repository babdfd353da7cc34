//! Random work against a model, while the server dies and loses power at random points.

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use common::{Cluster, Peer, config, serving};
use weft_base::{ClientId, MILLISECOND, Nanos, SECOND, Status};
use weft_data_server::{CacheConfig, DataServerConfig, Durability, ServingConfig, WriteBack};
use weft_rt::{Runtime, join_all};
use weft_rt_sim::{Fault, FaultPlan, MessageFaults, Profile, Random};
use weft_sched::LayerKind;

/// No object grows beyond this many bytes.
const OBJECT_MAX: u64 = 80_000;
/// Bytes that are compared at once.
const CHUNK: usize = 1000;
/// Objects of one client that live at the same time.
const LIVE: u64 = 3;
/// Clients that work at the same time, each on objects of its own.
const CLIENTS: u64 = 2;

/// What may be read from an object. Every byte tells its object (high half) and its write (low
/// half); 0 is a hole.
#[derive(Clone)]
struct Object {
    /// As of the last acknowledged operation, if nothing acknowledged was lost since.
    current: Vec<u8>,
    /// For each byte the low halves that it may have after a power cut, as bits.
    allowed: Vec<u16>,
    /// For each chunk: something changed it since it was looked at.
    changed: Vec<bool>,
    tag: u8,
    writes: u8,
}

impl Object {
    fn new(handle: u64) -> Object {
        let size = OBJECT_MAX as usize;
        let changed = vec![false; size / CHUNK];
        Object { current: vec![0; size], allowed: vec![1; size], changed, tag: (handle % 15 + 1) as u8, writes: 0 }
    }

    /// The byte of a new write.
    fn next_byte(&mut self) -> u8 {
        self.writes = self.writes % 15 + 1;
        self.tag << 4 | self.writes
    }

    fn allow(&mut self, range: std::ops::Range<u64>, byte: u8) {
        let range = range.start as usize..range.end as usize;
        self.changed[range.start / CHUNK..range.end.div_ceil(CHUNK)].fill(true);
        self.allowed[range].iter_mut().for_each(|allowed| *allowed |= 1 << (byte & 15));
    }

    fn set(&mut self, range: std::ops::Range<u64>, byte: u8) {
        self.current[range.start as usize..range.end as usize].fill(byte);
    }

    /// Looks at what was read; from now on it is what the object is.
    fn check(&mut self, mut seen: Vec<u8>, exactly: bool, what: &str) {
        seen.resize(OBJECT_MAX as usize, 0);
        for nth in 0..self.changed.len() {
            let chunk = nth * CHUNK..(nth + 1) * CHUNK;
            if !std::mem::take(&mut self.changed[nth]) && seen[chunk.clone()] == self.current[chunk.clone()] {
                continue;
            }
            for at in chunk {
                let byte = seen[at];
                assert!(
                    byte == 0 || byte >> 4 == self.tag,
                    "{what}: byte {at} is {byte:#x}, which another object wrote (tag {:#x})",
                    self.tag
                );
                assert!(
                    self.allowed[at] & 1 << (byte & 15) != 0,
                    "{what}: byte {at} is {byte:#x}, allowed are {:#b}, last {:#x}",
                    self.allowed[at],
                    self.current[at]
                );
                if exactly {
                    assert_eq!(byte, self.current[at], "{what}: byte {at} is not what was written last");
                }
                self.allowed[at] = 1 << (byte & 15);
            }
        }
        self.current = seen;
    }
}

struct Work {
    peer: Peer,
    random: Random,
    objects: BTreeMap<u64, Object>,
    next_handle: u64,
    removed: Vec<u64>,
    /// Nothing acknowledged may be lost.
    exactly: bool,
    seed: u64,
}

impl Work {
    async fn phase(&mut self) {
        for _ in 0..self.random.between(10, 60) {
            self.step().await;
        }
        self.sync_all().await;
    }

    async fn step(&mut self) {
        while (self.objects.len() as u64) < LIVE {
            self.objects.insert(self.next_handle, Object::new(self.next_handle));
            self.next_handle += CLIENTS;
        }
        let nth = self.random.below(LIVE) as usize;
        let handle = *self.objects.keys().nth(nth).expect("so many objects live");
        match self.random.below(20) {
            0 => self.sync(handle).await,
            1 => {
                self.peer.remove(handle).await.expect("removals succeed");
                self.objects.remove(&handle);
                self.removed.push(handle);
            }
            2 | 3 => self.truncate(handle).await,
            4 => self.peer.rt.sleep_until(self.peer.rt.now() + self.random.below(40 * MILLISECOND)).await,
            5..8 => self.write_list(handle).await,
            8 | 9 => self.make_zeros(handle).await,
            _ => self.write(handle).await,
        }
    }

    fn object(&mut self, handle: u64) -> &mut Object {
        self.objects.get_mut(&handle).expect("the object lives")
    }

    async fn write(&mut self, handle: u64) {
        let len = 1 << self.random.below(15);
        let len = self.random.between(1, len);
        let offset = match self.random.below(3) {
            0 => self.random.below(OBJECT_MAX / len) * len,
            _ => self.random.below(OBJECT_MAX - len),
        };
        self.write_pieces(handle, vec![(offset, len as u32)]).await;
    }

    async fn write_list(&mut self, handle: u64) {
        let (mut pieces, mut at) = (Vec::new(), 0);
        for _ in 0..self.random.between(2, 6) {
            at += self.random.below(12_000);
            let len = self.random.between(1, 2000);
            if at + len > OBJECT_MAX {
                break;
            }
            pieces.push((at, len as u32));
            at += len;
        }
        if !pieces.is_empty() {
            self.write_pieces(handle, pieces).await;
        }
    }

    async fn write_pieces(&mut self, handle: u64, pieces: Vec<(u64, u32)>) {
        let object = self.object(handle);
        let byte = object.next_byte();
        let ranges: Vec<_> = pieces.iter().map(|(offset, len)| *offset..*offset + u64::from(*len)).collect();
        ranges.iter().for_each(|range| object.allow(range.clone(), byte));
        let total: u32 = pieces.iter().map(|(_, len)| len).sum();
        let request = self.peer.write_request(handle, &pieces, self.random.below(10) == 0);
        match self.peer.call(&request, &vec![byte; total as usize]).await {
            Ok(_) => ranges.into_iter().for_each(|range| self.object(handle).set(range, byte)),
            Err(Status::NoSpace) => {}
            Err(status) => panic!("seed {}: a write failed: {status}", self.seed),
        }
    }

    async fn truncate(&mut self, handle: u64) {
        let size = self.random.below(OBJECT_MAX);
        self.object(handle).allow(size..OBJECT_MAX, 0);
        self.peer.truncate(handle, size).await.expect("truncations succeed");
        let object = self.object(handle);
        object.set(size..OBJECT_MAX, 0);
        // Acknowledged truncations are final, whatever crash follows.
        object.allowed[size as usize..].fill(1);
    }

    /// A hole, or zeros in its place.
    async fn make_zeros(&mut self, handle: u64) {
        let offset = self.random.below(OBJECT_MAX);
        let len = self.random.between(1, OBJECT_MAX - offset);
        let range = offset..offset + len;
        self.object(handle).allow(range.clone(), 0);
        let done = if self.random.below(3) > 0 {
            self.peer.punch(handle, offset, len).await.map(drop)
        } else {
            let request = self.peer.allocate_request(handle, offset, len as u32, true, true);
            self.peer.call(&request, &[]).await.map(drop)
        };
        match done {
            Ok(()) => self.object(handle).set(range, 0),
            // Zeros need space where there was none.
            Err(Status::NoSpace) => {}
            Err(status) => panic!("seed {}: no hole was made: {status}", self.seed),
        }
    }

    /// After this, nothing may take back what is read.
    async fn sync(&mut self, handle: u64) {
        self.peer.sync(handle).await.expect("syncs succeed");
        let seen = self.peer.read(handle, 0, OBJECT_MAX as u32).await.expect("reads succeed");
        let (exactly, what) = (self.exactly, format!("seed {} object {handle} at {:?}", self.seed, self.peer.rt.now()));
        self.object(handle).check(seen, exactly, &what);
    }

    async fn sync_all(&mut self) {
        for handle in self.objects.keys().copied().collect::<Vec<_>>() {
            self.sync(handle).await;
        }
        for handle in &self.removed {
            assert!(self.peer.has_nothing(*handle).await, "seed {}: object {handle} came back", self.seed);
        }
        let objects = self.peer.ping().await.objects;
        assert!(objects <= CLIENTS * LIVE, "seed {}: {objects} objects", self.seed);
    }
}

/// One history. `power`: the machine loses power, else the process dies.
fn run(seed: u64, power: bool, durability: Durability, cache: CacheConfig) -> u64 {
    let exactly = (!power || durability == Durability::Sync) && cache.write_back.is_none();
    let serving = ServingConfig { durability, batch_interval_ns: 10 * MILLISECOND, checkpoint_bytes: 6 << 10, ..serving() };
    let config = DataServerConfig {
        serving,
        cache,
        capacity_bytes: Some(600_000),
        punch_bytes: if seed.is_multiple_of(2) { 8192 } else { 1 << 20 },
    };
    let mut profile = Profile::instant();
    if seed % 4 > 1 {
        // Writes go on while a round syncs.
        profile.disk.sync_ns = (seed % 4) * MILLISECOND;
    }
    // Half of the faults strike while the server waits for a slow disk, half at a point where it
    // does something.
    let in_time = seed.is_multiple_of(2);
    if in_time {
        profile.disk.call_ns = MILLISECOND / 10;
    }
    let cluster = Cluster::new(seed, profile, config);
    let mut random = cluster.sim.random();
    if seed.is_multiple_of(3) {
        let faults = MessageFaults { delay_max_ns: 20 * MILLISECOND, ..MessageFaults::BAD };
        cluster.sim.message_faults(faults, 3600 * SECOND);
    }
    let works = (1..=CLIENTS).map(|client| Work {
        peer: Peer::new(cluster.sim.rt(cluster.client), ClientId(client)),
        random: cluster.sim.random(),
        objects: BTreeMap::new(),
        next_handle: client,
        removed: Vec::new(),
        exactly,
        seed,
    });
    let works = Rc::new(RefCell::new(works.collect::<Vec<_>>()));
    for _ in 0..6 {
        let down_ns = random.below(20 * MILLISECOND);
        let node = cluster.server;
        let fault = if power { Fault::PowerCut { node, down_ns } } else { Fault::Crash { node, down_ns } };
        if in_time {
            cluster.sim.schedule(&FaultPlan { faults: vec![(Nanos(random.below(60 * MILLISECOND)), fault)] });
        } else {
            cluster.sim.strike_after_polls(node, random.between(1, 900), fault);
        }
        let works = works.clone();
        cluster.run(move |_| async move {
            let mut mine = std::mem::take(&mut *works.borrow_mut());
            join_all(mine.iter_mut().map(Work::phase)).await;
            *works.borrow_mut() = mine;
        });
    }
    let errors = cluster.errors.borrow();
    assert!(errors.is_empty(), "seed {seed}: the server stopped: {errors:?}");
    cluster.sim.trace_hash()
}

/// Runs `count` seeds from `first` on; `SEEDS_FACTOR=100` in the environment runs a hundred times
/// as many.
fn run_all(first: u64, count: u64, power: bool, durability: Durability) {
    run_all_with(first, count, power, durability, CacheConfig::default());
}

fn run_all_with(first: u64, count: u64, power: bool, durability: Durability, cache: CacheConfig) {
    let factor = std::env::var("SEEDS_FACTOR").map_or(1, |factor| factor.parse().expect("SEEDS_FACTOR is a number"));
    for seed in first..first + count * factor {
        run(seed, power, durability, cache);
    }
}

const BATCH: Durability = Durability::Batch;

#[test]
fn the_death_of_the_process_loses_nothing_acknowledged() {
    run_all(0, 25, false, BATCH);
    run_all(25, 10, false, Durability::None);
}

#[test]
fn a_power_cut_loses_nothing_synced_and_shows_no_foreign_byte() {
    run_all(100, 40, true, BATCH);
    run_all(140, 10, true, Durability::None);
}

#[test]
fn with_durability_sync_a_power_cut_loses_nothing_acknowledged() {
    run_all(200, 20, true, Durability::Sync);
}

#[test]
fn no_cache_layer_loses_what_was_acknowledged_or_shows_a_foreign_byte() {
    for (first, layer) in (300..).step_by(10).zip(LayerKind::ALL) {
        for (takes_all, depth) in [(false, 1), (true, 1), (true, 3)] {
            let cache = CacheConfig { layer, takes_all, depth, ..CacheConfig::default() };
            run_all_with(first, 2, false, BATCH, cache);
            run_all_with(first + 4, 2, true, BATCH, cache);
        }
    }
}

/// Answered when the layer has them: the death of the process may take what was not synced, as a
/// power cut does, and no more.
#[test]
fn writes_that_are_answered_early_are_there_after_a_sync_and_never_foreign() {
    for (first, layer) in (400..).step_by(40).zip([LayerKind::WriteBehind, LayerKind::Aggregation, LayerKind::ServerDirected]) {
        for (nth, bytes_max, age_ns) in [(0, 20_000, 5 * MILLISECOND), (20, 64 << 20, 20 * MILLISECOND)] {
            let write_back = Some(WriteBack { bytes_max, age_ns });
            let cache = CacheConfig { layer, takes_all: true, write_back, ..CacheConfig::default() };
            run_all_with(first + nth, 5, false, Durability::None, cache);
            run_all_with(first + nth + 10, 5, true, Durability::None, cache);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let cache = CacheConfig::default();
    assert_eq!(run(7, true, BATCH, cache), run(7, true, BATCH, cache));
}

/// A short fixed history, with a fault at every single point where the server can be interrupted.
fn interrupted_everywhere(power: bool) {
    for polls in 1..200 {
        let cluster = Cluster::new(polls, Profile::instant(), config());
        cluster.run(async |peer: Peer| {
            peer.write(1, 0, &[1; 9000]).await.unwrap();
            peer.write(2, 0, &[2; 9000]).await.unwrap();
            peer.sync(1).await.unwrap();
        });
        let (node, down_ns) = (cluster.server, MILLISECOND);
        let fault = if power { Fault::PowerCut { node, down_ns } } else { Fault::Crash { node, down_ns } };
        let lives = cluster.sim.rt(node).life();
        cluster.sim.strike_after_polls(node, polls, fault);
        let reached_end = cluster.run(async |peer: Peer| {
            peer.write(1, 4000, &[3; 1000]).await.unwrap();
            peer.write(1, 9000, &[4; 9000]).await.unwrap();
            peer.remove(2).await.unwrap();
            peer.write(3, 0, &[5; 20_000]).await.unwrap();
            peer.sync(1).await.unwrap();
            true
        });
        cluster.restart_after_power_cut();
        cluster.run(async move |peer: Peer| {
            let one = peer.read(1, 0, 20_000).await.unwrap();
            let three = peer.read(3, 0, 30_000).await.unwrap();
            if power {
                // What was acknowledged before the first power cut and not synced may be gone; what
                // it left is never foreign.
                assert!(one.len() >= 9000 && one.iter().all(|byte| [0, 1, 3, 4].contains(byte)), "{polls} polls");
                assert!(three.iter().all(|byte| [0, 5].contains(byte)), "{polls} polls");
            } else {
                assert!(reached_end);
                assert_eq!(one, [&[1; 4000][..], &[3; 1000], &[1; 4000], &[4; 9000]].concat(), "{polls} polls");
                assert_eq!(three, [5; 20_000], "{polls} polls");
                assert!(peer.has_nothing(2).await, "{polls} polls");
            }
        });
        let errors = cluster.errors.borrow();
        assert!(errors.is_empty(), "{polls} polls: {errors:?}");
        if cluster.sim.rt(node).life() == lives + 1 {
            assert!(polls > 30, "the history has more points than {polls}");
            return;
        }
    }
    panic!("the history has more points than were tried");
}

#[test]
fn a_crash_at_any_point_loses_nothing_acknowledged() {
    interrupted_everywhere(false);
}

#[test]
fn a_power_cut_at_any_point_shows_nothing_foreign() {
    interrupted_everywhere(true);
}
