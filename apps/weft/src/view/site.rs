//! What the server's threads share: the run, once it is loaded.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::run::Run;

/// The run that is shown, or how far its loading has come.
#[derive(Debug, Default)]
pub struct Site {
    loaded: OnceLock<Result<Arc<Run>, String>>,
    bytes_read: AtomicU64,
    bytes_total: AtomicU64,
}

/// How far the loading is.
#[derive(Debug)]
pub enum State {
    /// Bytes read, and bytes in all.
    Loading(u64, u64),
    /// The run is there.
    Ready(Arc<Run>),
    /// There is nothing to show, and why.
    Failed(String),
}

impl Site {
    /// Loads the files; called once, from a thread of its own.
    pub fn load(&self, paths: &[PathBuf]) {
        let progress = |done, total| {
            self.bytes_read.store(done, Ordering::Relaxed);
            self.bytes_total.store(total, Ordering::Relaxed);
        };
        let run = Run::load(paths, progress).map(Arc::new).map_err(|error| format!("{error:#}"));
        let run = self.loaded.get_or_init(|| run);
        if let Ok(run) = run {
            run.analyse();
        }
    }

    /// Now.
    pub fn state(&self) -> State {
        match self.loaded.get() {
            None => State::Loading(self.bytes_read.load(Ordering::Relaxed), self.bytes_total.load(Ordering::Relaxed)),
            Some(Ok(run)) => State::Ready(run.clone()),
            Some(Err(reason)) => State::Failed(reason.clone()),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::view::sample::{Sample, merged};

    /// A site with a sample of so many operations.
    pub fn site(operations: u64) -> Site {
        site_of(Run::new(merged(&Sample { operations, ..Sample::default() }), Vec::new()))
    }

    pub fn site_of(run: Run) -> Site {
        let site = Site::default();
        site.loaded.set(Ok(Arc::new(run))).expect("it is new");
        site
    }
}
