//! Maps of directories whose names are not all with the owner of the directory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use weft_base::{FastMap, Handle};
use weft_wire::ops::PartitionMap;

/// Most maps kept. When there are more, all are dropped; each costs one refused request to get
/// back.
const MAPS_MAX: usize = 1 << 14;

#[derive(Debug, Default)]
pub(crate) struct Partitions {
    maps: Mutex<FastMap<Handle, Arc<PartitionMap>>>,
    /// Saves everybody the lock while no directory has a map of its own.
    used: AtomicBool,
}

impl Partitions {
    /// The map of a directory, if it says more than "everything at the owner".
    pub fn get(&self, dir: Handle) -> Option<Arc<PartitionMap>> {
        if !self.used.load(Ordering::Relaxed) {
            return None;
        }
        self.maps.lock().expect("no code panics while it holds this lock").get(&dir).cloned()
    }

    /// A server has told the map of a directory.
    pub fn learn(&self, dir: Handle, map: PartitionMap) {
        let mut maps = self.maps.lock().expect("no code panics while it holds this lock");
        if maps.len() >= MAPS_MAX {
            maps.clear();
        }
        maps.insert(dir, Arc::new(map));
        self.used.store(true, Ordering::Relaxed);
    }
}
