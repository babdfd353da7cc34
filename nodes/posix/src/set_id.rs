//! Open files with set-id bits that the first write by a plain user clears (POSIX, `write`). A
//! kernel does not do it for direct I/O.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use weft_base::FastSet;

/// By the numbers of open files.
#[derive(Debug, Default)]
pub(crate) struct SetId {
    files: Mutex<FastSet<u64>>,
    /// How many there are, so that nobody else pays for them.
    count: AtomicUsize,
}

impl SetId {
    /// The first write to this open file clears them.
    pub fn watch(&self, file: u64) {
        let mut files = self.lock();
        files.insert(file);
        self.count.store(files.len(), Ordering::Relaxed);
    }

    /// True if there may be some to clear; nobody is told so again.
    pub fn take(&self, file: u64) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut files = self.lock();
        let was_watched = files.remove(&file);
        self.count.store(files.len(), Ordering::Relaxed);
        was_watched
    }

    fn lock(&self) -> MutexGuard<'_, FastSet<u64>> {
        self.files.lock().expect("no code panics while it holds this lock")
    }
}
