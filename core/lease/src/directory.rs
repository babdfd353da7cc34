//! The leases on one directory, and the changes that wait for their holders.

use std::collections::{BTreeMap, BTreeSet};

use weft_base::{ClientId, FastMap, Handle, MILLISECOND, Nanos, SECOND};

use bytes::Bytes;

/// Changes by others within a second after which a lease costs more than it saves.
const CHANGES_MAX: u32 = 32;
/// After so long without such changes they count from the start again, in nanoseconds.
const WINDOW_NS: u64 = SECOND;
/// The first time for which no leases are granted after too many changes, in nanoseconds; it
/// doubles as long as they go on.
const REST_NS: u64 = SECOND;
const REST_NS_MAX: u64 = 60 * SECOND;
/// A change that was announced and not made within this time will not be made, in nanoseconds: its
/// client asks again in less.
const ANNOUNCED_NS: u64 = 2000 * MILLISECOND;

/// What a change waits for: see [`crate::Touched`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Name(Bytes),
    Object(Handle),
    Names,
}

/// A change that holders must hear of before it is made.
#[derive(Debug)]
pub(crate) struct Announced {
    /// Who has been told.
    pub(crate) told: BTreeSet<ClientId>,
    /// Who has not heard yet, and of which number.
    pub(crate) waits_for: BTreeMap<ClientId, u64>,
    /// When somebody last wanted to make it.
    pub(crate) wanted: Nanos,
}

/// How often others change something of which holders must be told.
#[derive(Debug, Default)]
pub(crate) struct Heat {
    /// Nothing is told under leases before this.
    rests_until: Nanos,
    rest_ns: u64,
    /// Changes since the window began.
    changes: u32,
    window: Nanos,
}

impl Heat {
    /// True if leases would cost more than they save.
    pub(crate) fn rests(&self, now: Nanos) -> bool {
        now < self.rests_until
    }

    /// True if it does not matter any more that it has rested.
    pub(crate) fn has_rested(&self, now: Nanos) -> bool {
        now.since(self.rests_until) >= 2 * self.rest_ns
    }

    /// True if nothing of it matters any more.
    pub(crate) fn is_cold(&self, now: Nanos) -> bool {
        self.has_rested(now) && now.since(self.window) >= WINDOW_NS
    }

    /// Counts a change that holders must be told of. True if their leases are to end.
    pub(crate) fn is_too_busy(&mut self, now: Nanos) -> bool {
        if now.since(self.window) >= WINDOW_NS {
            (self.window, self.changes) = (now, 0);
        }
        self.changes += 1;
        // Whoever made the changes until then has not been told, and holds its lease.
        if self.changes <= CHANGES_MAX || self.rests(now) {
            return self.rests(now);
        }
        let goes_on = now.since(self.rests_until) < 2 * self.rest_ns;
        self.rest_ns = if goes_on && self.rest_ns > 0 { (2 * self.rest_ns).min(REST_NS_MAX) } else { REST_NS };
        self.rests_until = now + self.rest_ns;
        true
    }
}

#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) holders: BTreeSet<ClientId>,
    pub(crate) announced: FastMap<Key, Announced>,
    pub(crate) heat: Heat,
}

impl Directory {
    /// True if a lease may be granted now: nothing waits to be changed, and it does not change all
    /// the time.
    pub(crate) fn grants(&self, now: Nanos) -> bool {
        self.announced.is_empty() && !self.heat.rests(now)
    }

    /// True if a change by this client needs nobody's attention.
    pub(crate) fn concerns_only(&self, by: ClientId) -> bool {
        self.announced.is_empty() && self.holders.iter().all(|holder| *holder == by)
    }

    /// The client holds no lease any more. True if changes need not wait any longer.
    pub(crate) fn drop_holder(&mut self, client: ClientId) -> bool {
        self.holders.remove(&client);
        self.heard(client, u64::MAX)
    }

    /// The client has heard all notices up to this number. True if changes need not wait any
    /// longer.
    pub(crate) fn heard(&mut self, client: ClientId, through: u64) -> bool {
        let mut released = false;
        for announced in self.announced.values_mut() {
            if announced.waits_for.get(&client).is_some_and(|number| *number <= through) {
                announced.waits_for.remove(&client);
                released |= announced.waits_for.is_empty();
            }
        }
        released
    }

    /// Forgets changes that nobody makes any more.
    pub(crate) fn expire(&mut self, now: Nanos) {
        self.announced.retain(|_, announced| now.since(announced.wanted) < ANNOUNCED_NS || !announced.waits_for.is_empty());
    }

    /// True if nothing needs to be remembered.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        self.holders.is_empty() && self.announced.is_empty() && self.heat.has_rested(now)
    }
}
