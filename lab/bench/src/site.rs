//! The place of a benchmark: one directory of its own with a name that nobody else has, gone when
//! the benchmark ends.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use weft_host::connect;
use weft_host::connect::{Common, Fs};
use weft_host::fs_arg::FsPath;
use weft_host::paths::joined;

use crate::{library, path};
use weft_workload::Workload;

/// A directory for one benchmark. Dropping it removes it with everything below.
pub struct Site {
    at: At,
    name: String,
    is_left: bool,
}

enum At {
    Directory(PathBuf),
    Library { fs: Box<Fs>, arg: OsString, parent: Vec<u8> },
}

impl Site {
    /// Makes a directory inside the existing directory `parent`.
    ///
    /// # Errors
    /// Of the file system.
    pub fn in_directory(parent: &Path) -> Result<Site> {
        let name = fresh_name()?;
        let parent = std::path::absolute(parent).with_context(|| format!("cannot tell where {} is", parent.display()))?;
        let path = parent.join(&name);
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Site { at: At::Directory(parent), name, is_left: false })
    }

    /// Makes a directory in a file system, named `FS` or `FS:/PATH`, by the library.
    ///
    /// # Errors
    /// Of the file system.
    pub fn in_file_system(text: &OsStr, common: &Common) -> Result<Site> {
        let at = FsPath::split(text).unwrap_or_else(|| FsPath { fs: text.to_owned(), path: b"/".to_vec() });
        let fs = Fs::open(&at.fs, common)?;
        let name = fresh_name()?;
        let dir = fs.stat(&at.path, true)?.handle;
        fs.run_at(&at.path, fs.client.mkdir(&fs.who, dir, name.as_bytes(), 0o755))?;
        Ok(Site { at: At::Library { fs: Box::new(fs), arg: at.fs, parent: at.path }, name, is_left: false })
    }

    /// The file system, if the library is used.
    pub fn fs(&self) -> Option<&Fs> {
        match &self.at {
            At::Directory(_) => None,
            At::Library { fs, .. } => Some(fs),
        }
    }

    /// Bytes that may still be written there.
    ///
    /// # Errors
    /// Of the file system.
    pub fn free_bytes(&self) -> Result<u64> {
        match &self.at {
            At::Directory(parent) => {
                let room = nix::sys::statvfs::statvfs(parent.as_path()).with_context(|| format!("cannot ask {}", parent.display()))?;
                Ok(room.blocks_available().saturating_mul(room.fragment_size()))
            }
            At::Library { fs, parent, .. } => Ok(fs.run_at(parent, fs.client.statfs())?.free_bytes),
        }
    }

    /// As the person named the file system, if the library is used.
    pub fn fs_arg(&self) -> Option<&OsString> {
        match &self.at {
            At::Directory(_) => None,
            At::Library { arg, .. } => Some(arg),
        }
    }

    /// Path of the directory.
    pub fn root(&self) -> OsString {
        match &self.at {
            At::Directory(parent) => parent.join(&self.name).into_os_string(),
            At::Library { parent, .. } => OsString::from_vec(joined(parent, self.name.as_bytes())),
        }
    }

    /// Makes the directories of the work.
    ///
    /// # Errors
    /// Of the file system.
    pub fn make_dirs(&self, work: &Workload) -> Result<()> {
        match &self.at {
            At::Directory(_) => path::make_dirs(Path::new(&self.root()), work),
            At::Library { fs, .. } => library::make_dirs(fs, self.root().as_bytes(), work),
        }
    }

    /// Removes them again with what is left in them.
    ///
    /// # Errors
    /// Of the file system.
    pub fn remove_dirs(&self, work: &Workload) -> Result<()> {
        match &self.at {
            At::Directory(_) => path::remove_dirs(Path::new(&self.root()), work),
            At::Library { fs, .. } => {
                let root = self.root();
                let dir = fs.stat(root.as_bytes(), false)?.handle;
                let tops = work.dir_names().into_iter().filter(|name| !name.contains('/'));
                tops.into_iter().try_for_each(|name| library::remove_tree(fs, root.as_bytes(), dir, name.as_bytes()))
            }
        }
    }

    /// Leaves it where it is.
    pub fn leave(mut self) {
        self.is_left = true;
    }

    fn remove(&self) -> Result<()> {
        match &self.at {
            At::Directory(_) => Ok(std::fs::remove_dir_all(self.root())?),
            At::Library { fs, parent, .. } => {
                let dir = fs.stat(parent, true)?.handle;
                library::remove_tree(fs, parent, dir, self.name.as_bytes())
            }
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if !self.is_left
            && let Err(error) = self.remove()
        {
            weft_host::output::tell(&format!("{} could not be removed: {error:#}", self.root().display()));
        }
    }
}

fn fresh_name() -> Result<String> {
    Ok(format!("weft-bench-{}-{:08x}", std::process::id(), u32::from_le_bytes(connect::random()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_behind_and_nothing_else_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("theirs"), "").unwrap();
        let site = Site::in_directory(dir.path()).unwrap();
        site.make_dirs(&Workload::empty_files(5)).unwrap();
        let root = PathBuf::from(site.root());
        std::fs::write(root.join("shared/left"), "").unwrap();
        site.remove_dirs(&Workload::empty_files(5)).unwrap();
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
        std::fs::write(root.join("left"), "").unwrap();
        drop(site);
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["theirs"]);
    }

    #[test]
    fn a_missing_parent_is_named() {
        let error = Site::in_directory(Path::new("/no/such/place")).err().expect("there is no such place");
        assert!(format!("{error:#}").contains("/no/such/place/weft-bench-"), "{error:#}");
    }
}
