//! Locks of open files on ranges of bytes. The server of the file decides about them, so they keep
//! apart programs of all gateways: they are of the family of `fcntl` locks.

use std::time::Duration;

use weft_base::Status;
use weft_posix::Refusal;
use weft_rt::ThreadRuntime;
use weft_wire::ops::{Family, Lock, LockKind, Owner};

use crate::error::{Error, Result};
use crate::file::File;

/// Owners that are open files, not processes.
const OPEN_FILE: Owner = 1 << 63;
/// Longer waits are as long as this.
const LONGEST_WAIT: Duration = Duration::from_secs(u32::MAX as u64);
/// The last byte that a file may have.
const LAST_BYTE: u64 = i64::MAX as u64;

impl<R: ThreadRuntime> File<R> {
    /// Takes a lock on `bytes` bytes from this byte offset (0: to the end, wherever that will be),
    /// and waits so long for others. It belongs to this open file, which may change its kind, and
    /// ends with it. Locks keep nobody from reading and writing who does not ask for one. False if
    /// others have it still, or wait for what this file has.
    ///
    /// # Errors
    /// [`Status::Invalid`] beyond the largest offset; [`Status::TooManyLocks`]; servers that do not
    /// answer.
    pub fn lock(&self, offset: u64, bytes: u64, kind: LockKind, patience: Duration) -> Result<bool> {
        let (start, end) = self.range_of_lock(offset, bytes)?;
        self.fs().check_process("lock")?;
        let (family, owner) = (Family::Fcntl, self.owner());
        let lock = Lock { family, owner, kind, start, end, process: std::process::id(), file: self.number() };
        let posix = self.fs().posix();
        let until = posix.rt().now() + patience.min(LONGEST_WAIT).as_nanos() as u64;
        let is_awaited = || posix.rt().now() < until;
        match self.fs().drive(posix.lock(self.node(), lock, if patience.is_zero() { None } else { Some(&is_awaited) })) {
            Ok(()) => Ok(true),
            Err(Refusal::Taken | Refusal::Interrupted | Refusal::Deadlock) => Ok(false),
            Err(Refusal::Failed(error)) => Err(self.fs().told("lock", self.path(), &error)),
        }
    }

    /// Gives this open file's locks on a range back. A server that does not answer is told later.
    ///
    /// # Errors
    /// [`Status::Invalid`] beyond the largest offset; [`Status::TooManyLocks`] if a lock in two
    /// parts is one too many.
    pub fn unlock(&self, offset: u64, bytes: u64) -> Result<()> {
        let (start, end) = self.range_of_lock(offset, bytes)?;
        let owner = self.owner();
        self.fs().run("unlock", self.path(), async |posix| posix.unlock(self.node(), Family::Fcntl, owner, start, end).await)
    }

    fn owner(&self) -> Owner {
        OPEN_FILE | self.number()
    }

    /// First and last byte.
    fn range_of_lock(&self, offset: u64, bytes: u64) -> Result<(u64, u64)> {
        let end = if bytes == 0 { Some(LAST_BYTE) } else { offset.checked_add(bytes - 1) };
        match end.filter(|end| *end <= LAST_BYTE && offset <= *end) {
            Some(end) => Ok((offset, end)),
            None => Err(Error::new(Status::Invalid, format!("lock {}: beyond the largest offset", String::from_utf8_lossy(self.path())))),
        }
    }
}
