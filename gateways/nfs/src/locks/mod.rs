//! NLM version 4 (RFC 1813, appendix II; XNFS), on the same port as NFS: locks of programs of NFS
//! clients. They are locks of the file system, decided about by the server of the file, so that
//! they and those of mounts exclude each other. Here is only whose they are (`table.rs`).
//!
//! ```text
//! LOCK ──▶ free: GRANTED           taken: DENIED, or if the client would wait:
//!                                    ▼
//!          BLOCKED ──▶ a flow waits at the server (`waits.rs`) ──▶ the lock is held for the client
//!                        │                                            │ told by GRANTED (`callback.rs`),
//!                        └── CANCEL, UNLOCK: it ends                  ▼ or when it asks again
//!                                                                  it is the client's
//! ```
//!
//! A file is kept open as long as there is a lock or a wait on it: the server drops the locks of
//! who closes a file.

pub(crate) mod callback;
mod messages;
mod table;
mod waits;

use weft_base::{Credentials, FileKind, Handle};
use weft_posix::{InodeNumber, OpenHow, Refusal as LockRefusal};
use weft_rt::Runtime;
use weft_wire::Rights;
use weft_wire::ops::{Family, Lock, LockKind, Owner, Unlock};

use crate::gateway::{Caller, Nfs, Object, lock};
use crate::rpc::Refusal;
use crate::types::{Failure, NfsStatus};
use crate::xdr::{Reader, Writer};

#[cfg(test)]
pub(crate) use callback::{Grant, Told};
pub(crate) use messages::NlmStatus;
use messages::{NlmHost, NlmLock, OPAQUE_BYTES_MAX, offset_and_length, status_of};
pub(crate) use table::NfsLocks;
use table::{NfsWait, WaitState};

/// The program number of NLM.
pub(crate) const NLM_PROGRAM: u32 = 100_021;
/// The version of it that is served.
pub(crate) const NLM_VERSION: u32 = 4;
/// What the layer below calls a process that is not of this gateway.
const NO_PROCESS: u32 = 0;
/// What it calls one of this gateway: which, its owner says.
const PROCESS: u32 = 1;
/// No owner has this number.
const NO_OWNER: Owner = 0;

/// True for procedures that must not happen twice although the client asks twice: a second UNLOCK
/// might take a later lock away.
pub(crate) fn is_done_once(procedure: u32) -> bool {
    matches!(procedure, 2..=4 | 22 | 23)
}

/// A lock of the file system: what is wanted, for whom.
fn wanted(owner: Owner, is_exclusive: bool, (start, end): (u64, u64)) -> Lock {
    let kind = if is_exclusive { LockKind::Exclusive } else { LockKind::Shared };
    Lock { family: Family::Fcntl, owner, kind, start, end, process: PROCESS, file: 0 }
}

impl<R: Runtime> Nfs<R> {
    /// Carries out a procedure of NLM.
    pub(crate) async fn lock_procedure(
        &self,
        caller: &Caller,
        procedure: u32,
        mut arguments: Reader,
        out: &mut Writer,
    ) -> Result<(), Failure> {
        let address = caller.peer.address.to_canonical();
        if procedure == 0 {
            return Ok(());
        }
        if procedure == 23 {
            let host = NlmHost { address, name: arguments.opaque(OPAQUE_BYTES_MAX)?.to_vec() };
            arguments.u32()?;
            self.free_all(&host).await;
            return Ok(());
        }
        if !matches!(procedure, 1..=4 | 20..=22) {
            // Among them the calls whose answers would be calls.
            return Err(Refusal::NoProcedure.into());
        }
        let cookie = arguments.opaque(OPAQUE_BYTES_MAX)?;
        out.opaque(&cookie);
        let status = match procedure {
            1 => {
                let is_exclusive = arguments.bool()?;
                let asked = NlmLock::read(&mut arguments, address)?;
                return self.lock_test(caller, &asked, is_exclusive, out).await;
            }
            2 | 22 => {
                let (waits, is_exclusive) = (arguments.bool()?, arguments.bool()?);
                let asked = NlmLock::read(&mut arguments, address)?;
                // Who had it before the gateway died gets it if nobody else has.
                let (_reclaims, state) = (arguments.bool()?, arguments.u32()?);
                status_of(self.lock_range(caller, &asked, is_exclusive, waits && procedure == 2, state).await)?
            }
            3 => {
                let (_waits, is_exclusive) = (arguments.bool()?, arguments.bool()?);
                let asked = NlmLock::read(&mut arguments, address)?;
                status_of(self.lock_cancel(caller, &asked, is_exclusive).await)?
            }
            4 => {
                let asked = NlmLock::read(&mut arguments, address)?;
                status_of(self.unlock_range(caller, &asked).await)?
            }
            // Share modes of DOS are not kept; who gives one back has none.
            20 => NlmStatus::NO_ROOM,
            _ => NlmStatus::GRANTED,
        };
        out.u32(status.0);
        if procedure == 20 || procedure == 21 {
            out.u32(0);
        }
        Ok(())
    }

    /// A file that may be locked, for a caller who has any of these rights.
    async fn lockable(&self, caller: &Caller, asked: &NlmLock, rights: &[Rights]) -> Result<Object<'_>, Failure> {
        let object = self.object_of(caller, &asked.handle)?;
        let attr = self.seen(object.handle).await?;
        if attr.kind != FileKind::File {
            return Err(NfsStatus::INVALID.into());
        }
        let mut failure = NfsStatus::INVALID.into();
        for right in rights {
            match self.opened(&object, &attr, *right).await {
                Ok(number) => {
                    self.give_back(object.handle, number, false);
                    return Ok(object);
                }
                Err(other) => failure = other,
            }
        }
        Err(failure)
    }

    async fn lock_test(&self, caller: &Caller, asked: &NlmLock, is_exclusive: bool, out: &mut Writer) -> Result<(), Failure> {
        let mut found = None;
        let outcome = match asked.range() {
            Ok(range) => self.lock_found(caller, asked, is_exclusive, range).await.map(|held| {
                found = held;
                if held.is_some() { NlmStatus::DENIED } else { NlmStatus::GRANTED }
            }),
            Err(status) => Ok(status),
        };
        out.u32(status_of(outcome)?.0);
        let Some(held) = found else { return Ok(()) };
        let (offset, length) = offset_and_length(held.start, held.end);
        out.bool(held.kind == LockKind::Exclusive);
        let locks = lock(&self.locks);
        match locks.owner(held.owner).filter(|_| held.process != NO_PROCESS) {
            Some(owner) => out.u32(owner.svid).opaque(&owner.oh),
            None => out.u32(0).opaque(b""),
        };
        out.u64(offset).u64(length);
        Ok(())
    }

    async fn lock_found(&self, caller: &Caller, asked: &NlmLock, is_exclusive: bool, range: (u64, u64)) -> Result<Option<Lock>, Failure> {
        let object = self.lockable(caller, asked, &[Rights::READ, Rights::WRITE]).await?;
        let owner = lock(&self.locks).number_of(&asked.owner).unwrap_or(NO_OWNER);
        Ok(self.posix.lock_in_the_way(InodeNumber::of(object.handle), &wanted(owner, is_exclusive, range)).await?)
    }

    async fn lock_range(
        &self,
        caller: &Caller,
        asked: &NlmLock,
        is_exclusive: bool,
        waits: bool,
        state: u32,
    ) -> Result<NlmStatus, Failure> {
        let range = match asked.range() {
            Ok(range) => range,
            Err(status) => return Ok(status),
        };
        // As `fcntl` wants the file to be open.
        let right = if is_exclusive { Rights::WRITE } else { Rights::READ };
        let object = self.lockable(caller, asked, &[right]).await?;
        if is_exclusive {
            object.may_change()?;
        }
        let host = &asked.owner.host;
        let has_restarted = lock(&self.locks).has_restarted(host, state);
        if has_restarted {
            self.drop_all_of(host).await;
        }
        let begun = lock(&self.locks).begin(object.handle, &asked.owner);
        let owner = match begun {
            Ok(owner) => owner,
            Err(status) => return Ok(status),
        };
        lock(&self.locks).lives(host, state);
        let wanted = wanted(owner, is_exclusive, range);
        let outcome = self.lock_for(caller, &object, asked, wanted, waits).await;
        self.end_lock_call(object.handle, owner).await;
        outcome
    }

    async fn lock_for(
        &self,
        caller: &Caller,
        object: &Object<'_>,
        asked: &NlmLock,
        wanted: Lock,
        waits: bool,
    ) -> Result<NlmStatus, Failure> {
        let (handle, range) = (object.handle, wanted.whole());
        let known = lock(&self.locks).wait_for(handle, &wanted);
        match known {
            // It asks whether it has it by now.
            Some((_, WaitState::Waits)) if waits => return Ok(NlmStatus::BLOCKED),
            Some((number, state @ (WaitState::Granted | WaitState::Refused(_)))) => {
                let taken = lock(&self.locks).remove_wait(number);
                if taken.is_some() {
                    self.end_lock_call(handle, wanted.owner).await;
                }
                match state {
                    WaitState::Refused(status) => return Ok(status),
                    _ if taken.is_some() => return Ok(NlmStatus::GRANTED),
                    _ => {}
                }
            }
            _ => {}
        }
        // A wait that is answered later would undo what is answered now.
        self.end_waits(handle, &range).await?;
        let file = self.opened_for_locks(object).await?;
        let wanted = Lock { file, ..wanted };
        // Who would wait is in the queue for a moment: long enough to hear of a deadlock.
        let not_for_long = || false;
        let locked = self.posix.lock(InodeNumber::of(handle), wanted, if waits { Some(&not_for_long) } else { None }).await;
        match locked {
            Ok(()) => Ok(NlmStatus::GRANTED),
            Err(LockRefusal::Deadlock) => Ok(NlmStatus::DEADLOCK),
            Err(LockRefusal::Taken | LockRefusal::Interrupted) if waits => {
                let before = self.held_in(handle, &range);
                let wait = NfsWait { handle, lock: wanted, before, asked: asked.clone(), at: caller.peer.at, state: WaitState::Waits };
                Ok(lock(&self.locks).wait(wait).err().unwrap_or(NlmStatus::BLOCKED))
            }
            Err(LockRefusal::Taken | LockRefusal::Interrupted) => Ok(NlmStatus::DENIED),
            Err(LockRefusal::Failed(error)) => Ok(failed(error)),
        }
    }

    async fn lock_cancel(&self, caller: &Caller, asked: &NlmLock, is_exclusive: bool) -> Result<NlmStatus, Failure> {
        let handle = self.object_of(caller, &asked.handle)?.handle;
        let range = match asked.range() {
            Ok(range) => range,
            Err(status) => return Ok(status),
        };
        let known = {
            let locks = lock(&self.locks);
            locks.number_of(&asked.owner).and_then(|owner| locks.wait_for(handle, &wanted(owner, is_exclusive, range)))
        };
        match known {
            Some((number, _)) => self.end_wait(number).await.map(|()| NlmStatus::GRANTED),
            None => Ok(NlmStatus::DENIED),
        }
    }

    async fn unlock_range(&self, caller: &Caller, asked: &NlmLock) -> Result<NlmStatus, Failure> {
        // It may have lost its last name since.
        let handle = self.object_of(caller, &asked.handle)?.handle;
        let (start, end) = match asked.range() {
            Ok(range) => range,
            Err(status) => return Ok(status),
        };
        let known = lock(&self.locks).begin_known(handle, &asked.owner);
        let Some(owner) = known else { return Ok(NlmStatus::GRANTED) };
        let outcome = self.give_range_back(handle, Unlock { family: Family::Fcntl, owner, start, end }).await;
        self.end_lock_call(handle, owner).await;
        outcome
    }

    async fn give_range_back(&self, handle: Handle, range: Unlock) -> Result<NlmStatus, Failure> {
        self.end_waits(handle, &range).await?;
        let Unlock { family, owner, start, end } = range;
        let unlocked = self.posix.unlock(InodeNumber::of(handle), family, owner, start, end).await;
        Ok(unlocked.map_or_else(failed, |()| NlmStatus::GRANTED))
    }

    /// A host says that it holds nothing.
    async fn free_all(&self, host: &NlmHost) {
        let is_first = lock(&self.locks).free(host);
        if is_first {
            self.drop_all_of(host).await;
        }
    }

    /// Everything that a host has; it gets nothing meanwhile.
    async fn drop_all_of(&self, host: &NlmHost) {
        let (pairs, waits) = lock(&self.locks).of_host(host);
        for number in waits {
            // What takes too long ends a little later: it is cancelled.
            let _ = self.end_wait(number).await;
        }
        for (handle, owner) in pairs {
            let known = lock(&self.locks).begin_known(handle, &owner);
            let Some(owner) = known else { continue };
            // A server that does not answer is told later.
            let _ = self.give_range_back(handle, Unlock { family: Family::Fcntl, owner, start: 0, end: u64::MAX }).await;
            self.end_lock_call(handle, owner).await;
        }
        lock(&self.locks).freed(host);
    }

    /// The open file by which a file is locked.
    async fn opened_for_locks(&self, object: &Object<'_>) -> Result<u64, Failure> {
        let known = lock(&self.locks).open_of(object.handle);
        if let Some(number) = known {
            return Ok(number);
        }
        // Whether the caller may was asked before.
        let who = Credentials { checked_by_kernel: true, ..object.who.clone() };
        let (_, number) = self.posix.open_handle(&who, object.handle, OpenHow::direct(Rights::READ)).await?;
        let (number, spare) = lock(&self.locks).opened(object.handle, number);
        if let Some(spare) = spare {
            self.posix.release(spare).await;
        }
        Ok(number)
    }

    /// A call or wait of an owner on a file is over.
    async fn end_lock_call(&self, handle: Handle, owner: Owner) {
        let open = {
            let mut locks = lock(&self.locks);
            locks.end(handle, owner, &self.posix.held_locks(InodeNumber::of(handle)))
        };
        if let Some(number) = open {
            self.posix.release(number).await;
        }
    }

    /// What an owner holds of any part of a range.
    fn held_in(&self, handle: Handle, range: &Unlock) -> Vec<Lock> {
        let mut held = self.posix.held_locks(InodeNumber::of(handle));
        held.retain(|lock| (lock.family, lock.owner) == (range.family, range.owner) && lock.start <= range.end && range.start <= lock.end);
        held
    }
}

/// The status of a lock that could not be decided about.
fn failed(error: weft_client::Error) -> NlmStatus {
    match error.status {
        weft_base::Status::TooManyLocks => NlmStatus::NO_ROOM,
        status => NfsStatus::from(status).into(),
    }
}
