//! The file whose gathered bytes are sent while it is written (`behind.rs`).

use std::sync::{Arc, Mutex, MutexGuard};

use weft_client::OpenFile;

use crate::signal::Signal;

/// What is to be sent of files before they are closed.
#[derive(Debug, Default)]
pub(crate) struct Sends {
    /// The file for which the flow that sends works.
    file: Mutex<Option<Arc<OpenFile>>>,
    /// There is one, or the end has come.
    pub called: Signal,
}

impl Sends {
    /// True if that flow works for this file from now on, or does so already.
    pub fn takes(&self, file: &Arc<OpenFile>) -> bool {
        let mut works_for = self.lock();
        match &*works_for {
            Some(other) => other.handle() == file.handle(),
            None => {
                *works_for = Some(file.clone());
                drop(works_for);
                self.called.notify();
                true
            }
        }
    }

    /// The file for which there is something to do. None, and then the flow works for no file.
    pub fn next(&self) -> Option<Arc<OpenFile>> {
        let mut works_for = self.lock();
        if works_for.as_ref().is_some_and(|file| !file.has_much_gathered()) {
            *works_for = None;
        }
        works_for.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<OpenFile>>> {
        self.file.lock().expect("no code panics while it holds this lock")
    }
}
