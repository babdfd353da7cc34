//! Names that may be believed to lead to an object.

use std::hash::Hasher;

use weft_base::{FastHasher, Handle, Nanos};

/// A name that was told to lead to an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// Its hash.
    pub name: u64,
    /// Of the object; a rename or a link makes it another one.
    pub version: u64,
    /// When it was told.
    pub at: Nanos,
}

impl Named {
    /// True if this name may still be believed to lead to the object when another one is told, and
    /// what was done to the object meanwhile may have taken this one away.
    pub fn contradicts(&self, told: &Named, age: u64) -> bool {
        // Twice the age: what is told counts from when it is heard.
        self.name != told.name && self.version != told.version && told.at.since(self.at) < 2 * age
    }
}

/// Two names with one hash are taken for the same: then a rename that does nothing may go
/// unnoticed, by chance once in 2^64. The hash has no key: who makes such names on purpose harms
/// renames of these names only.
pub(super) fn hash(dir: Handle, name: &[u8]) -> u64 {
    let mut hasher = FastHasher::default();
    hasher.write_u64(dir.0);
    hasher.write(name);
    hasher.finish()
}
