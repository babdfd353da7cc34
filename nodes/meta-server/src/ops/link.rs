//! Link: the new name is here, the inode perhaps elsewhere.

use weft_base::Result;
use weft_namespace::State;
use weft_rt::ServerRuntime;
use weft_wire::ops::LinkRequest;

use super::names::Planned;
use super::{NameChange, NameReply};
use crate::engine::Engine;
use crate::server::Server;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    pub(super) fn plan_link(&self, state: &State, request: &LinkRequest) -> Result<Planned> {
        let parts = state.plan_link(request)?;
        let reply = NameReply::Linked(request.clone());
        Ok(Planned::Change(NameChange { parts, cycles: Vec::new(), who: request.who.clone(), reply }))
    }
}
