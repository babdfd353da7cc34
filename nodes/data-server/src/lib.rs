//! `weft-data-server`: keeps datafiles, the stripes of files. One container file holds the bytes of
//! all of them; the map from objects to bytes of the container is in memory
//! ([`weft_store::objects`]) and made durable by a journal and checkpoints.
//!
//! It never serves anybody without a capability that a metadata server signed, never shows a byte
//! of the container that its object did not write, and never creates a file per object.
//!
//! # A turn
//! Take everything that has arrived; execute it, requests for one object in their order, different
//! objects at the same time; write the journal once; let all replies leave. What takes long waits
//! in flows of its own, so that it stops nobody: syncs (`durability.rs`), checkpoints
//! (`checkpoint.rs`), giving freed space back (`space.rs`).
//!
//! With direct I/O the accesses to the disk take long as well, so requests are under way over turns
//! (`schedule.rs`).
//!
//! # Order of data and journal
//! The data of a write is in the container (the page cache) before its record is in the journal. So
//! after the death of the process every record of the journal is true. A power cut may keep a
//! record and lose its data; then the record would show what lay in those blocks before. Therefore
//! a sync brings the container to stable storage first and then appends a *mark* that says how far
//! the records before are backed by data; after a power cut no growth behind the last mark is
//! believed (`record.rs`, `recovery.rs`). Removals and truncations show no data and need no mark.
//! Blocks that a record freed are used again only when that record is on stable storage.
//!
//! # Budget of a write of 1 MiB, real runtime
//! One copy into the page cache (what memory allows), and at most 5 us for everything else:
//! admission, plan, record, its share of the journal write.

mod accesses;
mod cache;
mod checkpoint;
mod clients;
mod config;
mod container;
mod done;
mod durability;
mod freed;
mod grants;
mod in_flight;
mod objects;
mod ops;
mod progress;
mod record;
mod recovery;
mod schedule;
mod server;
mod space;
mod state;
mod transfer;

pub use config::{CacheConfig, DataServerConfig, WriteBack};
pub use record::JournalRecord;
pub use recovery::{CONTAINER_NAME, object_table};
pub use server::run;
pub use weft_serving::{Durability, Engine, Meets, ServerError, ServingConfig};
