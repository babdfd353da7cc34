//! ObjectTruncate: cuts a datafile, once for each truncation of the file. Final when it is
//! answered: no crash brings back what was cut.

use weft_base::{DataTime, Result, Status};
use weft_rt::{FaultPoint, ServerRuntime, Work};
use weft_store::objects::{ObjectKey, ObjectTable};
use weft_wire::ops::ObjectTruncateRequest;
use weft_wire::{Header, Op, Rights};

use super::{object, when_cut};
use crate::done::Done;
use crate::state::Server;

/// Cuts the datafile if it is longer. `executed`: the same request was executed before.
pub async fn truncate<R: ServerRuntime>(
    server: &Server<R>,
    header: &Header,
    request: &ObjectTruncateRequest,
    executed: bool,
) -> Result<Done> {
    server.authorize(&request.capability, request.handle, header.request.client, Rights::MANAGE)?;
    let key = object(request.handle, request.index)?;
    if !executed && !server.objects.is_removed(key) {
        cut(server, key, request.size, request.truncate_epoch).await?;
    }
    Ok(Done { when: when_cut(server), ..Done::now(&()) })
}

async fn cut<R: ServerRuntime>(server: &Server<R>, key: ObjectKey, size: u64, epoch: u32) -> Result<()> {
    server.rt.cpu(Work::Record).await;
    server.rt.pass(FaultPoint::DataTruncate).await;
    let plan = |table: &ObjectTable| {
        let stat = table.stat(key);
        if stat.is_some_and(|stat| stat.truncate_epoch >= epoch) {
            return Ok(None);
        }
        // The time of a truncation is kept by the inode; this one is the time of the last write.
        let kept = size.min(stat.map_or(0, |stat| stat.size_bytes));
        table.plan_truncate(key, kept, DataTime::NONE, epoch).map_err(|_| Status::FileTooBig)
    };
    server.objects.change(Op::ObjectTruncate, plan).await.map(drop)
}
