//! Which requests may be executed: nothing that its client has given up or finished, and nothing
//! twice.
//!
//! A write is sent again when its answer is late, and both copies may arrive, one of them long
//! after the client went on. Executed then, it would undo what was written since. So the server
//! keeps for every client the sequence number below which everything is finished (the client says
//! it in every header) and the numbers above it that were executed.

use std::collections::BTreeMap;

use weft_base::{ClientId, ClientRequests, KnownRequests, Nanos, RequestId, SECOND};
use weft_wire::Header;

/// A client without a connection is forgotten after so many nanoseconds. Copies of its requests
/// cannot arrive any more: they travel in connections, and all of these are closed.
const FORGET_AFTER: u64 = 120 * SECOND;
/// Most clients without a connection that are remembered.
const ABSENT_CLIENTS_MAX: usize = 16384;
/// Most gaps between executed numbers of one client that are remembered.
const DONE_RANGES_MAX: usize = 4096;

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Execute it.
    New,
    /// It was executed: only answer again.
    Executed,
    /// Refuse it.
    Stale,
}

/// All clients that were heard of lately.
#[derive(Debug, Default)]
pub struct Clients {
    by_id: BTreeMap<ClientId, Client>,
    absent: usize,
}

#[derive(Debug, Default)]
struct Client {
    connections: u32,
    absent_since: Nanos,
    requests: ClientRequests<Executed>,
}

/// Executed numbers as ranges: first to last.
#[derive(Debug, Default)]
struct Executed(BTreeMap<u64, u64>);

impl Clients {
    /// A connection of the client was made.
    pub fn connected(&mut self, client: ClientId, incarnation: u32) {
        let known = self.by_id.contains_key(&client);
        let entry = self.by_id.entry(client).or_default();
        if known && entry.connections == 0 {
            self.absent -= 1;
        }
        entry.connections += 1;
        entry.requests.live(incarnation);
    }

    /// A connection of the client is gone.
    pub fn disconnected(&mut self, client: ClientId, now: Nanos) {
        let Some(entry) = self.by_id.get_mut(&client) else { return };
        entry.connections = entry.connections.saturating_sub(1);
        if entry.connections == 0 {
            entry.absent_since = now;
            self.absent += 1;
        }
        if self.absent > ABSENT_CLIENTS_MAX {
            self.forget_absent(now);
        }
    }

    /// Judges a request and notes what its header says about finished ones.
    pub fn admit(&mut self, header: &Header) -> Verdict {
        let entry = self.by_id.entry(header.request.client).or_insert_with(|| {
            // A request without a connection is one whose connection broke before it was read.
            self.absent += 1;
            Client::default()
        });
        match entry.requests.enter(header.request, header.finished_below()) {
            Err(_) => Verdict::Stale,
            Ok(executed) if executed.contains(header.request.sequence) => Verdict::Executed,
            Ok(_) => Verdict::New,
        }
    }

    /// Notes that a request was executed.
    pub fn executed(&mut self, request: RequestId) {
        if let Some(Ok(executed)) = self.by_id.get_mut(&request.client).map(|entry| entry.requests.enter(request, 0)) {
            executed.add(request.sequence);
        }
    }

    /// Clients with a connection.
    pub fn connected_count(&self) -> u32 {
        (self.by_id.len() - self.absent) as u32
    }

    /// Forgets clients that have been absent for long; call it now and then.
    pub fn forget_absent(&mut self, now: Nanos) {
        // Beyond the bound those go first that have been away longest: a fresh client that
        // reconnects must be known.
        let mut since: Vec<_> = self.by_id.values().filter(|client| client.connections == 0).map(|client| client.absent_since).collect();
        since.sort_unstable();
        let surplus = since.len().saturating_sub(ABSENT_CLIENTS_MAX / 2);
        let evict_until = if since.len() > ABSENT_CLIENTS_MAX { since[surplus - 1] } else { Nanos(0) };
        self.by_id.retain(|_, client| {
            client.connections > 0 || (client.absent_since > evict_until && now.since(client.absent_since) < FORGET_AFTER)
        });
        self.absent = self.by_id.values().filter(|client| client.connections == 0).count();
    }
}

impl KnownRequests for Executed {
    fn drop_below(&mut self, sequence: u64) {
        while let Some(entry) = self.0.first_entry() {
            let (first, last) = (*entry.key(), *entry.get());
            if first >= sequence {
                break;
            }
            entry.remove();
            if last >= sequence {
                self.0.insert(sequence, last);
            }
        }
    }
}

impl Executed {
    fn contains(&self, sequence: u64) -> bool {
        self.0.range(..=sequence).next_back().is_some_and(|(_, last)| *last >= sequence)
    }

    fn add(&mut self, sequence: u64) {
        if self.contains(sequence) {
            return;
        }
        let (mut first, mut last) = (sequence, sequence);
        if let Some(end) = self.0.remove(&sequence.saturating_add(1)) {
            last = end;
        }
        if let Some((&start, &end)) = self.0.range(..sequence).next_back() {
            assert!(end < sequence, "a number is in one range");
            if end + 1 == sequence {
                first = start;
            }
        }
        self.0.insert(first, last);
        if self.0.len() > DONE_RANGES_MAX {
            self.0.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use weft_base::ServerId;
    use weft_wire::Op;

    fn header(client: u64, incarnation: u32, sequence: u64, finished_below: u64) -> Header {
        let request = RequestId { client: ClientId(client), incarnation, sequence };
        Header::request(Op::Write, ServerId::data(0), request, (sequence - finished_below.min(sequence)) as u32)
    }

    #[test]
    fn late_copies_are_refused_and_copies_are_not_executed_twice() {
        let mut clients = Clients::default();
        clients.connected(ClientId(1), 1);
        assert_eq!(clients.admit(&header(1, 1, 5, 5)), Verdict::New);
        clients.executed(header(1, 1, 5, 5).request);
        assert_eq!(clients.admit(&header(1, 1, 5, 5)), Verdict::Executed);
        assert_eq!(clients.admit(&header(1, 1, 6, 6)), Verdict::New);
        assert_eq!(clients.admit(&header(1, 1, 5, 5)), Verdict::Stale);
    }

    #[test]
    fn a_new_life_starts_afresh_and_ends_the_old_one() {
        let mut clients = Clients::default();
        clients.connected(ClientId(1), 1);
        assert_eq!(clients.admit(&header(1, 1, 50, 50)), Verdict::New);
        clients.connected(ClientId(1), 2);
        assert_eq!(clients.admit(&header(1, 2, 1, 1)), Verdict::New);
        assert_eq!(clients.admit(&header(1, 1, 51, 51)), Verdict::Stale);
        clients.executed(header(1, 1, 1, 1).request);
        assert_eq!(clients.admit(&header(1, 2, 1, 1)), Verdict::New, "only the request of the old life was executed");
    }

    #[test]
    fn absent_clients_are_forgotten_and_present_ones_are_not() {
        let mut clients = Clients::default();
        for client in 0..100 {
            clients.connected(ClientId(client), 1);
            clients.admit(&header(client, 1, 9, 9));
            if client > 0 {
                clients.disconnected(ClientId(client), Nanos(client));
            }
        }
        clients.forget_absent(Nanos(FORGET_AFTER));
        assert_eq!((clients.by_id.len(), clients.absent), (100, 99));
        clients.forget_absent(Nanos(FORGET_AFTER + 50));
        assert_eq!((clients.by_id.len(), clients.absent), (50, 49));
        assert_eq!(clients.admit(&header(0, 1, 8, 8)), Verdict::Stale, "a connected client is remembered");
        clients.connected(ClientId(99), 1);
        assert_eq!(clients.absent, 48);
    }

    #[test]
    fn memory_is_bounded() {
        let mut clients = Clients::default();
        for client in 0..3 * ABSENT_CLIENTS_MAX as u64 {
            clients.connected(ClientId(client), 1);
            clients.disconnected(ClientId(client), Nanos(client));
        }
        assert!(clients.by_id.len() <= ABSENT_CLIENTS_MAX);
        let mut executed = Executed::default();
        (0..3 * DONE_RANGES_MAX as u64).for_each(|n| executed.add(2 * n));
        assert_eq!(executed.0.len(), DONE_RANGES_MAX);
    }

    proptest! {
        #[test]
        fn executed_numbers_agree_with_a_set(steps in proptest::collection::vec((any::<bool>(), 0u64..60), 1..100)) {
            let (mut executed, mut model, mut floor) = (Executed::default(), BTreeSet::new(), 0);
            for (finish, n) in steps {
                if finish {
                    floor = floor.max(n / 2);
                    executed.drop_below(floor);
                    model.retain(|done| *done >= floor);
                } else if n >= floor {
                    executed.add(n);
                    model.insert(n);
                }
                for n in 0..70 {
                    prop_assert_eq!(executed.contains(n), model.contains(&n));
                }
            }
            let ranges: Vec<_> = executed.0.iter().collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 + 1 < *pair[1].0), "ranges that touch are one");
        }
    }
}
