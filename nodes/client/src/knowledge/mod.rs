//! What this client knows of names and attributes, so that it need not ask again.
//!
//! Directories that this client works in are followed through the versions in the answers to its
//! own changes (`directories.rs`; on for gateways, [`crate::Client::follow_directories`]). Beside
//! them are the maps of directories that have one (`partitions.rs`). Nothing else is kept: what a
//! client may answer of a file without asking needs a lease.
//!
//! A change has a guard, [`Knowledge::changing`]. [`Changing::done`] tells what the change did; a
//! guard that is dropped without that (an error, an answer that never came) forgets all that the
//! change may have touched. So nobody can forget to forget.
//!
//! This is the place for leases: a grant on a directory's range of names or on a file makes what is
//! known under what a change is said to touch ([`Touched`]) good until it is taken back, instead of
//! for a stated age; taking it back is a change by somebody else, which touches the same.

mod directories;
mod partitions;

use bytes::Bytes;
use weft_base::{Attr, Handle, Nanos};
use weft_wire::ops::{CreateReply, DirChange};

use directories::KnownDirectories;
use partitions::Partitions;

/// What is known.
#[derive(Default)]
pub(crate) struct Knowledge {
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
    /// The name leads to nothing any more.
    Removed(DirChange),
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

/// When a question was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) at: Nanos,
    /// How many reports of own writes had arrived (see `files/open_table.rs`).
    pub(crate) after_reports: u64,
}

impl Knowledge {
    /// Directories are followed from now on, and what is known of them is good for so many
    /// nanoseconds; 0: they are not.
    pub fn follow(&self, age_max_ns: u64) {
        self.directories.set_age_max(age_max_ns);
    }

    /// Exact attributes, the answer to a question.
    pub fn learned(&self, asked: Asked, attr: &Attr) {
        self.directories.learned(attr, asked.at);
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
    pub fn changing<'a>(&'a self, touched: Touched<'a>, asked: Asked) -> Changing<'a> {
        Changing { knowledge: self, touched, asked }
    }

    /// A server has restarted: a power cut may have set versions back.
    pub fn restarted(&self) {
        self.directories.forget_all();
    }
}

impl Changing<'_> {
    /// The server has answered.
    pub fn done(self, effect: Effect<'_>) {
        let (directories, at) = (&self.knowledge.directories, self.asked.at);
        match (self.touched, effect) {
            (_, Effect::Object) => {}
            (_, Effect::Attributes(attr)) => directories.touched(attr),
            (Touched::Name(dir, name), Effect::Made(change)) => directories.created(dir, name, change, at),
            (Touched::Name(dir, name), Effect::MadeDirectory(change, attr)) => {
                directories.made_directory(dir, name, change, at);
                directories.made(attr, at);
            }
            (Touched::Name(dir, name), Effect::Removed(change)) => directories.removed(dir, name, change, at),
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
        match self.touched {
            Touched::Object(object) => directories.forget(object),
            Touched::Name(dir, _) => directories.forget(dir),
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

    fn asked(at: u64) -> Asked {
        Asked { at: Nanos(at), after_reports: 0 }
    }

    /// Knows the directory, which is empty.
    fn known(name: &Bytes) -> Knowledge {
        let knowledge = Knowledge::default();
        knowledge.follow(1000);
        let change = knowledge.changing(Touched::Name(Handle(1), name), asked(0));
        change.done(Effect::MadeDirectory(DirChange { version: 2, time: weft_base::WallTime(2) }, &dir_attr(5)));
        knowledge
    }

    #[test]
    fn a_change_that_is_done_is_followed() {
        let name = Bytes::from_static(b"x");
        let knowledge = known(&name);
        assert!(knowledge.is_absent(DIR, &name, Nanos(2)) && knowledge.is_absent(DIR, b"y", Nanos(2)));
        let change = knowledge.changing(Touched::Name(DIR, &name), asked(3));
        change.done(Effect::Made(DirChange { version: 6, time: weft_base::WallTime(6) }));
        assert!(!knowledge.is_absent(DIR, &name, Nanos(4)) && knowledge.is_absent(DIR, b"y", Nanos(4)));
        let change = knowledge.changing(Touched::Name(DIR, &name), asked(5));
        change.done(Effect::Removed(DirChange { version: 7, time: weft_base::WallTime(7) }));
        assert!(knowledge.is_absent(DIR, &name, Nanos(6)));
    }

    #[test]
    fn a_change_of_which_nothing_is_heard_leaves_nothing_to_believe() {
        let name = Bytes::from_static(b"x");
        for touched in [Touched::Name(DIR, &name), Touched::Names((Handle(1), &name), (DIR, &name)), Touched::Object(DIR)] {
            let knowledge = known(&name);
            assert!(knowledge.is_absent(DIR, b"y", Nanos(1)) && knowledge.directory(DIR, Nanos(1)).is_some());
            drop(knowledge.changing(touched, asked(2)));
            assert!(!knowledge.is_absent(DIR, b"y", Nanos(3)) && knowledge.directory(DIR, Nanos(3)).is_none(), "{touched:?}");
        }
    }
}
