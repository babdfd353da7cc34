//! `weft-inspect`: what the files of a server say, for people who look at them: superblock, journal
//! segments, checkpoints, the container and the object table that follows from them. Damage is told
//! with its place.
//!
//! Bytes in, reports out: any bytes are allowed. It never writes, never repairs, and never decides
//! whether a server may start.

mod files;
mod records;
mod report;
mod server;

pub use files::{StoreFile, inspect_file};
pub use report::{Damage, Report};
pub use server::{ServerFiles, inspect_server};
