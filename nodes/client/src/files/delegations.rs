//! Directories that are delegated to this client, and what it has made and set in them and not told
//! of. Pure state behind a lock; the messages are in `absorb.rs`.
//!
//! ```text
//!            a create is granted it,
//!            or made in one that is         asked back, unused, or one too many
//!   (other) ────────────────────▶ Held ────────────────────────────────▶ Returned
//!      ▲                          files are made, and wait to be told       │
//!      └─────────────── all files told, and that it is given back ──────────┘
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use weft_base::{FastMap, Handle, Nanos, ServerId, WallTime};
use weft_wire::ops::{CREATES_MAX, CreateManyRequest, Delegation, HANDLES_FEW, HandleRange};

use super::untold::{Absorbed, Batch, Done, Untold, told_of};
use crate::Error;
use crate::gate::Gate;

/// Directories that this client keeps at most: for each, somebody else may have to wait.
const HELD_MAX: usize = 64;
/// Directories of which is remembered how many files were made there by asking, at most.
const MADE_MAX: usize = 1024;
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
}

/// What a new file needs.
pub(super) struct Place {
    pub(super) handle: Handle,
    pub(super) granted: DirectoryGranted,
    pub(super) at: WallTime,
}

/// What is noted before a create is sent that may be granted a directory, until it is answered.
pub(super) struct BeforeGrant<'a> {
    pub(super) recalls: u64,
    /// How many handles of the server are left, as far as it has to know: only one message at a
    /// time asks for more, as a server forgets what it gave long ago.
    pub(super) handles_left: u32,
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
    /// To be noted before a create is sent that may be granted a directory.
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

    /// Sets attributes of a directory that is held, if that is possible now: `set` says which,
    /// given the time by the clock of its server, or that they cannot be set so. Nobody gives the
    /// directory back meanwhile.
    pub(super) fn set<T>(&self, dir: Handle, now: Nanos, set: impl FnOnce(WallTime) -> Option<(Absorbed, T)>) -> Option<T> {
        if !self.holds.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.lock();
        let State { held, servers, .. } = &mut *state;
        let held = held.get_mut(&dir).filter(|held| held.granted.tells_directories)?;
        let untold = servers.entry(dir.server()).or_default();
        if untold.done.len() >= UNTOLD_MAX {
            return None;
        }
        let (absorbed, attr) = set(held.time_at_server(now))?;
        held.used = now;
        untold.done.push_back(absorbed);
        self.owe(untold);
        Some(attr)
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
        // What was set of the directory since would count as later.
        let is_set_since = matches!(done[last].done, Done::Attributes(_));
        let at = held.time_at_server(now);
        match &mut done[found].done {
            Done::File(file, _) if found >= untold.sent && !is_set_since && rename(file.handle, at) => file.name = to.clone(),
            _ => return false,
        }
        // The directory gets its time with the last of its files.
        if let Done::File(file, _) | Done::Directory(file) = &mut done[last].done {
            file.named_at = at;
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
        !untold.done.is_empty() || !untold.returned.is_empty() && state.is_all_forgotten()
    }

    /// What a server is told next: it stays here until [`Delegations::told`]. A directory is given
    /// back with the last of its files. The caller is inside the gate.
    pub(super) fn next(&self, server: ServerId) -> Option<Batch> {
        let mut state = self.lock();
        let is_all_forgotten = state.is_all_forgotten();
        let untold = state.servers.get_mut(&server).filter(|untold| untold.owes())?;
        let done: Vec<Absorbed> = untold.done.iter().take(CREATES_MAX).cloned().collect();
        untold.sent = untold.sent.max(done.len());
        let is_last = done.len() == untold.done.len() && is_all_forgotten;
        let returned = if is_last { untold.returned.iter().take(CREATES_MAX).copied().collect() } else { Vec::new() };
        if done.is_empty() && returned.is_empty() {
            return None;
        }
        untold.returned_sent = untold.returned_sent.max(returned.len());
        let wants_handles = !done.is_empty() && untold.handles_left() < HANDLES_FEW && !untold.create_asks;
        untold.telling_asks = wants_handles;
        Some(Batch { request: CreateManyRequest { returned, wants_handles, ..told_of(&done) }, done })
    }

    /// A server was told; false: it has taken nothing back.
    pub(super) fn told(&self, server: ServerId, batch: &Batch, handles: Option<HandleRange>, takes_back: bool) {
        let mut state = self.lock();
        let untold = state.servers.entry(server).or_default();
        let returned = if takes_back { batch.request.returned.len() } else { 0 };
        untold.done.drain(..batch.done.len());
        untold.sent -= batch.done.len();
        // They may have been granted anew since, and given back again: that is told once more.
        untold.returned.drain(..returned);
        untold.returned_sent -= returned;
        untold.handles.extend(handles);
        untold.telling_asks = false;
        let count = batch.done.len() + returned;
        untold.told += count as u64;
        // A create that was sent before may have been granted one of them before this.
        state.recalls += u64::from(returned > 0);
        self.owed.fetch_sub(count, Ordering::AcqRel);
    }

    /// The server was told of these files, and does not tell when others change them.
    pub(super) fn must_be_forgotten(&self, files: impl IntoIterator<Item = Handle>) {
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const DIR: Handle = Handle(7);

    /// A create of this directory is granted it, after all that was known when it was sent.
    fn grant(delegations: &Delegations, recalls: u64) {
        let delegation = Delegation { handles: None, delay_bytes: 0 };
        let granted = DirectoryGranted { delay_bytes: 0, closes_with_attributes: true, tells_directories: true };
        delegations.granted(DIR, &delegation, granted, recalls, (WallTime(0), Nanos(0)));
    }

    /// A client that could not say at once that it gives a directory back made the next files in
    /// it, and said it before it told of these: they were lost.
    #[test]
    fn no_grant_counts_before_the_server_has_heard_that_the_directory_is_given_back() {
        let (delegations, server) = (Delegations::default(), DIR.server());
        grant(&delegations, delegations.before_grant(DIR).recalls);
        assert!(delegations.holds(DIR));
        // Something must be forgotten first, so the next create is sent before.
        delegations.must_be_forgotten([Handle(8)]);
        delegations.give_back(DIR);
        assert!(delegations.next(server).is_none());
        let recalls = delegations.before_grant(DIR).recalls;
        grant(&delegations, recalls);
        assert!(!delegations.holds(DIR), "its server will take it");
        delegations.forget_above(|_| {});

        // And one that comes while that is on its way, or was sent before, may have been granted
        // before it or after it: it is given back once more.
        let batch = delegations.next(server).expect("the directory is given back");
        assert_eq!(batch.request.returned, [DIR]);
        grant(&delegations, delegations.before_grant(DIR).recalls);
        assert!(!delegations.holds(DIR));
        delegations.told(server, &batch, None, true);
        grant(&delegations, recalls);
        assert!(!delegations.holds(DIR), "its server has taken it");
        let batch = delegations.next(server).expect("again");
        delegations.told(server, &batch, None, true);
        assert!(batch.request.returned == [DIR] && !delegations.owes() && delegations.next(server).is_none());
        grant(&delegations, delegations.before_grant(DIR).recalls);
        assert!(delegations.holds(DIR));
    }

    /// Whoever asks for more than a server keeps in mind has files refused that it has made.
    #[test]
    fn one_message_at_a_time_asks_for_handles() {
        let delegations = Delegations::default();
        let first = delegations.before_grant(DIR);
        let asked = |grant: &BeforeGrant<'_>| grant.handles_left < HANDLES_FEW;
        assert!(asked(&first) && !asked(&delegations.before_grant(DIR)));
        drop(first);
        assert!(asked(&delegations.before_grant(DIR)), "it was not answered");
    }

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
