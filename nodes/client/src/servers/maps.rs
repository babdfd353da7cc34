//! The cluster map of a client, which may change while the client lives: every reply says by which
//! epoch its server works, and the client asks for a map that is newer than its own. Layouts of
//! files stay right meanwhile, since their generations never change.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use weft_base::{ClusterMap, Layout, SECOND, ServerId, Status};
use weft_rt::Runtime;
use weft_wire::NameKey;
use weft_wire::ops::{GetMapReply, GetMapRequest};

use crate::flow::Flow;
use crate::gate::Gate;
use crate::{Client, Result};

/// A question for the map may take so long, in nanoseconds; if it fails, the next reply brings it
/// up again.
const ASK_NS: u64 = SECOND;

/// All maps that a client has had. They only become more, so nobody needs a lock or a copy to look
/// at the newest one.
#[derive(Debug)]
pub(super) struct Maps {
    first: Link,
    /// Epoch of the newest one.
    epoch: AtomicU32,
    name_key: OnceLock<NameKey>,
    /// Whoever asks for that key: the others wait for him.
    asks_for_key: Gate,
}

#[derive(Debug)]
struct Link {
    map: ClusterMap,
    newer: OnceLock<Box<Link>>,
}

impl Link {
    fn new(map: ClusterMap) -> Link {
        Link { map, newer: OnceLock::new() }
    }
}

impl Maps {
    pub(super) fn new(map: ClusterMap) -> Maps {
        Maps { epoch: AtomicU32::new(map.epoch), first: Link::new(map), name_key: OnceLock::new(), asks_for_key: Gate::default() }
    }

    fn newest(&self) -> &ClusterMap {
        &self.last().map
    }

    fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    fn last(&self) -> &Link {
        let mut link = &self.first;
        while let Some(newer) = link.newer.get() {
            link = newer;
        }
        link
    }

    /// Keeps a map if it is newer.
    fn add(&self, map: ClusterMap) {
        let mut next = Box::new(Link::new(map));
        loop {
            let last = self.last();
            if next.map.epoch <= last.map.epoch {
                return;
            }
            let epoch = next.map.epoch;
            match last.newer.set(next) {
                Ok(()) => {
                    self.epoch.fetch_max(epoch, Ordering::Relaxed);
                    return;
                }
                // Somebody was faster; his may be newer than ours.
                Err(ours) => next = ours,
            }
        }
    }
}

impl<R: Runtime> Client<R> {
    /// The newest cluster map that this client knows; of epoch 0, what a configuration said, until
    /// a server has been asked.
    pub fn map(&self) -> &ClusterMap {
        self.inner.servers.maps.newest()
    }

    /// The data server that holds a datafile. The file may be younger than the map that this client
    /// has: that of one more server.
    ///
    /// # Errors
    /// [`Status::StaleMap`] if it is younger than the newest map that could be had.
    pub(crate) async fn data_server(&self, flow: Flow, layout: &Layout, index: u32) -> Result<ServerId> {
        if let Ok(server) = self.map().data_server(layout, index) {
            return Ok(server);
        }
        self.ask_for_map(flow).await?;
        self.map().data_server(layout, index).map_err(|status| flow.error(status))
    }

    /// True if a server has told of a newer map.
    pub(super) fn map_is_old(&self) -> bool {
        self.inner.servers.caller.newest_map() > self.inner.servers.maps.epoch()
    }

    /// Asks `server`, which has just answered, for the cluster map. If that fails, the next reply
    /// brings it up again.
    pub(super) async fn learn_map(&self, flow: Flow, server: ServerId) {
        // Errors are those of the question, not of the operation that brought it up.
        let _ = self.ask_map(flow, server).await;
    }

    /// The key of the hash of names.
    pub(crate) async fn name_key(&self, flow: Flow, server: ServerId) -> Result<NameKey> {
        let maps = &self.inner.servers.maps;
        if maps.name_key.get().is_none() {
            let _one = maps.asks_for_key.enter().await;
            if maps.name_key.get().is_none() {
                self.ask_for_map(flow).await?;
            }
        }
        maps.name_key.get().copied().ok_or(flow.error_at(Status::BadMessage, server))
    }

    /// Asks for the cluster map because an operation needs what it tells: one metadata server after
    /// the other, from any one on, until one has answered.
    ///
    /// # Errors
    /// As [`Client::call`], of the last one that was asked.
    pub(super) async fn ask_for_map(&self, flow: Flow) -> Result<()> {
        let servers = self.map().meta.clone();
        let first = self.rt().random() as usize;
        for turn in 0.. {
            let server = servers.get(first.wrapping_add(turn) % servers.len().max(1)).map_or(ServerId(0), |entry| entry.id);
            match self.ask_map(flow, server).await {
                Err(error) if error.status.is_transient() && self.rt().now() < flow.deadline => {}
                outcome => return outcome,
            }
        }
        unreachable!("each question takes a while")
    }

    async fn ask_map(&self, flow: Flow, server: ServerId) -> Result<()> {
        let until = flow.deadline.min(self.rt().now() + ASK_NS);
        let reply = self.inner.servers.caller.call(server, &GetMapRequest {}, until).await;
        let GetMapReply { map, name_key } = reply.map_err(|status| flow.error_at(status, server))?;
        if map.fs_id != self.map().fs_id {
            return Err(flow.error_at(Status::WrongFileSystem, server));
        }
        let _ = self.inner.servers.maps.name_key.set(name_key);
        self.rt().learn_servers(&map);
        self.inner.servers.maps.add(map);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::{FsId, ServerEntry};

    fn map() -> ClusterMap {
        let entry = |id: ServerId| ServerEntry { id, name: id.to_string(), address: String::new() };
        ClusterMap::of(FsId(1), "test", [ServerId(0), ServerId::data(0)].map(entry), 4096)
    }

    #[test]
    fn the_newest_map_wins_and_older_ones_stay_where_they_are() {
        let maps = Maps::new(map());
        let first = maps.newest();
        assert_eq!(maps.epoch(), 0);
        for epoch in [3, 2, 3, 7] {
            maps.add(map().founded(epoch));
        }
        assert_eq!((maps.epoch(), maps.newest().epoch, first.epoch), (7, 7, 0));
    }

    #[test]
    fn many_threads_may_learn_at_once() {
        let maps = Maps::new(map());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let maps = &maps;
                scope.spawn(move || (1..50).for_each(|epoch| maps.add(map().founded(4 * epoch + thread))));
            }
        });
        assert_eq!((maps.epoch(), maps.newest().epoch), (4 * 49 + 3, 4 * 49 + 3));
    }
}
