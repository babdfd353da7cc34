//! Checkpoints, so that a restart need not replay the journal from its beginning. Written in slices
//! between turns.

use std::rc::Rc;

use weft_base::SECOND;
use weft_journal::{Checkpoint, Journal, JournalError};
use weft_rt::ServerRuntime;

use crate::objects::Objects;
use crate::state::Server;

/// Bytes of the state that are encoded in one go: about a third of a millisecond.
const SLICE_BYTES: usize = 256 << 10;
/// Nanoseconds between slices, for turns.
const PAUSE: u64 = 200_000;
/// Bytes of the journal for which a checkpoint is written when the disk is full.
const WORTH_BYTES: u64 = 64 << 10;
/// When the disk had no room for a checkpoint, it is tried again after so many nanoseconds.
const RETRY_AFTER: u64 = 10 * SECOND;

impl<R: ServerRuntime> Objects<R> {
    /// On a full disk a checkpoint is worth its bytes sooner: it turns old segments of the journal
    /// into room for new ones.
    fn needs_checkpoint(&self) -> bool {
        let Some(journal) = &self.journal else { return false };
        let least_bytes = self.config.serving.checkpoint_bytes;
        let is_worth_it = || journal.bytes_since_checkpoint() >= WORTH_BYTES.min(least_bytes);
        journal.is_long(least_bytes) || self.is_short_of_room() && is_worth_it()
    }

    /// Wakes the flow that writes checkpoints if it has work.
    pub fn look_after_journal(&self) {
        if self.needs_checkpoint() {
            self.checkpoint_due.notify();
        }
    }

    async fn checkpoint(&self, journal: &Journal<R::Disk>) -> Result<(), JournalError> {
        let mut checkpoint = Checkpoint::begin(journal).await?;
        let mut cursor = None;
        loop {
            cursor = self.table.borrow().encode_from(cursor, SLICE_BYTES, |record| checkpoint.push(record));
            checkpoint.flush().await?;
            if cursor.is_none() {
                break;
            }
            self.rt.sleep_until(self.rt.now() + PAUSE).await;
        }
        // The slices may show changes whose data is not on stable storage yet. A checkpoint is
        // believed after a power cut too, so a mark must cover all of them before it counts.
        let newest = self.progress.newest();
        if self.wait_durable(newest).await.is_err() {
            return Err(JournalError::Damaged("the server stops".into()));
        }
        checkpoint.finish().await.map(|_| ())
    }
}

/// Writes a checkpoint whenever the journal has become long enough.
pub async fn checkpoint_flow<R: ServerRuntime>(server: Rc<Server<R>>) {
    let objects = &server.objects;
    let Some(journal) = objects.journal.clone() else { return };
    while !objects.has_stopped() {
        let due = objects.checkpoint_due.wait();
        if !objects.needs_checkpoint() {
            due.await;
            continue;
        }
        match objects.checkpoint(&journal).await {
            Ok(()) => {}
            Err(JournalError::NoSpace) => server.rt.sleep_until(server.rt.now() + RETRY_AFTER).await,
            Err(error) => server.fail(error.into()),
        }
    }
}
