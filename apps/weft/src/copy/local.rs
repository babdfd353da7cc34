//! Objects of this machine that are copied from or to.
//!
//! A path that a person named is followed wherever it leads, as `cp` does. What lies below it is
//! reached from the directory that was opened then, name by name, and no symlink is followed on the
//! way: whoever may write to the tree could otherwise lead a copy, with the rights of whoever
//! copies, out of it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps};
use weft_base::{FileKind, WallTime};

use crate::copy::meta::Meta;

/// A place on this machine.
#[derive(Clone)]
pub struct LocalPlace {
    /// As a person would name it.
    path: PathBuf,
    /// The directory that a person named and the names that lead from it to here; `None`: this is
    /// what was named.
    below: Option<(Arc<OwnedFd>, PathBuf)>,
    /// This directory, once something in it was named: all entries share its descriptor, however
    /// many of them wait to be copied.
    opened: Arc<OnceLock<Arc<OwnedFd>>>,
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
/// Opening a pipe, or what was put in the place of a file, must not wait for anybody.
const NO_WAIT: OFlags = OFlags::NONBLOCK;

impl LocalPlace {
    /// What a person named.
    pub fn named(path: PathBuf) -> LocalPlace {
        LocalPlace { path, below: None, opened: Arc::default() }
    }

    /// For messages and names.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An entry of this directory. With `follow` it is as if a person had named it.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn child(&self, name: &[u8], follow: bool) -> Result<LocalPlace> {
        let name = OsStr::from_bytes(name);
        let path = self.path.join(name);
        if follow {
            return Ok(LocalPlace::named(path));
        }
        let below = match &self.below {
            Some((top, names)) => (top.clone(), names.join(name)),
            None => (self.open_top()?, PathBuf::from(name)),
        };
        Ok(LocalPlace { path, below: Some(below), opened: Arc::default() })
    }

    /// The directory that a person named, opened once.
    fn open_top(&self) -> Result<Arc<OwnedFd>> {
        if let Some(top) = self.opened.get() {
            return Ok(top.clone());
        }
        let top = rustix::fs::open(&self.path, OFlags::PATH | DIRECTORY, Mode::empty());
        let top = top.with_context(|| format!("cannot open the directory {}", self.path.display()))?;
        Ok(self.opened.get_or_init(|| Arc::new(top)).clone())
    }

    /// Calls `act` with the directory that holds it and its name there.
    fn at<T>(&self, act: impl FnOnce(&dyn AsFd, &Path) -> io::Result<T>) -> io::Result<T> {
        let Some((top, names)) = &self.below else { return act(&rustix::fs::CWD, &self.path) };
        let mut names = names.iter().peekable();
        let mut dir: Option<OwnedFd> = None;
        while let Some(name) = names.next() {
            let here: &dyn AsFd = dir.as_ref().map_or(&**top as &dyn AsFd, |dir| dir);
            if names.peek().is_none() {
                return act(here, Path::new(name));
            }
            let next = rustix::fs::openat(here, name, OFlags::PATH | OFlags::NOFOLLOW | DIRECTORY, Mode::empty())?;
            dir = Some(next);
        }
        Err(io::ErrorKind::InvalidInput.into())
    }

    /// A symlink that this is, is followed.
    fn is_named(&self) -> bool {
        self.below.is_none()
    }

    fn no_follow(&self) -> OFlags {
        if self.is_named() { NO_WAIT } else { OFlags::NOFOLLOW | NO_WAIT }
    }

    /// What is there.
    ///
    /// # Errors
    /// If nothing is, or it cannot be looked at.
    pub fn meta(&self, follow: bool) -> io::Result<Meta> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let stat = self.at(|dir, name| Ok(rustix::fs::statat(dir, name, flags)?))?;
        let times = (
            WallTime::from_parts(stat.st_atime as _, stat.st_atime_nsec as u32),
            WallTime::from_parts(stat.st_mtime as _, stat.st_mtime_nsec as u32),
        );
        Ok(Meta {
            kind: kind_of(stat.st_mode),
            mode: stat.st_mode & 0o7777,
            bytes: stat.st_size as u64,
            has_holes: (stat.st_blocks as u64).saturating_mul(512) < stat.st_size as u64,
            times: Some(times),
            identity: Some((0, stat.st_dev, stat.st_ino)),
        })
    }

    /// Names of the entries of a directory, in order.
    ///
    /// # Errors
    /// If it is none or may not be read.
    pub fn list(&self) -> io::Result<Vec<Vec<u8>>> {
        let flags = OFlags::RDONLY | DIRECTORY | self.no_follow();
        let dir = self.at(|dir, name| Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?))?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(dir)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Makes a directory, or takes the one that is there.
    ///
    /// # Errors
    /// If something else is there, or it cannot be made.
    pub fn make_dir(&self, mode: u32) -> Result<Meta> {
        match self.at(|dir, name| Ok(rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(mode & 0o777))?)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot make {}", self.path.display()));
            }
            _ => {}
        }
        let meta = self.meta(self.is_named()).with_context(|| self.path.display().to_string())?;
        match meta.kind {
            FileKind::Directory => Ok(meta),
            FileKind::Symlink => {
                bail!("{} is a symlink, which a copy does not follow; remove it, or name what it leads to", self.path.display())
            }
            _ => bail!("{} exists and is no directory", self.path.display()),
        }
    }

    /// Target of a symlink.
    ///
    /// # Errors
    /// If it is none.
    pub fn read_link(&self) -> io::Result<Vec<u8>> {
        self.at(|dir, name| Ok(rustix::fs::readlinkat(dir, name, Vec::new())?)).map(std::ffi::CString::into_bytes)
    }

    /// Makes a symlink where nothing is.
    ///
    /// # Errors
    /// If something is there, or it cannot be made.
    pub fn make_symlink(&self, target: &[u8]) -> io::Result<()> {
        let target = OsString::from_vec(target.to_vec());
        self.at(|dir, name| Ok(rustix::fs::symlinkat(&target, dir, name)?))
    }

    /// Makes a pipe or a socket where nothing is.
    ///
    /// # Errors
    /// If something is there, or it cannot be made.
    pub fn make_node(&self, kind: FileKind, mode: u32) -> io::Result<()> {
        let kind = if kind == FileKind::Fifo { FileType::Fifo } else { FileType::Socket };
        self.at(|dir, name| Ok(rustix::fs::mknodat(dir, name, kind, Mode::from_raw_mode(mode & 0o777), 0)?))
    }

    /// Removes a name that is no directory.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        self.at(|dir, name| Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?))
    }

    /// Sets mode and times of what is there; times of a symlink are its own.
    ///
    /// # Errors
    /// If the owner is somebody else.
    pub fn set_meta(&self, meta: &Meta) -> io::Result<()> {
        if meta.kind == FileKind::Symlink {
            let Some(times) = meta.times else { return Ok(()) };
            return self.at(|dir, name| Ok(rustix::fs::utimensat(dir, name, &timestamps(times), AtFlags::SYMLINK_NOFOLLOW)?));
        }
        let open = |flags| self.at(|dir, name| Ok(rustix::fs::openat(dir, name, flags | self.no_follow(), Mode::empty())?));
        if matches!(meta.kind, FileKind::Fifo | FileKind::Socket) {
            // A socket cannot be opened; its name can, and is no other one's meanwhile.
            let named = open(OFlags::PATH | OFlags::CLOEXEC)?;
            let path = format!("/proc/self/fd/{}", named.as_raw_fd());
            rustix::fs::chmod(&path, Mode::from_raw_mode(meta.mode))?;
            let Some(times) = meta.times else { return Ok(()) };
            return Ok(rustix::fs::utimensat(rustix::fs::CWD, &path, &timestamps(times), AtFlags::empty())?);
        }
        let kind = if meta.kind == FileKind::Directory { DIRECTORY } else { OFlags::CLOEXEC };
        set_meta_of(open(OFlags::RDONLY | kind)?, meta)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// If there is none or it may not be read.
    pub fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | self.no_follow();
        let file = File::from(self.at(|dir, name| Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?))?);
        self.check_regular(file)
    }

    /// Makes a file, or empties the one that is there, and opens it for writing. Says whether it is
    /// new. Below what was named a symlink is replaced.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(&self, mode: u32) -> io::Result<(File, bool)> {
        let mode = mode & 0o777 | 0o200;
        if self.is_named() {
            if fs::metadata(&self.path).is_ok_and(|meta| meta.file_type().is_fifo()) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe; `weft cat` writes to one"));
            }
            let options = || File::options().write(true).mode(mode).custom_flags(NO_WAIT.bits() as i32).to_owned();
            return match options().create_new(true).open(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    options().truncate(true).open(&self.path).map(|file| (file, false))
                }
                made => made.map(|file| (file, true)),
            };
        }
        let open = |flags| {
            let flags = flags | OFlags::WRONLY | OFlags::CLOEXEC | self.no_follow();
            self.at(|dir, name| Ok(rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(mode))?)).map(File::from)
        };
        for _ in 0..2 {
            match open(OFlags::CREATE | OFlags::EXCL) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|file| (file, true)),
            }
            match open(OFlags::empty()) {
                Err(error) if error.raw_os_error() == Some(nix::libc::ELOOP) => self.remove()?,
                opened => {
                    let file = self.check_regular(opened?)?;
                    file.set_len(0)?;
                    return Ok((file, false));
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "somebody else puts symlinks in its place"))
    }

    /// What lies below a named directory may have become something else since it was looked at.
    fn check_regular(&self, file: File) -> io::Result<File> {
        if !self.is_named() && !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        Ok(file)
    }
}

/// Sets mode and times of an open object.
///
/// # Errors
/// If the owner is somebody else.
pub fn set_meta_of(object: impl AsFd, meta: &Meta) -> io::Result<()> {
    rustix::fs::fchmod(&object, Mode::from_raw_mode(meta.mode))?;
    if let Some(times) = meta.times {
        rustix::fs::futimens(&object, &timestamps(times))?;
    }
    Ok(())
}

fn timestamps((atime, mtime): (WallTime, WallTime)) -> Timestamps {
    let spec = |time: WallTime| Timespec { tv_sec: time.parts().0, tv_nsec: time.parts().1.into() };
    Timestamps { last_access: spec(atime), last_modification: spec(mtime) }
}

fn kind_of(mode: u32) -> FileKind {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::from_code(((mode >> 12) & 15) as u8).unwrap_or(FileKind::Fifo),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_what_was_named_no_symlink_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
        for made in [&tree, &tree.join("real"), &outside] {
            fs::create_dir(made).unwrap();
        }
        fs::write(outside.join("f"), "precious").unwrap();
        std::os::unix::fs::symlink(&outside, tree.join("planted")).unwrap();
        std::os::unix::fs::symlink(outside.join("f"), tree.join("link")).unwrap();
        let top = LocalPlace::named(tree.clone());
        let planted = top.child(b"planted", false).unwrap();
        assert!(planted.make_dir(0o755).err().unwrap().to_string().contains("symlink"));
        let inside = planted.child(b"f", false).unwrap();
        assert!(inside.create(0o644).is_err() && inside.open().is_err() && inside.remove().is_err() && inside.meta(false).is_err());
        assert!(planted.list().is_err() && planted.set_meta(&top.meta(true).unwrap()).is_err());
        // A file takes the place of a symlink; what that led to is left alone.
        let link = top.child(b"link", false).unwrap();
        assert!(link.open().is_err());
        assert!(link.create(0o644).unwrap().1);
        assert!(!tree.join("link").is_symlink());
        assert_eq!(fs::read(outside.join("f")).unwrap(), b"precious");
        // The directory that was named is where it was, whatever its name leads to now.
        fs::rename(&tree, dir.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(&outside, &tree).unwrap();
        top.child(b"real", false).unwrap();
        link.child(b"x", false).unwrap();
        assert!(link.create(0o600).is_ok() && !outside.join("link").exists());
        // With -L everything is as if it had been named.
        assert_eq!(LocalPlace::named(outside.clone()).child(b"f", true).unwrap().meta(true).unwrap().bytes, 8);
    }

    #[test]
    fn the_entries_of_a_directory_share_one_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let top = LocalPlace::named(dir.path().into());
        let descriptor = |place: &LocalPlace| place.below.as_ref().map(|(top, _)| Arc::as_ptr(top));
        let (one, other) = (top.child(b"a", false).unwrap(), top.clone().child(b"b", false).unwrap());
        assert_eq!(descriptor(&one), descriptor(&other));
        assert_eq!(descriptor(&one), descriptor(&one.child(b"c", false).unwrap()));
    }

    #[test]
    fn what_is_no_file_any_more_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let pipe = LocalPlace::named(dir.path().into()).child(b"pipe", false).unwrap();
        assert!(pipe.open().is_err() && pipe.create(0o600).is_err());
        let named = LocalPlace::named(dir.path().join("pipe"));
        assert!(named.create(0o600).unwrap_err().to_string().contains("weft cat"));
    }
}
