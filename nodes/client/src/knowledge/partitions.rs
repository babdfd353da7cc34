//! Maps of directories whose names are not all with the owner of the directory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use weft_base::{FastMap, Handle};
use weft_wire::ops::{DirTarget, PartitionMap};

/// Most maps kept. When there are more, all are dropped; each costs one refused request to get
/// back.
const MAPS_MAX: usize = 1 << 14;

#[derive(Debug, Default)]
pub(crate) struct Partitions {
    maps: Mutex<FastMap<Handle, Arc<PartitionMap>>>,
    /// Saves everybody the lock while no directory has a map of its own.
    used: AtomicBool,
    /// Maps were dropped.
    has_dropped: AtomicBool,
}

impl Partitions {
    /// The map of a directory, if it says more than "everything at the owner".
    pub fn get(&self, dir: Handle) -> Option<Arc<PartitionMap>> {
        if !self.used.load(Ordering::Relaxed) {
            return None;
        }
        self.maps.lock().expect("no code panics while it holds this lock").get(&dir).cloned()
    }

    /// The target of a name operation whose server is chosen by another directory.
    pub fn target(&self, dir: Handle) -> DirTarget {
        DirTarget { dir, map_epoch: self.get(dir).map_or(0, |map| map.epoch()) }
    }

    /// True unless the names of a directory of which a server has told are known to be all with its
    /// owner.
    pub fn may_be_split(&self, dir: Handle) -> bool {
        self.has_dropped.load(Ordering::Relaxed) || self.get(dir).is_some()
    }

    /// A server has told the map of a directory.
    pub fn learn(&self, dir: Handle, map: &PartitionMap) {
        let is_split = map.is_split(dir);
        if !is_split && !self.used.load(Ordering::Relaxed) {
            return;
        }
        let mut maps = self.maps.lock().expect("no code panics while it holds this lock");
        if !is_split {
            maps.remove(&dir);
            return;
        }
        if maps.len() >= MAPS_MAX && !maps.contains_key(&dir) {
            maps.clear();
            self.has_dropped.store(true, Ordering::Relaxed);
        }
        if maps.get(&dir).is_none_or(|known| **known != *map) {
            maps.insert(dir, Arc::new(map.clone()));
        }
        self.used.store(true, Ordering::Relaxed);
    }
}
