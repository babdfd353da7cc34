//! Which server holds which names of a directory, as far as it is not simply the owner of the
//! directory.
//!
//! A server serves the names whose hashes lie in its ranges and refuses all others with `StaleMap`,
//! whatever map the client knows; the client then asks the owner of the directory for the map and
//! tries again. Maps are kept only for directories whose map says more than "everything at the
//! owner".

use bytes::Bytes;
use weft_base::{Credentials, Handle, ServerId, Status};
use weft_rt::{Bulk, Runtime};
use weft_wire::ops::{DirTarget, FileState, GetAttrRequest, PartitionMap, SplitReply, SplitRequest};
use weft_wire::{Frame, LeaseScope, Op, Operation};

use crate::flow::Flow;
use crate::{Client, Result};

/// How often a request follows a directory whose map keeps changing.
const MAP_TRIES: usize = 8;

/// Under what an answer about names in a directory was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// How much of it is given under a lease on the directory.
    pub(crate) scope: LeaseScope,
    /// Who has given it.
    pub(crate) server: ServerId,
}

impl Grant {
    /// There is no answer yet.
    pub(crate) const NONE: Grant = Grant { scope: LeaseScope::Nothing, server: ServerId(0) };
}

/// By what a request of a directory finds its server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By<'a> {
    /// This name.
    Name(&'a [u8]),
    /// The entries behind this cookie.
    Cookie(u64),
}

impl<R: Runtime> Client<R> {
    /// Sends a request about a name, or the listing, of `dir` to the server that holds it.
    pub(crate) async fn call_in_dir<O: Operation>(
        &self,
        flow: Flow,
        dir: Handle,
        by: By<'_>,
        make: impl Fn(DirTarget) -> O + Sync,
    ) -> Result<O::Reply> {
        self.ask_in_dir(flow, dir, by, make, &mut Grant { ..Grant::NONE }).await
    }

    /// [`Client::call_in_dir`]; says also whether the answer, which may be that there is no such
    /// name, is given under a lease on the directory.
    pub(crate) async fn ask_in_dir<O: Operation>(
        &self,
        flow: Flow,
        dir: Handle,
        by: By<'_>,
        make: impl Fn(DirTarget) -> O + Sync,
        grant: &mut Grant,
    ) -> Result<O::Reply> {
        let told = self.told();
        let encode = |at| told.encode(&make(at));
        let reply = self.send_in_dir(flow, dir, by, O::OP, &encode, grant).await?;
        self.decode::<O>(flow, grant.server, reply.body)
    }

    /// The part of [`Client::ask_in_dir`] that is the same code for all operations.
    async fn send_in_dir(
        &self,
        flow: Flow,
        dir: Handle,
        by: By<'_>,
        op: Op,
        encode: &(dyn Fn(DirTarget) -> Bytes + Sync),
        grant: &mut Grant,
    ) -> Result<Frame> {
        let owner = self.owner(flow, dir).await?;
        for _ in 0..MAP_TRIES {
            let (at, server) = self.target_in_dir(flow, dir, by).await?;
            grant.server = server;
            match self.send(flow, server, op, &|| encode(at.clone()), Bulk::None, &mut grant.scope).await {
                Err(error) if error.status == Status::StaleMap => {
                    let state = match self.call(flow, owner, &GetAttrRequest { handle: dir }).await {
                        // It was removed, and nothing has a name in it.
                        Err(error) if error.status == Status::Stale => return Err(flow.error_at(Status::NotFound, owner)),
                        state => state?,
                    };
                    let map = state.partitions.ok_or(flow.error_at(Status::NotDirectory, owner))?;
                    self.inner.knowledge.told_partitions(dir, &map);
                }
                outcome => return outcome,
            }
        }
        Err(flow.error_at(Status::Busy, owner))
    }

    /// The server that holds a name, or the listing, of `dir`, as far as this client knows.
    pub(crate) async fn target_in_dir(&self, flow: Flow, dir: Handle, by: By<'_>) -> Result<(DirTarget, ServerId)> {
        let owner = self.owner(flow, dir).await?;
        let (map_epoch, server) = match self.inner.knowledge.partitions.get(dir) {
            None => (0, owner),
            Some(map) => (map.epoch(), self.server_by(flow, &map, by, owner).await?),
        };
        Ok((DirTarget { dir, map_epoch }, server))
    }

    async fn server_by(&self, flow: Flow, map: &PartitionMap, by: By<'_>, owner: ServerId) -> Result<ServerId> {
        Ok(match (map.only_server(), by) {
            (Some(server), _) => server,
            (None, By::Name(name)) => map.server(self.name_key(flow, owner).await?.hash(name)),
            (None, By::Cookie(cookie)) => map.server_behind(cookie),
        })
    }

    /// Keeps the map of a directory of which this was told, if it is split.
    pub(crate) fn learn_partitions(&self, state: &FileState) {
        if let Some(map) = &state.partitions {
            self.inner.knowledge.told_partitions(state.attr.handle, map);
        }
    }

    /// The servers that hold the names of a directory, each once.
    ///
    /// # Errors
    /// [`Status::Stale`] if it is gone; servers that do not answer.
    pub async fn servers_of_names(&self, dir: Handle) -> Result<Vec<ServerId>> {
        let flow = self.flow("getattr", dir);
        self.learn_partitions(&self.get_state(flow, dir).await?);
        self.servers_of_dir(flow, dir).await
    }

    /// Lets the names of a directory be spread over so many metadata servers from now on (1: with
    /// that of its inode; beyond all there are: over all); 0: only asks how that goes on.
    ///
    /// # Errors
    /// [`Status::NotPermitted`] unless it is the directory's owner who asks;
    /// [`Status::NotDirectory`]; [`Status::Stale`] if it is gone; servers that do not answer.
    pub async fn split_directory(&self, who: &Credentials, dir: Handle, servers: u16) -> Result<SplitReply> {
        let flow = self.flow("split", dir);
        let reply = self.call(flow, self.owner(flow, dir).await?, &SplitRequest { dir, servers, who: who.clone() }).await?;
        self.inner.knowledge.told_partitions(dir, &reply.map);
        Ok(reply)
    }

    /// The servers that hold names of a directory, as far as this client knows.
    pub(crate) async fn servers_of_dir(&self, flow: Flow, dir: Handle) -> Result<Vec<ServerId>> {
        let owner = self.owner(flow, dir).await?;
        let partitions = &self.inner.knowledge.partitions;
        if partitions.may_be_split(dir) && partitions.get(dir).is_none() {
            self.learn_partitions(&self.get_state(flow, dir).await?);
        }
        Ok(partitions.get(dir).map_or_else(|| vec![owner], |map| map.servers()))
    }
}
