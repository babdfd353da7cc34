//! Where the kernel has directories.
//!
//! A kernel knows a directory by one name only. If another mount has moved it, the kernel still has
//! it in the old place when it finds it in the new one, and moves it there. For that it needs locks
//! which it does not wait for: within a rename over two directories, or while another program is in
//! one or makes something in the old parent, it does not get them and answers ESTALE. So it is made
//! to forget the old place before it is told the new one.
//!
//! That takes the lock of the old parent, which whoever waits for this mount may hold: a thread of
//! its own does it, and is waited for a moment only. If that is not enough, the kernel gets the
//! directory under its second number for that once: as another one, which is nowhere yet.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::Duration;

use weft_base::FastMap;

use crate::kernel::{INodeNo, Notifier};

/// Directories that are remembered, each with some 150 bytes. If there are more, all are forgotten.
const DIRECTORIES_MAX: usize = 1 << 14;
/// Old places that are being forgotten at the same time, at most.
const THREADS_MAX: usize = 16;
/// How long is waited for one.
const PATIENCE: Duration = Duration::from_millis(100);

/// A name in a directory, by the kernel's number of that.
type Place = (INodeNo, Box<[u8]>);

/// Where the kernel has directories, as far as it was told lately.
#[derive(Debug, Default)]
pub struct DirectoryPlaces {
    known: Mutex<Known>,
    threads: Arc<AtomicUsize>,
}

/// Where directories are, and what is there.
#[derive(Debug, Default)]
struct Known {
    of: FastMap<INodeNo, Place>,
    /// Users choose names: this has no hash that some of them could share.
    at: BTreeMap<Place, INodeNo>,
}

impl Known {
    /// The directory is in this place, and was in that one before, if that is known.
    fn put(&mut self, (parent, name): (INodeNo, &[u8]), dir: INodeNo) -> Option<Place> {
        // Nearly always: that costs no allocation.
        if self.of.get(&dir).is_some_and(|(known, known_name)| (*known, &**known_name) == (parent, name)) {
            return None;
        }
        let place: Place = (parent, name.into());
        if self.of.len() >= DIRECTORIES_MAX {
            *self = Known::default();
        }
        self.take(&place);
        let before = self.of.insert(dir, place.clone());
        if let Some(before) = &before {
            self.at.remove(before);
        }
        self.at.insert(place, dir);
        before
    }

    /// What was in this place is not there any more.
    fn take(&mut self, place: &Place) -> Option<INodeNo> {
        let dir = self.at.remove(place)?;
        self.of.remove(&dir);
        Some(dir)
    }
}

impl DirectoryPlaces {
    /// The kernel is about to be told that a name leads to this directory. False if it may not be
    /// told so, because it has it elsewhere and does not forget that.
    pub fn found(&self, parent: INodeNo, name: &[u8], dir: INodeNo, notifier: Option<&Notifier>) -> bool {
        let before = self.known().put((parent, name), dir);
        // Within one parent the kernel needs no more locks than it has.
        match (before.filter(|(old_parent, _)| *old_parent != parent), notifier) {
            (Some(old), Some(notifier)) => self.forgets(old, notifier.clone()).unwrap_or(false),
            _ => true,
        }
    }

    /// True if it has done so by now.
    fn forgets(&self, (parent, name): Place, notifier: Notifier) -> io::Result<bool> {
        let running = Running::begin(&self.threads);
        if self.threads.load(Ordering::Relaxed) > THREADS_MAX {
            return Ok(false);
        }
        let (done, hears) = mpsc::channel();
        std::thread::Builder::new().name("weft-places".into()).spawn(move || {
            let _running = running;
            // If the mount has ended, so has what asks.
            let _ = notifier.inval_entry(parent, &name);
            let _ = done.send(());
        })?;
        Ok(hears.recv_timeout(PATIENCE).is_ok())
    }

    /// The kernel is told a name of this directory, which it did not know, or by this number only.
    pub fn made(&self, parent: INodeNo, name: &[u8], dir: INodeNo) {
        self.known().put((parent, name), dir);
    }

    /// The kernel is about to be told of this directory in a listing: if it knows it, it does not
    /// move it in any case.
    pub fn listed(&self, parent: INodeNo, name: &[u8], dir: INodeNo) {
        let mut known = self.known();
        if !known.of.contains_key(&dir) {
            known.put((parent, name), dir);
        }
    }

    /// The kernel moves what one name leads to to the other, perhaps in exchange.
    pub fn moved(&self, from: (INodeNo, &[u8]), to: (INodeNo, &[u8]), is_exchange: bool) {
        let mut known = self.known();
        let (moved, replaced) = (known.take(&(from.0, from.1.into())), known.take(&(to.0, to.1.into())));
        if let Some(dir) = moved {
            known.put(to, dir);
        }
        if let Some(dir) = replaced.filter(|_| is_exchange) {
            known.put(from, dir);
        }
    }

    /// A name leads nowhere any more.
    pub fn removed(&self, parent: INodeNo, name: &[u8]) {
        self.known().take(&(parent, name.into()));
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no code panics while it holds this lock")
    }
}

/// Counts a thread while it lives.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn begin(count: &Arc<AtomicUsize>) -> Running {
        count.fetch_add(1, Ordering::Relaxed);
        Running(count.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: INodeNo = INodeNo(1);
    const TWO: INodeNo = INodeNo(2);

    fn place(parent: INodeNo, name: &[u8]) -> Place {
        (parent, name.into())
    }

    #[test]
    fn a_directory_is_where_the_kernel_has_put_it() {
        let places = DirectoryPlaces::default();
        places.made(ONE, b"a", INodeNo(10));
        assert_eq!(places.known().put((TWO, b"a"), INodeNo(10)), Some(place(ONE, b"a")), "others have moved it");
        places.moved((TWO, b"a"), (ONE, b"b"), false);
        assert_eq!(places.known().put((ONE, b"b"), INodeNo(10)), None, "the kernel knows of its own rename");
        places.made(TWO, b"c", INodeNo(11));
        places.moved((ONE, b"b"), (TWO, b"c"), true);
        assert_eq!(places.known().of.get(&INodeNo(11)), Some(&place(ONE, b"b")), "they are exchanged");
        assert_eq!(places.known().of.get(&INodeNo(10)), Some(&place(TWO, b"c")));
        places.moved((ONE, b"b"), (TWO, b"c"), false);
        assert_eq!(places.known().of.len(), 1, "one has taken the place of the other");
        places.removed(TWO, b"c");
        assert!(places.known().of.is_empty() && places.known().at.is_empty());
    }

    #[test]
    fn what_takes_a_place_has_it_alone() {
        let places = DirectoryPlaces::default();
        places.made(ONE, b"a", INodeNo(10));
        places.made(ONE, b"a", INodeNo(11));
        assert!(places.found(TWO, b"a", INodeNo(10), None), "it was nowhere");
        let counts = || {
            let known = places.known();
            (known.of.len(), known.at.len())
        };
        assert_eq!(counts(), (2, 2));
        for number in 0..2 * DIRECTORIES_MAX as u64 {
            places.made(TWO, &number.to_le_bytes(), INodeNo(100 + number));
        }
        let (of, at) = counts();
        assert!(of == at && (1..=DIRECTORIES_MAX).contains(&of), "{of} directories in {at} places");
    }
}
