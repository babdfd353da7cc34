//! What the server's threads share: the runs, once they are loaded.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use weft_analysis::inputs::Input;
use weft_analysis::results::Ceiling;
use weft_analysis::run::Run;
use weft_host::parallel;

/// The runs that are shown, or how far their loading has come.
#[derive(Debug, Default)]
pub struct Site {
    slots: Vec<Slot>,
    come: Mutex<Come>,
    /// Something has come.
    news: Condvar,
}

/// What others wait for.
#[derive(Debug, Default)]
struct Come {
    /// Every run is there, or known to be unreadable.
    loaded: bool,
    /// A picture of a window was asked for and made.
    shown: bool,
}

/// The analysis gives way to the first picture, but waits no longer than this for somebody who
/// wants one.
const PICTURE_WAIT: Duration = Duration::from_millis(1500);

/// The analysis takes all processors: the browser needs one to draw what it was sent.
const DRAWING_TIME: Duration = Duration::from_millis(300);

/// One run.
#[derive(Debug)]
struct Slot {
    input: Input,
    loaded: OnceLock<Result<Arc<Run>, String>>,
    bytes_read: AtomicU64,
    bytes_total: AtomicU64,
}

/// How far the loading is.
#[derive(Debug, PartialEq, Eq)]
pub enum State {
    /// Bytes read, and bytes in all.
    Loading(u64, u64),
    /// Every run is there, or known to be unreadable; at least one is there.
    Ready,
    /// There is nothing to show, and why.
    Failed(String),
}

impl Site {
    /// Runs that are still to be loaded.
    pub fn new(inputs: Vec<Input>) -> Site {
        let slot = |input| Slot { input, loaded: OnceLock::new(), bytes_read: AtomicU64::new(0), bytes_total: AtomicU64::new(0) };
        Site { slots: inputs.into_iter().map(slot).collect(), ..Site::default() }
    }

    /// Loads the runs, each on a thread of its own, then analyses them; called once.
    pub fn load(&self) {
        parallel::each(&self.slots, Slot::load);
        self.come().loaded = true;
        self.news.notify_all();
        if self.runs().next().is_none() {
            return;
        }
        if self.wait_for(PICTURE_WAIT, |come| come.shown) {
            thread::sleep(DRAWING_TIME);
        }
        for (_, run) in self.runs() {
            run.analyse();
        }
    }

    /// Waits until the loading is over, but not longer than this; true if it is over.
    pub fn await_loaded(&self, longest: Duration) -> bool {
        self.wait_for(longest, |come| come.loaded)
    }

    /// Somebody has seen a picture.
    pub fn note_shown(&self) {
        self.come().shown = true;
        self.news.notify_all();
    }

    fn come(&self) -> MutexGuard<'_, Come> {
        self.come.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, longest: Duration, has_come: impl Fn(&Come) -> bool) -> bool {
        let wait = self.news.wait_timeout_while(self.come(), longest, |come| !has_come(come));
        has_come(&wait.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Now.
    pub fn state(&self) -> State {
        if self.slots.iter().any(|slot| slot.loaded.get().is_none()) {
            let sum = |of: fn(&Slot) -> &AtomicU64| self.slots.iter().map(|slot| of(slot).load(Ordering::Relaxed)).sum();
            return State::Loading(sum(|slot| &slot.bytes_read), sum(|slot| &slot.bytes_total));
        }
        if self.runs().next().is_some() {
            return State::Ready;
        }
        let reasons = self.slots.iter().filter_map(|slot| slot.loaded.get()?.as_ref().err().cloned());
        State::Failed(reasons.collect::<Vec<_>>().join("; "))
    }

    /// The run of this number.
    pub fn run(&self, number: u64) -> Option<Arc<Run>> {
        self.slots.get(usize::try_from(number).ok()?)?.loaded.get()?.as_ref().ok().cloned()
    }

    /// All runs that could be read, with their numbers.
    pub fn runs(&self) -> impl Iterator<Item = (usize, Arc<Run>)> {
        self.slots.iter().enumerate().filter_map(|(number, slot)| Some((number, slot.loaded.get()?.as_ref().ok()?.clone())))
    }

    /// Names of all runs, each with why it could not be read, if so.
    pub fn names(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.slots.iter().map(|slot| {
            let refused = slot.loaded.get().and_then(|loaded| loaded.as_ref().err());
            (slot.input.name.as_str(), refused.map(String::as_str))
        })
    }

    /// What the machine allows at best, from whatever run says so; its own comes first.
    pub fn ceilings(&self, run: &Run) -> Vec<Ceiling> {
        let others = self.runs().map(|(_, other)| other.results.ceilings.clone());
        std::iter::once(run.results.ceilings.clone()).chain(others).find(|rows| !rows.is_empty()).unwrap_or_default()
    }
}

impl Slot {
    fn load(&self) {
        let progress = |done, total| {
            self.bytes_read.fetch_max(done, Ordering::Relaxed);
            self.bytes_total.store(total, Ordering::Relaxed);
        };
        let run = Run::load(&self.input, progress).map(Arc::new).map_err(|error| format!("{error:#}"));
        // Only this thread loads this run.
        let _ = self.loaded.set(run);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sample::{Sample, merged};

    /// A site with a sample of so many operations.
    pub fn site(operations: u64) -> Site {
        site_of([Run::new(merged(&Sample { operations, ..Sample::default() }), Vec::new())])
    }

    pub fn site_of(runs: impl IntoIterator<Item = Run>) -> Site {
        let site = |run: Run| {
            let input = Input { name: run.name.clone(), paths: Vec::new() };
            Slot { input, loaded: OnceLock::from(Ok(Arc::new(run))), bytes_read: AtomicU64::new(0), bytes_total: AtomicU64::new(0) }
        };
        Site { slots: runs.into_iter().map(site).collect(), ..Site::default() }
    }

    #[test]
    fn one_run_that_cannot_be_read_does_not_hide_the_others() {
        let dir = tempfile::tempdir().unwrap();
        crate::sample::write(&Sample { operations: 50, ..Sample::default() }, &dir.path().join("good")).unwrap();
        std::fs::create_dir(dir.path().join("empty")).unwrap();
        let input = |name: &str| Input { name: name.into(), paths: vec![dir.path().join(name)] };
        let site = Site::new(vec![input("empty"), input("good")]);
        assert_eq!(site.state(), State::Loading(0, 0));
        site.load();
        assert_eq!(site.state(), State::Ready);
        assert!(site.run(0).is_none() && site.run(1).is_some() && site.run(2).is_none());
        let refused: Vec<bool> = site.names().map(|(_, refused)| refused.is_some()).collect();
        assert_eq!(refused, [true, false]);
        let none = Site::new(vec![input("empty")]);
        none.load();
        assert!(matches!(none.state(), State::Failed(reason) if reason.contains("holds no trace file")));
    }
}
