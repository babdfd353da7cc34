//! What servers tell about themselves, and what they are told to record.

use weft_base::{Handle, SECOND, ServerEntry, ServerId, ServerRole};
use weft_call::run_window;
use weft_rt::{Bulk, Runtime};
use weft_wire::ops::{
    GetKeysRequest, LiveReply, LiveRequest, PingRequest, ServerInfo, SetDurabilityRequest, TraceReadReply, TraceReadRequest, TraceReply,
    TraceRequest,
};

use super::DataSpace;
use crate::{Client, Error, FsStats, Result};

/// Longest wait for the answer to a ping or a dashboard's question, in nanoseconds.
const PING_DEADLINE: u64 = 2 * SECOND;

impl<R: Runtime> Client<R> {
    /// Asks one server who it is and how it is. Gives up after 2 s.
    ///
    /// # Errors
    /// What prevents an answer: [`weft_base::Status::TimedOut`],
    /// [`weft_base::Status::Unreachable`], or what the handshake says.
    pub async fn ping(&self, server: ServerId) -> Result<ServerInfo> {
        let mut flow = self.flow("ping", Handle(0));
        flow.deadline = flow.deadline.min(self.rt().now() + PING_DEADLINE);
        self.call(flow, server, &PingRequest {}).await
    }

    /// As [`Client::ping`], with data beside the request that the server takes in and throws away:
    /// what a message of so many bytes costs.
    ///
    /// # Errors
    /// As [`Client::ping`], but within the usual deadline; [`weft_base::Status::TooBig`] above
    /// [`weft_wire::BULK_BYTES_MAX`].
    pub async fn ping_with(&self, server: ServerId, data: &[u8]) -> Result<ServerInfo> {
        let bulk = if data.is_empty() { Bulk::None } else { Bulk::Slices(vec![data]) };
        Ok(self.call_with_bulk(self.flow("ping", Handle(0)), server, &PingRequest {}, bulk).await?.0)
    }

    /// Sets the contract under which one server acknowledges changes: `sync`, `batch` or `none`.
    ///
    /// # Errors
    /// [`weft_base::Status::Invalid`] for another name, [`weft_base::Status::NotSupported`] of a
    /// server that keeps nothing or is too old to know; servers that do not answer.
    pub async fn set_durability(&self, server: ServerId, durability: &str) -> Result<()> {
        let flow = self.flow("set the durability", Handle(0));
        self.call(flow, server, &SetDurabilityRequest { durability: durability.into() }).await
    }

    /// Asks one server what it has done and is busy with. Gives up after 2 s.
    ///
    /// # Errors
    /// As [`Client::ping`]; [`weft_base::Status::NotSupported`] from a server that is too old to
    /// know.
    pub async fn live(&self, server: ServerId) -> Result<LiveReply> {
        let mut flow = self.flow("ask for live numbers", Handle(0));
        flow.deadline = flow.deadline.min(self.rt().now() + PING_DEADLINE);
        self.call(flow, server, &LiveRequest {}).await
    }

    /// Tells one server what to record of itself. Gives up after 2 s.
    ///
    /// # Errors
    /// As [`Client::ping`]; [`weft_base::Status::NotSupported`] if the server may not be told.
    pub async fn trace(&self, server: ServerId, request: &TraceRequest) -> Result<TraceReply> {
        let mut flow = self.flow("trace", Handle(0));
        flow.deadline = flow.deadline.min(self.rt().now() + PING_DEADLINE);
        self.call(flow, server, request).await
    }

    /// Reads a piece of what one server has recorded. Gives up after 2 s.
    ///
    /// # Errors
    /// As [`Client::trace`]; [`weft_base::Status::NotFound`] if there is no such file,
    /// [`weft_base::Status::Io`] if it cannot be read.
    pub async fn trace_read(&self, server: ServerId, request: &TraceReadRequest) -> Result<TraceReadReply> {
        let mut flow = self.flow("read a trace", Handle(0));
        flow.deadline = flow.deadline.min(self.rt().now() + PING_DEADLINE);
        self.call(flow, server, request).await
    }

    /// Pings every server of the map at once; one result for each, metadata servers first. Takes 2
    /// s at most.
    pub async fn ping_all(&self) -> Vec<(ServerId, Result<ServerInfo>)> {
        let mut answers: Vec<(ServerId, Result<ServerInfo>)> = Vec::new();
        loop {
            // The answers may tell of a map with more servers.
            let asked = |id: ServerId| answers.iter().any(|(server, _)| *server == id);
            let servers: Vec<ServerId> = self.map().servers().map(|entry| entry.id).filter(|id| !asked(*id)).collect();
            if servers.is_empty() {
                return answers;
            }
            let results = run_window(servers.iter().map(|server| self.ping(*server)), self.options().window).await;
            answers.extend(servers.into_iter().zip(results));
            answers.sort_unstable_by_key(|(server, _)| *server);
        }
    }

    /// Asks every server of the map at once by which list of keys it goes: the fingerprint of each,
    /// in the order of the map. Takes 2 s at most. It needs the key of the servers.
    pub async fn key_lists(&self, known: u64) -> Vec<(ServerEntry, Result<u64>)> {
        let map = self.map();
        let ask = async |server: ServerId| {
            let mut flow = self.flow("ask for the list of keys", Handle(0));
            flow.deadline = flow.deadline.min(self.rt().now() + PING_DEADLINE);
            self.call(flow, server, &GetKeysRequest { known, offset: 0 }).await.map(|reply| reply.fingerprint)
        };
        let answers = run_window(map.servers().map(|server| ask(server.id)), self.options().window).await;
        map.servers().cloned().zip(answers).collect()
    }

    /// Sums capacity and use over all servers; a disk that several share is counted once. Servers
    /// that do not answer within 2 s are named in the result.
    ///
    /// # Errors
    /// That of the first server if none answers.
    pub async fn statfs(&self) -> Result<FsStats> {
        let mut stats = FsStats::default();
        let answers = self.ping_all().await;
        let servers = answers.len();
        let space = DataSpace::of(answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()));
        (stats.capacity_bytes, stats.free_bytes, stats.used_bytes) = (space.capacity_bytes, space.free_bytes, space.used_bytes);
        for (server, answer) in answers {
            match answer {
                Ok(_) if server.role() == ServerRole::Data => {}
                Ok(info) => stats.inodes += info.objects,
                Err(error) => stats.unanswered.push(Error { operation: "statfs", ..error }),
            }
        }
        if stats.unanswered.len() == servers { Err(stats.unanswered[0]) } else { Ok(stats) }
    }
}
