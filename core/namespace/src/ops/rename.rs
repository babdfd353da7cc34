//! Rename: two names, on one or two servers; two objects, on up to two more. The server of the old
//! name collects what is known of both names ([`RenameSource`], [`RenameTarget`]), and everything
//! else follows from that ([`State::plan_rename`]).

use weft_base::{Attr, Credentials, FileKind, Handle, MODE_STICKY, Result, ServerId, Status, check_name};
use weft_wire::ops::{DirTarget, RenameRequest, TxPart};

use super::link::expect_project;
use crate::access::must_own_entries;
use crate::{ServerPart, State};

/// What the old name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenameSource {
    /// The object.
    pub handle: Handle,
    /// What it is.
    pub kind: FileKind,
    /// The directory is sticky: only the object's owner may take it away.
    pub must_own: bool,
}

/// What the new name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenameTarget {
    /// The object, if the name exists.
    pub found: Option<(Handle, FileKind)>,
    /// The directory is sticky: only the object's owner may replace it.
    pub must_own: bool,
    /// Where the new name is.
    pub server: ServerId,
    /// The project of its directory; 0: none.
    pub project: u32,
}

impl RenameTarget {
    /// From the answers of the server of the new name, what the name leads to, and of that of its
    /// directory, whose attributes and project these are.
    pub fn from_answers(
        server: ServerId,
        found: Option<(Handle, FileKind)>,
        (dir, project): (&Attr, u32),
        who: &Credentials,
    ) -> RenameTarget {
        let must_own = dir.mode & MODE_STICKY != 0 && who.uid != 0 && who.uid != dir.uid;
        RenameTarget { found, must_own, server, project }
    }
}

/// A directory that moves to another parent: it must not be an ancestor of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleCheck {
    /// The directory that moves.
    pub moved: Handle,
    /// Where it goes.
    pub parent: Handle,
}

/// How a rename is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenamePlan {
    /// Both names lead to the same object: nothing happens.
    Nothing,
    /// These parts, all or none; before they are decided, and while the move token is held, none of
    /// these cycles may be made.
    Parts(Vec<ServerPart>, Vec<CycleCheck>),
}

impl State {
    /// Finds the old name, which is here.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::AccessDenied`], [`Status::Busy`], and as
    /// [`State::directory`].
    pub fn rename_source(&self, request: &RenameRequest) -> Result<RenameSource> {
        let dir = self.directory(&request.from, &request.from_name)?;
        check_name(&request.from_name)?;
        check_name(&request.to_name)?;
        self.check_directory(&request.who, request.from.dir, dir, false)?;
        self.transactions.locks.check_write_name(request.from.dir, &request.from_name)?;
        let (handle, kind) = self.entry(request.from.dir, &request.from_name).ok_or(Status::NotFound)?;
        Ok(RenameSource { handle, kind, must_own: must_own_entries(&request.who, dir) })
    }

    /// Finds the new name, if it is here.
    ///
    /// # Errors
    /// [`Status::AccessDenied`], [`Status::Busy`], and as [`State::directory`].
    pub fn rename_target(&self, at: &DirTarget, name: &[u8], who: &Credentials) -> Result<RenameTarget> {
        let dir = self.directory(at, name)?;
        self.check_directory(who, at.dir, dir, false)?;
        self.transactions.locks.check_write_name(at.dir, name)?;
        let (found, must_own, project) = (self.entry(at.dir, name), must_own_entries(who, dir), self.hints(at.dir).project);
        Ok(RenameTarget { found, must_own, server: self.settings.server, project })
    }

    /// Decides what a rename consists of.
    ///
    /// # Errors
    /// [`Status::Exists`], [`Status::NotFound`] (nothing to exchange with),
    /// [`Status::IsDirectory`], [`Status::NotDirectory`], [`Status::Invalid`] (into itself). Into
    /// the directory of another project the parts are refused ([`Status::CrossDevice`]).
    pub fn plan_rename(&self, request: &RenameRequest, source: RenameSource, target: RenameTarget) -> Result<RenamePlan> {
        if request.no_replace && request.exchange {
            return Err(Status::Invalid);
        }
        if request.no_replace && target.found.is_some() {
            return Err(Status::Exists);
        }
        let source_is_dir = source.kind == FileKind::Directory;
        if source_is_dir && source.handle == request.to.dir {
            return Err(Status::Invalid);
        }
        match target.found {
            None if request.exchange => return Err(Status::NotFound),
            Some((handle, _)) if handle == source.handle => return Ok(RenamePlan::Nothing),
            Some((_, kind)) if !request.exchange => match (source_is_dir, kind == FileKind::Directory) {
                (true, false) => return Err(Status::NotDirectory),
                (false, true) => return Err(Status::IsDirectory),
                _ => {}
            },
            _ => {}
        }
        let (parts, cycles) = match target.found {
            Some(found) if request.exchange => self.exchange_parts(request, source, found, target),
            _ => self.move_parts(request, source, target),
        };
        let mut parts = parts;
        if request.from.dir != request.to.dir {
            parts.extend(expect_project(source.handle, target.project));
            let comes_back = target.found.filter(|_| request.exchange);
            parts.extend(comes_back.and_then(|(handle, _)| expect_project(handle, self.hints(request.from.dir).project)));
        }
        if !cycles.is_empty() && self.placement.meta.len() > 1 {
            parts.push(ServerPart { server: ServerId(0), part: TxPart::MoveToken {} });
        }
        Ok(RenamePlan::Parts(parts, cycles))
    }

    fn move_parts(&self, request: &RenameRequest, source: RenameSource, target: RenameTarget) -> Steps {
        let mut steps = Steps::default();
        let (dir, name) = (request.from.dir, request.from_name.clone());
        let remove = TxPart::RemoveEntry { dir, name, handle: source.handle };
        steps.0.push(ServerPart { server: self.settings.server, part: remove });
        let replaces = target.found.map(|(handle, _)| handle);
        steps.0.push(insert(target.server, request.to.dir, &request.to_name, (source.handle, source.kind), replaces));
        moved(&mut steps, source.handle, source.kind, source.must_own, request.from.dir, request.to.dir);
        if let Some((handle, kind)) = target.found {
            let must_own = target.must_own;
            match kind {
                FileKind::Directory => steps.0.extend(self.removal_parts(handle, must_own)),
                _ => {
                    let part = TxPart::ChangeLinks { handle, kind, delta: -1, must_own };
                    steps.0.push(ServerPart { server: handle.server(), part });
                }
            }
        }
        steps
    }

    fn exchange_parts(&self, request: &RenameRequest, source: RenameSource, found: (Handle, FileKind), target: RenameTarget) -> Steps {
        let mut steps = Steps::default();
        let (from, to) = (request.from.dir, request.to.dir);
        let own = (source.handle, source.kind);
        steps.0.push(insert(self.settings.server, from, &request.from_name, found, Some(source.handle)));
        steps.0.push(insert(target.server, to, &request.to_name, own, Some(found.0)));
        moved(&mut steps, source.handle, source.kind, source.must_own, from, to);
        moved(&mut steps, found.0, found.1, target.must_own, to, from);
        steps
    }
}

type Steps = (Vec<ServerPart>, Vec<CycleCheck>);

fn insert(server: ServerId, dir: Handle, name: &bytes::Bytes, leads_to: (Handle, FileKind), replaces: Option<Handle>) -> ServerPart {
    let (handle, kind) = leads_to;
    ServerPart { server, part: TxPart::InsertEntry { dir, name: name.clone(), handle, kind, replaces } }
}

/// What happens to the inode of an object whose name moves.
fn moved(steps: &mut Steps, handle: Handle, kind: FileKind, must_own: bool, from: Handle, to: Handle) {
    let part = match kind {
        FileKind::Directory => {
            if from != to {
                steps.1.push(CycleCheck { moved: handle, parent: to });
            }
            TxPart::SetParent { dir: handle, parent: to, must_own }
        }
        _ => TxPart::ChangeLinks { handle, kind, delta: 0, must_own },
    };
    steps.0.push(ServerPart { server: handle.server(), part });
}
