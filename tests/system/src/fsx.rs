//! A checker in the manner of fsx (Apple, 1991): random operations on one file, compared byte by
//! byte with a model in memory. The same seed gives the same operations, so a failure is one
//! number.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

use crate::{Mapping, Random};

/// Operations that are told when a check fails.
const TOLD: usize = 40;
/// `O_DIRECT`, from the types of the system calls.
const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;

/// What to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which sequence of operations.
    pub seed: u64,
    /// How many.
    pub operations: u64,
    /// The file never grows beyond this many bytes.
    pub file_bytes_max: u64,
    /// Use `mmap` too.
    pub mmap: bool,
    /// Use `O_DIRECT` too, with any offsets and lengths: FUSE allows it, many local file systems do
    /// not.
    pub direct: bool,
    /// Called before every operation with its number: tests make trouble here.
    pub before: fn(u64),
}

impl Settings {
    /// Everything on, files of up to 256 KiB as in fsx.
    pub fn new(seed: u64, operations: u64) -> Settings {
        Settings { seed, operations, file_bytes_max: 256 << 10, mmap: true, direct: true, before: |_| () }
    }
}

/// What was done, to see that nothing was left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Writes, through descriptors.
    pub writes: u64,
    /// Reads, through descriptors.
    pub reads: u64,
    /// Cuts and extensions.
    pub truncations: u64,
    /// Reads and writes through mappings.
    pub mapped: u64,
    /// Closes and opens.
    pub reopens: u64,
    /// Copies within the file by the kernel.
    pub copies: u64,
    /// Ranges reserved, zeroed and given back.
    pub allocations: u64,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Write { offset: u64, len: u64 },
    Append { len: u64 },
    Read { offset: u64, len: u64, cached: bool },
    Truncate { size: u64, by_path: bool },
    MapRead { offset: u64, len: u64 },
    MapWrite { offset: u64, len: u64, sync: bool },
    Copy { from: u64, to: u64, len: u64 },
    Allocate { offset: u64, len: u64, how: Allocation, keep_size: bool },
    Reopen { direct: bool },
    Sync,
    Stat,
}

/// What FALLOCATE does to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allocation {
    Reserve,
    Zero,
    Punch,
}

/// Runs the operations on the file at `paths[0]`, which is made anew; the others are the same file
/// by other ways (mounts), used in turn with a close and an open between them.
///
/// # Errors
/// The first difference or refused operation, with the seed and the operations before it.
pub fn run(paths: &[PathBuf], settings: &Settings) -> Result<Report, String> {
    let mut checker = Checker::new(paths, settings).map_err(|error| format!("fsx cannot begin with {}: {error}", paths[0].display()))?;
    for number in 1..=settings.operations {
        (settings.before)(number);
        checker.step(number).map_err(|error| checker.explain(number, &error))?;
    }
    checker.compare_whole_file().map_err(|error| checker.explain(settings.operations, &error))?;
    Ok(checker.report)
}

struct Checker<'a> {
    settings: &'a Settings,
    paths: &'a [PathBuf],
    path: &'a Path,
    random: Random,
    file: File,
    /// Opened for reading only, which may use the kernel's page cache; kept open while others
    /// write.
    reader: File,
    model: Vec<u8>,
    /// For every byte of the model the operation that wrote it.
    writers: Vec<u64>,
    report: Report,
    log: VecDeque<(u64, Operation)>,
}

impl<'a> Checker<'a> {
    fn new(paths: &'a [PathBuf], settings: &'a Settings) -> io::Result<Checker<'a>> {
        let path = paths[0].as_path();
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        let reader = File::open(path)?;
        let random = Random::new(settings.seed);
        let (model, writers, log) = Default::default();
        Ok(Checker { settings, paths, path, random, file, reader, model, writers, report: Report::default(), log })
    }

    fn step(&mut self, number: u64) -> Result<(), String> {
        if self.paths.len() > 1 {
            self.path = &self.paths[self.random.below(self.paths.len() as u64) as usize];
            self.reopen(false).map_err(|error| format!("open: {error}"))?;
        }
        let operation = self.choose();
        if self.log.len() == TOLD {
            self.log.pop_front();
        }
        self.log.push_back((number, operation));
        self.execute(number, operation)
    }

    fn choose(&mut self) -> Operation {
        let several = self.paths.len() > 1;
        match self.random.below(100) {
            0..26 => {
                let (offset, len) = self.range(self.settings.file_bytes_max);
                Operation::Write { offset, len }
            }
            26..30 => Operation::Append { len: 1 + self.random.below(5000) },
            30..60 => {
                let (offset, len) = self.range(self.settings.file_bytes_max);
                Operation::Read { offset, len, cached: self.random.once_in(2) }
            }
            60..70 => Operation::Truncate { size: self.edge(self.settings.file_bytes_max), by_path: self.random.once_in(4) },
            70..84 if self.settings.mmap && !self.model.is_empty() => {
                let (offset, len) = self.range(self.model.len() as u64);
                let sync = several || self.random.once_in(4);
                if self.random.once_in(2) { Operation::MapRead { offset, len } } else { Operation::MapWrite { offset, len, sync } }
            }
            84..87 if self.model.len() > 1 => {
                let half = self.model.len() as u64 / 2;
                let (from, len) = self.range(half);
                let room = self.model.len() as u64 - half - len;
                Operation::Copy { from, to: half + self.random.below(room + 1), len: len.min(half) }
            }
            87..92 => Operation::Reopen { direct: self.random.once_in(3) && self.settings.direct },
            92..94 => Operation::Sync,
            94..98 => {
                let (offset, len) = self.range(self.settings.file_bytes_max);
                let keep_size = self.random.once_in(2);
                let how = match self.random.below(4) {
                    // Beyond the end nothing can be held.
                    0 if !keep_size || offset + len <= self.model.len() as u64 => Allocation::Reserve,
                    1 => Allocation::Zero,
                    _ => Allocation::Punch,
                };
                Operation::Allocate { offset, len, how, keep_size }
            }
            _ => Operation::Stat,
        }
    }

    /// Mostly anywhere, often at the edges of pages and stripes, where mistakes live.
    fn edge(&mut self, below: u64) -> u64 {
        let any = self.random.below(below);
        match self.random.below(4) {
            0 => (any & !0xfff).saturating_sub(self.random.below(2)),
            1 => ((any & !0xffff) + self.random.below(2)).min(below - 1),
            _ => any,
        }
    }

    /// A piece of at least one byte inside of the first `below` bytes, short or long.
    fn range(&mut self, below: u64) -> (u64, u64) {
        let offset = self.edge(below);
        let longest = if self.random.once_in(3) { 1 << 17 } else { 1 << 13 };
        (offset, 1 + self.random.below(longest.min(below - offset)))
    }

    fn execute(&mut self, number: u64, operation: Operation) -> Result<(), String> {
        let failed = |what: &str, error: io::Error| Err(format!("{what}: {error}"));
        match operation {
            Operation::Write { offset, len } => {
                self.report.writes += 1;
                let bytes = self.random.bytes(len as usize);
                if let Err(error) = self.file.write_all_at(&bytes, offset) {
                    return failed("write", error);
                }
                self.change(number, offset, &bytes);
            }
            Operation::Append { len } => {
                self.report.writes += 1;
                let len = len.min(self.settings.file_bytes_max.saturating_sub(self.model.len() as u64));
                let bytes = self.random.bytes(len as usize);
                let mut file = match OpenOptions::new().append(true).open(self.path) {
                    Ok(file) => file,
                    Err(error) => return failed("open to append", error),
                };
                if let Err(error) = io::Write::write_all(&mut file, &bytes) {
                    return failed("append", error);
                }
                self.change(number, self.model.len() as u64, &bytes);
            }
            Operation::Read { offset, len, cached } => {
                self.report.reads += 1;
                let file = if cached { &self.reader } else { &self.file };
                match read_at(file, offset, len) {
                    Ok(bytes) => self.compare(offset, len, &bytes)?,
                    Err(error) => return failed("read", error),
                }
            }
            Operation::Truncate { size, by_path } => {
                self.report.truncations += 1;
                let cut = match by_path {
                    false => self.file.set_len(size),
                    true => OpenOptions::new().write(true).open(self.path).and_then(|file| file.set_len(size)),
                };
                if let Err(error) = cut {
                    return failed("truncate", error);
                }
                self.model.resize(size as usize, 0);
                self.writers.resize(size as usize, number);
            }
            Operation::MapRead { offset, len } => {
                self.report.mapped += 1;
                match Mapping::shared(&self.file, self.model.len(), false) {
                    Ok(mapping) => self.compare(offset, len, &mapping.read(offset as usize, len as usize))?,
                    Err(error) => return failed("mmap", error),
                }
            }
            Operation::MapWrite { offset, len, sync } => {
                self.report.mapped += 1;
                let bytes = self.random.bytes(len as usize);
                let written = Mapping::shared(&self.file, self.model.len(), true).and_then(|mapping| {
                    mapping.write(offset as usize, &bytes);
                    if sync { mapping.sync() } else { Ok(()) }
                });
                if let Err(error) = written {
                    return failed("mmap to write", error);
                }
                self.change(number, offset, &bytes);
            }
            Operation::Copy { from, to, len } => {
                self.report.copies += 1;
                let (mut at, mut into, mut left) = (from, to, len as usize);
                while left > 0 {
                    match rustix::fs::copy_file_range(&self.file, Some(&mut at), &self.file, Some(&mut into), left) {
                        Ok(0) => return Err("copy_file_range: nothing copied".into()),
                        Ok(copied) => left -= copied,
                        Err(error) => return failed("copy_file_range", error.into()),
                    }
                }
                let bytes = self.model[from as usize..(from + len) as usize].to_vec();
                self.change(number, to, &bytes);
            }
            Operation::Allocate { offset, len, how, keep_size } => {
                self.report.allocations += 1;
                self.allocate(number, offset, len, how, keep_size).or_else(|error| failed("fallocate", error))?;
            }
            Operation::Reopen { direct } => {
                if let Err(error) = self.reopen(direct) {
                    return failed("open", error);
                }
            }
            Operation::Sync => {
                if let Err(error) = self.file.sync_all() {
                    return failed("fsync", error);
                }
            }
            Operation::Stat => {
                for (what, meta) in [("fstat", self.file.metadata()), ("stat", std::fs::metadata(self.path))] {
                    match meta {
                        Ok(meta) if meta.len() == self.model.len() as u64 => {}
                        Ok(meta) => return Err(format!("{what}: size {} instead of {}", meta.len(), self.model.len())),
                        Err(error) => return failed(what, error),
                    }
                }
            }
        }
        Ok(())
    }

    fn allocate(&mut self, number: u64, offset: u64, len: u64, how: Allocation, keep_size: bool) -> io::Result<()> {
        let kept = if keep_size || how == Allocation::Punch { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        let flags = match how {
            Allocation::Reserve => FallocateFlags::empty(),
            Allocation::Zero => FallocateFlags::ZERO_RANGE,
            Allocation::Punch => FallocateFlags::PUNCH_HOLE,
        };
        rustix::fs::fallocate(&self.file, flags | kept, offset, len)?;
        let (size, end) = (self.model.len(), (offset + len) as usize);
        if kept.is_empty() && end > size {
            self.model.resize(end, 0);
            self.writers.resize(end, number);
        }
        let zeroed = (offset as usize).min(size)..end.min(self.model.len());
        if how != Allocation::Reserve && !zeroed.is_empty() {
            self.model[zeroed.clone()].fill(0);
            self.writers[zeroed].fill(number);
        }
        Ok(())
    }

    fn reopen(&mut self, direct: bool) -> io::Result<()> {
        self.report.reopens += 1;
        let flags = if direct { O_DIRECT } else { 0 };
        // The old ones are closed first, as a program would.
        let null = File::open("/dev/null")?;
        self.reader = null.try_clone()?;
        self.file = null;
        self.file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(self.path)?;
        self.reader = OpenOptions::new().read(true).open(self.path)?;
        Ok(())
    }

    fn change(&mut self, number: u64, offset: u64, bytes: &[u8]) {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if end > self.model.len() && !bytes.is_empty() {
            self.model.resize(end, 0);
            self.writers.resize(end, number);
        }
        self.model[start..end].copy_from_slice(bytes);
        self.writers[start..end].fill(number);
    }

    /// `got` must be what a read of `len` bytes at `offset` gives.
    fn compare(&self, offset: u64, len: u64, got: &[u8]) -> Result<(), String> {
        let start = self.model.len().min(offset as usize);
        let end = self.model.len().min((offset + len) as usize);
        let expected = &self.model[start..end];
        if got.len() != expected.len() {
            let size = self.model.len();
            return Err(format!("{} bytes read at {offset} instead of {} (the file has {size})", got.len(), expected.len()));
        }
        let Some(at) = (0..got.len()).find(|at| got[*at] != expected[*at]) else { return Ok(()) };
        let wrong = (at..got.len()).filter(|at| got[*at] != expected[*at]).count();
        let zeros = (at..got.len()).filter(|at| got[*at] != expected[*at] && got[*at] == 0).count();
        Err(format!(
            "{wrong} wrong bytes from {} on, {zeros} of them zeros; the first is {:#04x} instead of {:#04x}, written by operation {}",
            start + at,
            got[at],
            expected[at],
            self.writers[start + at]
        ))
    }

    fn compare_whole_file(&mut self) -> Result<(), String> {
        self.reopen(false).map_err(|error| format!("open: {error}"))?;
        for file in [&self.file, &self.reader] {
            let len = self.settings.file_bytes_max + 4096;
            let bytes = read_at(file, 0, len).map_err(|error| format!("read: {error}"))?;
            self.compare(0, len, &bytes)?;
        }
        Ok(())
    }

    fn explain(&self, number: u64, error: &str) -> String {
        let mut text = format!("fsx, seed {}, operation {number} on {}: {error}\nbefore it:", self.settings.seed, self.path.display());
        for (number, operation) in &self.log {
            text += &format!("\n{number:>7} {operation:?}");
        }
        text
    }
}

/// Reads until `len` bytes are there or the file ends.
fn read_at(file: &File, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    let mut got = 0;
    while got < bytes.len() {
        match file.read_at(&mut bytes[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(got);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_file_system_passes_and_everything_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let local = |seed, operations| Settings { direct: false, ..Settings::new(seed, operations) };
        let report = run(&[dir.path().join("file")], &local(1, 3000)).unwrap_or_else(|error| panic!("{error}"));
        let Report { writes, reads, truncations, mapped, reopens, copies, allocations } = report;
        assert!([writes, reads, truncations, mapped, reopens, copies, allocations].iter().all(|count| *count > 50), "{report:?}");
        let same_file_twice = [dir.path().join("two"), dir.path().join("./two")];
        run(&same_file_twice, &local(2, 1000)).unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn a_changed_byte_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let settings = Settings::new(3, 200);
        let paths = [path.clone()];
        let mut checker = Checker::new(&paths, &settings).unwrap();
        checker.execute(1, Operation::Write { offset: 10, len: 500 }).unwrap();
        File::options().write(true).open(&path).unwrap().write_all_at(&[!checker.model[77]], 77).unwrap();
        let error = checker.execute(2, Operation::Read { offset: 0, len: 600, cached: true }).unwrap_err();
        assert!(error.contains("1 wrong bytes from 77 on") && error.contains("written by operation 1"), "{error}");
        File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
        assert!(checker.execute(3, Operation::Stat).unwrap_err().contains("size 100 instead of 510"));
    }
}
