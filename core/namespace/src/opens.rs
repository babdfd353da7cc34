//! Who has which file open. Volatile: after a restart clients tell it again. Opens are states, not
//! counts, so that repeating and reordering messages does no harm.

use std::cell::RefCell;
use std::collections::BTreeSet;

use weft_base::{ClientId, FastMap, Handle};
use weft_wire::Rights;

use crate::OpenChange;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpenBy {
    client: ClientId,
    rights: Rights,
    sequence: u64,
    /// The last open that gave it [`Rights::DELAY`], if it has that.
    delays_from: u64,
}

/// The time after a restart in which clients say again what they have open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Grace {
    /// It is over, or there was no restart: what is known of open files is all there is.
    #[default]
    Over,
    /// Nobody is known to have anything open; files that were being written are marked.
    Kept,
    /// The crash may have taken marks, too: until clients tell, anybody may be writing to any file.
    Lost,
}

/// The open files of one server.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    by_handle: FastMap<Handle, Vec<OpenBy>>,
    by_client: FastMap<ClientId, BTreeSet<Handle>>,
    pub(crate) grace: Grace,
    /// See [`State::take_asked_back`](crate::State::take_asked_back).
    pub(crate) asked_back: RefCell<BTreeSet<Handle>>,
}

impl Opens {
    pub(crate) fn apply(&mut self, change: OpenChange) {
        match change {
            OpenChange::Open { client, handle, rights, sequence } => {
                let opens = self.by_handle.entry(handle).or_default();
                let delays = rights.contains(Rights::DELAY);
                match opens.iter_mut().find(|open| open.client == client) {
                    Some(open) => {
                        // Its client may have said meanwhile that it had no such right: an older
                        // open gave it one, and the answer did not count any more.
                        if delays && (!open.rights.contains(Rights::DELAY) || sequence > open.sequence) {
                            open.delays_from = sequence;
                        }
                        open.rights = open.rights.with(rights);
                        open.sequence = open.sequence.max(sequence);
                    }
                    None => {
                        opens.push(OpenBy { client, rights, sequence, delays_from: sequence });
                        self.by_client.entry(client).or_default().insert(handle);
                    }
                }
            }
            OpenChange::Keep { client, handle, rights, sequence } => {
                let Some(opens) = self.by_handle.get_mut(&handle) else { return };
                let Some(at) = opens.iter().position(|open| open.client == client && open.sequence <= sequence) else { return };
                opens[at].rights = Rights(opens[at].rights.0 & rights.0);
                if opens[at].rights == Rights::default() {
                    opens.swap_remove(at);
                    self.forget(client, handle);
                }
            }
        }
    }

    /// Drops everything that a lost client had open; returns it.
    pub(crate) fn drop_client(&mut self, client: ClientId) -> Vec<(Handle, Rights)> {
        let handles = self.by_client.remove(&client).unwrap_or_default();
        let mut dropped = Vec::with_capacity(handles.len());
        for handle in handles {
            let opens = self.by_handle.get_mut(&handle).expect("what a client has open is open");
            let at = opens.iter().position(|open| open.client == client).expect("and by this client");
            dropped.push((handle, opens.swap_remove(at).rights));
            if opens.is_empty() {
                self.by_handle.remove(&handle);
            }
        }
        dropped
    }

    pub(crate) fn is_open(&self, handle: Handle) -> bool {
        self.by_handle.contains_key(&handle)
    }

    /// What the client has, with the sequence of its newest open.
    pub(crate) fn of(&self, client: ClientId, handle: Handle) -> Option<(Rights, u64)> {
        let open = self.by_handle.get(&handle)?.iter().find(|open| open.client == client)?;
        Some((open.rights, open.sequence))
    }

    /// True if the client has something open for more than reading.
    pub(crate) fn has_more_than_reads(&self, client: ClientId) -> bool {
        let handles = self.by_client.get(&client).into_iter().flatten();
        handles.filter_map(|handle| self.of(client, *handle)).any(|(rights, _)| rights.is_more_than_read())
    }

    /// True if this client has [`Rights::DELAY`] by this open or an earlier one.
    pub(crate) fn delayed_by(&self, client: ClientId, handle: Handle, sequence: u64) -> bool {
        let delays = |open: &OpenBy| open.client == client && open.rights.contains(Rights::DELAY) && open.delays_from <= sequence;
        self.by_handle.get(&handle).is_some_and(|opens| opens.iter().any(delays))
    }

    /// True if anybody, or anybody but `except`, has the file open for writing.
    pub(crate) fn has_writer(&self, handle: Handle, except: Option<ClientId>) -> bool {
        let writes = |open: &OpenBy| open.rights.contains(Rights::WRITE) && Some(open.client) != except;
        self.by_handle.get(&handle).is_some_and(|opens| opens.iter().any(writes))
    }

    /// True if any other client has these rights.
    pub(crate) fn others_have(&self, handle: Handle, client: ClientId, rights: Rights) -> bool {
        self.others_with(handle, client, rights).next().is_some()
    }

    /// The other clients that have these rights.
    pub(crate) fn others_with(&self, handle: Handle, client: ClientId, rights: Rights) -> impl Iterator<Item = ClientId> {
        self.holders(handle, rights).filter(move |holder| *holder != client)
    }

    /// The clients that have these rights.
    pub(crate) fn holders(&self, handle: Handle, rights: Rights) -> impl Iterator<Item = ClientId> {
        let opens = self.by_handle.get(&handle).map_or(&[][..], Vec::as_slice);
        opens.iter().filter(move |open| open.rights.contains(rights)).map(|open| open.client)
    }

    fn forget(&mut self, client: ClientId, handle: Handle) {
        if self.by_handle.get(&handle).is_some_and(Vec::is_empty) {
            self.by_handle.remove(&handle);
        }
        if let Some(handles) = self.by_client.get_mut(&client) {
            handles.remove(&handle);
            if handles.is_empty() {
                self.by_client.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Handle = Handle(4);
    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);
    const BOTH: Rights = Rights(3);

    #[test]
    fn a_late_close_does_not_take_a_newer_open() {
        let mut opens = Opens::default();
        opens.apply(OpenChange::Open { client: A, handle: FILE, rights: Rights::WRITE, sequence: 5 });
        opens.apply(OpenChange::Keep { client: A, handle: FILE, rights: Rights(0), sequence: 4 });
        assert_eq!(opens.of(A, FILE), Some((Rights::WRITE, 5)));
        opens.apply(OpenChange::Open { client: A, handle: FILE, rights: Rights::READ, sequence: 6 });
        assert_eq!(opens.of(A, FILE), Some((BOTH, 6)));
        opens.apply(OpenChange::Keep { client: A, handle: FILE, rights: Rights::READ, sequence: 6 });
        assert!(!opens.has_writer(FILE, None) && opens.is_open(FILE));
        opens.apply(OpenChange::Keep { client: A, handle: FILE, rights: Rights(0), sequence: 6 });
        assert!(!opens.is_open(FILE));
        assert!(opens.by_handle.is_empty());
        assert!(opens.by_client.is_empty());
    }

    #[test]
    fn lost_clients_leave_nothing() {
        let mut opens = Opens::default();
        for client in [A, B] {
            opens.apply(OpenChange::Open { client, handle: FILE, rights: Rights::WRITE, sequence: 1 });
        }
        assert!(opens.has_writer(FILE, Some(A)));
        assert_eq!(opens.drop_client(A), [(FILE, Rights::WRITE)]);
        assert!(opens.has_writer(FILE, None) && !opens.has_writer(FILE, Some(B)));
        assert_eq!(opens.drop_client(A), []);
    }
}
