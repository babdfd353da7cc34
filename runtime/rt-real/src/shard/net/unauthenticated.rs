//! Connections whose peer has not proved yet who it is, and which of them makes room for a new one.
//!
//! Anybody in the network may open connections and say nothing. So a new connection never waits for
//! a place and never takes one from an authenticated peer: of the source with the most connections
//! here the oldest goes, one that has said nothing before one that has. A source is an address (for
//! IPv6 its network of 64 bits), or on this machine a user, so a source that fills the places loses
//! its own first.

use std::collections::VecDeque;
use std::net::IpAddr;

/// Unauthenticated connections at the same time.
pub(super) const UNAUTHENTICATED_MAX: usize = 1024;
/// Of these from one source. A handshake takes a round trip or two, so many clients of one machine
/// get through it at once.
pub(super) const UNAUTHENTICATED_PER_SOURCE_MAX: usize = 256;

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// An address of the network.
    Address(IpAddr),
    /// A user of this machine.
    User(u32),
    /// The system does not say.
    Unknown,
}

impl Source {
    /// The source that a peer at this address counts to.
    pub(super) fn of(address: IpAddr) -> Source {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() & !u128::from(u64::MAX);
                Source::Address(IpAddr::V6(network.into()))
            }
            address => Source::Address(address),
        }
    }
}

#[derive(Debug)]
struct Waiting {
    token: u64,
    source: Source,
    /// It has sent something.
    spoke: bool,
}

/// All unauthenticated connections, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Unauthenticated {
    waiting: VecDeque<Waiting>,
}

impl Unauthenticated {
    pub(super) fn add(&mut self, token: u64, source: Source) {
        self.waiting.push_back(Waiting { token, source, spoke: false });
    }

    /// It is none any more.
    pub(super) fn remove(&mut self, token: u64) {
        self.waiting.retain(|one| one.token != token);
    }

    /// It has sent something.
    pub(super) fn heard(&mut self, token: u64) {
        if let Some(one) = self.waiting.iter_mut().rev().find(|one| one.token == token) {
            one.spoke = true;
        }
    }

    /// Who must go before another one of this source comes in.
    pub(super) fn in_the_way(&self, source: Source) -> Option<u64> {
        if self.count(source) >= UNAUTHENTICATED_PER_SOURCE_MAX {
            return self.oldest_of(source);
        }
        if self.waiting.len() >= UNAUTHENTICATED_MAX { self.least_wanted() } else { None }
    }

    /// Who goes first if somebody must.
    pub(super) fn least_wanted(&self) -> Option<u64> {
        let crowd = self.waiting.iter().map(|one| one.source).max_by_key(|source| self.count(*source))?;
        self.oldest_of(crowd)
    }

    fn count(&self, source: Source) -> usize {
        self.waiting.iter().filter(|one| one.source == source).count()
    }

    fn oldest_of(&self, source: Source) -> Option<u64> {
        let theirs = || self.waiting.iter().filter(|one| one.source == source);
        theirs().find(|one| !one.spoke).or_else(|| theirs().next()).map(|one| one.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Source {
        Source::of(text.parse().expect("an address"))
    }

    #[test]
    fn a_source_that_fills_its_places_loses_its_own_silent_ones_first() {
        let mut list = Unauthenticated::default();
        let (many, one) = (at("192.0.2.1"), at("192.0.2.2"));
        list.add(9999, one);
        for token in 0..UNAUTHENTICATED_PER_SOURCE_MAX as u64 {
            assert_eq!(list.in_the_way(many), None);
            list.add(token, many);
        }
        list.heard(0);
        assert_eq!(list.in_the_way(many), Some(1), "the oldest that has said nothing");
        assert_eq!(list.in_the_way(one), None, "others are not touched by it");
        for token in 0..UNAUTHENTICATED_PER_SOURCE_MAX as u64 {
            list.heard(token);
        }
        assert_eq!(list.in_the_way(many), Some(0), "if all have spoken, the oldest");
        list.remove(0);
        assert_eq!(list.in_the_way(many), None);
    }

    #[test]
    fn when_all_places_are_taken_the_largest_crowd_makes_room() {
        let mut list = Unauthenticated::default();
        let crowd = at("2001:db8::1");
        list.add(7777, at("192.0.2.7"));
        for token in 0..UNAUTHENTICATED_PER_SOURCE_MAX as u64 {
            list.add(token, crowd);
        }
        for other in 0..(UNAUTHENTICATED_MAX - UNAUTHENTICATED_PER_SOURCE_MAX - 1) as u64 {
            list.add(10_000 + other, Source::User(other as u32));
        }
        assert_eq!(list.in_the_way(at("192.0.2.8")), Some(0), "the oldest of the crowd, not the oldest of all");
        assert_eq!(at("2001:db8::ffff:1"), crowd, "one network of 64 bits");
        assert_eq!(at("::ffff:192.0.2.7"), at("192.0.2.7"));
    }
}
