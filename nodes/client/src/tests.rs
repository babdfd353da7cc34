//! Tests of the operations against real servers in virtual time.

mod calls;
mod data;
mod namespace;
mod opens;
mod partitions;
mod races;
mod restarts;
mod sizes;
mod sync;
mod world;
