//! A file that is copied to.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use weft_base::{Handle, Payload};
use weft_client::{OpenFile, SetAttr};
use weft_host::connect::Fs;
use weft_rt::Bulk;

use crate::copy::block::Block;
use crate::copy::local;
use crate::copy::meta::Meta;
use crate::copy::place::{Place, set_remote_meta};
use crate::copy::source::told;

/// A file that is written.
pub enum Target {
    /// On this machine.
    Local(File),
    /// In a file system.
    Remote(Arc<Fs>, Arc<OpenFile>),
    /// In a file system, written and closed already.
    Whole(Arc<Fs>, Handle),
}

impl Target {
    /// Writes a block.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_at(&self, offset: u64, block: &Block<'_>) -> Result<()> {
        let owned: Vec<bytes::Bytes>;
        let slices: Vec<&[u8]> = match block {
            Block::Buffer(bytes) => vec![bytes],
            Block::Pieces(pieces) => {
                owned = pieces.iter().map(Payload::to_bytes).collect();
                owned.iter().map(|bytes| &bytes[..]).collect()
            }
        };
        match self {
            Target::Local(file) => {
                let mut at = offset;
                for slice in slices {
                    file.write_all_at(slice, at)?;
                    at += slice.len() as u64;
                }
                Ok(())
            }
            Target::Remote(fs, file) => told(fs, fs.run(fs.client.write(file, offset, Bulk::Slices(slices)))),
            Target::Whole(..) => bail!("it is written already"),
        }
    }

    /// True if what nobody writes to it reads as zeros: a device has what it had.
    pub fn has_holes(&self) -> bool {
        match self {
            Target::Local(file) => file.metadata().is_ok_and(|meta| meta.is_file()),
            Target::Remote(..) => true,
            Target::Whole(..) => false,
        }
    }

    /// Sets the size: what is behind the last byte that was written becomes a hole.
    ///
    /// # Errors
    /// If it cannot be set.
    pub fn set_size(&self, size: u64) -> Result<()> {
        match self {
            Target::Local(file) => Ok(file.set_len(size)?),
            Target::Remote(fs, file) => {
                let changes = SetAttr { size: Some(size), opened_for_write: true, ..SetAttr::default() };
                told(fs, fs.run(fs.client.setattr(&fs.who, file.handle(), &changes))).map(|_| ())
            }
            Target::Whole(..) => bail!("it is written already"),
        }
    }

    /// Closes.
    ///
    /// # Errors
    /// If what was written cannot be kept, or made known: a network file system may say only now
    /// that its disk is full.
    pub fn close(&self) -> Result<()> {
        match self {
            // Closing a second descriptor of it tells what closing the last one would, which
            // nobody hears.
            Target::Local(file) => Ok(nix::unistd::close(file.try_clone()?).map_err(io::Error::from)?),
            Target::Remote(fs, file) => told(fs, fs.run(fs.client.close(file.clone()))),
            Target::Whole(..) => Ok(()),
        }
    }

    /// Sets mode and times; after closing, which reports a time of its own. A device that was
    /// written to is no copy: it keeps its own.
    ///
    /// # Errors
    /// If the owner is somebody else.
    pub fn set_meta(&self, place: &Place, meta: &Meta) -> Result<()> {
        match self {
            Target::Local(file) if file.metadata().is_ok_and(|meta| !meta.is_file()) => Ok(()),
            Target::Local(file) => {
                local::set_meta_of(file, meta).with_context(|| format!("cannot set mode and times of {}", place.display()))
            }
            Target::Remote(fs, file) => finish_remote(fs, place, file.handle(), meta),
            Target::Whole(fs, handle) => finish_remote(fs, place, *handle, meta),
        }
    }

    /// Closes a file that is given up.
    pub fn abandon(&self) {
        if let Target::Remote(fs, file) = self {
            // The failure that made us give up has been reported.
            let _ = fs.run(fs.client.close(file.clone()));
        }
    }
}

fn finish_remote(fs: &Fs, place: &Place, handle: Handle, meta: &Meta) -> Result<()> {
    if meta.times.is_none() && meta.mode & 0o7000 == 0 {
        return Ok(());
    }
    set_remote_meta(fs, place.display().as_bytes(), handle, meta)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use weft_base::{FileKind, WallTime};

    use super::*;

    #[test]
    fn what_a_device_has_is_not_taken_for_a_hole() {
        let device = File::options().write(true).open("/dev/null").unwrap();
        assert!(!Target::Local(device).has_holes());
        assert!(Target::Local(tempfile::tempfile().unwrap()).has_holes());
    }

    #[test]
    fn a_device_keeps_its_mode_and_times() {
        let device = File::options().write(true).open("/dev/null").unwrap();
        let before = device.metadata().unwrap();
        let times = Some((WallTime(0), WallTime(0)));
        // Its own mode, for the time when this fails.
        let mode = before.permissions().mode() & 0o7777;
        let meta = Meta { kind: FileKind::File, mode, bytes: 0, has_holes: false, times, identity: None };
        let target = Target::Local(device.try_clone().unwrap());
        target.set_meta(&Place::local(std::path::PathBuf::from("/dev/null")), &meta).unwrap();
        assert_eq!(device.metadata().unwrap().modified().unwrap(), before.modified().unwrap());
    }
}
