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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkEnd {
    /// A directory, reached without a last name (`/`, `..`).
    Directory(Handle),
    /// A name in a directory; it may not exist.
    Name(Handle, Bytes),
    /// Outside of the file system, for callers that have an outside: by this path, absolute (a
    /// symlink's target with what follows it) or from the directory above the root.
    Outside(Vec<u8>),
}

/// Where a walk begins, and whether it may leave the file system.
#[derive(Clone, Copy)]
struct Begins {
    dir: Handle,
    leaves: bool,
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
        match self.walk(flow, who, self.begin_at_root(), path, follow).await? {
            WalkEnd::Outside(_) => Err(flow.error(Status::NotFound)),
            WalkEnd::Directory(dir) => self.getattr_in(Flow { handle: dir, ..flow }, dir).await,
            WalkEnd::Name(dir, name) => {
                let flow = Flow { handle: dir, ..flow };
                let attr = match self.believed(flow, who, dir, &name) {
                    Some(believed) => believed?,
                    None => self.lookup_in(flow, who, dir, &name).await?,
                };
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
        match self.walk(flow, who, self.begin_at_root(), path, follow).await? {
            WalkEnd::Outside(_) => Err(flow.error(Status::NotFound)),
            WalkEnd::Directory(dir) => Err(Flow { handle: dir, ..flow }.error(Status::Invalid)),
            WalkEnd::Name(dir, name) => Ok((dir, name)),
        }
    }

    /// Where a path leads from a directory, for callers for whom the file system is a part of a
    /// larger tree: a walk may end outside. A symlink at its end is followed if `follow`; a name at
    /// its end need not exist.
    ///
    /// # Errors
    /// As [`Client::resolve`].
    pub async fn walk_from(&self, who: &Credentials, dir: Handle, path: &[u8], follow: bool) -> Result<WalkEnd> {
        let _op = weft_trace::operation(weft_trace::event::CLIENT_LOOKUP);
        self.walk(self.flow("lookup", dir), who, Begins { dir, leaves: true }, path, follow).await
    }

    fn begin_at_root(&self) -> Begins {
        Begins { dir: self.root(), leaves: false }
    }

    /// The directory above one that is not the root.
    async fn above(&self, dir: Handle) -> Result<Handle> {
        // Search permission is asked for by name; this only says where the directory is.
        Ok(self.readdir(&Credentials::ROOT, dir, 0, 1, false).await?.parent)
    }

    async fn walk(&self, flow: Flow, who: &Credentials, begins: Begins, path: &[u8], follow: bool) -> Result<WalkEnd> {
        // The directories on the way, so that `..` needs no question.
        let mut way = vec![begins.dir];
        let mut names: VecDeque<Bytes> = split(&Bytes::copy_from_slice(path));
        let follow = follow || path.ends_with(b"/");
        let mut symlinks = 0;
        while let Some(name) = names.pop_front() {
            let here = *way.last().expect("the root is never removed");
            let flow = Flow { handle: here, ..flow };
            if name == ".." {
                match way.len() {
                    2.. => way.truncate(way.len() - 1),
                    _ if here != self.root() => way[0] = self.above(here).await?,
                    _ if begins.leaves => return Ok(WalkEnd::Outside(joined(&Bytes::from_static(b"."), &names))),
                    _ => {}
                }
                continue;
            }
            check_name(&name).map_err(|status| flow.error(status))?;
            if names.is_empty() && !follow {
                return Ok(WalkEnd::Name(here, name));
            }
            let (handle, kind) = match self.find_handle_in(flow, who, here, &name).await {
                Err(error) if names.is_empty() && error.status == Status::NotFound => return Ok(WalkEnd::Name(here, name)),
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
                        if begins.leaves {
                            return Ok(WalkEnd::Outside(joined(&target, &names)));
                        }
                        way.truncate(1);
                        way[0] = self.root();
                    }
                    for name in split(&target).into_iter().rev() {
                        names.push_front(name);
                    }
                }
                _ if names.is_empty() => return Ok(WalkEnd::Name(here, name)),
                FileKind::Directory => way.push(handle),
                _ => return Err(Flow { handle, ..flow }.error(Status::NotDirectory)),
            }
        }
        Ok(WalkEnd::Directory(*way.last().expect("the root is never removed")))
    }
}

/// A path with these names behind it.
fn joined(path: &Bytes, names: &VecDeque<Bytes>) -> Vec<u8> {
    names.iter().fold(path.to_vec(), |mut path, name| {
        path.push(b'/');
        path.extend_from_slice(name);
        path
    })
}

/// The names of a path, without empty ones and `.`.
fn split(path: &Bytes) -> VecDeque<Bytes> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").map(|name| path.slice_ref(name)).collect()
}
