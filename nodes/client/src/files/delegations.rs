//! Directories that are delegated to this client, and the files that it has made in them and not
//! told of. Pure state behind a lock; the messages are in `absorb.rs`.
//!
//! ```text
//!            a create is granted it          asked back, unused, or one too many
//!   (other) ────────────────────▶ Held ────────────────────────────────▶ Returned
//!      ▲                          files are made, and wait to be told       │
//!      └─────────────── all files told, and that it is given back ──────────┘
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use weft_base::{Credentials, FastMap, Handle, Nanos, ServerId, WallTime};
use weft_wire::ops::{CREATES_MAX, CreateManyRequest, Delegation, HANDLES_FEW, HandleRange, NewFile, NewFiles};

use super::open_inode::OpenInode;
use crate::Error;
use crate::gate::Gate;

/// Directories that this client keeps at most: for each, somebody else may have to wait.
const HELD_MAX: usize = 64;
/// Directories of which is remembered how many files were made there by asking, at most.
const MADE_MAX: usize = 1024;
/// Files of one server that wait to be told of, at most.
const UNTOLD_MAX: usize = 4 * CREATES_MAX;

#[derive(Debug, Default)]
pub(crate) struct Delegations {
    state: Mutex<State>,
    /// What servers have to be told of, over all of them: saves a lock where there is nothing.
    owed: AtomicUsize,
    /// There was nothing, and now there is.
    begins_to_owe: AtomicBool,
    /// Some directory is held.
    holds: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    held: FastMap<Handle, HeldDirectory>,
    servers: BTreeMap<ServerId, Untold>,
    /// How often directories were given back.
    recalls: u64,
    /// Files that were made here and do not exist after all, since this was asked last.
    lost: Vec<Error>,
    /// How many files were made one after the other, by asking, in directories of which not all
    /// names are known.
    made: FastMap<Handle, u32>,
    /// Files of which nothing must be believed any more, here or above, before a directory is given
    /// back: no lease covers them.
    unleased: Vec<Handle>,
    /// So many make some of them forgotten at the moment.
    forgetting: u32,
}

/// A directory in which this client makes files.
#[derive(Debug)]
struct HeldDirectory {
    delay_bytes: u32,
    closes_with_attributes: bool,
    /// What the clock of its server showed, and that of this client, when it was granted.
    clock: (WallTime, Nanos),
    used: Nanos,
}

/// What one server has to be told.
#[derive(Debug, Default)]
struct Untold {
    files: VecDeque<Absorbed>,
    /// So many of them the server may have been told already.
    sent: usize,
    returned: Vec<Handle>,
    handles: VecDeque<HandleRange>,
    /// Files and returns that were told, ever, and that there were.
    told: u64,
    all: u64,
    /// Held by whoever tells.
    turn: Arc<Gate>,
}

/// A file that its server does not know yet.
#[derive(Clone, Debug)]
pub(super) struct Absorbed {
    pub(super) dir: Handle,
    pub(super) who: Credentials,
    pub(super) file: NewFile,
    pub(super) inode: Arc<OpenInode>,
}

/// What a new file needs.
pub(super) struct Place {
    pub(super) handle: Handle,
    pub(super) delay_bytes: u32,
    pub(super) closes_with_attributes: bool,
    pub(super) at: WallTime,
}

/// What a server is told with one message.
pub(super) struct Batch {
    pub(super) request: CreateManyRequest,
    pub(super) files: Vec<Absorbed>,
}

impl Delegations {
    /// To be noted before a create is sent that may be granted a directory, and how many handles of
    /// its server are left.
    pub(super) fn before_grant(&self, dir: Handle) -> (u64, u32) {
        let state = self.lock();
        (state.recalls, state.servers.get(&dir.server()).map_or(0, Untold::handles_left))
    }

    /// True if files can be made in the directory without asking, as far as it goes.
    pub(super) fn holds(&self, dir: Handle) -> bool {
        self.holds.load(Ordering::Acquire) && self.lock().held.contains_key(&dir)
    }

    /// A file is to be made in a directory of which not all names are known. True if it is time to
    /// learn them: with the third, the sixth, the twelfth, and so on.
    pub(super) fn makes_again(&self, dir: Handle) -> bool {
        let mut state = self.lock();
        if state.made.len() >= MADE_MAX {
            state.made.clear();
        }
        let made = state.made.entry(dir).or_default();
        *made += 1;
        made.is_multiple_of(3) && (*made / 3).is_power_of_two()
    }

    /// True if some server has to be told something.
    pub(crate) fn owes(&self) -> bool {
        self.owed.load(Ordering::Acquire) > 0
    }

    /// True, once, if there was nothing to be told, and now there is.
    pub(crate) fn begins_to_owe(&self) -> bool {
        self.begins_to_owe.load(Ordering::Relaxed) && self.begins_to_owe.swap(false, Ordering::AcqRel)
    }

    /// Servers that have to be told something.
    pub(super) fn servers(&self) -> Vec<ServerId> {
        let state = self.lock();
        state.servers.iter().filter(|(_, untold)| untold.owes()).map(|(server, _)| *server).collect()
    }

    /// A create that was sent after so many recalls was granted the directory. One that was asked
    /// back since is given back.
    pub(super) fn granted(
        &self,
        dir: Handle,
        delegation: &Delegation,
        closes_with_attributes: bool,
        recalls: u64,
        clock: (WallTime, Nanos),
    ) {
        let mut state = self.lock();
        let untold = state.servers.entry(dir.server()).or_default();
        untold.handles.extend(delegation.handles.clone());
        if state.recalls != recalls {
            return self.give_back_from(&mut state, dir);
        }
        if state.held.len() >= HELD_MAX
            && let Some((oldest, _)) = state.held.iter().min_by_key(|(dir, held)| (held.used, **dir))
        {
            let oldest = *oldest;
            self.give_back_from(&mut state, oldest);
        }
        state.held.insert(dir, HeldDirectory { delay_bytes: delegation.delay_bytes, closes_with_attributes, clock, used: clock.1 });
        self.holds.store(true, Ordering::Release);
    }

    /// Makes a file in a directory that is held, if that is possible now: `make` says what it is,
    /// given its place, or that it cannot be made so. Nobody gives the directory back meanwhile.
    pub(super) fn absorb<T>(&self, dir: Handle, now: Nanos, make: impl FnOnce(Place) -> Option<(Absorbed, T)>) -> Option<T> {
        if !self.holds.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.lock();
        let State { held, servers, .. } = &mut *state;
        let held = held.get_mut(&dir)?;
        let untold = servers.entry(dir.server()).or_default();
        if untold.files.len() >= UNTOLD_MAX {
            return None;
        }
        let handle = untold.handles.iter().find(|range| range.count > 0)?.first;
        let at = held.time_at_server(now);
        let (absorbed, made) =
            make(Place { handle, delay_bytes: held.delay_bytes, closes_with_attributes: held.closes_with_attributes, at })?;
        held.used = now;
        untold.use_handle();
        untold.files.push_back(absorbed);
        self.owe(untold);
        Some(made)
    }

    /// Renames a file of which its server was not told, at this time, if `rename` does so, given
    /// the file and the time by the clock of the server. Nobody tells of it meanwhile.
    pub(super) fn rename(&self, dir: Handle, from: &[u8], to: &Bytes, now: Nanos, rename: impl FnOnce(Handle, WallTime) -> bool) -> bool {
        if !self.owes() {
            return false;
        }
        let mut state = self.lock();
        let State { held, servers, .. } = &mut *state;
        let (Some(held), Some(untold)) = (held.get_mut(&dir), servers.get_mut(&dir.server())) else { return false };
        let mut files = untold.files.iter_mut().skip(untold.sent).filter(|absorbed| absorbed.dir == dir);
        let Some(absorbed) = files.find(|absorbed| absorbed.file.name == *from) else { return false };
        let at = held.time_at_server(now);
        if !rename(absorbed.file.handle, at) {
            return false;
        }
        absorbed.file.name = to.clone();
        // The directory gets its time with the last of its files.
        files.last().unwrap_or(absorbed).file.named_at = at;
        held.used = now;
        true
    }

    /// The directory is no more.
    pub(crate) fn removed(&self, dir: Handle) {
        if self.holds.load(Ordering::Acquire) {
            let mut state = self.lock();
            state.held.remove(&dir);
            self.holds.store(!state.held.is_empty(), Ordering::Release);
        }
    }

    /// Others want the directory, or it is not needed any more: its server is told.
    pub(super) fn give_back(&self, dir: Handle) {
        self.give_back_from(&mut self.lock(), dir);
    }

    /// The same for all directories of a server: what it grants with answers that are on their way
    /// is given back, too. If it has restarted it may not know the handles any more.
    pub(super) fn give_back_all(&self, server: ServerId) {
        {
            let mut state = self.lock();
            state.recalls += 1;
            state.servers.entry(server).or_default().handles.clear();
        }
        self.give_back_unused(server, Nanos::NEVER);
    }

    /// The same for those that have not been used since then.
    pub(super) fn give_back_unused(&self, server: ServerId, since: Nanos) {
        let mut state = self.lock();
        let unused = state.held.iter().filter(|(dir, held)| dir.server() == server && held.used <= since);
        let mut unused: Vec<Handle> = unused.map(|(dir, _)| *dir).collect();
        unused.sort_unstable();
        unused.into_iter().for_each(|dir| self.give_back_from(&mut state, dir));
    }

    fn give_back_from(&self, state: &mut State, dir: Handle) {
        state.recalls += 1;
        state.held.remove(&dir);
        self.holds.store(!state.held.is_empty(), Ordering::Release);
        let untold = state.servers.entry(dir.server()).or_default();
        if !untold.returned.contains(&dir) {
            untold.returned.push(dir);
            self.owe(untold);
        }
    }

    fn owe(&self, untold: &mut Untold) {
        untold.all += 1;
        if self.owed.fetch_add(1, Ordering::AcqRel) == 0 {
            self.begins_to_owe.store(true, Ordering::Release);
        }
    }

    // ---- Telling
    // ---------------------------------------------------------------------------------------------

    /// How much a server has to be told for all that is there now to be told.
    pub(super) fn all_of(&self, server: ServerId) -> u64 {
        self.lock().servers.get(&server).filter(|untold| untold.owes()).map_or(0, |untold| untold.all)
    }

    /// How much it was told, ever.
    pub(super) fn told_of(&self, server: ServerId) -> u64 {
        self.lock().servers.get(&server).map_or(0, |untold| untold.told)
    }

    /// The gate of those that tell a server.
    pub(super) fn turn(&self, server: ServerId) -> Arc<Gate> {
        Arc::clone(&self.lock().servers.entry(server).or_default().turn)
    }

    /// True if there is something that a server can be told now.
    pub(super) fn has_next(&self, server: ServerId) -> bool {
        let state = self.lock();
        let Some(untold) = state.servers.get(&server) else { return false };
        !untold.files.is_empty() || !untold.returned.is_empty() && state.is_all_forgotten()
    }

    /// What a server is told next: it stays here until [`Delegations::told`]. A directory is given
    /// back with the last of its files. The caller is inside the gate.
    pub(super) fn next(&self, server: ServerId) -> Option<Batch> {
        let mut state = self.lock();
        let is_all_forgotten = state.is_all_forgotten();
        let untold = state.servers.get_mut(&server).filter(|untold| untold.owes())?;
        let files: Vec<Absorbed> = untold.files.iter().take(CREATES_MAX).cloned().collect();
        untold.sent = untold.sent.max(files.len());
        let is_last = files.len() == untold.files.len() && is_all_forgotten;
        let returned = if is_last { untold.returned.iter().take(CREATES_MAX).copied().collect() } else { Vec::new() };
        if files.is_empty() && returned.is_empty() {
            return None;
        }
        let mut groups: Vec<NewFiles> = Vec::new();
        for Absorbed { dir, who, file, .. } in &files {
            match groups.last_mut().filter(|group| group.dir == *dir && group.who == *who) {
                Some(group) => group.files.push(file.clone()),
                None => groups.push(NewFiles { dir: *dir, who: who.clone(), files: vec![file.clone()] }),
            }
        }
        let wants_handles = !files.is_empty() && untold.handles_left() < HANDLES_FEW;
        let to_data: Vec<u8> = (0u8..).zip(&files).filter(|(_, new)| new.inode.wants_capability()).map(|(number, _)| number).collect();
        let to_data = (!to_data.is_empty()).then(|| to_data.into());
        Some(Batch { request: CreateManyRequest { groups, returned, wants_handles, to_data }, files })
    }

    /// A server was told; false: it has taken nothing back.
    pub(super) fn told(&self, server: ServerId, batch: &Batch, handles: Option<HandleRange>, takes_back: bool) {
        let mut state = self.lock();
        let untold = state.servers.entry(server).or_default();
        let returned = if takes_back { batch.request.returned.len() } else { 0 };
        untold.files.drain(..batch.files.len());
        untold.sent -= batch.files.len();
        // They may have been granted anew since, and given back again: that is told once more.
        untold.returned.drain(..returned);
        untold.handles.extend(handles);
        let count = batch.files.len() + returned;
        untold.told += count as u64;
        self.owed.fetch_sub(count, Ordering::AcqRel);
    }

    /// The server was told of these files, and does not tell when others change them.
    pub(super) fn must_be_forgotten(&self, files: impl Iterator<Item = Handle>) {
        self.lock().unleased.extend(files);
    }

    /// Makes all of them forgotten above. Several flows may do so at once.
    pub(super) fn forget_above(&self, forget: impl Fn(Handle)) {
        let unleased = {
            let mut state = self.lock();
            state.forgetting += 1;
            std::mem::take(&mut state.unleased)
        };
        unleased.into_iter().for_each(forget);
        self.lock().forgetting -= 1;
    }

    /// A file that was made here was not taken in.
    pub(super) fn lost(&self, why: Error) {
        self.lock().lost.push(why);
    }

    /// Those, once.
    pub(super) fn take_lost(&self) -> Vec<Error> {
        std::mem::take(&mut self.lock().lost)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}

impl State {
    /// True if nothing is believed any more that no lease covers.
    fn is_all_forgotten(&self) -> bool {
        self.unleased.is_empty() && self.forgetting == 0
    }
}

impl HeldDirectory {
    /// What the clock of its server shows, as far as is known here.
    fn time_at_server(&self, now: Nanos) -> WallTime {
        let (granted, heard) = self.clock;
        WallTime(granted.0.saturating_add_unsigned(now.since(heard)))
    }
}

impl Untold {
    fn owes(&self) -> bool {
        !self.files.is_empty() || !self.returned.is_empty()
    }

    fn handles_left(&self) -> u32 {
        self.handles.iter().map(|range| range.count).sum()
    }

    /// The first handle that is left is one less.
    fn use_handle(&mut self) {
        while let Some(range) = self.handles.front_mut() {
            if range.count > 0 {
                range.first = Handle(range.first.0 + 1);
                range.count -= 1;
                return;
            }
            self.handles.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The flow that closes files and the one that hears notices both do it.
    #[test]
    fn two_flows_forget_at_once() {
        let delegations = Delegations::default();
        delegations.must_be_forgotten((1..=32).map(Handle));
        let forgotten = Cell::new(0);
        delegations.forget_above(|_| {
            forgotten.set(forgotten.get() + 1);
            delegations.forget_above(|_| unreachable!("the first one does it"));
            assert!(!delegations.lock().is_all_forgotten());
        });
        assert!(forgotten.get() == 32 && delegations.lock().is_all_forgotten());
    }
}
