//! Objects by their paths, for gateways whose callers have no kernel that walks them. Rights are
//! those of the credentials, checked by the servers.

use std::sync::Arc;

use bytes::Bytes;
use weft_base::{Attr, Credentials, FileKind, Handle, Status};
use weft_client::{Client, CreateOptions, Error, OpenFile, OpenWith, Purpose, RenameFlags, Result, SetAttr, WalkEnd, WholeFile};
use weft_rt::Runtime;
use weft_wire::Rights;

use crate::description::{Caching, OpenHow};
use crate::gateway::Gateway;
use crate::node::InodeNumber;
use crate::posix::Posix;

/// What an open by name has met ([`Posix::open_name`]).
#[derive(Clone, Copy, Debug)]
pub enum Met {
    /// A file. It is open now, and named by this number in later requests.
    File(Attr, u64),
    /// Something else. It was not opened.
    Other(Attr),
}

/// How often a path is walked again because its object was replaced before it was open.
const TRIES: usize = 16;

/// The directory of a file that is to be made if it is not there, and its name. The answers for
/// paths that end without one (`/`, `.`, `..`) are those of Linux.
async fn name_of_file<R: Runtime>(client: &Client<R>, who: &Credentials, path: &[u8], exclusive: bool) -> Result<(Handle, Bytes)> {
    if path.ends_with(b"/") {
        return Err(Error::local(Status::IsDirectory, "create", client.root()));
    }
    client.resolve_name(who, path, Purpose::Make).await.map_err(|error| match error.status {
        Status::Exists if !exclusive => Error { status: Status::IsDirectory, ..error },
        _ => error,
    })
}

/// Opens a file for whoever has no kernel: without a message if it may be opened by what is known
/// of it.
pub(crate) async fn open_looked_up<R: Runtime>(
    client: &Client<R>,
    who: &Credentials,
    file: Handle,
    options: OpenWith,
) -> Result<(Attr, Arc<OpenFile>)> {
    let known = if options.truncate { None } else { client.open_told(who, file, options.rights) };
    match known {
        Some(known) => Ok(known),
        None => client.open_with(who, file, options).await,
    }
}

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// Attributes of the object at a path, exact. A symlink at its end is followed if `follow`.
    ///
    /// # Errors
    /// As [`weft_client::Client::resolve`].
    pub async fn resolve(&self, who: &Credentials, path: &[u8], follow: bool) -> Result<Attr> {
        self.noted(self.client.resolve(who, path, follow).await)
    }

    /// The directory that holds the last name of a path, and that name, for what is done with it.
    ///
    /// # Errors
    /// As [`weft_client::Client::resolve_name`].
    pub async fn resolve_name(&self, who: &Credentials, path: &[u8], purpose: Purpose) -> Result<(InodeNumber, Bytes)> {
        let (dir, name) = self.noted(self.client.resolve_name(who, path, purpose).await)?;
        Ok((InodeNumber::of(dir), name))
    }

    /// Whether a name with a slash behind it may be used for this purpose.
    ///
    /// # Errors
    /// As [`weft_client::Client::check_slash`].
    pub async fn check_slash(&self, who: &Credentials, (dir, name): (InodeNumber, &[u8]), purpose: Purpose) -> Result<()> {
        self.noted(self.client.check_slash(who, (dir.handle(), name), purpose).await)
    }

    /// Moves a name to another one; with each comes whether there is a slash behind it.
    ///
    /// # Errors
    /// As [`weft_client::Client::check_slashes`] and [`weft_client::Client::rename`].
    pub async fn rename_written(
        &self,
        who: &Credentials,
        (from_dir, from, from_slash): (InodeNumber, &[u8], bool),
        (to_dir, to, to_slash): (InodeNumber, &[u8], bool),
        flags: RenameFlags,
    ) -> Result<()> {
        let (old, new) = ((from_dir.handle(), from, from_slash), (to_dir.handle(), to, to_slash));
        self.noted(self.client.check_slashes(who, old, new, flags).await)?;
        self.rename(who, (from_dir, from), (to_dir, to), flags).await
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
        let client = self.opening(how, make.is_some())?;
        let opened = match make {
            Some(mode) => Box::pin(self.open_or_make(&client, who, path, how, mode, follow)).await,
            None => Box::pin(self.open_there(&client, who, path, how, follow)).await,
        };
        self.made_alone();
        let (attr, file) = self.noted(opened)?;
        let number = self.add_opened(&client, who, &attr, file, Caching::Direct, how).await?;
        Ok((attr, number))
    }

    /// Makes or replaces the file at a path; symlinks at its end are followed. `mode`: the
    /// permission bits of a new one, the umask applied already.
    ///
    /// # Errors
    /// As [`weft_client::Client::resolve_last`] and [`weft_client::Client::put`].
    pub async fn put_path(&self, who: &Credentials, path: &[u8], mode: u32, exclusive: bool, content: &Bytes) -> Result<Attr> {
        let client = self.changing("create", self.client.root())?.for_one_operation();
        let options = CreateOptions { mode, exclusive, ..CreateOptions::default() };
        let put = async {
            let (dir, mut name) = name_of_file(&client, who, path, exclusive).await?;
            let mut at = dir;
            loop {
                match client.put(who, at, &name, &options, content).await {
                    // A symlink, which is to be followed.
                    Err(error) if error.status == Status::Exists && !exclusive => {
                        let followed = client.resolve_last(who, path, true).await?;
                        if followed == (at, name.clone()) {
                            return Err(error);
                        }
                        (at, name) = followed;
                    }
                    put => return put.map(|(attr, _)| attr),
                }
            }
        };
        self.noted(Box::pin(put).await)
    }

    /// Where a path leads from a directory, for gateways whose callers have names outside.
    ///
    /// # Errors
    /// As [`weft_client::Client::walk_from`].
    pub async fn walk(&self, who: &Credentials, dir: InodeNumber, path: &[u8], follow: bool) -> Result<WalkEnd> {
        self.noted(self.client.walk_from(who, dir.handle(), path, follow).await)
    }

    /// Attributes of the object that a name leads to, exact, for gateways that remember nothing.
    ///
    /// # Errors
    /// As [`weft_client::Client::lookup`].
    pub async fn look(&self, who: &Credentials, dir: InodeNumber, name: &[u8]) -> Result<Attr> {
        self.noted(self.client.lookup(who, dir.handle(), name).await)
    }

    /// Opens the file that a name leads to. With `make` it is made if there is no such name, with
    /// these permission bits (and the umask, [`weft_base::mode_with_umask`]).
    ///
    /// # Errors
    /// As [`weft_client::Client::create`], [`weft_client::Client::lookup`] and
    /// [`weft_client::Client::open`].
    pub async fn open_name(&self, who: &Credentials, dir: InodeNumber, name: &[u8], how: OpenHow, make: Option<u32>) -> Result<Met> {
        let client = self.opening(how, make.is_some())?;
        for _ in 0..TRIES {
            let opened = match make {
                Some(mode) => {
                    let made = client.create(who, dir.handle(), name, &self.create_options(mode, how)).await;
                    self.made_alone();
                    made.map(|(attr, file, _)| (attr, file))
                }
                None => Err(Error::local(Status::Exists, "open", dir.handle())),
            };
            let opened = match opened {
                Err(error) if matches!(error.status, Status::Exists | Status::IsDirectory) && !(how.exclusive && make.is_some()) => {
                    let attr = self.noted(client.lookup(who, dir.handle(), name).await)?;
                    if attr.kind != FileKind::File {
                        return Ok(Met::Other(attr));
                    }
                    open_looked_up(&client, who, attr.handle, self.open_options(how)).await
                }
                opened => opened,
            };
            match opened {
                Err(error) if error.status == Status::Stale => {}
                opened => {
                    let (attr, file) = self.noted(opened)?;
                    let number = self.add_opened(&client, who, &attr, file, Caching::Direct, how).await?;
                    return Ok(Met::File(attr, number));
                }
            }
        }
        Err(Error::local(Status::Busy, "open", dir.handle()))
    }

    /// Opens a file by its number.
    ///
    /// # Errors
    /// As [`weft_client::Client::open`]; [`Status::Stale`] if it is gone.
    pub async fn open_node(&self, who: &Credentials, node: InodeNumber, how: OpenHow) -> Result<u64> {
        let client = self.opening(how, false)?;
        let (attr, file) = self.noted(open_looked_up(&client, who, node.handle(), self.open_options(how)).await)?;
        self.add_opened(&client, who, &attr, file, Caching::Direct, how).await
    }

    /// Opens a file once more that was open in another process: its rights were checked then, and
    /// it may have no name any more.
    ///
    /// # Errors
    /// As [`Posix::open_node`].
    pub async fn open_again(&self, who: &Credentials, node: InodeNumber, how: OpenHow) -> Result<u64> {
        let allowed = Credentials { checked_by_kernel: true, ..who.clone() };
        self.open_node(&allowed, node, how).await
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
            match open_looked_up(client, who, attr.handle, self.open_options(how)).await {
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
        let options = self.create_options(mode, how);
        let (dir, name) = name_of_file(client, who, path, how.exclusive).await?;
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
        let open = self.changing_file(file, "truncate")?;
        let handle = open.file.handle();
        if !open.file.rights().contains(Rights::WRITE) {
            return Err(Error::local(Status::Invalid, "truncate", handle));
        }
        let change = SetAttr { size: Some(size), opened_for_write: true, ..SetAttr::default() };
        let attr = self.setattr(who, InodeNumber::of(handle), &change).await?.attr;
        Ok(attr)
    }
}
