//! Lists of parts that are joined in O(1): linked through one arena that reuses its places.

use crate::JobPiece;

/// No place.
const NIL: u32 = u32::MAX;

/// All lists of one layer.
#[derive(Clone, Debug)]
pub struct Chains {
    places: Vec<Place>,
    free: u32,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    part: JobPiece,
    next: u32,
}

/// One list of an arena; it must end in [`Chains::drain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    head: u32,
    tail: u32,
}

impl Chain {
    /// The empty list.
    pub const EMPTY: Chain = Chain { head: NIL, tail: NIL };
}

impl Default for Chains {
    fn default() -> Self {
        Chains { places: Vec::new(), free: NIL }
    }
}

impl Chains {
    /// A list of one part.
    pub fn one(&mut self, part: JobPiece) -> Chain {
        let place = Place { part, next: NIL };
        let at = match self.free {
            NIL => {
                self.places.push(place);
                u32::try_from(self.places.len() - 1).expect("fewer than 2^32 pieces fit into memory")
            }
            at => {
                self.free = self.places[at as usize].next;
                self.places[at as usize] = place;
                at
            }
        };
        Chain { head: at, tail: at }
    }

    /// `first`, then `second`.
    pub fn join(&mut self, first: Chain, second: Chain) -> Chain {
        if first.head == NIL {
            return second;
        }
        if second.head == NIL {
            return first;
        }
        self.places[first.tail as usize].next = second.head;
        Chain { head: first.head, tail: second.tail }
    }

    /// Appends the parts of the list to `into`; its places are free again.
    pub fn drain(&mut self, chain: Chain, into: &mut Vec<JobPiece>) {
        let mut at = chain.head;
        while at != NIL {
            let place = &mut self.places[at as usize];
            into.push(place.part);
            let next = place.next;
            place.next = self.free;
            self.free = at;
            at = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_lists_keep_their_order_and_give_their_places_back() {
        let mut chains = Chains::default();
        let part = |tag| JobPiece { tag, offset: 0, bytes: 1 };
        let mut tags = Vec::new();
        for round in 0..3 {
            let (a, b, c) = (chains.one(part(1)), chains.one(part(2)), chains.one(part(3)));
            let bc = chains.join(b, c);
            let all = chains.join(bc, a);
            let all = chains.join(Chain::EMPTY, all);
            let all = chains.join(all, Chain::EMPTY);
            let mut parts = Vec::new();
            chains.drain(all, &mut parts);
            tags.extend(parts.iter().map(|part| part.tag));
            assert_eq!((tags.len(), chains.places.len()), (3 * (round + 1), 3));
        }
        assert_eq!(tags, [2, 3, 1, 2, 3, 1, 2, 3, 1]);
    }
}
