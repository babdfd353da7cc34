//! An object that is copied from or to: a local path, or a name in a directory of a file system.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use weft_base::{Attr, FileKind, Handle, Payload, Status, WallTime};
use weft_client::{CreateOptions, SetAttr};
use weft_host::connect::Fs;
use weft_host::paths::joined;
use weft_wire::Rights;
use weft_wire::ops::SetTime;

use crate::copy::local::LocalPlace;
use crate::copy::meta::Meta;
use crate::copy::source::Source;
use crate::copy::target::Target;

/// Where something is or shall be.
#[derive(Clone)]
pub enum Place {
    /// On this machine.
    Local(LocalPlace),
    /// In a file system: a name in a directory; the empty name is the directory itself.
    Remote {
        /// The file system.
        fs: Arc<Fs>,
        /// The directory.
        dir: Handle,
        /// The name in it.
        name: Vec<u8>,
        /// The path, for messages.
        path: Vec<u8>,
        /// A person named it, so that a symlink stands for what it leads to.
        named: bool,
    },
}

impl Place {
    /// The object at a path of this machine.
    pub fn local(path: impl Into<PathBuf>) -> Place {
        Place::Local(LocalPlace::named(path.into()))
    }

    /// The object at a path of a file system.
    ///
    /// # Errors
    /// If the directory of its last name does not exist.
    pub fn remote(fs: Arc<Fs>, path: &[u8]) -> Result<Place> {
        let (dir, name) = if path.iter().all(|byte| *byte == b'/') {
            (fs.client.root(), Vec::new())
        } else {
            fs.parent(path).map(|(dir, name)| (dir, name.to_vec()))?
        };
        Ok(Place::Remote { fs, dir, name, path: path.to_vec(), named: true })
    }

    /// For messages.
    pub fn display(&self) -> String {
        match self {
            Place::Local(place) => place.path().display().to_string(),
            Place::Remote { fs, path, .. } => fs.shown(path),
        }
    }

    /// The last name of the path; empty for a root.
    pub fn name(&self) -> Vec<u8> {
        match self {
            Place::Local(place) => place.path().file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default(),
            Place::Remote { name, .. } => name.clone(),
        }
    }

    /// An entry of the directory that this is; `meta` is the directory's. With `follow` a symlink
    /// there stands for what it leads to, as if a person had named it.
    ///
    /// # Errors
    /// If the directory cannot be opened.
    pub fn child(&self, meta: &Meta, child: &[u8], follow: bool) -> Result<Place> {
        match self {
            Place::Local(place) => Ok(Place::Local(place.child(child, follow)?)),
            Place::Remote { fs, path, .. } => {
                let handle = meta.identity.map_or(fs.client.root(), |(_, _, handle)| Handle(handle));
                let path = joined(path, child);
                Ok(Place::Remote { fs: fs.clone(), dir: handle, name: child.to_vec(), path, named: follow })
            }
        }
    }

    /// A symlink there stands for what it leads to.
    fn follows(&self) -> bool {
        matches!(self, Place::Remote { named: true, .. })
    }

    /// True if both are in one file system, or both on this machine.
    pub fn same_system(&self, other: &Place) -> bool {
        match (self, other) {
            (Place::Local(_), Place::Local(_)) => true,
            (Place::Remote { fs: a, .. }, Place::Remote { fs: b, .. }) => a.id() == b.id(),
            _ => false,
        }
    }

    /// What is there.
    ///
    /// # Errors
    /// If nothing is, or it cannot be looked at.
    pub fn meta(&self, follow: bool) -> Result<Meta> {
        match self {
            Place::Local(place) => place.meta(follow).with_context(|| self.display()),
            Place::Remote { fs, dir, name, path, .. } => {
                let attr = if name.is_empty() {
                    fs.run_at(path, fs.client.getattr(*dir))?
                } else {
                    fs.run_at(path, fs.client.lookup(&fs.who, *dir, name))?
                };
                let attr = if follow && attr.kind == FileKind::Symlink { fs.stat(path, true)? } else { attr };
                Ok(remote_meta(fs, &attr))
            }
        }
    }

    /// True for a name in a directory of a file system, as a listing gave it: many of them are
    /// read in few messages.
    pub fn reads_together(&self) -> bool {
        matches!(self, Place::Remote { name, named: false, .. } if !name.is_empty())
    }

    /// Reads whole files of one file system ([`Place::reads_together`]); one result for each. Of
    /// others there is none.
    pub fn read_together(places: &[&Place]) -> Vec<Option<weft_client::Result<Payload>>> {
        let first = places.iter().find_map(|place| if let Place::Remote { fs, .. } = place { Some(fs) } else { None });
        let Some(fs) = first else { return places.iter().map(|_| None).collect() };
        let named = |place: &&Place| match place {
            Place::Remote { fs: other, dir, name, .. } if other.id() == fs.id() => Some((*dir, name.clone().into())),
            _ => None,
        };
        let named: Vec<_> = places.iter().map(named).collect();
        let files: Vec<_> = named.iter().flatten().cloned().collect();
        let mut results = fs.run(fs.client.read_many(&fs.who, &files)).into_iter();
        named.iter().map(|named| named.as_ref().and_then(|_| results.next()).map(|read| read.map(|file| file.data))).collect()
    }

    /// Names of the entries of a directory, in order, with what a file system told of them beside.
    ///
    /// # Errors
    /// If it is none or may not be read.
    pub fn list(&self) -> Result<Vec<(Vec<u8>, Option<Meta>)>> {
        match self {
            Place::Local(place) => {
                let names = place.list().with_context(|| format!("cannot list {}", self.display()))?;
                Ok(names.into_iter().map(|name| (name, None)).collect())
            }
            Place::Remote { fs, path, .. } => {
                let handle = self.meta(self.follows())?.identity.map_or(fs.client.root(), |(_, _, handle)| Handle(handle));
                let listed = |item: weft_client::DirItem| (item.name.to_vec(), item.attr.map(|attr| remote_meta(fs, &attr)));
                Ok(fs.list(path, handle, true)?.into_iter().map(listed).collect())
            }
        }
    }

    /// Makes a directory, or takes the one that is there.
    ///
    /// # Errors
    /// If something else is there, or it cannot be made.
    pub fn make_dir(&self, mode: u32) -> Result<Meta> {
        match self {
            Place::Local(place) => place.make_dir(mode),
            Place::Remote { name, .. } if name.is_empty() => self.directory_there(),
            Place::Remote { fs, dir, name, path, .. } => match fs.run(fs.client.mkdir(&fs.who, *dir, name, mode & 0o1777)) {
                Ok(attr) => Ok(remote_meta(fs, &attr)),
                Err(error) if error.status == Status::Exists => self.directory_there(),
                Err(error) => Err(fs.explain(path, error)),
            },
        }
    }

    fn directory_there(&self) -> Result<Meta> {
        let meta = self.meta(self.follows())?;
        match meta.kind {
            FileKind::Directory => Ok(meta),
            FileKind::Symlink => {
                bail!("{} is a symlink, which a copy does not follow; remove it, or name what it leads to", self.display())
            }
            _ => bail!("{} exists and is no directory", self.display()),
        }
    }

    /// Target of a symlink.
    ///
    /// # Errors
    /// If it is none.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        match self {
            Place::Local(place) => place.read_link().with_context(|| self.display()),
            Place::Remote { fs, dir, name, path, .. } => {
                let (handle, _) = fs.run_at(path, fs.client.lookup_handle(&fs.who, *dir, name))?;
                Ok(fs.run_at(path, fs.client.readlink(handle))?.to_vec())
            }
        }
    }

    /// Makes a symlink; one that is there, or a file, is replaced.
    ///
    /// # Errors
    /// If a directory is there, or it cannot be made.
    pub fn make_symlink(&self, target: &[u8]) -> Result<()> {
        self.make(
            |place| place.make_symlink(target).with_context(|| format!("cannot make the symlink {}", self.display())),
            |fs, dir, name| fs.run(fs.client.symlink(&fs.who, dir, name, target)),
        )
    }

    /// Makes a pipe or a socket, as [`Place::make_symlink`].
    ///
    /// # Errors
    /// The same.
    pub fn make_node(&self, kind: FileKind, mode: u32) -> Result<()> {
        self.make(
            |place| place.make_node(kind, mode).with_context(|| format!("cannot make {}", self.display())),
            |fs, dir, name| fs.run(fs.client.mknod(&fs.who, dir, name, kind, mode & 0o777, 0)),
        )
    }

    fn make(
        &self,
        here: impl Fn(&LocalPlace) -> Result<()>,
        there: impl Fn(&Fs, Handle, &[u8]) -> weft_client::Result<Attr>,
    ) -> Result<()> {
        let make = || match self {
            Place::Local(place) => here(place),
            Place::Remote { fs, dir, name, path, .. } => there(fs, *dir, name).map(drop).map_err(|error| fs.explain(path, error)),
        };
        match make() {
            Err(error) if is_taken(&error) => self.remove().and_then(|()| make()),
            made => made,
        }
    }

    /// Removes a name that is no directory.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self) -> Result<()> {
        match self {
            Place::Local(place) => place.remove().with_context(|| format!("cannot remove {}", self.display())),
            Place::Remote { fs, dir, name, path, .. } => fs.run_at(path, fs.client.unlink(&fs.who, *dir, name)),
        }
    }

    /// Sets mode and times of what is there; times of a symlink are its own.
    ///
    /// # Errors
    /// If the owner is somebody else.
    pub fn set_meta(&self, meta: &Meta) -> Result<()> {
        match self {
            Place::Local(place) => place.set_meta(meta).with_context(|| format!("cannot set mode and times of {}", self.display())),
            Place::Remote { fs, dir, name, path, .. } => {
                let handle = if name.is_empty() { *dir } else { fs.run_at(path, fs.client.lookup_handle(&fs.who, *dir, name))?.0 };
                set_remote_meta(fs, path, handle, meta)
            }
        }
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// If there is none or it may not be read.
    pub fn open(&self) -> Result<Source> {
        match self {
            Place::Local(place) => Ok(Source::Local(place.open().with_context(|| format!("cannot read {}", self.display()))?)),
            Place::Remote { fs, path, .. } => {
                let handle = self.meta(self.follows())?.identity.map_or(fs.client.root(), |(_, _, handle)| Handle(handle));
                let (_, file) = fs.run_at(path, fs.client.open(&fs.who, handle, Rights::READ, false))?;
                Ok(Source::Remote(fs.clone(), file))
            }
        }
    }

    /// Makes a file, with the layout of `file` if it is in a file system, or empties the one that
    /// is there, and opens it for writing. Says whether it is new.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(&self, mode: u32, file: &CreateOptions) -> Result<(Target, bool)> {
        match self {
            Place::Local(place) => {
                let (file, new) = place.create(mode).with_context(|| format!("cannot write {}", self.display()))?;
                Ok((Target::Local(file), new))
            }
            Place::Remote { fs, dir, name, path, .. } => {
                let options = CreateOptions { mode: mode & 0o777, rights: Rights::WRITE, truncate: true, ..file.clone() };
                let (_, file, new) = fs.run_at(path, fs.client.create(&fs.who, *dir, name, &options))?;
                Ok((Target::Remote(fs.clone(), file), new))
            }
        }
    }

    /// [`Place::create`] for a file whose content is known: where a server takes that in at once,
    /// nothing is left to be written.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create_with(&self, mode: u32, file: &CreateOptions, content: &Bytes) -> Result<(Target, bool)> {
        let Place::Remote { fs, dir, name, path, .. } = self else { return self.create(mode, file) };
        let options = CreateOptions { mode: mode & 0o777, ..file.clone() };
        let (attr, file, new) = fs.run_at(path, fs.client.create_with(&fs.who, *dir, name, &options, content))?;
        let target = match file {
            Some(file) => Target::Remote(fs.clone(), file),
            None => Target::Whole(fs.clone(), attr.handle),
        };
        Ok((target, new))
    }
}

fn remote_meta(fs: &Fs, attr: &Attr) -> Meta {
    let identity = Some((fs.id().0, 0, attr.handle.0));
    let (times, has_holes) = (Some((attr.atime, attr.mtime)), attr.hole_bytes > 0);
    Meta { kind: attr.kind, mode: attr.permissions(), bytes: attr.size, has_holes, times, identity }
}

/// True if something is there already.
fn is_taken(error: &anyhow::Error) -> bool {
    let here = |cause: &io::Error| cause.kind() == io::ErrorKind::AlreadyExists;
    let there = |cause: &weft_client::Error| cause.status == Status::Exists;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(here) || cause.downcast_ref().is_some_and(there))
}

pub(super) fn set_remote_meta(fs: &Fs, path: &[u8], handle: Handle, meta: &Meta) -> Result<()> {
    let time = |time: WallTime| Some(SetTime { at: Some(time) });
    let changes = SetAttr {
        mode: (meta.kind != FileKind::Symlink).then_some(meta.mode),
        atime: meta.times.and_then(|(atime, _)| time(atime)),
        mtime: meta.times.and_then(|(_, mtime)| time(mtime)),
        ..SetAttr::default()
    };
    fs.run_at(path, fs.client.setattr(&fs.who, handle, &changes)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn local_objects_keep_mode_and_times() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (Place::local(dir.path().join("a")), Place::local(dir.path().join("b")));
        fs::write(dir.path().join("a"), "hello").unwrap();
        let wanted = Meta { mode: 0o640, times: Some((WallTime(1_000_000_001), WallTime(-5))), ..a.meta(false).unwrap() };
        let (target, new) = b.create(wanted.mode, &CreateOptions::default()).unwrap();
        assert!(new);
        let mut buffer = [0; 16];
        let source = a.open().unwrap();
        let block = source.read_at(1, &mut buffer).unwrap();
        assert_eq!(block.len(), 4);
        target.write_at(0, &block).unwrap();
        target.close().unwrap();
        target.set_meta(&b, &wanted).unwrap();
        let meta = b.meta(false).unwrap();
        assert_eq!((meta.mode, meta.times, meta.bytes), (0o640, wanted.times, 4));
        assert_eq!(fs::read(dir.path().join("b")).unwrap(), b"ello");
        assert!(!b.create(0o600, &CreateOptions::default()).unwrap().1, "the second time it is there, and is emptied");
        assert_eq!(b.meta(false).unwrap().bytes, 0);
    }

    #[test]
    fn symlinks_replace_files_but_not_directories() {
        let dir = tempfile::tempdir().unwrap();
        let link = Place::local(dir.path().join("link"));
        link.make_symlink(b"first").unwrap();
        link.make_symlink(b"second").unwrap();
        assert_eq!(link.read_link().unwrap(), b"second");
        let sub = Place::local(dir.path().join("sub"));
        sub.make_dir(0o755).unwrap();
        assert_eq!(sub.make_dir(0o755).unwrap().kind, FileKind::Directory);
        assert!(sub.make_symlink(b"x").is_err());
        assert!(link.make_dir(0o755).is_err());
    }
}
