//! What a server tells about itself.

use bytes::Bytes;
use weft_base::{MILLISECOND, Result};
use weft_journal::JournalStats;
use weft_live::Gauges;
use weft_rt::{Disk, Runtime, ServerRuntime};
use weft_wire::Wire;
use weft_wire::ops::{DiskUse, ServerInfo};

use crate::Service;

/// What only the server itself knows.
#[derive(Clone, Debug)]
pub struct Facts {
    /// It holds the root directory.
    pub owns_root: bool,
    /// What it does, for people.
    pub state: &'static str,
    /// Inodes or datafiles.
    pub objects: u64,
    /// Bytes that they take.
    pub used_bytes: u64,
    /// Bytes that there are.
    pub capacity_bytes: u64,
    /// Of these, free.
    pub free_bytes: u64,
    /// Free bytes of the disk.
    pub device_free_bytes: u64,
    /// Counters of the journal.
    pub journal: JournalStats,
    /// What was asked of the disk beside the journal.
    pub disk: Option<DiskUse>,
}

/// The answer to a ping.
///
/// # Errors
/// The disk does not say how large it is.
pub async fn ping<S: Service>(server: &S) -> Result<Bytes> {
    Ok(server_info(server).await?.to_bytes())
}

/// The answer to a dashboard.
///
/// # Errors
/// As [`ping`].
pub async fn live_report<S: Service>(server: &S) -> Result<Bytes> {
    let shell = server.shell();
    // The question itself is no work that waits.
    let queued = shell.queued().saturating_sub(1);
    let info = server_info(server).await?;
    let gauges = Gauges { queued, ..server.gauges() };
    let reply = shell.live.borrow_mut().report(shell.rt().now(), info, gauges);
    Ok(reply.to_bytes())
}

async fn server_info<S: Service>(server: &S) -> Result<ServerInfo> {
    let facts = server.facts().await?;
    let shell = server.shell();
    let (identity, usage, (requests, turns)) = (shell.identity(), shell.rt().usage(), shell.counts());
    Ok(ServerInfo {
        fs_id: identity.map.fs_id,
        fs_name: identity.map.fs_name.clone(),
        server: identity.server,
        name: identity.name.clone(),
        owns_root: facts.owns_root,
        engine: identity.engine.name().into(),
        durability: identity.durability.name().into(),
        state: facts.state.into(),
        uptime_ms: shell.rt().now().since(shell.started()) / MILLISECOND,
        boot: identity.boot,
        objects: facts.objects,
        used_bytes: facts.used_bytes,
        capacity_bytes: facts.capacity_bytes,
        free_bytes: facts.free_bytes,
        requests,
        received_bytes: usage.received_bytes,
        sent_bytes: usage.sent_bytes,
        cpu_us: usage.cpu_us,
        turns,
        journal_writes: facts.journal.writes,
        journal_syncs: facts.journal.syncs,
        disk: facts.disk,
        device: shell.rt().disk().device(),
        device_free_bytes: facts.device_free_bytes,
    })
}
