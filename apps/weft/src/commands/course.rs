//! What a person is told while a tree is worked on.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use weft_client::TreeNews;
use weft_host::connect::Fs;
use weft_host::output::{tell, tell_plainly};
use weft_host::paths::joined;

/// How often the progress of long work is told.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// Tells what fails, and now and then how far it is.
pub struct Course<'a> {
    fs: &'a Fs,
    path: &'a [u8],
    told: Instant,
    is_shown: bool,
}

impl<'a> Course<'a> {
    /// About the tree at this path; `is_shown`: progress is told also if nobody watches the
    /// terminal.
    pub fn new(fs: &'a Fs, path: &'a [u8], is_shown: bool) -> Course<'a> {
        Course { fs, path, told: Instant::now(), is_shown: is_shown || std::io::stderr().is_terminal() }
    }

    pub fn take<T>(&mut self, news: &TreeNews<'_, T>, say: impl Fn(&T) -> String) {
        match news {
            TreeNews::Failed { path, error } => tell(&self.fs.explain(&joined(self.path, path), *error).to_string()),
            TreeNews::Progress(done) if self.is_shown && self.told.elapsed() >= PROGRESS_EVERY => {
                self.told = Instant::now();
                tell_plainly(&say(done));
            }
            TreeNews::Progress(_) => {}
        }
    }
}
