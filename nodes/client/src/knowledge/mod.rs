//! What this client knows of names and attributes, so that it need not ask again.
//!
//! Two kinds of knowledge stand behind one door. Answers that were seen are kept for callers that
//! can live with a stated age (`seen.rs`; off unless [`crate::ClientOptions::attr_cache_ns`] says
//! otherwise). Directories that this client works in are followed through the versions in the
//! answers to its own changes (`directories.rs`; on for gateways,
//! [`crate::Client::follow_directories`]). Beside them are the maps of directories that have one
//! (`partitions.rs`).
//!
//! They are two tables because they say different things. What was seen is any object's attributes
//! or a name's object, true at the time of the question, and every own change ends it. What is
//! followed is a directory, whole: all of its names, and attributes that own changes move on
//! instead of ending them, as long as no version is missing. One table would hold both rules for
//! each entry, and a mount, which follows and keeps nothing seen, would take its lock for every
//! answer.
//!
//! Whoever changes something says so first, and gets a guard: [`Knowledge::changing`]. The answers
//! that the change concerns are forgotten then and once more when it has ended, and what was asked
//! for in between is not kept. [`Changing::done`] tells what the change did; a guard that is
//! dropped without that (an error, an answer that never came) forgets all that the change may have
//! touched. So nobody can forget to forget.
//!
//! This is the place for leases: a grant on a directory's range of names or on a file makes what is
//! known under what a change is said to touch ([`Touched`]) good until it is taken back, instead of
//! for a stated age; taking it back is a change by somebody else, which touches the same.

mod directories;
mod partitions;
mod seen;

use bytes::Bytes;
use weft_base::{Attr, FileKind, Handle, Nanos};
use weft_wire::ops::{CreateReply, DirChange};

use directories::KnownDirectories;
use partitions::Partitions;
pub(crate) use seen::Asked;
use seen::Seen;

/// What is known.
pub(crate) struct Knowledge {
    seen: Seen,
    directories: KnownDirectories,
    pub(crate) partitions: Partitions,
}

/// What a change touches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Touched<'a> {
    /// An object: its attributes.
    Object(Handle),
    /// A name in a directory: what it leads to, and the attributes of the directory.
    Name(Handle, &'a Bytes),
    /// One more name of an object.
    NameOf(Handle, &'a Bytes, Handle),
    /// Two names, in one directory or in two, that lead elsewhere afterwards; the objects are not
    /// known.
    Names((Handle, &'a Bytes), (Handle, &'a Bytes)),
}

/// What a change did, as the server answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect<'a> {
    /// The object is another one; nothing is known of how.
    Object,
    /// The object has these attributes.
    Attributes(&'a Attr),
    /// The name leads to something.
    Made(DirChange),
    /// The name leads to an empty directory with these attributes.
    MadeDirectory(DirChange, &'a Attr),
    /// The name does not lead to this object any more.
    Removed(DirChange, Handle),
    /// The name does not lead to a directory any more.
    RemovedDirectory(DirChange),
    /// The first name has become the second one, of the same directory; true if that led to
    /// something before.
    Renamed(DirChange, bool),
}

/// A change under way: see the head of this file.
#[must_use = "a change that is dropped at once covers nothing"]
pub(crate) struct Changing<'a> {
    knowledge: &'a Knowledge,
    touched: Touched<'a>,
    /// When the server is asked for the change.
    pub(crate) asked: Asked,
}

impl Knowledge {
    /// Nothing. Answers that were seen are good for so many nanoseconds.
    pub fn new(attr_cache_ns: u64) -> Knowledge {
        Knowledge { seen: Seen::new(attr_cache_ns), directories: KnownDirectories::default(), partitions: Partitions::default() }
    }

    /// Directories are followed from now on, and what is known of them is good for so many
    /// nanoseconds; 0: they are not.
    pub fn follow(&self, age_max_ns: u64) {
        self.directories.set_age_max(age_max_ns);
    }

    /// True if answers that were seen are ever kept.
    pub fn keeps_answers(&self) -> bool {
        self.seen.is_on()
    }

    /// To be called before a question is sent, after so many reports of own writes had arrived.
    pub fn ask(&self, now: Nanos, after_reports: u64) -> Asked {
        self.seen.ask(now, after_reports)
    }

    /// Exact attributes, the answer to a question.
    pub fn learned(&self, asked: Asked, attr: &Attr) {
        self.seen.keep_attr(asked, attr);
        self.directories.learned(attr, asked.at);
    }

    /// What a name leads to, the answer to a question.
    pub fn learned_name(&self, asked: Asked, dir: Handle, name: &Bytes, handle: Handle, kind: FileKind) {
        self.seen.keep_name(asked, dir, name, handle, kind);
    }

    /// Attributes that may be answered.
    pub fn attr(&self, handle: Handle, now: Nanos) -> Option<Attr> {
        self.seen.attr(handle, now)
    }

    /// What may be answered that a name leads to.
    pub fn name(&self, dir: Handle, name: &Bytes, now: Nanos) -> Option<(Handle, FileKind)> {
        self.seen.name(dir, name, now)
    }

    /// True if it may be answered that there is no such name.
    pub fn is_absent(&self, dir: Handle, name: &[u8], now: Nanos) -> bool {
        self.directories.is_absent(dir, name, now)
    }

    /// Attributes of a directory that is followed, and how many nanoseconds ago they were certainly
    /// true.
    pub fn directory(&self, dir: Handle, now: Nanos) -> Option<(Attr, u64)> {
        self.directories.attr(dir, now)
    }

    /// This client is about to change something. To be called before the request is sent.
    pub fn changing<'a>(&'a self, touched: Touched<'a>, now: Nanos, after_reports: u64) -> Changing<'a> {
        self.forget_seen(&touched);
        Changing { knowledge: self, touched, asked: self.ask(now, after_reports) }
    }

    /// This client has written to a file. What was asked for before is corrected by what it knows
    /// of its own writes.
    pub fn written(&self, file: Handle) {
        self.seen.forget(file);
    }

    /// A server has restarted: a power cut may have set versions back.
    pub fn restarted(&self) {
        self.directories.forget_all();
    }

    fn forget_seen(&self, touched: &Touched<'_>) {
        if !self.seen.is_on() {
            return;
        }
        match *touched {
            Touched::Object(handle) => self.seen.forget(handle),
            Touched::Name(dir, name) => self.seen.forget_name(dir, name),
            Touched::NameOf(dir, name, handle) => {
                self.seen.forget_name(dir, name);
                self.seen.forget(handle);
            }
            Touched::Names(..) => self.seen.forget_all(),
        }
    }
}

impl Changing<'_> {
    /// The server has answered.
    pub fn done(self, effect: Effect<'_>) {
        let (knowledge, at) = (self.knowledge, self.asked.at);
        let directories = &knowledge.directories;
        knowledge.forget_seen(&self.touched);
        match (self.touched, effect) {
            (_, Effect::Object) => {}
            (_, Effect::Attributes(attr)) => directories.touched(attr),
            (Touched::Name(dir, name) | Touched::NameOf(dir, name, _), Effect::Made(change)) => directories.created(dir, name, change, at),
            (Touched::Name(dir, name), Effect::MadeDirectory(change, attr)) => {
                directories.made_directory(dir, name, change, at);
                directories.made(attr, at);
            }
            (Touched::Name(dir, name), Effect::Removed(change, handle)) => {
                directories.removed(dir, name, change, at);
                knowledge.seen.forget(handle);
            }
            (Touched::Name(dir, name), Effect::RemovedDirectory(change)) => directories.removed_directory(dir, name, change, at),
            (Touched::Names((dir, from), (_, to)), Effect::Renamed(change, replaced)) => {
                directories.renamed(dir, (from, to), replaced, change, at);
            }
            (touched, effect) => unreachable!("{effect:?} of {touched:?}"),
        }
        // It has no more to forget.
        std::mem::forget(self);
    }

    /// The server has answered to a create. A name that somebody else has made is not followed.
    pub fn created(self, reply: &CreateReply) {
        if reply.created {
            self.done(Effect::Made(reply.dir));
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let Knowledge { directories, .. } = self.knowledge;
        self.knowledge.forget_seen(&self.touched);
        match self.touched {
            Touched::Object(object) => directories.forget(object),
            Touched::Name(dir, _) | Touched::NameOf(dir, _, _) => directories.forget(dir),
            Touched::Names((from, _), (to, _)) => {
                directories.forget(from);
                directories.forget(to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Handle = Handle(7);

    fn dir_attr(version: u64) -> Attr {
        directories::test_attr(DIR, version)
    }

    /// Knows the (empty) directory, and by a look-up from before that it has a name.
    fn known(name: &Bytes) -> Knowledge {
        let knowledge = Knowledge::new(1000);
        knowledge.follow(1000);
        let change = knowledge.changing(Touched::Name(Handle(1), name), Nanos(0), 0);
        change.done(Effect::MadeDirectory(DirChange { version: 2, time: weft_base::WallTime(2) }, &dir_attr(5)));
        let asked = knowledge.ask(Nanos(1), 0);
        knowledge.learned(asked, &dir_attr(5));
        knowledge.learned_name(asked, DIR, name, Handle(9), FileKind::File);
        knowledge
    }

    #[test]
    fn a_change_that_is_done_is_followed_and_what_was_asked_for_before_is_not_kept() {
        let name = Bytes::from_static(b"x");
        let knowledge = known(&name);
        assert!(knowledge.is_absent(DIR, b"y", Nanos(2)) && knowledge.name(DIR, &name, Nanos(2)).is_some());
        let asked = knowledge.ask(Nanos(2), 0);
        let change = knowledge.changing(Touched::Name(DIR, &name), Nanos(3), 0);
        assert!(knowledge.name(DIR, &name, Nanos(3)).is_none() && knowledge.attr(DIR, Nanos(3)).is_none(), "from its beginning on");
        change.done(Effect::Made(DirChange { version: 6, time: weft_base::WallTime(6) }));
        assert!(!knowledge.is_absent(DIR, &name, Nanos(4)) && knowledge.is_absent(DIR, b"y", Nanos(4)), "it is followed");
        knowledge.learned_name(asked, DIR, &name, Handle(9), FileKind::File);
        assert!(knowledge.name(DIR, &name, Nanos(4)).is_none(), "asked for before it");
    }

    #[test]
    fn a_change_of_which_nothing_is_heard_leaves_nothing_to_believe() {
        let name = Bytes::from_static(b"x");
        for touched in [Touched::Name(DIR, &name), Touched::NameOf(DIR, &name, Handle(9)), Touched::Names((Handle(1), &name), (DIR, &name))]
        {
            let knowledge = known(&name);
            drop(knowledge.changing(touched, Nanos(2), 0));
            assert!(!knowledge.is_absent(DIR, b"y", Nanos(3)), "{touched:?}");
            assert!(knowledge.directory(DIR, Nanos(3)).is_none() && knowledge.name(DIR, &name, Nanos(3)).is_none(), "{touched:?}");
        }
        let knowledge = known(&name);
        drop(knowledge.changing(Touched::Object(DIR), Nanos(2), 0));
        assert!(knowledge.directory(DIR, Nanos(3)).is_none() && knowledge.attr(DIR, Nanos(3)).is_none());
    }
}
