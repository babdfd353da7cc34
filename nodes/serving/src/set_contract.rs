//! The contract of durability, set while a server runs.
//!
//! What was acknowledged keeps what it was promised: a weaker contract is noted durably first and
//! then used; a stricter one is used first, everything of before is flushed, and then it is noted.
//! Whatever ends the server in between, the next life works under one of the two, and the request
//! is not answered.

use weft_base::{Result, Status};
use weft_rt::ServerRuntime;
use weft_wire::ops::SetDurabilityRequest;

use crate::{Durability, Service, Shell};

/// Sets the contract.
///
/// # Errors
/// [`Status::Invalid`] for an unknown name, [`Status::NotSupported`] if nothing outlives the
/// server, [`Status::Busy`] while somebody else sets it, why the disk refused.
pub(crate) async fn set_contract<S: Service>(server: &S, request: &SetDurabilityRequest) -> Result<()> {
    let Shell { identity, introduction, .. } = server.shell();
    let wanted: Durability = request.durability.parse().map_err(|_| Status::Invalid)?;
    if !identity.engine.is_kept() {
        return Err(Status::NotSupported);
    }
    if introduction.is_contract_changing.replace(true) {
        return Err(Status::Busy);
    }
    let changed = change(server, wanted).await;
    introduction.is_contract_changing.set(false);
    changed
}

async fn change<S: Service>(server: &S, wanted: Durability) -> Result<()> {
    let Shell { rt, identity, introduction, .. } = server.shell();
    let before = identity.durability.get();
    let noted = introduction.note_durability(rt.disk(), wanted, server.boot_id(wanted));
    if wanted.is_weaker_than(before) {
        noted.await?;
        server.promise(wanted).await?;
    } else {
        server.promise(wanted).await?;
        let safe = async {
            server.flush().await?;
            noted.await
        };
        if let Err(status) = safe.await {
            server.promise(before).await?;
            return Err(status);
        }
    }
    identity.durability.set(wanted);
    Ok(())
}
