//! The keys that the servers of a process accept. They may change while the servers run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use weft_wire::{ClusterKey, KeyRing};

/// Keys of servers and clients, shared by everybody who uses them.
#[derive(Clone, Debug)]
pub struct Keys(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    ring: Mutex<Arc<KeyRing>>,
    /// Counts the changes.
    version: AtomicU64,
}

impl Keys {
    /// These keys, until others take their place.
    pub fn new(ring: KeyRing) -> Keys {
        Keys(Arc::new(Shared { ring: Mutex::new(Arc::new(ring)), version: AtomicU64::new(1) }))
    }

    /// From now on these. Servers end the connections of clients whose key is not accepted any
    /// more, or may do something else, before they read from them again.
    pub fn replace(&self, ring: KeyRing) {
        *self.lock() = Arc::new(ring);
        self.0.version.fetch_add(1, Ordering::Release);
    }

    /// The keys of now.
    pub fn ring(&self) -> Arc<KeyRing> {
        self.lock().clone()
    }

    pub(crate) fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Arc<KeyRing>> {
        self.0.ring.lock().expect("no code panics while it holds this lock")
    }
}

impl From<ClusterKey> for Keys {
    fn from(key: ClusterKey) -> Keys {
        Keys::new(KeyRing::new(key))
    }
}
