//! Locks of programs. The server of a file decides about them, so programs of all gateways see each
//! other's; what those of this gateway hold is known in the client.
//!
//! A gateway may hear of closed descriptors only for files opened for update; for the others,
//! `fcntl` locks end with the open file. So a lock may outlive a `close` that POSIX lets end it,
//! never the other way round.

use weft_base::{MILLISECOND, Status};
use weft_client::{Error, IsAwaited, Result};
use weft_rt::{Runtime, race};
use weft_wire::ops::{Family, HeldLock, Lock, LockOutcome, Owner, Unlock};

use crate::gateway::Gateway;
use crate::node::InodeNumber;
use crate::posix::Posix;

/// A file that was just closed by its last user may be released a moment later: for so many
/// nanoseconds is the lock on it waited for.
const RELEASE_PATIENCE: u64 = 20 * MILLISECOND;

/// Why there is no lock.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// Somebody has it, and it was not to be waited for.
    Taken,
    /// The program does not wait any more.
    Interrupted,
    /// Whoever has it waits for this program.
    Deadlock,
    /// It cannot be had.
    Failed(Error),
}

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// Takes a lock. With `is_awaited` it waits for others until that says no.
    ///
    /// # Errors
    /// The [`Refusal`].
    pub async fn lock(&self, node: InodeNumber, wanted: Lock, is_awaited: Option<&IsAwaited<'_>>) -> std::result::Result<(), Refusal> {
        let until = self.now() + RELEASE_PATIENCE;
        loop {
            let released = self.released.wait();
            let reply = self.noted(self.client.lock(node.handle(), wanted, is_awaited).await).map_err(Refusal::Failed)?;
            match reply.outcome {
                LockOutcome::Granted => return Ok(()),
                LockOutcome::Deadlock => return Err(Refusal::Deadlock),
                LockOutcome::Waits | LockOutcome::Withdrawn => return Err(Refusal::Interrupted),
                LockOutcome::Taken => {}
            }
            let is_ours = reply.in_the_way.is_some_and(|held| self.is_ours(&held));
            if !is_ours || self.now() >= until {
                return Err(Refusal::Taken);
            }
            race(released, self.rt().sleep_until(until)).await;
            if self.now() >= until {
                return Err(Refusal::Taken);
            }
        }
    }

    /// A lock that is in the way of this one. The process of one of another gateway is number 0.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn lock_in_the_way(&self, node: InodeNumber, wanted: &Lock) -> Result<Option<Lock>> {
        let found = self.noted(self.client.lock_in_the_way(node.handle(), *wanted).await)?;
        Ok(found.map(|held| Lock { process: if self.is_ours(&held) { held.lock.process } else { 0 }, ..held.lock }))
    }

    /// What programs of this gateway hold of a file.
    pub fn held_locks(&self, node: InodeNumber) -> Vec<Lock> {
        self.client.locks_on(node.handle())
    }

    /// Gives a range back, from its first byte to its last. A server that does not answer is told
    /// later.
    ///
    /// # Errors
    /// [`Status::TooManyLocks`].
    pub async fn unlock(&self, node: InodeNumber, family: Family, owner: Owner, start: u64, end: u64) -> Result<()> {
        let outcome = self.noted(self.client.unlock(node.handle(), &Unlock { family, owner, start, end }).await);
        self.released.notify();
        outcome.or_else(|error| if error.status == Status::TooManyLocks { Err(error) } else { Ok(()) })
    }

    /// A process has closed a descriptor of the file: its `fcntl` locks end.
    pub async fn descriptor_closed(&self, node: InodeNumber, owner: Owner) {
        if self.client.has_locks() {
            // Nobody waits for the answer; what servers do wrong is noted.
            let _ = self.noted(self.client.unlock_owner(node.handle(), Family::Fcntl, owner).await);
            self.released.notify();
        }
    }

    /// An open file is gone, and with it the locks that were taken through it.
    pub(crate) async fn open_file_closed(&self, file: weft_base::Handle, number: u64) {
        if self.client.has_locks() {
            let _ = self.noted(self.client.unlock_open_file(file, number).await);
            self.released.notify();
        }
    }

    fn is_ours(&self, held: &HeldLock) -> bool {
        held.client == self.client.options().client
    }
}
