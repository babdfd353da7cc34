//! How servers are told of what was done in delegated directories, and what becomes of what they do
//! not take in.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_base::{FastSet, Handle, Nanos, ServerId};
use weft_wire::ops::{CREATES_MAX, CreateManyRequest, HANDLES_FEW, HandleRange};

use super::super::untold::{Absorbed, Batch, Done, told_of};
use super::Delegations;
use crate::Error;
use crate::gate::Gate;

impl Delegations {
    /// How much a server was told, ever, when it knows what was done by then.
    pub(in crate::files) fn told_when(&self, server: ServerId, done_by: Nanos) -> u64 {
        self.lock().servers.get(&server).filter(|untold| untold.owes()).map_or(0, |untold| untold.told_when(done_by))
    }

    /// Files of which servers do not know.
    pub(in crate::files) fn untold_files(&self) -> FastSet<Handle> {
        if !self.owes() {
            return FastSet::default();
        }
        let state = self.lock();
        let done = state.servers.values().flat_map(|untold| &untold.done);
        done.filter_map(|absorbed| if let Done::File(new, _) = &absorbed.done { Some(new.handle) } else { None }).collect()
    }

    /// How much it was told, ever.
    pub(in crate::files) fn told_of(&self, server: ServerId) -> u64 {
        self.lock().servers.get(&server).map_or(0, |untold| untold.told)
    }

    /// The gate of those that tell a server.
    pub(in crate::files) fn turn(&self, server: ServerId) -> Arc<Gate> {
        Arc::clone(&self.lock().servers.entry(server).or_default().turn)
    }

    /// True if there is something that a server can be told now.
    pub(in crate::files) fn has_next(&self, server: ServerId) -> bool {
        let state = self.lock();
        let Some(untold) = state.servers.get(&server) else { return false };
        !untold.done.is_empty() || !untold.returned.is_empty() && state.is_all_forgotten()
    }

    /// What a server is told next: it stays here until [`Delegations::told`]. A directory is given
    /// back with the last of its files. What removes a file that the same message would tell of
    /// waits for the next one: told once more, that one would make the file again. What counts
    /// beyond `all` waits, too. The caller is inside the gate.
    pub(in crate::files) fn next(&self, server: ServerId, all: u64) -> Option<Batch> {
        let mut state = self.lock();
        let is_all_forgotten = state.is_all_forgotten();
        let untold = state.servers.get_mut(&server).filter(|untold| untold.owes())?;
        let mut made = FastSet::default();
        let is_told_apart = |absorbed: &&Absorbed| match &absorbed.done {
            Done::File(new, _) | Done::Directory(new) => made.insert(new.handle),
            Done::Removed(removed) => !made.contains(&removed.handle),
            Done::Attributes(_) => true,
        };
        let most = CREATES_MAX.min(all.saturating_sub(untold.told) as usize);
        let done: Vec<Absorbed> = untold.done.iter().take(most).take_while(is_told_apart).cloned().collect();
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
    pub(in crate::files) fn told(&self, server: ServerId, batch: &Batch, handles: Option<HandleRange>, takes_back: bool) {
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
    pub(in crate::files) fn must_be_forgotten(&self, files: impl IntoIterator<Item = Handle>) {
        self.lock().unleased.extend(files);
    }

    /// Makes all of them forgotten above. Several flows may do so at once.
    pub(in crate::files) fn forget_above(&self, forget: impl Fn(Handle)) {
        let unleased = {
            let mut state = self.lock();
            state.forgetting += 1;
            std::mem::take(&mut state.unleased)
        };
        unleased.into_iter().for_each(forget);
        self.lock().forgetting -= 1;
    }

    /// A file that was made here was not taken in.
    pub(in crate::files) fn lost(&self, why: Error) {
        self.lock().lost.push(why);
    }

    /// Those, once.
    pub(in crate::files) fn take_lost(&self) -> Vec<Error> {
        std::mem::take(&mut self.lock().lost)
    }
}
