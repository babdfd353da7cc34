//! Files that this mount has just made have no extended attributes. Programs that copy trees ask for them all the same (`rsync -X`, `cp -a`), and the
//! kernel asks for `security.capability` before it changes an owner: one message for each question, about something that is known.
//!
//! The rule is that of attributes: as far as *other* clients are concerned an answer may be as old as the mount's cache time, counted from when
//! the file was asked for. What this mount sets itself it sees at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_base::{FastMap, Handle, Nanos};

/// Files remembered; beyond that all are forgotten, which costs questions only.
const FILES_MAX: usize = 8192;

/// Files without extended attributes.
#[derive(Debug)]
pub struct BareFiles {
    age_max: u64,
    /// When each was asked for.
    made: Mutex<FastMap<Handle, Nanos>>,
    /// How many there are, so that nobody takes the lock for nothing.
    count: AtomicUsize,
}

impl BareFiles {
    /// Answers may be so old, in nanoseconds.
    pub fn new(age_max: u64) -> BareFiles {
        BareFiles { age_max, made: Mutex::default(), count: AtomicUsize::new(0) }
    }

    /// The file was made by this mount, which asked for it at `asked`.
    pub fn made(&self, file: Handle, asked: Nanos) {
        if self.age_max > 0 {
            self.with(|made| {
                if made.len() >= FILES_MAX {
                    made.clear();
                }
                made.insert(file, asked);
            });
        }
    }

    /// This mount gives the file an attribute.
    pub fn forget(&self, file: Handle) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.with(|made| made.remove(&file));
        }
    }

    /// True if the file had no extended attributes not too long before `now`.
    pub fn is_bare(&self, file: Handle, now: Nanos) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.with(|made| {
            let Some(asked) = made.get(&file) else { return false };
            let is_young = now.since(*asked) < self.age_max;
            if !is_young {
                made.remove(&file);
            }
            is_young
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut FastMap<Handle, Nanos>) -> T) -> T {
        let mut made = self.made.lock().expect("no code panics while it holds this lock");
        let result = work(&mut made);
        self.count.store(made.len(), Ordering::Relaxed);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_bare_for_the_cache_time_or_until_it_is_given_an_attribute() {
        let files = BareFiles::new(1000);
        assert!(!files.is_bare(Handle(7), Nanos(0)), "nothing is known of files that others made");
        files.made(Handle(7), Nanos(100));
        assert!(files.is_bare(Handle(7), Nanos(1099)));
        assert!(!files.is_bare(Handle(7), Nanos(1100)), "knowledge ends with its time");
        files.made(Handle(8), Nanos(200));
        files.forget(Handle(8));
        assert!(!files.is_bare(Handle(8), Nanos(200)));
    }

    #[test]
    fn without_a_cache_nothing_is_remembered() {
        let files = BareFiles::new(0);
        files.made(Handle(7), Nanos(100));
        assert!(!files.is_bare(Handle(7), Nanos(100)));
    }

    #[test]
    fn memory_is_bounded() {
        let files = BareFiles::new(u64::MAX);
        (0..3 * FILES_MAX as u64).for_each(|file| files.made(Handle(file), Nanos(0)));
        assert!(files.made.lock().unwrap().len() <= FILES_MAX);
    }
}
