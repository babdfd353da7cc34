//! ObjectSync: everything that was acknowledged for the datafile is on stable storage when this is
//! answered. The answer waits in a flow of its own; other requests go on.

use weft_base::Result;
use weft_rt::ServerRuntime;
use weft_wire::ops::ObjectSyncRequest;
use weft_wire::{Header, Rights};

use crate::done::{Done, When};
use crate::state::Server;

/// Answers when all changes until now are durable.
pub fn sync<R: ServerRuntime>(server: &Server<R>, header: &Header, request: &ObjectSyncRequest) -> Result<Done> {
    server.authorize(&request.capability, request.handle, header.request.client, Rights::default())?;
    Ok(Done { when: When::Durable(server.objects.progress.newest()), ..Done::now(&()) })
}
