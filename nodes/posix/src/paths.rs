//! Objects by their paths, for gateways whose callers have no kernel that walks them. Rights are
//! those of the credentials, checked by the servers.

use std::sync::Arc;

use bytes::Bytes;
use weft_base::{Attr, Credentials, FileKind, Status};
use weft_client::{Client, CreateOptions, Error, OpenFile, Result, SetAttr, WholeFile};
use weft_rt::Runtime;
use weft_wire::Rights;

use crate::description::{Caching, OpenHow};
use crate::gateway::Gateway;
use crate::node::InodeNumber;
use crate::posix::Posix;

/// How often a path is walked again because its object was replaced before it was open.
const TRIES: usize = 16;

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// Attributes of the object at a path, exact. A symlink at its end is followed if `follow`.
    ///
    /// # Errors
    /// As [`weft_client::Client::resolve`].
    pub async fn resolve(&self, who: &Credentials, path: &[u8], follow: bool) -> Result<Attr> {
        self.noted(self.client.resolve(who, path, follow).await)
    }

    /// The directory that holds the last name of a path, and that name, which need not exist.
    ///
    /// # Errors
    /// As [`weft_client::Client::resolve_parent`].
    pub async fn resolve_parent(&self, who: &Credentials, path: &[u8]) -> Result<(InodeNumber, Bytes)> {
        let (dir, name) = self.noted(self.client.resolve_parent(who, path).await)?;
        Ok((InodeNumber::of(dir), name))
    }

    /// Opens the file at a path; returns its attributes and the number that names it in later
    /// requests. With `make` it is made if it is not there, with these permission bits (the umask
    /// applied already).
    ///
    /// # Errors
    /// As [`weft_client::Client::resolve`], [`weft_client::Client::create`] and
    /// [`weft_client::Client::open`]; [`Status::IsDirectory`]; [`Status::TooManySymlinks`] for a
    /// symlink at its end, unless `follow`; [`Status::NotSupported`] for what is neither.
    pub async fn open_path(&self, who: &Credentials, path: &[u8], how: OpenHow, make: Option<u32>, follow: bool) -> Result<(Attr, u64)> {
        let client = self.client.for_one_operation();
        let opened = match make {
            Some(mode) => Box::pin(self.open_or_make(&client, who, path, how, mode, follow)).await,
            None => Box::pin(self.open_there(&client, who, path, how, follow)).await,
        };
        let (attr, file) = self.noted(opened)?;
        let number = self.add_opened(&client, who, &attr, file, Caching::Direct, how).await?;
        Ok((attr, number))
    }

    async fn open_there(
        &self,
        client: &Client<R>,
        who: &Credentials,
        path: &[u8],
        how: OpenHow,
        follow: bool,
    ) -> Result<(Attr, Arc<OpenFile>)> {
        for _ in 0..TRIES {
            let attr = client.resolve(who, path, follow).await?;
            let refuse = |status| Err(Error::local(status, "open", attr.handle));
            match attr.kind {
                FileKind::File => {}
                FileKind::Directory => return refuse(Status::IsDirectory),
                FileKind::Symlink => return refuse(Status::TooManySymlinks),
                _ => return refuse(Status::NotSupported),
            }
            match client.open(who, attr.handle, how.rights, how.truncate).await {
                Err(error) if error.status == Status::Stale => {}
                outcome => return outcome,
            }
        }
        Err(Error::local(Status::Busy, "open", client.root()))
    }

    /// A new file costs one message behind the walk to its directory, and so does one that is
    /// there.
    async fn open_or_make(
        &self,
        client: &Client<R>,
        who: &Credentials,
        path: &[u8],
        how: OpenHow,
        mode: u32,
        follow: bool,
    ) -> Result<(Attr, Arc<OpenFile>)> {
        if path.ends_with(b"/") {
            return Err(Error::local(Status::IsDirectory, "create", client.root()));
        }
        let options =
            CreateOptions { mode, exclusive: how.exclusive, truncate: how.truncate, rights: how.rights, ..CreateOptions::default() };
        let (dir, name) = client.resolve_parent(who, path).await?;
        match client.create(who, dir, &name, &options).await {
            // A symlink, or what cannot be opened.
            Err(error) if error.status == Status::Exists && !how.exclusive => {}
            outcome => return outcome.map(|(attr, file, _)| (attr, file)),
        }
        match self.open_there(client, who, path, how, follow).await {
            Err(error) if error.status == Status::NotFound && follow => {
                let (dir, name) = client.resolve_last(who, path, true).await?;
                client.create(who, dir, &name, &options).await.map(|(attr, file, _)| (attr, file))
            }
            outcome => outcome,
        }
    }

    /// Reads whole files by their paths; one result for each. Many small ones cost few messages.
    ///
    /// # Errors
    /// For each file: as [`weft_client::Client::read_paths`].
    pub async fn read_paths(&self, who: &Credentials, paths: &[Bytes]) -> Vec<Result<WholeFile>> {
        let results = self.client.read_paths(who, paths).await;
        results.into_iter().map(|result| self.noted(result)).collect()
    }

    /// Attributes of an open file, exact.
    ///
    /// # Errors
    /// [`Status::Stale`] if no such file is open; servers that do not answer.
    pub async fn getattr_open(&self, file: u64) -> Result<Attr> {
        let open = self.description(file, "getattr")?;
        self.noted(self.client.getattr(open.file.handle()).await)
    }

    /// Cuts or extends an open file to this many bytes.
    ///
    /// # Errors
    /// [`Status::Invalid`] if it is not open for writing; [`Status::Stale`] if no such file is
    /// open; servers that do not answer.
    pub async fn truncate_open(&self, who: &Credentials, file: u64, size: u64) -> Result<Attr> {
        let open = self.description(file, "truncate")?;
        let handle = open.file.handle();
        if !open.file.rights().contains(Rights::WRITE) {
            return Err(Error::local(Status::Invalid, "truncate", handle));
        }
        let change = SetAttr { size: Some(size), opened_for_write: true, ..SetAttr::default() };
        let attr = self.setattr(who, InodeNumber::of(handle), &change).await?.attr;
        Ok(attr)
    }
}
