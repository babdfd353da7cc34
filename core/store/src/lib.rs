//! `weft-store`: what lies on the disks of a server, as byte logic: the [`journal`] (segments,
//! frames, scanning, replay), the [`checkpoint`] stream and the [`objects`] table of a data server
//! with its space allocator. Bytes and decisions in, bytes and decisions out; the nodes do the
//! reading, writing and syncing in the order that the module headers demand. The layouts are drawn
//! in `docs/on-disk.md`.
//!
//! It never does I/O, never reads a clock, never draws a random number and never trusts a byte that
//! it did not check.

pub mod checkpoint;
mod codec;
mod header;
pub mod journal;
pub mod objects;

pub use header::HeaderError;
pub use journal::Lsn;

/// The largest journal or checkpoint record, in bytes. A length above it is damage, so no reader
/// allocates for it.
pub const RECORD_BYTES_MAX: usize = 16 << 20;
