//! The disk of a server: a directory of real files, or memory.

mod direct;
mod directory;
mod memory;
#[cfg(test)]
mod tests;

pub use directory::DirDisk;
pub use memory::MemDisk;

use weft_base::Payload;
use weft_rt::{Disk, DiskError, FaultPoint, FileId};

/// One of the two disks, chosen when a server starts. Both behave alike, except that memory ends
/// with the process.
#[derive(Clone, Debug)]
pub enum RealDisk {
    /// A directory.
    Directory(DirDisk),
    /// Memory.
    Memory(MemDisk),
}

macro_rules! delegate {
    ($self:ident, $method:ident($($argument:expr),*)) => {
        match $self {
            RealDisk::Directory(disk) => disk.$method($($argument),*).await,
            RealDisk::Memory(disk) => disk.$method($($argument),*).await,
        }
    };
}

impl Disk for RealDisk {
    async fn open(&self, name: &str, create: bool) -> Result<FileId, DiskError> {
        delegate!(self, open(name, create))
    }
    async fn read(&self, file: FileId, offset: u64, len: u64) -> Result<Payload, DiskError> {
        delegate!(self, read(file, offset, len))
    }
    async fn write(&self, file: FileId, offset: u64, data: Payload) -> Result<(), DiskError> {
        delegate!(self, write(file, offset, data))
    }
    async fn write_parts(&self, file: FileId, offset: u64, parts: Vec<Payload>) -> Result<(), DiskError> {
        delegate!(self, write_parts(file, offset, parts))
    }
    async fn sync(&self, file: FileId) -> Result<(), DiskError> {
        delegate!(self, sync(file))
    }
    async fn len(&self, file: FileId) -> Result<u64, DiskError> {
        delegate!(self, len(file))
    }
    async fn set_len(&self, file: FileId, len: u64) -> Result<(), DiskError> {
        delegate!(self, set_len(file, len))
    }
    async fn allocate(&self, file: FileId, offset: u64, len: u64) -> Result<(), DiskError> {
        delegate!(self, allocate(file, offset, len))
    }
    async fn punch(&self, file: FileId, offset: u64, len: u64) -> Result<(), DiskError> {
        delegate!(self, punch(file, offset, len))
    }
    fn close(&self, file: FileId) {
        match self {
            RealDisk::Directory(disk) => disk.close(file),
            RealDisk::Memory(disk) => disk.close(file),
        }
    }
    async fn remove(&self, name: &str) -> Result<(), DiskError> {
        delegate!(self, remove(name))
    }
    async fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        delegate!(self, rename(from, to))
    }
    async fn pass(&self, point: FaultPoint) {
        if let RealDisk::Directory(disk) = self {
            disk.hold_up(point).await;
        }
    }
    async fn list(&self) -> Result<Vec<String>, DiskError> {
        delegate!(self, list())
    }
    async fn backed(&self, file: FileId) -> Result<u64, DiskError> {
        delegate!(self, backed(file))
    }
    async fn space(&self) -> Result<(u64, u64), DiskError> {
        delegate!(self, space())
    }
    fn device(&self) -> u64 {
        match self {
            RealDisk::Directory(disk) => disk.device(),
            RealDisk::Memory(_) => 0,
        }
    }
    fn boot_id(&self) -> u64 {
        match self {
            RealDisk::Directory(disk) => disk.boot_id(),
            RealDisk::Memory(disk) => disk.boot_id(),
        }
    }
}

impl RealDisk {
    /// Calls of the system for this disk that have begun and not ended.
    pub(crate) fn unfinished(&self) -> usize {
        match self {
            RealDisk::Directory(disk) => disk.unfinished(),
            RealDisk::Memory(_) => 0,
        }
    }
}

/// Checks a file name: not empty, no path.
fn check_name(name: &str) -> Result<(), DiskError> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(DiskError::Failed(format!("{name:?} is no file name")));
    }
    Ok(())
}

/// The kernel's name for this start of the machine, as a number that is never zero (FNV-1a, Fowler,
/// Noll and Vo).
fn boot_id() -> u64 {
    let text = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hash = text.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    hash.max(1)
}
