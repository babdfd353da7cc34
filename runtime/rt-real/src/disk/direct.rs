//! Access past the page cache (`O_DIRECT`): whole sectors, from and to memory that begins at a
//! page.
//!
//! What is not whole sectors goes through the page cache. The kernel keeps both views of a file
//! alike as long as no two accesses to one page are under way at once, so one access at a time goes
//! this way (the cache layer of a data server sees to that).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use bytes::Bytes;
use weft_base::Payload;

/// Offsets and lengths are multiples of this.
const SECTOR_BYTES: u64 = 512;
/// Memory begins at a multiple of this.
const PAGE_BYTES: usize = 4096;

/// Opens an existing file for direct access. `None` where the file system has no such thing.
pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    match OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        opened => opened.map(Some),
    }
}

/// True if the range consists of whole sectors.
pub(super) fn fits(offset: u64, len: u64) -> bool {
    len > 0 && offset.is_multiple_of(SECTOR_BYTES) && len.is_multiple_of(SECTOR_BYTES)
}

/// Reads up to `len` bytes; fewer only at the end of the file.
pub(super) fn read(file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
    let (mut memory, start) = aligned(len);
    let mut done = 0;
    while done < len {
        let read = file.read_at(&mut memory[start + done..start + len], offset + done as u64)?;
        done += read;
        if read == 0 || !fits(offset, done as u64) {
            break;
        }
    }
    Ok(Bytes::from(memory).slice(start..start + done))
}

/// Writes the parts one after another as one access.
pub(super) fn write(file: &File, offset: u64, parts: &[Payload]) -> io::Result<()> {
    let len: u64 = parts.iter().map(Payload::len).sum();
    let (mut memory, start) = aligned(len as usize);
    let mut at = start;
    for part in parts {
        let bytes = part.to_bytes();
        memory[at..at + bytes.len()].copy_from_slice(&bytes);
        at += bytes.len();
    }
    file.write_all_at(&memory[start..at], offset)
}

/// Memory with `len` bytes from an aligned place on, and that place.
fn aligned(len: usize) -> (Vec<u8>, usize) {
    let memory = vec![0; len + PAGE_BYTES];
    let start = memory.as_ptr().align_offset(PAGE_BYTES);
    (memory, start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_directly_is_read_both_ways() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder that can be written");
        let path = directory.path().join("file");
        let plain = File::options().read(true).write(true).create(true).truncate(false).open(&path).expect("a new file");
        let Some(direct) = open(&path).expect("the file is there") else {
            eprintln!("skipped: this file system has no direct access");
            return;
        };
        let parts: Vec<Payload> = vec![vec![1; 700].into(), vec![2; 1348].into()];
        write(&direct, 512, &parts).expect("whole sectors");
        plain.write_all_at(&[3; 100], 2560).expect("through the page cache");
        let got = read(&direct, 0, 4096).expect("whole sectors");
        assert_eq!(got.len(), 2660, "fewer only at the end");
        let mut expected = vec![0; 512];
        expected.extend([1; 700].iter().chain(&[2; 1348]).chain(&[3; 100]));
        assert_eq!(got, expected);
        let mut cached = vec![0; 2660];
        plain.read_exact_at(&mut cached, 0).expect("all of it");
        assert_eq!(cached, expected);
        assert!(fits(512, 1024) && !fits(100, 512) && !fits(512, 100) && !fits(0, 0));
    }
}
