//! The file system of this process: which prefix it has, when it is opened, and its end.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use weft_host::door::{self, ProgramFs};

use crate::border::{self, Errno, Outcome, tell};
use crate::prefix::Prefix;
use crate::reserve;

/// `/PREFIX=FS`.
pub(crate) const VARIABLE: &CStr = c"WEFT_PRELOAD";
/// Longest time of a call, in seconds.
const TIMEOUT_VARIABLE: &CStr = c"WEFT_PRELOAD_TIMEOUT";

static PREFIX: OnceLock<Option<Prefix>> = OnceLock::new();
static FS: Mutex<Option<Arc<ProgramFs>>> = Mutex::new(None);
/// The umask that the program has set; [`u32::MAX`]: none.
static UMASK: AtomicU32 = AtomicU32::new(u32::MAX);
static HAS_COMPLAINED: AtomicBool = AtomicBool::new(false);

/// The value of an environment variable.
pub(crate) fn variable(name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: what `getenv` returns is a string, copied at once.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes().to_vec())
    }
}

/// The prefix; `None`: this process uses no Weft.
#[inline]
pub(crate) fn prefix() -> Option<&'static Prefix> {
    PREFIX.get_or_init(read_prefix).as_ref()
}

fn read_prefix() -> Option<Prefix> {
    let text = variable(VARIABLE)?;
    let parsed = Prefix::parse(&text);
    if parsed.is_none() {
        tell(&format!("WEFT_PRELOAD={} is not /PREFIX=FS: nothing is Weft's", String::from_utf8_lossy(&text)));
    }
    parsed
}

fn lock() -> MutexGuard<'static, Option<Arc<ProgramFs>>> {
    FS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file system, opened by the first call of this process that needs it.
///
/// # Errors
/// Why it cannot be opened; in words on the standard error output, once.
pub(crate) fn fs() -> Outcome<Arc<ProgramFs>> {
    let mut current = lock();
    if let Some(fs) = &*current {
        return Ok(fs.clone());
    }
    let Some(prefix) = prefix() else { return Err(Errno(libc::ENOENT)) };
    reserve::prepare()?;
    let timeout = variable(TIMEOUT_VARIABLE).and_then(|text| String::from_utf8(text).ok()?.parse().ok()).map(Duration::from_secs);
    let opened = without_signals(|| door::open_with(OsStr::from_bytes(&prefix.fs), None, timeout, border::stay_inside));
    match opened {
        Ok(fs) => Ok(current.insert(Arc::new(fs)).clone()),
        Err(error) => {
            if !HAS_COMPLAINED.swap(true, Ordering::Relaxed) {
                tell(&error.text);
            }
            Err(error.into())
        }
    }
}

/// Handlers of the program's signals run on its own threads only: those that are begun here get
/// none.
fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are there to be written to and read; the thread's own mask is put back.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let done = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        done
    }
}

/// Bits that new files and directories do not get.
pub(crate) fn umask(fs: &ProgramFs) -> u32 {
    match UMASK.load(Ordering::Relaxed) {
        u32::MAX => fs.umask(),
        set => set,
    }
}

/// The program has set its umask.
pub(crate) fn note_umask(mask: u32) {
    UMASK.store(mask & 0o777, Ordering::Relaxed);
}

/// The process is another user's now: what it asks from now on is asked as that one. What is open
/// stays open.
pub(crate) fn change_user() {
    drop(take());
}

fn take() -> Option<Arc<ProgramFs>> {
    lock().take()
}

/// The process ends, or becomes another program: servers hear what is closed, and that nothing is
/// believed any more.
pub(crate) fn leave() {
    if let Some(fs) = take().filter(|fs| fs.is_own()) {
        fs.leave();
        // Its threads end with the process.
        std::mem::forget(fs);
    }
}

/// True if this process has opened the file system.
pub(crate) fn is_open() -> bool {
    lock().as_ref().is_some_and(|fs| fs.is_own())
}

/// Keeps other threads from the file system while a child process is made; in that, what is behind
/// it is the parent's.
pub(crate) struct Held(MutexGuard<'static, Option<Arc<ProgramFs>>>);

/// Takes the lock.
pub(crate) fn hold() -> Held {
    Held(lock())
}

/// In a child process: nothing of the parent's connections is used.
pub(crate) fn inherit(held: &mut Held) {
    if let Some(fs) = held.0.take() {
        std::mem::forget(fs);
    }
    reserve::forget_others();
}
