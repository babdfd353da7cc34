//! The disk of one node: files by name, open files, space, and injected errors. Operations take
//! effect at once here; when they are over is decided by whoever calls.

use std::collections::BTreeMap;

use weft_base::Payload;
use weft_rt::{DiskError, FileId};

use super::file::{Change, SECTOR_BYTES, SimFile, Survival};
use super::ranges::RangeSet;
use crate::Random;

/// An operation on the disk, with what it needs.
#[derive(Clone, Debug)]
pub(crate) enum DiskOp {
    Open {
        name: String,
        create: bool,
    },
    Read {
        file: FileId,
        offset: u64,
        len: u64,
    },
    Write {
        file: FileId,
        offset: u64,
        data: Payload,
    },
    /// `below`: the changes that had been made when the sync began.
    Sync {
        file: FileId,
        below: u64,
    },
    Len {
        file: FileId,
    },
    SetLen {
        file: FileId,
        len: u64,
    },
    Allocate {
        file: FileId,
        offset: u64,
        len: u64,
    },
    Punch {
        file: FileId,
        offset: u64,
        len: u64,
    },
    Remove {
        name: String,
    },
    Rename {
        from: String,
        to: String,
    },
    List,
    Space,
}

/// What an operation gives.
#[derive(Clone, Debug)]
pub(crate) enum DiskValue {
    Nothing,
    File(FileId),
    Data(Payload),
    Number(u64),
    Names(Vec<String>),
    Space(u64, u64),
}

/// Operations of the disk that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskFaultKind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Syncs. As on Linux, what a failed sync should have made durable is lost at the next power
    /// cut, whatever later syncs say.
    Sync,
}

/// Everything on one disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Volume {
    names: BTreeMap<String, u64>,
    files: BTreeMap<u64, SimFile>,
    last_file: u64,
    open: BTreeMap<FileId, u64>,
    last_open: u32,
    capacity: u64,
    used: u64,
    /// Something else has taken all free space.
    pub(crate) is_full: bool,
    /// How many of the next operations of each kind fail.
    failing: BTreeMap<DiskFaultKind, u32>,
}

impl Volume {
    pub(crate) fn new(capacity: u64) -> Volume {
        Volume { capacity, ..Volume::default() }
    }

    /// The number of the next change of an open file: what a sync that begins now has to cover.
    pub(crate) fn next_change(&self, file: FileId) -> u64 {
        self.file(file).map_or(0, SimFile::next_change)
    }

    /// Bytes that a sync would have to write.
    pub(crate) fn dirty_bytes(&self, file: FileId, below: u64) -> u64 {
        self.file(file).map_or(0, |file| file.dirty_bytes(below))
    }

    /// Where on the disk a sync would have to write: a number that names the file, and ranges of
    /// it.
    pub(crate) fn dirty_runs(&self, file: FileId, below: u64) -> (u64, RangeSet) {
        let runs = self.file(file).map_or_else(|_| RangeSet::default(), |file| file.dirty_runs(below));
        (self.number(file), runs)
    }

    /// A number that names an open file.
    pub(crate) fn number(&self, file: FileId) -> u64 {
        self.open.get(&file).copied().unwrap_or_default()
    }

    /// Does it.
    pub(crate) fn execute(&mut self, op: DiskOp, random: &mut Random) -> Result<DiskValue, DiskError> {
        match op {
            DiskOp::Open { name, create } => self.open(name, create).map(DiskValue::File),
            DiskOp::Read { file, offset, len } => {
                self.injected(DiskFaultKind::Read)?;
                Ok(DiskValue::Data(self.file(file)?.read(offset, len)))
            }
            DiskOp::Write { file, offset, data } => self.write(file, offset, data, random),
            DiskOp::Sync { file, below } => self.sync(file, below),
            DiskOp::Len { file } => Ok(DiskValue::Number(self.file(file)?.len())),
            DiskOp::SetLen { file, len } => {
                let file = self.file_mut(file)?;
                file.change(Change::SetLen(len));
                let freed = file.release(len, u64::MAX);
                self.used -= freed;
                Ok(DiskValue::Nothing)
            }
            DiskOp::Allocate { file, offset, len } => {
                let needed = self.file(file)?.space_needed(offset, len);
                self.check_space(needed)?;
                let file = self.file_mut(file)?;
                let added = file.reserve(offset, len);
                file.change(Change::Extend(offset + len));
                self.used += added;
                Ok(DiskValue::Nothing)
            }
            DiskOp::Punch { file, offset, len } => {
                let file = self.file_mut(file)?;
                file.change(Change::Punch { start: offset, end: offset + len });
                let freed = file.release(offset, offset + len);
                self.used -= freed;
                Ok(DiskValue::Nothing)
            }
            DiskOp::Remove { name } => self.remove(&name).map(|()| DiskValue::Nothing),
            DiskOp::Rename { from, to } => {
                let file = self.names.remove(&from).ok_or(DiskError::NotFound)?;
                if let Some(replaced) = self.names.insert(to, file)
                    && replaced != file
                {
                    self.unname(replaced);
                }
                Ok(DiskValue::Nothing)
            }
            DiskOp::List => Ok(DiskValue::Names(self.names.keys().cloned().collect())),
            DiskOp::Space => Ok(DiskValue::Space(self.capacity, self.free())),
        }
    }

    /// The process died while it did this: nothing, all, or a part of it has happened.
    pub(crate) fn execute_torn(&mut self, op: DiskOp, random: &mut Random) {
        match op {
            DiskOp::Write { file, offset, data } => {
                let sectors = data.len().div_ceil(SECTOR_BYTES);
                let whole = random.between(0, sectors) * SECTOR_BYTES;
                let end = if whole == 0 { offset } else { (offset / SECTOR_BYTES * SECTOR_BYTES).saturating_add(whole) };
                let kept = end.saturating_sub(offset).min(data.len());
                let _ = self.write(file, offset, data.slice(0, kept), random);
            }
            DiskOp::Read { .. } | DiskOp::Sync { .. } | DiskOp::Len { .. } | DiskOp::List | DiskOp::Space => {}
            _ if random.coin() => {
                let _ = self.execute(op, random);
            }
            _ => {}
        }
    }

    /// The process is dead: its open files are closed.
    pub(crate) fn close_all(&mut self) {
        for (_, file) in std::mem::take(&mut self.open) {
            self.closed(file);
        }
    }

    pub(crate) fn close(&mut self, file: FileId) {
        if let Some(file) = self.open.remove(&file) {
            self.closed(file);
        }
    }

    /// The power is cut; all files have been closed.
    pub(crate) fn power_cut(&mut self, random: &mut Random) {
        let survival = Survival::draw(random);
        for file in self.files.values_mut() {
            file.power_cut(survival, random);
        }
        self.used = self.files.values().map(SimFile::space).sum();
    }

    /// Makes the next `count` operations of a kind fail.
    pub(crate) fn fail_next(&mut self, kind: DiskFaultKind, count: u32) {
        self.failing.insert(kind, count);
    }

    /// No operation is made to fail any more.
    pub(crate) fn fail_none(&mut self) {
        self.failing.clear();
    }

    pub(crate) fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
    }

    /// All files by name with their lengths in bytes.
    pub(crate) fn list(&self) -> Vec<(String, u64)> {
        self.names.iter().map(|(name, file)| (name.clone(), self.files[file].len())).collect()
    }

    /// The content of a file by name.
    pub(crate) fn content(&self, name: &str) -> Option<Payload> {
        let file = &self.files[self.names.get(name)?];
        Some(file.read(0, file.len()))
    }

    /// Takes the name of a file away.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), DiskError> {
        let file = self.names.remove(name).ok_or(DiskError::NotFound)?;
        self.unname(file);
        Ok(())
    }

    /// Changes bytes of a file by name behind the back of its owner. False if there is no such
    /// file.
    pub(crate) fn corrupt(&mut self, name: &str, offset: u64, data: Payload) -> bool {
        let Some(file) = self.names.get(name).and_then(|file| self.files.get_mut(file)) else { return false };
        let len = data.len().min(file.len().saturating_sub(offset));
        file.corrupt(offset, data.slice(0, len));
        true
    }

    fn open(&mut self, name: String, create: bool) -> Result<FileId, DiskError> {
        let file = match self.names.get(&name) {
            Some(file) => *file,
            None if !create => return Err(DiskError::NotFound),
            None => {
                self.check_space(1)?;
                self.last_file += 1;
                self.files.insert(self.last_file, SimFile::named());
                self.names.insert(name, self.last_file);
                self.last_file
            }
        };
        self.files.get_mut(&file).expect("every name leads to a file").opens += 1;
        self.last_open += 1;
        self.open.insert(FileId(self.last_open), file);
        Ok(FileId(self.last_open))
    }

    fn write(&mut self, id: FileId, offset: u64, data: Payload, random: &mut Random) -> Result<DiskValue, DiskError> {
        self.injected(DiskFaultKind::Write)?;
        let needed = self.file(id)?.space_needed(offset, data.len());
        let (data, result) = match self.check_space(needed) {
            Ok(()) => (data, Ok(DiskValue::Nothing)),
            // As a real disk does, it may take a part before it refuses the rest.
            Err(error) => {
                let part = random.between(0, data.len());
                let fits = self.check_space(self.file(id)?.space_needed(offset, part)).is_ok();
                (if fits { data.slice(0, part) } else { Payload::EMPTY }, Err(error))
            }
        };
        if !data.is_empty() {
            let file = self.file_mut(id)?;
            let added = file.reserve(offset, data.len());
            file.change(Change::Write { offset, data });
            self.used += added;
        }
        result
    }

    fn sync(&mut self, id: FileId, below: u64) -> Result<DiskValue, DiskError> {
        let result = self.injected(DiskFaultKind::Sync);
        let file = self.file_mut(id)?;
        match result {
            Ok(()) => file.make_durable(below),
            Err(_) => file.lose(below),
        }
        result.map(|()| DiskValue::Nothing)
    }

    fn injected(&mut self, kind: DiskFaultKind) -> Result<(), DiskError> {
        match self.failing.get_mut(&kind) {
            Some(count) if *count > 0 => {
                *count -= 1;
                Err(DiskError::Failed("Input/output error (injected)".to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Bytes that an open file takes.
    pub(crate) fn backed(&self, file: FileId) -> Result<u64, DiskError> {
        self.file(file).map(SimFile::space)
    }

    fn free(&self) -> u64 {
        if self.is_full { 0 } else { self.capacity.saturating_sub(self.used) }
    }

    fn check_space(&self, needed: u64) -> Result<(), DiskError> {
        if needed <= self.free() { Ok(()) } else { Err(DiskError::NoSpace) }
    }

    fn file(&self, id: FileId) -> Result<&SimFile, DiskError> {
        self.open.get(&id).and_then(|file| self.files.get(file)).ok_or_else(bad_file)
    }

    fn file_mut(&mut self, id: FileId) -> Result<&mut SimFile, DiskError> {
        self.open.get(&id).and_then(|file| self.files.get_mut(file)).ok_or_else(bad_file)
    }

    fn unname(&mut self, file: u64) {
        self.files.get_mut(&file).expect("every name leads to a file").is_named = false;
        self.drop_if_unused(file);
    }

    fn closed(&mut self, file: u64) {
        self.files.get_mut(&file).expect("a file that is open exists").opens -= 1;
        self.drop_if_unused(file);
    }

    fn drop_if_unused(&mut self, file: u64) {
        if self.files.get(&file).is_some_and(|file| file.opens == 0 && !file.is_named) {
            self.used -= self.files.remove(&file).map_or(0, |file| file.space());
        }
    }
}

fn bad_file() -> DiskError {
    DiskError::Failed("Bad file descriptor".to_string())
}
