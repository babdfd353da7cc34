//! A file that is copied from: what it holds, and where it holds nothing.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use anyhow::Result;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use weft_client::{OpenFile, SeekFor};
use weft_host::connect::Fs;

use crate::copy::block::Block;

/// Data is taken for at least this long: a write for each of many small pieces costs more than the
/// space of the holes between them.
const LOCAL_PIECE_BYTES: u64 = 64 << 10;
/// The same where servers are asked for each piece.
const REMOTE_PIECE_BYTES: u64 = 256 << 10;

/// A file that is read.
pub enum Source {
    /// On this machine.
    Local(File),
    /// In a file system.
    Remote(Arc<Fs>, Arc<OpenFile>),
}

impl Source {
    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// If reading fails.
    pub fn read_at<'a>(&self, offset: u64, buffer: &'a mut [u8]) -> Result<Block<'a>> {
        match self {
            Source::Local(file) => {
                let mut filled = 0;
                while filled < buffer.len() {
                    match file.read_at(&mut buffer[filled..], offset + filled as u64) {
                        Ok(0) => break,
                        Ok(count) => filled += count,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(Block::Buffer(&buffer[..filled]))
            }
            Source::Remote(fs, file) => Ok(Block::Pieces(told(fs, fs.run(fs.client.read(file, offset, buffer.len() as u64)))?)),
        }
    }

    /// The first bytes at or behind `at` that are not a hole; `None`: there are none. Where nobody
    /// can say, everything is data.
    ///
    /// # Errors
    /// If the servers cannot be asked.
    pub fn data_from(&self, at: u64) -> Result<Option<Range<u64>>> {
        match self {
            Source::Local(file) => {
                let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
                    Ok(start) => start,
                    Err(Errno::NXIO) => return Ok(None),
                    Err(_) => return Ok(Some(at..u64::MAX)),
                };
                let stop = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(u64::MAX);
                Ok(Some(start..stop.max(start.saturating_add(LOCAL_PIECE_BYTES))))
            }
            Source::Remote(fs, file) => {
                let Some(start) = told(fs, fs.run(fs.client.seek(file, at, SeekFor::Data)))? else { return Ok(None) };
                let stop = told(fs, fs.run(fs.client.seek(file, start, SeekFor::Hole)))?.unwrap_or(u64::MAX);
                Ok(Some(start..stop.max(start.saturating_add(REMOTE_PIECE_BYTES))))
            }
        }
    }

    /// Size in bytes.
    ///
    /// # Errors
    /// If it cannot be found.
    pub fn size(&self) -> Result<u64> {
        match self {
            Source::Local(file) => Ok(file.metadata()?.len()),
            Source::Remote(fs, file) => Ok(told(fs, fs.run(fs.client.getattr(file.handle())))?.size),
        }
    }

    /// Closes.
    ///
    /// # Errors
    /// Of the server.
    pub fn close(&self) -> Result<()> {
        match self {
            Source::Local(_) => Ok(()),
            Source::Remote(fs, file) => told(fs, fs.run(fs.client.close(file.clone()))),
        }
    }
}

/// An error of an open file, whose path the caller knows.
pub fn told<T>(fs: &Fs, result: weft_client::Result<T>) -> Result<T> {
    result.map_err(|error| anyhow::Error::new(error).context(fs.why(&error)))
}
