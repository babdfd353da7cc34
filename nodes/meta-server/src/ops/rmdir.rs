//! Rmdir: the name is here, the directory perhaps elsewhere.

use weft_base::Result;
use weft_namespace::State;
use weft_rt::ServerRuntime;
use weft_wire::ops::RmdirRequest;

use super::names::Planned;
use super::{NameChange, NameReply};
use crate::engine::Engine;
use crate::server::Server;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    pub(super) fn plan_rmdir(&self, state: &State, request: &RmdirRequest) -> Result<Planned> {
        let parts = state.plan_rmdir(request)?;
        let reply = NameReply::Removed { dir: request.at.dir };
        Ok(Planned::Change(NameChange { parts, cycles: Vec::new(), who: request.who.clone(), reply }))
    }
}
