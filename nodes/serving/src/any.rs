//! What may be asked of any server.

use bytes::Bytes;
use weft_base::{Result, Status};
use weft_live::Gauges;
use weft_rt::Runtime;
use weft_wire::ops::{GetMapReply, LiveReply};
use weft_wire::{Request, Wire};

use crate::Service;
use crate::keys::give_keys;
use crate::meeting::meet;
use crate::set_contract::set_contract;

/// The answer to what may be asked of any server, metadata or data.
///
/// # Errors
/// [`Status::NotSupported`] for all other requests; why it cannot be answered.
pub async fn answer_of_any<S: Service>(server: &S, request: Request) -> Result<Bytes> {
    let shell = server.shell();
    let trace = || shell.identity.process.trace.ok_or(Status::NotSupported);
    Ok(match request {
        Request::Ping(_) => server.info().await?.to_bytes(),
        Request::Live(_) => live_report(server).await?.to_bytes(),
        Request::Meet(request) => meet(server, request).await?.to_bytes(),
        Request::GetKeys(request) => give_keys(&**shell.identity.process.keys.as_ref().ok_or(Status::NotSupported)?, &request)?.to_bytes(),
        Request::SetDurability(request) => set_contract(server, &request).await?.to_bytes(),
        Request::GetMap(_) if shell.introduction.epoch() == 0 => return Err(Status::NotReady),
        Request::GetMap(_) => GetMapReply { map: (*shell.introduction.map()).clone(), name_key: shell.identity.name_key }.to_bytes(),
        Request::Trace(request) => (trace()?.command)(&request).to_bytes(),
        Request::TraceRead(request) => (trace()?.read)(&request)?.to_bytes(),
        _ => return Err(Status::NotSupported),
    })
}

async fn live_report<S: Service>(server: &S) -> Result<LiveReply> {
    let shell = server.shell();
    // The question itself is no work that waits.
    let queued = shell.counts.queued.get().saturating_sub(1);
    let info = server.info().await?;
    let gauges = Gauges { queued, ..server.gauges() };
    Ok(shell.live.borrow_mut().report(shell.rt.now(), info, gauges))
}
