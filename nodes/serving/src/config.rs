//! What every server is told.

use std::sync::Arc;

use weft_base::{ClusterMap, MILLISECOND, ServerId, ServerRole};
use weft_journal::{JournalConfig, SEGMENT_BYTES_DEFAULT};
use weft_wire::ClusterKey;
use weft_wire::ops::TraceService;

use crate::{Durability, Engine, KeyLists};

/// The usual [`ServingConfig::batch_interval_ns`].
pub const BATCH_INTERVAL_NS_DEFAULT: u64 = 50 * MILLISECOND;

/// What metadata servers and data servers are told alike.
#[derive(Clone, Debug)]
pub struct ServingConfig {
    /// Its number.
    pub server: ServerId,
    /// Its name in messages for people.
    pub name: String,
    /// The file system.
    pub map: ClusterMap,
    /// Signs capabilities; all servers of the file system have the same.
    pub key: ClusterKey,
    /// Make a new, empty store if the disk holds none; otherwise that is an error.
    pub create: bool,
    /// How it introduces itself.
    pub meets: Meets,
    /// What keeps its state over a restart.
    pub engine: Engine,
    /// What an acknowledged change has survived.
    pub durability: Durability,
    /// Nanoseconds between flushes under `batch` while there is something to flush.
    pub batch_interval_ns: u64,
    /// Bytes of a journal segment, at least 4 MiB in production; the records of a batch fit one.
    pub journal_segment_bytes: u64,
    /// A checkpoint is begun when the journal since the last one has so many bytes, and as many as
    /// that one.
    pub checkpoint_bytes: u64,
    /// What the process around it does for it.
    pub process: Process,
}

/// How a server introduces itself to the others. It serves only when they know its store (of an
/// engine that keeps one).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meets {
    /// With a store that has everything it has ever had.
    Others,
    /// With one that is an older copy of itself, or has lost the end of its journal: what is
    /// missing counts as lost.
    OthersWithOlderStore,
    /// It does not: tests of one server alone.
    Nobody,
}

/// What the process around a server does for it.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Executes commands about the recording of traces; `None`: they are refused.
    pub trace: Option<TraceService>,
    /// Knows the keys that are accepted; `None`: there are none.
    pub keys: Option<Arc<dyn KeyLists>>,
    /// Gives memory that was freed back to the system, without waiting for that.
    pub give_freed_memory_back: Option<fn()>,
    /// Says how many bytes of memory names and inodes take, and how many of the page file.
    pub page_bytes: Option<fn() -> (u64, u64)>,
}

impl ServingConfig {
    /// The usual settings for this server of `map`.
    pub fn new(server: ServerId, map: ClusterMap, key: ClusterKey) -> ServingConfig {
        ServingConfig {
            server,
            name: map.name(server),
            map,
            key,
            create: false,
            meets: Meets::Others,
            engine: Engine::Journal,
            durability: Durability::Batch,
            batch_interval_ns: BATCH_INTERVAL_NS_DEFAULT,
            journal_segment_bytes: SEGMENT_BYTES_DEFAULT,
            checkpoint_bytes: match server.role() {
                // It holds every name.
                ServerRole::Meta => 256 << 20,
                ServerRole::Data => 128 << 20,
            },
            process: Process::default(),
        }
    }

    /// What its journal is told.
    pub(crate) fn journal(&self, salt: u64, same_boot: bool) -> JournalConfig {
        JournalConfig {
            segment_bytes: self.journal_segment_bytes,
            same_boot,
            keeps_checkpoint_room: self.server.role() == ServerRole::Meta,
            ..JournalConfig::new(self.map.fs_id, self.server, salt)
        }
    }
}
