//! Which locks clients' programs may have through this gateway, and who waits for one. The servers
//! decide about locks, and the layer below knows what is held; here is only whose it is, so that it
//! can be given back. Pure state.
//!
//! An owner has a number as long as it has a lock, a wait or a call on some file; a file is kept
//! open as long as any owner has. Everything is bounded, each address by itself.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weft_base::Handle;
use weft_wire::ops::{Lock, Owner, Unlock};

use super::messages::{NlmHost, NlmLock, NlmOwner, NlmStatus};

/// Most pairs of a file and an owner.
const PAIRS_MAX: usize = 8192;
/// The same of the clients at one address.
const PAIRS_OF_ADDRESS_MAX: usize = 2048;
/// Most pieces of locks of the clients at one address; servers allow 16,384 for a gateway.
const PIECES_OF_ADDRESS_MAX: usize = 4096;
/// The same on one file; servers allow 1024 for a gateway.
const PIECES_ON_FILE_MAX: usize = 512;
/// Most waits: each has a thread.
const WAITS_MAX: usize = 256;
/// The same of the clients at one address.
const WAITS_OF_ADDRESS_MAX: usize = 64;

/// Who waits for a lock, and for which.
#[derive(Clone, Debug)]
pub(crate) struct NfsWait {
    pub handle: Handle,
    pub lock: Lock,
    /// What its owner had of the range before: it has that again if the wait is given up.
    pub before: Vec<Lock>,
    /// How the client asked: it is told in these words.
    pub asked: NlmLock,
    /// The address by which the client knows the gateway.
    pub at: IpAddr,
    pub state: WaitState,
}

/// How far a wait is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitState {
    /// Somebody is in the way.
    Waits,
    /// The lock is held, and the client does not know it yet.
    Granted,
    /// It cannot be had.
    Refused(NlmStatus),
    /// The client does not want it any more.
    Cancelled,
}

/// What becomes of a wait that is cancelled.
#[derive(Debug)]
pub(crate) enum Cancelled {
    /// There is none any more.
    Gone,
    /// It will end soon.
    Soon,
    /// It was out of the table at once: the canceller looks after the rest.
    Now(Box<NfsWait>),
}

#[derive(Debug, Default)]
struct LockedFile {
    /// Its open file in the layer below.
    open: Option<u64>,
    owners: BTreeMap<Owner, Pair>,
}

/// A file and an owner.
#[derive(Debug, Default)]
struct Pair {
    /// Of locks.
    pieces: usize,
    /// Calls and waits.
    users: u32,
}

#[derive(Debug, Default)]
struct Uses {
    pairs: usize,
    pieces: usize,
    waits: usize,
}

#[derive(Debug, Default)]
struct HostEntry {
    /// Counts the restarts of the machine; 0: it does not say.
    state: u32,
    /// Its locks are being dropped.
    is_freed: bool,
    pairs: usize,
}

/// The locks and waits of all clients.
#[derive(Debug, Default)]
pub(crate) struct NfsLocks {
    numbers: BTreeMap<NlmOwner, (Owner, usize)>,
    owners: BTreeMap<Owner, NlmOwner>,
    files: BTreeMap<Handle, LockedFile>,
    hosts: BTreeMap<NlmHost, HostEntry>,
    uses: BTreeMap<IpAddr, Uses>,
    pairs: usize,
    waits: BTreeMap<u64, NfsWait>,
    /// Waits that nobody drives yet.
    begun: Vec<u64>,
    last: u64,
    has_ended: bool,
}

impl NfsLocks {
    /// A call that may lock begins; [`NfsLocks::end`] must follow. Returns the number of the owner.
    ///
    /// # Errors
    /// If there is no room, or the host's locks are being dropped.
    pub fn begin(&mut self, handle: Handle, owner: &NlmOwner) -> Result<Owner, NlmStatus> {
        let address = owner.host.address;
        if self.has_ended || self.hosts.get(&owner.host).is_some_and(|host| host.is_freed) {
            return Err(NlmStatus::LATER);
        }
        let known = self.begin_known(handle, owner);
        let uses = self.uses.get(&address);
        let (pairs, pieces) = uses.map_or((0, 0), |uses| (uses.pairs, uses.pieces));
        if let Some(number) = known {
            // A lock may cut another one of its owner in two, and have a piece itself.
            if pieces + 2 > PIECES_OF_ADDRESS_MAX || self.pieces_on(handle, address) + 2 > PIECES_ON_FILE_MAX {
                self.leave(handle, number);
                return Err(NlmStatus::NO_ROOM);
            }
            return Ok(number);
        }
        let is_full = self.pairs >= PAIRS_MAX
            || pairs >= PAIRS_OF_ADDRESS_MAX
            || pieces >= PIECES_OF_ADDRESS_MAX
            || self.pieces_on(handle, address) >= PIECES_ON_FILE_MAX;
        if is_full {
            return Err(NlmStatus::NO_ROOM);
        }
        self.last += 1;
        let (number, pairs) = self.numbers.entry(owner.clone()).or_insert((self.last, 0));
        *pairs += 1;
        let number = *number;
        self.owners.insert(number, owner.clone());
        self.files.entry(handle).or_default().owners.insert(number, Pair { pieces: 0, users: 1 });
        self.hosts.entry(owner.host.clone()).or_default().pairs += 1;
        self.uses.entry(address).or_default().pairs += 1;
        self.pairs += 1;
        Ok(number)
    }

    /// As [`NfsLocks::begin`], for what concerns only those who have something; `None`: nothing.
    pub fn begin_known(&mut self, handle: Handle, owner: &NlmOwner) -> Option<Owner> {
        let number = self.numbers.get(owner)?.0;
        self.files.get_mut(&handle)?.owners.get_mut(&number)?.users += 1;
        Some(number)
    }

    fn leave(&mut self, handle: Handle, number: Owner) {
        if let Some(pair) = self.files.get_mut(&handle).and_then(|file| file.owners.get_mut(&number)) {
            pair.users -= 1;
        }
    }

    fn pieces_on(&self, handle: Handle, address: IpAddr) -> usize {
        let Some(file) = self.files.get(&handle) else { return 0 };
        let is_there = |number: &Owner| self.owners.get(number).is_some_and(|owner| owner.host.address == address);
        file.owners.iter().filter(|(number, _)| is_there(number)).map(|(_, pair)| pair.pieces).sum()
    }

    /// A call or wait is over; `held`: what programs of this gateway hold of the file now. Returns
    /// the open file that is not needed any more.
    pub fn end(&mut self, handle: Handle, number: Owner, held: &[Lock]) -> Option<u64> {
        self.leave(handle, number);
        let pieces = held.iter().filter(|lock| lock.owner == number).count();
        let file = self.files.get_mut(&handle)?;
        let pair = file.owners.get_mut(&number)?;
        let before = std::mem::replace(&mut pair.pieces, pieces);
        let is_over = pieces == 0 && pair.users == 0;
        let owner = self.owners.get(&number)?.clone();
        let uses = self.uses.entry(owner.host.address).or_default();
        uses.pieces = uses.pieces + pieces - before;
        if !is_over {
            return None;
        }
        file.owners.remove(&number);
        uses.pairs -= 1;
        if uses.pairs == 0 && uses.waits == 0 {
            self.uses.remove(&owner.host.address);
        }
        self.pairs -= 1;
        if let Some(host) = self.hosts.get_mut(&owner.host) {
            host.pairs -= 1;
            if host.pairs == 0 && !host.is_freed {
                self.hosts.remove(&owner.host);
            }
        }
        if let Some((_, pairs)) = self.numbers.get_mut(&owner) {
            *pairs -= 1;
            if *pairs == 0 {
                self.numbers.remove(&owner);
                self.owners.remove(&number);
            }
        }
        if !self.files.get(&handle)?.owners.is_empty() {
            return None;
        }
        self.files.remove(&handle)?.open
    }

    /// The open file of one that is locked.
    pub fn open_of(&self, handle: Handle) -> Option<u64> {
        self.files.get(&handle)?.open
    }

    /// A file was opened for its locks. Returns the number to use, and one that is not needed.
    pub fn opened(&mut self, handle: Handle, number: u64) -> (u64, Option<u64>) {
        match self.files.get_mut(&handle) {
            Some(file) => match file.open {
                Some(before) => (before, Some(number)),
                None => (*file.open.insert(number), None),
            },
            None => (number, Some(number)),
        }
    }

    /// The number of an owner that has something.
    pub fn number_of(&self, owner: &NlmOwner) -> Option<Owner> {
        self.numbers.get(owner).map(|(number, _)| *number)
    }

    /// The owner of this number.
    pub fn owner(&self, number: Owner) -> Option<&NlmOwner> {
        self.owners.get(&number)
    }

    /// A host says how often its machine has restarted. True if it has since it locked something:
    /// then the caller drops that, and says [`NfsLocks::freed`].
    pub fn has_restarted(&mut self, host: &NlmHost, state: u32) -> bool {
        let Some(entry) = self.hosts.get_mut(host) else { return false };
        let has_restarted = entry.state != 0 && state != 0 && entry.state != state && !entry.is_freed;
        if has_restarted {
            entry.is_freed = true;
        }
        has_restarted
    }

    /// A host has locked something in this life.
    pub fn lives(&mut self, host: &NlmHost, state: u32) {
        if let Some(entry) = self.hosts.get_mut(host).filter(|_| state != 0) {
            entry.state = state;
        }
    }

    /// The locks of a host are to be dropped. False if it has none, or they are being dropped.
    pub fn free(&mut self, host: &NlmHost) -> bool {
        self.hosts.get_mut(host).is_some_and(|entry| !std::mem::replace(&mut entry.is_freed, true))
    }

    /// What a host has: files and owners, waits.
    pub fn of_host(&self, host: &NlmHost) -> (Vec<(Handle, NlmOwner)>, Vec<u64>) {
        let pairs = self.files.iter().flat_map(|(handle, file)| file.owners.keys().map(move |number| (*handle, number)));
        let pairs =
            pairs.filter_map(|(handle, number)| Some((handle, self.owners.get(number).filter(|owner| owner.host == *host)?.clone())));
        let waits = self.waits.iter().filter(|(_, wait)| wait.asked.owner.host == *host).map(|(number, _)| *number);
        (pairs.collect(), waits.collect())
    }

    /// The locks of a host have been dropped.
    pub fn freed(&mut self, host: &NlmHost) {
        if let Some(entry) = self.hosts.get_mut(host) {
            (entry.is_freed, entry.state) = (false, 0);
            if entry.pairs == 0 {
                self.hosts.remove(host);
            }
        }
    }

    /// A client waits from now on. The wait is one of the users of its file and owner.
    ///
    /// # Errors
    /// If there is no room.
    pub fn wait(&mut self, wait: NfsWait) -> Result<(), NlmStatus> {
        let address = wait.asked.owner.host.address;
        let uses = self.uses.entry(address).or_default();
        if self.has_ended || self.waits.len() >= WAITS_MAX || uses.waits >= WAITS_OF_ADDRESS_MAX {
            return Err(NlmStatus::NO_ROOM);
        }
        uses.waits += 1;
        if let Some(pair) = self.files.get_mut(&wait.handle).and_then(|file| file.owners.get_mut(&wait.lock.owner)) {
            pair.users += 1;
        }
        self.last += 1;
        self.waits.insert(self.last, wait);
        self.begun.push(self.last);
        Ok(())
    }

    /// Takes the waits that nobody drives yet.
    pub fn take_begun(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.begun)
    }

    /// The wait of this number.
    pub fn waiting(&self, number: u64) -> Option<&NfsWait> {
        self.waits.get(&number)
    }

    /// True as long as the client wants what it waits for, and does not have it.
    pub fn is_awaited(&self, number: u64) -> bool {
        self.state_is(number, WaitState::Waits)
    }

    /// True if the wait is there and so far.
    pub fn state_is(&self, number: u64, state: WaitState) -> bool {
        self.waits.get(&number).is_some_and(|wait| wait.state == state)
    }

    /// A wait has got so far. False if the client does not want it any more.
    pub fn advance(&mut self, number: u64, state: WaitState) -> bool {
        let Some(wait) = self.waits.get_mut(&number).filter(|wait| wait.state == WaitState::Waits) else { return false };
        wait.state = state;
        true
    }

    /// A wait is over. The caller ends its use of file and owner ([`NfsLocks::end`]).
    pub fn remove_wait(&mut self, number: u64) -> Option<NfsWait> {
        let wait = self.waits.remove(&number)?;
        self.begun.retain(|begun| *begun != number);
        if let Some(uses) = self.uses.get_mut(&wait.asked.owner.host.address) {
            uses.waits -= 1;
        }
        Some(wait)
    }

    /// The client does not want it any more.
    pub fn cancel(&mut self, number: u64) -> Cancelled {
        let Some(wait) = self.waits.get_mut(&number) else { return Cancelled::Gone };
        if matches!(wait.state, WaitState::Waits | WaitState::Cancelled) {
            wait.state = WaitState::Cancelled;
            return Cancelled::Soon;
        }
        self.remove_wait(number).map_or(Cancelled::Gone, |wait| Cancelled::Now(Box::new(wait)))
    }

    /// The wait for exactly this lock, if there is one.
    pub fn wait_for(&self, handle: Handle, lock: &Lock) -> Option<(u64, WaitState)> {
        let same = |wait: &NfsWait| wait.handle == handle && wait.lock.kind == lock.kind && wait.lock.whole() == lock.whole();
        self.waits.iter().find(|(_, wait)| same(wait)).map(|(number, wait)| (*number, wait.state))
    }

    /// Waits of an owner for any part of a range.
    pub fn waits_in(&self, handle: Handle, range: &Unlock) -> Vec<u64> {
        let is_in = |wait: &NfsWait| {
            wait.handle == handle && wait.lock.owner == range.owner && wait.lock.start <= range.end && range.start <= wait.lock.end
        };
        self.waits.iter().filter(|(_, wait)| is_in(wait)).map(|(number, _)| *number).collect()
    }

    /// The end of the gateway: nobody waits any more, and nobody begins.
    pub fn end_all(&mut self) {
        self.has_ended = true;
        self.waits.values_mut().for_each(|wait| wait.state = WaitState::Cancelled);
    }

    /// How many wait.
    pub fn count_waits(&self) -> usize {
        self.waits.len()
    }

    /// True if nothing is kept of anybody.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let NfsLocks { numbers, owners, files, hosts, uses, pairs, waits, begun, .. } = self;
        let is_none = numbers.is_empty() && owners.is_empty() && files.is_empty() && hosts.is_empty() && uses.is_empty();
        is_none && waits.is_empty() && begun.is_empty() && *pairs == 0
    }
}
