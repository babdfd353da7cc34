//! `weft-journal`: the durable memory of a server over [`weft_rt::Disk`]: the [`Superblock`] that
//! says whose directory it is, the [`Journal`] with preallocated and recycled segments and group
//! commit, the [`Checkpoint`] that bounds recovery, and the recovery itself. The byte formats and
//! the arguments why they are safe are in `weft-store`; here is the order of reads, writes and
//! syncs.
//!
//! It never looks into a record, never decides when to write, sync or checkpoint, and never drops a
//! record that it acknowledged.
//!
//! # How a server uses it
//! ```text
//! first start:  Journal::create, apply and append what makes an empty state, commit, sync, Superblock::store (last: it makes
//!               the directory a server's)
//! later starts: Superblock::load, check it, Journal::recover (hands out checkpoint and journal records), Superblock::store with
//!               the counted boot
//! orderly end:  bring_to_rest().await; after a while without work: mark_end().await
//! each turn:    ensure_room().await, append(record)*, commit().await, replies
//! now and then: sync_through(lsn).await in a flow of its own; checkpoint: begin, push slices of the state, flush, finish
//! ```
//! What `commit` has returned for survives the death of the process; what `sync_through` has
//! returned for survives a power cut.
//!
//! # Power cuts and data outside the journal
//! The journal gives records with their numbers and knows nothing else. A server that keeps data in
//! other files (the container of a data server) appends ordinary records as *marks* after it has
//! synced those files, and after a power cut ([`weft_rt::Disk::boot_id`] differs from
//! [`Superblock::boot_id`]) takes only what lies before the last mark: it collects the records in
//! [`Found::Journal`] and drops those behind the mark. It then **must finish a checkpoint before it
//! serves**: otherwise the next recovery, after a mere crash of the process, would replay what was
//! dropped.

mod checkpoint;
mod config;
mod error;
mod features;
mod follow;
mod journal;
mod names;
mod recover;
mod room;
mod superblock;

pub use checkpoint::Checkpoint;
pub use config::{JournalConfig, JournalStats, bytes_to_begin};
pub use error::JournalError;
pub use features::StoreFeatures;
pub use follow::{Followed, ReadPlace};
pub use journal::Journal;
pub use recover::{Found, Recovered, TakesFound};
pub use room::Room;
pub use superblock::{MetServer, Superblock};
pub use weft_store::Lsn;
pub use weft_store::journal::SEGMENT_BYTES_DEFAULT;
