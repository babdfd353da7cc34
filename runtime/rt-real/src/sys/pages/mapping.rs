//! The system calls of the region of pages.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use super::super::{check, limits};

/// Addresses for so many bytes, of which none can be used yet. None where addresses are limited
/// (`ulimit -v`): there they are worth more than what this is for.
pub(super) fn set_addresses_aside(bytes: usize) -> io::Result<usize> {
    if limits::are_addresses_limited() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new addresses that nobody has.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at as usize) }
}

/// Puts ordinary memory there.
pub(super) fn make_usable(at: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: the range belongs to the region and has no blocks yet.
    check(unsafe { libc::mprotect(at as *mut libc::c_void, bytes, libc::PROT_READ | libc::PROT_WRITE) }).map(drop)
}

/// Puts a range of a file there.
pub(super) fn map_file(file: &File, offset: u64, at: usize, bytes: usize) -> io::Result<()> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: the range belongs to the region and has no blocks yet.
    let mapped = unsafe { libc::mmap(at as *mut libc::c_void, bytes, protection, flags, file.as_raw_fd(), offset as libc::off_t) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // Names come in the order of their hashes: what lies around a page that is missed is not wanted
    // next, and would take the room of others.
    // SAFETY: the range was just mapped.
    unsafe { libc::madvise(at as *mut libc::c_void, bytes, libc::MADV_RANDOM) };
    Ok(())
}

/// Gives ordinary memory back. The addresses stay.
pub(super) fn give_memory_back(at: usize, bytes: usize) {
    // SAFETY: the range belongs to the region, and no block is in it.
    unsafe { libc::madvise(at as *mut libc::c_void, bytes, libc::MADV_DONTNEED) };
}
