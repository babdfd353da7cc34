//! What of a file is still here, byte by byte (`delayed.rs`).

use bytes::{Bytes, BytesMut};
use weft_base::Nanos;

/// More ranges do not stay here: each is a piece of a message, and a look-up of each write.
const RANGES_MAX: usize = 256;

/// What data servers do not have of a file, or not yet. Mostly its end; several ranges if it is not
/// written in order.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// By where they begin in the file: disjoint, none of them empty.
    ranges: Vec<(u64, BytesMut)>,
    /// On their way to data servers, in the same form. No range above meets one of these.
    sent: Vec<(u64, Bytes)>,
    /// Data servers may have some of it.
    pub(super) is_begun: bool,
    /// What they have ends there, as far as is known.
    pub(super) end_at_servers: u64,
    /// Something was written since this client may delay.
    pub(super) is_written: bool,
    /// When the first of the bytes can have been written.
    pub(super) since: Nanos,
}

impl Tail {
    /// Nothing, since then.
    pub(super) fn since(since: Nanos) -> Tail {
        Tail { since, ..Tail::default() }
    }

    /// The same of a file of which data servers may have some, of so many bytes.
    pub(super) fn behind(since: Nanos, size: u64) -> Tail {
        Tail { since, is_begun: true, end_at_servers: size, ..Tail::default() }
    }

    /// Takes bytes that begin at this place of the file, over those that are there. If the file is
    /// written in order there is room for so many more.
    ///
    /// # Panics
    /// If some at this place are on their way.
    pub(super) fn put(&mut self, mut at: u64, mut bytes: &[u8], more: usize) {
        assert!(!self.is_on_its_way(at, bytes.len() as u64), "what is on its way does not change");
        self.is_written = true;
        while !bytes.is_empty() {
            let behind = self.ranges.partition_point(|(start, _)| *start <= at);
            let room = self.ranges.get(behind).map_or(u64::MAX, |(start, _)| start - at);
            let (some, rest) = bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            match self.ranges[..behind].last_mut().filter(|(start, there)| at - start <= there.len() as u64) {
                Some((start, there)) => {
                    let from = (at - *start) as usize;
                    let (over, on) = some.split_at(some.len().min(there.len() - from));
                    there[from..from + over.len()].copy_from_slice(over);
                    there.extend_from_slice(on);
                }
                None => {
                    let is_stream = self.ranges.is_empty() && at > 0 && at == self.end();
                    let mut new = BytesMut::with_capacity(if is_stream { more.max(some.len()) } else { some.len() });
                    new.extend_from_slice(some);
                    self.ranges.insert(behind, (at, new));
                }
            }
            at += some.len() as u64;
            bytes = rest;
        }
    }

    /// True if some of these bytes are on their way.
    pub(super) fn is_on_its_way(&self, at: u64, bytes: u64) -> bool {
        self.sent.iter().any(|(start, sent)| *start < at.saturating_add(bytes) && at < start + sent.len() as u64)
    }

    /// All bytes of the file, if they are here and nowhere else.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        if self.is_begun {
            return None;
        }
        match &self.ranges[..] {
            [] => Some(&[]),
            [(0, bytes)] => Some(bytes),
            _ => None,
        }
    }

    /// True if data servers have all there is.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.sent.is_empty()
    }

    /// How many bytes are here that are not on their way.
    pub(super) fn bytes(&self) -> usize {
        self.ranges.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// How many are.
    pub(super) fn bytes_sent(&self) -> usize {
        self.sent.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// True if there are as many ranges as there may be.
    pub(super) fn is_scattered(&self) -> bool {
        self.ranges.len() >= RANGES_MAX
    }

    /// All bytes are on their way from now on.
    pub(super) fn send(&mut self, now: Nanos) -> Vec<(u64, Bytes)> {
        self.sent = self.ranges.drain(..).map(|(start, bytes)| (start, bytes.freeze())).collect();
        self.is_begun |= !self.sent.is_empty();
        self.since = now;
        self.sent.clone()
    }

    /// They have arrived.
    pub(super) fn arrived(&mut self) {
        self.end_at_servers = self.end_at_servers.max(end_of(&self.sent));
        self.sent.clear();
    }

    /// They are not on their way, or not any more.
    pub(super) fn take_back(&mut self) {
        if !self.sent.is_empty() {
            self.ranges.extend(self.sent.drain(..).map(|(start, bytes)| (start, bytes.into())));
            self.ranges.sort_unstable_by_key(|(start, _)| *start);
        }
    }

    /// What is left when data servers have all of it.
    pub(super) fn at_servers(&self) -> Tail {
        Tail { end_at_servers: self.end(), ..Tail::default() }
    }

    /// Where all that was written so ends.
    fn end(&self) -> u64 {
        end_of(&self.ranges).max(end_of(&self.sent)).max(self.end_at_servers)
    }
}

/// Where the last of the ranges ends; 0 for none.
fn end_of<B: AsRef<[u8]>>(ranges: &[(u64, B)]) -> u64 {
    ranges.last().map_or(0, |(start, bytes)| start + bytes.as_ref().len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_put_sent_and_taken_back_in_their_places() {
        let mut tail = Tail::default();
        tail.put(0, b"abcd", 0);
        tail.put(2, b"CDEF", 0);
        assert_eq!((tail.whole(), tail.end()), (Some(&b"abCDEF"[..]), 6));
        assert_eq!(tail.send(Nanos(1)), [(0, Bytes::from("abCDEF"))]);
        assert!(tail.whole().is_none() && tail.is_on_its_way(5, 1) && !tail.is_on_its_way(6, 9));
        tail.put(6, b"ghi", 100);
        assert_eq!((tail.bytes(), tail.bytes_sent(), tail.since), (3, 6, Nanos(1)));
        tail.take_back();
        tail.take_back();
        assert_eq!((tail.bytes(), tail.bytes_sent(), tail.whole()), (9, 0, None));
        assert_eq!(tail.send(Nanos(2)), [(0, Bytes::from("abCDEF")), (6, Bytes::from("ghi"))]);
        tail.arrived();
        assert_eq!((tail.end_at_servers, tail.is_empty()), (9, true));
        // Also over what data servers have.
        tail.put(4, b"xy", 100);
        tail.put(9, b"j", 100);
        tail.put(9, b"JK", 100);
        assert_eq!(tail.send(Nanos(3)), [(4, Bytes::from("xy")), (9, Bytes::from("JK"))]);
    }

    #[test]
    fn many_ranges_are_what_was_written() {
        let mut random = 1u64;
        for _ in 0..200 {
            let (mut tail, mut model) = (Tail::default(), vec![None; 300]);
            for number in 1..=20u8 {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let (at, bytes) = ((random >> 33) as usize % 200, (random >> 50) as usize % 100);
                tail.put(at as u64, &vec![number; bytes], 10);
                model[at..at + bytes].fill(Some(number));
            }
            let mut found = vec![None; 300];
            for (start, bytes) in tail.send(Nanos(1)) {
                for (at, byte) in bytes.iter().enumerate() {
                    assert_eq!(found[start as usize + at].replace(*byte), None, "ranges meet");
                }
            }
            assert_eq!(found, model);
        }
    }
}
