//! The physical ceilings of a machine: what a processor, a socket, the kernel's FUSE interface and
//! a disk allow at best, so that every other result can be given as a ratio to a bound measured in
//! the same run.
//!
//! This crate never touches Weft's protocol, its client or its servers, so a mistake there cannot
//! move a ceiling.
//!
//! Each measurement takes a [`Reps`] (how long one repetition runs, how many there are), is bounded
//! by it in time, and answers with a [`Measured`]: median, smallest and greatest repetition, and
//! the unit.
//!
//! | module | ceiling |
//! |---|---|
//! | [`cpu`] | memory copy, system call, hand-over between two threads |
//! | [`rpc`] | bare request and reply, and bulk streams, over a Unix socket and TCP loopback |
//! | [`null_fuse`] | a FUSE file system that does nothing, driven by plain system calls |
//! | [`disk`] | durable appends, streams and file creation in a directory |
//! | [`paths`] | the system-call loops behind `null_fuse` and `disk`, usable on any directory |
//!
//! Servers that are measured against run in a process of their own: [`ServerSpawner`] starts the
//! current program again with a hidden subcommand, whose whole body is [`serve_child`]. [`run_all`]
//! measures everything.

mod child;
pub mod cpu;
pub mod disk;
mod measure;
pub mod null_fuse;
pub mod paths;
pub mod rpc;
mod run;
mod sys;

pub use child::{Server, ServerRole, ServerSpawner, serve_child};
pub use measure::{Measured, Reps};
pub use run::{CeilingRow, Ceilings, Options, Skipped, run_all};
