//! Servers that decide in which order clients send the data of writes (the thesis proposes it in
//! section 8.2): a client announces a write and sends when the server asks for it. The server asks
//! in the order of its disk, upwards through file and offset and then from the beginning, for no
//! more than a window of bytes that it does not have on disk yet.

use std::collections::BTreeMap;

/// Writes that were announced to one server.
pub(crate) struct Announced {
    window: u64,
    /// Asked for and not accepted by the cache layer, bytes.
    asked: u64,
    /// Requests with their bytes, by file, first byte and arrival.
    waiting: BTreeMap<(u32, u64, u64), (u32, u64)>,
    arrivals: u64,
    /// Where the last one asked for ends.
    last: (u32, u64),
}

impl Announced {
    pub fn new(window: u64) -> Announced {
        Announced { window, asked: 0, waiting: BTreeMap::new(), arrivals: 0, last: (0, 0) }
    }

    /// A request that writes `bytes` from an offset of a file on.
    pub fn announce(&mut self, request: u32, file: u32, start: u64, bytes: u64) {
        self.arrivals += 1;
        self.waiting.insert((file, start, self.arrivals), (request, bytes));
    }

    /// The request whose data is wanted next, if there is room for it beside `queued` bytes in the
    /// cache layer. One always may come.
    pub fn next(&mut self, queued: u64) -> Option<u32> {
        let (file, end) = self.last;
        let (&key, &(request, bytes)) = self.waiting.range((file, end, 0)..).next().or_else(|| self.waiting.first_key_value())?;
        let outstanding = self.asked + queued;
        if outstanding > 0 && outstanding + bytes > self.window {
            return None;
        }
        self.waiting.remove(&key);
        self.asked += bytes;
        self.last = (key.0, key.1 + bytes);
        Some(request)
    }

    /// The cache layer has accepted data that was asked for.
    pub fn accepted(&mut self, bytes: u64) {
        self.asked = self.asked.saturating_sub(bytes);
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_asked_for_in_the_order_of_the_disk_and_within_the_window() {
        let mut announced = Announced::new(25);
        for (request, offset) in [(1, 50), (2, 10), (3, 30), (4, 20)] {
            announced.announce(request, 0, offset, 10);
        }
        announced.announce(5, 1, 0, 100);
        assert_eq!((announced.next(0), announced.next(0), announced.next(0)), (Some(2), Some(4), None));
        announced.accepted(10);
        assert_eq!((announced.next(10), announced.next(0)), (None, Some(3)), "what is queued counts too");
        announced.announce(6, 0, 5, 10);
        announced.accepted(20);
        assert_eq!((announced.next(0), announced.next(1)), (Some(1), None));
        announced.accepted(10);
        assert_eq!(announced.next(0), Some(5), "one always may come, however large");
        announced.accepted(100);
        assert_eq!((announced.next(0), announced.is_empty()), (Some(6), true), "from the beginning");
    }
}
