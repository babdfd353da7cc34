//! Finding, making, moving and removing names.

use weft_base::{Attr, Credentials, FileKind, Status};
use weft_client::{Error, RenameFlags, Result};
use weft_rt::Runtime;

use crate::gateway::Gateway;
use crate::node::{CallingThread, InodeNumber, Shown};
use crate::posix::Posix;
use crate::told::XattrCount;

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// The object that a name leads to.
    ///
    /// # Errors
    /// As [`weft_client::Client::lookup_soon`].
    pub async fn lookup(&self, caller: &CallingThread, dir: InodeNumber, name: &[u8]) -> Result<Shown> {
        let changes = self.told.xattr_changes();
        let dir = dir.handle();
        let rights = self.walks.wants(caller.thread);
        let waits = self.walks.waits(caller.thread, || self.now());
        let found = match rights {
            Some(rights) => Box::pin(self.find(caller, dir, name, rights)).await,
            None => self.client.lookup_soon(&caller.who, dir, name).await,
        };
        drop(waits);
        let seen = self.noted(found)?;
        let (attr, now) = (seen.attr, self.now());
        self.forget_old_list(&attr);
        let stays = self.options.is_dataset && attr.is_sealed();
        if stays || self.told.tell_name(dir, name, &attr, changes, now) {
            // Who wants a size that cannot be had asks for it, and waits.
            let (name_ttl_ns, attr_ttl_ns) = if seen.is_exact { self.ttls_ns(dir, name, &attr) } else { (0, 0) };
            return Ok(Shown { node: InodeNumber::of(attr.handle), attr, name_ttl_ns, attr_ttl_ns });
        }
        let node = match rights {
            None => {
                // What happens to it by its second number is not seen by its first.
                self.forget_told(attr.handle);
                InodeNumber::second(attr.handle)
            }
            // Opens are of the one object.
            Some(_) => {
                self.told.tell(&attr, changes, now);
                InodeNumber::of(attr.handle)
            }
        };
        Ok(Shown { node, attr, name_ttl_ns: 0, attr_ttl_ns: 0 })
    }

    /// An object that a look-up has found, under its second number: a cache above does not take it
    /// for the one that it knows by the first.
    pub fn shown_as_second(&self, shown: Shown) -> Shown {
        self.forget_told(shown.attr.handle);
        Shown { node: InodeNumber::second(shown.attr.handle), name_ttl_ns: 0, attr_ttl_ns: 0, ..shown }
    }

    /// Makes a file, pipe, socket or device without opening it, with these permission bits (the
    /// umask, [`weft_base::mode_with_umask`]).
    ///
    /// # Errors
    /// As [`weft_client::Client::mknod`].
    pub async fn mknod(&self, who: &Credentials, dir: InodeNumber, name: &[u8], kind: FileKind, mode: u32, rdev: u32) -> Result<Shown> {
        let changes = self.told.xattr_changes();
        let made = self.changing("mknod", dir.handle())?.mknod(who, dir.handle(), name, kind, mode, rdev).await;
        self.made(dir, name, changes, made)
    }

    /// Makes a directory with these permission bits (and the umask,
    /// [`weft_base::mode_with_umask`]).
    ///
    /// # Errors
    /// As [`weft_client::Client::mkdir`].
    pub async fn mkdir(&self, who: &Credentials, dir: InodeNumber, name: &[u8], mode: u32) -> Result<Shown> {
        let changes = self.told.xattr_changes();
        let made = self.changing("mkdir", dir.handle())?.mkdir_with(who, dir.handle(), name, mode, self.options.absorbs).await;
        self.made(dir, name, changes, made)
    }

    /// Makes a symlink.
    ///
    /// # Errors
    /// [`Status::NotFound`] if the target is empty: nothing has such a path. As
    /// [`weft_client::Client::symlink`].
    pub async fn symlink(&self, who: &Credentials, dir: InodeNumber, name: &[u8], target: &[u8]) -> Result<Shown> {
        if target.is_empty() {
            return Err(Error::local(Status::NotFound, "symlink", dir.handle()));
        }
        let changes = self.told.xattr_changes();
        let made = self.changing("symlink", dir.handle())?.symlink(who, dir.handle(), name, target).await;
        self.made(dir, name, changes, made)
    }

    /// Gives an object one more name.
    ///
    /// # Errors
    /// As [`weft_client::Client::link`].
    pub async fn link(&self, who: &Credentials, node: InodeNumber, dir: InodeNumber, name: &[u8]) -> Result<Shown> {
        let changes = self.told.xattr_changes();
        let linked = self.changing("link", dir.handle())?.link(who, node.handle(), dir.handle(), name).await;
        if let Ok(attr) = &linked {
            self.told.linked(dir.handle(), name, attr, self.now());
        }
        self.made(dir, name, changes, linked)
    }

    fn made(&self, dir: InodeNumber, name: &[u8], changes: XattrCount, outcome: Result<Attr>) -> Result<Shown> {
        let attr = self.noted(outcome)?;
        Ok(self.show_name(dir, name, attr, changes))
    }

    /// What is told of a name that this gateway has made.
    pub(crate) fn show_name(&self, dir: InodeNumber, name: &[u8], attr: Attr, changes: XattrCount) -> Shown {
        let now = self.now();
        self.forget_old_list(&attr);
        let is_sure = self.told.tell_name(dir.handle(), name, &attr, changes, now);
        if !is_sure {
            self.told.tell(&attr, changes, now);
        }
        let (name_ttl_ns, attr_ttl_ns) = if is_sure { self.ttls_ns(dir.handle(), name, &attr) } else { (0, 0) };
        Shown { node: InodeNumber::of(attr.handle), attr, name_ttl_ns, attr_ttl_ns }
    }

    /// Removes a name that leads to anything but a directory.
    ///
    /// # Errors
    /// As [`weft_client::Client::unlink`].
    pub async fn unlink(&self, who: &Credentials, dir: InodeNumber, name: &[u8]) -> Result<()> {
        let client = self.changing("unlink", dir.handle())?;
        self.noted(client.unlink_with(who, dir.handle(), name, self.options.absorbs).await)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`weft_client::Client::rmdir`].
    pub async fn rmdir(&self, who: &Credentials, dir: InodeNumber, name: &[u8]) -> Result<()> {
        self.noted(self.changing("rmdir", dir.handle())?.rmdir(who, dir.handle(), name).await)
    }

    /// Moves a name.
    ///
    /// # Errors
    /// As [`weft_client::Client::rename`].
    pub async fn rename(&self, who: &Credentials, from: (InodeNumber, &[u8]), to: (InodeNumber, &[u8]), flags: RenameFlags) -> Result<()> {
        let (from, to) = ((from.0.handle(), from.1), (to.0.handle(), to.1));
        self.noted(self.changing("rename", from.0)?.rename(who, from.0, from.1, to.0, to.1, flags).await)?;
        self.names_moved(from.0, to.0);
        let now = self.now();
        self.told.moved(from, to, now);
        if flags.exchange {
            self.told.moved(to, from, now);
        }
        Ok(())
    }
}
