//! `weft-meta-server`: a metadata server (one shard): its requests, sessions, transactions between
//! servers, and the flows that need data servers. What is decided is in `weft-namespace`, how it is
//! kept in `weft-journal`, the loop of turns in `weft-serving`; here is who waits for whom.
//!
//! It never changes its state but by applying a record, never waits for another server inside a
//! turn, and never sends an answer before what the answer tells is as safe as the durability
//! contract says.
//!
//! # A turn
//! ```text
//! receive everything that has arrived
//!   for each request:  admit (reply table) ─ prepare ─ append record ─ apply ─ keep the answer
//!                      needs another server?  ─ spawn a flow; its changes enter a later turn's commit
//! one commit: one journal write (and one flush under `sync`)
//! all answers of the turn leave
//! ```
//! Budget of a create in a full turn: decode 0.3 us, admit 0.1, prepare and apply 1.5, encode
//! record and reply 0.5, capability 0.5, its share of the journal write 0.3.

mod config;
mod container;
mod contents;
mod dump;
mod engine;
mod flows;
mod holders;
mod housekeeping;
mod leases;
mod loans;
mod ops;
mod quotas;
mod requests;
mod server;
mod sessions;
mod start;
mod step;
mod tx;

pub use config::{MetaServerConfig, SPLIT_NAMES_MAX_DEFAULT, SplitConfig};
pub use dump::DUMP_NAME;
pub use engine::{Row, each_row, tail_records};
pub use start::{format, run};
pub use weft_serving::{Durability, Engine, Meets, Process, ServerError, ServingConfig};
