//! `weft-capi`: `libweft`, the C library: every function of `include/weft.h`, as a translation of
//! `weft-library`. Handles are opaque, a failed call returns -1 or NULL with `errno` set and a text
//! for the calling thread, and no panic crosses the border: it becomes EIO.
//!
//! It never holds file system state, and never returns memory that C must give back other than by a
//! function of its own.
//!
//! # Safety of all functions
//! C keeps what the header says: handles come from this library and are used until they are given
//! back, strings end with NUL, buffers are as long as is said. What can be checked is checked: NULL
//! is EINVAL.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![allow(unsafe_code)] // functions that C calls, and the memory that it names
#![allow(non_camel_case_types)] // types have the names that C has for them
#![allow(clippy::missing_safety_doc)] // above, for all of them

mod attributes;
mod border;
mod files;
mod filesystem;
mod listings;
mod names;
mod types;
mod whole;

pub use attributes::*;
pub use border::{weft_error, weft_version};
pub use files::*;
pub use filesystem::*;
pub use listings::*;
pub use names::*;
pub use types::*;
pub use whole::*;
