//! Directories in which one client makes files without asking, and the handles that it gives them.
//! Nobody else is told anything of such a directory: whoever asks waits until it was given back
//! (`ops/delegate.rs`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use weft_base::{ClientId, Handle};

use crate::Change;

/// Of the handles that a client was given the newest are kept in mind. It uses them up in their
/// order, and asks for more when few are left, with one message at a time: so it uses two of them
/// at most, and may not have heard of some others.
const RANGES_KEPT: usize = 16;

/// All of one server.
#[derive(Debug, Default)]
pub(crate) struct Delegations {
    holders: BTreeMap<Handle, ClientId>,
    /// The same by client. Derived.
    directories: BTreeMap<ClientId, BTreeSet<Handle>>,
    /// Counters of handles, the newest last.
    handles: BTreeMap<ClientId, Vec<Range<u64>>>,
    /// Volatile: directories that somebody else has asked for.
    asked_back: RefCell<BTreeSet<Handle>>,
}

impl Delegations {
    pub(crate) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    pub(crate) fn holder(&self, dir: Handle) -> Option<ClientId> {
        if self.holders.is_empty() { None } else { self.holders.get(&dir).copied() }
    }

    pub(crate) fn put(&mut self, dir: Handle, client: ClientId) {
        self.delete(dir);
        self.holders.insert(dir, client);
        self.directories.entry(client).or_default().insert(dir);
    }

    pub(crate) fn delete(&mut self, dir: Handle) {
        let Some(client) = self.holders.remove(&dir) else { return };
        if let Some(directories) = self.directories.get_mut(&client) {
            directories.remove(&dir);
            if directories.is_empty() {
                self.directories.remove(&client);
            }
        }
    }

    /// How many directories a client has.
    pub(crate) fn count(&self, client: ClientId) -> usize {
        self.directories.get(&client).map_or(0, BTreeSet::len)
    }

    /// The directories of one client.
    pub(crate) fn of(&self, client: ClientId) -> impl Iterator<Item = Handle> {
        self.directories.get(&client).into_iter().flatten().copied()
    }

    pub(crate) fn put_handles(&mut self, client: ClientId, counters: Range<u64>) {
        let ranges = self.handles.entry(client).or_default();
        // A replay may meet it twice.
        if !ranges.contains(&counters) {
            ranges.push(counters);
        }
        if ranges.len() > RANGES_KEPT {
            ranges.remove(0);
        }
    }

    pub(crate) fn is_given(&self, client: ClientId, handle: Handle) -> bool {
        self.handles.get(&client).is_some_and(|ranges| ranges.iter().any(|range| range.contains(&handle.counter())))
    }

    /// The client that was given this handle.
    pub(crate) fn given_to(&self, handle: Handle) -> Option<ClientId> {
        self.handles.keys().copied().find(|client| self.is_given(*client, handle))
    }

    /// The client is gone for good.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.handles.remove(&client);
        for dir in self.directories.remove(&client).unwrap_or_default() {
            self.holders.remove(&dir);
        }
    }

    pub(crate) fn ask_back(&self, dir: Handle) {
        self.asked_back.borrow_mut().insert(dir);
    }

    pub(crate) fn take_asked_back(&self) -> BTreeSet<Handle> {
        if self.asked_back.borrow().is_empty() { BTreeSet::new() } else { self.asked_back.take() }
    }

    /// All of it as changes, for a checkpoint.
    pub(crate) fn kept(&self) -> impl Iterator<Item = Change> {
        let given = self.handles.iter().flat_map(|(client, ranges)| ranges.iter().map(|range| (*client, range.clone())));
        let handles = given.map(|(client, range)| Change::PutHandles { client, first: range.start, end: range.end });
        handles.chain(self.holders.iter().map(|(dir, client)| Change::PutDelegation { dir: *dir, client: *client }))
    }
}
