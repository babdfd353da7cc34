//! ObjectPunch: bytes of a datafile become a hole, and the blocks in which nothing else lies are
//! free. It is acknowledged as a write is, and survives what a write survives.

use weft_base::{Result, Status};
use weft_rt::{ServerRuntime, Work};
use weft_store::objects::{OBJECT_BYTES_MAX, ObjectKey, ObjectTable};
use weft_wire::ops::ObjectPunchRequest;
use weft_wire::{Header, Op, Rights};

use super::object;
use super::write::{answer, time_of_write};
use crate::done::Done;
use crate::objects::Objects;
use crate::state::Server;

/// Makes the hole. `executed`: the same request was executed before.
///
/// # Errors
/// [`Status::Stale`] if the datafile was removed, [`Status::Invalid`] for a hole without bytes.
pub async fn punch<R: ServerRuntime>(server: &Server<R>, header: &Header, request: &ObjectPunchRequest, executed: bool) -> Result<Done> {
    server.authorize(&request.capability, request.handle, header.request.client, Rights::WRITE)?;
    let key = object(request.handle, request.index)?;
    if request.bytes == 0 {
        return Err(Status::Invalid);
    }
    // Behind the largest object there is nothing.
    let end = request.offset.saturating_add(request.bytes).min(OBJECT_BYTES_MAX);
    if !executed && request.offset < end {
        make_hole(server, key, (request.offset, end), request.mtime_epoch).await?;
    }
    Ok(answer(server, key, false))
}

async fn make_hole<R: ServerRuntime>(server: &Server<R>, key: ObjectKey, (start, end): (u64, u64), epoch: u32) -> Result<()> {
    let objects = &server.objects;
    server.rt.cpu(Work::Record).await;
    let plan = |table: &ObjectTable| match objects.is_removed(key) {
        true => Err(Status::Stale),
        false => table.plan_punch(key, start, end - start, time_of_write(table, key, epoch, objects)).map_err(|_| Status::FileTooBig),
    };
    match objects.change(Op::ObjectPunch, plan).await? {
        true => Ok(()),
        false => changed_nothing(objects, key, epoch).await,
    }
}

/// Notes the time of a change that has found its bytes as they shall be. A datafile that was never
/// written does not begin to exist: nobody would look for it behind the end of the file.
///
/// # Errors
/// [`Status::Io`].
pub(super) async fn changed_nothing<R: ServerRuntime>(objects: &Objects<R>, key: ObjectKey, epoch: u32) -> Result<()> {
    let plan = |table: &ObjectTable| Ok(table.plan_time(key, time_of_write(table, key, epoch, objects)));
    match objects.change(Op::Write, plan).await {
        // Without room its time is kept as that of the next change is.
        Ok(false) | Err(Status::NoSpace) => {
            let mtime = time_of_write(&objects.table.borrow(), key, epoch, objects);
            objects.wrote_in_place(key, mtime);
            Ok(())
        }
        outcome => outcome.map(drop),
    }
}
