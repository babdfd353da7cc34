//! What this client was told under leases, and may believe until it hears otherwise.
//!
//! A server says with an answer whether it is given under a lease (`weft-lease`); what others
//! change comes as notices, and ends what was told. An answer may be overtaken by a notice, or by a
//! change of this client: so all that ends something is written into a log, and an answer counts
//! only if nothing in the log since it was asked for concerns it.

mod beside;
mod sessions;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use weft_base::{Attr, FastMap, FileKind, Handle, Nanos, ServerId};
use weft_wire::ops::FileState;

use super::Asked;
pub(crate) use beside::FileTold;

/// Names and objects remembered; beyond that all are forgotten. Some 350 bytes each.
const TOLD_MAX: usize = 1 << 18;
/// Entries of the log. Answers that were asked for before the oldest count for nothing.
const LOG_MAX: usize = 4096;

/// What was told under leases.
#[derive(Debug)]
pub(super) struct Leased {
    is_on: AtomicBool,
    /// The number of the newest entry of the log.
    newest: AtomicU64,
    inner: Mutex<Inner>,
}

impl Default for Leased {
    fn default() -> Self {
        Leased { is_on: AtomicBool::new(false), newest: AtomicU64::new(1), inner: Mutex::default() }
    }
}

/// What ends what was told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ended {
    Name(Handle, Bytes),
    Object(Handle),
    /// Some object, nobody knows which.
    AnyObject,
    /// All that was told under the lease on this directory.
    Directory(Handle),
    /// All that this server has told.
    Server(ServerId),
}

impl Ended {
    fn is_name_in(&self, dir: Handle) -> bool {
        matches!(self, Ended::Name(of, _) if *of == dir)
    }
}

#[derive(Debug, Default)]
struct Inner {
    sessions: BTreeMap<ServerId, Session>,
    directories: FastMap<Handle, Held>,
    objects: FastMap<Handle, Told>,
    /// Names in all directories together.
    names: usize,
    log: VecDeque<(u64, Ended)>,
    /// How often attributes were told.
    tellings: u64,
    /// Changes of this client that are under way.
    under_way: FastMap<Ended, u32>,
    /// The entry of the log that ended what was told of all objects.
    any_object: u64,
    /// The newest entry of the log that ended an object of which nothing was told.
    unknown_object: u64,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    number: u32,
    /// The newest notice that was taken in.
    heard: u64,
    /// Until then what the server has told may be believed.
    until: Nanos,
}

/// A directory on which this client holds a lease.
#[derive(Debug)]
struct Held {
    /// When the first answer under it was asked for.
    since: Nanos,
    names: BTreeMap<Bytes, Name>,
    /// Other servers than that of the directory's inode have told some of them.
    is_spread: bool,
}

/// What a name leads to, and which server has told it.
#[derive(Clone, Copy, Debug)]
struct Name {
    handle: Handle,
    /// `None`: to nothing.
    kind: Option<FileKind>,
    server: ServerId,
}

impl Name {
    fn led(self) -> Option<(Handle, FileKind)> {
        self.kind.map(|kind| (self.handle, kind))
    }
}

/// An object of which attributes were told.
#[derive(Debug)]
struct Told {
    /// The directory under whose lease.
    under: Handle,
    /// By which name in it; of a directory under its own lease, none.
    name: Bytes,
    /// The newest entry of the log at that time.
    at: u64,
    /// Since which telling it has been told without a change.
    since: TellingId,
    /// `None`: they have changed since.
    state: Option<(FileState, Asked)>,
    /// It has one name and is not sealed, and nobody has given it another one since.
    has_one_name: bool,
}

/// A telling of attributes. Since it they have not changed, as long as they go on to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TellingId(pub u64);

/// What a name leads to, as it was told.
#[derive(Clone, Debug)]
pub(crate) enum Led {
    /// To nothing.
    Nowhere,
    /// To this object; with what was told of it.
    To(Handle, FileKind, Option<Box<(FileState, Asked)>>),
}

impl Leased {
    /// What is told under leases counts from now on, or no longer.
    pub fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// The number of the newest entry of the log.
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    // ---- What is told
    // ---------------------------------------------------------------------------------------------

    /// What names lead to was told under a lease on their directory, with what was told of the
    /// objects. `asked`: before the question, or as [`Leased::changed`] says. `since`: when the
    /// question was asked if the answer says what the directory is like, otherwise now. `dir`: with
    /// the server that has told it.
    pub fn told_names<'a>(
        &self,
        asked: Asked,
        since: Nanos,
        (dir, server): (Handle, ServerId),
        names: impl IntoIterator<Item = (&'a Bytes, Option<(Handle, FileKind)>, Option<&'a FileState>)>,
    ) {
        if !self.is_on() {
            return;
        }
        let mut inner = self.lock();
        for (name, led, state) in names {
            if !inner.counts(asked, (dir, server), &Ended::Name(dir, name.clone())) {
                continue;
            }
            if inner.names + inner.objects.len() >= TOLD_MAX {
                inner.forget_all();
            }
            // Copied, so that no message is kept alive by a few bytes of it.
            let name = Bytes::copy_from_slice(name);
            let (handle, kind) = led.map_or((Handle(0), None), |(handle, kind)| (handle, Some(kind)));
            let held = inner.held(dir, since);
            held.is_spread |= server != dir.server();
            let is_new = held.names.insert(name.clone(), Name { handle, kind, server }).is_none();
            inner.names += usize::from(is_new);
            if let Some(state) = state {
                inner.tell(asked, (dir, server), name, state);
            }
        }
    }

    /// What was told of an object by its handle: under a lease on itself if it is a directory,
    /// otherwise under that under which it was told before.
    pub fn told_object(&self, asked: Asked, state: &FileState) {
        if !self.is_on() {
            return;
        }
        let mut inner = self.lock();
        let handle = state.attr.handle;
        let under = match state.attr.kind {
            FileKind::Directory => Some((handle, Bytes::new())),
            _ => inner.objects.get(&handle).map(|told| (told.under, told.name.clone())),
        };
        let Some((under, name)) = under else { return };
        if under == handle && inner.counts(asked, (handle, handle.server()), &Ended::Object(handle)) {
            inner.held(handle, asked.at);
        }
        inner.tell(asked, (under, handle.server()), name, state);
    }

    /// A new and empty directory was told of under a lease on it.
    pub fn made_directory(&self, asked: Asked, dir: Handle) {
        let mut inner = self.lock();
        if inner.counts(asked, (dir, dir.server()), &Ended::Object(dir)) {
            inner.held(dir, asked.at);
        }
    }

    /// True if these attributes were told, and may be believed.
    pub fn is_told(&self, attr: &Attr, now: Nanos) -> bool {
        self.lock().state(attr.handle, now).is_some_and(|(state, _)| state.attr.version == attr.version)
    }

    // ---- What may be believed
    // ---------------------------------------------------------------------------------------------

    /// What a name leads to.
    pub fn name(&self, dir: Handle, name: &[u8], now: Nanos) -> Option<Led> {
        if !self.is_on() {
            return None;
        }
        let inner = self.lock();
        let told = *inner.directories.get(&dir)?.names.get(name)?;
        inner.until(told.server, now)?;
        Some(match told.led() {
            None => Led::Nowhere,
            Some((handle, kind)) => Led::To(handle, kind, inner.state(handle, now).cloned().map(Box::new)),
        })
    }

    /// What was told of an object.
    pub fn state(&self, handle: Handle, now: Nanos) -> Option<(FileState, Asked)> {
        if !self.is_on() { None } else { self.lock().state(handle, now).cloned() }
    }

    /// True if the object has one name, and is not sealed, whatever else this client has changed of
    /// it since that was told.
    pub fn has_one_name(&self, handle: Handle, now: Nanos) -> bool {
        let inner = self.lock();
        let told = inner.objects.get(&handle).filter(|told| told.at >= inner.any_object);
        inner.until(handle.server(), now).is_some() && told.is_some_and(|told| told.has_one_name)
    }

    /// This client is about to give the object another name.
    pub fn may_get_names(&self, handle: Handle) {
        self.lock().may_get_names(handle);
    }

    /// For how long, in nanoseconds, it may be believed that the name leads to this object.
    pub fn name_holds_ns(&self, dir: Handle, name: &[u8], handle: Option<Handle>, now: Nanos) -> u64 {
        let inner = self.lock();
        let told = inner.directories.get(&dir).and_then(|held| held.names.get(name));
        match told {
            Some(told) if told.led().map(|(handle, _)| handle) == handle => {
                inner.until(told.server, now).map_or(0, |until| until.since(now))
            }
            _ => 0,
        }
    }

    /// For how long, in nanoseconds, these attributes may be believed, as far as others are
    /// concerned.
    pub fn attr_holds_ns(&self, attr: &Attr, now: Nanos) -> u64 {
        let inner = self.lock();
        match inner.state(attr.handle, now) {
            Some((state, _)) if state.attr.version == attr.version => {
                inner.until(attr.handle.server(), now).map_or(0, |until| until.since(now))
            }
            _ => 0,
        }
    }

    /// Since when a lease on this directory is held, and until when what it covers may be believed.
    pub fn holds(&self, dir: Handle, now: Nanos) -> Option<(Nanos, Nanos)> {
        let inner = self.lock();
        Some((inner.directories.get(&dir)?.since, inner.until(dir.server(), now)?))
    }

    // ---- Changes of this client
    // ---------------------------------------------------------------------------------------------

    /// This client is about to change this. Returns all that is touched, with the objects that the
    /// names lead to; `is_loss`: they may lose it.
    pub fn begin(&self, mut ended: Vec<Ended>, is_loss: bool) -> Vec<Ended> {
        let mut inner = self.lock();
        for at in 0..ended.len() {
            let Ended::Name(dir, name) = &ended[at] else { continue };
            let led = inner.directories.get(dir).and_then(|held| held.names.get(name)).map(|told| told.led());
            ended.push(Ended::Object(*dir));
            match led {
                Some(Some((handle, _))) => ended.push(Ended::Object(handle)),
                Some(None) => {}
                None if is_loss => ended.push(Ended::AnyObject),
                None => {}
            }
        }
        for one in &ended {
            *inner.under_way.entry(one.clone()).or_default() += 1;
            self.end(&mut inner, one.clone());
        }
        ended
    }

    /// True if a change of this client that may concern the directory is under way.
    pub fn is_changing(&self, dir: Handle) -> bool {
        let inner = self.lock();
        let any = [Ended::Object(dir), Ended::Directory(dir), Ended::AnyObject];
        !inner.under_way.is_empty() && any.iter().any(|one| inner.under_way.contains_key(one))
    }

    /// True if no change of this client that may concern names of the directory was under way since
    /// the log had this number.
    pub fn has_changed_no_name(&self, dir: Handle, since: u64) -> bool {
        let inner = self.lock();
        let concerns = |one: &Ended| match one {
            Ended::Name(of, _) | Ended::Directory(of) | Ended::Object(of) => *of == dir,
            Ended::AnyObject | Ended::Server(_) => true,
        };
        let is_whole = inner.log.front().is_none_or(|(oldest, _)| *oldest <= since + 1);
        let mut later = inner.log.iter().rev().take_while(|(number, _)| *number > since);
        since > 0 && is_whole && !inner.under_way.keys().any(concerns) && !later.any(|(_, one)| concerns(one))
    }

    /// It has, perhaps. Returns what counts as the number of the log when the answer was asked for:
    /// 0 if it may have been overtaken. `before`: that of the question.
    pub fn changed(&self, ended: &[Ended], before: u64) -> u64 {
        let mut inner = self.lock();
        // Each was written into the log once when the change began.
        let is_wide = |one: &Ended| matches!(one, Ended::AnyObject | Ended::Directory(_) | Ended::Server(_));
        // What a directory is like changes with each of its names, and no answer to such a change
        // says it.
        let is_around = |one: &Ended| matches!(one, Ended::Object(dir) if ended.iter().any(|name| name.is_name_in(*dir)));
        let concerns = |one: &Ended| is_wide(one) || ended.contains(one) && !is_around(one);
        let since = inner.log.iter().rev().take_while(|(number, _)| *number > before);
        let others = since.filter(|(_, one)| concerns(one)).count();
        let own = ended.iter().filter(|one| concerns(one)).count();
        let is_whole = inner.log.front().is_none_or(|(oldest, _)| *oldest <= before + 1);
        // The object of a notice may be the one that this change has just made.
        let is_alone = is_whole && others <= own && inner.unknown_object <= before;
        for one in ended {
            if let Some(count) = inner.under_way.get_mut(one) {
                *count -= 1;
                if *count == 0 {
                    inner.under_way.remove(one);
                }
            }
            self.end(&mut inner, one.clone());
        }
        if is_alone { self.newest() } else { 0 }
    }

    fn end(&self, inner: &mut Inner, ended: Ended) {
        inner.forget(&ended);
        self.log_end(inner, ended);
    }

    /// What was asked for before now is not believed.
    fn log_end(&self, inner: &mut Inner, ended: Ended) {
        let number = self.newest.fetch_add(1, Ordering::AcqRel) + 1;
        if ended == Ended::AnyObject {
            inner.any_object = number;
        }
        inner.log.push_back((number, ended));
        if inner.log.len() > LOG_MAX {
            inner.log.pop_front();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code panics while it holds this lock")
    }
}

impl Inner {
    /// Until when what this server has told may be believed.
    fn until(&self, server: ServerId, now: Nanos) -> Option<Nanos> {
        self.sessions.get(&server).map(|session| session.until).filter(|until| now < *until)
    }

    fn state(&self, handle: Handle, now: Nanos) -> Option<&(FileState, Asked)> {
        self.until(handle.server(), now)?;
        self.objects.get(&handle).filter(|told| told.at >= self.any_object)?.state.as_ref()
    }

    /// Somebody may give it another name.
    fn may_get_names(&mut self, handle: Handle) {
        if let Some(told) = self.objects.get_mut(&handle) {
            told.has_one_name = false;
        }
    }

    /// True if an answer under a lease on `dir`, from this server, counts.
    fn counts(&self, asked: Asked, (dir, server): (Handle, ServerId), what: &Ended) -> bool {
        let is_object = matches!(what, Ended::Object(_));
        let is_under_way = self.under_way.contains_key(what) || (is_object && self.under_way.contains_key(&Ended::AnyObject));
        let is_too_old = asked.after_log == 0 || self.log.front().is_some_and(|(oldest, _)| *oldest > asked.after_log + 1);
        if is_under_way || is_too_old || !self.sessions.contains_key(&server) {
            return false;
        }
        let ends = |ended: &Ended| match ended {
            Ended::Name(..) | Ended::Object(_) => ended == what,
            Ended::AnyObject => is_object,
            Ended::Directory(other) => *other == dir,
            Ended::Server(other) => *other == server,
        };
        !self.log.iter().rev().take_while(|(number, _)| *number > asked.after_log).any(|(_, ended)| ends(ended))
    }

    fn held(&mut self, dir: Handle, since: Nanos) -> &mut Held {
        self.directories.entry(dir).or_insert_with(|| Held { since, names: BTreeMap::new(), is_spread: false })
    }

    fn tell(&mut self, asked: Asked, (under, server): (Handle, ServerId), name: Bytes, state: &FileState) {
        let handle = state.attr.handle;
        // Several servers know of a directory that is split, and tell of it under no lease.
        let is_split = state.partitions.as_ref().is_some_and(|map| map.is_split(handle));
        if state.ask_data.is_some() || handle.server() != server || is_split {
            return;
        }
        if self.counts(asked, (under, server), &Ended::Object(handle)) {
            let at = self.log.back().map_or(0, |(number, _)| *number);
            self.tellings += 1;
            let before = self.objects.get(&handle).filter(|told| told.at >= self.any_object);
            let same = before.filter(|told| told.state.as_ref().is_some_and(|(before, _)| before == state));
            let since = same.map_or(TellingId(self.tellings), |told| told.since);
            let has_one_name = state.attr.nlink == 1 && !state.attr.is_sealed();
            self.objects.insert(handle, Told { under, name, at, since, state: Some((state.clone(), asked)), has_one_name });
        }
    }

    fn forget(&mut self, ended: &Ended) {
        match ended {
            Ended::Name(dir, name) => {
                let gone = self.directories.get_mut(dir).and_then(|held| held.names.remove(name));
                self.names -= usize::from(gone.is_some());
                if let Some((handle, _)) = gone.and_then(Name::led) {
                    self.objects.remove(&handle);
                }
            }
            Ended::Object(handle) => {
                if let Some(told) = self.objects.get_mut(handle) {
                    told.state = None;
                }
            }
            // Looked at when an object is: there may be many.
            Ended::AnyObject => {}
            Ended::Directory(dir) => {
                let held = self.directories.remove(dir);
                self.names -= held.as_ref().map_or(0, |held| held.names.len());
                let Some(held) = held.filter(|held| !held.is_spread) else {
                    // Other servers may have told of objects than those that have told the names.
                    return self.objects.retain(|_, told| told.under != *dir);
                };
                for (handle, _) in held.names.into_values().filter_map(Name::led).chain([(*dir, FileKind::Directory)]) {
                    if self.objects.get(&handle).is_some_and(|told| told.under == *dir) {
                        self.objects.remove(&handle);
                    }
                }
            }
            Ended::Server(server) => {
                self.directories.retain(|dir, held| {
                    let (stays, before) = (dir.server() != *server, held.names.len());
                    match stays {
                        true if held.is_spread => held.names.retain(|_, told| told.server != *server),
                        true => {}
                        false => held.names.clear(),
                    }
                    self.names -= before - held.names.len();
                    stays
                });
                self.objects.retain(|handle, _| handle.server() != *server);
                self.sessions.remove(server);
            }
        }
    }

    /// To save memory: what is not known is asked for.
    fn forget_all(&mut self) {
        self.directories.clear();
        self.objects.clear();
        self.names = 0;
    }
}
