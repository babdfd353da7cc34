//! Live numbers of a running file system: [`watch`] asks every server again and again, each from a
//! thread of its own, so that one that is silent delays nobody; [`snapshot`] makes rates of two
//! answers; [`weft_host::paths`] finds paths for handles. What is seen goes to a terminal
//! (`screen`, `terminal`), to a monitoring system ([`metrics`], [`exporter`]) or to the page of
//! `weft view --live`. It only asks and never changes a server. `docs/live.md` says what the
//! numbers mean and cost.
// A full disk or a reader who has gone must not end a process, and these macros panic then: see
// `write_line` of `weft-rt-real`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod exporter;
pub mod metrics;
mod screen;
pub mod snapshot;
mod space;
mod terminal;
mod text;
pub mod watch;

pub use screen::tables;
pub use space::Space;
pub use terminal::show;
