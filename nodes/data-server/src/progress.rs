//! How far changes have come on their way to stable storage.

use std::cell::Cell;

use weft_rt::Signal;

/// Counts changes and what became of them.
#[derive(Default)]
pub struct Progress {
    /// Changes of data or objects.
    changes: Cell<u64>,
    /// Changes that are on stable storage.
    pub durable: Cell<u64>,
    /// Changes that somebody waits for.
    pub wanted: Cell<u64>,
    /// Records of growth in the journal: those that a power cut voids unless a mark covers them.
    pub growth: Cell<u64>,
    /// Of these, covered by a mark.
    pub marked: Cell<u64>,
    /// Something has changed since the last round, or somebody waits.
    pub work: Signal,
    /// A round has ended.
    pub reached: Signal,
}

impl Progress {
    /// Notes a change.
    pub fn changed(&self) {
        let changes = self.changes.get();
        self.changes.set(changes + 1);
        if changes == self.durable.get() {
            self.work.notify();
        }
    }

    /// The newest change.
    pub fn newest(&self) -> u64 {
        self.changes.get()
    }

    /// Asks for a round without waiting for it.
    pub fn ask_for_round(&self) {
        self.changed();
        self.wanted.set(self.changes.get());
        self.work.notify();
    }
}
