//! Servers: requests to them, the cluster map that says which there are, and what they tell about
//! themselves. Who asks, with which number and how often, is hidden here.

mod admin;
mod datafiles;
mod maps;
mod quotas;
mod space;

use bytes::Bytes;
use weft_base::{ClusterMap, Handle, Nanos, Payload, ServerId, ServerRole};
use weft_call::{Caller, CallerStats, Encode, ToldHandles};
use weft_rt::{Bulk, Runtime};
use weft_wire::ops::{NoticesReply, NoticesRequest};
use weft_wire::{Frame, LeaseScope, Op, Operation};

use crate::flow::Flow;
use crate::{Client, ClientOptions, Result};

pub use datafiles::{DatafileSums, StrayDatafile};
use maps::Maps;
pub use quotas::QuotaUsage;
pub use space::DataSpace;

/// The servers of a file system, as one client asks them.
pub(crate) struct Servers<R> {
    caller: Caller<R>,
    maps: Maps,
}

impl<R: Runtime> Servers<R> {
    pub(crate) fn new(rt: R, map: ClusterMap, options: &ClientOptions) -> Servers<R> {
        Servers { caller: Caller::new(rt, options.client, options.incarnation), maps: Maps::new(map) }
    }

    pub(crate) fn rt(&self) -> &R {
        self.caller.rt()
    }

    /// Servers that must be told again what is open ([`Caller::take_restarted`]).
    pub(crate) fn take_restarted(&self) -> Vec<ServerId> {
        self.caller.take_restarted()
    }

    /// The request that waits for notices: it belongs to no operation, and brings nothing else up.
    pub(crate) async fn ask_for_notices(
        &self,
        server: ServerId,
        request: &NoticesRequest,
        deadline: Nanos,
    ) -> weft_base::Result<NoticesReply> {
        self.caller.call(server, request, deadline).await
    }

    /// A request that belongs to no operation: it brings nothing else up. False, and the server
    /// counts as restarted again, if it was not answered.
    pub(crate) async fn tell<O: Operation>(&self, server: ServerId, operation: &O, deadline: Nanos) -> bool {
        let is_told = self.caller.call(server, operation, deadline).await.is_ok();
        if !is_told {
            self.caller.mark_untold(server);
        }
        is_told
    }
}

impl<R: Runtime> Client<R> {
    /// Counters of messages and bytes since the client was made.
    pub fn stats(&self) -> CallerStats {
        self.inner.servers.caller.stats()
    }

    /// The lives of the servers that have answered this client: what was acknowledged and is not on
    /// stable storage may be lost when one of these numbers changes.
    pub fn boots(&self) -> Vec<(ServerId, u32)> {
        self.inner.servers.caller.boots()
    }

    /// How often servers were found to have restarted.
    pub fn restarts(&self) -> u32 {
        self.inner.servers.caller.restarts()
    }

    /// The metadata server that owns `handle`. Whoever has told of the handle may know a server
    /// that has joined since this client learned its map.
    pub(crate) async fn owner(&self, flow: Flow, handle: Handle) -> Result<ServerId> {
        if let Ok(server) = self.map().owner(handle) {
            return Ok(server);
        }
        if handle.server().role() == ServerRole::Meta {
            self.ask_for_map(flow).await?;
        }
        self.map().owner(handle).map_err(|status| flow.error(status))
    }

    /// One request of an operation.
    pub(crate) async fn call<O: Operation>(&self, flow: Flow, server: ServerId, operation: &O) -> Result<O::Reply> {
        Ok(self.call_with_bulk(flow, server, operation, Bulk::None).await?.0)
    }

    /// Like [`Client::call`], whatever the server was not told yet, and does not notice that it has
    /// restarted: for the caller to look at ([`Client::after_call`]).
    pub(crate) async fn call_at_once<O: Operation>(&self, flow: Flow, server: ServerId, operation: &O) -> Result<O::Reply> {
        let outcome = self.inner.servers.caller.call(server, operation, flow.deadline).await;
        outcome.map_err(|status| flow.error_at(status, server))
    }

    /// Like [`Client::call`]; says also how much of the answer is given under a lease.
    pub(crate) async fn ask<O: Operation>(&self, flow: Flow, server: ServerId, operation: &O, leased: &mut LeaseScope) -> Result<O::Reply> {
        let told = self.told();
        let encode = || told.encode(operation);
        let reply = self.send(flow, server, O::OP, &encode, Bulk::None, leased).await?;
        self.decode::<O>(flow, server, reply.body)
    }

    /// Like [`Client::call`], with bulk data.
    pub(crate) async fn call_with_bulk<O: Operation>(
        &self,
        flow: Flow,
        server: ServerId,
        operation: &O,
        bulk: Bulk<'_>,
    ) -> Result<(O::Reply, Payload)> {
        let told = self.told();
        let encode = || told.encode(operation);
        let reply = self.send(flow, server, O::OP, &encode, bulk, &mut LeaseScope::default()).await?;
        Ok((self.decode::<O>(flow, server, reply.body)?, reply.bulk))
    }

    /// What [`Client::ask`] and [`Client::call_with_bulk`] do for every operation: compiled once.
    pub(crate) async fn send(
        &self,
        flow: Flow,
        server: ServerId,
        op: Op,
        encode: Encode<'_>,
        bulk: Bulk<'_>,
        leased: &mut LeaseScope,
    ) -> Result<Frame> {
        self.tell_before(flow, server, op).await?;
        let outcome = self.inner.servers.caller.send(server, op, encode, bulk, flow.deadline, leased).await;
        if outcome.is_ok() {
            self.inner.silent.answered(server);
        }
        if !self.inner.knowledge.keeps_leases() {
            *leased = LeaseScope::Nothing;
        }
        self.after_call(flow, server).await;
        outcome.map_err(|status| flow.error_at(status, server))
    }

    /// Encodes requests for [`Client::send`].
    pub(crate) fn told(&self) -> &ToldHandles {
        self.inner.servers.caller.told()
    }

    /// The reply in the body of an answer of [`Client::send`].
    pub(crate) fn decode<O: Operation>(&self, flow: Flow, server: ServerId, body: Bytes) -> Result<O::Reply> {
        self.told().decode::<O>(body).map_err(|status| flow.error_at(status, server))
    }

    /// Whoever notices that a server has restarted tells it what is open there, before anything
    /// else, as far as his time goes. Before that he asks for a cluster map of which the server has
    /// told.
    pub(crate) async fn after_call(&self, flow: Flow, server: ServerId) {
        if self.map_is_old() {
            Box::pin(self.learn_map(flow, server)).await;
        }
        self.reclaim_if_restarted(flow.deadline).await;
    }

    /// [`Client::reclaim`], if there is a server for it.
    pub(crate) async fn reclaim_if_restarted(&self, deadline: Nanos) {
        if self.inner.servers.caller.has_restarted() {
            Box::pin(self.reclaim(deadline)).await;
        }
    }
}
