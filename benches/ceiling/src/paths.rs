//! Loops of plain system calls on any directory: the null file system, a local one, or a mounted
//! cluster.
//!
//! Names follow the null file system's convention: `n<k>` is new, `f<k>` is there.

use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::Errno;

use crate::measure::{Measured, Reps, plain_rate, until};
use crate::sys::{self, PageBuf};

/// Bytes of the buffer for directory entries; the size that C libraries use.
const DIRECTORY_BUFFER_BYTES: usize = 32 * 1024;
const GIB: f64 = (1u64 << 30) as f64;

/// Creates and closes new empty files; one thread per element of `dirs`, which may name one
/// directory several times. Files per second.
///
/// The files stay: give it a directory that is thrown away.
///
/// # Errors
/// When `dirs` is empty, a directory is not there, or a create fails.
pub fn create_close(dirs: &[PathBuf], reps: Reps) -> Result<Measured> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    walk(dirs, 'n', reps, "files/s", |dir, name| openat(dir, name, flags, Mode::from_raw_mode(0o644)).map(drop))
}

/// `fstat` of open files, one thread per element of `files`; calls per second.
///
/// # Errors
/// When `files` is empty, or one cannot be opened or asked.
pub fn fstat(files: &[PathBuf], reps: Reps) -> Result<Measured> {
    plain_rate(
        reps,
        files.len(),
        1.0,
        "calls/s",
        |_, worker| open_file(&files[worker], OpenOptions::new().read(true)),
        |file, deadline| {
            until(deadline, || {
                rustix::fs::fstat(&*file)?;
                Ok(1)
            })
        },
    )
}

/// Looks up names that are not there, each once; one thread per element of `dirs`; lookups per
/// second.
///
/// This is the dearest part of a lookup and nothing else: there are no attributes to fetch.
///
/// # Errors
/// When `dirs` is empty, or a name is there after all.
pub fn lookup_missing(dirs: &[PathBuf], reps: Reps) -> Result<Measured> {
    walk(dirs, 'n', reps, "lookups/s", |dir, name| match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(Errno::EXIST),
    })
}

/// `stat` by path of files `f<k>` that are there, each once; one thread per element of `dirs`;
/// files per second.
///
/// # Errors
/// When `dirs` is empty, or a file is not there.
pub fn stat(dirs: &[PathBuf], reps: Reps) -> Result<Measured> {
    walk(dirs, 'f', reps, "files/s", |dir, name| statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(drop))
}

/// Removes files `f<k>` that are there, each once; one thread per element of `dirs`; files per
/// second.
///
/// # Errors
/// When `dirs` is empty, or a file is not there.
pub fn unlink(dirs: &[PathBuf], reps: Reps) -> Result<Measured> {
    walk(dirs, 'f', reps, "files/s", |dir, name| unlinkat(dir, name, AtFlags::empty()))
}

/// Reads the whole directory again and again, `threads` threads with a descriptor each; entries per
/// second.
///
/// # Errors
/// When `threads` is 0, or the directory cannot be read or is empty.
pub fn read_dir(dir: &Path, threads: usize, reps: Reps) -> Result<Measured> {
    plain_rate(
        reps,
        threads,
        1.0,
        "entries/s",
        |_, _| {
            let open = open_file(dir, OpenOptions::new().read(true))?;
            Ok((open, vec![0; DIRECTORY_BUFFER_BYTES]))
        },
        |(dir, buffer), deadline| {
            let mut entries = 0;
            while Instant::now() < deadline {
                let filled = sys::getdents(dir.as_fd(), buffer)?;
                if filled == 0 {
                    ensure!(entries > 0, "the directory is empty");
                    dir.seek(SeekFrom::Start(0))?;
                }
                entries += filled;
            }
            Ok(entries)
        },
    )
}

/// Writes blocks of `block_bytes` one after the other over the first `span_bytes` of each file,
/// from the start again at the end; one thread per element of `files`, which must exist; GiB/s in
/// all.
///
/// # Errors
/// When `files` is empty, a block is longer than the span, or a write fails.
pub fn write_blocks(files: &[PathBuf], block_bytes: usize, span_bytes: u64, reps: Reps) -> Result<Measured> {
    let options = OpenOptions::new().write(true).clone();
    blocks(files, &options, block_bytes, span_bytes, reps, |file, buffer, offset| file.write_all_at(buffer.bytes(), offset))
}

/// Reads blocks as [`write_blocks`] writes them; the files must be at least `span_bytes` long;
/// GiB/s in all.
///
/// # Errors
/// When `files` is empty, a block is longer than the span, or a read fails or is short.
pub fn read_blocks(files: &[PathBuf], block_bytes: usize, span_bytes: u64, reps: Reps) -> Result<Measured> {
    let options = OpenOptions::new().read(true).clone();
    blocks(files, &options, block_bytes, span_bytes, reps, |file, buffer, offset| file.read_exact_at(buffer.bytes_mut(), offset))
}

fn blocks(
    files: &[PathBuf],
    options: &OpenOptions,
    block_bytes: usize,
    span_bytes: u64,
    reps: Reps,
    transfer: impl Fn(&File, &mut PageBuf, u64) -> std::io::Result<()> + Sync,
) -> Result<Measured> {
    let block = block_bytes as u64;
    ensure!(block > 0 && block <= span_bytes, "a block of {block} bytes does not fit into {span_bytes}");
    plain_rate(
        reps,
        files.len(),
        1.0 / GIB,
        "GiB/s",
        |_, worker| {
            let file = open_file(&files[worker], options)?;
            Ok((file, PageBuf::new(block_bytes, 0x5a), 0))
        },
        |(file, buffer, offset), deadline| {
            until(deadline, || {
                if *offset + block > span_bytes {
                    *offset = 0;
                }
                transfer(file, buffer, *offset)?;
                *offset += block;
                Ok(block)
            })
        },
    )
}

fn open_file(path: &Path, options: &OpenOptions) -> Result<File> {
    options.open(path).with_context(|| format!("cannot open {}", path.display()))
}

/// Does `operation` on names of this prefix, each once, one thread per element of `dirs`.
fn walk(
    dirs: &[PathBuf],
    prefix: char,
    reps: Reps,
    unit: &'static str,
    operation: impl Fn(&File, &CStr) -> rustix::io::Result<()> + Sync,
) -> Result<Measured> {
    let open = |_, worker: usize| DirWalk::open(&dirs[worker], prefix);
    plain_rate(reps, dirs.len(), 1.0, unit, open, |walk, deadline| walk.repeat(deadline, &operation))
}

/// A directory and a supply of names that this process uses only once.
struct DirWalk {
    dir: File,
    prefix: char,
    name: Vec<u8>,
}

/// Names are never used twice, not even by another thread or repetition: a name that was used may
/// be cached.
static NEXT_NAME: AtomicU64 = AtomicU64::new(0);

impl DirWalk {
    fn open(path: &Path, prefix: char) -> Result<Self> {
        Ok(Self { dir: open_file(path, OpenOptions::new().read(true))?, prefix, name: Vec::new() })
    }

    /// Does `operation` on one new name after the other until the deadline; returns how often.
    fn repeat(&mut self, deadline: Instant, operation: impl Fn(&File, &CStr) -> rustix::io::Result<()>) -> Result<u64> {
        until(deadline, || {
            let number = NEXT_NAME.fetch_add(1, Ordering::Relaxed);
            self.name.clear();
            write!(self.name, "{}{number}\0", self.prefix)?;
            let name = CStr::from_bytes_with_nul(&self.name).expect("a letter and digits hold no NUL but the one at the end");
            if let Err(error) = operation(&self.dir, name) {
                bail!("{}: {error}", CString::from(name).to_string_lossy());
            }
            Ok(1)
        })
    }
}
