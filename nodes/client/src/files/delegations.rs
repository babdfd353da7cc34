//! Directories that are delegated to this client, and what it has made, removed and set in them and
//! not told of. Pure state behind a lock; the messages are in `absorb.rs`.
//!
//! ```text
//!       a change of names is granted it,
//!            or made in one that is         asked back, unused, or one too many
//!   (other) ────────────────────▶ Held ────────────────────────────────▶ Returned
//!      ▲                          files are made, and wait to be told       │
//!      └─────────────── all files told, and that it is given back ──────────┘
//! ```

mod telling;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use weft_base::{FastMap, FileKind, Handle, Nanos, ServerId, WallTime};
use weft_wire::ops::{CREATES_MAX, Delegation, HANDLES_FEW};

use super::untold::{Absorbed, Done, Untold};
use crate::Error;

/// Directories that this client keeps at most: for each, somebody else may have to wait.
const HELD_MAX: usize = 1024;
/// Directories of which is remembered how many files were made or removed there by asking, at most.
const CHANGED_MAX: usize = 1024;
/// No directory is made without asking while so many of its server wait to be given back.
const RETURNED_MAX: usize = 64;
/// Files, directories and attributes of one server that wait to be told of, at most.
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
    /// How often directories were given back, and how often servers have taken some back.
    recalls: u64,
    /// Files that were made here and do not exist after all, since this was asked last.
    lost: Vec<Error>,
    /// How many files were made or removed one after the other, by asking, in directories of which
    /// not all names are known.
    changed: FastMap<Handle, u32>,
    /// Files of which nothing must be believed any more, here or above, before a directory is given
    /// back: no lease covers them.
    unleased: Vec<Handle>,
    /// So many make some of them forgotten at the moment.
    forgetting: u32,
}

/// A directory in which this client makes files.
#[derive(Clone, Copy, Debug)]
struct HeldDirectory {
    granted: DirectoryGranted,
    /// What the clock of its server showed, and that of this client, when it was granted.
    clock: (WallTime, Nanos),
    used: Nanos,
}

/// What goes for the files of a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectoryGranted {
    /// As [`Delegation::delay_bytes`].
    pub(super) delay_bytes: u32,
    /// The server takes attributes with the close of a file that it has no content of.
    pub(super) closes_with_attributes: bool,
    /// It can be told of directories and of attributes, too.
    pub(super) tells_directories: bool,
    /// It can be told of names that were removed, too.
    pub(super) tells_removals: bool,
}

/// What a new file needs.
pub(super) struct Place {
    pub(super) handle: Handle,
    pub(super) granted: DirectoryGranted,
    pub(super) at: WallTime,
}

/// What is noted before a change of a name is sent that may be granted a directory, until it is
/// answered.
pub(crate) struct BeforeGrant<'a> {
    pub(crate) recalls: u64,
    /// How many handles of the server are left, as far as it has to know: only one message at a
    /// time asks for more, as a server forgets what it gave long ago.
    pub(crate) handles_left: u32,
    asks: Option<(&'a Delegations, ServerId)>,
}

impl Drop for BeforeGrant<'_> {
    fn drop(&mut self) {
        if let Some((delegations, server)) = self.asks {
            delegations.lock().servers.entry(server).or_default().create_asks = false;
        }
    }
}

impl Delegations {
    /// To be noted before a change of a name is sent that may be granted a directory.
    pub(super) fn before_grant(&self, dir: Handle) -> BeforeGrant<'_> {
        let server = dir.server();
        let mut state = self.lock();
        let recalls = state.recalls;
        let untold = state.servers.entry(server).or_default();
        let left = untold.handles_left();
        let is_asked = untold.create_asks || untold.telling_asks;
        if left >= HANDLES_FEW || is_asked {
            return BeforeGrant { recalls, handles_left: left.max(HANDLES_FEW), asks: None };
        }
        untold.create_asks = true;
        BeforeGrant { recalls, handles_left: left, asks: Some((self, server)) }
    }

    /// True if files can be made in some directory without asking.
    pub(super) fn holds_some(&self) -> bool {
        self.holds.load(Ordering::Acquire)
    }

    /// True if files can be made in the directory without asking, as far as it goes.
    pub(super) fn holds(&self, dir: Handle) -> bool {
        self.holds.load(Ordering::Acquire) && self.lock().held.contains_key(&dir)
    }

    /// True if files could be made there without asking, were its server told of some before.
    pub(super) fn is_full(&self, dir: Handle) -> bool {
        self.holds.load(Ordering::Acquire) && {
            let state = self.lock();
            state.held.contains_key(&dir) && state.servers.get(&dir.server()).is_some_and(|untold| untold.done.len() >= UNTOLD_MAX)
        }
    }

    /// A file is to be made or removed in a directory of which not all names are known. Says how
    /// many there were.
    pub(super) fn changes_again(&self, dir: Handle) -> u32 {
        let mut state = self.lock();
        if state.changed.len() >= CHANGED_MAX {
            state.changed.clear();
        }
        let changed = state.changed.entry(dir).or_default();
        *changed += 1;
        *changed
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
    /// back since is given back, and so is one that was asked back before and of which its server
    /// has not heard yet that it was given back: it would take the directory with that word.
    pub(super) fn granted(&self, dir: Handle, delegation: &Delegation, granted: DirectoryGranted, recalls: u64, clock: (WallTime, Nanos)) {
        let mut state = self.lock();
        let untold = state.servers.entry(dir.server()).or_default();
        untold.handles.extend(delegation.handles.clone());
        let is_returned = untold.returned.contains(&dir);
        if is_returned || state.recalls != recalls {
            return self.give_back_from(&mut state, dir);
        }
        self.hold(&mut state, dir, HeldDirectory { granted, clock, used: clock.1 });
    }

    /// The directory is this client's; if it has too many, the one used longest ago is not.
    fn hold(&self, state: &mut State, dir: Handle, held: HeldDirectory) {
        if state.held.len() >= HELD_MAX
            && let Some((oldest, _)) = state.held.iter().min_by_key(|(dir, held)| (held.used, **dir))
        {
            let oldest = *oldest;
            self.give_back_from(state, oldest);
        }
        state.held.insert(dir, held);
        self.holds.store(true, Ordering::Release);
    }

    /// Makes a file or a directory in a directory that is held, if that is possible now: `make`
    /// says what it is, given its place, or that it cannot be made so. Nobody gives the directory
    /// back meanwhile. A directory that was made is held, too.
    pub(super) fn absorb<T>(&self, dir: Handle, now: Nanos, make: impl FnOnce(Place) -> Option<(Absorbed, T)>) -> Option<T> {
        if !self.holds.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.lock();
        let State { held, servers, .. } = &mut *state;
        let held = held.get_mut(&dir)?;
        let untold = servers.entry(dir.server()).or_default();
        if untold.done.len() >= UNTOLD_MAX {
            return None;
        }
        let handle = untold.handles.iter().find(|range| range.count > 0)?.first;
        let (absorbed, made) = make(Place { handle, granted: held.granted, at: held.time_at_server(now) })?;
        held.used = now;
        let held = *held;
        let is_directory = matches!(absorbed.done, Done::Directory(_));
        untold.use_handle();
        untold.done.push_back(absorbed);
        self.owe(untold);
        if is_directory {
            self.hold(&mut state, handle, held);
        }
        Some(made)
    }

    /// True if a directory may be made without asking in this one, as far as it goes.
    pub(super) fn makes_directories(&self, dir: Handle) -> bool {
        self.holds.load(Ordering::Acquire) && {
            let state = self.lock();
            let waits = state.servers.get(&dir.server()).is_some_and(|untold| untold.returned.len() >= RETURNED_MAX);
            state.held.get(&dir).is_some_and(|held| held.granted.tells_directories) && !waits
        }
    }

    /// Changes a directory that is held and that may be changed so, or removes a name in it, if
    /// that is possible now: `change` says what it does, given the time by the clock of its server
    /// and who knows which directories are held, or that it cannot be done so. Nobody gives a
    /// directory back meanwhile. A directory that was removed is not held any more.
    pub(super) fn change<T>(
        &self,
        dir: Handle,
        now: Nanos,
        may_change: impl FnOnce(&DirectoryGranted) -> bool,
        change: impl FnOnce(WallTime, &dyn Fn(Handle) -> bool) -> Option<(Absorbed, T)>,
    ) -> Option<T> {
        if !self.holds.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.lock();
        let State { held, servers, .. } = &mut *state;
        let at = held.get(&dir).filter(|held| may_change(&held.granted))?.time_at_server(now);
        let untold = servers.entry(dir.server()).or_default();
        if untold.done.len() >= UNTOLD_MAX {
            return None;
        }
        let (absorbed, changed) = change(at, &|dir| held.contains_key(&dir))?;
        if let Done::Removed(removed) = &absorbed.done
            && removed.kind == FileKind::Directory
        {
            held.remove(&removed.handle);
        }
        held.entry(dir).and_modify(|held| held.used = now);
        untold.done.push_back(absorbed);
        self.owe(untold);
        Some(changed)
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
        let is_in_dir = |absorbed: &Absorbed| absorbed.dir == dir;
        let is_it = |absorbed: &Absorbed| is_in_dir(absorbed) && matches!(&absorbed.done, Done::File(file, _) if file.name == *from);
        let done = &mut untold.done;
        let (Some(found), Some(last)) = (done.iter().position(is_it), done.iter().rposition(is_in_dir)) else { return false };
        // What was set of the directory since would count as later, and the new name must be free
        // already.
        let is_set_since = matches!(done[last].done, Done::Attributes(_));
        let frees = |absorbed: &Absorbed| is_in_dir(absorbed) && matches!(&absorbed.done, Done::Removed(removed) if removed.name == *to);
        let is_freed_since = done.range(found..).any(frees);
        let at = held.time_at_server(now);
        match &mut done[found].done {
            Done::File(file, _) if found >= untold.sent && !is_set_since && !is_freed_since && rename(file.handle, at) => {
                file.name = to.clone();
            }
            _ => return false,
        }
        // The directory gets its time with the last of its names.
        match &mut done[last].done {
            Done::File(file, _) | Done::Directory(file) => file.named_at = at,
            Done::Removed(removed) => removed.at = at,
            Done::Attributes(_) => {}
        }
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
        if !untold.returned[untold.returned_sent..].contains(&dir) {
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
