//! Open files.

use std::sync::Arc;

use weft_base::{Attr, Payload, Status, mode_with_umask};
use weft_client::Fallocate;
use weft_posix::{InodeNumber, OpenHow, Stable, WriteHow};
use weft_rt::{Bulk, ThreadRuntime};
use weft_wire::Rights;

use crate::error::{Error, Result};
use crate::filesystem::FileSystem;
use crate::ranges::rounds;

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Every write goes to the end of the file as it is then.
    pub append: bool,
    /// Cut it to nothing.
    pub truncate: bool,
    /// Make it if it is not there, with these permission bits, less the umask.
    pub make: Option<u32>,
    /// It must not be there; with `make` only.
    pub exclusive: bool,
    /// A symlink at the end of the path is not followed.
    pub no_follow: bool,
    /// What is on stable storage when a write returns.
    pub stable: Stable,
}

/// A file that is open. Its end gives it back; the servers hear of it soon.
#[derive(Debug)]
pub struct File<R: ThreadRuntime> {
    fs: Arc<FileSystem<R>>,
    path: Vec<u8>,
    node: InodeNumber,
    number: u64,
    rights: Rights,
    how: WriteHow,
}

impl<R: ThreadRuntime> FileSystem<R> {
    /// Opens the file at a path.
    ///
    /// # Errors
    /// As [`weft_posix::Posix::open_path`]; [`Status::Invalid`] if it is opened for nothing, or cut
    /// without being written.
    pub fn open_file(self: &Arc<Self>, path: &[u8], options: &OpenOptions) -> Result<File<R>> {
        let refuse = |why: &str| Err(Error::new(Status::Invalid, format!("open {}: {why}", String::from_utf8_lossy(path))));
        let rights = match (options.read, options.write) {
            (true, true) => Rights::READ.with(Rights::WRITE),
            (true, false) => Rights::READ,
            (false, true) => Rights::WRITE,
            (false, false) => return refuse("neither for reading nor for writing"),
        };
        if options.truncate && !options.write {
            return refuse("a file that is cut must be open for writing");
        }
        let how = OpenHow { rights, truncate: options.truncate, exclusive: options.exclusive, direct: true, stable: options.stable };
        let make = options.make.map(|mode| mode_with_umask(mode, self.umask));
        let (attr, number) = self.run("open", path, async |posix| posix.open_path(&self.who, path, how, make, !options.no_follow).await)?;
        let how = WriteHow { append: options.append, ..WriteHow::default() };
        Ok(File { fs: self.clone(), path: path.to_vec(), node: InodeNumber::of(attr.handle), number, rights, how })
    }
}

impl<R: ThreadRuntime> File<R> {
    /// The path by which it was opened.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    pub(crate) fn fs(&self) -> &FileSystem<R> {
        &self.fs
    }

    pub(crate) fn node(&self) -> InodeNumber {
        self.node
    }

    /// Its number among the open files of the file system.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Refuses what the file is not open for.
    fn check(&self, what: &str, right: Rights) -> Result<()> {
        if self.rights.contains(right) {
            return Ok(());
        }
        let for_what = if right == Rights::READ { "reading" } else { "writing" };
        Err(Error::not_open_for_it(format!("{what} {}: the file is not open for {for_what}", String::from_utf8_lossy(&self.path))))
    }

    /// Reads into `buffer` from this byte offset; returns how many bytes, fewer only at the end of
    /// the file.
    ///
    /// # Errors
    /// EBADF if it is not open for reading; as [`weft_client::Client::read`].
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.check("read", Rights::READ)?;
        let bytes = buffer.len() as u64;
        let pieces = self.fs.run("read", &self.path, async |posix| posix.read(self.number, offset, bytes).await)?;
        Ok(fill(buffer, &pieces))
    }

    /// Writes all of `data` at this byte offset; at the end of the file if it was opened so.
    ///
    /// # Errors
    /// EBADF if it is not open for writing; as [`weft_client::Client::write`].
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.check("write", Rights::WRITE)?;
        let bulk = Bulk::Slices(vec![data]);
        self.fs.run("write", &self.path, async |posix| posix.write(&self.fs.who, self.number, offset, bulk, self.how).await)
    }

    /// Reads many ranges into their buffers, in whatever order they are: one message to each data
    /// server that has any of them, as long as none overlap. Returns how many bytes of each.
    ///
    /// # Errors
    /// As [`File::read_at`]; as [`weft_client::Client::read_list`].
    pub fn read_list(&self, list: &mut [(u64, &mut [u8])]) -> Result<Vec<usize>> {
        self.check("read", Rights::READ)?;
        let ranges: Vec<(u64, u64)> = list.iter().map(|(offset, buffer)| (*offset, buffer.len() as u64)).collect();
        let mut got = vec![0; list.len()];
        for round in rounds(&ranges) {
            let wanted: Vec<(u64, u64)> = round.iter().map(|position| ranges[*position]).collect();
            let read = self.fs.run("read", &self.path, async |posix| posix.read_list(self.number, &wanted).await)?;
            for (position, pieces) in round.into_iter().zip(read) {
                got[position] = fill(list[position].1, &pieces);
            }
        }
        Ok(got)
    }

    /// Writes many ranges, in whatever order they are: one message to each data server that gets
    /// any of them.
    ///
    /// # Errors
    /// As [`File::write_at`]; [`Status::Invalid`] if ranges overlap, or the file was opened to
    /// append; as [`weft_client::Client::write_list`].
    pub fn write_list(&self, list: &[(u64, &[u8])]) -> Result<()> {
        self.check("write", Rights::WRITE)?;
        let refuse = |why: &str| Err(Error::new(Status::Invalid, format!("write {}: {why}", String::from_utf8_lossy(&self.path))));
        if self.how.append {
            return refuse("a list is not written to a file that was opened to append");
        }
        let ranges: Vec<(u64, u64)> = list.iter().map(|(offset, data)| (*offset, data.len() as u64)).collect();
        let rounds = rounds(&ranges);
        let Some(round) = rounds.first() else { return Ok(()) };
        if rounds.len() > 1 {
            return refuse("ranges overlap");
        }
        let wanted: Vec<(u64, u64)> = round.iter().map(|position| ranges[*position]).collect();
        let bulk = Bulk::Slices(round.iter().map(|position| list[*position].1).collect());
        self.fs.run("write", &self.path, async |posix| posix.write_list(&self.fs.who, self.number, &wanted, bulk).await)
    }

    /// Attributes, exact.
    ///
    /// # Errors
    /// Servers that do not answer.
    pub fn stat(&self) -> Result<Attr> {
        self.fs.run("stat", &self.path, async |posix| posix.getattr_open(self.number).await)
    }

    /// Cuts or extends it to this many bytes.
    ///
    /// # Errors
    /// [`Status::Invalid`] if it is not open for writing; as [`weft_client::Client::setattr`].
    pub fn truncate(&self, bytes: u64) -> Result<()> {
        self.fs.run("truncate", &self.path, async |posix| posix.truncate_open(&self.fs.who, self.number, bytes).await.map(drop))
    }

    /// Reserves space for `bytes` bytes from this byte offset; a file that is shorter becomes so
    /// long. What was never written reads as zeros.
    ///
    /// # Errors
    /// As [`File::write_at`]; as [`weft_client::Client::fallocate`].
    pub fn allocate(&self, offset: u64, bytes: u64) -> Result<()> {
        self.check("allocate", Rights::WRITE)?;
        let how = Fallocate::Reserve { keep_size: false };
        self.fs.run("allocate", &self.path, async |posix| posix.fallocate(&self.fs.who, self.number, offset, bytes, how).await)
    }

    /// Brings what was written to stable storage; with `data_only` only such attributes with it as
    /// are needed to find it.
    ///
    /// # Errors
    /// Broken disks; servers that do not answer.
    pub fn sync(&self, data_only: bool) -> Result<()> {
        self.fs.run("fsync", &self.path, async |posix| posix.fsync(self.number, data_only).await)
    }
}

impl<R: ThreadRuntime> File<R> {
    /// To be called before it is given back: what it has kept of its writes is at servers then.
    ///
    /// # Errors
    /// As [`File::write_at`], of the writes before.
    pub fn finish(&self) -> Result<()> {
        if !self.fs.posix().has_gathered(self.number) {
            return Ok(());
        }
        self.fs.run("close", &self.path, async |posix| posix.before_close(self.number).await)
    }
}

impl<R: ThreadRuntime> Drop for File<R> {
    fn drop(&mut self) {
        // In a child process it is still the parent's.
        if self.fs.is_own() && !self.fs.posix().try_release(self.number) {
            self.fs.drive(self.fs.posix().release(self.number));
        }
    }
}

/// Copies pieces into a buffer that is at least as long; returns their length.
fn fill(buffer: &mut [u8], pieces: &[Payload]) -> usize {
    let mut at = 0;
    for piece in pieces {
        let bytes = piece.to_bytes();
        buffer[at..at + bytes.len()].copy_from_slice(&bytes);
        at += bytes.len();
    }
    at
}
