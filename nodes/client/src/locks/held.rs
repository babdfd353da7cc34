//! What the programs of this client hold, as far as is known here. Pure state behind a lock; the
//! messages are in `mod.rs`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use weft_base::{ClientId, FastMap, Handle, ServerId};
use weft_locks::Ranges;
use weft_wire::ops::{Family, HeldLock, Lock, LockKind, Owner, Unlock};

/// The locks of all programs of this client.
#[derive(Debug)]
pub(crate) struct Locks {
    client: ClientId,
    files: Mutex<FastMap<Handle, FileLocks>>,
    /// How many files have locks, so that nobody else pays for them.
    count: AtomicUsize,
    /// How often each server began to be told what is held or not held, and how often that ended.
    told: Mutex<BTreeMap<ServerId, Begun>>,
    /// The number of the last wait.
    waits: AtomicU64,
}

/// The locks on one file.
#[derive(Debug, Default)]
struct FileLocks {
    held: Ranges,
    /// Messages that are on their way: of which range, and what its owner is to have there.
    running: Vec<(Unlock, Option<LockKind>)>,
    /// What the server may believe that they hold, and they do not.
    owed: Vec<Owed>,
    /// Owners of whom two messages were on their way at once: nobody knows which came last.
    unclear: Vec<(Family, Owner)>,
}

impl FileLocks {
    fn is_running(&self, family: Family, owner: Owner) -> bool {
        self.running.iter().any(|(range, _)| (range.family, range.owner) == (family, owner))
    }

    fn is_idle(&self) -> bool {
        self.held.is_empty() && self.running.is_empty() && self.owed.is_empty() && self.unclear.is_empty()
    }
}

/// When a message left, in terms of what its server was told besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Begun(u64, u64);

/// What is to be given back, in case that the server believes in it.
#[derive(Clone, Debug)]
pub(super) struct Owed {
    pub(super) range: Unlock,
    /// The wait that may go on there; 0: none.
    pub(super) wait: u64,
}

impl Locks {
    pub(crate) fn new(client: ClientId) -> Locks {
        Locks { client, files: Mutex::default(), count: AtomicUsize::new(0), told: Mutex::default(), waits: AtomicU64::new(0) }
    }

    /// True if there are locks on any file.
    pub(crate) fn are_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// What the programs hold of a file.
    pub(crate) fn on(&self, file: Handle) -> Vec<Lock> {
        if !self.are_any() {
            return Vec::new();
        }
        self.files().get(&file).map(|locks| locks.held.iter().map(|held| held.lock).collect()).unwrap_or_default()
    }

    /// What a server that has restarted is told of a file. What is being given back, or made
    /// weaker, counts as that: the server may have heard of it, and others have locks there since.
    pub(crate) fn to_tell(&self, file: Handle) -> Vec<Lock> {
        if !self.are_any() {
            return Vec::new();
        }
        let files = self.files();
        let Some(FileLocks { held, running, .. }) = files.get(&file) else { return Vec::new() };
        let mut told = held.clone();
        for (range, kind) in running {
            match kind {
                None => told.unlock(self.client, range),
                Some(LockKind::Shared) => told.share(self.client, range),
                Some(LockKind::Exclusive) => {}
            }
        }
        told.iter().map(|held| held.lock).collect()
    }

    /// A server begins to be told what is held or not held.
    pub(crate) fn telling(&self, server: ServerId) {
        self.told().entry(server).or_default().0 += 1;
    }

    /// It has been told, or could not be.
    pub(crate) fn has_told(&self, server: ServerId) {
        self.told().entry(server).or_default().1 += 1;
    }

    /// A number for a wait.
    pub(super) fn wait(&self) -> u64 {
        self.waits.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A message about locks of an owner leaves; `kind` is what it wants, none to give back.
    pub(super) fn begin(&self, file: Handle, range: &Unlock, kind: Option<LockKind>) -> Begun {
        self.change(file, |locks| {
            let owner = (range.family, range.owner);
            if locks.is_running(owner.0, owner.1) && !locks.unclear.contains(&owner) {
                locks.unclear.push(owner);
            }
            locks.running.push((range.clone(), kind));
        });
        self.begun(file.server())
    }

    /// True if the server was told something else since then: it may be what was true before.
    pub(super) fn is_outdated(&self, server: ServerId, begun: Begun) -> bool {
        let now = self.begun(server);
        now != begun || now.0 != now.1
    }

    fn begun(&self, server: ServerId) -> Begun {
        self.told().get(&server).copied().unwrap_or_default()
    }

    /// The message has been answered, or given up.
    pub(super) fn end(&self, file: Handle, range: &Unlock, kind: Option<LockKind>) {
        self.change(file, |locks| {
            if let Some(at) = locks.running.iter().position(|(of, wants)| (of, *wants) == (range, kind)) {
                locks.running.swap_remove(at);
            }
        });
    }

    /// A lock was granted.
    pub(super) fn granted(&self, file: Handle, lock: Lock) {
        let held = HeldLock { client: self.client, lock };
        self.change(file, |locks| locks.held.put(held));
    }

    /// A range was given back, or is not held any more whatever the server says.
    pub(super) fn released(&self, file: Handle, range: &Unlock) {
        let client = self.client;
        self.change(file, |locks| locks.held.unlock(client, range));
    }

    /// The server may believe that the owner has this range, or waits for it.
    pub(super) fn owe(&self, file: Handle, range: &Unlock, wait: u64) {
        self.change(file, |locks| locks.owed.push(Owed { range: range.clone(), wait }));
    }

    /// Takes what is owed of a file: parts of which their owners hold nothing, and about which no
    /// message is on its way.
    pub(super) fn take_owed(&self, file: Handle) -> Vec<Owed> {
        let client = self.client;
        self.change(file, |locks| {
            let mut due = Vec::new();
            for owed in std::mem::take(&mut locks.owed) {
                let waits = locks.is_running(owed.range.family, owed.range.owner);
                if waits { &mut locks.owed } else { &mut due }.push(owed);
            }
            let held = &locks.held;
            let parts = |owed: &Owed| {
                let wait = owed.wait;
                held.gaps(client, &owed.range).into_iter().map(move |range| Owed { range, wait })
            };
            due.iter().flat_map(parts).collect()
        })
    }

    /// Files of which something is owed.
    pub(super) fn owing(&self) -> Vec<Handle> {
        if !self.are_any() {
            return Vec::new();
        }
        let mut files: Vec<Handle> = self.files().iter().filter(|(_, locks)| !locks.owed.is_empty()).map(|(file, _)| *file).collect();
        files.sort_unstable();
        files
    }

    /// What an owner that is gone may have had of a file.
    pub(super) fn of_owner(&self, file: Handle, family: Family, owner: Owner) -> Vec<Unlock> {
        let has = |locks: &FileLocks| {
            let holds = locks.held.iter().any(|held| (held.lock.family, held.lock.owner) == (family, owner));
            holds || locks.unclear.contains(&(family, owner))
        };
        if !self.are_any() || !self.files().get(&file).is_some_and(has) {
            return Vec::new();
        }
        self.change(file, |locks| locks.unclear.retain(|other| *other != (family, owner)));
        vec![Unlock { family, owner, start: 0, end: u64::MAX }]
    }

    /// What was taken through an open file that is gone.
    pub(super) fn of_open_file(&self, file: Handle, number: u64) -> Vec<Unlock> {
        self.on(file).iter().filter(|lock| lock.file == number).map(Lock::whole).collect()
    }

    fn change<T>(&self, file: Handle, change: impl FnOnce(&mut FileLocks) -> T) -> T {
        let mut files = self.files();
        let locks = files.entry(file).or_default();
        let changed = change(locks);
        if locks.is_idle() {
            files.remove(&file);
        }
        self.count.store(files.len(), Ordering::Relaxed);
        changed
    }

    fn told(&self) -> MutexGuard<'_, BTreeMap<ServerId, Begun>> {
        self.told.lock().expect("no code panics while it holds this lock")
    }

    fn files(&self) -> MutexGuard<'_, FastMap<Handle, FileLocks>> {
        self.files.lock().expect("no code panics while it holds this lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Handle = Handle(9);

    #[test]
    fn what_is_being_given_back_is_not_told() {
        let locks = Locks::new(ClientId(1));
        let lock = |owner, kind| Lock { family: Family::Fcntl, owner, kind, start: 0, end: 99, process: 0, file: 0 };
        for owner in [1, 2] {
            locks.granted(FILE, lock(owner, LockKind::Exclusive));
        }
        let half = Unlock { start: 50, ..lock(1, LockKind::Exclusive).whole() };
        locks.begin(FILE, &half, None);
        locks.begin(FILE, &lock(2, LockKind::Shared).whole(), Some(LockKind::Shared));
        let told = locks.to_tell(FILE);
        assert!(told.contains(&Lock { end: 49, ..lock(1, LockKind::Exclusive) }) && told.contains(&lock(2, LockKind::Shared)), "{told:?}");
        assert_eq!((told.len(), locks.on(FILE).len()), (2, 2));
        locks.end(FILE, &half, None);
        assert!(locks.to_tell(FILE).contains(&lock(1, LockKind::Exclusive)), "it was not given back");
    }
}
