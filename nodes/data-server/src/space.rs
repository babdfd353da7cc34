//! Want of space and its return.
//!
//! What a truncation or removal frees rests in quarantine until a round has made it durable. Then large runs are given back to
//! the disk ([`reclaim_flow`]), and all of it may be used again. Before a client is told that there is no space, everything that
//! can come back is asked back: idle reservations and what rests in quarantine; the client is told to ask again meanwhile.

use std::collections::VecDeque;
use std::rc::Rc;

use weft_base::{Nanos, SECOND, Status};
use weft_rt::{Disk, DiskError, ServerRuntime};
use weft_store::objects::{BLOCK_BYTES, BlockRun, ObjectError, ObjectRecord, ObjectTable, QuarantineMark, SpaceUsage, WindowLimits};

use crate::DataServerError;
use crate::state::Server;

/// A reservation is idle if nothing was written to its object for so many nanoseconds (up to twice as many).
const IDLE_AFTER: u64 = 5 * SECOND;
/// A disk with fewer free bytes than so many journal segments is short of space.
const SHORT_SEGMENTS: u64 = 4;
/// Windows hold at most this part of the free bytes of the disk.
const WINDOWS_OF_DISK: u64 = 64;
/// At most so many bytes are given back to the disk between two turns: it takes the time of the server.
const PUNCH_BYTES_AT_ONCE: u64 = 16 << 20;

/// What is known about space beyond the table.
#[derive(Debug)]
pub struct SpaceState {
    /// Large runs that were freed since the last round began.
    freed_runs: Vec<BlockRun>,
    /// Something was freed since the last round began.
    freed: bool,
    /// Large runs are with a round that has not ended.
    round_has_runs: bool,
    /// What rounds have made durable, in their order.
    durable: VecDeque<(QuarantineMark, Vec<BlockRun>)>,
    /// When idle reservations were looked at, and the count of plans then.
    looked_at: Nanos,
    plans_then: u64,
}

/// The space of a server in bytes, for its statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceReport {
    /// What objects occupy.
    pub used: u64,
    /// What it could hold.
    pub capacity: u64,
    /// What may still be written.
    pub free: u64,
}

/// What was freed before a round began; to be given to [`Server::freed_is_durable`] when the round has ended.
#[derive(Debug)]
pub struct Freed {
    mark: QuarantineMark,
    runs: Vec<BlockRun>,
}

impl SpaceState {
    /// Nothing was freed yet.
    pub fn new(now: Nanos) -> SpaceState {
        SpaceState { freed_runs: Vec::new(), freed: false, round_has_runs: false, durable: VecDeque::new(), looked_at: now, plans_then: 0 }
    }

    /// Looks at a change before it is applied: what will it free?
    pub fn note_change(&mut self, table: &ObjectTable, record: &ObjectRecord, punch_bytes: u64) {
        let (key, cut) = match record {
            ObjectRecord::Put { .. } => return,
            ObjectRecord::Truncate { key, size_bytes, .. } => (*key, size_bytes.next_multiple_of(BLOCK_BYTES)),
            ObjectRecord::Remove { key } => (*key, 0),
        };
        self.freed = true;
        if table.stat(key).is_none_or(|stat| stat.allocated_bytes < punch_bytes) {
            return;
        }
        for extent in table.extents(key) {
            // Whole blocks behind the cut belong to nobody else, so their unwritten parts go with them.
            let skipped = cut.saturating_sub(extent.local_offset);
            if skipped < extent.len {
                let start = (extent.disk_offset + skipped) / BLOCK_BYTES;
                let end = (extent.disk_offset + extent.len).div_ceil(BLOCK_BYTES);
                push_run(&mut self.freed_runs, BlockRun { start, blocks: end - start });
            }
        }
    }

    /// True if space that was freed is not usable yet.
    fn is_coming_back(&self) -> bool {
        self.freed || !self.durable.is_empty()
    }
}

/// Appends a run, joining it to the last one if they touch or share a block.
fn push_run(runs: &mut Vec<BlockRun>, run: BlockRun) {
    match runs.last_mut() {
        Some(last) if last.start <= run.start && run.start <= last.end() => last.blocks = last.blocks.max(run.end() - last.start),
        _ => runs.push(run),
    }
}

/// A refused plan: is what could come back enough for what the request had planned already and needs more? `before` is the usage before
/// the request planned anything.
fn may_fit_later(before: &SpaceUsage, now: &SpaceUsage, needed_bytes: u64) -> bool {
    let planned = now.reserved_bytes.saturating_sub(before.reserved_bytes);
    before.free_bytes + before.quarantined_bytes + before.reserved_bytes >= planned + needed_bytes
}

impl<R: ServerRuntime> Server<R> {
    /// What to answer to a write that the table refused: [`Status::Overloaded`] (ask again) if space is on its way back. `before` is the
    /// usage before the write planned anything.
    pub fn refused_by_table(&self, error: ObjectError, before: &SpaceUsage) -> Status {
        let ObjectError::NoSpace { needed_bytes, .. } = error else { return Status::FileTooBig };
        let mut table = self.table.borrow_mut();
        let fits_later = may_fit_later(before, &table.usage(), needed_bytes);
        let plans = table.plan_count();
        table.release_idle_reservations(plans);
        drop(table);
        self.progress.ask_for_round();
        if fits_later { Status::Overloaded } else { Status::NoSpace }
    }

    /// What to answer to a write that the disk refused.
    pub fn refused_by_disk(&self, error: DiskError) -> Status {
        if error != DiskError::NoSpace {
            return Status::Io;
        }
        self.disk_is_short.set(true);
        if !self.space.borrow().is_coming_back() {
            return Status::NoSpace;
        }
        self.progress.ask_for_round();
        Status::Overloaded
    }

    /// Takes what was freed until now, at the beginning of a round.
    pub fn take_freed(&self) -> Freed {
        let mut space = self.space.borrow_mut();
        space.freed = false;
        space.round_has_runs = !space.freed_runs.is_empty();
        Freed { mark: self.table.borrow().quarantine_mark(), runs: std::mem::take(&mut space.freed_runs) }
    }

    /// Lets what was freed until now be used again as soon as the journal is on stable storage. That needs no data to be synced, so it is
    /// much sooner than the end of a round, and who writes next finds space whose pages are in memory. Only if nothing has to be given
    /// back to the disk before. To be called when the records of the turn are written.
    pub fn release_soon(self: &Rc<Self>) {
        let space = self.space.borrow();
        let waits_for_disk = space.round_has_runs || !space.freed_runs.is_empty() || !space.durable.is_empty();
        if !space.freed || waits_for_disk || self.journal.is_none() {
            return;
        }
        let mark = self.table.borrow().quarantine_mark();
        let server = self.clone();
        self.rt.spawn(async move {
            let Some(journal) = &server.journal else { return };
            let last = journal.last_lsn();
            // If this fails, so does whoever waits for the same journal to answer.
            if journal.sync_through(last).await.is_ok() {
                server.table.borrow_mut().release_quarantine(mark);
            }
        });
    }

    /// What was freed is durable: it may be used again.
    pub fn freed_is_durable(&self, freed: Freed) {
        let mut space = self.space.borrow_mut();
        space.round_has_runs = false;
        let punch_bytes = self.punch_bytes();
        let large = |run: &BlockRun| run.blocks * BLOCK_BYTES >= punch_bytes;
        let runs: Vec<_> = freed.runs.into_iter().filter(large).collect();
        if runs.is_empty() && space.durable.is_empty() {
            self.table.borrow_mut().release_quarantine(freed.mark);
            return;
        }
        space.durable.push_back((freed.mark, runs));
        drop(space);
        self.reclaim.notify();
    }

    /// Gives runs that rest in quarantine back to the disk.
    async fn punch(&self, runs: &[BlockRun]) -> Result<(), DataServerError> {
        for run in runs {
            let (mut at, end) = (run.start * BLOCK_BYTES, run.end() * BLOCK_BYTES);
            while at < end {
                let bytes = PUNCH_BYTES_AT_ONCE.min(end - at);
                let punched = self.rt.disk().punch(self.container, at, bytes).await;
                punched.map_err(|error| DataServerError::Disk("give space of the container back", error))?;
                at += bytes;
                // Lets turns in between.
                self.rt.sleep_until(self.rt.now() + 1).await;
            }
        }
        Ok(())
    }

    /// Looks now and then at what became idle. Called by turns: a server without requests needs no space.
    pub async fn look_after_space(&self) {
        let now = self.rt.now();
        if now.since(self.space.borrow().looked_at) < IDLE_AFTER {
            return;
        }
        self.space.borrow_mut().looked_at = now;
        self.limit_windows().await;
        let mut space = self.space.borrow_mut();
        let mut table = self.table.borrow_mut();
        table.release_idle_reservations(space.plans_then);
        space.plans_then = table.plan_count();
        if table.usage().quarantined_bytes > 0 {
            // What was released comes back with the next round.
            self.progress.changed();
        }
        self.clients.borrow_mut().forget_absent(now);
        self.removed.borrow_mut().forget(now);
    }

    /// Lets the table hold no more space for writes to come than a small part of what the disk has: what is given up below the
    /// high-water mark counts as backed by the disk (see [`Server::space_report`]), and what was never written is not.
    pub async fn limit_windows(&self) {
        let (_, disk_free) = self.rt.disk().space().await.unwrap_or((0, 0));
        self.disk_is_short.set(disk_free < SHORT_SEGMENTS * self.config.journal_segment_bytes);
        let usual = WindowLimits::default();
        let total_bytes_max = usual.total_bytes_max.min(disk_free / WINDOWS_OF_DISK);
        self.table.borrow_mut().set_window_limits(WindowLimits { total_bytes_max, ..usual });
    }

    /// The space now.
    pub async fn space_report(&self) -> SpaceReport {
        let (_, disk_free) = self.rt.disk().space().await.unwrap_or((0, 0));
        let usage = self.table.borrow().usage();
        let gaps = usage.high_water_bytes.saturating_sub(usage.header_bytes + usage.mapped_bytes);
        let growth = usage.capacity_bytes.saturating_sub(usage.high_water_bytes);
        // What objects have left at the end of the container is still its own.
        let left_behind = usage.peak_bytes.saturating_sub(usage.high_water_bytes);
        // Both may have been given back to the disk, so together they are no more than the disk has, or what is known to be backed.
        let free = (gaps + growth).min((gaps + left_behind).max(disk_free));
        SpaceReport { used: usage.mapped_bytes, capacity: usage.mapped_bytes + free, free }
    }
}

/// Gives back to the disk what rounds have made durable, then lets it be used again.
pub async fn reclaim_flow<R: ServerRuntime>(server: Rc<Server<R>>) {
    while !server.has_stopped() {
        let more = server.reclaim.wait();
        let Some((mark, runs)) = server.space.borrow().durable.front().cloned() else {
            more.await;
            continue;
        };
        if let Err(error) = server.punch(&runs).await {
            server.fail(error);
            return;
        }
        server.table.borrow_mut().release_quarantine(mark);
        server.space.borrow_mut().durable.pop_front();
    }
}

/// What the container may grow to. Without a limit of its own it grows until the disk says no.
pub fn capacity_bytes(configured: Option<u64>) -> u64 {
    configured.unwrap_or(1 << 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::{DataTime, Handle};
    use weft_store::objects::ObjectKey;

    const KEY: ObjectKey = ObjectKey { handle: Handle(1), index: 0 };

    fn write(table: &mut ObjectTable, key: ObjectKey, offset: u64, len: u64) -> u64 {
        let plan = table.plan_write(key, offset, len).unwrap();
        if let Some(record) = table.record_for(&plan, DataTime::NONE).unwrap() {
            table.apply(&record);
        }
        plan.pieces[0].disk_offset
    }

    #[test]
    fn a_cut_frees_whole_blocks_behind_it_only() {
        let mut table = ObjectTable::new(1 << 30);
        let at = write(&mut table, KEY, 0, 40960) / BLOCK_BYTES;
        let mut space = SpaceState::new(Nanos(0));
        let cut = |size_bytes| ObjectRecord::Truncate { key: KEY, size_bytes, mtime: DataTime::NONE, truncate_epoch: 1 };
        for (size, blocks) in [(0, 10), (1, 9), (4096, 9), (4097, 8), (36864, 1)] {
            space.freed_runs.clear();
            space.note_change(&table, &cut(size), 4096);
            assert_eq!(space.freed_runs, [BlockRun { start: at + 10 - blocks, blocks }], "cut to {size}");
        }
        space.freed_runs.clear();
        space.note_change(&table, &cut(36865), 4096);
        assert_eq!(space.freed_runs, []);
        space.note_change(&table, &ObjectRecord::Remove { key: KEY }, 40961);
        assert_eq!(space.freed_runs, [], "too small to be worth it");
        space.note_change(&table, &ObjectRecord::Remove { key: KEY }, 40960);
        assert_eq!(space.freed_runs, [BlockRun { start: at, blocks: 10 }]);
    }

    #[test]
    fn extents_that_share_a_block_free_it_once() {
        let mut table = ObjectTable::new(1 << 30);
        let at = write(&mut table, KEY, 0, 10) / BLOCK_BYTES;
        write(&mut table, KEY, 100, 10);
        write(&mut table, KEY, 4000, 200);
        let mut space = SpaceState::new(Nanos(0));
        space.note_change(&table, &ObjectRecord::Remove { key: KEY }, 1);
        let total: u64 = space.freed_runs.iter().map(|run| run.blocks).sum();
        assert_eq!((space.freed_runs[0].start, total), (at, table.used_bytes() / BLOCK_BYTES));
    }

    #[test]
    fn a_request_that_can_never_fit_is_not_told_to_wait() {
        let mut table = ObjectTable::new(1 << 20);
        let before = table.usage();
        table.plan_write(KEY, 0, 900 << 10).unwrap();
        let Err(ObjectError::NoSpace { needed_bytes, .. }) = table.plan_write(KEY, 10 << 20, 200 << 10) else { panic!("does not fit") };
        assert!(!may_fit_later(&before, &table.usage(), needed_bytes), "its own plan is no hope");
        let other = table.usage();
        let Err(ObjectError::NoSpace { needed_bytes, .. }) = table.plan_write(KEY, 20 << 20, 300 << 10) else { panic!("does not fit") };
        assert!(may_fit_later(&other, &table.usage(), needed_bytes), "somebody else's reservation is");
    }
}
