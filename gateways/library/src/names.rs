//! What paths name: made, moved, removed, and their attributes.

use bytes::Bytes;
use weft_base::{Attr, Status, mode_with_umask};
use weft_client::{Purpose, RenameFlags, SetAttr, XattrFlags};
use weft_posix::InodeNumber;
use weft_rt::ThreadRuntime;

use crate::error::{Error, Result};
use crate::filesystem::{FileSystem, PosixLayer};

impl<R: ThreadRuntime> FileSystem<R> {
    /// Attributes of the object at a path, exact. A symlink at its end is followed if `follow`.
    ///
    /// # Errors
    /// [`Status::NotFound`] and what else a walk may meet; servers that do not answer.
    pub fn stat(&self, path: &[u8], follow: bool) -> Result<Attr> {
        self.run("stat", path, async |posix| posix.resolve(&self.who, path, follow).await)
    }

    /// Makes a directory with these permission bits, less the umask.
    ///
    /// # Errors
    /// As [`weft_client::Client::mkdir`].
    pub fn mkdir(&self, path: &[u8], mode: u32) -> Result<()> {
        let mode = mode_with_umask(mode, self.umask);
        let made = self.run("mkdir", path, async |posix| {
            let (dir, name) = posix.resolve_name(&self.who, path, Purpose::MakeDirectory).await?;
            posix.mkdir(&self.who, dir, &name, mode).await
        });
        made.map(drop)
    }

    /// Removes a name that leads to anything but a directory.
    ///
    /// # Errors
    /// As [`weft_client::Client::unlink`].
    pub fn unlink(&self, path: &[u8]) -> Result<()> {
        self.run("unlink", path, async |posix| {
            let (dir, name) = posix.resolve_name(&self.who, path, Purpose::Remove).await?;
            posix.unlink(&self.who, dir, &name).await
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`weft_client::Client::rmdir`].
    pub fn rmdir(&self, path: &[u8]) -> Result<()> {
        self.run("rmdir", path, async |posix| {
            let (dir, name) = posix.resolve_name(&self.who, path, Purpose::RemoveDirectory).await?;
            posix.rmdir(&self.who, dir, &name).await
        })
    }

    /// Moves a name.
    ///
    /// # Errors
    /// As [`weft_posix::Posix::rename_written`].
    pub fn rename(&self, from: &[u8], to: &[u8], flags: RenameFlags) -> Result<()> {
        self.run("rename", &[from, b" to ", to].concat(), async |posix| {
            let (from_dir, from_name) = posix.resolve_name(&self.who, from, Purpose::Move).await?;
            let (to_dir, to_name) = posix.resolve_name(&self.who, to, Purpose::target_of(flags)).await?;
            let (old, new) = ((from_dir, &*from_name, from.ends_with(b"/")), (to_dir, &*to_name, to.ends_with(b"/")));
            posix.rename_written(&self.who, old, new, flags).await
        })
    }

    /// Gives the object at `path`, a symlink itself, one more name.
    ///
    /// # Errors
    /// As [`weft_client::Client::link`].
    pub fn link(&self, path: &[u8], name: &[u8]) -> Result<()> {
        let linked = self.run("link", &[path, b" to ", name].concat(), async |posix| {
            let attr = posix.resolve(&self.who, path, false).await?;
            let (dir, name) = posix.resolve_name(&self.who, name, Purpose::Make).await?;
            posix.link(&self.who, InodeNumber::of(attr.handle), dir, &name).await
        });
        linked.map(drop)
    }

    /// Makes a symlink.
    ///
    /// # Errors
    /// As [`weft_client::Client::symlink`].
    pub fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        let made = self.run("symlink", path, async |posix| {
            let (dir, name) = posix.resolve_name(&self.who, path, Purpose::Make).await?;
            posix.symlink(&self.who, dir, &name, target).await
        });
        made.map(drop)
    }

    /// The target of a symlink.
    ///
    /// # Errors
    /// [`Status::Invalid`] if it is none; as [`FileSystem::stat`].
    pub fn readlink(&self, path: &[u8]) -> Result<Bytes> {
        self.at("readlink", path, false, async |posix, node| posix.readlink(node).await)
    }

    /// Changes attributes; a symlink at the end of the path is followed if `follow`.
    ///
    /// # Errors
    /// As [`weft_client::Client::setattr`].
    pub fn setattr(&self, path: &[u8], follow: bool, change: &SetAttr) -> Result<()> {
        self.at("setattr", path, follow, async |posix, node| posix.setattr(&self.who, node, change).await.map(drop))
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`Status::NoAttribute`]; as [`FileSystem::stat`].
    pub fn get_xattr(&self, path: &[u8], name: &[u8]) -> Result<Bytes> {
        self.at("getxattr", path, true, async |posix, node| posix.get_xattr(&self.who, node, name).await)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As [`weft_client::Client::set_xattr`].
    pub fn set_xattr(&self, path: &[u8], name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        if flags.create_only && flags.replace_only {
            return Err(Error::new(Status::Invalid, "setxattr: it cannot be new and there at once"));
        }
        self.at("setxattr", path, true, async |posix, node| posix.set_xattr(&self.who, node, name, value, flags).await)
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// As [`FileSystem::stat`].
    pub fn list_xattr(&self, path: &[u8]) -> Result<Vec<Bytes>> {
        self.at("listxattr", path, true, async |posix, node| posix.list_xattr(&self.who, node).await)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`Status::NoAttribute`]; as [`weft_client::Client::remove_xattr`].
    pub fn remove_xattr(&self, path: &[u8], name: &[u8]) -> Result<()> {
        self.at("removexattr", path, true, async |posix, node| posix.remove_xattr(&self.who, node, name).await)
    }

    /// What concerns the object at a path.
    fn at<T>(
        &self,
        what: &str,
        path: &[u8],
        follow: bool,
        flow: impl AsyncFnOnce(&PosixLayer<R>, InodeNumber) -> weft_client::Result<T>,
    ) -> Result<T> {
        self.run(what, path, async |posix| {
            let attr = posix.resolve(&self.who, path, follow).await?;
            flow(posix, InodeNumber::of(attr.handle)).await
        })
    }
}
