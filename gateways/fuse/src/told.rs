//! What the kernel was told of files lately. It answers programs from these attributes until they are too old, allows opens by them, and
//! cuts cached reads at their size. So an open compares: what has changed since must be forgotten by the kernel before the open returns.
//!
//! Only what the kernel may still believe is remembered: entries live for one to two times that age, in two generations, so that
//! forgetting costs nothing. An entry costs some 60 bytes and as many nanoseconds for every reply with attributes.

use std::sync::{Mutex, MutexGuard};

use weft_base::{Attr, FastMap, FileKind, Handle, Nanos, WallTime};
use weft_wire::ops::Judged;

/// Threads that tell of different files seldom meet.
const SHARDS: usize = 16;

/// A shard that has room for more, and needs far less, gives its memory back.
const ENTRIES_IDLE_MAX: usize = 1024;

/// Attributes of files as the kernel may believe them.
#[derive(Debug)]
pub struct Told {
    /// How long the kernel believes, in nanoseconds; 0: never, and nothing is remembered.
    age: u64,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    /// When `now` was begun.
    since: Nanos,
    now: FastMap<Handle, Known>,
    before: FastMap<Handle, Known>,
}

impl Shard {
    /// Begins a generation. The memory of the one before the last is used again, unless it has become far too much.
    fn turn(&mut self, now: Nanos, age: u64) {
        std::mem::swap(&mut self.now, &mut self.before);
        if now.since(self.since) >= 2 * age {
            self.before.clear();
        }
        if self.now.capacity() > ENTRIES_IDLE_MAX && self.now.capacity() / 8 > self.before.len() {
            self.now = FastMap::default();
        }
        self.now.clear();
        self.since = now;
    }
}

/// What the kernel may believe of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Written through this mount since: the kernel knows itself that size and times are others.
    written: bool,
    version: u64,
    size: u64,
    mtime: WallTime,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Known {
    fn of(attr: &Attr) -> Known {
        let Attr { version, size, mtime, mode, uid, gid, .. } = *attr;
        Known { written: false, version, size, mtime, mode, uid, gid }
    }

    fn is_true(&self, attr: &Attr) -> bool {
        let is = Known::of(attr);
        let data = self.written || (self.version, self.size, self.mtime) == (is.version, is.size, is.mtime);
        data && (self.mode, self.uid, self.gid) == (is.mode, is.uid, is.gid)
    }
}

impl Told {
    /// For a kernel that believes what it is told for so many nanoseconds.
    pub fn new(age: u64) -> Told {
        Told { age, shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// The kernel is about to be told these attributes. To be called before the reply.
    pub fn tell(&self, attr: &Attr, now: Nanos) {
        if self.age == 0 || attr.kind != FileKind::File {
            return;
        }
        let mut shard = self.shard(attr.handle);
        if now.since(shard.since) >= self.age {
            shard.turn(now, self.age);
        }
        shard.now.insert(attr.handle, Known::of(attr));
    }

    /// What the kernel allows opens of this file by, if it may believe anything.
    pub fn judged(&self, file: Handle) -> Option<Judged> {
        let Known { mode, uid, gid, .. } = self.known(file)?;
        Some(Judged { mode, uid, gid })
    }

    /// A program wrote through this mount. To be called before the reply.
    pub fn written(&self, file: Handle) {
        if self.age > 0 {
            let mut shard = self.shard(file);
            let Shard { now, before, .. } = &mut *shard;
            if let Some(known) = now.get_mut(&file).or_else(|| before.get_mut(&file)) {
                known.written = true;
            }
        }
    }

    /// What the kernel may believe instead of this. It must be told to forget, and then [`Told::forgotten`] be called.
    pub fn differs(&self, attr: &Attr) -> Option<Known> {
        self.known(attr.handle).filter(|known| !known.is_true(attr))
    }

    /// The kernel has forgotten this of the file, whatever it has been told since.
    pub fn forgotten(&self, file: Handle, known: Known) {
        let mut shard = self.shard(file);
        let Shard { now, before, .. } = &mut *shard;
        for generation in [now, before] {
            if generation.get(&file) == Some(&known) {
                generation.remove(&file);
            }
        }
    }

    /// What the kernel may believe.
    pub fn known(&self, file: Handle) -> Option<Known> {
        if self.age == 0 {
            return None;
        }
        let shard = self.shard(file);
        shard.now.get(&file).or_else(|| shard.before.get(&file)).copied()
    }

    fn shard(&self, file: Handle) -> MutexGuard<'_, Shard> {
        self.shards[file.0 as usize % SHARDS].lock().expect("no code panics while it holds this lock")
    }
}

#[cfg(test)]
mod tests {
    use weft_base::Layout;

    use super::*;

    fn attr(version: u64, mode: u32) -> Attr {
        let time = WallTime(0);
        Attr {
            handle: Handle(7),
            kind: FileKind::File,
            mode,
            uid: 1,
            gid: 2,
            nlink: 1,
            rdev: 0,
            size: 10,
            atime: time,
            mtime: time,
            mtime_epoch: 0,
            ctime: time,
            version,
            truncate_epoch: 0,
            layout: Layout { stripe_bytes: 4096, width: 1, first: 0 },
        }
    }

    #[test]
    fn the_last_word_counts_until_it_is_too_old_or_forgotten() {
        let told = Told::new(100);
        assert!(told.differs(&attr(1, 0o644)).is_none(), "a kernel that was told nothing believes nothing");
        told.tell(&attr(1, 0o644), Nanos(1000));
        assert!(told.differs(&attr(1, 0o644)).is_none() && told.differs(&attr(2, 0o644)).is_some());
        assert_eq!(told.judged(Handle(7)), Some(Judged { mode: 0o644, uid: 1, gid: 2 }));
        told.tell(&attr(2, 0o600), Nanos(1001));
        let known = told.differs(&attr(2, 0o644)).expect("it was told other rights");
        told.tell(&attr(3, 0o600), Nanos(1002));
        told.forgotten(Handle(7), known);
        assert!(told.differs(&attr(9, 0)).is_some(), "told since");
        told.written(Handle(7));
        assert!(told.differs(&attr(9, 0o600)).is_none() && told.differs(&attr(3, 0)).is_some(), "rights do not change by writing");
        let known = told.known(Handle(7)).expect("it was told");
        told.forgotten(Handle(7), known);
        assert!(told.differs(&attr(9, 0)).is_none());
    }

    #[test]
    fn nothing_is_forgotten_before_its_time_and_nothing_kept_for_ever() {
        let told = Told::new(100);
        told.tell(&attr(1, 0), Nanos(1099));
        let other = Attr { handle: Handle(7 + SHARDS as u64), ..attr(1, 0) };
        told.tell(&other, Nanos(1101));
        told.tell(&other, Nanos(1198));
        assert!(told.judged(Handle(7)).is_some(), "99 ns old");
        told.tell(&other, Nanos(1310));
        told.tell(&other, Nanos(1420));
        assert!(told.judged(Handle(7)).is_none());
        let never = Told::new(0);
        never.tell(&attr(1, 0), Nanos(1));
        assert!(never.judged(Handle(7)).is_none());
    }
}
