//! Locks of programs (`flock`, `fcntl`): the server of a file decides about them, for all clients.
//! What the programs of this one hold is noted here, so that a server which has restarted can be
//! told, and nobody is asked about files without locks.
//!
//! A message that a restart has overtaken is sent again: the server may have been told of the locks
//! as they were before it. What became of a message that was never answered is not known, so the
//! lock that it asked for counts as not held here, and is owed to the server: it is given back as
//! soon as the server answers.

mod held;

use std::pin::pin;

use weft_base::{Handle, MILLISECOND, Nanos, SECOND, ServerId, Status};
use weft_rt::{Either, Runtime, race};
use weft_wire::ops::{
    Family, HeldLock, Lock, LockCancelRequest, LockOutcome, LockReply, LockRequest, LockTestRequest, Owner, UNLOCKS_MAX, Unlock,
    UnlockRequest,
};

use held::Begun;
pub(crate) use held::Locks;

use crate::flow::Flow;
use crate::{Client, Result};

/// Between two looks at whether a program still waits, in nanoseconds.
const LOOK_NS: u64 = 50 * MILLISECOND;

/// How long one request for a lock may take, in nanoseconds: longer than it waits at the server.
const MESSAGE_NS: u64 = 3 * SECOND;
/// The pause before a message is sent again that something else has overtaken, in nanoseconds.
const AGAIN_NS: u64 = MILLISECOND;

/// Whether the program that waits for a lock still waits.
pub type IsAwaited<'a> = dyn Fn() -> bool + 'a;

impl<R: Runtime> Client<R> {
    /// Takes a lock. With `is_awaited` it is waited for until that says no, however long that
    /// takes; it may have been granted at the same moment. Else the answer is there at once.
    ///
    /// # Errors
    /// [`Status::TooManyLocks`]; a server that does not answer a message by its deadline:
    /// then the lock is not held.
    pub async fn lock(&self, file: Handle, lock: Lock, is_awaited: Option<&IsAwaited<'_>>) -> Result<LockReply> {
        let _op = weft_trace::operation(weft_trace::event::CLIENT_OTHER);
        let locks = &self.inner.locks;
        let wait = if is_awaited.is_some() { locks.wait() } else { 0 };
        let range = lock.whole();
        let mut ends = self.flow("lock", file).deadline;
        self.announce(self.flow("lock", file), file).await?;
        self.inner.opens.locks_at(file.server());
        loop {
            let flow = self.flow_of_lock("lock", file, ends);
            let server = self.owner(flow, file).await?;
            let begun = locks.begin(file, &range, Some(lock.kind));
            let request = LockRequest { handle: file, lock, wait };
            let answered = self.ask_for_lock(flow, server, &request, is_awaited).await;
            let is_outdated = locks.is_outdated(server, begun);
            let goes_on = match &answered {
                Ok(reply) if reply.outcome == LockOutcome::Granted && !is_outdated => {
                    locks.granted(file, lock);
                    false
                }
                // The server may not know of it any more.
                Ok(reply) if reply.outcome == LockOutcome::Granted => {
                    locks.owe(file, &range, 0);
                    true
                }
                Ok(reply) if reply.outcome == LockOutcome::Waits => {
                    // The server is there: every message has a deadline, the wait has none.
                    ends = self.flow("lock", file).deadline;
                    is_awaited.is_some_and(|is_awaited| is_awaited())
                }
                Ok(_) => false,
                Err(error) => {
                    let goes_on = error.status.is_transient() && self.rt().now() < ends;
                    if !goes_on {
                        locks.owe(file, &range, wait);
                    }
                    goes_on
                }
            };
            locks.end(file, &range, Some(lock.kind));
            if goes_on {
                if is_outdated {
                    self.rt().sleep_until(self.rt().now() + AGAIN_NS).await;
                }
                continue;
            }
            if answered.as_ref().is_ok_and(|reply| reply.outcome == LockOutcome::Waits) {
                self.withdraw(flow, server, file, wait).await;
                return Ok(LockReply { outcome: LockOutcome::Withdrawn, in_the_way: None });
            }
            return answered;
        }
    }

    /// One message of an operation that ends by then. A server that has restarted may forget that
    /// it waits there: so none takes long.
    fn flow_of_lock(&self, operation: &'static str, file: Handle, ends: Nanos) -> Flow {
        let flow = self.flow(operation, file);
        Flow { deadline: flow.deadline.min(ends).min(self.rt().now() + MESSAGE_NS), ..flow }
    }

    /// One request, which may wait at the server. If the program does not wait any more, the server
    /// is told, and answers. A server that has restarted answers that it is busy until it has been
    /// told what this client has.
    async fn ask_for_lock(
        &self,
        flow: Flow,
        server: ServerId,
        request: &LockRequest,
        is_awaited: Option<&IsAwaited<'_>>,
    ) -> Result<LockReply> {
        let mut asked = pin!(self.call(flow, server, request));
        let mut is_withdrawn = false;
        loop {
            let look = self.rt().sleep_until(self.rt().now() + LOOK_NS);
            match race(&mut asked, look).await {
                Either::First(answered) => return answered,
                Either::Second(()) if !is_withdrawn && is_awaited.is_some_and(|is_awaited| !is_awaited()) => {
                    is_withdrawn = true;
                    self.withdraw(flow, server, request.handle, request.wait).await;
                }
                Either::Second(()) => self.reclaim_if_restarted(flow.deadline).await,
            }
        }
    }

    /// A wait is over. A server that does not hear of it forgets it by itself.
    async fn withdraw(&self, flow: Flow, server: ServerId, file: Handle, wait: u64) {
        let _ = self.call(flow, server, &LockCancelRequest { handle: file, wait }).await;
    }

    /// A lock in the way of this one, and its client.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn lock_in_the_way(&self, file: Handle, lock: Lock) -> Result<Option<HeldLock>> {
        let ends = self.flow("lock test", file).deadline;
        self.announce(self.flow("lock test", file), file).await?;
        loop {
            let flow = self.flow_of_lock("lock test", file, ends);
            match self.call(flow, self.owner(flow, file).await?, &LockTestRequest { handle: file, lock }).await {
                Err(error) if error.status.is_transient() && self.rt().now() < ends => {}
                answered => return answered.map(|reply| reply.in_the_way),
            }
        }
    }

    /// Gives a range back. It counts as given back here even if the server does not hear of it,
    /// which is then told later.
    ///
    /// # Errors
    /// [`Status::TooManyLocks`] if a lock would have to be cut into more pieces than may
    /// be: then it is held on. If the server did not hear of it in time.
    pub async fn unlock(&self, file: Handle, range: &Unlock) -> Result<()> {
        self.unlock_all(file, std::slice::from_ref(range)).await
    }

    /// An owner is gone: all that it held of a file. No message if that is nothing.
    ///
    /// # Errors
    /// As [`Client::unlock`].
    pub async fn unlock_owner(&self, file: Handle, family: Family, owner: Owner) -> Result<()> {
        self.unlock_all(file, &self.inner.locks.of_owner(file, family, owner)).await
    }

    /// An open file is gone: all that was taken through it. No message if that is nothing.
    ///
    /// # Errors
    /// As [`Client::unlock`].
    pub async fn unlock_open_file(&self, file: Handle, number: u64) -> Result<()> {
        self.unlock_all(file, &self.inner.locks.of_open_file(file, number)).await
    }

    /// What programs of this client hold of a file, as far as is known here. No message.
    pub fn locks_on(&self, file: Handle) -> Vec<Lock> {
        self.inner.locks.on(file)
    }

    /// True if programs of this client have locks on any file.
    pub fn has_locks(&self) -> bool {
        self.inner.locks.are_any()
    }

    async fn unlock_all(&self, file: Handle, ranges: &[Unlock]) -> Result<()> {
        let mut outcome = Ok(());
        for ranges in ranges.chunks(UNLOCKS_MAX) {
            outcome = outcome.and(self.unlock_some(file, ranges).await);
        }
        outcome
    }

    async fn unlock_some(&self, file: Handle, ranges: &[Unlock]) -> Result<()> {
        loop {
            let flow = self.flow("unlock", file);
            let server = self.owner(flow, file).await?;
            let begun: Vec<Begun> = ranges.iter().map(|range| self.inner.locks.begin(file, range, None)).collect();
            let outcome = self.unlock_once(flow, server, file, ranges).await;
            ranges.iter().for_each(|range| self.inner.locks.end(file, range, None));
            if outcome.is_err() || !begun.first().is_some_and(|begun| self.inner.locks.is_outdated(server, *begun)) {
                return outcome;
            }
            self.rt().sleep_until(self.rt().now() + AGAIN_NS).await;
        }
    }

    async fn unlock_once(&self, flow: Flow, server: ServerId, file: Handle, ranges: &[Unlock]) -> Result<()> {
        let outcome = self.call(flow, server, &UnlockRequest { handle: file, unlocks: ranges.to_vec() }).await;
        if outcome.as_ref().is_err_and(|error| error.status == Status::TooManyLocks) {
            return outcome;
        }
        for range in ranges {
            self.inner.locks.released(file, range);
            if outcome.is_err() {
                self.inner.locks.owe(file, range, 0);
            }
        }
        outcome
    }

    /// Tells servers what they could not be told in time: locks that their owners do not hold, and
    /// waits that are over.
    pub(crate) async fn pay_locks(&self) {
        for file in self.inner.locks.owing() {
            let flow = self.flow("unlock", file);
            let Ok(server) = self.owner(flow, file).await else { continue };
            // Whoever takes a lock meanwhile asks again.
            self.inner.locks.telling(server);
            let owed = self.inner.locks.take_owed(file);
            for wait in owed.iter().map(|owed| owed.wait).filter(|wait| *wait != 0) {
                self.withdraw(flow, server, file, wait).await;
            }
            let ranges: Vec<Unlock> = owed.into_iter().map(|owed| owed.range).collect();
            for ranges in ranges.chunks(UNLOCKS_MAX) {
                // What fails is owed again.
                let _ = self.unlock_once(flow, server, file, ranges).await;
            }
            self.inner.locks.has_told(server);
        }
    }
}
