//! `weft-nfs`: a file system for unmodified NFS clients: NFSv3 and MOUNT v3 (RFC 1813) over TCP, by
//! any number of gateways at once. It is thin over `weft-posix`: what callers may see of each other
//! is decided there and at the servers.
//!
//! * A call is carried out by [`Nfs::answer`], from its bytes to those of its answer; connections
//!   and threads around it are [`Serving`]'s business.
//! * File handles name objects and are checked (`handles.rs`); what a call wants is asked for at
//!   the servers with the user that it names (`exports.rs`).
//! * The client below keeps leases, so most questions about attributes cost no message, and what
//!   another gateway or mount changes is true here at once.
//!
//! It never holds file system state beside files that were open a moment ago, never keeps data, and
//! never names the runtime that drives it.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod calls;
mod exports;
mod gateway;
mod handles;
mod mounts;
mod opens;
mod procedures;
mod records;
mod replies;
mod rpc;
mod serve;
#[cfg(test)]
mod tests;
mod types;
mod xdr;

pub use exports::{Export, Network, Squash};
pub use gateway::{Nfs, Warnings};
pub use rpc::RpcAnswer;
pub use serve::Serving;
