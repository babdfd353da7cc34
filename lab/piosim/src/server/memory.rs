//! The memory of a server's node: accesses that take time, and data that is kept for later reads
//! (the thesis asks for both in section 8.2).

use std::collections::{BTreeMap, VecDeque};

use weft_model::units::nanos;

use super::DataPacket;

/// How long accesses to memory take. They come one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ram {
    /// Before the first byte, seconds.
    pub latency: f64,
    /// Bytes a second.
    pub bandwidth: u64,
}

/// What is copied from or into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// Data for the answer to a read.
    Reply { request: u32, bytes: u64 },
    /// Data of a write, before the cache layer hears of it.
    Write(DataPacket),
}

/// Copies under way.
pub(crate) struct Copies {
    ram: Ram,
    /// Until when the memory is busy, nanoseconds.
    busy: u64,
    waiting: VecDeque<Copied>,
}

impl Copies {
    pub fn new(ram: Ram) -> Copies {
        Copies { ram, busy: 0, waiting: VecDeque::new() }
    }

    /// Begins a copy; returns when it ends.
    pub fn start(&mut self, now: u64, copied: Copied) -> u64 {
        let (Copied::Reply { bytes, .. } | Copied::Write(DataPacket { bytes, .. })) = copied;
        self.busy = self.busy.max(now) + nanos(self.ram.latency + bytes as f64 / self.ram.bandwidth as f64);
        self.waiting.push_back(copied);
        self.busy
    }

    /// The copy that has ended.
    pub fn finish(&mut self) -> Option<Copied> {
        self.waiting.pop_front()
    }
}

/// What was read or written last, up to a number of bytes; what was used longest ago goes first.
#[derive(Default)]
pub(crate) struct ReadCache {
    capacity: u64,
    bytes: u64,
    /// By file and first byte: end and time of the last use. They do not overlap.
    extents: BTreeMap<(u32, u64), (u64, u64)>,
    /// By time of the last use.
    used: BTreeMap<u64, (u32, u64)>,
    clock: u64,
}

impl ReadCache {
    pub fn new(capacity: u64) -> ReadCache {
        ReadCache { capacity, ..ReadCache::default() }
    }

    /// Whether it keeps anything.
    pub fn is_on(&self) -> bool {
        self.capacity > 0
    }

    /// Cuts a range into parts (first byte, length) that are kept and parts that are not, and notes
    /// that the former were used.
    pub fn look_up(&mut self, file: u32, offset: u64, bytes: u64) -> Vec<(u64, u64, bool)> {
        let (end, mut at, mut parts) = (offset + bytes, offset, Vec::new());
        for (start, stop) in self.touching(file, offset, end) {
            if start > at {
                parts.push((at, start - at, false));
                at = start;
            }
            let kept = stop.min(end);
            if kept > at {
                parts.push((at, kept - at, true));
                at = kept;
            }
            self.use_now((file, start));
        }
        if at < end {
            parts.push((at, end - at, false));
        }
        parts
    }

    /// Keeps a range.
    pub fn keep(&mut self, file: u32, offset: u64, bytes: u64) {
        if bytes == 0 || bytes > self.capacity {
            return;
        }
        let end = offset + bytes;
        for (start, stop) in self.touching(file, offset, end) {
            self.remove((file, start));
            if start < offset {
                self.insert((file, start), offset);
            }
            if stop > end {
                self.insert((file, end), stop);
            }
        }
        self.insert((file, offset), end);
        while self.bytes > self.capacity {
            let Some((_, key)) = self.used.first_key_value().map(|(at, key)| (*at, *key)) else { return };
            self.remove(key);
        }
    }

    /// The extents of a file that overlap a range.
    fn touching(&self, file: u32, offset: u64, end: u64) -> Vec<(u64, u64)> {
        let before = self.extents.range((file, 0)..(file, offset)).next_back();
        let inside = self.extents.range((file, offset)..(file, end));
        let all = before.into_iter().chain(inside).map(|((_, start), (stop, _))| (*start, *stop));
        all.filter(|&(_, stop)| stop > offset).collect()
    }

    fn insert(&mut self, key: (u32, u64), end: u64) {
        self.clock += 1;
        self.bytes += end - key.1;
        self.extents.insert(key, (end, self.clock));
        self.used.insert(self.clock, key);
    }

    fn remove(&mut self, key: (u32, u64)) {
        if let Some((end, used)) = self.extents.remove(&key) {
            self.bytes -= end - key.1;
            self.used.remove(&used);
        }
    }

    fn use_now(&mut self, key: (u32, u64)) {
        self.clock += 1;
        if let Some((_, used)) = self.extents.get_mut(&key) {
            self.used.remove(used);
            *used = self.clock;
            self.used.insert(self.clock, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_model::random::Lcg48;

    #[test]
    fn a_read_cache_knows_what_a_set_of_bytes_knows() {
        let mut random = Lcg48::new(5);
        let mut cache = ReadCache::new(1000);
        let mut known = vec![[false; 300]; 2];
        for _ in 0..2000 {
            let (file, offset, bytes) = (random.next_below(2), u64::from(random.next_below(250)), u64::from(random.next_below(50)) + 1);
            let range = offset as usize..(offset + bytes) as usize;
            if random.next_below(2) == 0 {
                cache.keep(file, offset, bytes);
                known[file as usize][range].fill(true);
                continue;
            }
            let mut at = offset;
            for (start, length, kept) in cache.look_up(file, offset, bytes) {
                assert_eq!(start, at);
                assert!(known[file as usize][start as usize..(start + length) as usize].iter().all(|&known| known == kept));
                at += length;
            }
            assert_eq!(at, offset + bytes);
        }
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut cache = ReadCache::new(30);
        for offset in [0, 10, 20] {
            cache.keep(0, offset, 10);
        }
        assert_eq!(cache.look_up(0, 0, 10), [(0, 10, true)]);
        cache.keep(1, 0, 10);
        assert_eq!(cache.look_up(0, 0, 30), [(0, 10, true), (10, 10, false), (20, 10, true)]);
        cache.keep(1, 100, 31);
        assert_eq!(cache.look_up(1, 100, 31), [(100, 31, false)], "it does not fit");
    }

    #[test]
    fn copies_wait_for_each_other() {
        let mut copies = Copies::new(Ram { latency: 1e-6, bandwidth: 1_000_000_000 });
        let reply = |request| Copied::Reply { request, bytes: 5000 };
        assert_eq!(copies.start(0, reply(1)), 6000);
        assert_eq!(copies.start(1000, reply(2)), 12_000);
        assert_eq!(copies.start(20_000, reply(3)), 26_000);
        assert_eq!((copies.finish(), copies.finish()), (Some(reply(1)), Some(reply(2))));
    }
}
