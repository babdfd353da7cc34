//! What every server answers: who it is and how it is, and the cluster map.

use weft_base::{ClusterMap, FsId, ServerEntry, ServerId};

use crate::disk_use::DiskUse;
use crate::{NameKey, wire_struct};

wire_struct! {
    /// Nothing to say.
    pub struct PingRequest {}

    /// What a server says of itself.
    #[derive(Default)]
    pub struct ServerInfo {
        /// Its file system.
        pub fs_id: FsId,
        /// Name of the file system.
        pub fs_name: String,
        /// Its number.
        pub server: ServerId,
        /// Its name.
        pub name: String,
        /// True if the root directory is here; of exactly one server in a file system.
        pub owns_root: bool,
        /// `memory` or `journal`.
        pub engine: String,
        /// `sync`, `batch` or `none`.
        pub durability: String,
        /// `serving`, or what it does instead (`replaying`, `read-only: ...`).
        pub state: String,
        /// Milliseconds since it started.
        pub uptime_ms: u64,
        /// Counts its starts.
        pub boot: u32,
        /// Inodes or datafiles.
        pub objects: u64,
        /// Bytes used for them.
        pub used_bytes: u64,
        /// Bytes that it could hold.
        pub capacity_bytes: u64,
        /// Bytes still free.
        pub free_bytes: u64,
        /// Requests received since the start.
        pub requests: u64,
        /// Bytes received since the start.
        pub received_bytes: u64,
        /// Bytes sent since the start.
        pub sent_bytes: u64,
        /// Processor time used since the start, in microseconds.
        pub cpu_us: u64,
        /// Turns of its loop that had requests; requests / turns is the size of a batch.
        pub turns: u64,
        /// Writes to the journal.
        pub journal_writes: u64,
        /// Flushes of the journal to stable storage.
        pub journal_syncs: u64,
        /// What it has asked of the disk that holds the data (data servers).
        pub disk: Option<DiskUse>,
        /// The disk below its folder: servers that name the same one share its space. 0: not known.
        pub device: u64,
        /// Bytes that are free there.
        pub device_free_bytes: u64,
    }

    /// A server introduces itself to another. Births are drawn when a store is made, so a store
    /// that was lost and made again has another one.
    pub struct MeetRequest {
        /// Who asks, as its own configuration says.
        pub server: ServerEntry,
        /// Its birth; 0 if nothing outlives it.
        pub birth: u64,
        /// The birth of the server that is asked, as the asker knows it; 0 if it does not.
        pub yours: u64,
        /// The newest epoch of the cluster map that the asker has seen.
        pub epoch: u32,
        /// Given by metadata server 0, which decides about it: the cluster map.
        pub map: Option<ClusterMap>,
    }

    /// The answer to somebody who is who he was.
    pub struct MeetReply {
        /// The birth of the server that was asked.
        pub birth: u64,
        /// The newest epoch of the cluster map that it has seen.
        pub epoch: u32,
        /// Given by metadata server 0: the cluster map, the asker in it.
        pub map: Option<ClusterMap>,
        optional {
            /// Who answers, as its own configuration says.
            2 pub server: ServerEntry,
            /// The newest record in its journal that is on stable storage.
            4 pub durable_lsn: u64,
            /// The same of the asker, as this server has heard and noted it.
            6 pub yours_lsn: u64,
            /// The store of this server is an older copy of itself, and goes on all the same.
            8 pub is_older: bool,
        }
    }

    /// Under which contract changes are acknowledged from now on, until somebody sets another one.
    pub struct SetDurabilityRequest {
        /// `sync`, `batch` or `none`.
        pub durability: String,
    }

    /// Nothing to say.
    pub struct GetMapRequest {}

    /// What everybody must know who uses the file system.
    pub struct GetMapReply {
        /// The servers, and where files are.
        pub map: ClusterMap,
        /// The key of the hash of names, by which a directory's entries are spread over servers.
        pub name_key: NameKey,
    }

    /// A server asks for the list of keys, piece by piece.
    pub struct GetKeysRequest {
        /// The fingerprint of the list that the asker has; 0: none.
        pub known: u64,
        /// Where the next piece begins.
        pub offset: u32,
    }

    /// A piece of the list of keys; nothing if it is the one that the asker has.
    pub struct GetKeysReply {
        /// The fingerprint of the list. Another one than before: it has changed, and is read from
        /// its beginning.
        pub fingerprint: u64,
        /// The bytes of the whole list.
        pub total_bytes: u32,
        /// Those from the offset on, as many as fit.
        pub piece: Vec<u8>,
    }
}
