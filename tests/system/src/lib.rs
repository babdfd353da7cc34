//! `weft-system-tests`: what proves the whole program, as a user meets it: real processes started
//! by the binary `weft` ([`FileSystem`]), a real mount, real kills, and bytes that no honest peer
//! would send ([`fuzzing`]). The tests are in `tests/`; here is what they share.
//!
//! It never calls the servers or the client library: whatever it knows, it knows from the command
//! line, the mount or the wire.
#![deny(unsafe_code)] // except in `mapping`

mod filesystem;
pub mod fsx;
pub mod fuzzing;
pub mod load;
mod machine;
mod mapping;
mod needs;
mod nfs_gateway;
mod pair;
mod process;
mod program;
mod random;
pub mod socket;
mod uring;
mod user;
pub mod verdict;

pub use filesystem::FileSystem;
pub use machine::Machine;
pub use mapping::Mapping;
pub use needs::{Need, available, skip};
pub use nfs_gateway::NfsGateway;
pub use pair::Pair;
pub use process::{alive, signal, states_of_threads};
pub use program::{Finished, built, cargo, fails, ok, run, wait_until, weft, weft_for_others};
pub use random::Random;
pub use rustix::process::Signal;
pub use uring::Uring;
pub use user::as_user;
