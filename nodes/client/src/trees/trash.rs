//! A trash: what is removed is moved, and stays until somebody empties it.
//!
//! ```text
//! /.trash                          sticky, of who owns the root: each user makes one directory
//!        /1000                     mode 0700, of user 1000
//!             /1764106811123456789 one removal, named by its time in nanoseconds since 1970;
//!             |                    an extended attribute has the path
//!             |                   /results     what was removed, under its last name
//!             /emptying.1764...    one that is being emptied: it cannot be restored any more
//! ```
//! What is moved is not touched otherwise: it may be anybody's, sealed below, a symlink, or of a
//! kind that has no extended attributes. The times are those of one server, that of the user's
//! directory. All work is by handles of directories that were checked, so nobody who plants names
//! meanwhile is met.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use weft_base::{Attr, Credentials, FileKind, Handle, MODE_STICKY, Status, WallTime};
use weft_rt::Runtime;
use weft_wire::ops::SetTime;

use super::{TreeNews, TreeRemoved};
use crate::{Client, DirItem, Error, RenameFlags, Result, SetAttr, XattrFlags, run_window};

/// Name of the directory in the root that holds the trash of all users.
pub const TRASH: &str = ".trash";
/// Its permission bits, and those of each user's directory in it.
const MODE_OF_ALL: u32 = 0o1777;
const MODE_OF_ONE: u32 = 0o700;
/// Extended attribute of a removal: the path that was removed.
const PATH: &[u8] = b"user.trash.path";
/// Before the name of a removal that is being emptied.
const EMPTYING: &[u8] = b"emptying.";
/// Removals that are looked at or emptied at once.
const AT_ONCE: usize = 16;
/// Tries to find a moment at which nobody else has removed anything.
const TRIES: usize = 16;
/// Bytes of one page of a listing.
const LIST_BYTES: u32 = 256 << 10;

/// Why there is no trash to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrashFault {
    /// The directory of all users could not be found or made.
    All(Error),
    /// That of this user could not.
    Own(Error),
    /// Somebody else could put things into what has its name, or it is no directory; its owner.
    Planted(u32),
}

/// A removal in the trash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// When, by a server's clock; also its name.
    pub at: WallTime,
    /// The path that was removed, if it is known.
    pub path: Option<Bytes>,
    /// The directory that holds what was removed, and nothing else.
    holder: Handle,
    /// The name of what was removed.
    pub name: Bytes,
    /// What it is.
    pub kind: FileKind,
}

impl<R: Runtime> Client<R> {
    /// The trash of a user: made if that is wanted, otherwise `None` if there is none. A directory
    /// that the user does not own alone, or in the root one of somebody who does not own the root,
    /// is refused.
    ///
    /// # Errors
    /// See [`TrashFault`].
    pub async fn trash(&self, who: &Credentials, makes: bool) -> std::result::Result<Option<Handle>, TrashFault> {
        let root = self.getattr(self.root()).await.map_err(TrashFault::All)?;
        // One that anybody else makes, where the root is a directory for all, is no trash.
        let may_make = who.uid == 0 || who.uid == root.uid;
        let mode = (makes && may_make).then_some(MODE_OF_ALL);
        let all = match self.find_or_make(who, root.handle, TRASH, mode).await.map_err(TrashFault::All)? {
            Some(all) => all,
            None if makes => return Err(TrashFault::All(Error::local(Status::AccessDenied, "make", root.handle))),
            None => return Ok(None),
        };
        let is_shared = all.mode & 0o022 == 0 || all.mode & MODE_STICKY != 0;
        if all.kind != FileKind::Directory || !(all.uid == 0 || all.uid == root.uid) || !is_shared {
            return Err(TrashFault::Planted(all.uid));
        }
        let own = self.find_or_make(who, all.handle, &who.uid.to_string(), makes.then_some(MODE_OF_ONE)).await.map_err(TrashFault::Own)?;
        let Some(own) = own else { return Ok(None) };
        let is_own = own.kind == FileKind::Directory && own.uid == who.uid && own.mode & 0o077 == 0;
        if is_own { Ok(Some(own.handle)) } else { Err(TrashFault::Planted(own.uid)) }
    }

    async fn find_or_make(&self, who: &Credentials, dir: Handle, name: &str, mode: Option<u32>) -> Result<Option<Attr>> {
        for _ in 0..TRIES {
            match (self.lookup(who, dir, name.as_bytes()).await, mode) {
                (Err(error), None) if error.status == Status::NotFound => return Ok(None),
                (Err(error), Some(mode)) if error.status == Status::NotFound => {
                    match self.mkdir(who, dir, name.as_bytes(), mode).await {
                        // Somebody else has been faster: whose is it?
                        Err(error) if error.status == Status::Exists => {}
                        made => return made.map(Some),
                    }
                }
                (found, _) => return found.map(Some),
            }
        }
        Err(Error::local(Status::Busy, "make", dir))
    }

    /// The time of the server of the user's directory.
    async fn time_of_trash(&self, who: &Credentials, trash: Handle) -> Result<WallTime> {
        let now = SetAttr { mtime: Some(SetTime { at: None }), ..SetAttr::default() };
        Ok(self.setattr(who, trash, &now).await?.mtime)
    }

    /// Moves what a name leads to into the trash of the user, by one rename. `path` is where it is
    /// to come back to.
    ///
    /// # Errors
    /// As [`Client::rename`], [`Client::mkdir`] and [`Client::set_xattr`]; then it is where it was.
    pub async fn discard(&self, who: &Credentials, trash: Handle, (dir, name): (Handle, &Bytes), path: &[u8]) -> Result<()> {
        let (id, holder) = self.make_holder(who, trash).await?;
        let moved = async {
            self.set_xattr(who, holder, PATH, path, XattrFlags::default()).await?;
            self.rename(who, dir, name, holder, name, RenameFlags { no_replace: true, exchange: false }).await
        };
        let outcome = moved.await;
        if outcome.is_err() {
            // An empty one that stays is no removal.
            let _ = self.rmdir(who, trash, &id).await;
        }
        outcome
    }

    /// A directory for one removal, with its name.
    async fn make_holder(&self, who: &Credentials, trash: Handle) -> Result<(Bytes, Handle)> {
        for _ in 0..TRIES {
            let id = named(self.time_of_trash(who, trash).await?);
            match self.mkdir(who, trash, &id, MODE_OF_ONE).await {
                Err(error) if error.status == Status::Exists => {}
                made => return Ok((id, made?.handle)),
            }
        }
        Err(Error::local(Status::Busy, "make", trash))
    }

    /// What is in the trash of a user, the oldest first.
    ///
    /// # Errors
    /// As [`Client::readdir`] and [`Client::get_xattr`].
    pub async fn discarded(&self, who: &Credentials, trash: Handle) -> Result<Vec<Discarded>> {
        let holders = self.holders(who, trash).await?;
        let flows = holders.iter().filter_map(|item| Some((item.handle, time_of(&item.name)?)));
        let flows = flows.map(async |(holder, at)| {
            let path = match self.get_xattr(who, holder, PATH).await {
                Err(error) if error.status == Status::NoAttribute => None,
                path => Some(path?),
            };
            let page = self.readdir(who, holder, 0, LIST_BYTES, false).await?;
            let all = page.entries.into_iter().map(|DirItem { name, kind, .. }| Discarded { at, path: path.clone(), holder, name, kind });
            Ok::<_, Error>(all.collect::<Vec<_>>())
        });
        let mut all = Vec::new();
        for found in run_window(flows, AT_ONCE).await {
            match found {
                // Restored or emptied meanwhile.
                Err(error) if error.is_gone() => {}
                found => all.extend(found?),
            }
        }
        all.sort_by(|a: &Discarded, b| (a.at, &a.name).cmp(&(b.at, &b.name)));
        Ok(all)
    }

    async fn holders(&self, who: &Credentials, trash: Handle) -> Result<Vec<DirItem>> {
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let page = self.readdir(who, trash, cookie, LIST_BYTES, false).await?;
            cookie = page.entries.last().map_or(cookie, |last| last.cookie);
            let ends = page.end || page.entries.is_empty();
            all.extend(page.entries);
            if ends {
                return Ok(all);
            }
        }
    }

    /// Moves a removal to a name that does not exist. False: somebody was emptying it at the same
    /// moment, and something of it may be missing.
    ///
    /// # Errors
    /// As [`Client::rename`]; then it is still in the trash.
    pub async fn restore(&self, who: &Credentials, trash: Handle, what: &Discarded, (dir, name): (Handle, &Bytes)) -> Result<bool> {
        let flags = RenameFlags { no_replace: true, exchange: false };
        self.rename(who, what.holder, &what.name, dir, name, flags).await?;
        match self.rmdir(who, trash, &named(what.at)).await {
            Err(error) if error.status == Status::NotFound => Ok(false),
            // If something else is in it, that is for its owner to see.
            _ => Ok(true),
        }
    }

    /// Removes what is in the trash of a user by the servers, or only what is older than so many
    /// nanoseconds. Gives how many removals have gone for good, and what was in them. Paths that
    /// are told begin in the trash.
    ///
    /// # Errors
    /// As [`Client::readdir`]; what cannot be removed is told.
    pub async fn empty_trash(
        &self,
        who: &Credentials,
        trash: Handle,
        older_ns: Option<u64>,
        tell: impl FnMut(TreeNews<'_, TreeRemoved>),
    ) -> Result<(u64, TreeRemoved)> {
        let now = self.time_of_trash(who, trash).await?;
        let is_due = |name: &[u8]| match (older_ns, time_of(name)) {
            (None, _) => true,
            (Some(_), None) => name.starts_with(EMPTYING),
            (Some(age), Some(at)) => u64::try_from(now.0.saturating_sub(at.0)).is_ok_and(|old| old > age),
        };
        let due = self.holders(who, trash).await?.into_iter().filter(|item| is_due(&item.name));
        let (all, gone, tell) = (Cell::new(TreeRemoved::default()), Cell::new(0), RefCell::new(tell));
        let fail = |path: &[u8], error| {
            all.set(TreeRemoved { failed: all.get().failed + 1, ..all.get() });
            (tell.borrow_mut())(TreeNews::Failed { path, error });
        };
        let flows = due.map(async |item| {
            if item.kind != FileKind::Directory {
                // Put there by its owner.
                return match self.unlink(who, trash, &item.name).await {
                    Ok(()) => all.set(TreeRemoved { files: all.get().files + 1, ..all.get() }),
                    Err(error) if error.is_gone() => {}
                    Err(error) => fail(&item.name, error),
                };
            }
            // From now on it is not offered any more: something of it may be missing.
            let name = match item.name.starts_with(EMPTYING) || time_of(&item.name).is_none() {
                true => item.name,
                false => {
                    let claimed = Bytes::from([EMPTYING, &item.name].concat());
                    match self.rename(who, trash, &item.name, trash, &claimed, RenameFlags::default()).await {
                        Ok(()) => claimed,
                        // Somebody else has it.
                        Err(error) if error.is_gone() => return,
                        Err(error) => return fail(&item.name, error),
                    }
                }
            };
            let before = Cell::new(TreeRemoved::default());
            let count = |done: &TreeRemoved| {
                let (sum, was) = (all.get(), before.replace(*done));
                all.set(TreeRemoved {
                    files: sum.files + done.files - was.files,
                    directories: sum.directories + done.directories - was.directories,
                    failed: sum.failed,
                });
            };
            let done = self.remove_tree(who, trash, &name, item.handle, |news| match news {
                TreeNews::Progress(done) => {
                    count(done);
                    (tell.borrow_mut())(TreeNews::Progress(&all.get()));
                }
                TreeNews::Failed { path: [], error } => fail(&name, error),
                TreeNews::Failed { path, error } => fail(&[&name, b"/".as_slice(), path].concat(), error),
            });
            if Box::pin(done).await.failed == 0 {
                // The directory that held it was nobody's.
                let sum = all.get();
                all.set(TreeRemoved { directories: sum.directories.saturating_sub(1), ..sum });
                gone.set(gone.get() + 1);
            }
        });
        run_window(flows, AT_ONCE).await;
        Ok((gone.get(), all.get()))
    }
}

/// The name of a removal at this time.
fn named(at: WallTime) -> Bytes {
    Bytes::from(format!("{:019}", at.0.max(0)))
}

/// The time of a removal with this name.
fn time_of(name: &[u8]) -> Option<WallTime> {
    let digits = std::str::from_utf8(name).ok().filter(|text| text.len() == 19 && text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().map(WallTime)
}
