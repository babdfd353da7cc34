//! Locks of programs (`flock`, `fcntl`): who has them and who waits, for all clients.
//!
//! ```text
//! Lock ──▶ free: granted           taken: refused, or with the number of a wait:
//!                                    ▼
//!          granted ◀── its turn ── waits here ── too long ──▶ answered "waits", asked again
//!                                    │                          (its place in the queue is kept)
//!                                    └── LockCancel ──▶ answered "withdrawn"
//! ```
//! The table is volatile, as that of open files: after a restart clients tell what they hold. So
//! that they are waited for, the journal has the names of those who ever had a lock.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use weft_base::{ClientId, FileKind, Handle, MILLISECOND, Nanos, Result, SECOND, Status};
use weft_locks::{Asked, LockTable};
use weft_namespace::{Change, Record};
use weft_rt::{PeerId, ServerRuntime, Signal, race};
use weft_wire::ops::{
    Family, HeldLock, LockCancelRequest, LockOutcome, LockReply, LockRequest, LockTestReply, LockTestRequest, LocksOfFile, UNLOCKS_MAX,
    UnlockRequest,
};
use weft_wire::{Header, Wire};

use super::answer;
use crate::engine::Engine;
use crate::server::Server;
use crate::step::Step;

/// How long a request for a lock waits at the server before it is answered, in nanoseconds: shorter
/// than a client waits for an answer before it asks again on its own.
const WAIT_NS: u64 = 1_500 * MILLISECOND;

/// A client that has had no locks, and nothing open for more than reading, for so long is not
/// waited for after a restart, in nanoseconds: longer than the time for which clients are waited
/// for.
const LOCKER_IDLE_NS: u64 = 60 * SECOND;

/// Locks of programs.
#[derive(Default)]
pub(crate) struct ProgramLocks {
    table: RefCell<LockTable>,
    /// Requests that wait, by client and number of the wait.
    waiting: RefCell<BTreeMap<(ClientId, u64), Rc<Waiting>>>,
    /// A request waits until an append is over.
    append_is_awaited: Cell<bool>,
    /// Clients that are known for their locks, or for what they had open, and have had none of it
    /// since then.
    idle: RefCell<BTreeMap<ClientId, Nanos>>,
}

/// A request that waits here.
#[derive(Default)]
struct Waiting {
    outcome: Cell<Option<LockOutcome>>,
    has_ended: Signal,
}

impl Waiting {
    fn end(&self, outcome: LockOutcome) {
        self.outcome.set(Some(outcome));
        self.has_ended.notify();
    }
}

fn reply(outcome: LockOutcome) -> LockReply {
    LockReply { outcome, in_the_way: None }
}

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    pub(crate) fn lock(self: &Rc<Self>, peer: PeerId, header: &Header, request: &LockRequest) -> Result<Step> {
        let (client, handle) = (header.request.client, request.handle);
        self.check_lockable(handle)?;
        if self.may_be_locked_by_untold() {
            return Err(Status::Busy);
        }
        let wanted = HeldLock { client, lock: request.lock };
        let wait = Some(request.wait).filter(|wait| *wait != 0);
        let asked = self.locks.table.borrow_mut().lock(handle, wanted, wait, self.rt.now())?;
        if asked == Asked::Granted {
            // It may be less than its owner had before.
            self.give_locks(handle);
        }
        let reply = match asked {
            Asked::Granted => reply(LockOutcome::Granted),
            Asked::Deadlock => reply(LockOutcome::Deadlock),
            Asked::Taken(held) => LockReply { outcome: LockOutcome::Taken, in_the_way: Some(held) },
            Asked::Waits => {
                self.note_locker(client);
                // Before the flow runs: whoever unlocks until then gives it the lock.
                let waiting = Rc::new(Waiting::default());
                let before = self.locks.waiting.borrow_mut().insert((client, request.wait), waiting.clone());
                before.into_iter().for_each(|before| before.end(LockOutcome::Waits));
                return Ok(self.start_flow(peer, header, Rc::clone(self).wait_for_lock(*header, handle, request.wait, waiting)));
            }
        };
        let is_new = asked == Asked::Granted && self.note_locker(client);
        let body = reply.to_bytes();
        let lsn = self.change_and_answer(header, &mut Record::default(), &body);
        // Who has a lock must be known after a restart: once in the life of a client.
        Ok(if is_new { Step::WhenDurable(body, lsn) } else { Step::Answer(body, 0) })
    }

    async fn wait_for_lock(self: Rc<Self>, header: Header, handle: Handle, wait: u64, waiting: Rc<Waiting>) -> Result<Bytes> {
        let client = header.request.client;
        let until = self.rt.now() + WAIT_NS;
        let outcome = loop {
            let ended = waiting.has_ended.wait();
            if let Some(outcome) = waiting.outcome.get() {
                break outcome;
            }
            if self.rt.now() >= until {
                self.locks.table.borrow_mut().rest(handle, client, wait, self.rt.now());
                break LockOutcome::Waits;
            }
            race(ended, self.rt.sleep_until(until)).await;
        };
        {
            let mut all = self.locks.waiting.borrow_mut();
            if all.get(&(client, wait)).is_some_and(|other| Rc::ptr_eq(other, &waiting)) {
                all.remove(&(client, wait));
            }
        }
        let body = reply(outcome).to_bytes();
        let lsn = self.change_and_answer(&header, &mut Record::default(), &body);
        if outcome == LockOutcome::Granted {
            self.kept(self.engine.make_durable(lsn).await);
        }
        Ok(body)
    }

    pub(crate) fn unlock(&self, header: &Header, request: &UnlockRequest) -> Result<Step> {
        if request.unlocks.len() > UNLOCKS_MAX {
            return Err(Status::TooBig);
        }
        {
            let mut table = self.locks.table.borrow_mut();
            for range in &request.unlocks {
                table.unlock(request.handle, header.request.client, range)?;
            }
        }
        self.give_locks(request.handle);
        let body = ().to_bytes();
        self.change_and_answer(header, &mut Record::default(), &body);
        Ok(Step::Answer(body, 0))
    }

    pub(crate) fn lock_test(&self, header: &Header, request: &LockTestRequest) -> Result<Step> {
        let client = header.request.client;
        self.check_lockable(request.handle)?;
        if self.may_be_locked_by_untold() {
            return Err(Status::Busy);
        }
        let wanted = HeldLock { client, lock: request.lock };
        let in_the_way = self.locks.table.borrow().conflict(request.handle, &wanted);
        answer(&LockTestReply { in_the_way })
    }

    pub(crate) fn lock_cancel(&self, header: &Header, request: &LockCancelRequest) -> Result<Step> {
        let client = header.request.client;
        if self.locks.table.borrow_mut().withdraw(request.handle, client, request.wait) {
            if let Some(waiting) = self.locks.waiting.borrow().get(&(client, request.wait)) {
                waiting.end(LockOutcome::Withdrawn);
            }
            self.give_locks(request.handle);
        }
        answer(&())
    }

    /// A client tells what its programs hold. Only on files that it has open.
    pub(super) fn reclaim_locks(&self, client: ClientId, files: &[LocksOfFile]) {
        for LocksOfFile { handle, locks } in files {
            if self.state.borrow().opened_by(client, *handle).is_none() {
                continue;
            }
            let mut table = self.locks.table.borrow_mut();
            locks.iter().for_each(|lock| table.reclaim(*handle, HeldLock { client, lock: *lock }));
        }
        if self.locks.table.borrow().has_client(client) {
            self.note_locker(client);
        }
    }

    /// A client has closed a file: it has no locks there.
    pub(super) fn closed_by(&self, client: ClientId, handle: Handle) {
        let is_open = || self.state.borrow().opened_by(client, handle).is_some();
        if self.locks.table.borrow().has_client(client) && !is_open() && self.locks.table.borrow_mut().drop_from(handle, client) {
            self.give_locks(handle);
        }
    }

    /// A client is lost, or has not had locks for long.
    pub(crate) fn drop_locks_of(&self, client: ClientId) {
        let handles = self.locks.table.borrow_mut().drop_client(client);
        handles.into_iter().for_each(|handle| self.give_locks(handle));
        self.locks.idle.borrow_mut().remove(&client);
        if self.state.borrow().lockers().contains(&client) {
            self.change_in_flow(&mut Record { changes: vec![Change::DeleteLocker { client }], open: None });
        }
    }

    /// What only time brings to those who wait.
    pub(crate) fn look_after_locks(&self) {
        let queues = self.locks.table.borrow().queues();
        queues.into_iter().for_each(|handle| self.give_locks(handle));
        let now = self.rt.now();
        let over: Vec<ClientId> = {
            let (state, mut idle) = (self.state.borrow(), self.locks.idle.borrow_mut());
            idle.retain(|client, _| self.has_no_locks(*client));
            let idle_for = |client: ClientId, idle: &mut BTreeMap<ClientId, Nanos>| now.since(*idle.entry(client).or_insert(now));
            let lockers = state.lockers().iter().copied().filter(|client| self.has_no_locks(*client));
            lockers.filter(|client| idle_for(*client, &mut idle) >= LOCKER_IDLE_NS || self.is_gone(*client)).collect()
        };
        over.into_iter().for_each(|client| self.drop_locks_of(client));
    }

    /// A connection of a client is gone. Who has gone in good order has no locks, and is done with
    /// at once: whoever wants one after a restart would wait for it.
    pub(crate) fn look_after_locker(&self, client: ClientId) {
        let is_locker = self.state.borrow().lockers().contains(&client);
        if is_locker && self.has_no_locks(client) && self.is_gone(client) {
            self.drop_locks_of(client);
        }
    }

    fn has_no_locks(&self, client: ClientId) -> bool {
        !self.locks.table.borrow().has_client(client) && !self.state.borrow().keeps_others_out(client)
    }

    /// True of a client that is not connected, if it is known what it had.
    fn is_gone(&self, client: ClientId) -> bool {
        let sessions = self.clients.sessions.borrow();
        !sessions.is_connected(client) && !sessions.is_untold(client)
    }

    /// Those whose turn it is get their locks.
    fn give_locks(&self, handle: Handle) {
        if self.locks.append_is_awaited.take() {
            self.shell.release();
        }
        let due = self.locks.table.borrow_mut().due(handle, self.rt.now(), |client| self.clients.sessions.borrow().is_connected(client));
        let waiting = self.locks.waiting.borrow();
        for granted in due {
            if let Some(waiting) = waiting.get(&granted) {
                waiting.end(LockOutcome::Granted);
            }
        }
    }

    /// Checks that no other client appends at this moment: it goes by the size.
    ///
    /// # Errors
    /// [`Status::Busy`]: the append will be over soon.
    pub(crate) fn check_appended(&self, client: ClientId, handle: Handle) -> Result<()> {
        if self.locks.table.borrow().others_have(handle, client, Family::Append) {
            self.locks.append_is_awaited.set(true);
            return Err(Status::Busy);
        }
        Ok(())
    }

    /// Only files are locked here; kernels keep locks on other objects by themselves.
    fn check_lockable(&self, handle: Handle) -> Result<()> {
        match self.state.borrow().inode(handle)?.kind {
            FileKind::File => Ok(()),
            _ => Err(Status::Invalid),
        }
    }

    /// True if a client that had locks before a restart has not told yet which. It may be the one
    /// who asks, for another of its programs.
    fn may_be_locked_by_untold(&self) -> bool {
        let (sessions, state) = (self.clients.sessions.borrow(), self.state.borrow());
        state.is_in_grace() && sessions.untold().any(|client| state.lockers().contains(client))
    }

    /// Sees to it that the client is waited for after a restart. False if that is so already.
    fn note_locker(&self, client: ClientId) -> bool {
        let is_new = !self.state.borrow().lockers().contains(&client);
        if is_new {
            self.change(&mut Record { changes: vec![Change::PutLocker { client }], open: None });
        }
        is_new
    }
}
