//! `weft-posix`: what every gateway owes its callers beyond the operations of `weft-client`. A
//! gateway (a FUSE mount, an NFS server, a C library) answers many callers and caches that it does
//! not control, and POSIX says what they may see. That is decided here, once:
//!
//! - which number names an open file, and what its first write clears (`opens.rs`, `data.rs`,
//!   `set_id.rs`);
//! - what a cache above was told of attributes and names, and what it must forget before an open
//!   returns (`told/`);
//! - for which version of a file the pages in a cache above are good (`pages.rs`), and what is read
//!   ahead for programs that read in small pieces (`ahead.rs`);
//! - which locks of programs end with a process or an open file (`locking.rs`);
//! - what callers without a kernel name by paths (`paths.rs`), or by handles that they keep for
//!   ever (`handles.rs`);
//! - opens that met a file which was replaced meanwhile (`walks.rs`), pages of listings
//!   (`listings.rs`, `kept_pages.rs`), closes that go to the servers many at a time (`closing.rs`),
//!   and what servers do wrong (`error_counts.rs`).
//!
//! It never knows a protocol of a gateway or which runtime drives it, never starts a thread, and
//! never holds a lock across a wait. So it is tested and simulated without a mount.
//!
//! # What a gateway must keep
//! - It has one [`Posix`] for all its callers, and shows objects under the numbers that it is given
//!   ([`InodeNumber`]).
//! - It drives two flows beside its requests for as long as it serves:
//!   [`Posix::close_in_background`] and [`Posix::keep_alive`]. A third one lets servers work while
//!   programs read and write on: [`Posix::move_in_background`]. After the last request it drives
//!   [`Posix::end`].
//! - It believes what it is told (attributes, names) no longer than [`Shown`] says, counted from
//!   when it hears it, and keeps data only as [`Caching`] says.
//! - It gives back every open file ([`Posix::release`]) and listing ([`Posix::close_dir`]), also
//!   one whose opener did not wait for the answer. If somebody did not wait for a lock, it unlocks.
//! - It implements [`Gateway`]: what must be forgotten is forgotten when the call returns.

mod ahead;
mod ahead_queue;
mod attributes;
mod behind;
mod closes;
mod closing;
mod data;
mod description;
mod error_counts;
mod gateway;
mod handles;
mod kept_pages;
mod leases;
mod listing;
mod listings;
mod locking;
mod names;
mod node;
mod opens;
mod pages;
mod paths;
mod posix;
mod sealed;
mod sends;
mod set_id;
mod signal;
mod table;
mod told;
mod walks;

pub use data::WriteHow;
pub use description::{Caching, OpenHow, Opened, Stable};
pub use error_counts::{ErrorCount, ErrorCounts};
pub use gateway::{Callers, Gateway};
pub use listings::Listed;
pub use locking::Refusal;
pub use node::{CallingThread, InodeNumber, Shown};
pub use paths::Met;
pub use posix::{Options, Posix};
