//! What a cache above was told of files lately: the kernel of a mount, say. It answers programs
//! from these attributes until they are too old, allows opens by them, and cuts cached reads at
//! their size. So an open compares: what has changed since must be forgotten above before the open
//! returns (`attributes.rs`).
//!
//! Programs that copy trees, and `ls -l`, ask for extended attributes of every file, and the kernel
//! does before it changes an owner. Attributes say whether there are any, so that none costs no
//! message (`bare.rs`).
//!
//! The kernel takes two names that lead to one object for names of one file, whose rename does
//! nothing, and then asks nobody. If another gateway has moved the object from one name to the
//! other, the first leads elsewhere. So names are remembered, too (`names.rs`, `moves.rs`): to
//! whoever comes by another name to another version, the object is shown under a second number, for
//! that moment only.
//!
//! A kernel that hears that attributes have changed while it asks for them drops the answer
//! (`attr_version` in its `fs/fuse`) and judges by what it knew before: in a directory that others
//! fill, by a mode of long ago. So the first attributes of a directory are told for the moment
//! only. Nothing is to be forgotten then, and what it knows when it is told more is not too old
//! ([`Told::tell`]).
//!
//! Only what may still be believed is remembered (`generations.rs`): entries live for one to two
//! times that age, so that forgetting costs nothing. An entry costs some 80 bytes and as many
//! nanoseconds for every reply with attributes.

mod attributes;
mod bare;
mod generations;
mod lists;
mod moves;
mod names;

use std::sync::{Mutex, MutexGuard};

use weft_base::{Attr, FileKind, Handle, Nanos, SECOND};
use weft_wire::ops::Judged;

pub(crate) use attributes::Known;
use bare::XattrChanges;
pub(crate) use bare::XattrCount;
use generations::Generations;
use lists::Lists;
use moves::Moves;
use names::{Named, hash};

/// Threads that tell of different files seldom meet.
const SHARDS: usize = 16;
/// Longer than what is told under a lease may be believed without asking again, in nanoseconds.
const LEASED_NS_MAX: u64 = 10 * SECOND;

/// Attributes and names of files as they may be believed above.
#[derive(Debug)]
pub(crate) struct Told {
    /// How long they are believed, in nanoseconds; 0: never, and nothing is remembered.
    age: u64,
    /// Names are believed only as long as they are true.
    names_are_true: bool,
    xattr_changes: XattrChanges,
    shards: [Mutex<Generations>; SHARDS],
    /// Names that were moved through this gateway.
    moves: Mutex<Moves>,
    lists: Lists,
}

/// True for what opens are judged by, and for what a kernel asks for access control lists when
/// somebody walks through it.
fn is_remembered(kind: FileKind) -> bool {
    matches!(kind, FileKind::File | FileKind::Directory)
}

impl Told {
    /// For a cache that believes what it is told for so many nanoseconds, or as long as leases
    /// hold.
    pub fn new(age: u64, keeps_leases: bool) -> Told {
        let shards = std::array::from_fn(|_| Mutex::default());
        let age = if keeps_leases { age.max(LEASED_NS_MAX) } else { age };
        Told {
            age,
            names_are_true: keeps_leases,
            xattr_changes: XattrChanges::default(),
            shards,
            moves: Mutex::default(),
            lists: Lists::default(),
        }
    }

    /// These attributes, asked for after so many own changes of extended attributes, are about to
    /// be told. To be called before the reply. False if they may be believed for the moment only:
    /// nothing is known above of this directory, or what is known is old.
    pub fn tell(&self, attr: &Attr, asked_after: XattrCount, now: Nanos) -> bool {
        self.tell_with(attr, now, |_, known| known.told_at = self.told_at(asked_after, now))
    }

    /// The same for attributes of a directory that say nothing new of extended ones.
    pub fn tell_known(&self, attr: &Attr, now: Nanos) -> bool {
        self.tell_with(attr, now, |before, known| known.told_at = before.and_then(|before| before.told_at))
    }

    /// `complete` is called with the shard locked: a change of extended attributes that begins from
    /// then on finds what is told there.
    fn tell_with(&self, attr: &Attr, now: Nanos, complete: impl FnOnce(Option<Known>, &mut Known)) -> bool {
        if self.age == 0 || !is_remembered(attr.kind) {
            return true;
        }
        let mut shard = self.shard(attr.handle);
        let before = &mut shard.renewed(now, self.age).record(attr.handle).known;
        let mut known = Known::of(attr);
        known.is_momentary = attr.kind == FileKind::Directory && before.is_none();
        complete(*before, &mut known);
        *before = Some(known);
        !known.is_momentary
    }

    /// That a name in a directory leads to this object is about to be told. To be called before the
    /// reply. False, and nothing is remembered, if another name may be believed to lead to it which
    /// does not any more.
    pub fn tell_name(&self, dir: Handle, name: &[u8], attr: &Attr, asked_after: XattrCount, now: Nanos) -> bool {
        if self.age == 0 {
            return true;
        }
        let mut shard = self.shard(attr.handle);
        let record = shard.renewed(now, self.age).record(attr.handle);
        let told = Named { name: hash(dir, name), version: attr.version, at: now };
        let is_doubtful = |before: &Named| before.contradicts(&told, self.age) && !self.moves().lead(before, told.name);
        if !self.names_are_true && record.named.as_ref().is_some_and(is_doubtful) {
            return false;
        }
        record.named = Some(told);
        if is_remembered(attr.kind) {
            let known = record.known.insert(Known::of(attr));
            known.told_at = self.told_at(asked_after, now);
        }
        true
    }

    /// The moment from which on an answer holds that was asked for after so many own changes of
    /// extended attributes.
    fn told_at(&self, asked_after: XattrCount, now: Nanos) -> Option<Nanos> {
        (asked_after == self.xattr_changes.count()).then_some(now)
    }

    /// This gateway has given the object this name, beside others.
    pub fn linked(&self, dir: Handle, name: &[u8], attr: &Attr, now: Nanos) {
        if self.age > 0 {
            let named = Named { name: hash(dir, name), version: attr.version, at: now };
            self.shard(attr.handle).renewed(now, self.age).record(attr.handle).named = Some(named);
        }
    }

    /// This gateway has moved what had one name to the other.
    pub fn moved(&self, from: (Handle, &[u8]), to: (Handle, &[u8]), now: Nanos) {
        if self.age > 0 {
            self.moves().add(hash(from.0, from.1), hash(to.0, to.1), now, self.age);
        }
    }

    /// The access control list of an object is about to be told. Returns another object whose list
    /// must be made forgotten above first: these would become too many.
    pub fn tell_list(&self, object: Handle) -> Option<Handle> {
        self.lists.tell(object)
    }

    /// True if an access control list, or that there is none, must be made forgotten above before a
    /// name is told that leads to an object with these attributes.
    pub fn may_have_old_list(&self, attr: &Attr) -> bool {
        self.lists.may_be_old(attr)
    }

    /// To be taken before attributes are asked for.
    pub fn xattr_changes(&self) -> XattrCount {
        self.xattr_changes.count()
    }

    /// This gateway is about to give a file an extended attribute.
    pub fn begin_xattr_change(&self) {
        self.xattr_changes.add();
    }

    /// It has, perhaps; to be called before the reply.
    pub fn end_xattr_change(&self, file: Handle) {
        self.xattr_changes.add();
        self.shard(file).of_both(file).filter_map(|record| record.known.as_mut()).for_each(|known| known.told_at = None);
    }

    /// True if the object had no extended attributes not too long before `now`.
    pub fn is_bare(&self, object: Handle, now: Nanos) -> bool {
        self.heard(object, now).is_some_and(|known| known.bare)
    }

    /// True if the object had no access control list not too long before `now`.
    pub fn has_no_list(&self, object: Handle, now: Nanos) -> bool {
        self.heard(object, now).is_some_and(|known| known.has_no_list())
    }

    /// What was told of an object not too long before `now`, and since own changes.
    fn heard(&self, object: Handle, now: Nanos) -> Option<Known> {
        self.known(object).filter(|known| known.told_at.is_some_and(|told_at| now.since(told_at) < self.age))
    }

    /// What opens of this file are allowed by above, if anything may be believed.
    pub fn judged(&self, file: Handle) -> Option<Judged> {
        self.known(file).map(Known::judged)
    }

    /// A program wrote through this gateway. To be called before the reply.
    pub fn written(&self, file: Handle) {
        if self.age > 0
            && let Some(known) = self.shard(file).get_mut(file).and_then(|record| record.known.as_mut())
        {
            known.written = true;
        }
    }

    /// What may be believed instead of this. It must be made forgotten above, and then
    /// [`Told::forgotten`] be called.
    pub fn differs(&self, attr: &Attr) -> Option<Known> {
        self.known(attr.handle).filter(|known| !known.is_true(attr))
    }

    /// This is forgotten above, whatever has been told since.
    pub fn forgotten(&self, file: Handle, known: Known) {
        self.shard(file).of_both(file).for_each(|record| record.known = record.known.filter(|told| *told != known));
    }

    /// True if something may be believed of this object, which is of this kind, if that is known.
    pub fn may_be_believed(&self, object: Handle, kind: Option<FileKind>) -> bool {
        let is_remembered = self.age > 0 && kind == Some(FileKind::Directory);
        let is_believed = self.known(object).map_or(!is_remembered, |known| !known.is_momentary);
        is_believed || self.lists.are_told(object)
    }

    /// What may be believed.
    pub fn known(&self, file: Handle) -> Option<Known> {
        if self.age == 0 { None } else { self.shard(file).get(file)?.known }
    }

    fn moves(&self) -> MutexGuard<'_, Moves> {
        self.moves.lock().expect("no code panics while it holds this lock")
    }

    fn shard(&self, file: Handle) -> MutexGuard<'_, Generations> {
        self.shards[file.0 as usize % SHARDS].lock().expect("no code panics while it holds this lock")
    }
}

#[cfg(test)]
mod tests {
    use weft_base::{Layout, WallTime};

    use super::*;

    /// No own change of extended attributes so far.
    const NONE: XattrCount = XattrCount(0);

    fn attr(version: u64, mode: u32) -> Attr {
        let layout = Layout { stripe_bytes: 4096, width: 1, first: 0, generation: 1 };
        Attr { version, uid: 1, gid: 2, size: 10, ..Attr::new(Handle(7), FileKind::File, mode, layout, WallTime(0)) }
    }

    #[test]
    fn the_last_word_counts_until_it_is_too_old_or_forgotten() {
        let told = Told::new(100, false);
        assert!(told.differs(&attr(1, 0o644)).is_none(), "whoever was told nothing believes nothing");
        told.tell(&attr(1, 0o644), NONE, Nanos(1000));
        assert!(told.differs(&attr(1, 0o644)).is_none() && told.differs(&attr(2, 0o644)).is_some());
        assert_eq!(told.judged(Handle(7)), Some(Judged { mode: 0o644, uid: 1, gid: 2 }));
        told.tell(&attr(2, 0o600), NONE, Nanos(1001));
        let known = told.differs(&attr(2, 0o644)).expect("it was told other rights");
        told.tell(&attr(3, 0o600), NONE, Nanos(1002));
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
        let told = Told::new(100, false);
        let (one, two) = ((Handle(1), b"a"), (Handle(1), b"b"));
        let tell = |(dir, name): (Handle, &[u8; 1]), version, now| told.tell_name(dir, name, &attr(version, 0), NONE, Nanos(now));
        assert!(tell(one, 1, 1000));
        assert!(tell(two, 1, 1010), "a link, the first name of which is true: nothing has changed since");
        assert!(tell(two, 2, 1020), "the same name");
        assert!(!tell(one, 3, 1030));
        assert!(!tell((Handle(9), b"b"), 3, 1030), "the same name elsewhere");
        told.tell(&attr(4, 0), NONE, Nanos(1040));
        let known = told.known(Handle(7)).expect("it was told");
        told.forgotten(Handle(7), known);
        assert!(told.known(Handle(7)).is_none() && !tell(one, 4, 1150), "names are believed all the same");
        assert!(tell(one, 4, 1220), "not for ever");
        told.moved((Handle(1), b"a"), (Handle(2), b"c"), Nanos(1230));
        told.moved((Handle(2), b"c"), (Handle(1), b"b"), Nanos(1231));
        assert!(tell(two, 6, 1232), "this gateway has moved it");
        assert!(tell(one, 6, 1233));
        assert!(!tell(two, 7, 1234), "not since it has that name");
        told.linked(Handle(1), b"b", &attr(8, 0), Nanos(1235));
        assert!(tell(two, 9, 1236), "its own link");
    }

    #[test]
    fn files_are_bare_for_the_age_or_until_this_gateway_gives_them_an_attribute() {
        let told = Told::new(100, false);
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
        let never = Told::new(0, false);
        never.tell(&attr(1, 0), NONE, Nanos(1));
        assert!(!never.is_bare(Handle(7), Nanos(1)));
    }

    #[test]
    fn nothing_is_forgotten_before_its_time_and_nothing_kept_for_ever() {
        let told = Told::new(100, false);
        told.tell(&attr(1, 0), NONE, Nanos(1099));
        let other = Attr { handle: Handle(7 + SHARDS as u64), ..attr(1, 0) };
        told.tell(&other, NONE, Nanos(1101));
        told.tell(&other, NONE, Nanos(1198));
        assert!(told.judged(Handle(7)).is_some(), "99 ns old");
        told.tell(&other, NONE, Nanos(1310));
        told.tell(&other, NONE, Nanos(1420));
        assert!(told.judged(Handle(7)).is_none());
        let never = Told::new(0, false);
        never.tell(&attr(1, 0), NONE, Nanos(1));
        assert!(never.judged(Handle(7)).is_none());
    }
}
