//! Files that wait to be closed (`closing.rs`).

use std::sync::{Arc, Mutex, MutexGuard};

use weft_client::OpenFile;

use crate::ahead_queue::AheadQueue;
use crate::sends::Sends;
use crate::signal::Signal;

/// With more closes waiting than this, the closing flow does its own.
const WAITING_MAX: usize = 4096;
/// Files to be closed.
#[derive(Debug, Default)]
pub(crate) struct Closes {
    state: Mutex<State>,
    /// Files wait, or the end has come: for the flow that closes.
    pub called: Signal,
    /// The end has come, what waited has been closed, or leases begin to be kept: for everybody
    /// else.
    pub ended: Signal,
    /// What is sent before (`behind.rs`).
    pub sends: Sends,
    /// What is read ahead beside the reads.
    pub reads: AheadQueue,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub waiting: Vec<Arc<OpenFile>>,
    /// Some are being closed.
    pub works: bool,
    /// No more come.
    pub ends: bool,
}

impl Closes {
    /// Takes a file to be closed soon; gives it back if the caller must close it.
    pub fn add(&self, file: Arc<OpenFile>) -> Option<Arc<OpenFile>> {
        let state = self.lock();
        if state.ends || state.waiting.len() >= WAITING_MAX {
            return Some(file);
        }
        self.push_to(state, file);
        None
    }

    /// True if a file can be taken. Others may take the room at the same moment: then there are a
    /// few more than there should be.
    pub fn has_room(&self) -> bool {
        let state = self.lock();
        !state.ends && state.waiting.len() < WAITING_MAX
    }

    /// Takes a file to be closed soon, for which there is room.
    pub fn push(&self, file: Arc<OpenFile>) {
        self.push_to(self.lock(), file);
    }

    fn push_to(&self, mut state: MutexGuard<'_, State>, file: Arc<OpenFile>) {
        state.waiting.push(file);
        let is_first = state.waiting.len() == 1;
        drop(state);
        if is_first {
            self.called.notify();
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}
