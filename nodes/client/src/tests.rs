//! Tests of the operations against real servers in virtual time; those of files are in
//! `files/tests`.

mod calls;
mod namespace;
mod partitions;
mod sizes;
pub(crate) mod world;
