//! A piece of memory that two processes have mapped. All `unsafe` of shared regions is here.
//!
//! The other process may change the bytes at any time, even while they are read here. So nothing
//! here or above decides by them: they are copied, or handed to system calls, and that is all. It
//! cannot take the memory away either: the memory file is sealed against shrinking, and that is
//! checked before it is mapped, so an access never ends in SIGBUS for want of the file's length.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use weft_wire::{REGION_BYTES_MAX, REGION_PAGE_BYTES};

use crate::sys;

/// Memory shared with one peer, mapped until this is dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; whoever writes to a part of it has
// that part for itself in this process (see `fill` and `read_at`), and what the other process does
// at the same time is described at the top.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes a new memory file of `bytes` bytes, sealed so that its length never changes, and maps
    /// it. The pages are taken from the machine when they are first touched.
    pub(crate) fn create(bytes: usize) -> io::Result<(Memory, OwnedFd)> {
        // SAFETY: the name is a NUL-terminated string.
        let fd = unsafe { libc::memfd_create(c"weft-bulk".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: takes no memory.
        if unsafe { libc::ftruncate64(fd.as_raw_fd(), bytes as libc::off64_t) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: takes no memory.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((Memory::map(&fd, bytes)?, fd))
    }

    /// Maps what a peer has sent, after checking that it is a memory file of exactly `bytes` bytes
    /// that can never become shorter.
    pub(crate) fn adopt(fd: &OwnedFd, bytes: u64) -> io::Result<Memory> {
        let refuse = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if bytes == 0 || bytes > REGION_BYTES_MAX as u64 || !bytes.is_multiple_of(REGION_PAGE_BYTES as u64) {
            return refuse("a shared region has whole pages, at least one and at most 64 MiB");
        }
        // Asked first: only a memory file has seals, and only a sealed one keeps the length that is
        // looked at next. SAFETY: takes no memory.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return refuse("the shared region is no memory file that is sealed against shrinking");
        }
        let file = std::fs::File::from(fd.as_fd().try_clone_to_owned()?);
        if file.metadata()?.len() != bytes {
            return refuse("the shared region is not as long as the peer says");
        }
        Memory::map(fd, bytes as usize)
    }

    fn map(fd: &OwnedFd, bytes: usize) -> io::Result<Memory> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, so no memory that is in use
        // changes.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address zero on its own");
        Ok(Memory { base, bytes })
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// True if the place is inside.
    pub(crate) fn holds(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.bytes)
    }

    /// Where these bytes lie in the region, if they lie in it.
    pub(crate) fn place_of(&self, bytes: &[u8]) -> Option<usize> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.base.as_ptr() as usize)?;
        self.holds(offset, bytes.len()).then_some(offset)
    }

    /// Bytes of the region, to be copied or handed to a system call: the peer may change them
    /// meanwhile. Panics if they are not inside.
    pub(crate) fn part(&self, offset: usize, len: usize) -> &[u8] {
        assert!(self.holds(offset, len), "{offset}+{len} of a region of {} bytes", self.bytes);
        // SAFETY: inside the mapping, which lives as long as `self` and whose file cannot shrink.
        // The peer may change the bytes, as described at the top: they are only copied or passed to
        // the kernel, never used to decide anything.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), len) }
    }

    /// Copies `pieces` one after another to `offset`. The caller has that place for itself. Panics
    /// if they do not fit.
    pub(crate) fn fill(&self, offset: usize, pieces: &[&[u8]]) {
        let mut at = offset;
        for piece in pieces {
            assert!(self.holds(at, piece.len()), "{at}+{} of a region of {} bytes", piece.len(), self.bytes);
            // SAFETY: inside the mapping, and `piece` is other memory: nobody else in this process
            // has a slice of a place that its caller is filling.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), self.base.as_ptr().add(at), piece.len()) };
            at += piece.len();
        }
    }

    /// Reads `len` bytes of a file at `from` into the region at `offset`; how many there were
    /// before the end of the file. Panics if the place is not inside.
    pub(crate) fn read_at(&self, offset: usize, len: usize, file: &std::fs::File, from: u64) -> io::Result<usize> {
        assert!(self.holds(offset, len), "{offset}+{len} of a region of {} bytes", self.bytes);
        let mut done = 0;
        while done < len {
            let position = (from + done as u64) as libc::off64_t;
            // SAFETY: inside the mapping. Only the kernel writes, and it reports an address that it
            // cannot write to as an error.
            let read = || unsafe { libc::pread64(file.as_raw_fd(), self.base.as_ptr().add(offset + done).cast(), len - done, position) };
            match sys::retry(read)? {
                0 => break,
                bytes => done += bytes,
            }
        }
        Ok(done)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and all slices of it borrow from `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
