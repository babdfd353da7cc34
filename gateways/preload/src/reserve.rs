//! Descriptors. Whatever is open in Weft has a descriptor of the kernel, so that its number is
//! nobody else's, that it is inherited, duplicated and closed as others are, and that its offset is
//! shared by whoever shares the description: the kernel keeps the offset.
//!
//! All are descriptions of one empty memory file, opened for writing only and sealed: a program
//! that gets past this library to such a descriptor reads EBADF and writes EPERM, and nothing else.
//! One that is started by `exec` knows them by the name of the memory file.
//!
//! Descriptors of this library's own (connections) have numbers that programs do not use: at the
//! limit of the process, raised for them where it may be.

use std::ffi::{CString, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::border::{Outcome, checked, fail};

/// Descriptors of Weft have lower numbers than this.
pub(crate) const NUMBERS_MAX: usize = 65536;
/// The name of the memory file.
const NAME: &str = "weft-preload";
/// So many numbers are taken for this library's own descriptors where there is room.
const OWN_WANTED: u64 = 4096;

/// The lowest number of an own descriptor.
static LOWEST: AtomicI32 = AtomicI32::new(c_int::MAX);

/// The memory file by its path; opened again and again.
static FILE: OnceLock<CString> = OnceLock::new();

/// True for a descriptor of this library's own, of which programs know nothing.
#[inline]
pub(crate) fn is_own(fd: c_int) -> bool {
    fd >= LOWEST.load(Ordering::Relaxed)
}

/// The lowest number of an own descriptor; programs have those below.
pub(crate) fn lowest() -> c_int {
    LOWEST.load(Ordering::Relaxed)
}

fn begin() -> Outcome<CString> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is there to be written to, and then to be read.
    let lowest = unsafe {
        checked(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit))?;
        let before = limit.rlim_cur.min(c_int::MAX as u64 / 2);
        limit.rlim_cur = limit.rlim_max.min(before + OWN_WANTED);
        match limit.rlim_cur - before >= OWN_WANTED / 16 && libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0 {
            true => before,
            // The last of those that there are.
            false => before - (before / 4).min(OWN_WANTED),
        }
    };
    let lowest = lowest as c_int;
    let name = CString::new(NAME).expect("a name without NUL");
    // SAFETY: makes new descriptors, and what is closed is one of them.
    let file = unsafe {
        let made = checked(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING))?;
        let moved = checked(libc::fcntl(made, libc::F_DUPFD_CLOEXEC, lowest));
        libc::syscall(libc::SYS_close, made);
        let file = moved?;
        let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        checked(libc::fcntl(file, libc::F_ADD_SEALS, seals))?;
        file
    };
    weft_rt_real::keep_descriptors_from(lowest + 1);
    LOWEST.store(lowest, Ordering::Relaxed);
    Ok(CString::new(format!("/proc/self/fd/{file}")).expect("a path without NUL"))
}

/// Prepares what is needed once. Only while nobody else does.
///
/// # Errors
/// If the process may have no more descriptors.
pub(crate) fn prepare() -> Outcome<()> {
    if FILE.get().is_none() {
        // Whoever came first.
        let _ = FILE.set(begin()?);
    }
    Ok(())
}

/// A new descriptor.
///
/// # Errors
/// EMFILE.
pub(crate) fn take(close_on_exec: bool) -> Outcome<c_int> {
    let Some(file) = FILE.get() else { return fail(libc::EIO) };
    let flags = libc::O_WRONLY | if close_on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: a path that ends with NUL.
    let fd = checked(unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, file.as_ptr(), flags, 0) })? as c_int;
    if fd as usize >= NUMBERS_MAX || is_own(fd) {
        give_back(fd);
        return fail(libc::EMFILE);
    }
    Ok(fd)
}

/// Closes one.
pub(crate) fn give_back(fd: c_int) {
    // SAFETY: the descriptor is the caller's to close.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// True if this is a descriptor of ours, perhaps of the program before an `exec`.
pub(crate) fn is_ours(fd: c_int) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|file| file.to_string_lossy().starts_with(&format!("/memfd:{NAME}")))
}

/// The offset, which all who share the description share.
pub(crate) fn offset(fd: c_int) -> Outcome<u64> {
    seek(fd, 0, libc::SEEK_CUR)
}

/// Sets the offset, or moves it.
pub(crate) fn seek(fd: c_int, to: i64, whence: c_int) -> Outcome<u64> {
    // SAFETY: takes no memory.
    checked(unsafe { libc::syscall(libc::SYS_lseek, fd, to, whence) }).map(|at| at as u64)
}

/// In a child process the own descriptors are the parent's connections. The memory file stays.
pub(crate) fn forget_others() {
    if let Some(file) = FILE.get() {
        let kept: u32 = file.to_string_lossy().rsplit('/').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        // SAFETY: nobody in this process uses them.
        unsafe { libc::syscall(libc::SYS_close_range, kept + 1, libc::c_uint::MAX, 0) };
    }
}
