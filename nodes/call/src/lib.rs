//! `weft-call`: requests to servers. [`Caller`] numbers a request, sends it, sends it again when it
//! is lost, and gives up at its deadline; [`run_window`] drives many flows of one caller, a bounded
//! number at a time. Clients and servers ask servers through it.
//!
//! It never knows what an operation means, never keeps a reply, and never holds a lock across a
//! wait.

mod caller;
mod sequence;
#[cfg(test)]
mod tests;
mod told;
mod window;

pub use caller::{Caller, CallerStats, Encode};
pub use sequence::Sequences;
pub use told::ToldHandles;
pub use window::{both, run_window};
