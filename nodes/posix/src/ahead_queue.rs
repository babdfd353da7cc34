//! What is to be read ahead beside the reads ([`crate::Posix::move_in_background`]).

use std::sync::{Arc, Mutex, MutexGuard};

use crate::ahead::AskingBehind;
use crate::description::Description;
use crate::signal::Signal;

/// Flows that read ahead, each of one file at a time. Who reads another one asks for more by
/// itself.
pub(crate) const FLOWS: usize = 4;

/// More of an open file.
type Job = (Arc<Description>, AskingBehind);

/// What those flows shall do.
#[derive(Debug, Default)]
pub(crate) struct AheadQueue {
    state: Mutex<State>,
    /// There is something, or the end has come.
    pub called: Signal,
}

#[derive(Debug, Default)]
struct State {
    jobs: Vec<Job>,
    /// Flows that have nothing to do. None, if nobody drives them.
    idle: usize,
}

impl AheadQueue {
    /// Takes a job, if a flow is free; otherwise gives it back.
    pub fn add(&self, job: Job) -> Option<Job> {
        let mut state = self.lock();
        if state.jobs.len() >= state.idle {
            return Some(job);
        }
        state.jobs.push(job);
        drop(state);
        self.called.notify();
        None
    }

    /// A flow has nothing to do from now on.
    pub fn rest(&self) {
        self.lock().idle += 1;
    }

    /// Something to do for one of these.
    pub fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        let job = state.jobs.pop()?;
        state.idle -= 1;
        Some(job)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}
