//! `weft-sim-tests`: whole clusters in virtual time, and what proves them right: random histories
//! of several clients ([`workload`]) under random faults ([`plan`]), judged by a reference model
//! ([`model`], [`linear`]), byte by byte ([`registers`]) and by a final examination of the servers
//! ([`audit`]). A seed is a whole run: [`run_seed`].
//!
//! Beside that it has a mount without a kernel ([`mount`]), and what the tests of `explain` with
//! one slow place share with those of real processes ([`delays`]).
//!
//! It never looks inside a server: what it judges is what clients can see, and what remains when
//! everything is removed.

pub mod asked;
pub mod audit;
pub mod cluster;
pub mod delays;
pub mod history;
pub mod linear;
mod losses;
mod many;
pub mod model;
pub mod mount;
pub mod plan;
mod put;
pub mod registers;
mod run;
pub mod stage;
mod statuses;
pub mod times;
pub mod workload;

pub use run::{Report, run_plan, run_seed};
