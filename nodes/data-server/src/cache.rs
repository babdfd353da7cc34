//! The cache layer at work: accesses to the container from all requests of a turn meet here, and
//! [`weft_sched`] decides what the disk does next.
//!
//! A write is answered when its data is in the container, whatever the layer
//! (`docs/decisions/0008-where-the-cache-layer-is.md`), so a layer changes order and number of the
//! accesses of a turn, never what an answer means. What takes part are accesses between which the
//! layer has a choice: more than one at a time, and not so long that their start costs nothing.
//!
//! With [`crate::WriteBack`] (durability `none`) writes are answered when the layer has accepted
//! them. Then everything goes through the layer, which lets no read overtake a write of the same
//! bytes; a round of `durability.rs` begins by writing what was answered before it; and the disk is
//! served by a flow of its own, not within turns.
//!
//! What was read through between wanted bytes is kept for a moment ([`weft_sched::Kept`]), and who
//! asks for it needs no disk.
//!
//! The layer sees places of the container, not of objects: neighbours there are neighbours on the
//! disk, whosever they are.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use weft_base::Payload;
use weft_rt::{Disk, DiskError, Either, FileId, Runtime, ServerRuntime, Signal, join_all, race};
use weft_sched::{Access, CacheLayer, Distance, FileKey, Job, JobPiece, Keep, Kept, Layer, LayerKind, Next, Piece, Places};
use weft_store::objects::{DiskPiece, ReadPiece};
use weft_trace::record::{class, flags};
use weft_trace::{OpenSpan, event};
use weft_wire::ops::DiskUse;

use crate::accesses::{Accesses, INDEX_BITS, PiecePlace, Running, fill};
use crate::transfer::{merged, merged_reads};
use crate::{CacheConfig, WriteBack};

/// The container is the only file.
const CONTAINER: FileKey = FileKey(0);
/// With less room on the disk beyond what is answered and not written, in bytes, no write is
/// answered early: it could fail later.
const ROOM_BYTES: u64 = 256 << 20;

/// The way to the container.
pub struct Cache {
    config: CacheConfig,
    layer: RefCell<Layer>,
    /// What was read only because it lay between wanted bytes. Nothing, where writes go past the
    /// layer.
    kept: RefCell<Kept<Payload>>,
    accesses: RefCell<Accesses>,
    /// Something new is queued, or an operation has ended.
    changed: Signal,
    places: RefCell<Places>,
    /// Accesses of the turn may meet others.
    is_shared: Cell<bool>,
    /// Operations of the layer that the disk works on.
    operations: Cell<u64>,
    /// Writes may be answered before they are done, if the configuration says how.
    answers_early: Cell<bool>,
    /// Why a write failed that was answered before.
    lost: RefCell<Option<DiskError>>,
}

/// See [`Cache::load`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheLoad {
    /// Requests whose pieces are not all done.
    pub requests: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Bytes of writes among them that are answered.
    pub answered_bytes: u64,
    /// Operations that the disk works on.
    pub operations: u64,
}

impl Cache {
    /// An idle cache.
    pub fn new(config: CacheConfig) -> Cache {
        assert!(config.takes_all || config.write_back.is_none(), "reads must meet writes that are not done");
        let rules = config.rules();
        let keep = if config.takes_all { rules.keep } else { Keep::NONE };
        Cache {
            config,
            layer: RefCell::new(Layer::improved(config.layer, &rules)),
            kept: RefCell::new(Kept::new(keep)),
            accesses: RefCell::default(),
            changed: Signal::new(),
            places: RefCell::new(Places::new(weft_sched::classic::NEAR_BYTES)),
            is_shared: Cell::new(false),
            operations: Cell::new(0),
            answers_early: Cell::new(true),
            lost: RefCell::default(),
        }
    }

    /// Says whether writes may be answered before they are done.
    pub fn answer_early(&self, may: bool) {
        self.answers_early.set(may);
    }

    /// True if requests of one turn are to meet here although they are for one object.
    pub fn gathers(&self) -> bool {
        self.config.layer != LayerKind::None
    }

    /// Says whether the turn that begins has several requests.
    pub fn begin_turn(&self, requests: usize) {
        self.is_shared.set(requests > 1);
    }

    /// Operations of the disk since the start.
    pub fn disk_use(&self) -> DiskUse {
        let (counts, layer) = (self.places.borrow().counts(), self.layer.borrow().stats());
        DiskUse {
            cache_layer: self.config.layer.name().to_string(),
            reads: counts.reads,
            read_bytes: counts.read_bytes,
            writes: counts.writes,
            written_bytes: counts.written_bytes,
            sequential: counts.sequential,
            near: counts.near,
            far: counts.far,
            gathered: layer.added_pieces,
            gathered_jobs: layer.jobs,
            sieved_bytes: layer.sieved_bytes,
        }
    }

    /// Bytes of writes that are answered and not on the disk, and how many there may be.
    pub fn answered_bytes(&self) -> (u64, u64) {
        (self.accesses.borrow().answered_bytes, self.config.write_back.map_or(0, |back| back.bytes_max))
    }

    fn takes_part(&self, bytes: u64, pieces: usize) -> bool {
        if self.config.takes_all {
            return bytes > 0;
        }
        self.gathers() && bytes <= self.config.long_bytes() && (pieces > 1 || self.is_shared.get())
    }

    /// Counts an operation; gives its class for trace records.
    fn note(&self, access: Access, offset: u64, bytes: u64) -> u8 {
        match self.places.borrow_mut().note(access, CONTAINER, offset, bytes) {
            Distance::Sequential => class::NO_SEEK,
            Distance::Near => class::NEAR_SEEK,
            Distance::Far => class::FAR_SEEK,
        }
    }

    /// What waits here and what is under way, for trace records: pieces in the layer, requests that
    /// are not done, bytes of them, bytes of writes that are answered and not done.
    pub fn load(&self) -> CacheLoad {
        let accesses = self.accesses.borrow();
        CacheLoad {
            requests: accesses.running.len() as u64,
            bytes: accesses.running.values().map(|running| running.left_bytes).sum(),
            answered_bytes: accesses.answered_bytes,
            operations: self.operations.get(),
        }
    }

    /// Writes `data` to these places through the layer, if there is anything to decide about them.
    /// `None`: write it as it is. `traced` learns how far the disk had to seek, and how long the
    /// layer let the request wait.
    ///
    /// # Errors
    /// Of the disk; then some of it may have been written.
    pub async fn write<R: ServerRuntime>(
        &self,
        rt: &R,
        places: &[DiskPiece],
        data: &Payload,
        traced: &mut OpenSpan,
    ) -> Option<Result<(), DiskError>> {
        if !self.takes_part(data.len(), merged(places).count()) {
            let farthest = merged(places).map(|place| self.note(Access::Write, place.disk_offset, place.len)).max();
            traced.class(farthest.unwrap_or(class::UNKNOWN));
            return None;
        }
        let pieces = merged(places).map(|place| (place.disk_offset, place.len));
        if let Some(back) = self.config.write_back.filter(|_| self.answers_early.get())
            && self.may_answer(rt.disk(), back, data.len()).await
        {
            // The sender may use its memory again once it is answered.
            let id = self.queue(rt, Access::Write, pieces, copied(data));
            let mut accesses = self.accesses.borrow_mut();
            accesses.answered.insert(id);
            accesses.answered_bytes += data.len();
            return Some(Ok(()));
        }
        let id = self.queue(rt, Access::Write, pieces, data.clone());
        Some(self.finished(id, traced).await.map(drop))
    }

    /// True if a write may be answered before it is done: there is memory, and room on the disk.
    async fn may_answer<D: Disk>(&self, disk: &D, back: WriteBack, bytes: u64) -> bool {
        let answered_bytes = self.accesses.borrow().answered_bytes;
        let memory_free = back.bytes_max.saturating_sub(answered_bytes);
        if !self.layer.borrow().accepts(bytes, memory_free) {
            return false;
        }
        disk.space().await.is_ok_and(|(_, free)| free >= answered_bytes + bytes + ROOM_BYTES)
    }

    /// True if the disk is served by a flow of its own, and requests are under way over turns.
    pub fn is_served_aside(&self) -> bool {
        self.config.takes_all
    }

    /// Waits until every write is done that was answered before.
    ///
    /// # Errors
    /// Of the disk: some of them are lost.
    pub async fn drain<R: Runtime>(&self, rt: &R) -> Result<(), DiskError> {
        let newest = self.accesses.borrow().last;
        if self.accesses.borrow().answered.is_empty() {
            return self.lost();
        }
        self.layer.borrow_mut().flush(rt.now(), CONTAINER);
        self.changed.notify();
        loop {
            let changed = self.changed.wait();
            self.lost()?;
            if self.accesses.borrow().answered.first().is_none_or(|id| *id > newest) {
                return Ok(());
            }
            changed.await;
        }
    }

    /// # Errors
    /// If a write has failed that was answered before.
    fn lost(&self) -> Result<(), DiskError> {
        self.lost.borrow().clone().map_or(Ok(()), Err)
    }

    /// Serves the disk until a write is lost that was answered before.
    pub async fn serve<R: ServerRuntime>(&self, rt: &R, container: FileId) -> DiskError {
        let lost = async {
            loop {
                let changed = self.changed.wait();
                if let Err(error) = self.lost() {
                    return error;
                }
                changed.await;
            }
        };
        match race(lost, self.work(rt, container)).await {
            Either::First(error) => error,
            Either::Second(()) => unreachable!("the cache works for ever"),
        }
    }

    /// Reads these pieces through the layer, if there is anything to decide about them. `None`:
    /// read them as they are.
    ///
    /// # Errors
    /// Of the disk.
    pub async fn read<R: Runtime>(&self, rt: &R, pieces: &[ReadPiece], traced: &mut OpenSpan) -> Option<Result<Payload, DiskError>> {
        let data = || {
            merged_reads(pieces).filter_map(|piece| match piece {
                ReadPiece::Data { disk_offset, len } => Some((disk_offset, len)),
                ReadPiece::Hole { .. } => None,
            })
        };
        if !self.takes_part(data().map(|(_, len)| len).sum(), data().count()) {
            let farthest = data().map(|(disk_offset, len)| self.note(Access::Read, disk_offset, len)).max();
            traced.class(farthest.unwrap_or(class::UNKNOWN));
            return None;
        }
        let id = self.queue(rt, Access::Read, data(), Payload::EMPTY);
        let got = self.finished(id, traced).await;
        Some(got.map(|got| fill(pieces, got)))
    }

    /// Queues pieces; gives the number of the access.
    fn queue<R: Runtime>(&self, rt: &R, access: Access, pieces: impl Iterator<Item = (u64, u64)>, data: Payload) -> u64 {
        let id = {
            let mut accesses = self.accesses.borrow_mut();
            accesses.last += 1;
            let id = accesses.last;
            let mut running = Running { data, class: class::UNKNOWN, ..Running::default() };
            let mut data_offset = 0;
            let (now, mut layer, mut kept) = (rt.now(), self.layer.borrow_mut(), self.kept.borrow_mut());
            for (index, (offset, bytes)) in pieces.enumerate() {
                running.pieces.push(PiecePlace { disk_offset: offset, data_offset });
                if access == Access::Write {
                    kept.written(CONTAINER, offset, bytes);
                } else if let Some((data, from)) = kept.take(now, CONTAINER, offset, bytes) {
                    running.got.push((data_offset, data.slice(from, bytes)));
                    data_offset += bytes;
                    continue;
                }
                data_offset += bytes;
                running.left_bytes += bytes;
                layer.add(now, Piece { access, file: CONTAINER, offset, bytes, tag: id << INDEX_BITS | index as u64 });
            }
            assert!(running.pieces.len() < 1 << INDEX_BITS, "requests are bounded");
            accesses.running.insert(id, running);
            id
        };
        self.changed.notify();
        id
    }

    /// Waits until all pieces of an access are done. Gives what was read.
    async fn finished(&self, id: u64, traced: &mut OpenSpan) -> Result<Vec<(u64, Payload)>, DiskError> {
        let done = poll_fn(|context| {
            let mut accesses = self.accesses.borrow_mut();
            let running = accesses.running.get_mut(&id).expect("it is removed below only");
            if running.left_bytes > 0 {
                running.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(accesses.running.remove(&id).expect("just seen"))
        })
        .await;
        traced.class(done.class).flag(flags::SHARED).waited_until(done.begun);
        match done.error {
            Some(error) => Err(error),
            None => Ok(done.got),
        }
    }

    /// Does what is queued, for ever. To be raced against those who wait for it: when they are
    /// done, nothing is under way here.
    pub async fn work<R: ServerRuntime>(&self, rt: &R, container: FileId) {
        join_all((0..self.config.depth.max(1)).map(|_| self.work_in_turn(rt, container))).await;
    }

    async fn work_in_turn<R: ServerRuntime>(&self, rt: &R, container: FileId) {
        let mut parts = Vec::new();
        loop {
            let changed = self.changed.wait();
            let next = self.layer.borrow_mut().next(rt.now(), u64::MAX, &mut parts);
            self.settle_replaced();
            match next {
                Next::Job(job) => {
                    let class = self.note(job.access, job.offset, job.bytes);
                    let mut traced = weft_trace::span(event::DISK_JOB);
                    traced.class(class).range(job.offset, job.bytes);
                    self.accesses.borrow_mut().begin(&parts, class);
                    self.operations.set(self.operations.get() + 1);
                    let error = match job.access {
                        Access::Write => rt.disk().write_parts(container, job.offset, self.data_of(&parts)).await.err(),
                        Access::Read => self.read_job(rt, container, &job, &mut parts).await.err(),
                    };
                    self.operations.set(self.operations.get() - 1);
                    drop(traced);
                    self.layer.borrow_mut().completed(rt.now(), &job);
                    self.done(&parts, error.as_ref());
                    self.changed.notify();
                }
                Next::At(at) => match race(rt.sleep_until(at), changed).await {
                    Either::First(()) | Either::Second(()) => {}
                },
                Next::Idle => changed.await,
            }
        }
    }

    fn data_of(&self, parts: &[JobPiece]) -> Vec<Payload> {
        let accesses = self.accesses.borrow();
        let slice = |part: &JobPiece| {
            let (running, at) = accesses.find(part);
            running.data.slice(at, part.bytes)
        };
        parts.iter().map(slice).collect()
    }

    /// Reads for the parts of a job, to which those are added that have arrived meanwhile and lie
    /// within it.
    async fn read_job<R: ServerRuntime>(&self, rt: &R, container: FileId, job: &Job, parts: &mut Vec<JobPiece>) -> Result<(), DiskError> {
        let data = rt.disk().read(container, job.offset, job.bytes).await?;
        if data.len() != job.bytes {
            return Err(DiskError::Failed(format!("the container ends at {} of {} bytes", job.offset + data.len(), job.bytes)));
        }
        let mut layer = self.layer.borrow_mut();
        layer.take_covered(job, parts);
        let is_written = |start, end| layer.has_write_in(CONTAINER, start, end);
        // A part would keep the whole in memory.
        let hole = |start, bytes| copied(&data.slice(start - job.offset, bytes));
        self.kept.borrow_mut().completed(rt.now(), job, parts, is_written, hole);
        let mut accesses = self.accesses.borrow_mut();
        for part in parts.iter() {
            let (_, at) = accesses.find(part);
            let bytes = data.slice(part.offset - job.offset, part.bytes);
            accesses.running.get_mut(&(part.tag >> INDEX_BITS)).expect("just found").got.push((at, bytes));
        }
        Ok(())
    }

    /// Writes that newer ones have replaced need not be done. They count as done when the newer
    /// ones are: until then neither is on the disk.
    fn settle_replaced(&self) {
        let mut replaced = Vec::new();
        self.layer.borrow_mut().take_dropped(&mut replaced);
        for part in replaced {
            let newer = self.accesses.borrow_mut().newer_write(&part);
            match newer {
                Some(newer) => self.accesses.borrow_mut().replaces.entry(newer).or_default().push(part),
                None => self.done(&[part], None),
            }
        }
    }

    fn done(&self, parts: &[JobPiece], error: Option<&DiskError>) {
        let lost = self.accesses.borrow_mut().done(parts, error);
        if let Some(error) = lost {
            self.lost.borrow_mut().get_or_insert(error);
        }
    }
}

/// The same data in memory of its own.
fn copied(data: &Payload) -> Payload {
    match data {
        Payload::Real(bytes) => Payload::Real(Bytes::copy_from_slice(bytes)),
        synthetic => synthetic.clone(),
    }
}
