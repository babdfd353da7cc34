//! Unlink: the name is here, the inode nearly always too. What remains of a file is removed later
//! (`reap.rs`).

use weft_base::Result;
use weft_namespace::{HoldAsked, State};
use weft_rt::ServerRuntime;
use weft_wire::ops::UnlinkRequest;

use super::names::Planned;
use super::{NameChange, NameReply};
use crate::engine::Engine;
use crate::server::Server;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    pub(super) fn plan_unlink(&self, state: &State, request: &UnlinkRequest) -> Result<Planned> {
        let (handle, parts) = state.plan_unlink(request)?;
        let is_here = handle.server() == request.at.dir.server();
        let asked = HoldAsked::of(request.can_hold.filter(|_| is_here), request.can_delay);
        Ok(Planned::Change(NameChange {
            parts,
            cycles: Vec::new(),
            who: request.who.clone(),
            reply: NameReply::Unlinked { dir: request.at.dir, handle, asked },
        }))
    }
}
