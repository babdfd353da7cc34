//! `weft-nfs`: a file system for unmodified NFS clients: NFSv3, MOUNT v3 and NLM v4 (RFC 1813) over
//! TCP, by any number of gateways at once. It is thin over `weft-posix`: what callers may see of
//! each other is decided there and at the servers.
//!
//! * A call is carried out by [`Nfs::answer`], from its bytes to those of its answer; connections
//!   and threads around it are [`Serving`]'s business.
//! * File handles name objects and are checked (`handles.rs`); what a call wants is asked for at
//!   the servers with the user that it names (`exports.rs`).
//! * The client below keeps leases, so most questions about attributes cost no message, and what
//!   another gateway or mount changes is true here at once.
//! * Locks of clients' programs are locks of the file system; whose they are is known to the
//!   gateway that took them (`locks/`).
//!
//! It never holds file system state beside files that were open a moment ago or are locked, never
//! keeps data, and never names the runtime that drives it.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod calls;
mod exports;
mod gateway;
mod handles;
mod locks;
mod mounts;
mod opens;
mod portmap;
mod procedures;
mod records;
mod replies;
mod rpc;
mod serve;
#[cfg(test)]
mod tests;
mod timed;
mod types;
mod xdr;

pub use exports::{Export, Network, Squash};
pub use gateway::{Nfs, Peer, Warnings};
pub use portmap::{Registered, register};
pub use rpc::RpcAnswer;
pub use serve::Serving;
