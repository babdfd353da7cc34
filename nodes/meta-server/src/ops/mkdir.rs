//! Mkdir: the name is here, the directory where its place is.

use weft_base::{Result, Status};
use weft_namespace::{HoldAsked, State};
use weft_rt::ServerRuntime;
use weft_wire::ops::{MkdirRequest, TxPart};

use super::names::{MadeDirectory, Planned};
use super::{NameChange, NameReply};
use crate::engine::Engine;
use crate::server::Server;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    pub(super) fn plan_mkdir(&self, state: &State, request: &MkdirRequest) -> Result<Planned> {
        let parts = state.plan_mkdir(request)?;
        let make = parts.iter().find(|part| matches!(part.part, TxPart::MakeDirectory { .. })).ok_or(Status::Invalid)?;
        let hints = parts.iter().find_map(|part| match &part.part {
            TxPart::InheritHints { hints } => Some(hints.clone()),
            _ => None,
        });
        let map = parts.iter().find_map(|part| match &part.part {
            TxPart::MakePartition { map, .. } => Some(map.clone()),
            _ => None,
        });
        let (part, hints) = (make.part.clone(), hints.unwrap_or_default());
        let is_here = make.server == request.at.dir.server();
        let asked = HoldAsked::of(request.can_hold.filter(|_| is_here), request.can_delay);
        let reply = NameReply::Made { made: Box::new(MadeDirectory { part, hints, map }), dir: request.at.dir, asked };
        Ok(Planned::Change(NameChange { parts, cycles: Vec::new(), who: request.who.clone(), reply }))
    }
}
