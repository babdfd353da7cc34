//! What this client knows of directories that it works in, so that a create by a program costs one
//! request and not three: the kernel asks for the name before it creates it, and for the
//! directory's attributes after every change.
//!
//! Every answer to a change of one name, or to a rename within one directory, carries the version
//! of the directory after the change: if the versions follow each other without a gap, nobody else
//! has changed it between them, and its attributes follow from the changes. Of a directory that it
//! made itself the client also knows *all* names in this way. A foreign change shows as a gap, and
//! the knowledge is not used any more. Between two such proofs somebody else may have changed the
//! directory, so what is known is used only for a stated time after the last one was asked for
//! ([`crate::Client::follow_directories`]): that is the bound on staleness.
//!
//! Of names only "no such name" is ever answered from here; creating still asks the server, which
//! decides whether the name is free. Names are kept as hashes: two names with one hash cost a
//! question, never a wrong answer.

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use weft_base::{Attr, FastHasher, FastMap, FastSet, FileKind, Handle, Nanos, WallTime};
use weft_wire::ops::DirChange;

use super::often::Often;

/// Names remembered in all directories together; beyond that all are forgotten (16 bytes each).
const NAMES_MAX: usize = 1 << 20;
/// Directories remembered; beyond that all are forgotten (some 200 bytes each).
const DIRECTORIES_MAX: usize = 1 << 15;
/// Changes of one directory whose predecessors have not been seen yet; beyond that somebody else is
/// at work.
const AHEAD_MAX: usize = 64;

/// Directories whose changes are followed.
#[derive(Debug, Default)]
pub(super) struct KnownDirectories {
    /// In nanoseconds; 0: nothing is remembered.
    age_max: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    directories: FastMap<Handle, Directory>,
    names: usize,
    often: Often,
}

#[derive(Debug)]
struct Directory {
    /// All changes up to this version are ours or were seen in an answer.
    attr: Attr,
    /// All names, if they are known.
    names: Option<FastSet<u64>>,
    /// Later versions that are ours; their predecessors' answers may still be on the way.
    ahead: BTreeSet<u64>,
    /// When the question was asked whose answer had this version.
    asked: Nanos,
}

impl KnownDirectories {
    /// Use what is known for so long, in nanoseconds.
    pub fn set_age_max(&self, age_max: u64) {
        self.age_max.store(age_max, Ordering::Relaxed);
    }

    /// For how long what is known is used, in nanoseconds.
    pub fn age_max(&self) -> u64 {
        self.age_max.load(Ordering::Relaxed)
    }

    fn is_on(&self) -> bool {
        self.age_max.load(Ordering::Relaxed) > 0
    }

    /// A directory was made by us and is empty.
    pub fn made(&self, attr: &Attr, asked: Nanos) {
        self.insert(attr, Some(FastSet::default()), asked);
    }

    /// A server has told the attributes of an object.
    pub fn learned(&self, attr: &Attr, asked: Nanos) {
        if attr.kind != FileKind::Directory || !self.is_on() {
            return;
        }
        let mut inner = self.lock();
        let Some(directory) = inner.directories.get_mut(&attr.handle) else {
            drop(inner);
            return self.insert(attr, None, asked);
        };
        if attr.version < directory.attr.version {
            return;
        }
        let later = directory.ahead.split_off(&(attr.version + 1));
        let all_ours = attr.version - directory.attr.version == directory.ahead.len() as u64;
        directory.ahead = later;
        directory.attr = *attr;
        directory.asked = directory.asked.max(asked);
        let forgotten = if all_ours { None } else { directory.names.take() };
        inner.names -= forgotten.map_or(0, |names| names.len());
    }

    /// A directory that is followed has these names, and no others. True if it has as many.
    pub fn names_are<'a>(&self, dir: Handle, names: impl Iterator<Item = &'a [u8]>) -> bool {
        let mut inner = self.lock();
        let Some(directory) = inner.directories.get_mut(&dir) else { return false };
        let names: FastSet<u64> = names.map(hash).collect();
        if !directory.ahead.is_empty() || directory.attr.size != names.len() as u64 {
            return false;
        }
        let count = names.len();
        let before = directory.names.replace(names).map_or(0, |names| names.len());
        inner.names = inner.names + count - before;
        true
    }

    /// A directory is changed so often that nobody is told of it under leases; it was asked for
    /// then.
    pub fn changes_often(&self, attr: &Attr, asked: Nanos, is_split: bool) {
        self.lock().often.told(attr, asked, is_split);
    }

    /// For how many nanoseconds such attributes may be believed.
    pub fn often_holds_ns(&self, dir: Handle, now: Nanos) -> u64 {
        self.lock().often.holds_ns(dir, now)
    }

    /// The attributes of such a directory after our last change, and for how many nanoseconds they
    /// may be believed.
    pub fn often_changed(&self, dir: Handle, now: Nanos) -> Option<(Attr, u64)> {
        self.lock().often.after_own_change(dir, now)
    }

    /// We have changed its attributes, and this is what the server answered. When it does not count
    /// under a lease, [`KnownDirectories::learned`] does not follow.
    pub fn touched(&self, now: &Attr) {
        if !self.is_on() {
            return;
        }
        let mut inner = self.lock();
        inner.often.forget(now.handle);
        let Some(directory) = inner.directories.get_mut(&now.handle).filter(|directory| now.version > directory.attr.version) else {
            return;
        };
        if directory.ahead.last().is_some_and(|last| *last >= now.version) {
            // What a later change has set would be set back.
            drop(inner);
            return self.forget(now.handle);
        }
        // Names are counted here, with the answers of the changes that have made them.
        let Attr { version, size, nlink, .. } = directory.attr;
        directory.attr = Attr { version, size, nlink, ..*now };
        directory.ahead.insert(now.version);
        directory.take_next();
    }

    /// We have made a name.
    pub fn created(&self, dir: Handle, name: &[u8], change: DirChange, asked: Nanos) {
        self.changed(dir, change, asked, Entries { all: 1, directories: 0 }, |names| insert(names, name));
    }

    /// We have made a directory with this name.
    pub fn made_directory(&self, dir: Handle, name: &[u8], change: DirChange, asked: Nanos) {
        self.changed(dir, change, asked, Entries { all: 1, directories: 1 }, |names| insert(names, name));
    }

    /// We have removed a name.
    pub fn removed(&self, dir: Handle, name: &[u8], change: DirChange, asked: Nanos) {
        self.changed(dir, change, asked, Entries { all: -1, directories: 0 }, |names| remove(names, name));
    }

    /// We have removed a directory with this name.
    pub fn removed_directory(&self, dir: Handle, name: &[u8], change: DirChange, asked: Nanos) {
        self.changed(dir, change, asked, Entries { all: -1, directories: -1 }, |names| remove(names, name));
    }

    /// A directory that we have removed, and that nobody will be asked about: who holds it sees no
    /// links.
    pub fn has_no_name(&self, dir: Handle) {
        if let Some(directory) = self.lock().directories.get_mut(&dir) {
            directory.attr.nlink = 0;
        }
    }

    /// We have moved a name within the directory; `replaced`: the new one led to something before.
    pub fn renamed(&self, dir: Handle, (from, to): (&[u8], &[u8]), replaced: bool, change: DirChange, asked: Nanos) {
        let entries = Entries { all: -i64::from(replaced), directories: 0 };
        self.changed(dir, change, asked, entries, |names| remove(names, from) + insert(names, to));
    }

    /// We have moved a name that no server knows yet; the change that makes it counts for both.
    pub fn renamed_untold(&self, dir: Handle, (from, to): (&[u8], &[u8]), at: WallTime) {
        let mut inner = self.lock();
        let Some(directory) = inner.directories.get_mut(&dir) else { return };
        if let Some(names) = &mut directory.names {
            remove(names, from);
            insert(names, to);
        }
        let attr = &mut directory.attr;
        (attr.mtime, attr.ctime) = (at, attr.ctime.max(at));
    }

    /// Something happened in the directory that is not followed here.
    pub fn forget(&self, dir: Handle) {
        if !self.is_on() {
            return;
        }
        let mut inner = self.lock();
        inner.often.forget(dir);
        inner.stop_following(dir);
    }

    /// Its changes are told with versions that do not follow each other.
    pub fn stop_following(&self, dir: Handle) {
        self.lock().stop_following(dir);
    }

    /// A server has restarted: a power cut may have set versions back.
    pub fn forget_all(&self) {
        *self.lock() = Inner::default();
    }

    /// How long before `now`, in nanoseconds, the name certainly did not exist, if that is not too
    /// long ago.
    pub fn absent(&self, dir: Handle, name: &[u8], now: Nanos) -> Option<u64> {
        self.look(dir, now, |directory| (!directory.names.as_ref()?.contains(&hash(name))).then_some(())).map(|((), age)| age)
    }

    /// How many names it has, if all are known, and how long ago in nanoseconds at most.
    pub fn names(&self, dir: Handle, now: Nanos) -> Option<(usize, u64)> {
        self.look(dir, now, |directory| directory.names.as_ref().map(FastSet::len))
    }

    /// Attributes that were true not too long before `now`, and how long ago in nanoseconds at
    /// most.
    pub fn attr(&self, dir: Handle, now: Nanos) -> Option<(Attr, u64)> {
        self.look(dir, now, |directory| Some(directory.attr))
    }

    fn look<T>(&self, dir: Handle, now: Nanos, look: impl FnOnce(&Directory) -> Option<T>) -> Option<(T, u64)> {
        let age_max = self.age_max.load(Ordering::Relaxed);
        if age_max == 0 {
            return None;
        }
        let inner = self.lock();
        let directory = inner.directories.get(&dir)?;
        let age = now.since(directory.asked);
        if directory.ahead.is_empty() && age < age_max { Some((look(directory)?, age)) } else { None }
    }

    fn insert(&self, attr: &Attr, names: Option<FastSet<u64>>, asked: Nanos) {
        if !self.is_on() {
            return;
        }
        let mut inner = self.lock();
        if inner.directories.len() >= DIRECTORIES_MAX {
            *inner = Inner::default();
        }
        inner.directories.insert(attr.handle, Directory { attr: *attr, names, ahead: BTreeSet::new(), asked });
    }

    fn changed(&self, dir: Handle, change: DirChange, asked: Nanos, entries: Entries, note: impl FnOnce(&mut FastSet<u64>) -> isize) {
        if !self.is_on() {
            return;
        }
        let mut inner = self.lock();
        inner.often.changed(dir, change, &entries);
        let Some(directory) = inner.directories.get_mut(&dir) else { return };
        // An answer that was overtaken by newer knowledge, or a repeated one.
        let is_known = change.version <= directory.attr.version || directory.ahead.contains(&change.version);
        let difference = directory.names.as_mut().map_or(0, note);
        if !is_known {
            // The last change decides, not the greatest time.
            let is_last = directory.ahead.last().is_none_or(|last| change.version > *last);
            directory.ahead.insert(change.version);
            let attr = &mut directory.attr;
            entries.add_to(attr);
            if is_last {
                attr.mtime = change.time;
            }
            attr.ctime = attr.ctime.max(change.time);
            if directory.take_next() {
                directory.asked = directory.asked.max(asked);
            }
        }
        let lost = is_known || directory.ahead.len() > AHEAD_MAX;
        inner.names = inner.names.saturating_add_signed(difference);
        if lost {
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

impl Inner {
    fn stop_following(&mut self, dir: Handle) {
        if let Some(directory) = self.directories.remove(&dir) {
            self.names -= directory.names.map_or(0, |names| names.len());
        }
    }
}

impl Directory {
    /// Changes that follow on what is known without a gap are known. True if there are any.
    fn take_next(&mut self) -> bool {
        let before = self.attr.version;
        while self.ahead.first() == Some(&(self.attr.version + 1)) {
            self.ahead.pop_first();
            self.attr.version += 1;
        }
        self.attr.version > before
    }
}

/// How many entries a directory has more than before.
pub(super) struct Entries {
    pub all: i64,
    pub directories: i32,
}

impl Entries {
    pub fn add_to(&self, attr: &mut Attr) {
        attr.size = attr.size.saturating_add_signed(self.all);
        attr.nlink = attr.nlink.saturating_add_signed(self.directories);
    }
}

/// Adds a name; gives by how many there are more.
fn insert(names: &mut FastSet<u64>, name: &[u8]) -> isize {
    usize::from(names.insert(hash(name))) as isize
}

/// Takes a name out; gives by how many there are more.
fn remove(names: &mut FastSet<u64>, name: &[u8]) -> isize {
    -(usize::from(names.remove(&hash(name))) as isize)
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = FastHasher::default();
    hasher.write(name);
    hasher.finish()
}

/// Attributes of a directory, for tests.
#[cfg(test)]
pub(super) fn test_attr(handle: Handle, version: u64) -> Attr {
    let layout = weft_base::Layout { stripe_bytes: 4096, width: 1, first: 0, generation: 1 };
    Attr { version, ..Attr::new(handle, FileKind::Directory, 0o755, layout, WallTime(0)) }
}

#[cfg(test)]
mod tests;
