//! Files in memory: the disk of a server that keeps nothing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use weft_base::{FastMap, Payload};
use weft_rt::{Disk, DiskError, FileId};

use super::{boot_id, check_name};
use crate::pool;

/// Memory is taken in pieces of this size.
const CHUNK_BYTES: u64 = 64 << 10;
/// No file is longer, so that sums of offsets and lengths never overflow.
const FILE_BYTES_MAX: u64 = 1 << 56;

/// Memory as the disk of a server. Its content ends with the process; a sync does nothing.
#[derive(Clone, Debug)]
pub struct MemDisk(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    state: RefCell<State>,
    used: Rc<Cell<u64>>,
    capacity: u64,
    boot_id: u64,
}

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<String, Rc<RefCell<MemFile>>>,
    last: u32,
    open: FastMap<u32, Rc<RefCell<MemFile>>>,
}

/// A file with holes: only chunks that were written or allocated take memory.
#[derive(Debug)]
struct MemFile {
    chunks: FastMap<u64, Box<[u8]>>,
    len: u64,
    used: Rc<Cell<u64>>,
}

impl MemDisk {
    /// An empty disk that holds `capacity_bytes` at most.
    pub fn new(capacity_bytes: u64) -> MemDisk {
        MemDisk(Rc::new(Inner { state: RefCell::default(), used: Rc::default(), capacity: capacity_bytes, boot_id: boot_id() }))
    }

    fn with_file<T>(&self, file: FileId, action: impl FnOnce(&mut MemFile) -> Result<T, DiskError>) -> Result<T, DiskError> {
        let file = self.0.state.borrow().open.get(&file.0).cloned().ok_or_else(|| DiskError::Failed("the file is not open".into()))?;
        let mut file = file.borrow_mut();
        action(&mut file)
    }

    /// Takes memory for all chunks of a range, or for none if it does not fit.
    fn take_chunks(&self, file: &mut MemFile, offset: u64, len: u64) -> Result<(), DiskError> {
        let end = file_end(offset, len)?;
        let needed = || offset / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES);
        if len > self.0.capacity {
            return Err(DiskError::NoSpace);
        }
        let missing = needed().filter(|index| !file.chunks.contains_key(index)).count() as u64;
        if self.0.used.get() + missing * CHUNK_BYTES > self.0.capacity {
            return Err(DiskError::NoSpace);
        }
        for index in needed() {
            file.chunks.entry(index).or_insert_with(|| vec![0; CHUNK_BYTES as usize].into_boxed_slice());
        }
        self.0.used.set(self.0.used.get() + missing * CHUNK_BYTES);
        Ok(())
    }
}

fn file_end(offset: u64, len: u64) -> Result<u64, DiskError> {
    let end = offset.saturating_add(len);
    if end > FILE_BYTES_MAX { Err(DiskError::Failed("the file would be too large".into())) } else { Ok(end) }
}

impl MemFile {
    /// Calls `action` for every piece of the range that lies in one chunk: chunk number, range in
    /// the chunk.
    fn pieces(offset: u64, len: u64, mut action: impl FnMut(u64, std::ops::Range<usize>)) {
        let mut at = offset;
        while at < offset + len {
            let start = at % CHUNK_BYTES;
            let part = (CHUNK_BYTES - start).min(offset + len - at);
            action(at / CHUNK_BYTES, start as usize..(start + part) as usize);
            at += part;
        }
    }

    fn free(&mut self, index: u64) {
        if self.chunks.remove(&index).is_some() {
            self.used.set(self.used.get() - CHUNK_BYTES);
        }
    }

    fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(FILE_BYTES_MAX);
        if offset >= end {
            return;
        }
        let whole = offset.div_ceil(CHUNK_BYTES)..end / CHUNK_BYTES;
        let freed: Vec<u64> = self.chunks.keys().copied().filter(|index| whole.contains(index)).collect();
        freed.into_iter().for_each(|index| self.free(index));
        // What is left are the ends in at most two chunks.
        for index in [offset / CHUNK_BYTES, end / CHUNK_BYTES] {
            if let Some(chunk) = self.chunks.get_mut(&index) {
                let base = index * CHUNK_BYTES;
                let from = offset.max(base).min(base + CHUNK_BYTES) - base;
                let to = end.max(base).min(base + CHUNK_BYTES) - base;
                chunk[from as usize..to as usize].fill(0);
            }
        }
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        self.used.set(self.used.get() - self.chunks.len() as u64 * CHUNK_BYTES);
    }
}

impl Disk for MemDisk {
    async fn open(&self, name: &str, create: bool) -> Result<FileId, DiskError> {
        check_name(name)?;
        let mut state = self.0.state.borrow_mut();
        let file = match state.names.get(name) {
            Some(file) => file.clone(),
            None if create => {
                let file = Rc::new(RefCell::new(MemFile { chunks: FastMap::default(), len: 0, used: self.0.used.clone() }));
                state.names.insert(name.to_string(), file.clone());
                file
            }
            None => return Err(DiskError::NotFound),
        };
        state.last += 1;
        let id = state.last;
        state.open.insert(id, file);
        Ok(FileId(id))
    }

    async fn read(&self, file: FileId, offset: u64, len: u64) -> Result<Payload, DiskError> {
        self.with_file(file, |file| {
            let len = file.len.saturating_sub(offset).min(len);
            let mut buffer = pool::take(len as usize);
            MemFile::pieces(offset, len, |index, range| match file.chunks.get(&index) {
                Some(chunk) => buffer.0.extend_from_slice(&chunk[range]),
                None => buffer.0.resize(buffer.0.len() + range.len(), 0),
            });
            Ok(Payload::Real(buffer.freeze()))
        })
    }

    async fn write(&self, file: FileId, offset: u64, data: Payload) -> Result<(), DiskError> {
        self.with_file(file, |file| {
            let data = data.to_bytes();
            self.take_chunks(file, offset, data.len() as u64)?;
            let mut rest = &data[..];
            MemFile::pieces(offset, data.len() as u64, |index, range| {
                let (part, behind) = rest.split_at(range.len());
                rest = behind;
                file.chunks.get_mut(&index).expect("take_chunks has made it")[range].copy_from_slice(part);
            });
            if !data.is_empty() {
                file.len = file.len.max(offset + data.len() as u64);
            }
            Ok(())
        })
    }

    async fn sync(&self, file: FileId) -> Result<(), DiskError> {
        self.with_file(file, |_| Ok(()))
    }

    async fn len(&self, file: FileId) -> Result<u64, DiskError> {
        self.with_file(file, |file| Ok(file.len))
    }

    async fn set_len(&self, file: FileId, len: u64) -> Result<(), DiskError> {
        self.with_file(file, |file| {
            file_end(0, len)?;
            if len < file.len {
                file.punch(len, u64::MAX - len);
            }
            file.len = len;
            Ok(())
        })
    }

    async fn backed(&self, file: FileId) -> Result<u64, DiskError> {
        self.with_file(file, |file| Ok(file.chunks.len() as u64 * CHUNK_BYTES))
    }

    async fn allocate(&self, file: FileId, offset: u64, len: u64) -> Result<(), DiskError> {
        self.with_file(file, |file| {
            self.take_chunks(file, offset, len)?;
            file.len = file.len.max(offset + len);
            Ok(())
        })
    }

    async fn punch(&self, file: FileId, offset: u64, len: u64) -> Result<(), DiskError> {
        self.with_file(file, |file| {
            file.punch(offset, len);
            Ok(())
        })
    }

    fn close(&self, file: FileId) {
        self.0.state.borrow_mut().open.remove(&file.0);
    }

    async fn remove(&self, name: &str) -> Result<(), DiskError> {
        check_name(name)?;
        self.0.state.borrow_mut().names.remove(name).map(drop).ok_or(DiskError::NotFound)
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        check_name(from)?;
        check_name(to)?;
        let mut state = self.0.state.borrow_mut();
        let file = state.names.remove(from).ok_or(DiskError::NotFound)?;
        state.names.insert(to.to_string(), file);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<String>, DiskError> {
        Ok(self.0.state.borrow().names.keys().cloned().collect())
    }

    async fn space(&self) -> Result<(u64, u64), DiskError> {
        Ok((self.0.capacity, self.0.capacity - self.0.used.get()))
    }

    fn boot_id(&self) -> u64 {
        self.0.boot_id
    }
}
