//! `weft-library`: a file system for programs that open it themselves: paths, open files, listings,
//! and whole files by the list. The libraries for C and Python are translations of it; errors have
//! an errno and a text.
//!
//! A call runs to its end on the thread that makes it, within the client's deadline; any number of
//! threads may call at once. Two threads per file system close files and keep sessions.
//!
//! It never holds file system state, never caches data, names or attributes, and never names the
//! runtime that drives it: whoever opens a file system hands a client over.
// What a program has opened is no reason to write to its terminal.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod error;
mod file;
mod filesystem;
mod listing;
mod locks;
mod names;
mod ranges;
mod whole;

pub use error::{Error, Result};
pub use file::{File, OpenOptions};
pub use filesystem::{FileSystem, Habits, PosixLayer};
pub use listing::{ListedEntry, Listing};
pub use weft_posix::Stable;
pub use weft_wire::ops::LockKind;
