//! What was told, for as long as it may be believed and no longer: in two generations, so that
//! forgetting costs nothing.

use weft_base::{FastMap, Handle, Nanos};

use super::attributes::Known;
use super::names::Named;

/// A table that has room for more, and needs far less, gives its memory back.
const ENTRIES_IDLE_MAX: usize = 1024;

/// What was told of one object.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    pub known: Option<Known>,
    pub named: Option<Named>,
}

/// What was told of objects.
#[derive(Debug, Default)]
pub(super) struct Generations {
    /// When `now` was begun.
    since: Nanos,
    now: FastMap<Handle, Record>,
    before: FastMap<Handle, Record>,
}

impl Generations {
    /// Drops what is too old.
    pub fn renewed(&mut self, now: Nanos, age: u64) -> &mut Generations {
        if now.since(self.since) >= age {
            self.turn(now, age);
        }
        self
    }

    /// What is known of an object, to be changed: in the present generation.
    pub fn record(&mut self, object: Handle) -> &mut Record {
        let before = &mut self.before;
        self.now.entry(object).or_insert_with(|| before.remove(&object).unwrap_or_default())
    }

    /// What is known of an object.
    pub fn get(&self, object: Handle) -> Option<&Record> {
        self.now.get(&object).or_else(|| self.before.get(&object))
    }

    /// The same, to be changed where it is.
    pub fn get_mut(&mut self, object: Handle) -> Option<&mut Record> {
        self.now.get_mut(&object).or_else(|| self.before.get_mut(&object))
    }

    /// The records of an object in both generations, the present one first.
    pub fn of_both(&mut self, object: Handle) -> impl Iterator<Item = &mut Record> {
        [self.now.get_mut(&object), self.before.get_mut(&object)].into_iter().flatten()
    }

    /// Begins a generation. The memory of the one before the last is used again, unless it has
    /// become far too much.
    fn turn(&mut self, now: Nanos, age: u64) {
        std::mem::swap(&mut self.now, &mut self.before);
        if now.since(self.since) >= 2 * age {
            self.before.clear();
        }
        if self.now.capacity() > ENTRIES_IDLE_MAX && self.now.capacity() / 8 > self.before.len() {
            self.now = FastMap::default();
        }
        self.now.clear();
        self.since = now;
    }
}
