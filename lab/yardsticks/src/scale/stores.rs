//! What the log of a node and the inode allocation map remember.

use std::cell::{Cell, RefCell};

use weft_model::flow::{Clock, Gate, Lock};

use super::config::InodeRules;

/// A log.
pub(crate) struct Log {
    /// One piece is written at a time; who appends meanwhile waits.
    pub writing: Lock,
    pub buffered_bytes: Cell<u64>,
    /// Inodes whose records cannot be discarded yet.
    pub dirty_inodes: Cell<u64>,
    pub is_flushing: Cell<bool>,
    pub flushed_at: Cell<u64>,
    /// Shut while the log is full.
    pub has_room: Gate,
}

impl Log {
    pub fn new(clock: &Clock) -> Log {
        Log {
            writing: Lock::new(clock, 1),
            buffered_bytes: Cell::new(0),
            dirty_inodes: Cell::new(0),
            is_flushing: Cell::new(false),
            flushed_at: Cell::new(0),
            has_room: Gate::new(clock),
        }
    }
}

/// The map.
pub(crate) struct InodeMap {
    /// Free inodes of each segment.
    pub free: RefCell<Vec<u64>>,
    /// The segment that each node has locked.
    pub locked: RefCell<Vec<Option<usize>>>,
    pub allocated: Cell<u64>,
    pub used: Cell<u64>,
    /// Shut while the map is expanded.
    pub gate: Gate,
}

impl InodeMap {
    pub fn new(clock: &Clock, rules: &InodeRules, nodes: u32) -> InodeMap {
        let map = InodeMap {
            free: RefCell::new(vec![0; rules.segments.max(nodes).max(1) as usize]),
            locked: RefCell::new(vec![None; nodes as usize]),
            allocated: Cell::new(0),
            used: Cell::new(0),
            gate: Gate::new(clock),
        };
        map.add(rules.preallocated);
        map
    }

    /// So many more, all segments equally.
    pub fn add(&self, inodes: u64) {
        let mut free = self.free.borrow_mut();
        let (segments, mut left) = (free.len() as u64, inodes);
        for (index, segment) in free.iter_mut().enumerate() {
            let share = left / (segments - index as u64);
            *segment += share;
            left -= share;
        }
        self.allocated.set(self.allocated.get() + inodes);
    }

    /// Takes an inode of the segment that the node has locked, if there is one.
    pub fn take(&self, node: u32) -> bool {
        let Some(segment) = self.locked.borrow()[node as usize] else { return false };
        let free = &mut self.free.borrow_mut()[segment];
        let found = *free > 0;
        *free -= u64::from(found);
        self.used.set(self.used.get() + u64::from(found));
        found
    }

    /// Locks the segment with most free inodes that nobody else has; where those are used up, one
    /// of another node.
    pub fn lock_another(&self, node: u32) {
        let mut locked = self.locked.borrow_mut();
        locked[node as usize] = None;
        let free = self.free.borrow();
        let best = (0..free.len()).filter(|segment| !locked.contains(&Some(*segment))).max_by_key(|&segment| free[segment]);
        let best = best.filter(|segment| free[*segment] > 0).or_else(|| (0..free.len()).max_by_key(|&segment| free[segment]));
        locked.iter_mut().filter(|segment| **segment == best).for_each(|segment| *segment = None);
        locked[node as usize] = best;
    }
}

#[cfg(test)]
mod tests {
    use weft_model::TieOrder;

    use super::*;

    #[test]
    fn the_last_inodes_are_found_in_segments_of_others() {
        let rules = InodeRules { preallocated: 100, limit: 100, expansion: 1, expand_at: 1.0, format: 0, segments: 4 };
        let map = InodeMap::new(&Clock::new(TieOrder::Natural), &rules, 4);
        (0..4).for_each(|node| map.lock_another(node));
        for _ in 0..100 {
            if !map.take(0) {
                map.lock_another(0);
                assert!(map.take(0));
            }
        }
        assert_eq!(map.used.get(), 100);
        assert!(!map.take(0));
    }
}
