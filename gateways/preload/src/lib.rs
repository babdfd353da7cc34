//! `weft-preload`: a library that is loaded before the C library (`LD_PRELOAD`), so that unmodified
//! programs find a file system of Weft below a prefix of their paths, without a mount and without a
//! system call for what they do there. Each call looks whether it is about Weft: by its path
//! (`prefix.rs`, `walk.rs`) or its descriptor (`table.rs`, `reserve.rs`). If so it becomes one of
//! `weft-library`; if not the C library's own call is made (`real.rs`).
//!
//! It never holds file system state beside what is open, never does to another file what cannot be
//! done to the one that was named (it is refused with an errno), and never lets a panic out.
//!
//! # Safety of all functions
//! They are C's, and programs keep what the manual says of each: strings end with NUL, memory is as
//! long as is said, and what is given is used until it is given back. What can be checked is.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![allow(unsafe_code)] // functions that C calls, the memory that it names, and calls of the kernel
#![allow(unsafe_op_in_unsafe_fn)] // above, for all of them
#![allow(non_snake_case)] // names are C's
#![allow(clippy::missing_safety_doc)] // above, for all of them
#![cfg_attr(test, allow(dead_code))] // what only programs call

mod attributes;
mod border;
mod cwd;
mod data;
mod exec;
mod handing;
mod jumps;
mod listing;
mod locks;
mod mapping;
mod names;
mod opening;
mod prefix;
mod process;
mod real;
mod reserve;
mod resolve;
mod session;
mod shown;
mod spawn;
mod stdio;
mod table;
mod walk;
mod xattrs;
