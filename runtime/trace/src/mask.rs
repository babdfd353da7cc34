//! Which events are recorded: a bit for each, switched while the program runs.
//!
//! A call site asks [`is_on`]: one relaxed load of a static word and a test. Each
//! [`Tracer`](crate::Tracer) has a mask of its own; the static words hold the union of all, so that
//! a process without tracing pays for nothing, and nodes of one simulation may differ.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::event::{EventId, EventTable, LAYERS};

/// A set of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask(pub [u64; LAYERS]);

impl Mask {
    /// No event.
    pub const NONE: Mask = Mask([0; LAYERS]);
    /// Every event.
    pub const ALL: Mask = Mask([u64::MAX; LAYERS]);

    /// True if the event is in the set.
    pub fn contains(&self, event: EventId) -> bool {
        self.0[event.layer()] & event.bit() != 0
    }

    /// Adds an event.
    pub fn insert(&mut self, event: EventId) {
        self.0[event.layer()] |= event.bit();
    }

    /// Takes an event away.
    pub fn remove(&mut self, event: EventId) {
        self.0[event.layer()] &= !event.bit();
    }

    /// Reads a list like `client.*,meta.create,-disk.sync`: names of `table`, `*` at the end of a
    /// name or alone, `-` takes away. From left to right.
    ///
    /// # Errors
    /// A sentence that names the word which matches no event.
    pub fn parse(text: &str, table: &EventTable) -> Result<Mask, String> {
        let mut mask = Mask::NONE;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (remove, pattern) = word.strip_prefix('-').map_or((false, word), |pattern| (true, pattern));
            let matches = |name: &str| match pattern.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => name == pattern,
            };
            let mut matched = false;
            for info in table.iter().filter(|info| matches(&info.name)) {
                matched = true;
                if remove { mask.remove(info.id) } else { mask.insert(info.id) }
            }
            if !matched {
                return Err(format!("no event is called {pattern}; a name is like meta.create, and client.* means all of a layer"));
            }
        }
        Ok(mask)
    }

    /// The names of the events in the set, whole layers as `layer.*`, all together as `*`.
    pub fn describe(&self, table: &EventTable) -> String {
        if table.iter().all(|info| self.contains(info.id)) {
            return "*".to_string();
        }
        let mut words: Vec<String> = Vec::new();
        for layer in 0..LAYERS {
            let all: Vec<_> = table.iter().filter(|info| info.id.layer() == layer).collect();
            let on: Vec<_> = all.iter().filter(|info| self.contains(info.id)).collect();
            match on.first() {
                Some(first) if on.len() == all.len() => words.extend(first.name.split('.').next().map(|prefix| format!("{prefix}.*"))),
                _ => words.extend(on.iter().map(|info| info.name.clone())),
            }
        }
        if words.is_empty() { "none".to_string() } else { words.join(",") }
    }
}

/// The union of all masks of this process.
static UNION: [AtomicU64; LAYERS] = [const { AtomicU64::new(0) }; LAYERS];
/// Some bit of [`UNION`] is set.
static ANY: AtomicBool = AtomicBool::new(false);
/// The masks whose union it is.
static MASKS: Mutex<Vec<(u64, Mask)>> = Mutex::new(Vec::new());

/// True if some tracer of this process records the event. One relaxed load.
#[inline(always)]
pub fn is_on(event: EventId) -> bool {
    UNION[event.layer()].load(Ordering::Relaxed) & event.bit() != 0
}

/// True if some tracer of this process records anything. One relaxed load.
#[inline(always)]
pub fn is_any_on() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// The mask of one tracer, known to the union under the tracer's number.
#[derive(Debug)]
pub(crate) struct SharedMask {
    number: u64,
    words: [AtomicU64; LAYERS],
}

impl SharedMask {
    pub(crate) fn new() -> SharedMask {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        SharedMask { number: NUMBERS.fetch_add(1, Ordering::Relaxed), words: [const { AtomicU64::new(0) }; LAYERS] }
    }

    /// Tells the tracers of this process apart, unless it has had four thousand million of them.
    #[inline]
    pub(crate) fn short_number(&self) -> u32 {
        self.number as u32
    }

    pub(crate) fn get(&self) -> Mask {
        Mask(std::array::from_fn(|layer| self.words[layer].load(Ordering::Relaxed)))
    }

    #[inline]
    pub(crate) fn contains(&self, event: EventId) -> bool {
        self.words[event.layer()].load(Ordering::Relaxed) & event.bit() != 0
    }

    pub(crate) fn set(&self, mask: Mask) {
        let mut masks = MASKS.lock().expect("no code panics while it holds this lock");
        masks.retain(|(number, _)| *number != self.number);
        if mask != Mask::NONE {
            masks.push((self.number, mask));
        }
        for (layer, union_of_all) in UNION.iter().enumerate() {
            self.words[layer].store(mask.0[layer], Ordering::Relaxed);
            let union = masks.iter().fold(0, |union, (_, mask)| union | mask.0[layer]);
            union_of_all.store(union, Ordering::Relaxed);
        }
        ANY.store(!masks.is_empty(), Ordering::Relaxed);
    }
}

impl Drop for SharedMask {
    fn drop(&mut self) {
        self.set(Mask::NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_wire::Op;

    use crate::event::{CLIENT_CREATE, DISK_READ, DISK_SYNC, META_CREATE, request};

    #[test]
    fn lists_are_read_from_left_to_right() {
        let table = EventTable::builtin();
        let mask = Mask::parse("disk.*, meta.create, -disk.sync", &table).expect("known names");
        assert!(mask.contains(DISK_READ) && mask.contains(META_CREATE));
        assert!(!mask.contains(DISK_SYNC) && !mask.contains(request(Op::Open)) && !mask.contains(CLIENT_CREATE));
        assert_eq!(mask.describe(&table), "meta.create,disk.read,disk.write,disk.job");
        assert_eq!(Mask::parse("disk.*", &table).expect("known").describe(&table), "disk.*");
        assert_eq!([Mask::ALL, Mask::NONE].map(|mask| mask.describe(&table)), ["*", "none"]);
        assert_eq!(Mask::parse("", &table), Ok(Mask::NONE));
        assert!(Mask::parse("disk.raed", &table).is_err_and(|message| message.contains("disk.raed")));
    }

    #[test]
    fn the_union_follows_every_mask_and_forgets_dropped_ones() {
        // An event that no other test of this process switches on.
        let event = EventId::new(14, 7);
        let mut only = Mask::NONE;
        only.insert(event);
        let (a, b) = (SharedMask::new(), SharedMask::new());
        a.set(only);
        b.set(only);
        a.set(Mask::NONE);
        assert!(is_any_on() && is_on(event) && b.contains(event) && !a.contains(event));
        drop(b);
        assert!(!is_on(event));
    }
}
