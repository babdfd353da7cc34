//! What this client knows of names and attributes, so that it need not ask again.
//!
//! Directories that this client works in are followed through the versions in the answers to its
//! own changes (`directories.rs`; on for gateways, [`crate::Client::follow_directories`]). What was
//! told under leases is believed until others change it (`leased.rs`; on after
//! [`crate::Client::keep_leases`]). Beside them are the maps of directories that have one
//! (`partitions.rs`).
//!
//! A change has a guard, [`Knowledge::changing`]. [`Changing::done`] tells what the change did; a
//! guard that is dropped without that (an error, an answer that never came) forgets all that the
//! change may have touched. So nobody can forget to forget.
//!
//! With leases what is known of a directory is good as long as the lease on it is held, instead of
//! for a stated age.

mod directories;
mod leased;
mod often;
mod partitions;

use bytes::Bytes;
use weft_base::{Attr, FileKind, Handle, Nanos, ServerId, WallTime};
use weft_wire::ops::{CreateReply, DirChange, FileState, LeaseNotice, PartitionMap};

use directories::KnownDirectories;
use leased::Leased;
pub(crate) use leased::{Ended, FileTold, Led, TellingId};
use partitions::Partitions;

/// What is known.
#[derive(Default)]
pub(crate) struct Knowledge {
    directories: KnownDirectories,
    leased: Leased,
    pub(crate) partitions: Partitions,
}

/// What a change touches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Touched<'a> {
    /// An object: its attributes.
    Object(Handle),
    /// A name in a directory that shall lead to something new, and the attributes of the directory.
    Name(Handle, &'a Bytes),
    /// A name in a directory that shall lead to this object, too.
    Linked(Handle, (Handle, &'a Bytes)),
    /// A name in a directory that shall lead to nothing: the object that it led to changes, too.
    Lost(Handle, &'a Bytes),
    /// Two names, in one directory or in two, that lead elsewhere afterwards; the objects are not
    /// known.
    Names((Handle, &'a Bytes), (Handle, &'a Bytes)),
    /// Names in a directory that shall lead to nothing, nobody knows which. Such a change is not
    /// followed: its guard is dropped.
    Everything(Handle),
}

/// What a change did, as the server answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect<'a> {
    /// The object, a file, is another one; nothing is known of how.
    Object,
    /// The object has these attributes.
    Attributes(&'a Attr),
    /// The name leads to something.
    Made(DirChange),
    /// The name leads to an empty directory with these attributes; `None`: which is not followed.
    MadeDirectory(DirChange, Option<&'a Attr>),
    /// The name leads to nothing any more.
    Removed(DirChange),
    /// The name does not lead to a directory any more: to this one, if that is known.
    RemovedDirectory(DirChange, Option<Handle>),
    /// The first name, of a file, has become the second one, of the same directory; true if that
    /// led to something before.
    Renamed(DirChange, bool),
}

/// A change under way: see the head of this file.
#[must_use = "a change that is dropped at once covers nothing"]
pub(crate) struct Changing<'a> {
    knowledge: &'a Knowledge,
    touched: Touched<'a>,
    /// What it ends of what was told under leases.
    ended: Vec<Ended>,
    /// When the server is asked for the change.
    pub(crate) asked: Asked,
}

/// When a question was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) at: Nanos,
    /// How many reports of own writes had arrived (see `files/open_table.rs`).
    pub(crate) after_reports: u64,
    /// The log of what ended what was told under leases, then; 0: the answer tells the moment only.
    pub(crate) after_log: u64,
}

impl Knowledge {
    /// Directories are followed from now on, and what is known of them is good for so many
    /// nanoseconds; 0: they are not.
    pub fn follow(&self, age_max_ns: u64) {
        self.directories.set_age_max(age_max_ns);
    }

    /// Exact attributes, the answer to a question.
    pub fn learned(&self, asked: Asked, attr: &Attr) {
        // Under leases an answer that was not given under one is for the moment only: a change of
        // somebody else may wait until this client has heard of it.
        if !self.leased.is_on() || (attr.kind == FileKind::Directory && self.leased.is_told(attr, asked.at)) {
            self.directories.learned(attr, asked.at);
        }
    }

    /// True if it may be answered that there is no such name.
    pub fn is_absent(&self, dir: Handle, name: &[u8], now: Nanos) -> bool {
        let absent = self.directories.absent(dir, name, now);
        absent.is_some_and(|age| !self.leased.is_on() || self.covers(dir, age, now).is_some())
    }

    /// The attributes of a directory of which it is known that it has no such name, and that this
    /// client is not changing otherwise.
    pub fn has_no_name(&self, dir: Handle, name: &[u8], now: Nanos) -> Option<Attr> {
        if self.is_absent(dir, name, now) { self.leased_directory(dir, now) } else { None }
    }

    /// How many names a directory has, if all are known under a lease, and this client is not
    /// changing it.
    pub fn names(&self, dir: Handle, now: Nanos) -> Option<usize> {
        let (names, age) = self.directories.names(dir, now)?;
        let is_covered = self.leased.is_on() && !self.leased.is_changing(dir) && self.covers(dir, age, now).is_some();
        is_covered.then_some(names)
    }

    /// The attributes of a directory that are good under a lease, and that this client is not
    /// changing otherwise.
    pub fn leased_directory(&self, dir: Handle, now: Nanos) -> Option<Attr> {
        let (attr, age) = self.directories.attr(dir, now)?;
        let is_covered = self.leased.is_on() && !self.leased.is_changing(dir) && self.covers(dir, age, now).is_some();
        is_covered.then_some(attr)
    }

    /// A listing that was asked for then has given these names of a directory, and no others; its
    /// attributes are these, under a lease that is held since. True if they are known from now on.
    pub fn names_are<'a>(&self, asked: Asked, attr: &Attr, names: impl Iterator<Item = &'a [u8]>, now: Nanos) -> bool {
        let dir = attr.handle;
        let is_held = self.leased.holds(dir, now).is_some_and(|(since, _)| since <= asked.at);
        if !is_held || self.partitions.may_be_split(dir) || !self.leased.has_changed_no_name(dir, asked.after_log) {
            return false;
        }
        self.learned(Asked { at: now, ..asked }, attr);
        self.directories.names_are(dir, names)
    }

    /// Attributes of a directory that is followed, and for how many nanoseconds they may be
    /// believed.
    pub fn directory(&self, dir: Handle, now: Nanos) -> Option<(Attr, u64)> {
        let followed = self.directories.attr(dir, now);
        if !self.leased.is_on() {
            return followed.map(|(attr, age)| (attr, self.directories.age_max() - age));
        }
        let covered = followed.and_then(|(attr, age)| Some((attr, self.covers(dir, age, now)?)));
        covered.or_else(|| self.directories.often_changed(dir, now))
    }

    /// For how many nanoseconds what was true of a directory so long ago may be believed: the lease
    /// on it is held since.
    fn covers(&self, dir: Handle, age: u64, now: Nanos) -> Option<u64> {
        let (since, until) = self.leased.holds(dir, now)?;
        (now.since(since) >= age).then(|| until.since(now))
    }

    /// A server has told which servers hold the names of a directory.
    pub fn told_partitions(&self, dir: Handle, map: &PartitionMap) {
        if map.is_split(dir) {
            // Each server counts changes by itself: none follows on what one server knew alone.
            self.directories.stop_following(dir);
        }
        self.partitions.learn(dir, map);
    }

    /// This client is about to change something. To be called before the request is sent.
    pub fn changing<'a>(&'a self, touched: Touched<'a>, asked: Asked) -> Changing<'a> {
        let ended = if self.leased.is_on() { self.begin(touched) } else { Vec::new() };
        Changing { knowledge: self, touched, ended, asked }
    }

    fn begin(&self, touched: Touched<'_>) -> Vec<Ended> {
        if let Touched::Linked(object, _) = touched {
            self.leased.may_get_names(object);
        }
        let name = |dir: Handle, name: &Bytes| Ended::Name(dir, name.clone());
        let (ended, is_loss) = match touched {
            Touched::Object(handle) => (vec![Ended::Object(handle)], false),
            Touched::Name(dir, new) => (vec![name(dir, new)], false),
            Touched::Linked(object, (dir, new)) => (vec![name(dir, new), Ended::Object(object)], false),
            Touched::Lost(dir, old) => (vec![name(dir, old)], true),
            Touched::Names(one, other) => (vec![name(one.0, one.1), name(other.0, other.1)], true),
            Touched::Everything(dir) => (vec![Ended::Directory(dir), Ended::Object(dir), Ended::AnyObject], false),
        };
        self.leased.begin(ended, is_loss)
    }

    // ---- Leases
    // ---------------------------------------------------------------------------------------------

    /// What is told under leases counts from now on, and nothing else is believed; or no longer.
    pub fn keep_leases(&self, is_on: bool) {
        self.leased.set_on(is_on);
        self.directories.forget_all();
        if is_on {
            // The lease says how long.
            self.directories.set_age_max(u64::MAX);
        }
    }

    /// True if what is told under leases counts.
    pub fn keeps_leases(&self) -> bool {
        self.leased.is_on()
    }

    /// The number of the log that answers to questions from now on must not be older than.
    pub fn log(&self) -> u64 {
        self.leased.newest()
    }

    /// A name was looked up, and the answer is given by this server under a lease on its directory.
    pub fn told_name(
        &self,
        asked: Asked,
        now: Nanos,
        dir: (Handle, ServerId),
        name: &Bytes,
        led: Option<(Handle, FileKind)>,
        state: Option<&FileState>,
    ) {
        self.leased.told_names(asked, now, dir, [(name, led, state)]);
    }

    /// As [`Knowledge::told_name`], for many names of a listing.
    pub fn told_names<'a>(
        &self,
        asked: Asked,
        now: Nanos,
        dir: (Handle, ServerId),
        names: impl IntoIterator<Item = (&'a Bytes, Option<(Handle, FileKind)>, Option<&'a FileState>)>,
    ) {
        self.leased.told_names(asked, now, dir, names);
    }

    /// This client has made a name, and the answer is given by this server under a lease on its
    /// directory. `asked` is what [`Changing::done`] has returned.
    pub fn made_name(&self, asked: Asked, dir: (Handle, ServerId), name: &Bytes, led: (Handle, FileKind), state: Option<&FileState>) {
        self.leased.told_names(asked, asked.at, dir, [(name, Some(led), state)]);
        if led.1 == FileKind::Directory && led.0.server() == dir.1 && !self.partitions.may_be_split(led.0) {
            self.leased.made_directory(asked, led.0);
        }
    }

    /// This client has renamed a file, of this state, of which its server was not told: at this
    /// time by the clock of that, and as if it had been made so.
    pub fn renamed_untold(&self, asked: Asked, (dir, from, to): (Handle, &Bytes, &Bytes), at: WallTime, state: &FileState) {
        let ended = self.leased.begin(vec![Ended::Name(dir, from.clone()), Ended::Name(dir, to.clone())], false);
        self.directories.renamed_untold(dir, (from, to), at);
        let after_log = self.leased.changed(&ended, asked.after_log);
        let led = Some((state.attr.handle, state.attr.kind));
        self.leased.told_names(Asked { after_log, ..asked }, asked.at, (dir, dir.server()), [(to, led, Some(state))]);
    }

    /// The state of an object was told by its handle, under a lease.
    pub fn told_object(&self, asked: Asked, state: &FileState) {
        self.leased.told_object(asked, state);
    }

    /// A directory is changed so often that nobody is told; it was asked for then.
    pub fn changes_often(&self, attr: &Attr, asked: Asked) {
        self.directories.changes_often(attr, asked.at, self.partitions.may_be_split(attr.handle));
    }

    /// What a name leads to, if it may be believed.
    pub fn name(&self, dir: Handle, name: &[u8], now: Nanos) -> Option<Led> {
        self.leased.name(dir, name, now)
    }

    /// The state of an object, if it may be believed, and when it was asked for.
    pub fn state(&self, handle: Handle, now: Nanos) -> Option<(FileState, Asked)> {
        self.leased.state(handle, now)
    }

    /// True if the object has one name, and is not sealed, whatever else this client has changed of
    /// it since that was told.
    pub fn has_one_name(&self, handle: Handle, now: Nanos) -> bool {
        self.leased.has_one_name(handle, now)
    }

    /// Since when what may be believed of an object has been true without a change.
    pub fn told_since(&self, handle: Handle, now: Nanos) -> Option<TellingId> {
        self.leased.told_since(handle, now)
    }

    /// A file of which attributes may be believed, and the directory under whose lease they were
    /// told.
    pub fn told_file(&self, file: Handle, now: Nanos) -> Option<(Handle, Attr)> {
        self.leased.told_file(file, now)
    }

    /// A file, and those that follow it in the order of names in its directory, from its first name
    /// on behind the last one: among so many names those of which attributes may be believed.
    pub fn files_beside(&self, file: Handle, now: Nanos, names: usize) -> Vec<FileTold> {
        self.leased.files_beside(file, now, names)
    }

    /// For how many nanoseconds it may be believed that a name leads to this object (`None`: to
    /// nothing).
    pub fn name_holds_ns(&self, dir: Handle, name: &[u8], handle: Option<Handle>, now: Nanos) -> u64 {
        self.leased.name_holds_ns(dir, name, handle, now)
    }

    /// For how many nanoseconds attributes may be believed, as far as others are concerned.
    pub fn attr_holds_ns(&self, attr: &Attr, now: Nanos) -> u64 {
        let followed = || self.directory(attr.handle, now).filter(|(known, _)| known.version == attr.version);
        match self.leased.attr_holds_ns(attr, now) {
            0 if attr.kind == FileKind::Directory => {
                followed().map_or_else(|| self.directories.often_holds_ns(attr.handle, now), |(_, holds_ns)| holds_ns)
            }
            holds_ns => holds_ns,
        }
    }

    /// True if one lease on this directory covers all its names, and is held.
    pub fn holds(&self, dir: Handle, now: Nanos) -> bool {
        !self.partitions.may_be_split(dir) && self.leased.holds(dir, now).is_some()
    }

    /// The objects of which attributes were told under the leases that a notice ends.
    pub fn told_under(&self, server: ServerId, notice: &LeaseNotice) -> Vec<Handle> {
        self.leased.told_under(server, notice)
    }

    /// The session at a server, and the newest notice that was heard in it.
    pub fn session(&self, server: ServerId) -> (u32, u64) {
        self.leased.session(server)
    }

    /// The session at a server is this one, and holds until then. True if it has just begun.
    pub fn renewed(&self, server: ServerId, session: u32, until: Nanos) -> bool {
        let is_new = self.leased.renewed(server, session, until);
        if is_new {
            self.directories.forget_all();
        }
        is_new
    }

    /// Takes a notice in.
    pub fn notice(&self, server: ServerId, notice: &LeaseNotice) {
        self.leased.notice(server, notice);
        match notice {
            LeaseNotice::Name { dir, .. } | LeaseNotice::Directory { dir } => self.directories.forget(*dir),
            LeaseNotice::Object { handle } => self.directories.forget(*handle),
            LeaseNotice::Everything {} => self.directories.forget_all(),
            LeaseNotice::Append { .. } | LeaseNotice::Delegation { .. } => {}
        }
    }

    /// The session in which this client goes on to hear what the server has to say.
    pub fn is_heard_in(&self, server: ServerId, now: Nanos) -> Option<u32> {
        self.leased.is_heard_in(server, now)
    }

    /// All notices up to this one were taken in, here and above.
    pub fn heard(&self, server: ServerId, session: u32, newest: u64) {
        self.leased.heard(server, session, newest);
    }

    /// A server has restarted: a power cut may have set versions back.
    pub fn restarted(&self, server: ServerId) {
        self.leased.suspend(server);
        self.directories.forget_all();
    }
}

impl Changing<'_> {
    /// The server has answered. Returns when the answer counts as asked for.
    pub fn done(self, effect: Effect<'_>) -> Asked {
        let (directories, at) = (&self.knowledge.directories, self.asked.at);
        match (self.touched, effect) {
            (_, Effect::Object) => {}
            (_, Effect::Attributes(attr)) => directories.touched(attr),
            (Touched::Name(dir, name) | Touched::Linked(_, (dir, name)), Effect::Made(change)) => {
                directories.created(dir, name, change, at)
            }
            (Touched::Name(dir, name), Effect::MadeDirectory(change, attr)) => {
                directories.made_directory(dir, name, change, at);
                if let Some(attr) = attr {
                    directories.made(attr, at);
                }
            }
            (Touched::Lost(dir, name), Effect::Removed(change)) => directories.removed(dir, name, change, at),
            (Touched::Lost(dir, name), Effect::RemovedDirectory(change, removed)) => {
                directories.removed_directory(dir, name, change, at);
                removed.into_iter().for_each(|removed| directories.has_no_name(removed));
            }
            (Touched::Names((dir, from), (_, to)), Effect::Renamed(change, replaced)) => {
                directories.renamed(dir, (from, to), replaced, change, at);
            }
            (touched, effect) => unreachable!("{effect:?} of {touched:?}"),
        }
        let asked = self.over();
        // It has no more to forget.
        let mut this = std::mem::ManuallyDrop::new(self);
        drop(std::mem::take(&mut this.ended));
        asked
    }

    /// What it ends of what was told under leases.
    pub fn ended(&self) -> &[Ended] {
        &self.ended
    }

    /// The server has answered to a create. A name that somebody else has made is not followed.
    pub fn created(mut self, reply: &CreateReply) -> Asked {
        if reply.created {
            return self.done(Effect::Made(reply.dir));
        }
        let asked = self.over();
        self.ended.clear();
        asked
    }

    /// What it ended has changed, perhaps.
    fn over(&self) -> Asked {
        if self.ended.is_empty() {
            return self.asked;
        }
        Asked { after_log: self.knowledge.leased.changed(&self.ended, self.asked.after_log), ..self.asked }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.over();
        let Knowledge { directories, .. } = self.knowledge;
        match self.touched {
            Touched::Object(object) | Touched::Everything(object) => directories.forget(object),
            Touched::Name(dir, _) | Touched::Lost(dir, _) | Touched::Linked(_, (dir, _)) => directories.forget(dir),
            // What has moved may be any directory.
            Touched::Names(..) => directories.forget_all(),
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
        Asked { at: Nanos(at), after_reports: 0, after_log: 0 }
    }

    /// Knows the directory, which is empty.
    fn known(name: &Bytes) -> Knowledge {
        let knowledge = Knowledge::default();
        knowledge.follow(1000);
        let change = knowledge.changing(Touched::Name(Handle(1), name), asked(0));
        change.done(Effect::MadeDirectory(DirChange { version: 2, time: weft_base::WallTime(2) }, Some(&dir_attr(5))));
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
        let change = knowledge.changing(Touched::Lost(DIR, &name), asked(5));
        change.done(Effect::Removed(DirChange { version: 7, time: weft_base::WallTime(7) }));
        assert!(knowledge.is_absent(DIR, &name, Nanos(6)));
    }

    #[test]
    fn a_change_of_which_nothing_is_heard_leaves_nothing_to_believe() {
        let name = Bytes::from_static(b"x");
        let renamed = |dir| Touched::Names((Handle(1), &name), (dir, &name));
        // Of what has moved, only the name is known.
        for touched in [Touched::Name(DIR, &name), renamed(DIR), renamed(Handle(1)), Touched::Object(DIR)] {
            let knowledge = known(&name);
            assert!(knowledge.is_absent(DIR, b"y", Nanos(1)) && knowledge.directory(DIR, Nanos(1)).is_some());
            drop(knowledge.changing(touched, asked(2)));
            assert!(!knowledge.is_absent(DIR, b"y", Nanos(3)) && knowledge.directory(DIR, Nanos(3)).is_none(), "{touched:?}");
        }
    }
}
