//! How much space may be held for writes that are likely to come.
//!
//! Several clients write one object block by block, and their blocks arrive in any order. If space
//! were given out in that order, a later read in the order of the object would jump about on the
//! disk. A write that leaves a hole at the end of an object shows that this is going on; then a
//! whole window of the object, aligned in it, gets its space at once. What small files and files
//! that grow at their end take does not change: they leave no holes.
//!
//! A window is a reservation as any other: volatile, not counted as used, given back when nobody
//! writes to the object any more.

use super::reservations::Reservations;
use super::{ObjectKey, block_of};

/// Limits for the space that is held for writes that are likely to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// Bytes of a window.
    pub window_bytes: u64,
    /// Most bytes in the reservation of one object after a window was added to it: a sparse file
    /// that never fills must not hold much.
    pub object_bytes_max: u64,
    /// The same for all objects together.
    pub total_bytes_max: u64,
    /// Bytes that must remain free besides, so that no write is refused for the sake of one that
    /// may never come.
    pub keep_bytes: u64,
}

impl Default for WindowLimits {
    /// The largest request of all block lists holds 16 MiB of blocks; four times that is kept free.
    fn default() -> Self {
        WindowLimits { window_bytes: 1 << 20, object_bytes_max: 64 << 20, total_bytes_max: 256 << 20, keep_bytes: 64 << 20 }
    }
}

impl WindowLimits {
    /// True if `key` may take `more` blocks beyond those it needs, with `free` blocks free besides
    /// those.
    pub(super) fn allow(&self, reservations: &Reservations, key: ObjectKey, more: u64, free: u64) -> bool {
        reservations.blocks_of(key) + more <= block_of(self.object_bytes_max)
            && reservations.blocks() + more <= block_of(self.total_bytes_max)
            && free >= more + block_of(self.keep_bytes)
    }
}
