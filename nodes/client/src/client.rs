//! The client: what all operations share. The operations themselves are in the modules beside this
//! one, one idea each.

use std::sync::Arc;

use weft_base::{Attr, ClusterMap, Handle, Nanos, Payload, SECOND, ServerId, ServerRole};
use weft_call::{Caller, CallerStats, run_window};
use weft_rt::{Bulk, Runtime};
use weft_wire::Operation;
use weft_wire::ops::{LiveReply, LiveRequest, PingRequest, ServerInfo, TraceReadReply, TraceReadRequest, TraceReply, TraceRequest};

use crate::error::{Error, Result};
use crate::flow::Flow;
use crate::knowledge::{Asked, Changing, Knowledge, Touched};
use crate::maps::Maps;
use crate::open_table::OpenTable;
use crate::silent::Silent;
use crate::space::DataSpace;
use crate::types::{ClientOptions, FsStats};

/// Longest wait for the answer to a ping or a dashboard's question, in nanoseconds.
const PING_DEADLINE: u64 = 2 * SECOND;

/// A client of one file system. Cheap to clone; all clones are one client. `Send` and `Sync` when
/// the runtime is: threads call it at once, each driving its own operation.
pub struct Client<R: Runtime> {
    pub(crate) inner: Arc<Inner<R>>,
    /// Operations end by then, if that is before their own deadline.
    until: Nanos,
}

pub(crate) struct Inner<R> {
    pub(crate) caller: Caller<R>,
    pub(crate) maps: Maps,
    pub(crate) options: ClientOptions,
    pub(crate) opens: OpenTable,
    pub(crate) knowledge: Knowledge,
    pub(crate) silent: Silent,
}

impl<R: Runtime> Clone for Client<R> {
    fn clone(&self) -> Self {
        Client { inner: self.inner.clone(), until: self.until }
    }
}

impl<R: Runtime> Client<R> {
    /// A client of the file system that `map` describes. Sends nothing.
    pub fn new(rt: R, map: ClusterMap, options: ClientOptions) -> Client<R> {
        let caller = Caller::new(rt, options.client, options.incarnation);
        let knowledge = Knowledge::new(options.attr_cache_ns);
        let (opens, silent) = (OpenTable::default(), Silent::default());
        let inner = Inner { caller, maps: Maps::new(map), options, opens, knowledge, silent };
        Client { inner: Arc::new(inner), until: Nanos::NEVER }
    }

    /// The runtime.
    pub fn rt(&self) -> &R {
        self.inner.caller.rt()
    }

    /// How the client behaves.
    pub fn options(&self) -> &ClientOptions {
        &self.inner.options
    }

    /// This client for what its user sees as one operation: all calls together take as long as one
    /// may ([`ClientOptions::deadline_ns`]), counted from now.
    pub fn for_one_operation(&self) -> Client<R> {
        let deadline = self.rt().now() + self.inner.options.deadline_ns;
        Client { inner: self.inner.clone(), until: self.until.min(deadline) }
    }

    /// From now on what this client does in a directory is followed: "no such name" may be answered
    /// without asking in directories that it has made, and [`Client::known_directory`] has answers,
    /// as long as nobody else is seen to change the directory, and at most this many nanoseconds
    /// after the server was last asked. 0 (at first): always ask.
    pub fn follow_directories(&self, age_max_ns: u64) {
        self.inner.knowledge.follow(age_max_ns);
    }

    /// The attributes of a directory that this client has just changed, if they are known without
    /// asking, and how many nanoseconds ago they were certainly true. Only after
    /// [`Client::follow_directories`].
    pub fn known_directory(&self, dir: Handle) -> Option<(Attr, u64)> {
        self.inner.knowledge.directory(dir, self.rt().now())
    }

    /// Counters of messages and bytes since the client was made.
    pub fn stats(&self) -> CallerStats {
        self.inner.caller.stats()
    }

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

    /// Begins an operation of the API.
    pub(crate) fn flow(&self, operation: &'static str, handle: Handle) -> Flow {
        let deadline = self.rt().now() + self.inner.options.deadline_ns;
        Flow { operation, handle, deadline: deadline.min(self.until) }
    }

    /// Notes when a question is asked whose answer may be kept.
    pub(crate) fn ask(&self) -> Asked {
        self.inner.knowledge.ask(self.rt().now(), self.inner.opens.reports())
    }

    /// This client is about to change something: see [`Changing`].
    pub(crate) fn changing<'a>(&'a self, touched: Touched<'a>) -> Changing<'a> {
        self.inner.knowledge.changing(touched, self.rt().now(), self.inner.opens.reports())
    }

    /// The metadata server that owns `handle`.
    pub(crate) fn owner(&self, flow: Flow, handle: Handle) -> Result<ServerId> {
        self.map().owner(handle).map_err(|status| flow.error(status))
    }

    /// One request of an operation.
    pub(crate) async fn call<O: Operation>(&self, flow: Flow, server: ServerId, operation: &O) -> Result<O::Reply> {
        let outcome = self.inner.caller.call(server, operation, flow.deadline).await;
        self.after_call(flow, server).await;
        outcome.map_err(|status| flow.error_at(status, server))
    }

    /// Like [`Client::call`], with bulk data.
    pub(crate) async fn call_with_bulk<O: Operation>(
        &self,
        flow: Flow,
        server: ServerId,
        operation: &O,
        bulk: Bulk<'_>,
    ) -> Result<(O::Reply, Payload)> {
        let outcome = self.inner.caller.call_with_bulk(server, operation, bulk, flow.deadline).await;
        self.after_call(flow, server).await;
        outcome.map_err(|status| flow.error_at(status, server))
    }

    /// Whoever notices that a server has restarted tells it what is open there, before anything
    /// else, as far as his time goes. Before that he asks for a cluster map of which the server has
    /// told.
    async fn after_call(&self, flow: Flow, server: ServerId) {
        if self.map_is_old() {
            Box::pin(self.learn_map(flow, server)).await;
        }
        if self.inner.caller.has_restarted() {
            Box::pin(self.reclaim(flow.deadline)).await;
        }
    }
}
