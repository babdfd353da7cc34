//! Who waits for the locks on one file, in the order in which they came.

use weft_base::{ClientId, Nanos};
use weft_wire::ops::HeldLock;

use crate::Ranges;
use crate::ranges::excludes;

/// Somebody who waits only for others who wait goes before them after so many nanoseconds: a
/// program that shares what it has with the holders shall not hang behind one that does not, across
/// servers of which none sees the whole circle.
const BEHIND_NS: u64 = 1_000_000_000;

/// A wait for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) wanted: HeldLock,
    /// The number that its client gave it.
    pub(crate) number: u64,
    pub(crate) since: Nanos,
    /// When its client asked last.
    pub(crate) seen: Nanos,
    /// A request for it is at the server.
    pub(crate) is_asked: bool,
}

impl Wait {
    pub(crate) fn is(&self, client: ClientId, number: u64) -> bool {
        self.wanted.client == client && self.number == number
    }
}

/// May this wait end? `before`: those before it in the queue that count.
pub(crate) fn may_have<'a>(wait: &Wait, held: &Ranges, mut before: impl Iterator<Item = &'a Wait>, now: Nanos) -> bool {
    if held.conflict(&wait.wanted).is_some() {
        return false;
    }
    // Whoever has something here already may be what those before it wait for.
    held.has_any_of(&wait.wanted) || now.since(wait.since) >= BEHIND_NS || !before.any(|other| excludes(&other.wanted, &wait.wanted))
}
