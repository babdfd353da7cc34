//! The object table, journal and checkpoints together against a naive model, through crashes at
//! random points.
//!
//! The model is a byte vector per object. The disk keeps every byte at once, while the journal may
//! lose everything after its last sync: the worst case for reuse of space. Every written byte
//! carries the number of its object in its high bits, so a byte that shows up in the wrong object
//! is noticed wherever it comes from.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use weft_base::{DataTime, FsId, Handle, ServerId, WallTime};
use weft_store::Lsn;
use weft_store::checkpoint::{CheckpointHeader, CheckpointReader, CheckpointWriter};
use weft_store::journal::{EndReason, JournalWriter, Replay, SegmentHeader};
use weft_store::objects::*;

const OBJECTS: u8 = 5;
const OBJECT_BYTES: usize = 40_000;
const CAPACITY: u64 = 40 * BLOCK_BYTES;
/// Small enough for windows to be taken, given up and refused in this container.
const WINDOWS: WindowLimits = WindowLimits {
    window_bytes: 4 * BLOCK_BYTES,
    object_bytes_max: 8 * BLOCK_BYTES,
    total_bytes_max: 12 * BLOCK_BYTES,
    keep_bytes: BLOCK_BYTES,
};
const FS: FsId = FsId(77);
const SERVER: ServerId = ServerId(0x8001);

#[derive(Clone, Debug)]
enum Op {
    Write {
        object: u8,
        offset: usize,
        len: usize,
    },
    /// Plans a write and finishes it only when [`Op::Finish`] comes.
    Begin {
        object: u8,
        offset: usize,
        len: usize,
    },
    Finish,
    /// Plans a read that is carried out by [`Op::FinishRead`].
    BeginRead {
        object: u8,
        offset: usize,
        len: usize,
    },
    FinishRead,
    Truncate {
        object: u8,
        size: usize,
    },
    Punch {
        object: u8,
        offset: usize,
        len: usize,
    },
    Remove {
        object: u8,
    },
    Sync,
    ReleaseIdle,
    CheckpointSlice {
        bytes: usize,
    },
    Crash {
        keep: f64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let place = || (0..OBJECTS, 0..OBJECT_BYTES, prop_oneof![1usize..200, 1usize..12_000, Just(4096usize)]);
    let aligned = || (0..OBJECTS, 0..9usize, 1..4usize).prop_map(|(object, block, blocks)| (object, block * 4096, blocks * 4096));
    prop_oneof![
        5 => place().prop_map(|(object, offset, len)| Op::Write { object, offset, len }),
        3 => aligned().prop_map(|(object, offset, len)| Op::Write { object, offset, len }),
        3 => place().prop_map(|(object, offset, len)| Op::Begin { object, offset, len }),
        3 => Just(Op::Finish),
        1 => place().prop_map(|(object, offset, len)| Op::BeginRead { object, offset, len }),
        1 => Just(Op::FinishRead),
        2 => (0..OBJECTS, prop_oneof![0..OBJECT_BYTES, Just(0usize)]).prop_map(|(object, size)| Op::Truncate { object, size }),
        2 => place().prop_map(|(object, offset, len)| Op::Punch { object, offset, len }),
        1 => aligned().prop_map(|(object, offset, len)| Op::Punch { object, offset, len }),
        2 => (0..OBJECTS).prop_map(|object| Op::Remove { object }),
        3 => Just(Op::Sync),
        1 => Just(Op::ReleaseIdle),
        4 => (1usize..200).prop_map(|bytes| Op::CheckpointSlice { bytes }),
        1 => (0.0..=1.0).prop_map(|keep| Op::Crash { keep }),
    ]
}

type Model = BTreeMap<ObjectKey, Vec<u8>>;

struct World {
    disk: Vec<u8>,
    table: ObjectTable,
    journal: Vec<Vec<u8>>,
    /// The model after each record; index 0 is the empty beginning.
    history: Vec<Model>,
    synced: usize,
    model: Model,
    /// Every write with the number of records that were journaled when it reached the disk.
    writes: Vec<(usize, ObjectKey, usize, Vec<u8>)>,
    pending: Vec<(IoTicket, WritePlan, Vec<u8>)>,
    reads: Vec<(IoTicket, ObjectKey, Vec<ReadPiece>)>,
    walk: Option<Walk>,
    checkpoint: Option<Vec<u8>>,
    checkpoint_end: usize,
    counter: u8,
    clock: i64,
}

struct Walk {
    writer: CheckpointWriter,
    bytes: Vec<u8>,
    cursor: Option<ObjectCursor>,
}

fn key(object: u8) -> ObjectKey {
    ObjectKey { handle: Handle(1 + u64::from(object / 2)), index: u32::from(object % 2) }
}

fn object_number(key: ObjectKey) -> u8 {
    (0..OBJECTS).find(|object| self::key(*object) == key).expect("one of ours")
}

impl World {
    fn new() -> World {
        World {
            disk: vec![0xee; CAPACITY as usize],
            table: with_windows(ObjectTable::new(CAPACITY)),
            journal: Vec::new(),
            history: vec![Model::new()],
            synced: 0,
            model: Model::new(),
            writes: Vec::new(),
            pending: Vec::new(),
            reads: Vec::new(),
            walk: None,
            checkpoint: None,
            checkpoint_end: 0,
            counter: 0,
            clock: 0,
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Write { object, offset, len } => {
                let data = self.fresh_data(object, len);
                self.write(key(object), offset, data);
            }
            Op::Begin { object, offset, len } => {
                let data = self.fresh_data(object, len);
                let ticket = self.table.begin_io();
                match self.table.plan_write(key(object), offset as u64, len as u64) {
                    Ok(plan) => self.pending.push((ticket, plan, data)),
                    Err(_) => self.table.end_io(ticket),
                }
            }
            Op::Finish => {
                if !self.pending.is_empty() {
                    let (ticket, plan, data) = self.pending.remove(0);
                    let done = self.finish(&plan, &data);
                    self.table.end_io(ticket);
                    if !done && !self.write(plan.key, plan.local_offset as usize, data.clone()) {
                        self.adopt_partial_write(&plan, &data);
                    }
                }
            }
            Op::BeginRead { object, offset, len } => {
                let ticket = self.table.begin_io();
                let pieces = self.table.plan_read(key(object), offset as u64, len as u64);
                self.reads.push((ticket, key(object), pieces));
            }
            Op::FinishRead => {
                if let Some((ticket, key, pieces)) = self.reads.pop() {
                    let bytes = self.fetch(&pieces);
                    assert!(bytes.iter().all(|b| *b == 0 || b >> 5 == 1 + object_number(key)), "a late read saw another object");
                    self.table.end_io(ticket);
                }
            }
            Op::Truncate { object, size } => {
                self.clock += 1;
                let record =
                    self.table.plan_truncate(key(object), size as u64, DataTime { epoch: 2, at: WallTime(self.clock) }, 0).expect("small");
                if let Some(record) = record {
                    self.model.entry(key(object)).or_default().resize(size, 0);
                    self.commit(record);
                }
            }
            Op::Punch { object, offset, len } => {
                self.clock += 1;
                let mtime = DataTime { epoch: 2, at: WallTime(self.clock) };
                let record = self.table.plan_punch(key(object), offset as u64, len as u64, mtime).expect("small");
                if let Some(record) = record {
                    let content = self.model.entry(key(object)).or_default();
                    let end = content.len().min(offset + len);
                    if let Some(hole) = content.get_mut(offset..end) {
                        hole.fill(0);
                    }
                    self.commit(record);
                }
            }
            Op::Remove { object } => {
                if let Some(record) = self.table.plan_remove(key(object)) {
                    self.model.remove(&key(object));
                    self.commit(record);
                }
            }
            Op::Sync => self.sync(),
            Op::ReleaseIdle => self.table.release_idle_reservations(self.table.plan_count()),
            Op::CheckpointSlice { bytes } => self.checkpoint_slice(bytes),
            Op::Crash { keep } => self.crash(keep),
        }
        self.check();
    }

    fn fresh_data(&mut self, object: u8, len: usize) -> Vec<u8> {
        self.counter = self.counter % 31 + 1;
        vec![(object + 1) << 5 | self.counter; len]
    }

    /// Writes at once; false if there is no space.
    fn write(&mut self, key: ObjectKey, offset: usize, data: Vec<u8>) -> bool {
        let mut ticket = self.table.begin_io();
        let plan = match self.table.plan_write(key, offset as u64, data.len() as u64) {
            Ok(plan) => Some(plan),
            Err(ObjectError::NoSpace { needed_bytes, .. }) => {
                let busy: BTreeSet<_> = self.pending.iter().map(|(_, plan, _)| plan.key).collect();
                self.table.release_idle_reservations(self.table.plan_count());
                // What is freed while a ticket is out stays in quarantine, so ours must not be out.
                self.table.end_io(ticket);
                self.sync();
                ticket = self.table.begin_io();
                let again = self.table.plan_write(key, offset as u64, data.len() as u64).ok();
                assert!(again.is_some() || self.table.usage().free_bytes < needed_bytes || !busy.is_empty());
                again
            }
            Err(ObjectError::TooLarge) => panic!("small"),
        };
        if let Some(plan) = &plan {
            assert!(self.finish(plan, &data), "nothing came between");
        }
        self.table.end_io(ticket);
        plan.is_some()
    }

    /// A stale write whose repetition failed for lack of space may have changed bytes in place, as
    /// a failed write may.
    fn adopt_partial_write(&mut self, plan: &WritePlan, data: &[u8]) {
        let got = self.fetch(&self.table.plan_read(plan.key, 0, u64::MAX));
        let Some(content) = self.model.get_mut(&plan.key) else { return };
        for (at, byte) in data.iter().enumerate().map(|(i, byte)| (plan.local_offset as usize + i, byte)) {
            if content.get(at).is_some_and(|old| got[at] != *old) {
                assert_eq!(got[at], *byte);
                content[at] = *byte;
            }
        }
        *self.history.last_mut().expect("never empty") = self.model.clone();
    }

    /// Carries out a planned write; false if the plan is stale.
    fn finish(&mut self, plan: &WritePlan, data: &[u8]) -> bool {
        let offset = plan.local_offset as usize;
        let mut rest = data;
        for piece in &plan.pieces {
            let (now, later) = rest.split_at(piece.len as usize);
            self.disk[piece.disk_offset as usize..][..now.len()].copy_from_slice(now);
            rest = later;
        }
        assert!(rest.is_empty(), "the pieces cover the write");
        self.writes.push((self.journal.len(), plan.key, offset, data.to_vec()));
        self.clock += 1;
        let Ok(record) = self.table.record_for(plan, DataTime { epoch: 2, at: WallTime(self.clock) }) else { return false };
        let content = self.model.entry(plan.key).or_default();
        content.resize(content.len().max(offset + data.len()), 0);
        content[offset..][..data.len()].copy_from_slice(data);
        match record {
            Some(record) => self.commit(record),
            // An overwrite in place belongs to the state that the newest record left.
            None => {
                self.table.note_mtime(plan.key, DataTime { epoch: 2, at: WallTime(self.clock) });
                *self.history.last_mut().expect("never empty") = self.model.clone();
            }
        }
        assert_eq!(self.table.stat(plan.key).expect("just written").mtime, DataTime { epoch: 2, at: WallTime(self.clock) });
        true
    }

    fn commit(&mut self, record: ObjectRecord) {
        self.journal.push(record.to_vec());
        self.table.apply(&record);
        self.history.push(self.model.clone());
    }

    fn sync(&mut self) {
        let mark = self.table.quarantine_mark();
        self.synced = self.journal.len();
        self.table.release_quarantine(mark);
    }

    fn checkpoint_slice(&mut self, bytes: usize) {
        let journal_end = self.journal.len();
        let walk = self.walk.get_or_insert_with(|| {
            let header = CheckpointHeader { fs_id: FS, server_id: SERVER, generation: 1, start_lsn: Lsn(journal_end as u64 + 1) };
            Walk { writer: CheckpointWriter::with_chunk_bytes(header, 300), bytes: Vec::new(), cursor: None }
        });
        let (writer, out) = (&mut walk.writer, &mut walk.bytes);
        walk.cursor = self.table.encode_from(walk.cursor, bytes, |record| {
            out.extend(writer.push(record).into_iter().flatten());
        });
        if walk.cursor.is_none() {
            let Walk { writer, mut bytes, .. } = self.walk.take().expect("just used");
            bytes.extend_from_slice(&writer.finish(Lsn(journal_end as u64)));
            self.checkpoint_end = journal_end;
            self.checkpoint = Some(bytes);
            self.sync();
        }
    }

    /// Loses everything but the disk, the last checkpoint and a prefix of the journal that holds at
    /// least what was synced.
    fn crash(&mut self, keep: f64) {
        let kept = self.synced + ((self.journal.len() - self.synced) as f64 * keep) as usize;
        self.journal.truncate(kept);
        self.history.truncate(kept + 1);
        self.table = self.recover();
        self.pending.clear();
        self.reads.clear();
        self.walk = None;
        let usage = self.table.usage();
        assert_eq!((usage.reserved_bytes, usage.quarantined_bytes), (0, 0));
        let mut recovered = Model::new();
        for (key, stat) in self.table.iter() {
            let bytes = self.fetch(&self.table.plan_read(key, 0, u64::MAX));
            assert_eq!(bytes.len() as u64, stat.size_bytes);
            recovered.insert(key, bytes);
        }
        let want = self.history.last().expect("never empty");
        assert!(recovered.keys().eq(want.keys()), "other objects came back");
        for (key, bytes) in &recovered {
            assert_eq!(bytes.len(), want[key].len(), "another size came back");
            for (i, byte) in bytes.iter().enumerate() {
                let later = |(count, other, offset, data): &(usize, ObjectKey, usize, Vec<u8>)| {
                    *count >= kept && other == key && (*offset..*offset + data.len()).contains(&i) && data[i - offset] == *byte
                };
                assert!(
                    *byte == want[key][i] || self.writes.iter().any(later),
                    "byte {i} of {key:?} is {byte:#x}, not {:#x}",
                    want[key][i]
                );
            }
        }
        self.synced = kept;
        self.writes.clear();
        *self.history.last_mut().expect("never empty") = recovered.clone();
        self.model = recovered;
    }

    /// The table as a restarted server finds it: through the real checkpoint and journal formats.
    fn recover(&self) -> ObjectTable {
        let mut replay = ObjectReplay::new();
        let (mut start, mut needed) = (Lsn::FIRST, Lsn::NONE);
        if let Some(checkpoint) = &self.checkpoint {
            let mut reader = CheckpointReader::new();
            reader.push(checkpoint);
            while let Some(chunk) = reader.next_chunk().expect("whole") {
                chunk.records().for_each(|record| replay.apply(&ObjectRecord::decode(record).expect("whole")));
            }
            let end = reader.finish().expect("whole");
            (start, needed) = (end.header.start_lsn, end.end_lsn);
            assert_eq!(needed, Lsn(self.checkpoint_end as u64));
        }
        let images = journal_images(&self.journal);
        let mut segments = Replay::new(FS, SERVER, start);
        for (sequence, image) in &images {
            for (_, record) in segments.segment(*sequence, image).expect("whole") {
                replay.apply(&ObjectRecord::decode(record).expect("whole"));
            }
        }
        let end = segments.finish(needed).expect("complete");
        assert_eq!((end.next_lsn, end.end), (Lsn(self.journal.len() as u64 + 1), EndReason::Clean));
        with_windows(replay.finish(CAPACITY).expect("consistent"))
    }

    fn fetch(&self, pieces: &[ReadPiece]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in pieces {
            match piece {
                ReadPiece::Data { disk_offset, len } => bytes.extend_from_slice(&self.disk[*disk_offset as usize..][..*len as usize]),
                ReadPiece::Hole { len } => bytes.resize(bytes.len() + *len as usize, 0),
            }
        }
        bytes
    }

    fn check(&self) {
        let mut owners = BTreeMap::new();
        let mut mapped = 0;
        assert!(self.table.iter().map(|(key, _)| key).eq(self.model.keys().copied()));
        for (key, stat) in self.table.iter() {
            let content = &self.model[&key];
            assert_eq!(stat.size_bytes, content.len() as u64);
            let got = self.fetch(&self.table.plan_read(key, 0, u64::MAX));
            assert!(got == *content, "{key:?} differs at {:?}", got.iter().zip(content).position(|(a, b)| a != b));
            let mut blocks = BTreeSet::new();
            for put in self.table.extents(key) {
                assert!(put.local_offset + put.len <= stat.size_bytes);
                blocks.extend(put.disk_offset / BLOCK_BYTES..=(put.disk_offset + put.len - 1) / BLOCK_BYTES);
            }
            mapped += blocks.len() as u64;
            assert_eq!(stat.allocated_bytes, blocks.len() as u64 * BLOCK_BYTES);
            for block in blocks {
                assert_eq!(owners.insert(block, key), None, "block {block} has two owners");
            }
        }
        let usage = self.table.usage();
        assert_eq!(usage.mapped_bytes, mapped * BLOCK_BYTES);
        let parts = usage.header_bytes + usage.mapped_bytes + usage.reserved_bytes + usage.quarantined_bytes + usage.free_bytes;
        assert_eq!(parts, usage.capacity_bytes, "{usage:?}");
    }
}

fn with_windows(mut table: ObjectTable) -> ObjectTable {
    table.set_window_limits(WINDOWS);
    table
}

/// The journal as segment files of 8 KiB with frames of one to four records.
fn journal_images(records: &[Vec<u8>]) -> Vec<(u64, Vec<u8>)> {
    let header = SegmentHeader { fs_id: FS, server_id: SERVER, salt: 5, sequence: 1, first_lsn: Lsn::FIRST };
    let mut writer = JournalWriter::start(header, 8192);
    let begin = |header: SegmentHeader| {
        let mut image = header.encode().to_vec();
        image.resize(8192, 0);
        (header.sequence, image)
    };
    let mut images = vec![begin(header)];
    let mut durable = Lsn::NONE;
    for (i, frame) in records.chunks(4).enumerate() {
        for record in frame {
            writer.push(record);
        }
        if !writer.fits() {
            images.push(begin(writer.roll(i as u32, 8192)));
        }
        let append = writer.seal(durable).expect("records wait");
        let (_, image) = images.last_mut().expect("one at least");
        image[append.offset as usize..][..append.bytes.len()].copy_from_slice(&append.bytes);
        durable = append.last_lsn;
    }
    images
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn histories_with_crashes_agree_with_the_model(ops in proptest::collection::vec(op(), 1..120)) {
        let mut world = World::new();
        for op in ops {
            world.step(op);
        }
        world.step(Op::Crash { keep: 1.0 });
        world.step(Op::Crash { keep: 0.0 });
    }
}
