//! Ceilings of the disk and the local file system below a directory.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise};
use serde::Serialize;

use crate::measure::{Latencies, Measured, Reps, TimedRate, plain_rate, timed_rate};
use crate::paths;
use crate::sys::{PAGE_BYTES, PageBuf};

/// Bytes of the preallocated file that appends go round in.
const LOG_BYTES: u64 = 16 << 20;
/// Bytes of the file that streams go round in.
const STREAM_BYTES: u64 = 256 << 20;
/// Bytes of one piece of a stream.
const STREAM_BLOCK_BYTES: usize = 1 << 20;
const GIB: f64 = (1u64 << 30) as f64;

/// How an append becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum SyncMethod {
    /// A write into the page cache, then `fdatasync`.
    Fdatasync,
    /// One write past the page cache that returns when it is durable (`O_DIRECT | O_DSYNC`).
    DirectDsync,
}

/// Durable appends of `block_bytes` to a preallocated file in `dir`, all of whose blocks were
/// written before: the best that a journal can do, because the local file system has no metadata to
/// write.
///
/// # Errors
/// When the directory cannot be written, has no room for 16 MiB, or its file system knows no direct
/// I/O and that is asked for (block sizes are then a multiple of 4096).
pub fn append_sync(dir: &Path, block_bytes: usize, method: SyncMethod, reps: Reps) -> Result<TimedRate> {
    let block = block_bytes as u64;
    ensure!(block > 0 && block <= LOG_BYTES, "cannot append blocks of {block} bytes");
    if method == SyncMethod::DirectDsync {
        ensure!(block_bytes.is_multiple_of(PAGE_BYTES), "direct I/O needs blocks of a multiple of {PAGE_BYTES} bytes");
    }
    let scratch = Scratch::new(dir, LOG_BYTES)?;
    let mut options = OpenOptions::new();
    options.write(true);
    if method == SyncMethod::DirectDsync {
        options.custom_flags(libc::O_DIRECT | libc::O_DSYNC);
    }
    timed_rate(
        reps,
        1,
        "syncs/s",
        |_, _| {
            let file = options.open(&scratch.path).context("cannot open the scratch file this way")?;
            Ok((file, PageBuf::new(block_bytes, 0xa5), Latencies::default()))
        },
        |(file, buffer, latencies), deadline| {
            let mut offset = 0;
            latencies.time_until(deadline, || {
                if offset + block > LOG_BYTES {
                    offset = 0;
                }
                file.write_all_at(buffer.bytes(), offset)?;
                if method == SyncMethod::Fdatasync {
                    file.sync_data()?;
                }
                offset += block;
                Ok(())
            })
        },
        |(_, _, latencies)| latencies,
    )
}

/// What a stream of [`stream`] does with the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Stream {
    /// Writes that end in the page cache: memory, not disk.
    WriteCached,
    /// Writes followed by one `fdatasync` that is part of the time: what the disk takes.
    WriteDurable,
    /// Reads that the page cache serves.
    ReadCached,
    /// Reads of pages that were dropped from the cache before: what the disk gives.
    ReadDisk,
}

/// Streams in blocks of 1 MiB through a file of 256 MiB in `dir`; GiB/s.
///
/// A repetition of [`Stream::WriteDurable`] lasts longer than asked, by its final `fdatasync`; one
/// of [`Stream::ReadDisk`] ends early when the file has been read once.
///
/// # Errors
/// When the directory cannot be written or has no room for the file.
pub fn stream(dir: &Path, kind: Stream, reps: Reps) -> Result<Measured> {
    let scratch = Scratch::new(dir, STREAM_BYTES)?;
    let path = std::slice::from_ref(&scratch.path);
    match kind {
        Stream::WriteCached => paths::write_blocks(path, STREAM_BLOCK_BYTES, STREAM_BYTES, reps),
        Stream::ReadCached => paths::read_blocks(path, STREAM_BLOCK_BYTES, STREAM_BYTES, reps),
        Stream::WriteDurable => pass(&scratch, reps, true),
        Stream::ReadDisk => pass(&scratch, reps, false),
    }
}

/// One pass over the file from its start in each repetition.
fn pass(scratch: &Scratch, reps: Reps, write: bool) -> Result<Measured> {
    plain_rate(
        reps,
        1,
        1.0 / GIB,
        "GiB/s",
        |_, _| {
            let file = OpenOptions::new().read(!write).write(write).open(&scratch.path)?;
            if !write {
                fadvise(&file, 0, None, Advice::DontNeed).context("cannot drop the page cache of a file")?;
            }
            Ok((file, PageBuf::new(STREAM_BLOCK_BYTES, 0xa5)))
        },
        |(file, buffer), deadline| {
            let mut offset = 0;
            while Instant::now() < deadline && offset < STREAM_BYTES {
                if write {
                    file.write_all_at(buffer.bytes(), offset)?;
                } else {
                    file.read_exact_at(buffer.bytes_mut(), offset)?;
                }
                offset += STREAM_BLOCK_BYTES as u64;
            }
            if write {
                file.sync_data()?;
            }
            Ok(offset)
        },
    )
}

/// Creates and closes empty files in new directories below `dir`, one directory per thread; files
/// per second.
///
/// The files are removed afterwards, outside the measured time.
///
/// # Errors
/// When `threads` is 0 or the directory cannot be written.
pub fn create_close(dir: &Path, threads: usize, reps: Reps) -> Result<Measured> {
    let scratch = scratch_dir(dir)?;
    let dirs: Vec<PathBuf> = (0..threads).map(|k| scratch.path().join(format!("d{k}"))).collect();
    for own in &dirs {
        std::fs::create_dir(own)?;
    }
    paths::create_close(&dirs, reps)
}

/// A folder for one measurement, removed when it is dropped.
pub(crate) fn scratch_dir(dir: &Path) -> Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("weft-ceiling-").tempdir_in(dir).with_context(|| format!("cannot write in {}", dir.display()))
}

/// A file whose blocks are all allocated and written; it goes with its directory when dropped.
struct Scratch {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Scratch {
    fn new(dir: &Path, bytes: u64) -> Result<Self> {
        let dir = scratch_dir(dir)?;
        let path = dir.path().join("scratch");
        let mut file = File::create_new(&path)?;
        let block = vec![0x3c; STREAM_BLOCK_BYTES];
        let mut left_bytes = bytes;
        while left_bytes > 0 {
            let piece = left_bytes.min(block.len() as u64);
            file.write_all(&block[..piece as usize]).with_context(|| format!("cannot write a scratch file of {bytes} bytes"))?;
            left_bytes -= piece;
        }
        file.sync_all()?;
        Ok(Self { path, _dir: dir })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SHORT: Reps = Reps::new(Duration::from_millis(10), 3);

    fn here() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    #[test]
    fn appends_are_timed() {
        let dir = here();
        for block_bytes in [4096, 65536] {
            let sync = append_sync(dir.path(), block_bytes, SyncMethod::Fdatasync, SHORT).expect("any file system can sync");
            let (p50, p99) = (sync.p50_us.expect("each was timed"), sync.p99_us.expect("each was timed"));
            assert!(sync.rate.min > 0.0 && p50.min > 0.0 && p50.median <= p99.median, "{sync:?}");
        }
        match append_sync(dir.path(), 4096, SyncMethod::DirectDsync, SHORT) {
            Ok(direct) => assert!(direct.rate.min > 0.0, "{direct:?}"),
            Err(error) => eprintln!("skipped: no direct I/O here: {error:#}"),
        }
        assert!(append_sync(dir.path(), 100, SyncMethod::DirectDsync, SHORT).is_err());
        assert!(append_sync(dir.path(), 0, SyncMethod::Fdatasync, SHORT).is_err());
    }

    #[test]
    fn files_are_created_and_removed_again() {
        let dir = here();
        let speed = create_close(dir.path(), 2, SHORT).expect("files can be created");
        assert!(speed.min > 0.0, "{speed:?}");
        let left = std::fs::read_dir(dir.path()).expect("still there").count();
        assert_eq!(left, 0);
    }

    #[test]
    fn streams_run_and_leave_nothing() {
        let dir = here();
        for kind in [Stream::WriteCached, Stream::WriteDurable, Stream::ReadCached, Stream::ReadDisk] {
            let speed = stream(dir.path(), kind, Reps::new(Duration::from_millis(5), 1)).expect("streams run on any file system");
            assert!(speed.min > 0.0, "{kind:?} {speed:?}");
        }
        let left = std::fs::read_dir(dir.path()).expect("still there").count();
        assert_eq!(left, 0);
    }
}
