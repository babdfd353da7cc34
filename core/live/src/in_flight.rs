//! Requests that are not answered yet.

use weft_base::{ClientId, Handle, Nanos};
use weft_wire::Op;
use weft_wire::ops::WaitingRequest;

use crate::is_of_dashboards;

/// The requests of a server that are under way. A place is taken and given back without a search;
/// only who asks for the oldest looks at all of them.
#[derive(Debug, Default)]
pub struct InFlight {
    places: Vec<Option<Entry>>,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    op: Option<Op>,
    client: ClientId,
    object: Handle,
    since: Nanos,
}

/// The place of a request; to be given back with [`InFlight::end`].
#[derive(Debug)]
#[must_use = "a request that does not end stays in the list for ever"]
pub struct Ticket(u32);

impl InFlight {
    /// A request is under way since then.
    pub fn begin(&mut self, op: Option<Op>, client: ClientId, object: Handle, since: Nanos) -> Ticket {
        let entry = Some(Entry { op, client, object, since });
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = entry;
                Ticket(place)
            }
            None => {
                self.places.push(entry);
                Ticket(self.places.len() as u32 - 1)
            }
        }
    }

    /// It is answered. Gives its operation, and since when it was under way.
    pub fn end(&mut self, ticket: Ticket) -> (Option<Op>, Nanos) {
        let entry = self.places[ticket.0 as usize].take().expect("a ticket is given back once");
        self.free.push(ticket.0);
        (entry.op, entry.since)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// True if nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The oldest, oldest first, at most so many. Questions of dashboards are left out: the one
    /// that asks is always under way.
    pub fn oldest(&self, now: Nanos, limit: usize) -> Vec<WaitingRequest> {
        let is_work = |entry: &&Entry| !is_of_dashboards(entry.op);
        let mut entries: Vec<Entry> = self.places.iter().flatten().filter(is_work).copied().collect();
        entries.sort_by_key(|entry| (entry.since, entry.client, entry.op));
        let waiting = |entry: Entry| WaitingRequest {
            op: entry.op.map_or(0, Op::code),
            client: entry.client,
            object: entry.object,
            age_ns: now.since(entry.since),
        };
        entries.into_iter().take(limit).map(waiting).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_come_first_and_places_are_used_again() {
        let mut in_flight = InFlight::default();
        let tickets: Vec<Ticket> = (0..100).map(|n| in_flight.begin(Some(Op::Create), ClientId(n), Handle(n), Nanos(1000 - n))).collect();
        let ages: Vec<u64> = in_flight.oldest(Nanos(2000), 3).iter().map(|open| open.age_ns).collect();
        assert_eq!(ages, [1099, 1098, 1097]);
        let asking = in_flight.begin(Some(Op::Live), ClientId(1), Handle(0), Nanos(0));
        assert_eq!(in_flight.oldest(Nanos(2000), 1)[0].age_ns, 1099, "who asks is not told of himself");
        in_flight.end(asking);
        for (n, ticket) in tickets.into_iter().enumerate() {
            assert_eq!(in_flight.end(ticket), (Some(Op::Create), Nanos(1000 - n as u64)));
        }
        assert!(in_flight.is_empty() && in_flight.oldest(Nanos(2000), 3).is_empty());
        let _kept: Vec<Ticket> = (0..100).map(|n| in_flight.begin(Some(Op::Create), ClientId(n), Handle(n), Nanos(n))).collect();
        assert_eq!((in_flight.len(), in_flight.places.len()), (100, 101), "101 were under way at once");
    }

    #[test]
    #[should_panic(expected = "given back once")]
    fn a_ticket_cannot_be_given_back_twice() {
        let mut in_flight = InFlight::default();
        let ticket = in_flight.begin(Some(Op::Create), ClientId(1), Handle(1), Nanos(0));
        let copy = Ticket(ticket.0);
        in_flight.end(ticket);
        in_flight.end(copy);
    }
}
