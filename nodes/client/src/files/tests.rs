//! Tests of files against real servers in virtual time.

mod data;
mod holes;
mod opens;
mod races;
mod restarts;
mod sync;
