//! What a dashboard asks a server again and again: [`ServerInfo`], and counters since the start
//! from which any number of askers compute rates, each by its own clock and at its own pace. The
//! reply has a bound: lists are as long as [`TOP_MAX`] and [`OLDEST_MAX`] say.
//!
//! An operation of its own, not more fields in the answer to a ping: a ping is asked by every `df`
//! and decoded by older clients, which refuse bytes that they do not know.

use weft_base::{ClientId, Handle};

use super::server::ServerInfo;
use crate::wire_struct;

/// Most rows of each list of the busiest.
pub const TOP_MAX: usize = 16;
/// Most requests in the list of the oldest.
pub const OLDEST_MAX: usize = 16;

wire_struct! {
    /// Nothing to say.
    pub struct LiveRequest {}

    /// How a server is and what it has done. Numbers without a word about time are sums since its
    /// start.
    pub struct LiveReply {
        /// Who and how it is.
        pub info: ServerInfo,
        /// Bytes of files that clients were given.
        pub read_bytes: u64,
        /// Bytes of files that clients wrote.
        pub written_bytes: u64,
        /// Requests that are here now and not answered.
        pub queued: u32,
        /// Clients with a connection now.
        pub clients: u32,
        /// Bytes of writes that the cache layer holds now, answered and not on the disk (data
        /// servers).
        pub cache_bytes: u64,
        /// Most bytes that it may hold so; 0 if writes are answered only when the disk has them.
        pub cache_bytes_max: u64,
        /// Operations that were asked for, by number.
        pub operations: Vec<OperationUse>,
        /// The time that the lists of the busiest are about, in nanoseconds before now.
        pub top_ns: u64,
        /// Clients with most requests; then key is their number.
        pub clients_by_requests: Vec<TopRow>,
        /// Clients with most bytes of files, read and written.
        pub clients_by_bytes: Vec<TopRow>,
        /// Objects with most requests: the directory of a request with a name, else the object
        /// itself; the key is its handle.
        pub objects_by_requests: Vec<TopRow>,
        /// Objects with most bytes, read and written.
        pub objects_by_bytes: Vec<TopRow>,
        /// The oldest requests that are not answered, oldest first.
        pub oldest: Vec<WaitingRequest>,
        /// Where the clients are that these lists name, as far as that is known.
        pub client_names: Vec<ClientName>,
        optional {
            /// Bytes of memory that names and inodes take, but for those in the page file (metadata
            /// servers).
            2 pub page_memory_bytes: u64,
            /// Bytes of names and inodes that are in the page file.
            4 pub page_file_bytes: u64,
        }
    }

    /// What was asked for under one number of an operation.
    pub struct OperationUse {
        /// The number; 0: one that the server does not know.
        pub op: u16,
        /// Requests that were answered, repetitions included.
        pub count: u64,
        /// Of these, answered with an error.
        pub failed: u64,
        /// Time in the server, from the turn that took the request to its answer, in nanoseconds.
        /// The sum over all operations, divided by the time that passed, is the mean number of
        /// requests in the server (Little's law).
        pub total_ns: u64,
        /// How many took how long: slot k holds those below 2^(10+k) ns and not below half of that.
        /// Empty slots are left out; the last one has no upper limit.
        pub slots: Vec<LatencySlot>,
    }

    /// Requests of one slot.
    pub struct LatencySlot {
        /// Its number.
        pub slot: u8,
        /// How many.
        pub count: u64,
    }

    /// One of the busiest. The true number is between `count - error` and `count`.
    pub struct TopRow {
        /// A client or a handle.
        pub key: u64,
        /// Requests or bytes, at most.
        pub count: u64,
        /// How much less it may be.
        pub error: u64,
    }

    /// Where a client is.
    pub struct ClientName {
        /// The client.
        pub client: ClientId,
        /// For people: `pid 123` on the machine of the server, or a network address.
        pub name: String,
    }

    /// A request that is not answered.
    pub struct WaitingRequest {
        /// Number of the operation.
        pub op: u16,
        /// Who asked.
        pub client: ClientId,
        /// The object or directory it is about; 0 if none.
        pub object: Handle,
        /// How long it has been here, in nanoseconds.
        pub age_ns: u64,
    }
}
