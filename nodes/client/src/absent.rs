//! Names that are known not to exist. A program that makes a file asks for its name first (the kernel always does), and a round trip
//! to hear "no" would double the cost of a create.
//!
//! The client knows *all* names of a directory that it made itself, as long as nobody else changes it. Every answer to a create or
//! unlink carries the version of the directory after the change: if the versions follow each other without a gap, nobody else has
//! changed it between them. A foreign change shows as a gap, and the knowledge is dropped. Between two such proofs somebody else may
//! have made a name, so the knowledge is used only for a stated time after the last one was asked for
//! ([`crate::Client::remember_absent_names`]): that is the bound on a stale "no such file".
//!
//! Only "no" is ever answered from here; creating still asks the server, which decides whether the name is free. Names are kept as
//! hashes: two names with one hash cost a question, never a wrong answer.

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use weft_base::{FastHasher, FastMap, FastSet, Handle, Nanos};

/// Names remembered in all directories together; beyond that all are forgotten (16 bytes each).
const NAMES_MAX: usize = 1 << 20;
/// Changes of one directory whose predecessors have not been seen yet; beyond that somebody else is at work.
const AHEAD_MAX: usize = 64;

/// Directories whose names are all known.
#[derive(Debug, Default)]
pub(crate) struct AbsentNames {
    /// In nanoseconds; 0: nothing is remembered.
    age_max: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    directories: FastMap<Handle, Directory>,
    names: usize,
}

#[derive(Debug)]
struct Directory {
    present: FastSet<u64>,
    /// All changes up to this version are ours.
    version: u64,
    /// Later versions that are ours too; their predecessors' answers may still be on the way.
    ahead: BTreeSet<u64>,
    /// When the question was asked whose answer had this version.
    asked: Nanos,
}

impl AbsentNames {
    /// Use what is known for so long, in nanoseconds.
    pub fn set_age_max(&self, age_max: u64) {
        self.age_max.store(age_max, Ordering::Relaxed);
    }

    fn is_on(&self) -> bool {
        self.age_max.load(Ordering::Relaxed) > 0
    }

    /// A directory was made by us and is empty.
    pub fn made(&self, dir: Handle, version: u64, asked: Nanos) {
        if !self.is_on() {
            return;
        }
        let mut inner = self.lock();
        if inner.names + inner.directories.len() >= NAMES_MAX {
            *inner = Inner::default();
        }
        let directory = Directory { present: FastSet::default(), version, ahead: BTreeSet::new(), asked };
        inner.directories.insert(dir, directory);
    }

    /// We have made a name; the directory had `version` afterwards.
    pub fn created(&self, dir: Handle, name: &[u8], version: u64, asked: Nanos) {
        self.changed(dir, version, asked, |present| usize::from(present.insert(hash(name))) as isize);
    }

    /// We have removed a name; the directory had `version` afterwards.
    pub fn removed(&self, dir: Handle, name: &[u8], version: u64, asked: Nanos) {
        self.changed(dir, version, asked, |present| -(usize::from(present.remove(&hash(name))) as isize));
    }

    /// Something happened in the directory that is not followed here.
    pub fn forget(&self, dir: Handle) {
        if !self.is_on() {
            return;
        }
        let mut inner = self.lock();
        if let Some(directory) = inner.directories.remove(&dir) {
            inner.names -= directory.present.len();
        }
    }

    /// A server has restarted: a power cut may have set versions back.
    pub fn forget_all(&self) {
        *self.lock() = Inner::default();
    }

    /// True if the name did not exist at some time not too long before `now`.
    pub fn is_absent(&self, dir: Handle, name: &[u8], now: Nanos) -> bool {
        let age_max = self.age_max.load(Ordering::Relaxed);
        if age_max == 0 {
            return false;
        }
        let inner = self.lock();
        let Some(directory) = inner.directories.get(&dir) else { return false };
        directory.ahead.is_empty() && now.since(directory.asked) < age_max && !directory.present.contains(&hash(name))
    }

    fn changed(&self, dir: Handle, version: u64, asked: Nanos, change: impl FnOnce(&mut FastSet<u64>) -> isize) {
        if !self.is_on() {
            return;
        }
        let mut inner = self.lock();
        let Some(directory) = inner.directories.get_mut(&dir) else { return };
        let difference = change(&mut directory.present);
        directory.ahead.insert(version);
        while directory.ahead.first() == Some(&(directory.version + 1)) {
            directory.ahead.pop_first();
            directory.version += 1;
            directory.asked = directory.asked.max(asked);
        }
        let foreign = version <= directory.version && directory.ahead.contains(&version) || directory.ahead.len() > AHEAD_MAX;
        inner.names = inner.names.saturating_add_signed(difference);
        if foreign {
            drop(inner);
            self.forget(dir);
        } else if inner.names > NAMES_MAX {
            *inner = Inner::default();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code panics while it holds this lock")
    }
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = FastHasher::default();
    hasher.write(name);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Handle = Handle(7);

    fn known() -> AbsentNames {
        let known = AbsentNames::default();
        known.set_age_max(1000);
        known
    }

    #[test]
    fn names_of_an_own_directory_are_known() {
        let known = known();
        assert!(!known.is_absent(DIR, b"x", Nanos(0)), "nothing is known of a directory that others made");
        known.made(DIR, 5, Nanos(0));
        assert!(known.is_absent(DIR, b"x", Nanos(999)));
        assert!(!known.is_absent(DIR, b"x", Nanos(1000)), "knowledge ends with its time");
        known.created(DIR, b"x", 6, Nanos(900));
        assert!(!known.is_absent(DIR, b"x", Nanos(900)));
        assert!(known.is_absent(DIR, b"y", Nanos(1899)), "every proof extends it");
        known.removed(DIR, b"x", 7, Nanos(1000));
        assert!(known.is_absent(DIR, b"x", Nanos(1000)));
    }

    #[test]
    fn a_change_by_somebody_else_shows_as_a_gap() {
        let known = known();
        known.made(DIR, 5, Nanos(0));
        known.created(DIR, b"x", 7, Nanos(10));
        assert!(!known.is_absent(DIR, b"y", Nanos(10)), "change 6 was not ours, as far as is known");
        known.created(DIR, b"z", 6, Nanos(10));
        assert!(known.is_absent(DIR, b"y", Nanos(10)), "it was ours, and its answer only came late");
        for version in 10..200 {
            known.created(DIR, b"w", version, Nanos(10));
        }
        assert!(!known.is_absent(DIR, b"y", Nanos(10)));
        known.created(DIR, b"w", 8, Nanos(10));
        known.created(DIR, b"w", 9, Nanos(10));
        assert!(!known.is_absent(DIR, b"y", Nanos(10)), "dropped for good");
    }

    #[test]
    fn versions_of_a_repeated_answer_do_no_harm() {
        let known = known();
        known.made(DIR, 5, Nanos(0));
        known.created(DIR, b"x", 6, Nanos(1));
        known.created(DIR, b"x", 6, Nanos(2));
        assert!(!known.is_absent(DIR, b"y", Nanos(2)), "a version twice is not understood, so nothing is known");
    }
}
