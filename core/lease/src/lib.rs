//! `weft-lease`: which client may keep what a metadata server told it, and who must hear of a
//! change before it is made ([`Leases`]). It never reads a clock, never sends anything, and never
//! knows an operation.
//!
//! A *lease* is on a directory: its holder may believe what it was told of names in it, of its own
//! attributes and of those of objects that these names lead to, until it is told otherwise or its
//! session ends. A change by somebody else waits until all holders have heard of it
//! ([`Leases::may_change`]). Leases ride in answers that are sent anyway ([`Leases::grant`]); what
//! renews them, and brings the notices, is one request for each client that is always under way
//! ([`Leases::renew`]).
//!
//! ```text
//! session:  (none) ── renew ──▶ Begun ── renew with its number ──▶ Confirmed ── term over ──▶ (none)
//! change:   nobody holds ──────────────────────────────────────▶ made
//!           somebody holds ──▶ notices under way ── all heard, or their terms over ──▶ made
//! ```
//! After a restart leases that were granted before may still be believed. So changes wait until all
//! sessions of before have begun anew, or a term is over ([`Leases::after_restart`]).

mod directory;
mod leases;
mod session;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use weft_base::Handle;

pub use leases::{AskedBack, Leases, Renewed};

/// What a change touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Touched<'a> {
    /// What a name in a directory leads to; the attributes of the directory change with it.
    Name(Handle, &'a [u8]),
    /// The attributes of an object.
    Object(Handle),
    /// Names in a directory, many, and its attributes.
    Names(Handle),
}

/// What a holder must not believe any more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// What it was told of this name, and of the attributes of its directory.
    Name(Handle, Bytes),
    /// What it was told of the attributes of this object.
    Object(Handle),
    /// All that it was told under the lease on this directory, which it has no longer.
    Directory(Handle),
    /// All that it was told.
    Everything,
    /// That it is alone when it appends to this file.
    Append(Handle),
    /// That it makes names in this directory alone.
    Delegation(Handle),
}
