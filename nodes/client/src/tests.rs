//! Tests of the operations against the test double.

mod calls;
mod data;
mod namespace;
mod opens;
mod sizes;
mod sync;
