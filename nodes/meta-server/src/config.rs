//! What a metadata server is told, and why it stops.

use weft_base::{ClientId, SECOND};
use weft_serving::ServingConfig;

/// Room for extended attributes in memory unless the configuration says otherwise, in bytes: that
/// of half a million inodes.
const XATTR_BYTES_MAX_DEFAULT: u64 = 256 << 20;

/// A directory is spread over more servers if it has more names on one.
pub const SPLIT_NAMES_MAX_DEFAULT: u64 = 65_536;

/// Everything that a metadata server needs besides its runtime.
#[derive(Clone, Debug)]
pub struct MetaServerConfig {
    /// What every server is told.
    pub serving: ServingConfig,
    /// Who the server is when it asks other servers; must be the identity that its runtime shows
    /// them, and new for every start (or with a higher incarnation). `None`: drawn at the start.
    pub identity: Option<(ClientId, u32)>,
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
    /// When and how names of directories go to other servers.
    pub split: SplitConfig,
    /// Under `sync` each change has a flush of its own, as in the synchronous mode of PVFS2: a
    /// yardstick for the journal engine, which flushes once for all that waits.
    pub flush_each: bool,
    /// Takes a line for people about something that a user of this server (its name) has done
    /// wrong. Any user can make it be called.
    pub warn: Option<fn(server: &str, what: &str)>,
    /// Files up to so many bytes lie beside their inodes where no hint says otherwise; 0: none.
    /// With the engine `journal` alone.
    pub inline_limit: u32,
    /// User and group of the root directory when it is made.
    pub root_owner: (u32, u32),
}

/// When and how names of directories that are in use go to other servers.
#[derive(Clone, Debug)]
pub struct SplitConfig {
    /// Most names that move as one change; fewer where that takes long.
    pub slice_names: u32,
    /// A directory with more names on each of its servers is spread over more servers; 0: no
    /// directory is spread by itself.
    pub names_max: u64,
    /// After a directory was spread, and for so long after it was tried, it stays as it is, in
    /// nanoseconds.
    pub rest_ns: u64,
    /// One request of so many is looked at to find the directories that are asked for most.
    pub sample_every: u32,
    /// A fifth of a second in which fewer were looked at says nothing.
    pub samples_min: usize,
    /// A server is busy that works for this share of its time, in thousandths: then a directory
    /// that several clients ask for is spread over others.
    pub busy_permille: u64,
    /// A directory that was spread by itself goes back after so long a calm, in nanoseconds.
    pub calm_ns: u64,
}

impl Default for SplitConfig {
    fn default() -> SplitConfig {
        SplitConfig {
            slice_names: 256,
            names_max: SPLIT_NAMES_MAX_DEFAULT,
            rest_ns: 10 * SECOND,
            sample_every: 17,
            samples_min: 16,
            busy_permille: 600,
            calm_ns: 60 * SECOND,
        }
    }
}

impl MetaServerConfig {
    /// The usual settings for the rest.
    pub fn new(serving: ServingConfig) -> MetaServerConfig {
        MetaServerConfig {
            serving,
            identity: None,
            session_grace_ns: 30 * SECOND,
            reply_retention_ns: 600 * SECOND,
            patience_ns: 5 * SECOND,
            capability_ns: 3600 * SECOND as i64,
            xattr_bytes_max: XATTR_BYTES_MAX_DEFAULT,
            split: SplitConfig::default(),
            flush_each: false,
            warn: None,
            inline_limit: 0,
            root_owner: (0, 0),
        }
    }
}
