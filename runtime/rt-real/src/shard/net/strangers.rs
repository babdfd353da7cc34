//! Connections whose peer has not proved yet who it is, and which of them makes room for a new one.
//!
//! Anybody in the network may open connections and say nothing. So a stranger never waits for a
//! place and never takes one from a peer that is known: the oldest of the source with the most
//! strangers goes, one that has said nothing before one that has. A source is an address (for IPv6
//! its network of 64 bits), or on this machine a user, so that whoever fills the places loses his
//! own first.

use std::collections::VecDeque;
use std::net::IpAddr;

/// Strangers at the same time.
pub(super) const STRANGERS_MAX: usize = 1024;
/// Of these from one source. A handshake takes a round trip or two, so many clients of one machine
/// get through it at once.
pub(super) const STRANGERS_PER_SOURCE_MAX: usize = 256;

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
struct Stranger {
    token: u64,
    source: Source,
    /// It has sent something.
    spoke: bool,
}

/// All strangers, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    waiting: VecDeque<Stranger>,
}

impl Strangers {
    pub(super) fn add(&mut self, token: u64, source: Source) {
        self.waiting.push_back(Stranger { token, source, spoke: false });
    }

    /// It is none any more.
    pub(super) fn remove(&mut self, token: u64) {
        self.waiting.retain(|stranger| stranger.token != token);
    }

    /// It has sent something.
    pub(super) fn heard(&mut self, token: u64) {
        if let Some(stranger) = self.waiting.iter_mut().rev().find(|stranger| stranger.token == token) {
            stranger.spoke = true;
        }
    }

    /// Who must go before another one of this source comes in.
    pub(super) fn in_the_way(&self, source: Source) -> Option<u64> {
        if self.count(source) >= STRANGERS_PER_SOURCE_MAX {
            return self.oldest_of(source);
        }
        if self.waiting.len() >= STRANGERS_MAX { self.least_wanted() } else { None }
    }

    /// Who goes first if somebody must.
    pub(super) fn least_wanted(&self) -> Option<u64> {
        let crowd = self.waiting.iter().map(|stranger| stranger.source).max_by_key(|source| self.count(*source))?;
        self.oldest_of(crowd)
    }

    fn count(&self, source: Source) -> usize {
        self.waiting.iter().filter(|stranger| stranger.source == source).count()
    }

    fn oldest_of(&self, source: Source) -> Option<u64> {
        let theirs = || self.waiting.iter().filter(|stranger| stranger.source == source);
        theirs().find(|stranger| !stranger.spoke).or_else(|| theirs().next()).map(|stranger| stranger.token)
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
        let mut strangers = Strangers::default();
        let (many, one) = (at("192.0.2.1"), at("192.0.2.2"));
        strangers.add(9999, one);
        for token in 0..STRANGERS_PER_SOURCE_MAX as u64 {
            assert_eq!(strangers.in_the_way(many), None);
            strangers.add(token, many);
        }
        strangers.heard(0);
        assert_eq!(strangers.in_the_way(many), Some(1), "the oldest that has said nothing");
        assert_eq!(strangers.in_the_way(one), None, "others are not touched by it");
        for token in 0..STRANGERS_PER_SOURCE_MAX as u64 {
            strangers.heard(token);
        }
        assert_eq!(strangers.in_the_way(many), Some(0), "if all have spoken, the oldest");
        strangers.remove(0);
        assert_eq!(strangers.in_the_way(many), None);
    }

    #[test]
    fn when_all_places_are_taken_the_largest_crowd_makes_room() {
        let mut strangers = Strangers::default();
        let crowd = at("2001:db8::1");
        strangers.add(7777, at("192.0.2.7"));
        for token in 0..STRANGERS_PER_SOURCE_MAX as u64 {
            strangers.add(token, crowd);
        }
        for other in 0..(STRANGERS_MAX - STRANGERS_PER_SOURCE_MAX - 1) as u64 {
            strangers.add(10_000 + other, Source::User(other as u32));
        }
        assert_eq!(strangers.in_the_way(at("192.0.2.8")), Some(0), "the oldest of the crowd, not the oldest of all");
        assert_eq!(at("2001:db8::ffff:1"), crowd, "one network of 64 bits");
        assert_eq!(at("::ffff:192.0.2.7"), at("192.0.2.7"));
    }
}
