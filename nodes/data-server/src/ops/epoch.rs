//! ObjectEpoch: somebody has set the time of the file, and what is written from now on comes after
//! that.

use weft_base::{Result, Status};
use weft_rt::{ServerRuntime, Work};
use weft_store::objects::ObjectTable;
use weft_wire::ops::ObjectEpochRequest;
use weft_wire::{Header, Op, Rights};

use super::{object, when_written};
use crate::done::Done;
use crate::state::Server;

/// Begins the epoch, unless the datafile is in it or a later one already.
pub async fn epoch<R: ServerRuntime>(server: &Server<R>, header: &Header, request: &ObjectEpochRequest) -> Result<Done> {
    server.authorize(&request.capability, request.handle, header.request.client, Rights::MANAGE)?;
    let key = object(request.handle, request.index)?;
    server.rt.cpu(Work::Record).await;
    let plan = |table: &ObjectTable| match server.objects.is_removed(key) {
        true => Err(Status::Stale),
        false => Ok(table.plan_epoch(key, request.mtime_epoch)),
    };
    server.objects.change(Op::ObjectEpoch, plan).await?;
    // The record says how large the object is. So it is believed after a power cut only if a sync
    // of the data before it was noted, although it brings no data of its own.
    Ok(Done { when: when_written(server, false), ..Done::now(&()) })
}
