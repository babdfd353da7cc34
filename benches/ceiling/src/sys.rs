//! What neither the standard library nor `rustix` offers in the plain form that is measured.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Bytes per page; buffers start on a page so that a request of 1 MiB covers 256 pages and not 257.
pub(crate) const PAGE_BYTES: usize = 4096;

#[derive(Clone, Copy)]
#[repr(align(4096))]
struct Page(#[expect(dead_code, reason = "read through the pointer to the pages")] [u8; PAGE_BYTES]);

/// A buffer of whole pages that starts on a page boundary, as O_DIRECT and FUSE direct I/O like it.
pub(crate) struct PageBuf {
    pages: Vec<Page>,
    len_bytes: usize,
}

impl PageBuf {
    pub(crate) fn new(len_bytes: usize, fill: u8) -> Self {
        let pages = vec![Page([fill; PAGE_BYTES]); len_bytes.div_ceil(PAGE_BYTES)];
        Self { pages, len_bytes }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the vector holds at least `len_bytes` initialised bytes (a whole number of pages
        // without padding).
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len_bytes) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the borrow of `self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len_bytes) }
    }
}

/// One `getdents64(2)`; returns how many entries (`.` and `..` included) the kernel put into
/// `buffer`, 0 at the end.
pub(crate) fn getdents(dir: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<u64> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer`.
    let filled = unsafe { libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) };
    if filled < 0 {
        return Err(io::Error::last_os_error());
    }
    // A record is: inode u64, offset u64, record length u16, type u8, name.
    let mut rest = &buffer[..filled as usize];
    let mut entries = 0;
    while let Some(length) = rest.get(16..18) {
        let record_bytes = usize::from(u16::from_ne_bytes([length[0], length[1]]));
        if record_bytes == 0 || record_bytes > rest.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "directory record of impossible length"));
        }
        rest = &rest[record_bytes..];
        entries += 1;
    }
    Ok(entries)
}

/// The processors that a thread may run on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Affinity(CpuSet);

impl Affinity {
    /// That of the calling thread.
    pub(crate) fn current() -> io::Result<Self> {
        Ok(Self(sched_getaffinity(None)?))
    }

    /// So many processors of this set, after the first `skipped` of them; `None` when it has fewer.
    pub(crate) fn some(&self, skipped: usize, count: usize) -> Option<Self> {
        let mut some = CpuSet::new();
        (0..CpuSet::MAX_CPU).filter(|cpu| self.0.is_set(*cpu)).skip(skipped).take(count).for_each(|cpu| some.set(cpu));
        (some.count() as usize == count).then_some(Self(some))
    }

    /// How many processors are in the set.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.count() as usize
    }

    /// Makes it that of the calling thread, and of threads and processes that it starts from now
    /// on.
    pub(crate) fn apply(&self) -> io::Result<()> {
        Ok(sched_setaffinity(None, &self.0)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn page_buffers_start_on_a_page() {
        let mut buffer = PageBuf::new(47008, 7);
        assert_eq!(buffer.bytes().len(), 47008);
        assert_eq!(buffer.bytes().as_ptr() as usize % PAGE_BYTES, 0);
        assert!(buffer.bytes().iter().all(|byte| *byte == 7));
        buffer.bytes_mut()[47007] = 9;
        assert_eq!(buffer.bytes()[47007], 9);
    }

    #[test]
    fn getdents_counts_every_entry_once() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for index in 0..100 {
            std::fs::write(dir.path().join(format!("f{index}")), b"").expect("an empty file");
        }
        let open = std::fs::File::open(dir.path()).expect("the directory exists");
        let mut buffer = vec![0; 1024];
        let mut entries = 0;
        loop {
            match getdents(open.as_fd(), &mut buffer).expect("a readable directory") {
                0 => break,
                some => entries += some,
            }
        }
        assert_eq!(entries, 102);
    }
}
