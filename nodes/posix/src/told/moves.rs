//! Names that were moved through this gateway: whoever was told the old one knows that it leads
//! nowhere.

use weft_base::{FastMap, Nanos};

use super::names::Named;

/// A name that was moved more often in a moment is doubtful.
const MOVES_MAX: usize = 8;

/// Moved names, in two generations: by the new name the old one, and when.
#[derive(Debug, Default)]
pub(super) struct Moves {
    since: Nanos,
    now: FastMap<u64, (u64, Nanos)>,
    before: FastMap<u64, (u64, Nanos)>,
}

impl Moves {
    pub fn add(&mut self, from: u64, to: u64, now: Nanos, age: u64) {
        if now.since(self.since) >= 2 * age {
            self.before = std::mem::take(&mut self.now);
            self.since = now;
        }
        self.now.insert(to, (from, now));
    }

    /// True if whatever had the name `named` was moved to `name` since.
    pub fn lead(&self, named: &Named, name: u64) -> bool {
        let mut name = name;
        for _ in 0..MOVES_MAX {
            match self.now.get(&name).or_else(|| self.before.get(&name)) {
                Some((from, at)) if *at >= named.at => name = *from,
                _ => return false,
            }
            if name == named.name {
                return true;
            }
        }
        false
    }
}
