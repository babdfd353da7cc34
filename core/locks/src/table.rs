//! The locks that a server keeps, and the queues of those who wait for them.
//!
//! Whoever may wait gets its turn in the order of arrival. A request that is not to be waited for
//! is judged by what is held alone. A wait lives as long as its client asks for it: the request at
//! the server is answered "still waiting" now and then, and the next one finds the place kept.
//!
//! Everything is bounded, each client by itself, so that none can take the room of others: see
//! [`Limits`].

use std::collections::{BTreeMap, BTreeSet};

use weft_base::{ClientId, FastMap, Handle, Nanos, Result, Status};
use weft_wire::ops::{Family, HeldLock, Lock, Owner, Unlock};

use crate::Ranges;
use crate::waits::{Wait, may_have};

/// A wait for which its client has not asked for so many nanoseconds is over.
const ABSENT_NS: u64 = 5_000_000_000;
/// At most so many locks are looked at to find out whether a wait closes a circle. Beyond, it is
/// taken for one that does not.
const LOOKS_MAX: usize = 10_000;

/// How much a client may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pieces of locks on one file, by one client.
    pub on_one_file: usize,
    /// Pieces of locks on one file, by all clients together.
    pub on_one_file_of_all: usize,
    /// Pieces of locks on all files of the server, and waits.
    pub on_all_files: usize,
    /// Waits for locks on one file, of all clients together.
    pub waits_on_one_file: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { on_one_file: 1024, on_one_file_of_all: 16_384, on_all_files: 16_384, waits_on_one_file: 4096 }
    }
}

/// What becomes of a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It is held.
    Granted,
    /// This one is in the way.
    Taken(HeldLock),
    /// It is in the queue; [`LockTable::due`] will name it.
    Waits,
    /// Whoever is in the way waits for it.
    Deadlock,
}

#[derive(Debug, Default)]
struct File {
    held: Ranges,
    waits: Vec<Wait>,
}

/// What one client has.
#[derive(Debug, Default)]
struct Uses {
    /// Pieces and waits by file.
    files: BTreeMap<Handle, usize>,
    total: usize,
}

type Program = (ClientId, Owner);

/// The locks of one server.
#[derive(Debug, Default)]
pub struct LockTable {
    limits: Limits,
    files: FastMap<Handle, File>,
    clients: FastMap<ClientId, Uses>,
    /// Files on which somebody waits.
    queues: BTreeSet<Handle>,
    /// Where programs wait for `fcntl` locks.
    waiting: BTreeMap<Program, BTreeSet<Handle>>,
}

impl LockTable {
    /// An empty table with these limits.
    pub fn new(limits: Limits) -> LockTable {
        LockTable { limits, ..LockTable::default() }
    }

    /// True if there are neither locks nor waits.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// True if the client has locks or waits.
    pub fn has_client(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    /// True if another client has a lock of this family on the file.
    pub fn others_have(&self, handle: Handle, client: ClientId, family: Family) -> bool {
        let is_others = |held: &HeldLock| held.client != client && held.lock.family == family;
        self.files.get(&handle).is_some_and(|file| file.held.iter().any(is_others))
    }

    /// Asks for a lock; with the number of a wait it is waited for.
    ///
    /// # Errors
    /// [`Status::TooManyLocks`].
    pub fn lock(&mut self, handle: Handle, wanted: HeldLock, wait: Option<u64>, now: Nanos) -> Result<Asked> {
        let client = wanted.client;
        let known = wait.and_then(|number| self.place(handle, client, number));
        // A lock may cut another one of its owner in two, and have a piece itself.
        let more = if known.is_some() { 1 } else { 2 };
        self.check_room(handle, client, more)?;
        let closes_circle = wait.is_some() && self.closes_circle(handle, &wanted);
        let file = self.files.entry(handle).or_default();
        let asked = match wait {
            None => file.held.conflict(&wanted).map_or(Asked::Granted, Asked::Taken),
            Some(_) if closes_circle => Asked::Deadlock,
            Some(number) => {
                let since = known.map_or(now, |at| file.waits[at].since);
                let wait = Wait { wanted, number, since, seen: now, is_asked: true };
                let before = &file.waits[..known.unwrap_or(file.waits.len())];
                match may_have(&wait, &file.held, before.iter(), now) {
                    true => Asked::Granted,
                    false => {
                        match known {
                            Some(at) => file.waits[at] = wait,
                            None if file.waits.len() >= self.limits.waits_on_one_file => return Err(Status::TooManyLocks),
                            None => file.waits.push(wait),
                        }
                        Asked::Waits
                    }
                }
            }
        };
        if asked == Asked::Granted {
            file.held.put(wanted);
        }
        if let Some(at) = known.filter(|_| asked != Asked::Waits) {
            file.waits.remove(at);
        }
        self.changed(handle, client);
        Ok(asked)
    }

    /// A lock in the way of this one.
    pub fn conflict(&self, handle: Handle, wanted: &HeldLock) -> Option<HeldLock> {
        self.files.get(&handle)?.held.conflict(wanted)
    }

    /// Gives a range back.
    ///
    /// # Errors
    /// [`Status::TooManyLocks`] if that would leave one piece more than there may be.
    pub fn unlock(&mut self, handle: Handle, client: ClientId, range: &Unlock) -> Result<()> {
        let Some(file) = self.files.get_mut(&handle) else { return Ok(()) };
        let before = file.held.count_of(client);
        // A range may be cut in two, again and again.
        let copy = (before >= self.limits.on_one_file).then(|| file.held.clone());
        file.held.unlock(client, range);
        if let Some(copy) = copy.filter(|_| file.held.count_of(client) > before) {
            file.held = copy;
            return Err(Status::TooManyLocks);
        }
        self.changed(handle, client);
        Ok(())
    }

    /// A lock that its owner had before a restart of the server: it gets those parts that nobody
    /// else has taken meanwhile. What the owner has there already is newer, and stays.
    pub fn reclaim(&mut self, handle: Handle, held: HeldLock) {
        let client = held.client;
        let ranges = &self.files.entry(handle).or_default().held;
        for gap in ranges.free_parts(&held) {
            if self.check_room(handle, client, 1).is_ok() {
                let part = HeldLock { lock: Lock { start: gap.start, end: gap.end, ..held.lock }, ..held };
                self.files.entry(handle).or_default().held.lock(part);
            }
        }
        self.changed(handle, client);
    }

    /// The request for a wait leaves with "still waiting". The place is kept for a while.
    pub fn rest(&mut self, handle: Handle, client: ClientId, number: u64, now: Nanos) {
        if let Some(at) = self.place(handle, client, number)
            && let Some(file) = self.files.get_mut(&handle)
        {
            (file.waits[at].is_asked, file.waits[at].seen) = (false, now);
        }
    }

    /// A wait is given up. False if there is none.
    pub fn withdraw(&mut self, handle: Handle, client: ClientId, number: u64) -> bool {
        let Some(at) = self.place(handle, client, number) else { return false };
        if let Some(file) = self.files.get_mut(&handle) {
            file.waits.remove(at);
        }
        self.changed(handle, client);
        true
    }

    /// Gives locks on this file to those whose turn it is, and names them. Whoever is not present
    /// (`is_present`, and a request for it is here) gets nothing; one who was not seen for long
    /// loses its place.
    pub fn due(&mut self, handle: Handle, now: Nanos, is_present: impl Fn(ClientId) -> bool) -> Vec<(ClientId, u64)> {
        let Some(file) = self.files.get_mut(&handle).filter(|file| !file.waits.is_empty()) else { return Vec::new() };
        let absent = |wait: &Wait| !wait.is_asked && now.since(wait.seen) >= ABSENT_NS;
        let mut touched: BTreeSet<ClientId> = file.waits.extract_if(.., |wait| absent(wait)).map(|wait| wait.wanted.client).collect();
        let mut granted = Vec::new();
        let mut at = 0;
        while at < file.waits.len() {
            let wait = file.waits[at];
            let client = wait.wanted.client;
            // A connection that is broken keeps nobody who came later from what is free.
            let before = file.waits[..at].iter().filter(|other| is_present(other.wanted.client));
            if wait.is_asked && is_present(client) && may_have(&wait, &file.held, before, now) {
                file.held.put(wait.wanted);
                file.waits.remove(at);
                granted.push((client, wait.number));
                touched.insert(client);
            } else {
                at += 1;
            }
        }
        touched.into_iter().for_each(|client| self.changed(handle, client));
        granted
    }

    /// Files on which somebody waits.
    pub fn queues(&self) -> Vec<Handle> {
        self.queues.iter().copied().collect()
    }

    /// A client has closed a file or is gone from it: all that it had there. True if it had
    /// anything.
    pub fn drop_from(&mut self, handle: Handle, client: ClientId) -> bool {
        if !self.clients.get(&client).is_some_and(|uses| uses.files.contains_key(&handle)) {
            return false;
        }
        if let Some(file) = self.files.get_mut(&handle) {
            file.held.drop_where(|held| held.client == client);
            file.waits.retain(|wait| wait.wanted.client != client);
        }
        self.changed(handle, client);
        true
    }

    /// A client is gone: all that it had. Gives the files concerned.
    pub fn drop_client(&mut self, client: ClientId) -> Vec<Handle> {
        let handles: Vec<Handle> = self.clients.get(&client).map(|uses| uses.files.keys().copied().collect()).unwrap_or_default();
        for handle in &handles {
            self.drop_from(*handle, client);
        }
        handles
    }

    fn place(&self, handle: Handle, client: ClientId, number: u64) -> Option<usize> {
        self.files.get(&handle)?.waits.iter().position(|wait| wait.is(client, number))
    }

    fn check_room(&self, handle: Handle, client: ClientId, more: usize) -> Result<()> {
        let limits = &self.limits;
        let (on_file, total) = self.clients.get(&client).map_or((0, 0), |uses| (uses.files.get(&handle).copied().unwrap_or(0), uses.total));
        let of_all = self.files.get(&handle).map_or(0, |file| file.held.count());
        let fits =
            on_file + more <= limits.on_one_file && total + more <= limits.on_all_files && of_all + more <= limits.on_one_file_of_all;
        if fits { Ok(()) } else { Err(Status::TooManyLocks) }
    }

    /// True if one of those in the way waits, by whatever way round, for the one who asks. The last
    /// who begins to wait closes the circle, and is the one to be told.
    fn closes_circle(&self, handle: Handle, wanted: &HeldLock) -> bool {
        if wanted.lock.family != Family::Fcntl || self.waiting.is_empty() {
            return false;
        }
        let asks = (wanted.client, wanted.lock.owner);
        let mut reached: BTreeSet<Program> = BTreeSet::new();
        let mut next: Vec<Program> = self.holders(handle, wanted).collect();
        let mut looks = next.len();
        while let Some(program) = next.pop() {
            if program == asks {
                return true;
            }
            if looks > LOOKS_MAX || !reached.insert(program) {
                continue;
            }
            for at in self.waiting.get(&program).into_iter().flatten() {
                let waits = self.files.get(at).into_iter().flat_map(|file| &file.waits);
                for wait in waits.filter(|wait| (wait.wanted.client, wait.wanted.lock.owner) == program) {
                    let before = next.len();
                    next.extend(self.holders(*at, &wait.wanted));
                    looks += 1 + next.len() - before;
                }
            }
        }
        false
    }

    fn holders<'a>(&'a self, handle: Handle, wanted: &'a HeldLock) -> impl Iterator<Item = Program> + 'a {
        let held = self.files.get(&handle).into_iter().flat_map(move |file| file.held.in_the_way(wanted));
        held.map(|held| (held.client, held.lock.owner))
    }

    /// Something of this client on this file has changed.
    fn changed(&mut self, handle: Handle, client: ClientId) {
        let Some(file) = self.files.get(&handle) else { return };
        let count = file.held.count_of(client) + file.waits.iter().filter(|wait| wait.wanted.client == client).count();
        let uses = self.clients.entry(client).or_default();
        let before = if count > 0 { uses.files.insert(handle, count) } else { uses.files.remove(&handle) };
        uses.total = uses.total + count - before.unwrap_or(0);
        if uses.files.is_empty() {
            self.clients.remove(&client);
        }
        if !file.waits.is_empty() || self.queues.contains(&handle) {
            self.note_waits(handle, client);
        }
        if self.files.get(&handle).is_some_and(|file| file.waits.is_empty() && file.held.is_empty()) {
            self.files.remove(&handle);
        }
    }

    /// Which of this client's programs wait on this file.
    fn note_waits(&mut self, handle: Handle, client: ClientId) {
        let Some(file) = self.files.get(&handle) else { return };
        for (_, handles) in self.waiting.range_mut((client, Owner::MIN)..=(client, Owner::MAX)) {
            handles.remove(&handle);
        }
        let of_client = |wait: &&Wait| wait.wanted.client == client && wait.wanted.lock.family == Family::Fcntl;
        for wait in file.waits.iter().filter(of_client) {
            self.waiting.entry((client, wait.wanted.lock.owner)).or_default().insert(handle);
        }
        let idle: Vec<Program> = self
            .waiting
            .range((client, Owner::MIN)..=(client, Owner::MAX))
            .filter(|(_, handles)| handles.is_empty())
            .map(|(program, _)| *program)
            .collect();
        idle.iter().for_each(|program| drop(self.waiting.remove(program)));
        if file.waits.is_empty() {
            self.queues.remove(&handle);
        } else {
            self.queues.insert(handle);
        }
    }
}
