//! Everything that happens beside requests: flushes, checkpoints, sessions, transactions in doubt,
//! files to be removed or settled.

use std::rc::Rc;

use weft_base::{MILLISECOND, SECOND};
use weft_journal::{Checkpoint, Journal, JournalError};
use weft_namespace::{Change, Record, SnapshotCursor};
use weft_rt::{Disk, ServerRuntime};

use crate::engine::Engine;
use crate::server::Server;

/// Longest pause between looks at sessions and waiting requests, in nanoseconds.
const TICK_NS_MAX: u64 = 250 * MILLISECOND;
/// Changes in one slice of a checkpoint: less than a millisecond of work.
const SLICE_CHANGES: usize = 1024;
/// The pause between slices, in which the server serves, in nanoseconds.
const SLICE_PAUSE_NS: u64 = MILLISECOND;
/// The pause after a failed checkpoint, and before one that may make room, in nanoseconds.
const CHECKPOINT_RETRY_NS: u64 = 5 * SECOND;
/// Before one that may make room it is so many times as long as the last one took, at least.
const ROOM_PAUSES: u64 = 10;
/// The memory of fewer inodes that are gone stays with the server.
const GONE_INODES: u64 = 4096;
/// So does that of less than one in so many.
const GONE_SHARE: u64 = 8;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// Starts the flows that live as long as the server.
    pub(crate) fn start_background(self: &Rc<Self>) {
        self.rt.spawn(weft_serving::introduce(Rc::clone(self)));
        self.rt.spawn(Rc::clone(self).tick_flow());
        self.rt.spawn(Rc::clone(self).reap_flow());
        self.rt.spawn(Rc::clone(self).store_flow());
        // The first small files shall find room.
        let finds_no_room = {
            let state = self.state.borrow();
            state.settings().inline_limit > 0 && state.lacks_content_room(true)
        };
        if finds_no_room {
            self.start_growing();
        }
        self.look_at_quotas();
        for (tx, participants) in self.state.borrow().decided_transactions() {
            self.rt.spawn(Rc::clone(self).deliver(tx, participants, self.engine.last()));
        }
        for handle in self.state.borrow().truncating_files() {
            let this = Rc::clone(self);
            self.rt.spawn(async move {
                this.finish_truncation(handle).await;
            });
        }
        for handle in self.state.borrow().files_to_tell() {
            let this = Rc::clone(self);
            self.rt.spawn(async move { this.tell_epoch(handle).await });
        }
        self.resolve_in_doubt();
    }

    /// At the end of a turn: starts what the turn has made necessary.
    pub(crate) fn start_what_is_due(self: &Rc<Self>) {
        if let Some(interval) = self.engine.flush_interval()
            && self.engine.needs_flush()
            && !self.background.flushing.replace(true)
        {
            self.rt.spawn(Rc::clone(self).flush_flow(interval));
        }
        if self.state.borrow().has_reapable() {
            self.background.reap.notify();
        }
        self.look_after_contents();
        self.look_after_journal();
    }

    /// At a tick that finds as many inodes as the one before: gives what those that are gone had on
    /// the heap back (targets of symlinks, extended attributes; names and inodes go by themselves).
    /// While they go it lies in small pieces between others, so that much work gives little back.
    fn look_after_memory(&self) {
        let Some(give_back) = self.config.serving.process.give_freed_memory_back else { return };
        let now = self.state.borrow().inode_count();
        let (most, seen) = self.background.inodes.get();
        let most = most.max(now);
        let is_due = seen == now && most - now >= GONE_INODES.max(most / GONE_SHARE);
        if is_due {
            give_back();
        }
        self.background.inodes.set((if is_due { now } else { most }, now));
    }

    /// Begins a checkpoint when there is much to replay, or when it makes room on a disk that has
    /// little.
    fn look_after_journal(self: &Rc<Self>) {
        let is_due = |journal: &Journal<E::Disk>| {
            let may_gain = || journal.may_gain_room() && self.rt.now() >= self.background.room_next.get();
            journal.is_long(self.config.serving.checkpoint_bytes) || journal.wants_room() || may_gain()
        };
        if let Some(journal) = self.engine.journal()
            && is_due(journal)
            && !self.background.checkpointing.replace(true)
        {
            self.rt.spawn(Rc::clone(self).checkpoint_flow(journal.clone()));
        }
    }

    async fn flush_flow(self: Rc<Self>, interval: u64) {
        while self.engine.needs_flush() {
            self.rt.sleep_until(self.rt.now() + interval).await;
            if !self.kept(self.engine.sync_through(self.written()).await) {
                break;
            }
        }
        self.background.flushing.set(false);
    }

    fn written(&self) -> weft_journal::Lsn {
        self.engine.journal().map_or(self.engine.last(), Journal::written_lsn)
    }

    async fn tick_flow(self: Rc<Self>) {
        let tick_ns = (self.config.session_grace_ns / 4).clamp(MILLISECOND, TICK_NS_MAX);
        let grace_ends = self.shell.started + self.config.session_grace_ns;
        loop {
            self.rt.sleep_until(self.rt.now() + tick_ns).await;
            self.shell.expire_parked();
            self.expire_sessions();
            self.look_after_locks();
            self.expire_leases();
            self.look_at_directories();
            self.ask_back_directories();
            self.settle_quotas();
            self.kept(self.engine.rest().await);
            self.look_after_journal();
            self.look_after_memory();
            if self.rt.now() >= grace_ends {
                self.state.borrow_mut().end_grace();
                self.clients.sessions.borrow_mut().grace_ends();
            }
            self.resolve_in_doubt();
            if !self.state.borrow().uncertain_files().is_empty() && !self.background.settling.replace(true) {
                self.rt.spawn(Rc::clone(&self).settle_sizes_flow());
            }
            if self.state.borrow().has_reapable() {
                self.background.reap.notify();
            }
        }
    }

    fn expire_sessions(&self) {
        let expired = self.clients.sessions.borrow_mut().expire(self.rt.now());
        for client in expired.ended {
            self.state.borrow_mut().drop_client(client);
            self.drop_locks_of(client);
            self.end_all_delegations(client);
        }
        if !expired.forgotten.is_empty() {
            let changes = expired.forgotten.into_iter().map(|client| Change::ForgetClient { client }).collect();
            self.change_in_flow(&mut Record { changes, open: None });
        }
    }

    async fn checkpoint_flow(self: Rc<Self>, journal: Journal<E::Disk>) {
        let began = self.rt.now();
        let written = self.write_checkpoint(&journal).await;
        let now = self.rt.now();
        self.background.room_next.set(now + CHECKPOINT_RETRY_NS.max(now.since(began) * ROOM_PAUSES));
        if let Err(error) = written {
            // The journal and the older checkpoint still hold everything; a journal that has failed
            // stops the server by itself.
            if error != JournalError::NoSpace && journal.failure().is_some() {
                self.kept(Err(error));
            }
            self.rt.sleep_until(self.rt.now() + CHECKPOINT_RETRY_NS).await;
        }
        self.background.checkpointing.set(false);
    }

    async fn write_checkpoint<D: Disk>(&self, journal: &Journal<D>) -> Result<(), JournalError> {
        let mut checkpoint = match Checkpoint::begin(journal).await {
            Err(JournalError::NoSpace) => {
                let mut measured = Checkpoint::measure(journal);
                self.fill(&mut measured).await?;
                measured.finish().await?;
                Checkpoint::begin(journal).await?
            }
            begun => begun?,
        };
        self.fill(&mut checkpoint).await?;
        self.contents_are_kept().await.map_err(JournalError::during("write contents"))?;
        checkpoint.finish().await?;
        Ok(())
    }

    /// Takes the state, in slices between which the server serves.
    async fn fill<D: Disk>(&self, checkpoint: &mut Checkpoint<D>) -> Result<(), JournalError> {
        let mut cursor = SnapshotCursor::Start;
        while cursor != SnapshotCursor::End {
            let (records, next) = self.state.borrow().snapshot_from(cursor, SLICE_CHANGES);
            records.iter().for_each(|record| checkpoint.push(record));
            checkpoint.flush().await?;
            cursor = next;
            self.rt.sleep_until(self.rt.now() + SLICE_PAUSE_NS).await;
        }
        Ok(())
    }
}
