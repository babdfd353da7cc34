//! Ping, Live, GetMap and Trace: what any server answers to anybody who holds the cluster key.

use weft_base::{MILLISECOND, Result, Status};
use weft_live::Gauges;
use weft_rt::{Disk, ServerRuntime};
use weft_wire::ops::{ServerInfo, TraceReadRequest, TraceRequest, TraceService};

use super::Done;
use crate::state::Server;

/// What the server says of itself.
pub async fn ping<R: ServerRuntime>(server: &Server<R>) -> Result<Done> {
    Ok(Done::now(&server_info(server).await))
}

/// The same, and what it is busy with.
pub async fn live<R: ServerRuntime>(server: &Server<R>) -> Result<Done> {
    let info = server_info(server).await;
    let mut live = server.live.borrow_mut();
    let (cache_bytes, cache_bytes_max) = server.cache.answered_bytes();
    let gauges = Gauges {
        // The question itself is no work that waits.
        queued: (live.in_flight.len() as u32).saturating_sub(1),
        clients: server.clients.borrow().connected_count(),
        cache_bytes,
        cache_bytes_max,
    };
    Ok(Done::now(&live.report(server.rt.now(), info, gauges)))
}

async fn server_info<R: ServerRuntime>(server: &Server<R>) -> ServerInfo {
    let space = server.space_report().await;
    let (_, device_free_bytes) = server.rt.disk().space().await.unwrap_or_default();
    let usage = server.rt.usage();
    let journal = server.journal.as_ref().map(|journal| journal.stats()).unwrap_or_default();
    let config = &server.config;
    ServerInfo {
        fs_id: config.map.fs_id,
        fs_name: config.map.fs_name.clone(),
        server: config.server,
        name: config.name.clone(),
        owns_root: false,
        engine: config.engine.name().to_string(),
        durability: config.durability.name().to_string(),
        state: if server.introduction.is_complete() { "serving" } else { "waiting for the metadata servers to know it" }.to_string(),
        uptime_ms: server.rt.now().since(server.started) / MILLISECOND,
        boot: server.boot,
        objects: server.table.borrow().object_count(),
        used_bytes: space.used,
        capacity_bytes: space.capacity,
        free_bytes: space.free,
        requests: usage.received_messages,
        received_bytes: usage.received_bytes,
        sent_bytes: usage.sent_bytes,
        cpu_us: usage.cpu_us,
        turns: server.turns.get(),
        journal_writes: journal.writes,
        journal_syncs: journal.syncs,
        disk: Some(server.cache.disk_use()),
        device: server.rt.disk().device(),
        device_free_bytes,
    }
}

/// Switches the recording of traces.
pub fn trace<R: ServerRuntime>(server: &Server<R>, request: &TraceRequest) -> Result<Done> {
    Ok(Done::now(&(trace_service(server)?.command)(request)))
}

/// A piece of what was recorded.
pub fn trace_read<R: ServerRuntime>(server: &Server<R>, request: &TraceReadRequest) -> Result<Done> {
    Ok(Done::now(&(trace_service(server)?.read)(request)?))
}

fn trace_service<R: ServerRuntime>(server: &Server<R>) -> Result<TraceService> {
    server.config.trace.ok_or(Status::NotSupported)
}

/// The cluster map.
pub fn get_map<R: ServerRuntime>(server: &Server<R>) -> Result<Done> {
    Ok(Done::now(&server.config.map))
}
