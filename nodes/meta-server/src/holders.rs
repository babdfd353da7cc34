//! Who may believe what this server has told, and who waits to hear otherwise (`leases.rs` says
//! what is done with it).

use std::cell::RefCell;

use weft_base::{ClientId, FastMap, Handle, Nanos, SECOND};
use weft_lease::Leases;
use weft_rt::Signal;

/// How long a client may believe what it was told after it has asked for notices, in nanoseconds.
pub(crate) const TERM_NS: u64 = 5 * SECOND;
/// Leases, and the requests that wait for notices.
pub(crate) struct Holders {
    pub(crate) leases: RefCell<Leases>,
    /// One for each client.
    pub(crate) waiting: RefCell<FastMap<ClientId, Signal>>,
    /// Directories of which others were told something, who has made the last files there that may
    /// have it alone, and how many.
    pub(crate) makers: RefCell<FastMap<Handle, (ClientId, u32)>>,
}

/// Who has made so many files in a directory while nobody else asked for it may have it alone,
/// whatever others were told before.
const MADE_ALONE: u32 = 32;
/// Such directories, at most.
const MAKERS_MAX: usize = 1024;

impl Holders {
    /// Those of a server that has just started. `before`: who may believe what it told in an
    /// earlier life.
    pub(crate) fn new(first_session: u32, before: impl IntoIterator<Item = ClientId>, now: Nanos) -> Holders {
        let mut leases = Leases::new(TERM_NS, first_session);
        leases.after_restart(before, now);
        Holders { leases: RefCell::new(leases), waiting: RefCell::default(), makers: RefCell::default() }
    }

    /// A client makes a file in a directory of which others may believe something. True if it has
    /// made many since others asked.
    pub(crate) fn makes_alone(&self, client: ClientId, dir: Handle) -> bool {
        let mut makers = self.makers.borrow_mut();
        if makers.len() >= MAKERS_MAX {
            makers.clear();
        }
        let (_, made) = makers.entry(dir).or_insert((client, 0));
        *made += 1;
        let is_alone = *made > MADE_ALONE;
        if is_alone {
            makers.remove(&dir);
        }
        is_alone
    }

    /// A client asks for something in a directory.
    #[inline]
    pub(crate) fn asks_in(&self, client: ClientId, dir: Handle) {
        let mut makers = self.makers.borrow_mut();
        if !makers.is_empty() && makers.get(&dir).is_some_and(|(maker, _)| *maker != client) {
            makers.remove(&dir);
        }
    }

    /// There is something to hear for this client.
    pub(crate) fn notify(&self, client: ClientId) {
        if let Some(signal) = self.waiting.borrow().get(&client) {
            signal.notify();
        }
    }
}
