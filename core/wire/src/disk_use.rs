//! What a data server says of its disk.

use crate::wire_struct;

wire_struct! {
    /// Operations of the disk that holds the data of a server, since its start.
    pub struct DiskUse {
        /// `none`, `write_behind`, `aggregation` or `server_directed`.
        pub cache_layer: String,
        /// Reads.
        pub reads: u64,
        /// Bytes that they asked for.
        pub read_bytes: u64,
        /// Writes.
        pub writes: u64,
        /// Bytes of them.
        pub written_bytes: u64,
        /// Operations that began where the one before ended.
        pub sequential: u64,
        /// Operations that began less than 5 MiB from there.
        pub near: u64,
        /// All others.
        pub far: u64,
        /// Accesses of requests that met in the cache layer; what did not meet others went to the
        /// disk as it was.
        pub gathered: u64,
        /// Operations that these became.
        pub gathered_jobs: u64,
        /// Bytes that were read only because they lay between others.
        pub sieved_bytes: u64,
    }
}
