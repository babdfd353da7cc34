//! What a metadata server is told, and why it stops.

use weft_base::{ClientId, ClusterMap, SECOND, ServerId};
use weft_serving::{Durability, Engine};
use weft_store::journal::SEGMENT_BYTES_DEFAULT;
use weft_wire::ClusterKey;
use weft_wire::ops::TraceService;

/// Room for extended attributes in memory unless the configuration says otherwise, in bytes: that
/// of half a million inodes.
const XATTR_BYTES_MAX_DEFAULT: u64 = 256 << 20;

/// Everything that a metadata server needs besides its runtime.
#[derive(Clone, Debug)]
pub struct MetaServerConfig {
    /// Its number.
    pub server: ServerId,
    /// Its name in messages for people.
    pub name: String,
    /// The file system.
    pub map: ClusterMap,
    /// Signs capabilities; all servers of the file system have the same.
    pub key: ClusterKey,
    /// Who the server is when it asks other servers; must be the identity that its runtime shows
    /// them, and new for every start (or with a higher incarnation). `None`: drawn at the start.
    pub identity: Option<(ClientId, u32)>,
    /// Make new, empty metadata if the disk holds none; otherwise that is an error.
    pub create: bool,
    /// Serve only when the others know the store of this server (of the engine `journal`). Tests of
    /// one server alone say no.
    pub meets_others: bool,
    /// What keeps the metadata over a restart.
    pub engine: Engine,
    /// What an acknowledged change has survived.
    pub durability: Durability,
    /// Bytes of a journal segment, at least 4 MiB in production; a turn's records fit one.
    pub journal_segment_bytes: u64,
    /// A checkpoint is begun when the journal since the last one has so many bytes.
    pub checkpoint_bytes: u64,
    /// How long the open files of a client are kept after its last connection broke, and how long a
    /// restarted server waits for clients to tell what they have open, in nanoseconds.
    pub session_grace_ns: u64,
    /// How long answers are kept for a client after its session has ended, in nanoseconds. Longer
    /// than any client's deadline.
    pub reply_retention_ns: u64,
    /// How long a change that meets other transactions is tried again, in nanoseconds.
    pub patience_ns: u64,
    /// How long capabilities hold, in nanoseconds.
    pub capability_ns: i64,
    /// What extended attributes may take in memory, in bytes; beyond that they are refused with "no
    /// space".
    pub xattr_bytes_max: u64,
    /// Owner of the root directory of a new file system.
    pub root_uid: u32,
    /// Group of the root directory of a new file system.
    pub root_gid: u32,
    /// What executes commands about the recording of traces; `None`: they are refused.
    pub trace: Option<TraceService>,
}

impl MetaServerConfig {
    /// The usual settings for metadata server `server` of `map`.
    pub fn new(server: ServerId, map: ClusterMap, key: ClusterKey) -> MetaServerConfig {
        let name = map.server(server).map_or_else(|| server.to_string(), |entry| entry.name.clone());
        MetaServerConfig {
            server,
            name,
            map,
            key,
            identity: None,
            create: false,
            meets_others: true,
            engine: Engine::Journal,
            durability: Durability::BATCH_DEFAULT,
            journal_segment_bytes: SEGMENT_BYTES_DEFAULT,
            checkpoint_bytes: 256 << 20,
            session_grace_ns: 30 * SECOND,
            reply_retention_ns: 600 * SECOND,
            patience_ns: 5 * SECOND,
            capability_ns: 3600 * SECOND as i64,
            xattr_bytes_max: XATTR_BYTES_MAX_DEFAULT,
            root_uid: 0,
            root_gid: 0,
            trace: None,
        }
    }
}
