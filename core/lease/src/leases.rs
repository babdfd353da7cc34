//! All leases of a server.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use weft_base::{ClientId, FastMap, Handle, Nanos};

use crate::directory::{Announced, Directory, Heat, Key};
use crate::session::Session;
use crate::{Notice, Touched};

/// Leases of one client at most: beyond that it is told everything without one.
const HELD_MAX: usize = 65_536;
/// Directories with leases at most, with some 300 bytes each.
const DIRECTORIES_MAX: usize = 1 << 18;
/// Objects of which holders were told at most, with some 40 bytes each.
const MEMBERS_MAX: usize = 1 << 20;

/// The leases of one server. See the head of the crate.
#[derive(Debug)]
pub struct Leases {
    term_ns: u64,
    sessions: BTreeMap<ClientId, Session>,
    directories: FastMap<Handle, Directory>,
    /// Objects and the directory under whose lease their attributes were told.
    members: FastMap<Handle, Handle>,
    /// Those that others change: what changes all the time is told under no lease.
    changed: FastMap<Handle, Heat>,
    /// Of those of which all others have heard, and that nobody was told of since, the one client
    /// that may believe what it was told: it has changed them itself, and believes its own change.
    believers: FastMap<Handle, ClientId>,
    /// Sessions of before a restart that may still be believed in, until then.
    before: BTreeSet<ClientId>,
    before_ends: Nanos,
    next_session: u32,
}

/// What a client that asks for notices is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The number of its session; it believes nothing that it was told under another one.
    pub session: u32,
    /// The session has just begun.
    pub is_new: bool,
    /// Changes need not wait any longer.
    pub has_released: bool,
}

/// What became of a question for a file that a client has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedBack {
    /// It hears of it with its next notices.
    Told,
    /// It may believe what it was told before a restart, and has yet to ask for notices.
    NotYet,
    /// It hears nothing: what it has believed has ended.
    Never,
}

impl Leases {
    /// No leases yet. `first_session` differs from those of the server's earlier starts.
    pub fn new(term_ns: u64, first_session: u32) -> Leases {
        Leases {
            term_ns,
            sessions: BTreeMap::new(),
            directories: FastMap::default(),
            members: FastMap::default(),
            changed: FastMap::default(),
            believers: FastMap::default(),
            before: BTreeSet::new(),
            before_ends: Nanos(0),
            next_session: first_session.max(1),
        }
    }

    /// These clients had sessions when the server ended: they may believe what they were told until
    /// they hear of a new session, a term at most.
    pub fn after_restart(&mut self, clients: impl IntoIterator<Item = ClientId>, now: Nanos) {
        self.before.extend(clients);
        self.before_ends = now + self.term_ns;
    }

    /// True until those who may believe what was told before a restart have come back, or a term is
    /// over.
    pub fn awaits_earlier_holders(&self) -> bool {
        !self.before.is_empty()
    }

    /// How long a session lasts after a request of its client, in nanoseconds.
    pub fn term_ns(&self) -> u64 {
        self.term_ns
    }

    /// True if nobody believes anything: a look at a change is not needed.
    pub fn is_idle(&self) -> bool {
        self.directories.is_empty() && self.before.is_empty()
    }

    /// True if the client has a session.
    pub fn has(&self, client: ClientId) -> bool {
        self.sessions.contains_key(&client)
    }

    /// A client asks for notices, with the request of this number: it names its session (0: none)
    /// and the newest notice that it has heard in it. `None`, and nothing is renewed: a late copy
    /// of an older request, or a client that has not said for a term that it has heard a notice.
    /// Its session ends, so that nobody waits longer than two terms for it.
    pub fn renew(&mut self, client: ClientId, request: u64, session: u32, heard: u64, now: Nanos) -> Option<Renewed> {
        let mut has_released = false;
        let ends = now + self.term_ns;
        match self.sessions.get_mut(&client) {
            Some(known) if request < known.request => return None,
            Some(known) if known.number == session => {
                (known.request, known.confirmed) = (request, true);
                has_released |= self.before.remove(&client);
                has_released |= self.heard(client, heard);
                let known = self.sessions.get_mut(&client).filter(|known| !known.is_deaf(self.term_ns, now))?;
                known.ends = ends;
                return Some(Renewed { session, is_new: false, has_released });
            }
            // It has not heard that this one has begun, and holds nothing in it.
            Some(known) if !known.confirmed => {
                (known.request, known.ends) = (request, ends);
                return Some(Renewed { session: known.number, is_new: true, has_released });
            }
            // It has lost its session, and believes what it was told until it hears of the next.
            Some(_) => has_released |= self.end(client),
            None => {}
        }
        let number = self.next_session;
        self.next_session = self.next_session.wrapping_add(1).max(1);
        self.sessions.insert(client, Session::new(number, request, ends));
        Some(Renewed { session: number, is_new: true, has_released })
    }

    /// Notices that the client has not heard yet, and the number of the newest.
    pub fn notices(&self, client: ClientId) -> (u64, Vec<Notice>) {
        let Some(session) = self.sessions.get(&client) else { return (0, Vec::new()) };
        (session.newest, session.unheard.iter().map(|sent| sent.notice.clone()).collect())
    }

    /// The client leaves: it believes nothing any more. True if changes need not wait any longer.
    pub fn leave(&mut self, client: ClientId) -> bool {
        self.before.remove(&client) | self.end(client)
    }

    /// Grants a lease on a directory whose answer is about to be given. False: the answer holds for
    /// the moment only.
    pub fn grant(&mut self, client: ClientId, dir: Handle, now: Nanos) -> bool {
        let Some(session) = self.sessions.get_mut(&client).filter(|session| session.may_hold(now)) else {
            return false;
        };
        let is_full = self.directories.len() >= DIRECTORIES_MAX && !self.directories.contains_key(&dir);
        if is_full || (session.holds.len() >= HELD_MAX && !session.holds.contains(&dir)) {
            return false;
        }
        let directory = self.directories.entry(dir).or_default();
        if !directory.grants(now) {
            return false;
        }
        if session.holds.insert(dir) {
            directory.holders.insert(client);
        }
        true
    }

    /// True if the directory is changed so often that nobody holds a lease on it.
    pub fn rests(&self, dir: Handle, now: Nanos) -> bool {
        self.directories.get(&dir).is_some_and(|directory| directory.heat.rests(now))
    }

    /// The answer under a lease on `dir` that was just granted tells the attributes of this object,
    /// too. False if it cannot be covered.
    pub fn tell(&mut self, dir: Handle, object: Handle, now: Nanos) -> bool {
        if self.changed.get(&object).is_some_and(|heat| heat.rests(now)) {
            return false;
        }
        self.believers.remove(&object);
        match self.members.get(&object) {
            Some(known) if *known == dir => return true,
            // It has a name in another directory, too.
            Some(known) if self.directories.get(known).is_some_and(|other| !other.holders.is_empty()) => return false,
            Some(_) => {}
            None if self.members.len() >= MEMBERS_MAX => {
                let directories = &self.directories;
                self.members.retain(|_, dir| directories.contains_key(dir));
                if self.members.len() >= MEMBERS_MAX {
                    return false;
                }
            }
            None => {}
        }
        self.members.insert(object, dir);
        true
    }

    /// The directory under whose lease the attributes of an object were told.
    pub fn told_under(&self, object: Handle) -> Option<Handle> {
        self.members.get(&object).copied()
    }

    /// A change by `by` that touches all this is about to be made. `forgets`: it believes nothing
    /// of what it touches any more. True if everybody who might believe something else has heard of
    /// it: then it must be made now, before anything else. False: it must wait; notices are under
    /// way ([`Leases::notices`]) to `notify`.
    pub fn may_change<'a>(
        &mut self,
        by: ClientId,
        touched: impl IntoIterator<Item = Touched<'a>>,
        forgets: bool,
        now: Nanos,
        notify: impl FnMut(ClientId),
    ) -> bool {
        let Some(done) = self.told_of(by, touched, now, notify) else { return false };
        for (dir, key) in done {
            if let Some(directory) = self.directories.get_mut(&dir) {
                directory.announced.remove(&key);
            }
            // All others have forgotten it, and it is not told again soon.
            if let Key::Object(object) = key
                && self.changed.get(&object).is_some_and(|heat| heat.rests(now))
            {
                let goes_on = !forgets && self.believers.get(&object).is_none_or(|believer| *believer == by);
                match goes_on {
                    true => drop(self.believers.insert(object, by)),
                    false => drop((self.believers.remove(&object), self.members.remove(&object))),
                }
            }
        }
        true
    }

    /// Tells the holders of a change that will be made soon, by [`Leases::may_change`], which does
    /// not wait for them again then. True if they have heard of it.
    pub fn may_change_soon<'a>(
        &mut self,
        by: ClientId,
        touched: impl IntoIterator<Item = Touched<'a>>,
        now: Nanos,
        notify: impl FnMut(ClientId),
    ) -> bool {
        self.told_of(by, touched, now, notify).is_some()
    }

    /// What was announced, if all holders but `by` have heard of it.
    fn told_of<'a>(
        &mut self,
        by: ClientId,
        touched: impl IntoIterator<Item = Touched<'a>>,
        now: Nanos,
        mut notify: impl FnMut(ClientId),
    ) -> Option<Vec<(Handle, Key)>> {
        if !self.before.is_empty() {
            if now < self.before_ends {
                return None;
            }
            self.before.clear();
        }
        let mut is_ready = true;
        let mut done = Vec::new();
        for touched in touched {
            let (Touched::Name(at, _) | Touched::Object(at) | Touched::Names(at)) = touched;
            // What is told of an object, and of a directory when a name in it changes, may have
            // been told under the lease on the directory above.
            for dir in [Some(at), self.members.get(&at).copied()].into_iter().flatten() {
                if self.directories.get(&dir).is_none_or(|directory| directory.concerns_only(by)) {
                    continue;
                }
                let key = match touched {
                    Touched::Name(named, name) if named == dir => Key::Name(Bytes::copy_from_slice(name)),
                    Touched::Names(named) if named == dir => Key::Names,
                    _ => Key::Object(at),
                };
                is_ready &= self.announce(by, dir, &key, now, &mut notify);
                done.push((dir, key));
            }
        }
        is_ready.then_some(done)
    }

    /// True if all holders but `by` have heard of the change.
    fn announce(&mut self, by: ClientId, dir: Handle, key: &Key, now: Nanos, notify: &mut impl FnMut(ClientId)) -> bool {
        let Some(directory) = self.directories.get_mut(&dir) else { return true };
        let told = directory.announced.get(key).map(|announced| &announced.told);
        let believer = match key {
            Key::Object(object) => self.believers.get(object),
            Key::Name(_) | Key::Names => None,
        };
        let is_told = |holder: &ClientId| told.is_some_and(|told| told.contains(holder));
        let believes = |holder: &ClientId| believer.is_none_or(|believer| believer == holder);
        let untold = directory.holders.iter().copied().filter(|holder| *holder != by && believes(holder) && !is_told(holder));
        let untold: Vec<ClientId> = untold.collect();
        if !untold.is_empty() {
            let ends = match key {
                Key::Object(object) if *object != dir => {
                    self.changed.entry(*object).or_default().is_too_busy(now);
                    false
                }
                _ => directory.heat.is_too_busy(now),
            };
            let empty = || Announced { told: BTreeSet::new(), waits_for: BTreeMap::new(), wanted: now };
            let announced = directory.announced.entry(key.clone()).or_insert_with(empty);
            for holder in &untold {
                let session = self.sessions.get_mut(holder).expect("who holds a lease has a session");
                let notice = match (ends, key) {
                    (true, _) | (false, Key::Names) => Notice::Directory(dir),
                    (false, Key::Name(name)) => Notice::Name(dir, name.clone()),
                    (false, Key::Object(object)) => Notice::Object(*object),
                };
                announced.waits_for.insert(*holder, session.send(dir, notice, now));
                announced.told.insert(*holder);
                notify(*holder);
            }
        }
        let Some(announced) = directory.announced.get_mut(key) else { return true };
        announced.wanted = now;
        announced.waits_for.is_empty()
    }

    /// True if the client hears notices.
    pub fn hears(&self, client: ClientId, now: Nanos) -> bool {
        self.sessions.get(&client).is_some_and(|session| session.hears(now))
    }

    /// Tells a client that it is not alone any more when it appends to a file. False if it hears no
    /// notices.
    pub fn tell_appender(&mut self, client: ClientId, file: Handle, now: Nanos) -> bool {
        self.hears(client, now) && self.ask_back(client, file, now) == AskedBack::Told
    }

    /// Tells a client that others ask for a file that it has for itself.
    pub fn ask_back(&mut self, client: ClientId, file: Handle, now: Nanos) -> AskedBack {
        self.ask_back_with(client, file, Notice::Append(file), now)
    }

    /// Tells a client that others ask for a directory in which it makes names alone.
    pub fn ask_back_directory(&mut self, client: ClientId, dir: Handle, now: Nanos) -> AskedBack {
        self.ask_back_with(client, dir, Notice::Delegation(dir), now)
    }

    /// True if no other client believes anything of a directory.
    pub fn is_only_holder(&self, client: ClientId, dir: Handle) -> bool {
        self.before.is_empty() && self.directories.get(&dir).is_none_or(|directory| directory.concerns_only(client))
    }

    fn ask_back_with(&mut self, client: ClientId, object: Handle, notice: Notice, now: Nanos) -> AskedBack {
        // One whose time is over is there until [`Leases::expire`] ends it, and may go on before.
        let Some(session) = self.sessions.get_mut(&client) else {
            let is_waited_for = self.before.contains(&client) && now < self.before_ends;
            return if is_waited_for { AskedBack::NotYet } else { AskedBack::Never };
        };
        if !session.unheard.iter().any(|sent| sent.notice == notice) {
            session.send(object, notice, now);
        }
        AskedBack::Told
    }

    /// The client has heard all notices up to this number.
    fn heard(&mut self, client: ClientId, through: u64) -> bool {
        let Some(session) = self.sessions.get_mut(&client) else { return false };
        let heard = session.heard(through);
        if heard.is_empty() {
            return false;
        }
        let mut released = false;
        let everything = heard.iter().any(|sent| sent.notice == Notice::Everything);
        let dirs: BTreeSet<Handle> = match everything {
            true => session.holds.drain().collect(),
            false => heard.iter().filter_map(|sent| sent.dir).collect(),
        };
        for dir in dirs {
            let ends = everything || heard.iter().any(|sent| sent.notice == Notice::Directory(dir));
            if ends {
                session.holds.remove(&dir);
            }
            if let Some(directory) = self.directories.get_mut(&dir) {
                released |= if ends { directory.drop_holder(client) } else { directory.heard(client, through) };
            }
        }
        released
    }

    /// The session of a client is over. True if changes need not wait any longer.
    fn end(&mut self, client: ClientId) -> bool {
        let Some(session) = self.sessions.remove(&client) else { return false };
        let mut released = false;
        for dir in session.holds {
            if let Some(directory) = self.directories.get_mut(&dir) {
                released |= directory.drop_holder(client);
            }
        }
        released
    }

    /// Ends what time has ended. Returns the clients whose sessions are over, and whether changes
    /// need not wait any longer.
    pub fn expire(&mut self, now: Nanos) -> (Vec<ClientId>, bool) {
        let mut released = false;
        let over: Vec<ClientId> = self.sessions.iter().filter(|(_, session)| now >= session.ends).map(|(client, _)| *client).collect();
        for client in &over {
            released |= self.end(*client);
        }
        let mut over = over;
        if !self.before.is_empty() && now >= self.before_ends {
            over.extend(std::mem::take(&mut self.before));
            released = true;
        }
        self.directories.retain(|_, directory| {
            directory.expire(now);
            !directory.is_over(now)
        });
        self.changed.retain(|_, heat| !heat.is_cold(now));
        if self.directories.is_empty() {
            self.members.clear();
        }
        self.believers.retain(|object, _| self.members.contains_key(object));
        (over, released)
    }
}
