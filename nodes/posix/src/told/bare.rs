//! Own changes of extended attributes. That a file has none may be some time old as far as other
//! clients are concerned; what this gateway sets itself is seen at once: attributes that were asked
//! for before such a change ended say nothing of it.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many beginnings and ends of own changes there had been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XattrCount(pub u64);

/// Counts beginnings and ends of own changes.
#[derive(Debug, Default)]
pub(super) struct XattrChanges(AtomicU64);

impl XattrChanges {
    pub fn count(&self) -> XattrCount {
        XattrCount(self.0.load(Ordering::SeqCst))
    }

    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
