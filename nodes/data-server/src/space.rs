//! Want of space and its return.
//!
//! What a truncation or removal frees rests in quarantine until a round has made it durable. Then
//! large runs are given back to the disk ([`reclaim_flow`]), and all of it may be used again.
//! Before a client is told that there is no space, everything that can come back is asked back:
//! idle reservations and what rests in quarantine; the client is told to ask again meanwhile.

use std::rc::Rc;

use weft_base::{SECOND, Status};
use weft_rt::{Disk, DiskError, ServerRuntime};
use weft_store::objects::{BLOCK_BYTES, BlockRun, ObjectError, SpaceUsage, WindowLimits};

use crate::ServerError;
use crate::freed::Freed;
use crate::objects::Objects;
use crate::state::Server;

/// A reservation is idle if nothing was written to its object for so many nanoseconds (up to twice
/// as many).
const IDLE_AFTER: u64 = 5 * SECOND;
/// A disk with fewer free bytes than so many journal segments is short of space.
const SHORT_SEGMENTS: u64 = 4;
/// A server with at least so many free bytes has room for what some clients have gathered before
/// they hear that it has not.
const PLENTY_BYTES: u64 = 1 << 30;
/// Windows hold at most this part of the free bytes of the disk.
const WINDOWS_OF_DISK: u64 = 64;
/// At most so many bytes are given back to the disk between two turns: it takes the time of the
/// server.
const PUNCH_BYTES_AT_ONCE: u64 = 16 << 20;

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

/// A refused plan: is what could come back enough for what the request had planned already and
/// needs more? `before` is the usage before the request planned anything.
fn may_fit_later(before: &SpaceUsage, now: &SpaceUsage, needed_bytes: u64) -> bool {
    let planned = now.reserved_bytes.saturating_sub(before.reserved_bytes);
    before.free_bytes + before.quarantined_bytes + before.reserved_bytes >= planned + needed_bytes
}

impl<R: ServerRuntime> Objects<R> {
    /// What to answer to a write that the table refused: [`Status::Overloaded`] (ask again) if
    /// space is on its way back. `before` is the usage before the write planned anything.
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
        self.space.borrow_mut().has_plenty = false;
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

    /// Lets what was freed until now be used again as soon as the journal is on stable storage.
    /// That needs no data to be synced, so it is much sooner than the end of a round, and who
    /// writes next finds space whose pages are in memory. Only if nothing has to be given back to
    /// the disk before. To be called when the records of the turn are written.
    pub fn release_soon(server: &Rc<Server<R>>) {
        let this = &server.objects;
        let space = this.space.borrow();
        let waits_for_disk = space.round_has_runs || !space.freed_runs.is_empty() || !space.durable.is_empty();
        if !space.freed || waits_for_disk || this.journal.is_none() {
            return;
        }
        let mark = this.table.borrow().quarantine_mark();
        let server = server.clone();
        this.rt.spawn(async move {
            let Objects { journal: Some(journal), table, .. } = &server.objects else { return };
            let last = journal.last_lsn();
            // If this fails, so does whoever waits for the same journal to answer.
            if journal.sync_through(last).await.is_ok() {
                table.borrow_mut().release_quarantine(mark);
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
    async fn punch(&self, runs: &[BlockRun]) -> Result<(), ServerError> {
        for run in runs {
            let (mut at, end) = (run.start * BLOCK_BYTES, run.end() * BLOCK_BYTES);
            while at < end {
                let bytes = PUNCH_BYTES_AT_ONCE.min(end - at);
                let punched = self.container.punch(at, bytes).await;
                punched.map_err(|error| ServerError::Disk("give space of the container back", error))?;
                at += bytes;
                // Lets turns in between.
                self.rt.sleep_until(self.rt.now() + 1).await;
            }
        }
        Ok(())
    }

    /// Looks now and then at what became idle; true if it did. Called by turns: a server without
    /// requests needs no space.
    pub async fn look_after_space(&self) -> bool {
        let now = self.rt.now();
        if now.since(self.space.borrow().looked_at) < IDLE_AFTER {
            return false;
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
        self.removed.borrow_mut().forget(now);
        true
    }

    /// Lets the table hold no more space for writes to come than a small part of what the disk has.
    pub async fn limit_windows(&self) {
        let (_, disk_free) = self.rt.disk().space().await.unwrap_or((0, 0));
        self.disk_is_short.set(disk_free < SHORT_SEGMENTS * self.config.serving.journal_segment_bytes);
        self.space.borrow_mut().has_plenty = disk_free.min(self.table.borrow().usage().free_bytes) >= PLENTY_BYTES;
        let usual = WindowLimits::default();
        let total_bytes_max = usual.total_bytes_max.min(disk_free / WINDOWS_OF_DISK);
        self.table.borrow_mut().set_window_limits(WindowLimits { total_bytes_max, ..usual });
    }

    /// True if there was room for far more than what clients gather when that was looked at last.
    pub fn has_plenty(&self) -> bool {
        self.space.borrow().has_plenty
    }

    /// The space now.
    pub async fn space_report(&self) -> SpaceReport {
        let (_, disk_free) = self.rt.disk().space().await.unwrap_or((0, 0));
        let usage = self.table.borrow().usage();
        let taken = usage.header_bytes + usage.mapped_bytes;
        // What objects have left in the container is its own until it is given back to the disk.
        let spare = self.container.backed_bytes().await.saturating_sub(taken);
        let free = usage.capacity_bytes.saturating_sub(taken).min(spare + disk_free);
        SpaceReport { used: usage.mapped_bytes, capacity: usage.mapped_bytes + free, free }
    }
}

/// Gives back to the disk what rounds have made durable, then lets it be used again.
pub async fn reclaim_flow<R: ServerRuntime>(server: Rc<Server<R>>) {
    let objects = &server.objects;
    while !objects.has_stopped() {
        let more = objects.reclaim.wait();
        let Some((mark, runs)) = objects.space.borrow().durable.front().cloned() else {
            more.await;
            continue;
        };
        if let Err(error) = objects.punch(&runs).await {
            server.fail(error);
            return;
        }
        objects.table.borrow_mut().release_quarantine(mark);
        objects.space.borrow_mut().durable.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::Handle;
    use weft_store::objects::{ObjectKey, ObjectTable};

    const KEY: ObjectKey = ObjectKey { handle: Handle(1), index: 0 };

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
