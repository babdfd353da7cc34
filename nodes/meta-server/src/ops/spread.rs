//! Directories whose names are with several servers: changes that all of these must hear of.

use weft_base::{ClientId, Nanos, Result, Status};
use weft_namespace::{Record, ServerPart, State, is_for_names, removal_over};
use weft_rt::ServerRuntime;
use weft_wire::ops::{GetAttrRequest, PartitionMap, TxPart};
use weft_wire::{Request, Wire};

use super::names::Planned;
use super::{NameChange, NameReply};
use crate::engine::Engine;
use crate::server::Server;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// True if the request changes what all servers that hold names of a directory must know of it.
    pub(super) fn is_spread(&self, request: &Request) -> bool {
        let is_known = match request {
            Request::SetAttr(_) => true,
            Request::SetXattr(request) => is_for_names(&request.name),
            Request::RemoveXattr(request) => is_for_names(&request.name),
            _ => false,
        };
        is_known && self.state.borrow().is_split(request.object())
    }

    /// Plans such a change.
    pub(super) fn plan_spread_change(&self, state: &State, client: ClientId, request: &Request) -> Result<Planned> {
        let (cx, mut record) = (self.context(client), Record::default());
        let (dir, mut sets_times, mut reply) = (request.object(), (false, false), NameReply::Done);
        let who = match request {
            Request::SetAttr(request) => {
                state.prepare_setattr(&cx, request, &mut record)?;
                sets_times = (request.atime.is_some(), request.mtime.is_some());
                reply = NameReply::Attributes { dir };
                &request.who
            }
            Request::SetXattr(request) => {
                state.prepare_set_xattr(&cx, request, &mut record)?;
                &request.who
            }
            Request::RemoveXattr(request) => {
                state.prepare_remove_xattr(&cx, request, &mut record)?;
                if record.changes.is_empty() {
                    return Ok(Planned::Nothing(().to_bytes()));
                }
                &request.who
            }
            _ => return Err(Status::NotSupported),
        };
        let parts = state.spread_change(dir, &record, sets_times)?;
        Ok(Planned::Change(NameChange { parts, cycles: Vec::new(), who: who.clone(), reply }))
    }

    /// The same change, with the directories that go in it removed from all servers that hold names
    /// of them.
    ///
    /// # Errors
    /// [`Status::Conflict`] if one of them is gone by now; servers that do not answer.
    pub(super) async fn over_partitions(&self, change: NameChange, deadline: Nanos) -> Result<NameChange> {
        let mut parts = Vec::with_capacity(change.parts.len());
        for part in change.parts {
            let TxPart::RemoveDirectory { dir, must_own } = part.part else {
                parts.push(part);
                continue;
            };
            let state = self.shell.caller.call(part.server, &GetAttrRequest { handle: dir }, deadline).await;
            let state = state.map_err(|status| if status == Status::Stale { Status::Conflict } else { status })?;
            match state.partitions.filter(|map: &PartitionMap| map.is_split(dir)) {
                Some(map) => parts.extend(removal_over(&map, dir, must_own)),
                None => parts.push(ServerPart { server: part.server, part: TxPart::RemoveDirectory { dir, must_own } }),
            }
        }
        parts.iter().try_for_each(|part: &ServerPart| self.knows(part.server))?;
        Ok(NameChange { parts, ..change })
    }
}
