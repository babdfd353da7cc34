//! Who may believe what this server has told, and who waits to hear otherwise (`leases.rs` says
//! what is done with it).

use std::cell::RefCell;

use weft_base::{ClientId, FastMap, Nanos, SECOND};
use weft_lease::Leases;
use weft_rt::Signal;

/// How long a client may believe what it was told after it has asked for notices, in nanoseconds.
pub(crate) const TERM_NS: u64 = 5 * SECOND;
/// Leases, and the requests that wait for notices.
pub(crate) struct Holders {
    pub(crate) leases: RefCell<Leases>,
    /// One for each client.
    pub(crate) waiting: RefCell<FastMap<ClientId, Signal>>,
}

impl Holders {
    /// Those of a server that has just started. `before`: who may believe what it told in an
    /// earlier life.
    pub(crate) fn new(first_session: u32, before: impl IntoIterator<Item = ClientId>, now: Nanos) -> Holders {
        let mut leases = Leases::new(TERM_NS, first_session);
        leases.after_restart(before, now);
        Holders { leases: RefCell::new(leases), waiting: RefCell::default() }
    }

    /// There is something to hear for this client.
    pub(crate) fn notify(&self, client: ClientId) {
        if let Some(signal) = self.waiting.borrow().get(&client) {
            signal.notify();
        }
    }
}
