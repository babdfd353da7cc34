//! ObjectRemove: a datafile is gone for ever. Idempotent.

use weft_base::Result;
use weft_rt::{ServerRuntime, Work};
use weft_wire::ops::ObjectRemoveRequest;
use weft_wire::{Header, Op, Rights};

use super::{object, when_cut};
use crate::done::Done;
use crate::state::Server;

/// Removes the datafile.
pub async fn remove<R: ServerRuntime>(server: &Server<R>, header: &Header, request: &ObjectRemoveRequest) -> Result<Done> {
    server.authorize(&request.capability, request.handle, header.request.client, Rights::MANAGE)?;
    let key = object(request.handle, request.index)?;
    server.rt.cpu(Work::Record).await;
    server.objects.change(Op::ObjectRemove, |table| Ok(table.plan_remove(key))).await?;
    server.objects.removed.borrow_mut().note(key, server.rt.now());
    Ok(Done { when: when_cut(server), ..Done::now(&()) })
}
