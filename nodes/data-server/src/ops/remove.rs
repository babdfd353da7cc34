//! ObjectRemove: a datafile is gone for ever. Idempotent.

use weft_base::Result;
use weft_rt::{ServerRuntime, Work};
use weft_wire::ops::ObjectRemoveRequest;
use weft_wire::{Header, Rights};

use super::{object, when_cut};
use crate::done::Done;
use crate::state::Server;

/// Removes the datafile.
pub async fn remove<R: ServerRuntime>(server: &Server<R>, header: &Header, request: &ObjectRemoveRequest) -> Result<Done> {
    server.authorize(&request.capability, request.handle, header.request.client, Rights::MANAGE)?;
    let key = object(request.handle, request.index)?;
    server.rt.cpu(Work::Record).await;
    loop {
        let record = server.table.borrow().plan_remove(key);
        let Some(record) = record else { break };
        if server.accepts(&record) {
            server.change(&record);
            break;
        }
        server.make_room(&record, true).await?;
    }
    server.removed.borrow_mut().note(key, server.rt.now());
    Ok(Done { when: when_cut(server), ..Done::now(&()) })
}
