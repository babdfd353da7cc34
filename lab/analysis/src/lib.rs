//! Runs, analysed: trace files and results of `weft bench` become a [`run::Run`] with its spans on
//! [`lanes`] and a pyramid of `tiles` for each; the other modules answer questions about it. The
//! page, reports, pictures and exports show what they say. `docs/viewer.md`.
//!
//! It never changes a file, and never asks a server.
// A full disk or a reader who has gone must not end a process, and these macros panic then: see
// `write_line` of `weft-rt-real`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod bounds;
pub mod by_hand;
pub mod calls;
pub mod compare;
pub mod details;
pub mod drawn;
pub mod ecdf;
pub mod filter;
mod formula;
mod hdtrace;
pub mod histogram;
pub mod inputs;
mod kept;
pub mod lanes;
pub mod latency;
pub mod levels;
pub mod limits;
pub mod metrics;
pub mod pattern;
pub mod profile;
pub mod results;
mod room;
pub mod run;
pub mod running;
#[cfg(test)]
#[path = "../tests/sample/mod.rs"]
mod sample;
pub mod sublane;
pub mod table;
mod tiles;
pub mod traces;
mod tracks;
pub mod window;
