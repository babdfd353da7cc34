//! `weft-serving`: what metadata servers and data servers have in common: what they promise ([`Durability`]), and how they get to know each
//! other ([`Introduction`]).
//!
//! It never decides what a request does, and never looks at what a server keeps.

mod contract;
mod introduction;

pub use contract::{Durability, Engine};
pub use introduction::{Introduction, REGISTRAR, is_for_strangers, why_not_introduced};
