//! What is on stable storage, and the rounds that bring it there.
//!
//! A round syncs the container if something was written to it, appends a mark to the journal if
//! something grew, and syncs the journal unless it is synced; everything that was changed before
//! the round began is then durable. One round serves everybody who waits. It runs in a flow of its
//! own, so turns go on meanwhile; what they change waits for the next round.

use std::rc::Rc;

use weft_base::{MILLISECOND, Nanos, Status};
use weft_journal::{Journal, Lsn};
use weft_rt::{Either, ServerRuntime, race};
use weft_serving::BATCH_INTERVAL_NS_DEFAULT;

use crate::objects::Objects;
use crate::record::JournalRecord;
use crate::state::Server;
use crate::{Durability, ServerError};

/// A server to which nothing has come for so many nanoseconds rests.
const REST_AFTER: u64 = 250 * MILLISECOND;

impl<R: ServerRuntime> Objects<R> {
    /// Waits until the change `change` is on stable storage.
    ///
    /// # Errors
    /// [`Status::Io`] if the server stops before.
    pub async fn wait_durable(&self, change: u64) -> weft_base::Result<()> {
        let progress = &self.progress;
        assert!(change <= progress.newest(), "who waits for a change that nobody has made waits for ever");
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

    /// Waits until the journal is on stable storage up to this record.
    ///
    /// # Errors
    /// The journal has failed.
    pub async fn wait_journaled(&self, lsn: Lsn) -> Result<(), ServerError> {
        match &self.journal {
            Some(journal) => journal.sync_through(lsn).await.map_err(ServerError::from),
            None => Ok(()),
        }
    }

    /// The last round of a server that is asked to stop. If the machine starts anew before the
    /// server does, that looks like a power cut: without a mark all growth since the last one would
    /// be dropped.
    pub async fn last_round(&self) -> Result<(), ServerError> {
        // If this fails, so does the server.
        match (self.wait_durable(self.progress.newest()).await, &self.journal) {
            (Ok(()), Some(journal)) => journal.bring_to_rest().await.map_err(ServerError::from),
            _ => Ok(()),
        }
    }

    /// Writes what was decided to the journal.
    pub async fn commit(&self) -> Result<(), ServerError> {
        match &self.journal {
            Some(journal) => journal.commit().await.map(drop).map_err(ServerError::from),
            None => Ok(()),
        }
    }

    /// Nothing has come for a while: the journal says that it ends here, so that damage to its last
    /// frame is noticed.
    async fn rest(&self) -> Result<(), ServerError> {
        match &self.journal {
            Some(journal) => journal.mark_end().await.map_err(ServerError::from),
            None => Ok(()),
        }
    }

    /// One round.
    async fn round(&self) -> Result<(), ServerError> {
        let progress = &self.progress;
        // All of this in one go: what is noted here is covered, what comes later is not.
        let (change, growth, freed) = (progress.newest(), progress.growth.get(), self.take_freed());
        if let Some(journal) = &self.journal {
            let covered = journal.last_lsn();
            self.container.sync().await.map_err(|(what, error)| ServerError::Disk(what, error))?;
            let last = match growth > progress.marked.get() {
                true => journal.append_with(|out| JournalRecord::Mark(covered).encode(out)),
                false => covered,
            };
            self.commit().await?;
            journal.sync_through(last).await?;
            progress.marked.set(growth);
        }
        assert!(progress.durable.get() <= change && progress.marked.get() <= progress.growth.get(), "what is durable stays so");
        progress.durable.set(change);
        progress.reached.notify();
        self.freed_is_durable(freed);
        Ok(())
    }

    /// True if an acknowledged change must be on stable storage.
    pub fn acknowledges_durable(&self) -> bool {
        self.journal.is_some() && self.durability.get() == Durability::Sync
    }

    /// Nanoseconds between rounds that nobody asks for, also where the contract does not say: what
    /// is not promised is kept all the same, and freed space comes back by rounds only.
    fn interval_ns(&self) -> u64 {
        match self.durability.get() {
            Durability::Batch => self.config.serving.batch_interval_ns,
            Durability::Sync | Durability::None => BATCH_INTERVAL_NS_DEFAULT,
        }
    }
}

/// Runs rounds: when somebody waits, and else when the batch interval since the first change has
/// passed.
pub async fn sync_flow<R: ServerRuntime>(server: Rc<Server<R>>) {
    let objects = &server.objects;
    let progress = &objects.progress;
    let mut dirty_since: Option<Nanos> = None;
    while !objects.has_stopped() {
        let work = progress.work.wait();
        let dirty = progress.newest() > progress.durable.get();
        let asked = progress.wanted.get() > progress.durable.get();
        let due = match dirty {
            true => *dirty_since.get_or_insert(server.rt.now()) + objects.interval_ns(),
            false => Nanos::NEVER,
        };
        if asked || server.rt.now() >= due {
            let began = server.rt.now();
            if let Err(error) = objects.round().await {
                server.fail(error);
            }
            // What came during the round has waited since then at most.
            dirty_since = (progress.newest() > progress.durable.get()).then_some(began);
        } else if dirty {
            race(server.rt.sleep_until(due), work).await;
        } else if objects.journal.as_ref().is_some_and(Journal::wants_mark) {
            if let Either::First(()) = race(server.rt.sleep_until(server.rt.now() + REST_AFTER), work).await
                && let Err(error) = objects.rest().await
            {
                server.fail(error);
            }
        } else {
            work.await;
        }
    }
}
