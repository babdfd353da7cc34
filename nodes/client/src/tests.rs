//! Tests of the operations against real servers in virtual time; those of files are in
//! `files/tests`.

mod calls;
mod inline;
mod many;
mod namespace;
mod partitions;
mod quotas;
mod sizes;
mod trash;
mod trees;
pub(crate) mod world;
