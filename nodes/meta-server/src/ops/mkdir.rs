//! Mkdir: the name is here, the directory where its place is.

use weft_base::Result;
use weft_namespace::State;
use weft_rt::ServerRuntime;
use weft_wire::ops::{MkdirRequest, TxPart};

use super::names::Planned;
use super::{NameChange, NameReply};
use crate::engine::Engine;
use crate::server::Server;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    pub(super) fn plan_mkdir(&self, state: &State, request: &MkdirRequest) -> Result<Planned> {
        let parts = state.plan_mkdir(request)?;
        let make = parts.iter().find(|part| matches!(part.part, TxPart::MakeDirectory { .. }));
        let reply = make.map_or(NameReply::Done, |part| NameReply::Made(part.part.clone()));
        Ok(Planned::Change(NameChange { parts, cycles: Vec::new(), who: request.who.clone(), reply }))
    }
}
