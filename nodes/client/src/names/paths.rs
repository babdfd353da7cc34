//! Paths, for callers without a kernel that walks them: `/` separates names, symlinks are followed
//! within the file system (an absolute target begins at its root), `.` and `..` mean what they mean
//! everywhere.

use std::collections::VecDeque;

use bytes::Bytes;
use weft_base::{Attr, Credentials, FileKind, Handle, Status, check_name};
use weft_rt::Runtime;
use weft_wire::ops::ReadlinkRequest;

use crate::flow::Flow;
use crate::{Client, RenameFlags, Result};

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

/// What a program does with the last name of a path. Linux has an answer of its own for each where
/// there is no such name, or a slash behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Something is made, but no directory.
    Make,
    /// A directory is made.
    MakeDirectory,
    /// Something is removed, but no directory.
    Remove,
    /// A directory is removed.
    RemoveDirectory,
    /// It is moved, or something is moved to it.
    Move,
    /// Something is moved to it if it is free.
    MoveToFree,
}

impl Purpose {
    /// That of the target of a rename.
    pub fn target_of(flags: RenameFlags) -> Purpose {
        if flags.no_replace { Purpose::MoveToFree } else { Purpose::Move }
    }

    /// Why it fails for a path that ends without a name.
    pub fn without_name(self, path: &[u8]) -> Status {
        let last = path.split(|byte| *byte == b'/').rfind(|name| !name.is_empty());
        match (self, last) {
            (Purpose::Make | Purpose::MakeDirectory | Purpose::MoveToFree, _) => Status::Exists,
            (Purpose::Remove, _) => Status::IsDirectory,
            (Purpose::RemoveDirectory, Some(b".")) => Status::Invalid,
            (Purpose::RemoveDirectory, Some(b"..")) => Status::NotEmpty,
            (Purpose::RemoveDirectory | Purpose::Move, _) => Status::Busy,
        }
    }
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
        let follow = follow || path.ends_with(b"/");
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

    /// The directory that holds the last name of a path, and that name, which need not exist. If it
    /// leads to a symlink, the symlink itself is meant, unless a slash or `.` stands behind it.
    ///
    /// # Errors
    /// As [`Client::resolve`]; [`Status::Invalid`] for a path that ends without a name (`/`, `..`).
    pub async fn resolve_parent(&self, who: &Credentials, path: &[u8]) -> Result<(Handle, Bytes)> {
        let path = without_dots(path);
        self.resolve_last(who, path, path.ends_with(b"/")).await
    }

    /// The same for operations of programs on the name, as Linux has it: a symlink itself is meant
    /// in any case, `.` is no name, and a slash behind it may forbid the operation.
    ///
    /// # Errors
    /// As [`Client::resolve`], [`Purpose::without_name`] and [`Client::check_slash`].
    pub async fn resolve_name(&self, who: &Credentials, path: &[u8], purpose: Purpose) -> Result<(Handle, Bytes)> {
        let flow = self.flow("lookup", self.root());
        let _op = weft_trace::operation(weft_trace::event::CLIENT_LOOKUP);
        match self.walk(flow, who, self.begin_at_root(), path, false).await? {
            WalkEnd::Outside(_) => Err(flow.error(Status::NotFound)),
            WalkEnd::Directory(dir) => Err(Flow { handle: dir, ..flow }.error(purpose.without_name(path))),
            WalkEnd::Name(dir, name) => {
                if path.ends_with(b"/") {
                    self.check_slash(who, (dir, &name), purpose).await?;
                }
                Ok((dir, name))
            }
        }
    }

    /// Whether a name with a slash behind it may be used for this purpose. The answers are those of
    /// Linux.
    ///
    /// # Errors
    /// [`Status::Exists`] or [`Status::NotFound`] for what is to be made, [`Status::IsDirectory`]
    /// or [`Status::NotDirectory`] for what is to be removed; as [`Client::lookup`].
    pub async fn check_slash(&self, who: &Credentials, (dir, name): (Handle, &[u8]), purpose: Purpose) -> Result<()> {
        let flow = Flow { handle: dir, ..self.flow("lookup", dir) };
        match purpose {
            Purpose::MakeDirectory | Purpose::RemoveDirectory => Ok(()),
            // Both names have to be known: `check_slashes`.
            Purpose::Move | Purpose::MoveToFree => Ok(()),
            Purpose::Make => self.lookup(who, dir, name).await.and(Err(flow.error(Status::Exists))),
            Purpose::Remove => match self.lookup(who, dir, name).await?.kind {
                FileKind::Directory => Err(flow.error(Status::IsDirectory)),
                _ => Err(flow.error(Status::NotDirectory)),
            },
        }
    }

    /// The same for a name that is moved to another one; with each comes whether there is a slash
    /// behind it.
    ///
    /// # Errors
    /// Those of [`Client::rename`], as if nothing stood behind them; [`Status::NotDirectory`].
    pub async fn check_slashes(
        &self,
        who: &Credentials,
        (from_dir, from, from_slash): (Handle, &[u8], bool),
        (to_dir, to, to_slash): (Handle, &[u8], bool),
        flags: RenameFlags,
    ) -> Result<()> {
        if !from_slash && !to_slash {
            return Ok(());
        }
        let flow = self.flow("rename", from_dir);
        let is_directory = self.lookup(who, from_dir, from).await?.kind == FileKind::Directory;
        let target = match self.lookup(who, to_dir, to).await {
            Err(error) if error.status == Status::NotFound && !flags.exchange => None,
            found => Some(found?.kind),
        };
        match target {
            Some(_) if flags.no_replace => return Err(flow.error(Status::Exists)),
            Some(kind) if flags.exchange && to_slash && kind != FileKind::Directory => return Err(flow.error(Status::NotDirectory)),
            _ => {}
        }
        let needs_directory = from_slash || !flags.exchange;
        if needs_directory && !is_directory { Err(flow.error(Status::NotDirectory)) } else { Ok(()) }
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
        let has_slash = path.ends_with(b"/");
        let mut needs_directory = follow && has_slash;
        let mut symlinks = 0;
        while let Some(name) = names.pop_front() {
            let here = *way.last().expect("the root is never removed");
            let flow = Flow { handle: here, ..flow };
            if name == "." {
                continue;
            }
            if name == ".." {
                match way.len() {
                    2.. => way.truncate(way.len() - 1),
                    _ if here != self.root() => way[0] = self.above(here).await?,
                    _ if begins.leaves => return Ok(WalkEnd::Outside(joined(&Bytes::from_static(b"."), &names, has_slash))),
                    _ => {}
                }
                continue;
            }
            check_name(&name).map_err(|status| flow.error(status))?;
            if names.is_empty() && !follow {
                return Ok(WalkEnd::Name(here, name));
            }
            let (handle, kind) = match self.find_handle_in(flow, who, here, &name).await {
                Err(error) if names.is_empty() && error.status == Status::NotFound && (has_slash || !needs_directory) => {
                    return Ok(WalkEnd::Name(here, name));
                }
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
                            return Ok(WalkEnd::Outside(joined(&target, &names, has_slash)));
                        }
                        way.truncate(1);
                        way[0] = self.root();
                    }
                    needs_directory |= names.is_empty() && target.ends_with(b"/");
                    for name in split(&target).into_iter().rev() {
                        names.push_front(name);
                    }
                }
                FileKind::Directory if names.is_empty() => return Ok(WalkEnd::Name(here, name)),
                _ if names.is_empty() && !needs_directory => return Ok(WalkEnd::Name(here, name)),
                FileKind::Directory => way.push(handle),
                _ => return Err(Flow { handle, ..flow }.error(Status::NotDirectory)),
            }
        }
        Ok(WalkEnd::Directory(*way.last().expect("the root is never removed")))
    }
}

/// A path without `.` at its end; the slash in front of it stays.
fn without_dots(path: &[u8]) -> &[u8] {
    let named = path.iter().rposition(|byte| *byte != b'/').map_or(path, |at| &path[..=at]);
    named.strip_suffix(b".").filter(|rest| rest.ends_with(b"/")).map_or(path, without_dots)
}

/// A path with these names behind it, and with a slash at its end if it had one.
fn joined(path: &Bytes, names: &VecDeque<Bytes>, has_slash: bool) -> Vec<u8> {
    let mut path = names.iter().fold(path.to_vec(), |mut path, name| {
        path.push(b'/');
        path.extend_from_slice(name);
        path
    });
    if has_slash {
        path.push(b'/');
    }
    path
}

/// The names of a path, without empty ones.
fn split(path: &Bytes) -> VecDeque<Bytes> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(|name| path.slice_ref(name)).collect()
}
