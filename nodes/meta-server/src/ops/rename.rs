//! Rename: collects what is known of both names, here and at the server of the new name.

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, MODE_PROJECT, Nanos, PROJECT_ATTRIBUTE, Result, Status};
use weft_namespace::{RenamePlan, RenameSource, RenameTarget, State};
use weft_rt::ServerRuntime;
use weft_wire::ops::{DirTarget, FileState, GetAttrRequest, GetXattrRequest, LookupRequest, RenameRequest};

use super::names::{Planned, nothing_renamed};
use super::{NameChange, NameReply};
use crate::engine::Engine;
use crate::server::Server;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// Plans if the new name is here too.
    pub(super) fn plan_rename_here(&self, state: &State, request: &RenameRequest) -> Result<Planned> {
        let source = state.rename_source(request)?;
        let server = state.server_of_name(request.to.dir, &request.to_name);
        if server != self.config.serving.server {
            self.knows(server)?;
            return Ok(Planned::NeedsFacts);
        }
        let target = state.rename_target(&request.to, &request.to_name, &request.who)?;
        planned(state, request, source, target)
    }

    /// Asks the server of the new name and plans.
    pub(super) async fn plan_rename_there(&self, request: &RenameRequest, deadline: Nanos) -> Result<Planned> {
        let before = self.state.borrow().rename_source(request)?;
        let mut server = self.state.borrow().server_of_name(request.to.dir, &request.to_name);
        // Whoever has nothing of it refuses the map, not the server.
        let at = DirTarget { map_epoch: request.to.map_epoch.max(1), ..request.to };
        let lookup = LookupRequest { at, name: request.to_name.clone(), who: request.who.clone() };
        let mut looked = self.shell.caller.call(server, &lookup, deadline).await;
        if looked == Err(Status::StaleMap) {
            // The directory is split, and nothing of it is here.
            let state = self.state_at_owner(request, deadline).await?;
            let map = state.partitions.ok_or(Status::NotDirectory)?;
            server = map.server(self.state.borrow().hash(&request.to_name));
            self.knows(server)?;
            looked = self.shell.caller.call(server, &lookup, deadline).await;
        }
        let found = match looked {
            Ok(reply) => Some((reply.handle, reply.kind)),
            Err(Status::NotFound) => None,
            Err(status) => return Err(status),
        };
        let dir = self.state_at_owner(request, deadline).await?.attr;
        let project = if dir.mode & MODE_PROJECT != 0 { self.project_at_owner(request.to.dir, deadline).await? } else { 0 };
        let target = RenameTarget::from_answers(server, found, (&dir, project), &request.who);
        // Time has passed: look at the old name again. If it led elsewhere when the question was
        // asked, the answers about both names need not belong together: together they may show a
        // state that never was, with both names for one object, say.
        let state = self.state.borrow();
        let source = state.rename_source(request)?;
        if source.handle != before.handle {
            return Err(Status::Conflict);
        }
        planned(&state, request, source, target)
    }

    /// The project of a directory that has one, from where its inode is.
    async fn project_at_owner(&self, dir: Handle, deadline: Nanos) -> Result<u32> {
        if dir.server() == self.config.serving.server {
            return Ok(self.state.borrow().hints(dir).project);
        }
        let name = Bytes::from_static(PROJECT_ATTRIBUTE.as_bytes());
        let asked = GetXattrRequest { handle: dir, name, who: Credentials::ROOT };
        let value = match self.shell.caller.call(dir.server(), &asked, deadline).await {
            Ok(reply) => reply.value,
            // It has none any more.
            Err(Status::NoAttribute) => return Ok(0),
            Err(status) => return Err(status),
        };
        weft_layout::project(&value).map_err(|_| Status::BadMessage)
    }

    /// The state of the directory of the new name, from where its inode is.
    async fn state_at_owner(&self, request: &RenameRequest, deadline: Nanos) -> Result<FileState> {
        let dir = request.to.dir;
        let state = match dir.server() == self.config.serving.server {
            true => self.state.borrow().getattr(&self.context(self.shell.caller.client()), dir),
            false => self.shell.caller.call(dir.server(), &GetAttrRequest { handle: dir }, deadline).await,
        };
        // It was removed, and nothing has a name in it.
        state.map_err(|status| if status == Status::Stale { Status::NotFound } else { status })
    }
}

fn planned(state: &State, request: &RenameRequest, source: RenameSource, target: RenameTarget) -> Result<Planned> {
    // A directory that moves, or goes with its name, changes more than the names.
    let is_directory = source.kind == FileKind::Directory || target.found.is_some_and(|(_, kind)| kind == FileKind::Directory);
    let is_followed = request.from.dir == request.to.dir && !request.exchange && !is_directory;
    let reply = NameReply::Renamed { dir: is_followed.then_some(request.from.dir), replaced: target.found.is_some() };
    Ok(match state.plan_rename(request, source, target)? {
        RenamePlan::Nothing => Planned::Nothing(nothing_renamed()),
        RenamePlan::Parts(parts, cycles) => Planned::Change(NameChange { parts, cycles, who: request.who.clone(), reply }),
    })
}
