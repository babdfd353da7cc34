//! Opens that met a file which is not, or not so, any more what a cache above remembers.
//!
//! The answer to such an open is ESTALE: a kernel then walks the whole path again, once, and asks
//! for every name and its attributes anew. What it meets then is what counts, so two things are
//! remembered between the answer and the second open of the same thread. If the walk asks for a
//! name of a file, the file is opened right then (`Walks::found`): between the look-up and the open
//! somebody else may replace it, and a second ESTALE would reach the program. If it comes back to
//! the same file without asking (through `/proc/self/fd`), that file is meant, even without a name.
//!
//! A kernel may also meet the file's end before the open, when it asks for the attributes to check
//! rights by (`Walks::missed`). It walks again as well, but whether to open, and with which rights,
//! is not known yet: files are opened for reading, as most are.
//!
//! Who walks is remembered for some seconds, in which it must come back. What its requests take
//! does not count: they may wait for a server that starts anew.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use weft_base::{Attr, Handle, Nanos, SECOND};
use weft_client::OpenFile;
use weft_wire::Rights;

/// A thread that comes back later is out of luck: it may see ESTALE.
const AGE_MAX: u64 = 5 * SECOND;

/// Threads that walk a path for the second time.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    /// Saves everybody else a lock.
    count: AtomicUsize,
    walks: Mutex<BTreeMap<u32, Walk>>,
    /// Opened for walks after which their threads walked once more.
    in_vain: Mutex<Vec<Arc<OpenFile>>>,
}

#[derive(Debug)]
struct Walk {
    since: Nanos,
    /// `None`: an open may follow, or none.
    rights: Option<Rights>,
    found: Option<(Attr, Arc<OpenFile>)>,
    /// When the request began that the thread waits for.
    waits_since: Option<Nanos>,
}

impl Walk {
    fn is_old(&self, now: Nanos) -> bool {
        now == Nanos::NEVER || self.waits_since.is_none() && now.since(self.since) >= AGE_MAX
    }
}

/// A request of a thread that walks again, while it lasts.
#[derive(Debug)]
pub(crate) struct Waiting<'a, F: Fn() -> Nanos> {
    walks: &'a Walks,
    thread: u32,
    clock: F,
}

impl<F: Fn() -> Nanos> Drop for Waiting<'_, F> {
    fn drop(&mut self) {
        if let Some(walk) = self.walks.lock().get_mut(&self.thread)
            && let Some(began) = walk.waits_since.take()
        {
            walk.since = walk.since + (self.clock)().since(began);
        }
    }
}

/// What is known of an open by a thread.
#[derive(Debug)]
pub(crate) enum Second {
    /// Nothing: it is the first.
    No,
    /// It walked again and means this file, whatever its name and rights.
    Same,
    /// It walked again and found this file, which has been opened for it.
    Opened(Attr, Arc<OpenFile>),
}

impl Walks {
    /// An open by this thread is being refused.
    pub fn refuse(&self, thread: u32, rights: Rights, now: Nanos) {
        self.begin(thread, Some(rights), now);
    }

    /// This thread is told that the object which it asked about is gone.
    pub fn missed(&self, thread: u32, now: Nanos) {
        self.begin(thread, None, now);
    }

    fn begin(&self, thread: u32, rights: Option<Rights>, now: Nanos) {
        let mut walks = self.lock();
        let before = walks.insert(thread, Walk { since: now, rights, found: None, waits_since: None });
        self.count.store(walks.len(), Ordering::Relaxed);
        drop(walks);
        if let Some((_, file)) = before.and_then(|walk| walk.found) {
            self.lock_in_vain().push(file);
        }
    }

    /// A request of this thread begins that may wait for servers, and ends when this is dropped.
    pub fn waits<F: Fn() -> Nanos>(&self, thread: u32, clock: F) -> Option<Waiting<'_, F>> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.lock().get_mut(&thread)?.waits_since = Some(clock());
        Some(Waiting { walks: self, thread, clock })
    }

    /// The rights with which this thread wants to open what its walk is about to find.
    pub fn wants(&self, thread: u32) -> Option<Rights> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.lock().get(&thread).map(|walk| walk.rights.unwrap_or(Rights::READ))
    }

    /// A file was opened for this thread, which has just looked its name up. What was opened for an
    /// earlier name is returned.
    pub fn found(&self, thread: u32, attr: Attr, file: Arc<OpenFile>) -> Option<Arc<OpenFile>> {
        match self.lock().get_mut(&thread) {
            Some(walk) => walk.found.replace((attr, file)).map(|(_, before)| before),
            None => Some(file),
        }
    }

    /// This thread opens this file. What was opened for it in vain is to be closed.
    pub fn opens(&self, thread: u32, file: Handle, rights: Rights) -> (Second, Option<Arc<OpenFile>>) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return (Second::No, None);
        }
        let mut walks = self.lock();
        let Some(walk) = walks.remove(&thread) else { return (Second::No, None) };
        self.count.store(walks.len(), Ordering::Relaxed);
        match walk.found {
            Some((attr, opened)) if opened.handle() == file && opened.rights() == rights => (Second::Opened(attr, opened), None),
            Some((_, opened)) if opened.handle() == file => (Second::Same, Some(opened)),
            Some((_, opened)) => (Second::No, Some(opened)),
            None if walk.rights.is_none() => (Second::No, None),
            // It comes back to the same file without asking; or another thread has asked at the
            // same time, and both go on with that answer.
            None => (Second::Same, None),
        }
    }

    /// Files that were opened for threads which did not come back until `now`, or not for them.
    pub fn expire(&self, now: Nanos) -> Vec<Arc<OpenFile>> {
        let mut files = std::mem::take(&mut *self.lock_in_vain());
        if self.count.load(Ordering::Relaxed) == 0 {
            return files;
        }
        let mut walks = self.lock();
        let old: Vec<u32> = walks.iter().filter(|(_, walk)| walk.is_old(now)).map(|(thread, _)| *thread).collect();
        files.extend(old.into_iter().filter_map(|thread| walks.remove(&thread)?.found).map(|(_, file)| file));
        self.count.store(walks.len(), Ordering::Relaxed);
        files
    }

    fn lock_in_vain(&self) -> MutexGuard<'_, Vec<Arc<OpenFile>>> {
        self.in_vain.lock().expect("no code panics while it holds this lock")
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Walk>> {
        self.walks.lock().expect("no code panics while it holds this lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_walk_is_known_by_its_thread_and_only_once() {
        let walks = Walks::default();
        assert!(matches!(walks.opens(1, Handle(7), Rights::READ).0, Second::No));
        walks.refuse(1, Rights::READ, Nanos(0));
        assert_eq!((walks.wants(1), walks.wants(2)), (Some(Rights::READ), None));
        assert!(matches!(walks.opens(2, Handle(7), Rights::READ).0, Second::No), "another thread");
        assert!(matches!(walks.opens(1, Handle(7), Rights::READ).0, Second::Same));
        assert!(matches!(walks.opens(1, Handle(7), Rights::READ).0, Second::No), "the next open is a first one again");
        walks.refuse(1, Rights::READ, Nanos(0));
        let other = walks.opens(1, Handle(8), Rights::READ).0;
        assert!(matches!(other, Second::Same), "another file, for whose name another thread has asked");
        walks.missed(1, Nanos(0));
        assert_eq!(walks.wants(1), Some(Rights::READ));
        assert!(matches!(walks.opens(1, Handle(8), Rights::READ).0, Second::No), "it has not looked any name up");
        walks.refuse(1, Rights::READ, Nanos(0));
        assert!(walks.expire(Nanos(AGE_MAX)).is_empty());
        assert_eq!(walks.wants(1), None);
    }

    #[test]
    fn what_its_requests_take_does_not_make_a_walk_old() {
        let (walks, now) = (Walks::default(), std::cell::Cell::new(Nanos(0)));
        let at = |ns: u64| {
            now.set(Nanos(ns));
            walks.expire(now.get());
        };
        assert!(walks.waits(1, || now.get()).is_none(), "it does not walk again");
        walks.refuse(1, Rights::READ, now.get());
        for request in 0..3 {
            at(request * 9 * AGE_MAX + AGE_MAX / 4);
            let waiting = walks.waits(1, || now.get());
            at(request * 9 * AGE_MAX + 9 * AGE_MAX);
            drop(waiting);
        }
        at(27 * AGE_MAX + AGE_MAX / 4 - 1);
        assert_eq!(walks.wants(1), Some(Rights::READ));
        at(27 * AGE_MAX + AGE_MAX / 4);
        assert_eq!(walks.wants(1), None);
    }
}
