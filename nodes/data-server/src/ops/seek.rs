//! ObjectSeek: where bytes were written, and where not.

use weft_base::{Result, Status};
use weft_rt::ServerRuntime;
use weft_wire::ops::{ObjectSeekReply, ObjectSeekRequest};
use weft_wire::{Header, Rights};

use super::object;
use crate::done::Done;
use crate::state::Server;

/// Looks for the byte.
///
/// # Errors
/// [`Status::Stale`] if the datafile was removed.
pub fn seek<R: ServerRuntime>(server: &Server<R>, header: &Header, request: &ObjectSeekRequest) -> Result<Done> {
    server.authorize(&request.capability, request.handle, header.request.client, Rights::default())?;
    let key = object(request.handle, request.index)?;
    if server.objects.is_removed(key) {
        return Err(Status::Stale);
    }
    let table = server.objects.table.borrow();
    let at = match request.hole {
        true => Some(table.next_hole(key, request.offset)),
        false => table.next_data(key, request.offset),
    };
    Ok(Done::now(&ObjectSeekReply { at }))
}
