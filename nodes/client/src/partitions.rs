//! Which server holds which names of a directory, as far as it is not simply the owner of the directory.
//!
//! A request names the epoch of the map by which its server was chosen (0: no map, the owner was). A server that knows a newer map
//! refuses with `StaleMap`; the client then asks the owner of the directory for the map and tries again. Maps are kept only for
//! directories whose map says more than "everything at the owner".

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_base::{FastMap, Handle, ServerId, Status};
use weft_rt::Runtime;
use weft_wire::Operation;
use weft_wire::ops::{DirTarget, GetAttrRequest, PartitionMap};

use crate::client::Flow;
use crate::{Client, Result};

/// How often a request follows a directory whose map keeps changing.
const MAP_TRIES: usize = 8;
/// Most maps kept. When there are more, all are dropped; each costs one refused request to get back.
const MAPS_MAX: usize = 1 << 14;

#[derive(Debug, Default)]
pub(crate) struct Partitions {
    maps: Mutex<FastMap<Handle, (u32, ServerId)>>,
    /// Saves everybody the lock while no directory has a map of its own.
    used: AtomicBool,
}

impl Partitions {
    fn get(&self, dir: Handle) -> Option<(u32, ServerId)> {
        if !self.used.load(Ordering::Relaxed) {
            return None;
        }
        self.maps.lock().expect("no code panics while it holds this lock").get(&dir).copied()
    }

    fn learn(&self, dir: Handle, map: &PartitionMap) -> weft_base::Result<()> {
        // Splitting needs the key of the name hash, which this version of the protocol does not give to clients.
        let (0, [server]) = (map.depth, map.servers.as_slice()) else { return Err(Status::NotSupported) };
        let mut maps = self.maps.lock().expect("no code panics while it holds this lock");
        if maps.len() >= MAPS_MAX {
            maps.clear();
        }
        maps.insert(dir, (map.epoch, *server));
        self.used.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl<R: Runtime> Client<R> {
    /// Sends a request about a name in `dir` to the server that holds the name.
    pub(crate) async fn call_in_dir<O: Operation>(&self, flow: Flow, dir: Handle, make: impl Fn(DirTarget) -> O) -> Result<O::Reply> {
        let owner = self.owner(flow, dir)?;
        for _ in 0..MAP_TRIES {
            let (map_epoch, server) = self.inner.partitions.get(dir).unwrap_or((0, owner));
            match self.call(flow, server, &make(DirTarget { dir, map_epoch })).await {
                Err(error) if error.status == Status::StaleMap => {
                    let state = self.call(flow, owner, &GetAttrRequest { handle: dir }).await?;
                    let map = state.partitions.ok_or(flow.error_at(Status::NotDirectory, owner))?;
                    self.inner.partitions.learn(dir, &map).map_err(|status| flow.error_at(status, owner))?;
                }
                outcome => return outcome,
            }
        }
        Err(flow.error_at(Status::Busy, owner))
    }

    /// The target of a name operation whose server is chosen by another directory.
    pub(crate) fn dir_target(&self, dir: Handle) -> DirTarget {
        DirTarget { dir, map_epoch: self.inner.partitions.get(dir).map_or(0, |(epoch, _)| epoch) }
    }
}
