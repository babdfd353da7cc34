//! What the kernel was told of files lately. It answers programs from these attributes until they are too old, allows opens by them, and
//! cuts cached reads at their size. So an open compares: what has changed since must be forgotten by the kernel before the open returns.
//!
//! Programs that copy trees, and `ls -l`, ask for extended attributes of every file, and the kernel does before it changes an owner. Attributes say whether
//! there are any, so that none costs no message, within the same age as far as *other* clients are concerned. What this mount sets itself
//! it sees at once: attributes that were asked for before such a change ended say nothing of it.
//!
//! Only what the kernel may still believe is remembered: entries live for one to two times that age, in two generations, so that
//! forgetting costs nothing. An entry costs some 80 bytes and as many nanoseconds for every reply with attributes.
//!
//! It takes two names that lead to one object for names of one file, whose rename does nothing, and then asks nobody. If another mount has moved
//! the object from one name to the other, the first leads elsewhere. So the name under which the kernel was told of an object, and the version of
//! the object then, are remembered, too: to whoever comes by another name to another version, the object is shown under a second number, for
//! that moment only.

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use weft_base::{Attr, FastHasher, FastMap, FileKind, Handle, Nanos, WallTime};
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
    /// Counts beginnings and ends of own changes of extended attributes.
    xattr_changes: AtomicU64,
    shards: [Mutex<Shard>; SHARDS],
    /// Names that were moved through this mount.
    moves: Mutex<Moves>,
}

/// Moved names, in two generations as well: by the new name the old one, and when.
#[derive(Debug, Default)]
struct Moves {
    since: Nanos,
    now: FastMap<u64, (u64, Nanos)>,
    before: FastMap<u64, (u64, Nanos)>,
}

/// A name that was moved more often in a moment is doubtful.
const MOVES_MAX: usize = 8;

impl Moves {
    fn add(&mut self, from: u64, to: u64, now: Nanos, age: u64) {
        if now.since(self.since) >= 2 * age {
            self.before = std::mem::take(&mut self.now);
            self.since = now;
        }
        self.now.insert(to, (from, now));
    }

    /// True if whatever had the name `named` was moved to `name` since.
    fn lead(&self, named: &Named, name: u64) -> bool {
        let mut name = name;
        for _ in 0..MOVES_MAX {
            match self.now.get(&name).or_else(|| self.before.get(&name)) {
                Some((from, at)) if *at >= named.at => name = *from,
                _ => return false,
            }
            if name == named.name {
                return true;
            }
        }
        false
    }
}

#[derive(Debug, Default)]
struct Shard {
    /// When `now` was begun.
    since: Nanos,
    now: FastMap<Handle, Record>,
    before: FastMap<Handle, Record>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    known: Option<Known>,
    named: Option<Named>,
}

/// A name that the kernel may believe to lead to an object.
#[derive(Clone, Copy, Debug)]
struct Named {
    name: u64,
    /// Of the object; a rename or a link makes it another one.
    version: u64,
    at: Nanos,
}

impl Shard {
    /// Drops what is too old.
    fn renewed(&mut self, now: Nanos, age: u64) -> &mut Shard {
        if now.since(self.since) >= age {
            self.turn(now, age);
        }
        self
    }

    /// What is known of an object, in the present generation.
    fn record(&mut self, object: Handle) -> &mut Record {
        let before = &mut self.before;
        self.now.entry(object).or_insert_with(|| before.remove(&object).unwrap_or_default())
    }

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
    /// Told then that it has no extended attributes.
    bare: Option<Nanos>,
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
        Known { written: false, bare: None, version, size, mtime, mode, uid, gid }
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
        let shards = std::array::from_fn(|_| Mutex::default());
        Told { age, xattr_changes: AtomicU64::new(0), shards, moves: Mutex::default() }
    }

    /// The kernel is about to be told these attributes, asked for after so many own changes of extended attributes. To be called before the reply.
    pub fn tell(&self, attr: &Attr, xattr_changes: u64, now: Nanos) {
        if self.age == 0 || attr.kind != FileKind::File {
            return;
        }
        let mut shard = self.shard(attr.handle);
        shard.renewed(now, self.age).record(attr.handle).known = Some(self.believed(attr, xattr_changes, now));
    }

    /// The kernel is about to be told that a name in a directory leads to this object. To be called before the reply. False, and nothing is
    /// remembered, if it may believe that another name does which does not any more.
    pub fn tell_name(&self, dir: Handle, name: &[u8], attr: &Attr, xattr_changes: u64, now: Nanos) -> bool {
        if self.age == 0 {
            return true;
        }
        let mut shard = self.shard(attr.handle);
        let record = shard.renewed(now, self.age).record(attr.handle);
        let name = hash(dir, name);
        // Twice the age: what the kernel is told counts for it from when it hears it.
        let is_doubtful = |named: &Named| {
            let is_other = named.name != name && named.version != attr.version && now.since(named.at) < 2 * self.age;
            is_other && !self.moves().lead(named, name)
        };
        if record.named.as_ref().is_some_and(is_doubtful) {
            return false;
        }
        record.named = Some(Named { name, version: attr.version, at: now });
        if attr.kind == FileKind::File {
            record.known = Some(self.believed(attr, xattr_changes, now));
        }
        true
    }

    /// What the kernel will believe. To be called with the shard locked: a change of extended attributes that begins from now on finds it there.
    fn believed(&self, attr: &Attr, xattr_changes: u64, now: Nanos) -> Known {
        let bare = attr.bare && xattr_changes == self.xattr_changes();
        Known { bare: bare.then_some(now), ..Known::of(attr) }
    }

    /// This mount has given the object this name, beside others.
    pub fn linked(&self, dir: Handle, name: &[u8], attr: &Attr, now: Nanos) {
        if self.age > 0 {
            let named = Named { name: hash(dir, name), version: attr.version, at: now };
            self.shard(attr.handle).renewed(now, self.age).record(attr.handle).named = Some(named);
        }
    }

    /// This mount has moved what had one name to the other.
    pub fn moved(&self, from: (Handle, &[u8]), to: (Handle, &[u8]), now: Nanos) {
        if self.age > 0 {
            self.moves().add(hash(from.0, from.1), hash(to.0, to.1), now, self.age);
        }
    }

    /// To be taken before attributes are asked for.
    pub fn xattr_changes(&self) -> u64 {
        self.xattr_changes.load(Ordering::SeqCst)
    }

    /// This mount is about to give a file an extended attribute.
    pub fn begin_xattr_change(&self) {
        self.xattr_changes.fetch_add(1, Ordering::SeqCst);
    }

    /// It has, perhaps; to be called before the reply.
    pub fn end_xattr_change(&self, file: Handle) {
        self.xattr_changes.fetch_add(1, Ordering::SeqCst);
        let mut shard = self.shard(file);
        let Shard { now, before, .. } = &mut *shard;
        for known in [now, before].into_iter().filter_map(|generation| generation.get_mut(&file)?.known.as_mut()) {
            known.bare = None;
        }
    }

    /// True if the file had no extended attributes not too long before `now`.
    pub fn is_bare(&self, file: Handle, now: Nanos) -> bool {
        self.known(file).and_then(|known| known.bare).is_some_and(|told_at| now.since(told_at) < self.age)
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
            if let Some(known) = now.get_mut(&file).or_else(|| before.get_mut(&file)).and_then(|record| record.known.as_mut()) {
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
        for record in [now.get_mut(&file), before.get_mut(&file)].into_iter().flatten() {
            record.known = record.known.filter(|told| *told != known);
        }
    }

    /// What the kernel may believe.
    pub fn known(&self, file: Handle) -> Option<Known> {
        if self.age == 0 {
            return None;
        }
        let shard = self.shard(file);
        shard.now.get(&file).or_else(|| shard.before.get(&file)).and_then(|record| record.known)
    }

    fn moves(&self) -> MutexGuard<'_, Moves> {
        self.moves.lock().expect("no code panics while it holds this lock")
    }

    fn shard(&self, file: Handle) -> MutexGuard<'_, Shard> {
        self.shards[file.0 as usize % SHARDS].lock().expect("no code panics while it holds this lock")
    }
}

/// Two names with one hash are taken for the same: then a rename that does nothing may go unnoticed, by chance once in 2^64. The hash has no key:
/// who makes such names on purpose harms renames of these names only.
fn hash(dir: Handle, name: &[u8]) -> u64 {
    let mut hasher = FastHasher::default();
    hasher.write_u64(dir.0);
    hasher.write(name);
    hasher.finish()
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
            bare: true,
        }
    }

    #[test]
    fn the_last_word_counts_until_it_is_too_old_or_forgotten() {
        let told = Told::new(100);
        assert!(told.differs(&attr(1, 0o644)).is_none(), "a kernel that was told nothing believes nothing");
        told.tell(&attr(1, 0o644), 0, Nanos(1000));
        assert!(told.differs(&attr(1, 0o644)).is_none() && told.differs(&attr(2, 0o644)).is_some());
        assert_eq!(told.judged(Handle(7)), Some(Judged { mode: 0o644, uid: 1, gid: 2 }));
        told.tell(&attr(2, 0o600), 0, Nanos(1001));
        let known = told.differs(&attr(2, 0o644)).expect("it was told other rights");
        told.tell(&attr(3, 0o600), 0, Nanos(1002));
        told.forgotten(Handle(7), known);
        assert!(told.differs(&attr(9, 0)).is_some(), "told since");
        told.written(Handle(7));
        assert!(told.differs(&attr(9, 0o600)).is_none() && told.differs(&attr(3, 0)).is_some(), "rights do not change by writing");
        let known = told.known(Handle(7)).expect("it was told");
        told.forgotten(Handle(7), known);
        assert!(told.differs(&attr(9, 0)).is_none());
    }

    #[test]
    fn a_second_name_is_doubtful_if_the_object_has_changed_since_the_first() {
        let told = Told::new(100);
        let (one, two) = ((Handle(1), b"a"), (Handle(1), b"b"));
        let tell = |(dir, name): (Handle, &[u8; 1]), version, now| told.tell_name(dir, name, &attr(version, 0), 0, Nanos(now));
        assert!(tell(one, 1, 1000));
        assert!(tell(two, 1, 1010), "a link, the first name of which is true: nothing has changed since");
        assert!(tell(two, 2, 1020), "the same name");
        assert!(!tell(one, 3, 1030));
        assert!(!tell((Handle(9), b"b"), 3, 1030), "the same name elsewhere");
        told.tell(&attr(4, 0), 0, Nanos(1040));
        let known = told.known(Handle(7)).expect("it was told");
        told.forgotten(Handle(7), known);
        assert!(told.known(Handle(7)).is_none() && !tell(one, 4, 1150), "names are believed all the same");
        assert!(tell(one, 4, 1220), "not for ever");
        told.moved((Handle(1), b"a"), (Handle(2), b"c"), Nanos(1230));
        told.moved((Handle(2), b"c"), (Handle(1), b"b"), Nanos(1231));
        assert!(tell(two, 6, 1232), "this mount has moved it");
        assert!(tell(one, 6, 1233));
        assert!(!tell(two, 7, 1234), "not since it has that name");
        told.linked(Handle(1), b"b", &attr(8, 0), Nanos(1235));
        assert!(tell(two, 9, 1236), "its own link");
    }

    #[test]
    fn files_are_bare_for_the_age_or_until_this_mount_gives_them_an_attribute() {
        let told = Told::new(100);
        let dressed = Attr { bare: false, handle: Handle(8), ..attr(1, 0) };
        told.tell(&attr(1, 0), told.xattr_changes(), Nanos(1000));
        told.tell(&dressed, told.xattr_changes(), Nanos(1000));
        assert!(told.is_bare(Handle(7), Nanos(1099)) && !told.is_bare(Handle(8), Nanos(1000)) && !told.is_bare(Handle(9), Nanos(1000)));
        assert!(!told.is_bare(Handle(7), Nanos(1100)), "knowledge ends with its time");
        let asked = told.xattr_changes();
        told.tell(&attr(1, 0), asked, Nanos(1100));
        told.begin_xattr_change();
        told.end_xattr_change(Handle(7));
        assert!(!told.is_bare(Handle(7), Nanos(1101)));
        told.tell(&attr(1, 0), asked, Nanos(1102));
        assert!(!told.is_bare(Handle(7), Nanos(1102)), "asked for before the change");
        told.tell(&attr(2, 0), told.xattr_changes(), Nanos(1103));
        assert!(told.is_bare(Handle(7), Nanos(1103)));
        let never = Told::new(0);
        never.tell(&attr(1, 0), 0, Nanos(1));
        assert!(!never.is_bare(Handle(7), Nanos(1)));
    }

    #[test]
    fn nothing_is_forgotten_before_its_time_and_nothing_kept_for_ever() {
        let told = Told::new(100);
        told.tell(&attr(1, 0), 0, Nanos(1099));
        let other = Attr { handle: Handle(7 + SHARDS as u64), ..attr(1, 0) };
        told.tell(&other, 0, Nanos(1101));
        told.tell(&other, 0, Nanos(1198));
        assert!(told.judged(Handle(7)).is_some(), "99 ns old");
        told.tell(&other, 0, Nanos(1310));
        told.tell(&other, 0, Nanos(1420));
        assert!(told.judged(Handle(7)).is_none());
        let never = Told::new(0);
        never.tell(&attr(1, 0), 0, Nanos(1));
        assert!(never.judged(Handle(7)).is_none());
    }
}
