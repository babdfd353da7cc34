//! `weft-namespace`: the names, inodes, transactions and replies of one metadata server, as pure
//! logic. `prepare_*` looks at the [`State`] and decides: an answer and a [`Record`] of absolute
//! changes, or a refusal. The node journals the record and applies it; [`State::apply`] is the only
//! place where the state changes. A checkpoint is the state as records ([`State::snapshot_from`]).
//!
//! It never waits, never reads a clock, never draws a random number and never talks to another
//! server.
//!
//! # Cost
//! A create looks at one inode (the parent), one entry and one reply table, and makes four changes:
//! about 2 us with the encoding of its record, and some 190 bytes of memory for each file.

mod access;
mod accounts;
mod acls;
mod ceilings;
mod change;
mod contents;
mod delegations;
mod directory;
mod flagged;
mod graves;
mod inode;
mod leaf;
mod locks;
mod marks;
mod moves;
mod open_files;
mod opens;
mod ops;
mod partitions;
mod placement;
mod replies;
mod snapshot;
mod state;
mod table;
mod told;
mod traffic;
mod tx;
mod xattrs;

pub use accounts::{Account, Charged, NO_LIMIT, Resource, made_for, put_limit, put_loan};
pub use acls::is_for_names;
pub use change::{Change, OpenChange, Prepared, RECORD_VERSION, Record, encode};
pub use contents::{ContentPlace, WaitingContent};
pub use inode::{Inode, InodeFlags};
pub use locks::LockMode;
pub use moves::{SLICE_NAMES_MAX, next_slice, servers_for};
pub use open_files::AskedSize;
pub use ops::{
    ClosePlan, CycleCheck, DataState, HoldAsked, MovePlan, RenamePlan, RenameSource, RenameTarget, SizePlan, XATTR_NAME_BYTES_MAX,
    XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX, truncated,
};
pub use partitions::removal_over;
pub use placement::Placement;
pub use replies::Admission;
pub use snapshot::SnapshotCursor;
pub use state::{RequestContext, Settings, State};
pub use told::told;
pub use traffic::{DirectoryShare, SHARE_HOT_PERMILLE, Traffic};
pub use tx::{ServerPart, lead_to_made, made_directory};
