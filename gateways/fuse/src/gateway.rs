//! What the layer below wants of a mount: the kernel is the cache above it.

use std::fmt;
use std::sync::OnceLock;

use weft_base::Handle;
use weft_posix::Gateway;

use crate::kernel::{INodeNo, Notifier};

/// Where the lines for people go.
pub type MountLog = Box<dyn Fn(&str) + Send + Sync>;

/// The kernel and the people behind a mount.
pub struct Above {
    /// Tells the kernel what to forget; empty until the session has begun.
    notifier: OnceLock<Notifier>,
    log: MountLog,
}

impl Above {
    pub fn new(log: MountLog) -> Above {
        Above { notifier: OnceLock::new(), log }
    }

    /// The session has begun.
    pub fn begins(&self, notifier: &Notifier) {
        // The only one who sets it.
        let _ = self.notifier.set(notifier.clone());
    }

    /// Tells the kernel what to forget, once the session has begun.
    pub fn notifier(&self) -> Option<&Notifier> {
        self.notifier.get()
    }
}

impl fmt::Debug for Above {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Above").field("notifier", &self.notifier).finish_non_exhaustive()
    }
}

impl Gateway for Above {
    /// Takes no lock of the kernel that somebody who waits for this mount may hold (an offset below
    /// 0 touches no pages).
    fn forget_attributes(&self, file: Handle) {
        if let Some(notifier) = self.notifier.get() {
            // A file that the kernel does not know any more needs no word.
            let _ = notifier.inval_inode(INodeNo(file.0), -1, 0);
        }
    }

    fn forget_names(&self) {
        if let Some(notifier) = self.notifier.get() {
            // It takes no lock of the kernel at all.
            let _ = notifier.increment_epoch();
        }
    }

    fn warn(&self, line: &str) {
        (self.log)(line);
    }
}
