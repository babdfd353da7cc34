//! Live numbers of a running file system: [`watch`] asks every server again and again, each from a thread of its own, so that one
//! that is silent delays nobody; [`snapshot`] makes rates of two answers; [`names`] finds paths for handles. What is seen goes to a terminal
//! ([`screen`], [`terminal`]), to a monitoring system ([`metrics`], [`exporter`]) or to the page of `weft view --live`. It only asks. `docs/live.md` says
//! what the numbers mean and cost.

pub mod exporter;
pub mod metrics;
pub mod names;
pub mod screen;
pub mod snapshot;
pub mod space;
pub mod terminal;
pub mod text;
pub mod watch;
