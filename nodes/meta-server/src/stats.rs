//! What the server tells about itself.

use std::rc::Rc;

use bytes::Bytes;
use weft_base::{MILLISECOND, ROOT_HANDLE, Result};
use weft_live::Gauges;
use weft_rt::{Disk, ServerRuntime};
use weft_wire::Wire;
use weft_wire::ops::ServerInfo;

use crate::engine::{Engine, Room};
use crate::server::Server;

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Requests received.
    pub(crate) requests: u64,
    /// Turns that had requests.
    pub(crate) turns: u64,
}

/// Memory and journal of one inode with its entry, about, in bytes. Extended attributes come on top.
const BYTES_PER_INODE: u64 = 512;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// The answer to a ping.
    pub(crate) async fn ping(self: Rc<Self>) -> Result<Bytes> {
        Ok(self.server_info().await?.to_bytes())
    }

    /// The answer to a dashboard.
    pub(crate) async fn live_report(self: Rc<Self>) -> Result<Bytes> {
        // The question itself is no work that waits.
        let gauges = Gauges { queued: self.queued.get().saturating_sub(1), ..Gauges::default() };
        let info = self.server_info().await?;
        let gauges = Gauges { clients: self.sessions.borrow().connected_count(), ..gauges };
        let reply = self.live.borrow_mut().report(self.rt.now(), info, gauges);
        Ok(reply.to_bytes())
    }

    async fn server_info(&self) -> Result<ServerInfo> {
        let (capacity_bytes, free_bytes) = self.rt.disk().space().await?;
        let usage = self.rt.usage();
        let counters = *self.counters.borrow();
        let journal = self.engine.stats();
        let state = self.state.borrow();
        let objects = state.inode_count();
        let info = ServerInfo {
            fs_id: self.config.map.fs_id,
            fs_name: self.config.map.fs_name.clone(),
            server: self.config.server,
            name: self.config.name.clone(),
            owns_root: state.peek(ROOT_HANDLE).is_some(),
            engine: self.config.engine.name().into(),
            durability: self.config.durability.name().into(),
            state: match self.engine.room() {
                _ if !self.introduction.is_complete() => "waiting for the other servers to know it".into(),
                Room::Plenty => "serving".into(),
                Room::Low | Room::None => "read-only: the disk is full".into(),
            },
            uptime_ms: self.rt.now().since(self.started) / MILLISECOND,
            boot: self.boot,
            objects,
            used_bytes: objects * BYTES_PER_INODE + state.xattr_bytes(),
            capacity_bytes,
            free_bytes,
            requests: counters.requests,
            received_bytes: usage.received_bytes,
            sent_bytes: usage.sent_bytes,
            cpu_us: usage.cpu_us,
            turns: counters.turns,
            journal_writes: journal.writes,
            journal_syncs: journal.syncs,
            disk: None,
            device: self.rt.disk().device(),
            device_free_bytes: free_bytes,
        };
        Ok(info)
    }
}
