//! Locks of programs: those of `fcntl` and `flock`. The servers decide about them, so other mounts
//! and processes see them; and since every process is a client of its own, its locks are, too.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_base::FileKind;
use weft_posix::Refusal;
use weft_wire::ops::{Family, Lock, LockKind};

use crate::border::{Errno, Outcome, border, calls, fail};
use crate::table::{At, Open};
use crate::{data, real, reserve, session, table};

/// This process has asked for a lock of `fcntl`: every close may end one.
static HAS_LOCKED: AtomicBool = AtomicBool::new(false);

/// Tells owners that are open files from those that are processes.
const OF_FILE: u64 = 1 << 63;

fn process() -> u32 {
    std::process::id()
}

fn take(at: &At, open: &Open, wanted: Lock, waits: bool) -> Outcome<()> {
    HAS_LOCKED.store(true, Ordering::Relaxed);
    // Nobody can tell that a signal has come; it is waited for the servers' patience.
    let is_awaited = || true;
    let awaited: Option<&weft_client::IsAwaited<'_>> = if waits { Some(&is_awaited) } else { None };
    match at.fs.posix().rt().block_on(at.fs.posix().lock(open.node, wanted, awaited)) {
        Ok(()) => Ok(()),
        Err(Refusal::Taken) => fail(libc::EAGAIN),
        Err(Refusal::Deadlock) => fail(libc::EDEADLK),
        Err(Refusal::Interrupted) => fail(libc::EINTR),
        Err(Refusal::Failed(_)) => fail(libc::ENOLCK),
    }
}

fn give(at: &At, open: &Open, lock: &Lock) -> Outcome<()> {
    let unlocked = async |posix: &weft_library::PosixLayer<_>| posix.unlock(open.node, lock.family, lock.owner, lock.start, lock.end).await;
    at.fs.run("unlock", &open.path, unlocked).map_err(|_| Errno(libc::ENOLCK))
}

/// A lock of an open file belongs to all processes that have it. Here it is the lock of a client,
/// which is one process: only that which opened the file may have it.
fn check_own(open: &Open) -> Outcome<()> {
    if open.is_inherited { fail(libc::ENOLCK) } else { Ok(()) }
}

/// `F_SETLK` and its relatives.
///
/// # Safety
/// The lock is null or there.
pub(crate) unsafe fn record_lock(fd: c_int, open: &Arc<Open>, command: c_int, lock: *mut libc::flock) -> Outcome<c_int> {
    let Some(lock) = lock.as_mut() else { return fail(libc::EFAULT) };
    let is_of_file = matches!(command, libc::F_OFD_SETLK | libc::F_OFD_SETLKW | libc::F_OFD_GETLK);
    if is_of_file {
        check_own(open)?;
    }
    let at = open.file()?.share();
    let base = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_END => data::size(open, &at)? as i64,
        libc::SEEK_CUR => reserve::offset(fd)? as i64,
        _ => return fail(libc::EINVAL),
    };
    let (start, end) = range(base, lock.l_start, lock.l_len)?;
    let owner = if is_of_file { at.number | OF_FILE } else { process().into() };
    let kind = if c_int::from(lock.l_type) == libc::F_WRLCK { LockKind::Exclusive } else { LockKind::Shared };
    let wanted = Lock { family: Family::Fcntl, owner, kind, start, end, process: process(), file: at.number };
    match (command, c_int::from(lock.l_type)) {
        (libc::F_GETLK | libc::F_OFD_GETLK, libc::F_RDLCK | libc::F_WRLCK) => {
            let asked = async |posix: &weft_library::PosixLayer<_>| posix.lock_in_the_way(open.node, &wanted).await;
            match at.fs.run("lock", &open.path, asked).map_err(|_| Errno(libc::ENOLCK))? {
                None => lock.l_type = libc::F_UNLCK as i16,
                Some(found) => {
                    lock.l_type = if found.kind == LockKind::Exclusive { libc::F_WRLCK } else { libc::F_RDLCK } as i16;
                    lock.l_whence = libc::SEEK_SET as i16;
                    lock.l_start = found.start as i64;
                    lock.l_len = if found.end >= i64::MAX as u64 { 0 } else { (found.end - found.start + 1) as i64 };
                    lock.l_pid = found.process as i32;
                }
            }
        }
        (_, libc::F_UNLCK) => give(&at, open, &wanted)?,
        (_, libc::F_RDLCK) if !open.reads() => return fail(libc::EBADF),
        (_, libc::F_WRLCK) if !open.writes() => return fail(libc::EBADF),
        (_, libc::F_RDLCK | libc::F_WRLCK) => take(&at, open, wanted, matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW))?,
        _ => return fail(libc::EINVAL),
    }
    Ok(0)
}

/// First and last byte of a range as `struct flock` has it.
fn range(base: i64, start: i64, len: i64) -> Outcome<(u64, u64)> {
    let overflow = Errno(libc::EOVERFLOW);
    let first = base.checked_add(start).ok_or(overflow)?;
    let (first, end) = match len {
        0 => (first, i64::MAX),
        1.. => (first, first.checked_add(len - 1).ok_or(overflow)?),
        _ => (first.checked_add(len).ok_or(overflow)?, first - 1),
    };
    if first < 0 { fail(libc::EINVAL) } else { Ok((first as u64, end as u64)) }
}

/// A descriptor is closed: the process's `fcntl` locks on its file end.
pub(crate) fn closed(open: &Open) {
    if open.kind == FileKind::File
        && HAS_LOCKED.load(Ordering::Relaxed)
        && let Ok(fs) = session::fs()
    {
        fs.posix().rt().block_on(fs.posix().descriptor_closed(open.node, process().into()));
    }
}

fn lock_whole(fd: c_int, operation: c_int) -> Outcome<c_int> {
    let open = table::get(fd)?;
    check_own(&open)?;
    let at = open.file()?.share();
    let wanted = |kind| {
        let (family, owner) = (Family::Flock, at.number | OF_FILE);
        Lock { family, owner, kind, start: 0, end: i64::MAX as u64, process: process(), file: at.number }
    };
    let waits = operation & libc::LOCK_NB == 0;
    match operation & !libc::LOCK_NB {
        libc::LOCK_SH => take(&at, &open, wanted(LockKind::Shared), waits)?,
        libc::LOCK_EX => take(&at, &open, wanted(LockKind::Exclusive), waits)?,
        libc::LOCK_UN => give(&at, &open, &wanted(LockKind::Exclusive))?,
        _ => return fail(libc::EINVAL),
    }
    Ok(0)
}

calls! {
    fn flock(fd: c_int, operation: c_int) -> c_int {
        if table::is_weft(fd) { border(|| lock_whole(fd, operation)) } else { real::flock(fd, operation) }
    }

    fn lockf | lockf64(fd: c_int, command: c_int, bytes: libc::off_t) -> c_int {
        if !table::is_weft(fd) {
            return real::lockf(fd, command, bytes);
        }
        border(|| {
            let open = table::get(fd)?;
            let start = reserve::offset(fd)? as i64;
            let mut lock: libc::flock = std::mem::zeroed();
            (lock.l_whence, lock.l_start, lock.l_len) = (libc::SEEK_SET as i16, start, bytes);
            lock.l_type = if command == libc::F_ULOCK { libc::F_UNLCK } else { libc::F_WRLCK } as i16;
            match command {
                libc::F_LOCK => record_lock(fd, &open, libc::F_SETLKW, &mut lock),
                libc::F_TLOCK | libc::F_ULOCK => record_lock(fd, &open, libc::F_SETLK, &mut lock),
                libc::F_TEST => {
                    record_lock(fd, &open, libc::F_GETLK, &mut lock)?;
                    if c_int::from(lock.l_type) == libc::F_UNLCK { Ok(0) } else { fail(libc::EACCES) }
                }
                _ => fail(libc::EINVAL),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_struct_flock() {
        assert_eq!(range(0, 10, 5), Ok((10, 14)));
        assert_eq!(range(100, -10, 0), Ok((90, i64::MAX as u64)));
        assert_eq!(range(0, 10, -5), Ok((5, 9)));
        assert!(range(0, -1, 1).is_err() && range(i64::MAX, 1, 0).is_err() && range(0, 3, -5).is_err());
    }
}
