//! What is on stable storage, and the rounds that bring it there.
//!
//! A round syncs the container, appends a mark to the journal, and syncs the journal; everything that was changed before the round began is
//! then durable. One round serves everybody who waits. It runs in a flow of its own, so turns go on meanwhile; what they
//! change waits for the next round.

use std::rc::Rc;

use weft_base::{MILLISECOND, Nanos, Status};
use weft_journal::Journal;
use weft_rt::{Disk, Either, FaultPoint, ServerRuntime, race};
use weft_serving::Service;

use crate::record::Record;
use crate::state::Server;
use crate::{DataServerError, Durability, stopped_by};

/// Nanoseconds between rounds that nobody asks for, where the configuration does not say: what is not promised is kept all the same,
/// and freed space comes back by rounds only.
const INTERVAL: u64 = 50 * MILLISECOND;

/// A server to which nothing has come for so many nanoseconds rests.
const REST_AFTER: u64 = 250 * MILLISECOND;

impl<R: ServerRuntime> Server<R> {
    /// Waits until the change `change` is on stable storage.
    ///
    /// # Errors
    /// [`Status::Io`] if the server stops before.
    pub async fn wait_durable(&self, change: u64) -> weft_base::Result<()> {
        let progress = &self.progress;
        loop {
            if self.has_stopped() {
                return Err(Status::Io);
            }
            if progress.durable.get() >= change {
                return Ok(());
            }
            let reached = progress.reached.wait();
            if progress.wanted.get() < change {
                progress.wanted.set(change);
                progress.work.notify();
            }
            reached.await;
        }
    }

    /// The last round of a server that is asked to stop. If the machine starts anew before the server does, that looks like a power cut:
    /// without a mark all growth since the last one would be dropped.
    pub async fn last_round(&self) -> Result<(), DataServerError> {
        // If this fails, so does the server.
        let _ = self.wait_durable(self.progress.newest()).await;
        match (self.shell.failure(), &self.journal) {
            (Some(failure), _) => Err(failure),
            (None, Some(journal)) => journal.bring_to_rest().await.map_err(stopped_by),
            (None, None) => Ok(()),
        }
    }

    /// Nothing has come for a while: the journal says that it ends here, so that damage to its last frame is noticed.
    async fn rest(&self) {
        if let Some(journal) = &self.journal
            && let Err(error) = journal.mark_end().await
        {
            self.fail(stopped_by(error));
        }
    }

    /// One round.
    async fn round(&self) -> Result<(), DataServerError> {
        let progress = &self.progress;
        // All of this in one go: what is noted here is covered, what comes later is not.
        let (change, records, freed) = (progress.newest(), progress.records.get(), self.take_freed());
        if let Some(journal) = &self.journal {
            let covered = journal.last_lsn();
            self.cache.drain(&self.rt).await.map_err(|error| DataServerError::Disk("write what was answered before", error))?;
            let traced = weft_trace::span(weft_trace::event::DISK_SYNC);
            self.rt.pass(FaultPoint::DataFlush).await;
            self.rt.disk().sync(self.container).await.map_err(|error| DataServerError::Disk("sync the container", error))?;
            drop(traced);
            if records > progress.marked.get() {
                let mark = journal.append_with(|out| Record::Mark(covered).encode(out));
                self.commit().await?;
                journal.sync_through(mark).await.map_err(stopped_by)?;
                progress.marked.set(records);
            }
        }
        progress.durable.set(change);
        progress.reached.notify();
        self.freed_is_durable(freed);
        Ok(())
    }

    /// True if an acknowledged change must be on stable storage.
    pub fn acknowledges_durable(&self) -> bool {
        self.journal.is_some() && self.config.durability == Durability::Sync
    }

    fn interval(&self) -> u64 {
        match self.config.durability {
            Durability::Batch { interval } => interval,
            Durability::Sync | Durability::None => INTERVAL,
        }
    }
}

/// Runs rounds: when somebody waits, and else when the batch interval since the first change has passed.
pub async fn sync_flow<R: ServerRuntime>(server: Rc<Server<R>>) {
    let progress = &server.progress;
    let mut dirty_since: Option<Nanos> = None;
    while !server.has_stopped() {
        let work = progress.work.wait();
        let dirty = progress.newest() > progress.durable.get();
        let asked = progress.wanted.get() > progress.durable.get();
        let due = match dirty {
            true => *dirty_since.get_or_insert(server.rt.now()) + server.interval(),
            false => Nanos::NEVER,
        };
        if asked || server.rt.now() >= due {
            let began = server.rt.now();
            if let Err(error) = server.round().await {
                server.fail(error);
            }
            // What came during the round has waited since then at most.
            dirty_since = (progress.newest() > progress.durable.get()).then_some(began);
        } else if dirty {
            race(server.rt.sleep_until(due), work).await;
        } else if server.journal.as_ref().is_some_and(Journal::wants_mark) {
            if let Either::First(()) = race(server.rt.sleep_until(server.rt.now() + REST_AFTER), work).await {
                server.rest().await;
            }
        } else {
            work.await;
        }
    }
}
