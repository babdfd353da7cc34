//! The live table: plans, records, `apply`. The rules for its callers are in the module header of
//! [`crate::objects`].

use super::placing::{gaps, mapped};
use super::reservations::{BackedRun, Reservations};
use super::space::bytes_of;
use super::state::{Object, Objects};
use super::windows::WindowLimits;
use super::{
    BLOCK_BYTES, BlockRun, CONTAINER_HEADER_BYTES, DiskPiece, ExtentPut, IoTicket, OBJECT_BYTES_MAX, ObjectError, ObjectKey, ObjectRecord,
    ObjectStat, QuarantineMark, ReadPiece, SpaceAllocator, SpaceUsage, block_of,
};
use std::fmt;
use std::ops::Bound;
use weft_base::DataTime;

/// All objects of a data server and the space of its container.
#[derive(Debug)]
pub struct ObjectTable {
    pub(super) objects: Objects,
    pub(super) reservations: Reservations,
    pub(super) space: SpaceAllocator,
    pub(super) windows: WindowLimits,
    mapped_blocks: u64,
}

/// Where the bytes of a write go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePlan {
    /// The object.
    pub key: ObjectKey,
    /// Local byte offset of the write.
    pub local_offset: u64,
    /// Bytes to write.
    pub len: u64,
    /// Where they go, in order of the local bytes; their lengths add up to `len`.
    pub pieces: Vec<DiskPiece>,
}

/// A truncation, removal or released reservation came between plan and record: the bytes were
/// written to places that are no longer the object's. Plan and write again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StalePlan;

impl fmt::Display for StalePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the object changed its place while it was written")
    }
}
impl std::error::Error for StalePlan {}

/// A place in the walk over all objects, between two slices of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectCursor {
    key: ObjectKey,
    /// Local offset from which on extents are still to come; `None` if the object is done.
    local_offset: Option<u64>,
}

/// A checkpoint record carries at most this many extents, about 16 bytes each.
const EXTENTS_PER_RECORD: usize = 1024;

impl ObjectTable {
    /// A table without objects over an empty container that may grow to `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> ObjectTable {
        let header = block_of(CONTAINER_HEADER_BYTES as u64);
        ObjectTable::recovered(Objects::new(), SpaceAllocator::new(header, block_of(capacity_bytes)))
    }

    pub(super) fn recovered(objects: Objects, space: SpaceAllocator) -> ObjectTable {
        let mapped_blocks = objects.values().map(|object| object.mapped_blocks).sum();
        ObjectTable { objects, reservations: Reservations::default(), space, windows: WindowLimits::default(), mapped_blocks }
    }

    /// Says where `len` bytes at `local_offset` of the object go, and reserves space for those that
    /// have no place yet. Nothing durable changes: an abandoned plan leaves a reservation and no
    /// more.
    ///
    /// Errors: [`ObjectError::NoSpace`] (then nothing was reserved), [`ObjectError::TooLarge`].
    pub fn plan_write(&mut self, key: ObjectKey, local_offset: u64, len: u64) -> Result<WritePlan, ObjectError> {
        let end = local_offset.checked_add(len).filter(|end| *end <= OBJECT_BYTES_MAX).ok_or(ObjectError::TooLarge)?;
        if len > 0 {
            self.reserve(key, block_of(local_offset), block_of(end - 1))?;
        }
        self.reservations.note_plan(key);
        let pieces = self.places(key, local_offset, end).expect("every block of the range has just been given a place");
        Ok(WritePlan { key, local_offset, len, pieces })
    }

    /// The record that makes the finished write of `plan` part of the object, to be journaled and
    /// applied in the same turn; `None` if it only overwrote bytes in place ([`Self::note_mtime`]
    /// then keeps the time). [`StalePlan`]: plan and write again.
    pub fn record_for(&self, plan: &WritePlan, mtime: DataTime) -> Result<Option<ObjectRecord>, StalePlan> {
        let end = plan.local_offset + plan.len;
        if self.places(plan.key, plan.local_offset, end).as_ref() != Some(&plan.pieces) {
            return Err(StalePlan);
        }
        let extents = self.unmapped(plan.key, plan.local_offset, end);
        let object = self.objects.get(&plan.key);
        let size_bytes = object.map_or(0, |object| object.size_bytes);
        // The first write after a time was set is kept also if it is in place: it decides whose
        // time is shown.
        let is_first = object.is_none_or(|object| mtime.epoch > object.mtime.epoch || !object.mtime.is_of_a_change());
        if plan.len == 0 || (extents.is_empty() && end <= size_bytes && !is_first) {
            return Ok(None);
        }
        let truncate_epoch = object.map_or(0, |object| object.truncate_epoch);
        Ok(Some(ObjectRecord::Put { key: plan.key, size_bytes: size_bytes.max(end), mtime, truncate_epoch, extents }))
    }

    /// True if the object would take more than `most` bytes, and more than now, with this record.
    pub fn grows_beyond(&self, record: &ObjectRecord, most: u64) -> bool {
        let empty = Object::new();
        let object = self.objects.get(&record.key()).unwrap_or(&empty);
        let added = added_blocks(object, record);
        added > 0 && bytes_of(object.mapped_blocks + added) > most
    }

    /// The record that sets the size of an object. `None` if nothing would change: an object that
    /// does not exist, at size and truncation count 0, or an object that has this size and count
    /// already. Errors: [`ObjectError::TooLarge`].
    pub fn plan_truncate(&self, key: ObjectKey, size_bytes: u64, mtime: DataTime, epoch: u32) -> Result<Option<ObjectRecord>, ObjectError> {
        if size_bytes > OBJECT_BYTES_MAX {
            return Err(ObjectError::TooLarge);
        }
        let (size_now, epoch_now) = self.objects.get(&key).map_or((0, 0), |object| (object.size_bytes, object.truncate_epoch));
        let change = size_bytes != size_now || epoch > epoch_now;
        Ok(change.then_some(ObjectRecord::Truncate { key, size_bytes, mtime, truncate_epoch: epoch }))
    }

    /// The record that removes an object; `None` if it does not exist.
    pub fn plan_remove(&self, key: ObjectKey) -> Option<ObjectRecord> {
        self.objects.contains_key(&key).then_some(ObjectRecord::Remove { key })
    }

    /// The record with which writes from now on belong to `epoch` at least; `None` if they do. The
    /// object begins to exist.
    pub fn plan_epoch(&self, key: ObjectKey, epoch: u32) -> Option<ObjectRecord> {
        let object = self.objects.get(&key);
        let (size_bytes, truncate_epoch) = object.map_or((0, 0), |object| (object.size_bytes, object.truncate_epoch));
        let is_known = object.is_some_and(|object| object.mtime.epoch >= epoch);
        let mtime = DataTime::none_in(epoch);
        (!is_known).then_some(ObjectRecord::Put { key, size_bytes, mtime, truncate_epoch, extents: Vec::new() })
    }

    /// Where the bytes of a read lie, clipped to the local size: empty if `local_offset` is at or
    /// beyond it.
    pub fn plan_read(&self, key: ObjectKey, local_offset: u64, len: u64) -> Vec<ReadPiece> {
        let Some(object) = self.objects.get(&key) else { return Vec::new() };
        let end = local_offset.saturating_add(len).min(object.size_bytes);
        let mut pieces = Vec::new();
        let mut at = local_offset;
        for (offset, extent) in object.extents.within(local_offset, end) {
            if offset > at {
                pieces.push(ReadPiece::Hole { len: offset - at });
            }
            pieces.push(ReadPiece::Data { disk_offset: extent.disk_offset, len: extent.len });
            at = offset + extent.len;
        }
        if at < end {
            pieces.push(ReadPiece::Hole { len: end - at });
        }
        pieces
    }

    /// Makes a record true: the only way in which anything durable changes. The record was made by
    /// this table in the same turn (or in the same state); panics if a write uses blocks that the
    /// object does not hold.
    pub fn apply(&mut self, record: &ObjectRecord) {
        match record {
            ObjectRecord::Put { key, size_bytes, mtime, truncate_epoch, extents } => {
                let object = self.objects.entry(*key).or_insert_with(Object::new);
                object.join(*size_bytes, *mtime, *truncate_epoch);
                for put in extents {
                    let added = map_blocks(object, &mut self.reservations, *key, put);
                    object.mapped_blocks += added;
                    self.mapped_blocks += added;
                    object.put(put);
                }
            }
            ObjectRecord::Truncate { key, size_bytes, mtime, truncate_epoch } => self.truncate(*key, *size_bytes, *mtime, *truncate_epoch),
            ObjectRecord::Punch { key, mtime, local_offset, len } => self.punch(*key, *local_offset, *len, *mtime),
            ObjectRecord::Remove { key } => {
                self.truncate(*key, 0, DataTime::NONE, 0);
                let removed = self.objects.remove(key);
                assert!(removed.is_some_and(|object| object.mapped_blocks == 0), "a removed object holds nothing");
            }
        }
    }

    /// Remembers the time of an in-place write. Volatile until the next record or checkpoint of the
    /// object.
    pub fn note_mtime(&mut self, key: ObjectKey, mtime: DataTime) {
        if let Some(object) = self.objects.get_mut(&key) {
            object.join(0, mtime, 0);
        }
    }

    /// What is known of the object; `None` if it does not exist.
    pub fn stat(&self, key: ObjectKey) -> Option<ObjectStat> {
        self.objects.get(&key).map(stat_of)
    }

    /// All objects in order.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectKey, ObjectStat)> {
        self.iter_behind(None)
    }

    /// Objects behind this one, in order; all without one.
    pub fn iter_behind(&self, behind: Option<ObjectKey>) -> impl Iterator<Item = (ObjectKey, ObjectStat)> {
        let start = behind.map_or(Bound::Unbounded, Bound::Excluded);
        self.objects.range((start, Bound::Unbounded)).map(|(key, object)| (*key, stat_of(object)))
    }

    /// The extents of an object as local offset, disk offset and length, in order, for inspection.
    pub fn extents(&self, key: ObjectKey) -> Vec<ExtentPut> {
        self.extents_within(key, 0, u64::MAX).collect()
    }

    /// The extents with bytes from `start` to `end`, clipped to them.
    pub(super) fn extents_within(&self, key: ObjectKey, start: u64, end: u64) -> impl Iterator<Item = ExtentPut> {
        let extents = self.objects.get(&key).into_iter().flat_map(move |object| object.extents.within(start, end));
        extents.map(|(local_offset, extent)| ExtentPut { local_offset, disk_offset: extent.disk_offset, len: extent.len })
    }

    /// So many blocks belong to no object any more.
    pub(super) fn unmap_blocks(&mut self, blocks: u64) {
        assert!(blocks <= self.mapped_blocks, "what is freed was counted");
        self.mapped_blocks -= blocks;
    }

    /// Number of objects.
    pub fn object_count(&self) -> u64 {
        self.objects.len() as u64
    }

    /// Bytes of the container that objects occupy (whole blocks).
    pub fn used_bytes(&self) -> u64 {
        bytes_of(self.mapped_blocks)
    }

    /// How the container is used.
    pub fn usage(&self) -> SpaceUsage {
        SpaceUsage {
            capacity_bytes: bytes_of(self.space.capacity_blocks()),
            header_bytes: CONTAINER_HEADER_BYTES as u64,
            mapped_bytes: bytes_of(self.mapped_blocks),
            reserved_bytes: bytes_of(self.reservations.blocks()),
            quarantined_bytes: bytes_of(self.space.quarantined_blocks()),
            free_bytes: bytes_of(self.space.available_blocks()),
            high_water_bytes: bytes_of(self.space.high_water()),
        }
    }

    /// Changes how much space may be held for writes that are likely to come.
    pub fn set_window_limits(&mut self, limits: WindowLimits) {
        self.windows = limits;
    }

    /// Opens a ticket that protects the places of plans (writes and reads) made from now on until
    /// [`Self::end_io`].
    pub fn begin_io(&mut self) -> IoTicket {
        self.space.begin_io()
    }

    /// Says that the transfers under this ticket have ended and their records are applied.
    pub fn end_io(&mut self, ticket: IoTicket) {
        self.space.end_io(ticket);
    }

    /// Marks everything freed so far. Take it after the journal frames with the records were
    /// written and before their sync begins.
    pub fn quarantine_mark(&self) -> QuarantineMark {
        self.space.quarantine_mark()
    }

    /// Says that the journal is durable up to `mark`: space freed before it may be used again.
    /// Returns the bytes that became free.
    pub fn release_quarantine(&mut self, mark: QuarantineMark) -> u64 {
        bytes_of(self.space.release_quarantine(mark))
    }

    /// Gives up the reservation of one object, as when its last writer closes it. Plans in flight
    /// become stale.
    pub fn release_reservation(&mut self, key: ObjectKey) {
        for run in self.reservations.drop_from(key, 0) {
            self.space.free(BlockRun { start: run.disk, blocks: run.blocks });
        }
    }

    /// Counts plans of writes; see [`Self::release_idle_reservations`].
    pub fn plan_count(&self) -> u64 {
        self.reservations.plans()
    }

    /// Gives up the reservations of all objects for which no write was planned since
    /// [`Self::plan_count`] was `since`. A node calls it now and then with the count of some
    /// seconds ago, and with the present one when space is short.
    pub fn release_idle_reservations(&mut self, since: u64) {
        for key in self.reservations.idle_since(since) {
            self.release_reservation(key);
        }
    }

    /// Gives the records of the next objects to `emit`, encoded, at least one and until they reach
    /// `bytes_max`, beginning behind `cursor` (`None`: at the first object). Returns where the next
    /// slice begins, `None` at the end.
    pub fn encode_from(&self, cursor: Option<ObjectCursor>, bytes_max: usize, mut emit: impl FnMut(&[u8])) -> Option<ObjectCursor> {
        let first = match cursor {
            None => Bound::Unbounded,
            Some(ObjectCursor { key, local_offset: Some(_) }) => Bound::Included(key),
            Some(ObjectCursor { key, local_offset: None }) => Bound::Excluded(key),
        };
        let mut bytes = 0;
        let mut out = Vec::new();
        for (key, object) in self.objects.range((first, Bound::Unbounded)) {
            let mut from = cursor.filter(|cursor| cursor.key == *key).and_then(|cursor| cursor.local_offset);
            loop {
                let (record, next) = slice_of(*key, object, from.unwrap_or(0));
                out.clear();
                record.encode(&mut out);
                emit(&out);
                bytes += out.len();
                if bytes >= bytes_max {
                    return Some(ObjectCursor { key: *key, local_offset: next });
                }
                if next.is_none() {
                    break;
                }
                from = next;
            }
        }
        None
    }

    fn truncate(&mut self, key: ObjectKey, size_bytes: u64, mtime: DataTime, truncate_epoch: u32) {
        let object = self.objects.entry(key).or_insert_with(Object::new);
        let first = block_of(size_bytes);
        let before = mapped(object, first, u64::MAX);
        object.truncate(size_bytes, mtime, truncate_epoch);
        let kept = mapped(object, first, first).len() as u64;
        let freed = before.iter().filter_map(|run| run.clip(first + kept, u64::MAX));
        let mut freed_blocks = 0;
        for run in freed.inspect(|run| freed_blocks += run.blocks) {
            self.space.free(BlockRun { start: run.disk, blocks: run.blocks });
        }
        assert!(freed_blocks <= object.mapped_blocks && object.mapped_blocks <= self.mapped_blocks, "what is freed was counted");
        object.mapped_blocks -= freed_blocks;
        self.mapped_blocks -= freed_blocks;
        for run in self.reservations.drop_from(key, size_bytes.div_ceil(BLOCK_BYTES)) {
            self.space.free(BlockRun { start: run.disk, blocks: run.blocks });
        }
    }
}

/// Moves the blocks of `put` that no extent touches yet from the reservation to the object; returns
/// their number.
fn map_blocks(object: &Object, reservations: &mut Reservations, key: ObjectKey, put: &ExtentPut) -> u64 {
    let (first, last) = (block_of(put.local_offset), block_of(put.local_offset + put.len - 1));
    let disk_of = |local| block_of(put.disk_offset) + (local - first);
    let present = mapped(object, first, last);
    for run in &present {
        assert!(run.disk == disk_of(run.local), "a write may not move a block of its object");
    }
    let mut added = 0;
    for (local, blocks) in gaps(first, last, &present) {
        reservations.consume(key, BackedRun { local, disk: disk_of(local), blocks });
        added += blocks;
    }
    added
}

/// Blocks that an object lacks for the extents of a record, which ascend.
fn added_blocks(object: &Object, record: &ObjectRecord) -> u64 {
    let ObjectRecord::Put { extents, .. } = record else { return 0 };
    let (mut added, mut next) = (0, 0);
    for put in extents.iter().filter(|put| put.len > 0) {
        let (first, last) = (block_of(put.local_offset).max(next), block_of(put.local_offset + put.len - 1));
        if first <= last {
            added += gaps(first, last, &mapped(object, first, last)).iter().map(|(_, blocks)| blocks).sum::<u64>();
            next = last + 1;
        }
    }
    added
}

fn stat_of(object: &Object) -> ObjectStat {
    ObjectStat {
        size_bytes: object.size_bytes,
        mtime: object.mtime,
        truncate_epoch: object.truncate_epoch,
        allocated_bytes: bytes_of(object.mapped_blocks),
        extent_count: object.extents.len(),
    }
}

/// A record of the object with its next extents from local offset `from` on, and where the rest
/// begins.
fn slice_of(key: ObjectKey, object: &Object, from: u64) -> (ObjectRecord, Option<u64>) {
    let mut rest = object.extents.within(from, u64::MAX);
    let put = |(local_offset, extent): (u64, super::Extent)| ExtentPut { local_offset, disk_offset: extent.disk_offset, len: extent.len };
    let extents: Vec<_> = rest.by_ref().take(EXTENTS_PER_RECORD).map(put).collect();
    let next = rest.next().map(|(offset, _)| offset);
    let (size_bytes, mtime, truncate_epoch) = (object.size_bytes, object.mtime, object.truncate_epoch);
    (ObjectRecord::Put { key, size_bytes, mtime, truncate_epoch, extents }, next)
}
