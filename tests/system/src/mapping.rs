//! Files in memory: the one place of this crate that needs `unsafe`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// A shared mapping of the beginning of a file. Whoever cuts the file below it gets a SIGBUS at the
/// next touch.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
}

impl Mapping {
    /// Maps the first `len` bytes, at least 1.
    ///
    /// # Errors
    /// Of `mmap`.
    pub fn shared(file: &File, len: usize, writable: bool) -> io::Result<Mapping> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).expect("the kernel does not map page 0 unasked");
        Ok(Mapping { start, len, writable })
    }

    /// The bytes from `offset`. Panics outside of the mapping.
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len, "read {offset}+{len} of {} mapped bytes", self.len);
        let mut bytes = vec![0; len];
        // SAFETY: the range is inside of the mapping (checked above), which lives as long as
        // `self`; `bytes` is our own. Other processes may write at the same time; a copy through
        // raw pointers makes no promise that they do not.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(offset), bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Stores bytes at `offset`. Panics outside of the mapping or if it is not writable.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(self.writable && offset + bytes.len() <= self.len, "write {offset}+{} of {} mapped bytes", bytes.len(), self.len);
        // SAFETY: as in `read`; the pages are writable.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(offset), bytes.len()) };
    }

    /// `msync(MS_SYNC)` of everything.
    ///
    /// # Errors
    /// Of the file system.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is the mapping, which lives as long as `self`.
        unsafe { msync(self.start.as_ptr().cast(), self.len, MsyncFlags::SYNC)? };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping; nobody holds references into it. It fails for ranges
        // that are no mapping only.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_mapping_is_the_file() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"0123456789", 0).unwrap();
        let mapping = Mapping::shared(&file, 10, true).unwrap();
        mapping.write(3, b"abc");
        mapping.sync().unwrap();
        assert_eq!(mapping.read(2, 5), b"2abc6");
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 2).unwrap();
        assert_eq!(&bytes, b"2abc");
    }
}
