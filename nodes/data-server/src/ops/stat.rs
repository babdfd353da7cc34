//! ObjectStat: local size and times.

use weft_base::{DataTime, Result, Status};
use weft_rt::ServerRuntime;
use weft_wire::ops::{ObjectStatReply, ObjectStatRequest};
use weft_wire::{Header, Rights};

use super::object;
use crate::done::Done;
use crate::state::Server;

/// Tells what is known of the datafile; one that was never written has size 0 and the time of no
/// write.
///
/// # Errors
/// [`Status::Stale`] if it was removed: size 0 would be the size of a file that still is.
pub fn stat<R: ServerRuntime>(server: &Server<R>, header: &Header, request: &ObjectStatRequest) -> Result<Done> {
    server.authorize(&request.capability, request.handle, header.request.client, Rights::default())?;
    let key = object(request.handle, request.index)?;
    let reply = match server.objects.table.borrow().stat(key) {
        Some(stat) => ObjectStatReply { size: stat.size_bytes, allocated_bytes: stat.allocated_bytes, mtime: stat.mtime },
        None if server.objects.is_removed(key) => return Err(Status::Stale),
        None => ObjectStatReply { size: 0, allocated_bytes: 0, mtime: DataTime::NONE },
    };
    Ok(Done::now(&reply))
}
