//! Locks of programs (`flock`, `fcntl`) on files: who has them, and who waits for whom. The flows
//! that take them are in `locking.rs`.

mod cycles;
mod table;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use weft_base::{FastMap, Handle};
use weft_client::{Error, OpenFile};

use cycles::Cycles;
pub(crate) use table::Table;
pub use table::{Family, Lock, LockKind, Owner};

use crate::signal::Signal;

/// Why there is no lock.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// Somebody has it, and it was not to be waited for.
    Taken,
    /// The program does not wait any more.
    Interrupted,
    /// Whoever has it waits for this program.
    Deadlock,
    /// It cannot be had.
    Failed(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Failed(error)
    }
}

/// The locks of one gateway.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    files: Mutex<FastMap<Handle, Arc<FileLocks>>>,
    /// How many files there are, so that nobody else pays for them.
    count: AtomicUsize,
    /// Taken while the locks of a file are held, never the other way round.
    cycles: Mutex<Cycles>,
}

/// The locks on one file.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    state: Mutex<State>,
    pub changed: Signal,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub table: Table,
    /// While it is open, no other client has locks.
    pub right: Option<Arc<OpenFile>>,
}

impl FileLocks {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}

impl Locks {
    /// The locks on a file, for whoever is about to take some. To be given back with
    /// [`Locks::tidy`].
    pub fn of(&self, file: Handle) -> Arc<FileLocks> {
        let mut files = self.files();
        let locks = files.entry(file).or_default().clone();
        self.count.store(files.len(), Ordering::Relaxed);
        locks
    }

    /// True if there are locks on any file.
    pub fn are_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// As above, `None` if there are none.
    pub fn held_on(&self, file: Handle) -> Option<Arc<FileLocks>> {
        if !self.are_any() {
            return None;
        }
        self.files().get(&file).cloned()
    }

    /// Where there are no locks any more, others may have theirs: the right that kept them away, to
    /// be closed.
    pub fn tidy(&self, file: Handle, locks: Arc<FileLocks>) -> Option<Arc<OpenFile>> {
        let mut files = self.files();
        // The map's reference and ours: nobody works or waits on it.
        let is_last = Arc::strong_count(&locks) == 2;
        let unused = if is_last {
            locks.state.try_lock().ok().filter(|state| state.table.is_empty()).map(|mut state| state.right.take())
        } else {
            None
        };
        if unused.is_some() {
            files.remove(&file);
            self.count.store(files.len(), Ordering::Relaxed);
        }
        // Before somebody else looks how many there are.
        drop(locks);
        drop(files);
        unused.flatten()
    }

    pub fn cycles(&self) -> MutexGuard<'_, Cycles> {
        self.cycles.lock().expect("no code panics while it holds this lock")
    }

    fn files(&self) -> MutexGuard<'_, FastMap<Handle, Arc<FileLocks>>> {
        self.files.lock().expect("no code panics while it holds this lock")
    }
}
