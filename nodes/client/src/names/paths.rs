//! Paths, for callers without a kernel that walks them: `/` separates names, symlinks are followed
//! within the file system (an absolute target begins at its root), `.` and `..` mean what they mean
//! everywhere.

use std::collections::VecDeque;

use bytes::Bytes;
use weft_base::{Attr, Credentials, FileKind, Handle, Status, check_name};
use weft_rt::Runtime;
use weft_wire::ops::ReadlinkRequest;

use crate::flow::Flow;
use crate::{Client, Result};

/// Most symlinks in one walk, as in Linux.
const SYMLINKS_MAX: usize = 40;

/// Where a walk ends.
enum Place {
    /// A directory, reached without a last name (`/`, `..`).
    Directory(Handle),
    /// A name in a directory; it may not exist.
    Name(Handle, Bytes),
}

impl<R: Runtime> Client<R> {
    /// Attributes of the object at a path. A symlink at its end is followed if `follow`.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::NotDirectory`], [`Status::TooManySymlinks`],
    /// [`Status::NameTooLong`], permissions, servers that do not answer.
    pub async fn resolve(&self, who: &Credentials, path: &[u8], follow: bool) -> Result<Attr> {
        let flow = self.flow("lookup", self.root());
        let _op = weft_trace::operation(weft_trace::event::CLIENT_LOOKUP);
        match self.walk(flow, who, path, follow).await? {
            Place::Directory(dir) => self.getattr_in(Flow { handle: dir, ..flow }, dir).await,
            Place::Name(dir, name) => {
                let attr = self.lookup_in(Flow { handle: dir, ..flow }, who, dir, &name).await?;
                // With a slash behind it, a path means a directory.
                let wrong = path.ends_with(b"/") && attr.kind != FileKind::Directory;
                if wrong { Err(Flow { handle: attr.handle, ..flow }.error(Status::NotDirectory)) } else { Ok(attr) }
            }
        }
    }

    /// The directory that holds the last name of a path, and that name, for operations that make or
    /// remove it. The name need not exist; if it leads to a symlink, the symlink itself is meant.
    ///
    /// # Errors
    /// As [`Client::resolve`]; [`Status::Invalid`] for a path that ends without a name (`/`, `..`).
    pub async fn resolve_parent(&self, who: &Credentials, path: &[u8]) -> Result<(Handle, Bytes)> {
        self.resolve_last(who, path, false).await
    }

    /// [`Client::resolve_parent`], and if the name leads to a symlink and `follow` is given, the
    /// directory and name to which that leads, which need not exist either.
    ///
    /// # Errors
    /// As [`Client::resolve_parent`].
    pub async fn resolve_last(&self, who: &Credentials, path: &[u8], follow: bool) -> Result<(Handle, Bytes)> {
        let flow = self.flow("lookup", self.root());
        let _op = weft_trace::operation(weft_trace::event::CLIENT_LOOKUP);
        match self.walk(flow, who, path, follow).await? {
            Place::Directory(dir) => Err(Flow { handle: dir, ..flow }.error(Status::Invalid)),
            Place::Name(dir, name) => Ok((dir, name)),
        }
    }

    async fn walk(&self, flow: Flow, who: &Credentials, path: &[u8], follow: bool) -> Result<Place> {
        // The directories on the way, so that `..` needs no question.
        let mut way = vec![self.root()];
        let mut names: VecDeque<Bytes> = split(&Bytes::copy_from_slice(path));
        let follow = follow || path.ends_with(b"/");
        let mut symlinks = 0;
        while let Some(name) = names.pop_front() {
            let here = *way.last().expect("the root is never removed");
            let flow = Flow { handle: here, ..flow };
            if name == ".." {
                way.truncate((way.len() - 1).max(1));
                continue;
            }
            check_name(&name).map_err(|status| flow.error(status))?;
            if names.is_empty() && !follow {
                return Ok(Place::Name(here, name));
            }
            let (handle, kind) = match self.lookup_handle_in(flow, who, here, &name).await {
                Err(error) if names.is_empty() && error.status == Status::NotFound => return Ok(Place::Name(here, name)),
                found => found?,
            };
            match kind {
                FileKind::Symlink => {
                    symlinks += 1;
                    if symlinks > SYMLINKS_MAX {
                        return Err(flow.error(Status::TooManySymlinks));
                    }
                    let flow = Flow { handle, ..flow };
                    let target = self.call(flow, self.owner(flow, handle).await?, &ReadlinkRequest { handle }).await?.target;
                    if target.starts_with(b"/") {
                        way.truncate(1);
                    }
                    for name in split(&target).into_iter().rev() {
                        names.push_front(name);
                    }
                }
                _ if names.is_empty() => return Ok(Place::Name(here, name)),
                FileKind::Directory => way.push(handle),
                _ => return Err(Flow { handle, ..flow }.error(Status::NotDirectory)),
            }
        }
        Ok(Place::Directory(*way.last().expect("the root is never removed")))
    }
}

/// The names of a path, without empty ones and `.`.
fn split(path: &Bytes) -> VecDeque<Bytes> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").map(|name| path.slice_ref(name)).collect()
}
