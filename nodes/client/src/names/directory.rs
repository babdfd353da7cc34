//! Listing directories.

use std::collections::BTreeMap;

use weft_base::{Attr, Credentials, FileKind, Handle, ServerId, Status};
use weft_call::run_window;
use weft_rt::{Runtime, Work};
use weft_wire::LeaseScope;
use weft_wire::ops::{FileState, GetAttrManyRequest, ParentRequest, ReadDirReply, ReadDirRequest, SyncMetaRequest};

use super::partitions::{By, Grant};
use crate::flow::Flow;
use crate::knowledge::Asked;
use crate::{Client, DirItem, DirPage, Result, Seen};

/// Most objects in one request for attributes. The protocol allows 4096; fewer let several requests
/// overlap.
const ATTRS_MAX: usize = 1024;
/// Most files of one answer whose data servers are asked at once (those that others are writing).
const SETTLE_WINDOW: usize = 32;

/// What a listing is about besides names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Nothing.
    Names,
    /// Exact attributes.
    Exact,
    /// Attributes as far as they can be had without waiting for data servers that do not answer.
    Soon,
    /// The same, but those of directories only if they come along.
    SizesSoon,
    /// Attributes as far as they come along.
    Along,
}

impl<R: Runtime> Client<R> {
    /// Lists entries after a cookie (0: from the start), about `bytes_max` bytes of them. With
    /// `with_attrs` each entry has exact attributes, unless its object was removed meanwhile;
    /// attributes kept on other servers are fetched in parallel, one request for each server.
    ///
    /// # Errors
    /// [`Status::NotDirectory`], [`Status::Stale`] if the directory is gone, permissions, servers
    /// that do not answer.
    pub async fn readdir(&self, who: &Credentials, dir: Handle, cookie: u64, bytes_max: u32, with_attrs: bool) -> Result<DirPage> {
        self.list(who, dir, cookie, bytes_max, if with_attrs { Wanted::Exact } else { Wanted::Names }).await
    }

    /// Like [`Client::readdir`] with attributes, for listings beside servers that do not answer:
    /// sizes of files that others are writing to such a data server are those known last
    /// ([`DirItem::is_exact`]), and an object whose own metadata server fails has none.
    ///
    /// # Errors
    /// As [`Client::readdir`].
    pub async fn readdir_soon(&self, who: &Credentials, dir: Handle, cookie: u64, bytes_max: u32) -> Result<DirPage> {
        self.list(who, dir, cookie, bytes_max, Wanted::Soon).await
    }

    pub(crate) async fn list(&self, who: &Credentials, dir: Handle, cookie: u64, bytes_max: u32, wanted: Wanted) -> Result<DirPage> {
        let (with_attrs, soon) = (wanted != Wanted::Names, matches!(wanted, Wanted::Soon | Wanted::SizesSoon));
        let flow = self.flow("readdir", dir);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_READDIR);
        let asked = self.asking();
        // A range without a name behind the cookie is not the end of the directory.
        let mut behind = cookie;
        let (mut grant, mut parent) = (Grant::NONE, Handle(0));
        let ReadDirReply { entries, until, .. } = loop {
            let make = |at| ReadDirRequest { at, cookie: behind, bytes_max, with_state: with_attrs, who: who.clone() };
            let reply = self.ask_in_dir(flow, dir, By::Cookie(behind), make, &mut grant).await?;
            // The owner of the directory knows it, which has the first names of all.
            parent = if parent == Handle(0) { reply.parent } else { parent };
            if !reply.entries.is_empty() || reply.until == u64::MAX {
                break reply;
            }
            if reply.until <= behind {
                return Err(flow.error(Status::BadMessage));
            }
            behind = reply.until;
        };
        if grant.scope >= LeaseScope::Names {
            let names = entries.iter().map(|entry| {
                (&entry.name, Some((entry.handle, entry.kind)), entry.state.as_ref().filter(|_| grant.scope == LeaseScope::All))
            });
            self.inner.knowledge.told_names(asked, self.rt().now(), (dir, grant.server), names);
            if cookie == 0 && until == u64::MAX {
                self.all_listed(asked, dir, entries.iter().map(|entry| &entry.name[..]));
            }
            if with_attrs && grant.scope == LeaseScope::All {
                let end = entries.last().filter(|_| until != u64::MAX).map(|last| last.cookie);
                self.inner.contents.note_listed(dir, cookie, end);
            }
        }
        // A client with a limited key is not told of it: `..` is then as in the root.
        let parent = if parent == Handle(0) { dir } else { parent };
        let end = until == u64::MAX;
        let mut items: Vec<DirItem> = Vec::with_capacity(entries.len());
        let mut unsettled = Vec::new();
        for entry in entries {
            let attr = entry.state.as_ref().and_then(|state| self.settle_at_once(state, asked));
            let is_wanted = match wanted {
                Wanted::Names | Wanted::Along => false,
                Wanted::SizesSoon => entry.kind != FileKind::Directory,
                Wanted::Exact | Wanted::Soon => true,
            };
            if is_wanted && attr.is_none() {
                unsettled.push((items.len(), entry.state));
            }
            items.push(DirItem { name: entry.name, handle: entry.handle, kind: entry.kind, cookie: entry.cookie, attr, is_exact: true });
        }
        if unsettled.is_empty() {
            return Ok(DirPage { entries: items, end, parent });
        }
        for (position, seen) in Box::pin(self.settle_rest(flow, &items, unsettled, asked, soon)).await {
            let item = &mut items[position];
            match seen {
                Ok(seen) => (item.attr, item.is_exact) = (Some(seen.attr), seen.is_exact),
                // Removed since the entry was read.
                Err(error) if matches!(error.status, Status::Stale | Status::NotFound) => {}
                Err(_) if soon => item.is_exact = false,
                Err(error) => return Err(error),
            }
        }
        Ok(DirPage { entries: items, end, parent })
    }

    /// Attributes of those entries of a listing for which somebody must be asked.
    async fn settle_rest(
        &self,
        flow: Flow,
        items: &[DirItem],
        unsettled: Vec<(usize, Option<FileState>)>,
        asked: Asked,
        soon: bool,
    ) -> Vec<(usize, Result<Seen>)> {
        let (mut local, mut remote) = (Vec::new(), Vec::new());
        for (position, state) in unsettled {
            match state {
                Some(state) => local.push((position, state)),
                None => remote.push(position),
            }
        }
        let handles: Vec<Handle> = remote.iter().map(|position| items[*position].handle).collect();
        let mut results: Vec<_> = remote.into_iter().zip(self.stat_many_in(flow, &handles, soon).await).collect();
        results.extend(self.settle_many(flow, local, asked, soon).await);
        results
    }

    /// Settles states that came together.
    async fn settle_many(&self, flow: Flow, states: Vec<(usize, FileState)>, asked: Asked, soon: bool) -> Vec<(usize, Result<Seen>)> {
        let flows = states.into_iter().map(|(position, state)| async move {
            (position, self.settle_or_soon(Flow { handle: state.attr.handle, ..flow }, state, asked, soon).await)
        });
        run_window(flows, SETTLE_WINDOW).await
    }

    async fn settle_or_soon(&self, flow: Flow, state: FileState, asked: Asked, soon: bool) -> Result<Seen> {
        if soon {
            return self.settle_soon(flow, state, asked).await;
        }
        Ok(Seen { attr: self.settle(flow, state, asked).await?, is_exact: true })
    }

    /// Exact attributes of many objects: one request for up to 1024 objects of one server, all
    /// servers in parallel. One result for each handle, in their order.
    pub async fn stat_many(&self, handles: &[Handle]) -> Vec<Result<Attr>> {
        let _op = weft_trace::operation(weft_trace::event::CLIENT_GETATTR);
        let seen = self.stat_many_in(self.flow("stat", Handle(0)), handles, false).await;
        seen.into_iter().map(|seen| seen.map(|seen| seen.attr)).collect()
    }

    /// Attributes of many objects; with `soon`, sizes may be those known last.
    pub(crate) async fn stat_many_in(&self, flow: Flow, handles: &[Handle], soon: bool) -> Vec<Result<Seen>> {
        let mut by_server: BTreeMap<ServerId, Vec<usize>> = BTreeMap::new();
        let mut results = vec![Err(flow.error(Status::Stale)); handles.len()];
        let mut busy = Vec::new();
        for (position, handle) in handles.iter().enumerate() {
            match self.owner(Flow { handle: *handle, ..flow }, *handle).await {
                Ok(server) => by_server.entry(server).or_default().push(position),
                Err(error) => results[position] = Err(error),
            }
        }
        let requests = by_server.iter().flat_map(|(server, positions)| positions.chunks(ATTRS_MAX).map(|chunk| (*server, chunk)));
        let flows = requests.map(|(server, positions)| async move {
            let asked = self.asking();
            let request = GetAttrManyRequest { handles: positions.iter().map(|position| handles[*position]).collect() };
            let reply = self.call(flow, server, &request).await;
            for _ in positions {
                self.rt().cpu(Work::Record).await;
            }
            let states = reply.and_then(|reply| {
                if reply.states.len() == positions.len() { Ok(reply.states) } else { Err(flow.error_at(Status::BadMessage, server)) }
            });
            (positions, server, asked, states)
        });
        for (positions, server, asked, states) in run_window(flows, self.options().window).await {
            let states = match states {
                Ok(states) => states,
                Err(error) => {
                    positions.iter().for_each(|position| results[*position] = Err(error));
                    continue;
                }
            };
            let mut unsettled = Vec::new();
            for (position, state) in positions.iter().zip(states) {
                let flow = Flow { handle: handles[*position], ..flow };
                match state {
                    Ok(state) => match self.settle_at_once(&state, asked) {
                        Some(attr) => results[*position] = Ok(Seen { attr, is_exact: true }),
                        None => unsettled.push((*position, state)),
                    },
                    // Busy in a transaction or truncation: asked for alone, it is waited for.
                    Err(status) if status.is_transient() => busy.push(*position),
                    Err(status) => results[*position] = Err(flow.error_at(status, server)),
                }
            }
            for (position, seen) in self.settle_many(flow, unsettled, asked, soon).await {
                results[position] = seen;
            }
        }
        let flows = busy.into_iter().map(|position| async move {
            let flow = Flow { handle: handles[position], ..flow };
            let seen = self.getattr_in(flow, flow.handle).await.map(|attr| Seen { attr, is_exact: true });
            (position, seen)
        });
        for (position, seen) in run_window(flows, SETTLE_WINDOW).await {
            results[position] = seen;
        }
        results
    }

    /// The directory that holds the name of a directory; the root is its own parent.
    ///
    /// # Errors
    /// [`weft_base::Status::Stale`] if it is gone, [`weft_base::Status::NotDirectory`], servers
    /// that do not answer.
    pub async fn parent(&self, dir: Handle) -> Result<Handle> {
        let flow = self.flow("find the parent", dir);
        Ok(self.call(flow, self.owner(flow, dir).await?, &ParentRequest { dir }).await?.parent)
    }

    /// When this returns, everything that was acknowledged about names and attributes in this
    /// directory is on stable storage.
    ///
    /// # Errors
    /// Servers that do not answer or whose disk failed.
    pub async fn fsync_dir(&self, dir: Handle) -> Result<()> {
        let flow = self.flow("fsync", dir);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_FSYNC);
        let servers = self.servers_of_dir(flow, dir).await?;
        let flows = servers.into_iter().map(|server| self.call(flow, server, &SyncMetaRequest {}));
        run_window(flows, self.options().window).await.into_iter().collect()
    }
}
