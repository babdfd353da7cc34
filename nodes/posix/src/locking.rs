//! Taking and giving back locks. Those of one gateway are decided here, by a table for each file.
//! That no other gateway has locks on the file, its metadata server says: as long as there are any,
//! this client holds the right to lock it (`Rights::LOCK`), which one client has at a time. Callers
//! of another gateway are refused meanwhile (ENOLCK): a lock is granted truly or not at all.
//!
//! A gateway may hear of closed descriptors only for files opened for update; for the others,
//! `fcntl` locks end with the open file or the process, whichever is first. So a lock may outlive a
//! `close` that POSIX lets end it, never the other way round.

use std::sync::Arc;

use weft_base::{Credentials, Handle, MILLISECOND};
use weft_client::Result;
use weft_rt::{Runtime, race};
use weft_wire::Rights;

use crate::gateway::Gateway;
use crate::locks::{Family, FileLocks, Lock, Owner, Refusal, Table};
use crate::node::InodeNumber;
use crate::posix::Posix;

/// A file that was just closed by its last user may be released a moment later: for so many
/// nanoseconds is the lock on it waited for.
const RELEASE_PATIENCE: u64 = 20 * MILLISECOND;
/// Between two looks at whether a waiting program still waits, and whether the holder still lives,
/// in nanoseconds.
const LOOK: u64 = 50 * MILLISECOND;

/// The program has the file open.
const ALLOWED: Credentials = Credentials { uid: 0, gid: 0, groups: Vec::new(), checked_by_kernel: true };

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// Takes a lock. With `is_awaited` it waits for others until that says no.
    ///
    /// # Errors
    /// The [`Refusal`].
    pub async fn lock(&self, node: InodeNumber, wanted: Lock, is_awaited: Option<&dyn Fn() -> bool>) -> std::result::Result<(), Refusal> {
        let file = node.handle();
        let locks = self.locks.of(file);
        let mut wait = None;
        let outcome = self.lock_in(file, &locks, wanted, is_awaited, &mut wait).await;
        wait.into_iter().for_each(|number| self.locks.cycles().ends(number));
        self.tidy(file, locks).await;
        outcome
    }

    /// `wait` is set to the number of the wait once there is one.
    async fn lock_in(
        &self,
        file: Handle,
        locks: &FileLocks,
        wanted: Lock,
        is_awaited: Option<&dyn Fn() -> bool>,
        wait: &mut Option<u64>,
    ) -> std::result::Result<(), Refusal> {
        let begun = self.now();
        loop {
            self.acquire(file, locks).await?;
            let changed = locks.changed.wait();
            let until = {
                let mut state = locks.lock();
                let is_of_gone_process = |held: &Lock| self.is_of_gone_process(held);
                let taken = state.table.lock(wanted) || {
                    state.table.drop_where(is_of_gone_process);
                    state.table.lock(wanted)
                };
                if taken {
                    // It may be less than its owner had before.
                    self.locks.cycles().changed(file);
                    drop(state);
                    locks.changed.notify();
                    return Ok(());
                }
                let now = self.now();
                let until = match is_awaited {
                    None => begun + RELEASE_PATIENCE,
                    Some(is_awaited) if is_awaited() => now + LOOK,
                    Some(_) => return Err(Refusal::Interrupted),
                };
                if until <= now {
                    return Err(Refusal::Taken);
                }
                if is_awaited.is_some() && wanted.family == Family::Fcntl {
                    let holders = state.table.in_the_way(&wanted).map(|held| held.owner).collect();
                    let mut cycles = self.locks.cycles();
                    let number = *wait.get_or_insert_with(|| cycles.number());
                    if !cycles.goes_on(number, file, wanted.owner, holders) {
                        return Err(Refusal::Deadlock);
                    }
                }
                until
            };
            race(changed, self.rt().sleep_until(until)).await;
        }
    }

    /// A lock that is in the way of this one.
    ///
    /// # Errors
    /// If another gateway has locks, or the server does not answer.
    pub async fn lock_in_the_way(&self, node: InodeNumber, wanted: &Lock) -> Result<Option<Lock>> {
        let file = node.handle();
        let locks = self.locks.of(file);
        let acquired = self.acquire(file, &locks).await;
        let outcome = acquired.map(|()| {
            let mut state = locks.lock();
            state.table.drop_where(|held| self.is_of_gone_process(held));
            state.table.conflict(wanted)
        });
        self.tidy(file, locks).await;
        outcome
    }

    /// Gives a range back, from its first byte to its last.
    pub async fn unlock(&self, node: InodeNumber, family: Family, owner: Owner, start: u64, end: u64) {
        self.change_locks(node.handle(), |table| table.unlock(family, owner, start, end)).await;
    }

    /// A process has closed a descriptor of the file: its `fcntl` locks end.
    pub async fn descriptor_closed(&self, node: InodeNumber, owner: Owner) {
        self.change_locks(node.handle(), |table| table.drop_owner(Family::Fcntl, owner)).await;
    }

    pub(crate) async fn change_locks(&self, file: Handle, change: impl FnOnce(&mut Table)) {
        let Some(locks) = self.locks.held_on(file) else { return };
        {
            let mut state = locks.lock();
            change(&mut state.table);
            self.locks.cycles().changed(file);
        }
        locks.changed.notify();
        self.tidy(file, locks).await;
    }

    /// Sees to it that no other client has locks on the file.
    async fn acquire(&self, file: Handle, locks: &FileLocks) -> Result<()> {
        if locks.lock().right.is_some() {
            return Ok(());
        }
        let rights = Rights::READ.with(Rights::LOCK);
        let (_, open) = self.noted(self.client.open(&ALLOWED, file, rights, false).await)?;
        // Somebody else may have been quicker.
        let second = {
            let mut state = locks.lock();
            if state.right.is_none() {
                state.right = Some(open);
                return Ok(());
            }
            open
        };
        self.close_soon(second).await;
        Ok(())
    }

    async fn tidy(&self, file: Handle, locks: Arc<FileLocks>) {
        if let Some(right) = self.locks.tidy(file, locks) {
            self.close_soon(right).await;
        }
    }

    fn is_of_gone_process(&self, held: &Lock) -> bool {
        held.family == Family::Fcntl && self.gateway.is_gone(held.process)
    }
}
