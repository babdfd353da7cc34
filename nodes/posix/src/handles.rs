//! Objects by their handles, for gateways whose callers keep handles themselves, for as long as
//! they like, and believe nothing else: an NFS server. Rights are those of the credentials, checked
//! by the servers.

use weft_base::{Attr, Credentials, FileKind, Handle, ServerId, WallTime};
use weft_client::{CreateOptions, DirPage, RenameFlags, Result, Seen, SetAttr};
use weft_rt::Runtime;

use crate::description::{Caching, OpenHow};
use crate::gateway::Gateway;
use crate::paths::open_looked_up;
use crate::posix::Posix;

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// Attributes of an object; under a lease, or of a directory that this gateway has just
    /// changed, without a question.
    ///
    /// # Errors
    /// [`weft_base::Status::Stale`] if it is gone; servers that do not answer.
    pub async fn see(&self, handle: Handle) -> Result<Seen> {
        match self.client.known_directory(handle) {
            Some((attr, _)) => Ok(Seen { attr, is_exact: true }),
            None => self.noted(self.client.getattr_soon(handle).await),
        }
    }

    /// Attributes of an object that [`Posix::see`] has not seen exactly: data servers that do not
    /// answer are waited for.
    ///
    /// # Errors
    /// As [`Posix::see`].
    pub async fn wait_to_see(&self, handle: Handle) -> Result<Attr> {
        self.noted(self.client.getattr(handle).await)
    }

    /// The object that a name leads to.
    ///
    /// # Errors
    /// As [`weft_client::Client::lookup_soon`].
    pub async fn see_name(&self, who: &Credentials, dir: Handle, name: &[u8]) -> Result<Seen> {
        self.noted(self.client.lookup_soon(who, dir, name).await)
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// As [`weft_client::Client::setattr_soon`].
    pub async fn setattr_handle(&self, who: &Credentials, handle: Handle, change: &SetAttr) -> Result<Seen> {
        // A change of a size keeps others from opening and closing the file meanwhile.
        let patient = self.changing("setattr", handle)?;
        let client = if change.size.is_some() { &self.client } else { patient };
        let seen = self.noted(client.setattr_soon(who, handle, change).await)?;
        self.attributes_set(handle, change);
        Ok(seen)
    }

    /// Gives an object one more name.
    ///
    /// # Errors
    /// As [`weft_client::Client::link_soon`].
    pub async fn link_handle(&self, who: &Credentials, handle: Handle, dir: Handle, name: &[u8]) -> Result<Seen> {
        self.noted(self.changing("link", dir)?.link_soon(who, handle, dir, name).await)
    }

    /// Removes an empty directory, whose handle leads nowhere from then on.
    ///
    /// # Errors
    /// As [`weft_client::Client::rmdir`].
    pub async fn rmdir_handle(&self, who: &Credentials, dir: Handle, name: &[u8]) -> Result<()> {
        let client = self.changing("rmdir", dir)?;
        let there = self.directory_at(dir, name).await;
        self.noted(client.rmdir(who, dir, name).await)?;
        self.forget_removed(there);
        Ok(())
    }

    /// Moves a name; the handle of a directory that had the new one leads nowhere from then on.
    ///
    /// # Errors
    /// As [`weft_client::Client::rename`].
    pub async fn rename_handles(&self, who: &Credentials, from: (Handle, &[u8]), to: (Handle, &[u8])) -> Result<()> {
        let client = self.changing("rename", from.0)?;
        let there = self.directory_at(to.0, to.1).await;
        self.noted(client.rename(who, from.0, from.1, to.0, to.1, RenameFlags::default()).await)?;
        self.forget_removed(there.filter(|_| from != to));
        Ok(())
    }

    /// The directory that a name leads to, if it does to one.
    async fn directory_at(&self, dir: Handle, name: &[u8]) -> Option<Handle> {
        // Not for the caller: what is known under a lease needs no question then.
        let found = self.client.lookup_handle(&Credentials::ROOT, dir, name).await;
        found.ok().filter(|(_, kind)| *kind == FileKind::Directory).map(|(handle, _)| handle)
    }

    fn forget_removed(&self, dir: Option<Handle>) {
        if let Some(dir) = dir {
            self.client.forget_directory(dir);
        }
    }

    /// The directory that holds the name of a directory; the root is its own.
    ///
    /// # Errors
    /// As [`weft_client::Client::parent`].
    pub async fn parent(&self, dir: Handle) -> Result<Handle> {
        self.noted(self.client.parent(dir).await)
    }

    /// Opens a file by its handle; returns its attributes and the number that names it in later
    /// requests.
    ///
    /// # Errors
    /// As [`weft_client::Client::open`].
    pub async fn open_handle(&self, who: &Credentials, handle: Handle, how: OpenHow) -> Result<(Attr, u64)> {
        let client = self.opening(how, false)?;
        let (attr, file) = self.noted(open_looked_up(&client, who, handle, self.open_options(how)).await)?;
        let number = self.add_opened(&client, who, &attr, file, Caching::Direct, how).await?;
        Ok((attr, number))
    }

    /// Makes a file with these permission bits, and these times of access and change if any are
    /// given, and opens it.
    ///
    /// # Errors
    /// As [`weft_client::Client::create`]; [`weft_base::Status::Exists`] for any name that is
    /// there.
    pub async fn create_new(
        &self,
        who: &Credentials,
        (dir, name): (Handle, &[u8]),
        (mode, times): (u32, Option<(WallTime, WallTime)>),
        how: OpenHow,
    ) -> Result<(Attr, u64)> {
        let how = OpenHow { exclusive: true, truncate: false, ..how };
        let options = CreateOptions { times, ..self.create_options(mode, how) };
        let client = self.changing("create", dir)?.for_one_operation();
        let (attr, file, _) = self.noted(client.create(who, dir, name, &options).await)?;
        let number = self.add_opened(&client, who, &attr, file, Caching::Direct, how).await?;
        Ok((attr, number))
    }

    /// Entries of a directory after a cookie of an earlier answer (0: from the start), about so
    /// many bytes of them, without `.` and `..`.
    ///
    /// # Errors
    /// As [`weft_client::Client::readdir`].
    pub async fn list_after(&self, who: &Credentials, dir: Handle, cookie: u64, bytes_max: u32, with_attrs: bool) -> Result<DirPage> {
        self.noted(match with_attrs {
            true => self.client.readdir_soon(who, dir, cookie, bytes_max).await,
            false => self.client.readdir(who, dir, cookie, bytes_max, false).await,
        })
    }

    /// Brings everything that anybody has written to an open file, and its attributes, to stable
    /// storage ([`weft_client::Client::commit`]).
    ///
    /// # Errors
    /// [`weft_base::Status::Stale`] if no such file is open; broken disks; servers that do not
    /// answer.
    pub async fn commit(&self, file: u64) -> Result<()> {
        let open = self.description(file, "commit")?;
        self.noted(self.client.commit(&open.file).await)
    }

    /// The lives of the servers that have answered ([`weft_client::Client::boots`]).
    pub fn boots(&self) -> Vec<(ServerId, u32)> {
        self.client.boots()
    }

    /// Asks all servers whether they are there, within 2 s, so that their lives are known.
    pub async fn meet_servers(&self) {
        // One that does not answer is met later.
        drop(self.client.ping_all().await);
    }
}
