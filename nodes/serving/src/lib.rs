//! `weft-serving`: what metadata servers and data servers have in common. A server says what it
//! executes ([`Service`]); here are the loop of turns ([`serve`]), what trace, live numbers and
//! counters hear of a request ([`ServedRequest`]), requests that wait for locks, what a server
//! tells about itself ([`Shell`]), what it promises ([`Durability`]) and how servers get to know
//! each other ([`Introduction`]).
//!
//! It never decides what a request does, and never looks at what a server keeps.
//!
//! # A turn
//! ```text
//! receive everything that has arrived           (Service::intake says when)
//! make room for what will be changed            (Service::make_room)
//! execute, or start what takes longer           (Service::work)
//! one commit                                    (Service::commit)
//! all answers leave; some wait until their changes are on stable storage
//! start what the turn has made necessary        (Service::look_after)
//! ```

mod access;
mod any;
mod config;
mod container;
mod contract;
mod error;
mod introduction;
mod keys;
mod meeting;
mod requests;
mod served;
mod service;
mod set_contract;
mod shell;
mod start;
#[cfg(test)]
mod tests;
mod turns;

pub use any::answer_of_any;
pub use config::{BATCH_INTERVAL_NS_DEFAULT, Meets, Process, ServingConfig};
pub use container::{find_container, make_container};
pub use contract::{Durability, Engine};
pub use error::ServerError;
pub use introduction::Introduction;
pub(crate) use introduction::first_map;
pub use keys::KeyLists;
pub use meeting::introduce;
pub use served::{Parked, ServedRequest};
pub use service::{Intake, OutgoingReplies, OutgoingReply, Service};
pub use shell::{Identity, ServerLoad, Shell};
pub use start::{Life, begin_life, find_store, make_journal, make_superblock, replay_journal, stored_durability};
pub use turns::{connection, finish, serve};
