//! The busiest clients and objects of the last seconds. Counts from the start would show for hours
//! who was busy yesterday; so there are two windows of [`WINDOW_NS`]: the one that is being filled
//! and the one before it. A report tells both together, and how long they are.

use weft_base::{ClientId, Handle, Nanos, SECOND};
use weft_wire::ops::TopRow;

use crate::sketch::Sketch;

/// Length of a window, in nanoseconds.
const WINDOW_NS: u64 = 10 * SECOND;
/// Keys that a sketch counts: what has a share of one in 128 is never missed.
const PLACES: usize = 128;

/// The busiest.
#[derive(Debug)]
pub struct Tops {
    clients: Busy,
    objects: Busy,
    began: Nanos,
    before_began: Nanos,
}

/// One kind of key, by requests and by bytes.
#[derive(Debug)]
struct Busy {
    /// Neighbours in the stream mostly have the same key: they are added up here first, which costs
    /// two additions.
    run: Run,
    requests: Windows,
    bytes: Windows,
}

#[derive(Debug, Default)]
struct Run {
    key: u64,
    requests: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Windows {
    now: Sketch,
    before: Sketch,
}

impl Tops {
    /// Nobody has done anything.
    pub fn new(now: Nanos) -> Tops {
        Tops { clients: Busy::new(), objects: Busy::new(), began: now, before_began: now }
    }

    /// A request.
    pub fn request(&mut self, client: ClientId, object: Handle) {
        self.clients.add(client.0, 1, 0);
        if object != Handle(0) {
            self.objects.add(object.0, 1, 0);
        }
    }

    /// Bytes of a file that were read or written.
    pub fn bytes(&mut self, client: ClientId, object: Handle, bytes: u64) {
        self.clients.add(client.0, 0, bytes);
        self.objects.add(object.0, 0, bytes);
    }

    /// Begins a new window if it is time. To be called before what happens now is counted.
    pub fn roll(&mut self, now: Nanos) {
        if now.since(self.began) < WINDOW_NS {
            return;
        }
        // After a long silence the last window is old too.
        let twice = now.since(self.began) >= 2 * WINDOW_NS;
        for busy in [&mut self.clients, &mut self.objects] {
            busy.roll();
            if twice {
                busy.roll();
            }
        }
        self.before_began = if twice { Nanos(now.0 - WINDOW_NS) } else { self.began };
        self.began = now;
    }

    /// The time that the lists are about, in nanoseconds before now.
    pub fn covers_ns(&self, now: Nanos) -> u64 {
        now.since(self.before_began)
    }

    /// Clients with most requests.
    pub fn clients_by_requests(&mut self, limit: usize) -> Vec<TopRow> {
        self.clients.by_requests(limit)
    }

    /// Clients with most bytes.
    pub fn clients_by_bytes(&mut self, limit: usize) -> Vec<TopRow> {
        self.clients.by_bytes(limit)
    }

    /// Objects with most requests.
    pub fn objects_by_requests(&mut self, limit: usize) -> Vec<TopRow> {
        self.objects.by_requests(limit)
    }

    /// Objects with most bytes.
    pub fn objects_by_bytes(&mut self, limit: usize) -> Vec<TopRow> {
        self.objects.by_bytes(limit)
    }
}

impl Busy {
    fn new() -> Busy {
        let windows = || Windows { now: Sketch::new(PLACES), before: Sketch::new(PLACES) };
        Busy { run: Run::default(), requests: windows(), bytes: windows() }
    }

    #[inline]
    fn add(&mut self, key: u64, requests: u64, bytes: u64) {
        if key != self.run.key {
            self.settle();
            self.run.key = key;
        }
        self.run.requests += requests;
        self.run.bytes += bytes;
    }

    fn settle(&mut self) {
        let run = std::mem::take(&mut self.run);
        if run.requests > 0 {
            self.requests.now.add(run.key, run.requests);
        }
        if run.bytes > 0 {
            self.bytes.now.add(run.key, run.bytes);
        }
    }

    fn roll(&mut self) {
        self.settle();
        for windows in [&mut self.requests, &mut self.bytes] {
            std::mem::swap(&mut windows.now, &mut windows.before);
            windows.now.clear();
        }
    }

    fn by_requests(&mut self, limit: usize) -> Vec<TopRow> {
        self.settle();
        self.requests.top(limit)
    }

    fn by_bytes(&mut self, limit: usize) -> Vec<TopRow> {
        self.settle();
        self.bytes.top(limit)
    }
}

impl Windows {
    fn top(&self, limit: usize) -> Vec<TopRow> {
        let rows = self.now.heaviest_of_both(&self.before, limit).into_iter();
        rows.map(|estimate| TopRow { key: estimate.key, count: estimate.count, error: estimate.error }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(rows: &[TopRow]) -> Vec<(u64, u64)> {
        rows.iter().map(|row| (row.key, row.count - row.error)).collect()
    }

    #[test]
    fn runs_of_one_key_and_alternating_keys_count_the_same() {
        let mut tops = Tops::new(Nanos(0));
        for round in 0..30 {
            tops.request(ClientId(1), Handle(10));
            tops.request(ClientId(1), Handle(11 + round % 2));
            tops.request(ClientId(2), Handle(0));
            tops.bytes(ClientId(2), Handle(10), 100);
        }
        assert_eq!(counts(&tops.clients_by_requests(9)), [(1, 60), (2, 30)]);
        assert_eq!(counts(&tops.clients_by_bytes(9)), [(2, 3000)]);
        assert_eq!(counts(&tops.objects_by_requests(2)), [(10, 30), (11, 15)]);
        assert_eq!(counts(&tops.objects_by_bytes(9)), [(10, 3000)]);
    }

    #[test]
    fn what_was_busy_long_ago_is_forgotten() {
        let mut tops = Tops::new(Nanos(0));
        let mut at = |seconds: u64, client: u64| {
            tops.roll(Nanos(seconds * SECOND));
            tops.request(ClientId(client), Handle(client));
            (counts(&tops.clients_by_requests(9)), tops.covers_ns(Nanos(seconds * SECOND)) / SECOND)
        };
        assert_eq!(at(1, 1), (vec![(1, 1)], 1));
        assert_eq!(at(9, 2), (vec![(1, 1), (2, 1)], 9));
        assert_eq!(at(10, 3), (vec![(1, 1), (2, 1), (3, 1)], 10), "the first window is the one before now");
        assert_eq!(at(19, 4), (vec![(1, 1), (2, 1), (3, 1), (4, 1)], 19));
        assert_eq!(at(21, 5), (vec![(3, 1), (4, 1), (5, 1)], 11), "and now it is gone");
        assert_eq!(at(60, 6), (vec![(6, 1)], 10), "after a long silence nothing is left");
        assert_eq!(at(75, 7), (vec![(6, 1), (7, 1)], 15));
    }
}
