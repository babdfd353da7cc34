//! Which data servers were waited for in vain (`silence.rs`).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_base::{Nanos, ServerId};

/// Data servers that were waited for in vain.
#[derive(Debug, Default)]
pub(crate) struct Silent {
    any: AtomicBool,
    until: Mutex<BTreeMap<ServerId, Nanos>>,
}

impl Silent {
    /// Not to be waited for again until then.
    pub(super) fn note(&self, server: ServerId, until: Nanos) {
        let mut all = self.lock();
        all.insert(server, until);
        self.any.store(true, Ordering::Relaxed);
    }

    /// It has answered something.
    pub(crate) fn answered(&self, server: ServerId) {
        if self.any.load(Ordering::Relaxed) {
            let mut until = self.lock();
            until.remove(&server);
            self.any.store(!until.is_empty(), Ordering::Relaxed);
        }
    }

    /// True if it is not to be waited for now.
    pub(super) fn is_silent(&self, server: ServerId, now: Nanos) -> bool {
        self.any.load(Ordering::Relaxed) && self.lock().get(&server).is_some_and(|until| now < *until)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ServerId, Nanos>> {
        self.until.lock().expect("no code panics while it holds this lock")
    }
}
