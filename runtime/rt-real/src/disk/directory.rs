//! Real files in a directory.
//!
//! Reads and writes are made by the calling thread: they meet the page cache. What waits for the
//! device (flushes, durable changes of the directory) is made by helper threads, so that the server
//! goes on.

use std::cell::RefCell;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use weft_base::{FastMap, Payload};
use weft_rt::{Disk, DiskError, FaultPoint, FileId};

use super::{boot_id, check_name, direct};
use crate::log_lines::{Level, write_line};
use crate::offload::Offload;
use crate::region::{self, Memory};
use crate::{fault, pool, sys};

/// Flushes that run at once: of a journal, of a container, and of the directory.
const HELPERS_MAX: usize = 4;
/// The unit of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;

/// What the log says of a file that may not grow, once.
const NO_LARGER_FILE: &str = "a file of the store may not grow further, though the disk may have room: see the limit of this process (`ulimit \
     -f`) and the largest file of the file system below; what needs more is refused as on a full disk";

/// A directory of the local file system as the disk of a server.
#[derive(Clone, Debug)]
pub struct DirDisk(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    directory: Arc<File>,
    files: RefCell<Files>,
    offload: Offload,
    boot_id: u64,
    device: u64,
    /// Name of the file that is read and written past the page cache.
    direct_name: Option<String>,
}

#[derive(Debug, Default)]
struct Files {
    last: u32,
    open: FastMap<u32, Arc<OpenFile>>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    /// The same file past the page cache.
    direct: Option<File>,
    /// The first flush that failed. The kernel reports a lost write once and then forgets it; we do
    /// not.
    lost: Mutex<Option<String>>,
}

impl DirDisk {
    /// Uses an existing directory, and locks it against other servers for as long as this lives.
    ///
    /// # Errors
    /// When it is not there, is no directory, or is in use.
    pub fn open(path: &Path) -> io::Result<DirDisk> {
        DirDisk::open_with(path, None)
    }

    /// The same, but the file of this name is read and written past the page cache, as far as that
    /// is possible; by one access at a time.
    ///
    /// # Errors
    /// As [`DirDisk::open`].
    pub fn open_with(path: &Path, direct_name: Option<&str>) -> io::Result<DirDisk> {
        let directory = File::open(path)?;
        let about = directory.metadata()?;
        if !about.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "not a directory"));
        }
        match directory.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(io::Error::new(io::ErrorKind::WouldBlock, "another server uses this directory")),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(DirDisk(Rc::new(Inner {
            path: path.to_path_buf(),
            directory: Arc::new(directory),
            files: RefCell::default(),
            offload: Offload::new(HELPERS_MAX),
            boot_id: boot_id(),
            // Machines may have devices of the same number.
            device: (boot_id() ^ about.dev()).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            direct_name: direct_name.map(str::to_string),
        })))
    }

    pub(crate) fn unfinished(&self) -> usize {
        self.0.offload.unfinished()
    }

    fn path(&self, name: &str) -> Result<PathBuf, DiskError> {
        check_name(name)?;
        Ok(self.0.path.join(name))
    }

    fn file(&self, file: FileId) -> Result<Arc<OpenFile>, DiskError> {
        self.0.files.borrow().open.get(&file.0).cloned().ok_or_else(|| DiskError::Failed("the file is not open".into()))
    }

    /// The file, if this range of it is accessed past the page cache.
    fn direct(&self, file: FileId, offset: u64, len: u64) -> Result<Option<Arc<OpenFile>>, DiskError> {
        if self.0.direct_name.is_none() || !direct::fits(offset, len) {
            return Ok(None);
        }
        Ok(Some(self.file(file)?).filter(|open| open.direct.is_some()))
    }

    fn with_file<T>(&self, file: FileId, action: impl FnOnce(&File) -> io::Result<T>) -> Result<T, DiskError> {
        let files = self.0.files.borrow();
        let open = files.open.get(&file.0).ok_or_else(|| DiskError::Failed("the file is not open".into()))?;
        action(&open.file).map_err(disk_error)
    }

    /// Reads ranges one after another straight into shared memory, until the end of the file.
    pub(crate) fn read_shared(
        &self,
        file: FileId,
        ranges: &[(u64, u64)],
        memory: &Arc<Memory>,
        place: usize,
    ) -> Result<Payload, DiskError> {
        let mut done = 0;
        for (offset, len) in ranges {
            let read = self.with_file(file, |file| memory.read_at(place + done, *len as usize, file, *offset))?;
            done += read;
            if (read as u64) < *len {
                break;
            }
        }
        Ok(Payload::Real(region::shared_bytes(memory, place, done)))
    }

    /// Waits as long as a laboratory wants.
    pub(crate) async fn hold_up(&self, point: FaultPoint) {
        let ns = fault::delay_ns(point);
        if ns > 0 {
            self.0.offload.run(move || std::thread::sleep(Duration::from_nanos(ns))).await;
        }
    }

    /// Changes the directory, then brings the directory to stable storage.
    async fn change_directory<T: Send + 'static>(&self, change: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, DiskError> {
        let directory = self.0.directory.clone();
        let changed = self.0.offload.run(move || {
            let value = change()?;
            directory.sync_all()?;
            Ok(value)
        });
        changed.await.map_err(disk_error)
    }
}

impl OpenFile {
    fn direct(&self) -> &File {
        self.direct.as_ref().expect("only asked of files that have it")
    }
}

impl Disk for DirDisk {
    async fn open(&self, name: &str, create: bool) -> Result<FileId, DiskError> {
        let path = self.path(name)?;
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if create && error.kind() == io::ErrorKind::NotFound => {
                // What is stored is nobody else's, whoever may enter the folder: a mount point, for
                // example.
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(false).mode(0o600);
                self.change_directory(move || options.open(path)).await?
            }
            Err(error) => return Err(disk_error(error)),
        };
        let is_direct = self.0.direct_name.as_deref() == Some(name);
        let direct = if is_direct { direct::open(&self.path(name)?).map_err(disk_error)? } else { None };
        let mut files = self.0.files.borrow_mut();
        files.last += 1;
        let id = files.last;
        files.open.insert(id, Arc::new(OpenFile { file, direct, lost: Mutex::default() }));
        Ok(FileId(id))
    }

    async fn read(&self, file: FileId, offset: u64, len: u64) -> Result<Payload, DiskError> {
        if let Some(open) = self.direct(file, offset, len)? {
            let read = self.0.offload.run(move || direct::read(open.direct(), offset, len as usize));
            return read.await.map(Payload::Real).map_err(disk_error);
        }
        // The heap of the C library keeps much of what it once had in pieces of this size.
        if pool::is_beyond(len as usize)
            && let Ok((memory, _)) = Memory::create(len as usize)
        {
            return self.read_shared(file, &[(offset, len)], &Arc::new(memory), 0);
        }
        self.with_file(file, |file| {
            let mut buffer = pool::take(len as usize);
            while (buffer.0.len() as u64) < len {
                let done = buffer.0.len();
                if sys::read_at(file, &mut buffer.0, len as usize - done, offset + done as u64)? == 0 {
                    break;
                }
            }
            Ok(Payload::Real(buffer.freeze()))
        })
    }

    async fn write(&self, file: FileId, offset: u64, data: Payload) -> Result<(), DiskError> {
        if let Some(open) = self.direct(file, offset, data.len())? {
            let written = self.0.offload.run(move || direct::write(open.direct(), offset, &[data]));
            return written.await.map_err(disk_error);
        }
        self.with_file(file, |file| match &data {
            Payload::Real(bytes) => sys::write_all_at(file, bytes, offset),
            Payload::Synthetic { .. } => sys::write_all_at(file, &data.to_bytes(), offset),
        })
    }

    async fn write_parts(&self, file: FileId, offset: u64, parts: Vec<Payload>) -> Result<(), DiskError> {
        if let Some(open) = self.direct(file, offset, parts.iter().map(Payload::len).sum())? {
            let written = self.0.offload.run(move || direct::write(open.direct(), offset, &parts));
            return written.await.map_err(disk_error);
        }
        let bytes: Vec<_> = parts.iter().map(Payload::to_bytes).collect();
        let mut slices: Vec<_> = bytes.iter().map(|bytes| IoSlice::new(bytes)).collect();
        self.with_file(file, |file| sys::write_all_vectored_at(file, &mut slices, offset))
    }

    async fn sync(&self, file: FileId) -> Result<(), DiskError> {
        let file = self.file(file)?;
        let flushed = self.0.offload.run(move || {
            // Flushes of one file one after another: the second must not report success while the
            // first finds a lost write.
            let mut lost = file.lost.lock().expect("no code panics while it holds this lock");
            if let Some(text) = &*lost {
                return Err(DiskError::Failed(format!("an earlier flush failed: {text}")));
            }
            file.file.sync_data().map_err(|error| {
                *lost = Some(error.to_string());
                disk_error(error)
            })
        });
        flushed.await
    }

    async fn len(&self, file: FileId) -> Result<u64, DiskError> {
        self.with_file(file, |file| Ok(file.metadata()?.len()))
    }

    async fn set_len(&self, file: FileId, len: u64) -> Result<(), DiskError> {
        self.with_file(file, |file| file.set_len(len))
    }

    async fn allocate(&self, file: FileId, offset: u64, len: u64) -> Result<(), DiskError> {
        self.with_file(file, |file| match sys::reserve(file, offset, len) {
            Err(error) if is_unsupported(&error) => {
                let end = file.metadata()?.len();
                let start = offset.max(end);
                write_zeros(file, start, (offset + len).saturating_sub(start))
            }
            // XFS asks for room also if all of it is reserved.
            Err(error) if error.kind() == io::ErrorKind::StorageFull && offset == 0 && file.metadata()?.blocks() * 512 >= len => Ok(()),
            outcome => outcome,
        })
    }

    async fn punch(&self, file: FileId, offset: u64, len: u64) -> Result<(), DiskError> {
        // A file system that passes discards on to its device takes milliseconds for this.
        let open = self.file(file)?;
        let punched = self.0.offload.run(move || match sys::punch_hole(&open.file, offset, len) {
            Err(error) if is_unsupported(&error) => {
                let end = open.file.metadata()?.len();
                write_zeros(&open.file, offset, end.saturating_sub(offset).min(len))
            }
            outcome => outcome,
        });
        punched.await.map_err(disk_error)
    }

    fn close(&self, file: FileId) {
        self.0.files.borrow_mut().open.remove(&file.0);
    }

    async fn remove(&self, name: &str) -> Result<(), DiskError> {
        let path = self.path(name)?;
        self.change_directory(move || std::fs::remove_file(path)).await
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let (from, to) = (self.path(from)?, self.path(to)?);
        self.change_directory(move || std::fs::rename(from, to)).await
    }

    async fn list(&self) -> Result<Vec<String>, DiskError> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.0.path).map_err(disk_error)? {
            let entry = entry.map_err(disk_error)?;
            if entry.file_type().map_err(disk_error)?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    async fn backed(&self, file: FileId) -> Result<u64, DiskError> {
        self.with_file(file, |file| Ok(file.metadata()?.blocks() * STAT_BLOCK_BYTES))
    }

    async fn space(&self) -> Result<(u64, u64), DiskError> {
        sys::space(&self.0.path).map_err(disk_error)
    }

    fn device(&self) -> u64 {
        self.0.device
    }

    fn boot_id(&self) -> u64 {
        self.0.boot_id
    }
}

fn disk_error(error: io::Error) -> DiskError {
    match error.kind() {
        io::ErrorKind::NotFound => DiskError::NotFound,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskError::NoSpace,
        // The end of the room that there is, though `df` shows more.
        io::ErrorKind::FileTooLarge => {
            static TOLD: Once = Once::new();
            TOLD.call_once(|| write_line(Level::Warn, "disk", NO_LARGER_FILE));
            DiskError::NoSpace
        }
        _ => DiskError::Failed(error.to_string()),
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EOPNOTSUPP) || error.raw_os_error() == Some(libc::ENOSYS)
}

fn write_zeros(file: &File, mut offset: u64, mut len: u64) -> io::Result<()> {
    let zeros = [0; 64 << 10];
    while len > 0 {
        let part = len.min(zeros.len() as u64);
        file.write_all_at(&zeros[..part as usize], offset)?;
        offset += part;
        len -= part;
    }
    Ok(())
}
