//! `weft-client`: how a program uses a Weft file system: its operations as flows that talk to the
//! right servers. Gateways and commands are thin layers over it; the requests themselves, with
//! retries and deadlines, are those of [`weft_call`].
//!
//! It never knows which runtime drives it, and never holds a lock across a wait.

mod attributes;
mod classic;
mod client;
mod error;
mod files;
mod flow;
mod gate;
mod knowledge;
mod leases;
mod locks;
mod many;
mod names;
mod servers;
#[cfg(test)]
mod tests;
mod trees;
mod types;

pub use classic::ClassicClient;
pub use client::Client;
pub use error::{Error, Result};
pub use files::{Hold, OpenFile};
pub use locks::IsAwaited;
pub use names::{Purpose, WalkEnd};
pub use servers::{DataSpace, DatafileSums, QuotaUsage, StrayDatafile};
pub use trees::{
    Discarded, NameFault, NameFaultKind, NameSums, SumNews, TRASH, TrashFault, TreeChange, TreeNews, TreeOutcome, TreeRemoved, TreeSetting,
    TreeSums, WatchedTree,
};
pub use types::{
    ClientOptions, CreateOptions, DelayWrites, DirItem, DirPage, Fallocate, FsStats, OpenWith, RenameFlags, SeekFor, Seen, SetAttr,
    WholeFile, XattrFlags,
};
pub use weft_call::{CallerStats, run_window};
