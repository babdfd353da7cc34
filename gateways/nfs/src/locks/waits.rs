//! Locks that clients wait for. A client that must wait is told so at once; a flow of the gateway
//! waits at the server in its place, and tells it when the lock is there.
//!
//! A client that has the lock and does not know it keeps everybody else out, so it has a minute to
//! take it: it is called again and again, and may ask itself. If it has certainly heard nothing,
//! the lock is given back. If it may have heard, the lock is its.

use weft_base::{ClientId, Handle, MILLISECOND, Nanos, SECOND};
use weft_locks::Ranges;
use weft_posix::{InodeNumber, Refusal as LockRefusal};
use weft_rt::Runtime;
use weft_wire::ops::{HeldLock, Lock, Unlock};

use super::callback::{Grant, Told};
use super::failed;
use super::messages::NlmStatus;
use super::table::{Cancelled, NfsWait, WaitState};
use crate::gateway::{Nfs, lock};
use crate::types::{Failure, NfsStatus};

/// How long a client is told of its lock, in nanoseconds: twice as long as the Linux client waits
/// before it asks again.
const TELL_NS: u64 = 60 * SECOND;
/// Between two calls, in nanoseconds.
const TELL_AGAIN_NS: u64 = 5 * SECOND;
/// How often somebody who waits for a wait looks, in nanoseconds.
const LOOK_NS: u64 = 5 * MILLISECOND;
/// The same of one that is told, in nanoseconds.
const LOOK_TOLD_NS: u64 = 200 * MILLISECOND;
/// How long the end of a wait may take, in nanoseconds.
const END_NS: u64 = 10 * SECOND;

impl<R: Runtime> Nfs<R> {
    /// Takes the waits that have begun since: each is to be driven by [`Nfs::wait_for_lock`], or
    /// given up by [`Nfs::give_wait_up`].
    pub(crate) fn begun_waits(&self) -> Vec<u64> {
        lock(&self.locks).take_begun()
    }

    /// Nobody drives this wait: its client finds out when it asks again.
    pub(crate) async fn give_wait_up(&self, number: u64) {
        self.remove_wait(number).await;
    }

    /// Waits for a lock in the place of a client, and tells it.
    pub(crate) async fn wait_for_lock(&self, number: u64, tell: impl AsyncFn(&Grant) -> Told) {
        let known = lock(&self.locks).waiting(number).cloned();
        let Some(wait) = known else { return };
        let is_awaited = || lock(&self.locks).is_awaited(number);
        let outcome = self.posix.lock(InodeNumber::of(wait.handle), wait.lock, Some(&is_awaited)).await;
        let state = match outcome {
            Ok(()) => WaitState::Granted,
            Err(LockRefusal::Deadlock) => WaitState::Refused(NlmStatus::DEADLOCK),
            Err(LockRefusal::Failed(error)) => WaitState::Refused(failed(error)),
            // It was cancelled, unless the server has forgotten it: then the client asks again.
            Err(LockRefusal::Interrupted | LockRefusal::Taken) => return self.remove_wait(number).await,
        };
        let is_wanted = lock(&self.locks).advance(number, state);
        match state {
            WaitState::Granted if is_wanted => self.tell(number, &wait, tell).await,
            WaitState::Granted => {
                self.undo(&wait).await;
                self.remove_wait(number).await;
            }
            // A callback cannot say no: the client hears it when it asks again.
            _ => {
                self.while_there(number, state, self.now() + TELL_NS).await;
                self.remove_wait(number).await;
            }
        }
    }

    async fn tell(&self, number: u64, wait: &NfsWait, tell: impl AsyncFn(&Grant) -> Told) {
        let grant = Grant::new(number, wait);
        let end = self.now() + TELL_NS;
        let mut may_know = false;
        loop {
            let told = tell(&grant).await;
            // Who has it or has said so meanwhile has removed the wait.
            let is_there = lock(&self.locks).state_is(number, WaitState::Granted);
            match told {
                _ if !is_there => return self.remove_wait(number).await,
                Told::Taken => return self.remove_wait(number).await,
                // The second call for a lock that the first one gave looks like this, too.
                Told::Refused if may_know => return self.remove_wait(number).await,
                Told::Refused => break,
                Told::Unanswered => may_know = true,
                Told::Unheard => {}
            }
            let next = (self.now() + TELL_AGAIN_NS).min(end);
            if !self.while_there(number, WaitState::Granted, next).await {
                return self.remove_wait(number).await;
            }
            if self.now() >= end {
                break;
            }
        }
        let taken = lock(&self.locks).remove_wait(number);
        if taken.is_some() {
            if !may_know {
                self.undo(wait).await;
            }
            self.end_lock_call(wait.handle, wait.lock.owner).await;
        }
    }

    /// Waits until then; false as soon as the wait is not there any more, or not so far.
    async fn while_there(&self, number: u64, state: WaitState, until: Nanos) -> bool {
        loop {
            if !lock(&self.locks).state_is(number, state) {
                return false;
            }
            if self.now() >= until {
                return true;
            }
            self.posix.rt().sleep_until(until.min(self.now() + LOOK_TOLD_NS)).await;
        }
    }

    async fn remove_wait(&self, number: u64) {
        let removed = lock(&self.locks).remove_wait(number);
        if let Some(wait) = removed {
            self.end_lock_call(wait.handle, wait.lock.owner).await;
        }
    }

    /// A lock that was granted is not wanted: its owner has what it had before.
    async fn undo(&self, wait: &NfsWait) {
        let node = InodeNumber::of(wait.handle);
        let mut before = Ranges::default();
        for had in &wait.before {
            let had = Lock { start: had.start.max(wait.lock.start), end: had.end.min(wait.lock.end), ..*had };
            before.put(HeldLock { client: ClientId(0), lock: had });
            // Nobody is in the way of one that is weaker.
            let _ = self.posix.lock(node, had, None).await;
        }
        for Unlock { family, owner, start, end } in before.gaps(ClientId(0), &wait.lock.whole()) {
            // A server that does not answer is told later.
            let _ = self.posix.unlock(node, family, owner, start, end).await;
        }
    }

    /// Ends the waits of an owner for any part of a range.
    pub(super) async fn end_waits(&self, handle: Handle, range: &Unlock) -> Result<(), Failure> {
        let waits = lock(&self.locks).waits_in(handle, range);
        for number in waits {
            self.end_wait(number).await?;
        }
        Ok(())
    }

    /// Ends a wait: when this returns, nothing of it happens any more.
    pub(super) async fn end_wait(&self, number: u64) -> Result<(), Failure> {
        let end = self.now() + END_NS;
        loop {
            let cancelled = lock(&self.locks).cancel(number);
            match cancelled {
                Cancelled::Gone => return Ok(()),
                Cancelled::Now(wait) => {
                    if wait.state == WaitState::Granted {
                        self.undo(&wait).await;
                    }
                    self.end_lock_call(wait.handle, wait.lock.owner).await;
                    return Ok(());
                }
                Cancelled::Soon if self.now() >= end => return Err(NfsStatus::LATER.into()),
                Cancelled::Soon => self.posix.rt().sleep_until(self.now() + LOOK_NS).await,
            }
        }
    }

    /// Nobody waits for a lock any more, and nobody begins to.
    pub(crate) fn end_all_waits(&self) {
        lock(&self.locks).end_all();
    }

    /// True if nobody waits for a lock.
    pub(crate) fn has_no_waits(&self) -> bool {
        lock(&self.locks).count_waits() == 0
    }
}
