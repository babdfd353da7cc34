//! `weft-rt-real`: the seam of `weft-rt` on Linux. Two runtimes: [`serve`] gives a server one
//! thread with its own executor, sockets and files ([`ShardRt`]); [`ClientRt`] gives a client
//! process one connection per server, shared by all its threads, each of which drives its own
//! flows.
//!
//! It never knows what a request means, and never lets one connection's silence, garbage or greed
//! hold up the others.
//!
//! # Budget
//! A synchronous request costs the client a send, a poll and a receive, the server an epoll wait, a
//! receive and a send; no thread hands anything over to another. In windows every call is shared by
//! all the requests of a turn. `weft bench stat --fs FS --ceiling` compares both with a bare loop
//! over the same kind of socket.
//!
//! Bulk data between processes of one machine takes memory that both share (`region`), everything
//! else the socket.
//!
//! All `unsafe` is in `sys` and `region/memory.rs`.
// A full disk or a reader who has gone must not end a process, and these macros panic then: see
// `write_line` of `weft-rt-real`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod address;
mod client;
mod clock;
mod disk;
mod envelopes;
mod fault;
mod handshake;
mod inbound;
mod keys;
mod log_lines;
mod offload;
mod outbound;
mod pool;
mod region;
mod shard;
mod sys;

pub use address::{Address, AddressError};
pub use client::{ClientConfig, ClientRt, ClientStats, FetchError};
pub use clock::random_client_id;
pub use disk::{DirDisk, MemDisk, RealDisk};
pub use fault::set_delays;
pub use keys::Keys;
pub use log_lines::{Level, keep_log_small, logs_to_file, reopen_log, write_line};
pub use shard::{DiskConfig, LimitedLog, Log, ServeError, Shard, ShardConfig, ShardRt, StopHandle, serve};
pub use sys::{
    PageBytes, PagedHeap, do_with_few_addresses, give_freed_memory_back, keep_descriptors_from, keep_descriptors_to_ourselves,
    keep_pages_in, outlive_the_file_size_limit, page_bytes,
};

use std::sync::{Mutex, MutexGuard};

use weft_wire::ClusterKey;

/// Stands for the key where there is none: the handshake then proves nothing, so servers keep to
/// this machine.
const OPEN_KEY: ClusterKey = ClusterKey([0; 32]);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while it holds this lock")
}
