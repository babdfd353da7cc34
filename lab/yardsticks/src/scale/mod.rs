//! Creating files in IBM Spectrum Scale 4.1.1 as M.-A. Vef's thesis "Analyzing File Create
//! Performance in IBM Spectrum Scale" (2016) describes it: a token manager, a directory that is
//! locked as a whole or by names (FGDL), a metanode that alone writes its blocks, blocks that split
//! (extendible hashing), inodes allocated in segments and expanded, a log on each node.
//!
//! *What is local* of the 19 tasks of a create (sections 4.3.1 and 4.3.2) takes the time of the
//! thesis's column for one client (Tables 4.2 to 4.4). *What is not* (tokens, entries, reserved
//! space, revocations, I/O) comes from messages and waiting, in these files:
//!
//! * `create.rs`: the tasks in their order · `tokens.rs`: how a node comes to the right to do them,
//!   and how rights are taken back · `metanode.rs`: what the metanode does for others, splits ·
//!   `inodes.rs`: allocation and expansion · `log.rs`: log and dirty inodes
//! * `directory.rs`: blocks, entries, who holds what · `stores.rs`: log and inode map · `stats.rs`:
//!   what is measured
//!
//! Two things that the thesis does not say follow from its numbers. Lookup and create of one client
//! are serialised (for one client 19 + 82 s of Table 4.2 are 101 s of a run of 106): the kernel
//! holds the directory's mutex over both, open is outside. And the outliers come once in each
//! transition out of FGDL: one file of each client waits for it (first group), afterwards the first
//! touch of each block by a non-metanode (second group).
//!
//! Simplified: a node keeps a byte-range token until the create under way is done, and in that mode
//! one token stands for the whole directory; storage is not queued (the latencies of Table 4.5 were
//! measured under this load); nobody fails.

mod config;
mod create;
mod directory;
mod inodes;
mod log;
mod metanode;
mod run;
mod stats;
mod stores;
mod tokens;
mod world;

pub use config::{Creates, DirectoryRules, InodeRules, Messages, Names, ScaleConfig, Storage, TaskTimes, TokenRules};
pub use run::run;
pub use stats::{BINS, CREATE_TASKS, Counts, LOOKUP_TASKS, Report, bin_nanos};
