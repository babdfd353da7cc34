//! `weft-client`: how a program uses a Weft file system: its operations as flows that talk to the
//! right servers. Gateways and commands are thin layers over it; the requests themselves, with
//! retries and deadlines, are those of [`weft_call`].
//!
//! It never knows which runtime drives it, and never holds a lock across a wait.

mod attrs;
mod batch;
mod client;
mod directory;
mod error;
mod files;
mod flow;
mod gate;
mod knowledge;
mod maps;
mod names;
mod open_inode;
mod open_table;
mod partitions;
mod paths;
mod read;
mod reclaim;
mod silence;
mod silent;
mod space;
#[cfg(test)]
mod tests;
mod types;
mod write;

pub use client::Client;
pub use error::{Error, Result};
pub use open_table::OpenFile;
pub use space::DataSpace;
pub use types::{ClientOptions, CreateOptions, DirItem, DirPage, FsStats, RenameFlags, Seen, SetAttr, XattrFlags};
pub use weft_call::{CallerStats, run_window};
