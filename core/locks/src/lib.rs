//! `weft-locks`: locks of programs (`flock`, `fcntl`) on files, as tables: who holds which range of
//! a file ([`Ranges`]), and for a server who waits for whom ([`LockTable`]). Pure: no clock, no
//! messages.
//!
//! It never waits, and never knows whether a client lives.

mod ranges;
mod table;
mod waits;

pub use ranges::Ranges;
pub use table::{Asked, Limits, LockTable};
