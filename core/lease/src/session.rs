//! A client that keeps what it is told.

use std::collections::VecDeque;

use weft_base::{FastSet, Handle, Nanos};

use crate::Notice;

/// Notices that a client has not heard yet, at most; beyond that it is told to forget everything.
pub(crate) const NOTICES_MAX: usize = 1024;

/// A notice under way.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    /// Since when it is under way.
    pub(crate) since: Nanos,
    pub(crate) notice: Notice,
    /// The directory whose lease it is about; `None`: all.
    pub(crate) dir: Option<Handle>,
}

/// The session of one client.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its number; a client that names another one believes nothing any more once it has heard of
    /// this one.
    pub(crate) number: u32,
    /// The client has named the number: it knows that the session has begun.
    pub(crate) confirmed: bool,
    /// The number of the newest request that has renewed it.
    pub(crate) request: u64,
    /// Until then it may believe what it was told, unless it asks again before.
    pub(crate) ends: Nanos,
    /// The number of the newest notice.
    pub(crate) newest: u64,
    /// Notices that it has not heard yet, by number.
    pub(crate) unheard: VecDeque<Sent>,
    /// The directories on which it holds leases.
    pub(crate) holds: FastSet<Handle>,
}

impl Session {
    pub(crate) fn new(number: u32, request: u64, ends: Nanos) -> Session {
        Session { number, confirmed: false, request, ends, newest: 0, unheard: VecDeque::new(), holds: FastSet::default() }
    }

    /// True if it is there, and hears notices.
    pub(crate) fn hears(&self, now: Nanos) -> bool {
        self.confirmed && now < self.ends
    }

    /// True if leases may be granted to it: it is there, and not about to forget everything.
    pub(crate) fn may_hold(&self, now: Nanos) -> bool {
        self.hears(now) && self.unheard.front().is_none_or(|sent| sent.dir.is_some())
    }

    /// True if the client has not said for a term that it has heard a notice.
    pub(crate) fn is_deaf(&self, term_ns: u64, now: Nanos) -> bool {
        self.unheard.front().is_some_and(|oldest| now.since(oldest.since) >= term_ns)
    }

    /// Puts a notice under way; returns its number. Too many become one.
    pub(crate) fn send(&mut self, dir: Handle, notice: Notice, now: Nanos) -> u64 {
        self.newest += 1;
        if self.unheard.len() >= NOTICES_MAX {
            let since = self.unheard.front().map_or(now, |oldest| oldest.since);
            self.unheard.clear();
            self.unheard.push_back(Sent { number: self.newest, since, notice: Notice::Everything, dir: None });
        } else if self.unheard.back().is_none_or(|last| last.dir.is_some()) {
            self.unheard.push_back(Sent { number: self.newest, since: now, notice, dir: Some(dir) });
        } else if let Some(last) = self.unheard.back_mut() {
            // It forgets everything already, and has not yet said so.
            last.number = self.newest;
        }
        self.newest
    }

    /// The client has heard all notices up to this number; these are they.
    pub(crate) fn heard(&mut self, through: u64) -> Vec<Sent> {
        let count = self.unheard.partition_point(|sent| sent.number <= through);
        self.unheard.drain(..count).collect()
    }
}
