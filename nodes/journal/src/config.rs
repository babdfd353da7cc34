//! What a journal is told, and what it counts.

use std::ops::RangeInclusive;

use weft_base::{FsId, ServerId};
use weft_store::journal::SEGMENT_BYTES_DEFAULT;

/// The largest segment is so many times as large as the first.
const GROWTH_MAX: u64 = 4;

/// Room for the files of a server beside its journal: superblocks, the header of a container,
/// directories, in bytes.
const SMALL_FILES_BYTES: u64 = 256 << 10;

/// What a journal must know.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    /// The file system.
    pub fs_id: FsId,
    /// The server.
    pub server: ServerId,
    /// Size of the first segment in bytes, at least 64 KiB. Later ones are larger, up to four
    /// times, where the journal grows and the disk has room. A frame (the records of one commit)
    /// must fit the first.
    pub segment_bytes: u64,
    /// A random number; the salts of segments are derived from it.
    pub salt: u64,
    /// For a recovery: the machine has not restarted since the journal was written (the boot ids
    /// are the same), so nothing that was written can be missing, synced or not. What looks like
    /// the work of a power cut is damage then.
    pub same_boot: bool,
    /// There is room for changes only while the disk has room for the next checkpoint, too: without
    /// it nothing that the journal holds is ever given back. Of servers that have little else on
    /// their disk.
    pub keeps_checkpoint_room: bool,
}

impl JournalConfig {
    /// With segments of the usual size.
    pub fn new(fs_id: FsId, server: ServerId, salt: u64) -> JournalConfig {
        JournalConfig { fs_id, server, segment_bytes: SEGMENT_BYTES_DEFAULT, salt, same_boot: false, keeps_checkpoint_room: false }
    }

    pub(crate) fn check(&self) {
        assert!(self.segment_bytes >= 64 << 10, "a segment of {} bytes is too small", self.segment_bytes);
    }

    /// Sizes that segments may have.
    pub(crate) fn segment_sizes(&self) -> RangeInclusive<u64> {
        self.segment_bytes..=self.segment_bytes * GROWTH_MAX
    }

    /// True if a segment may have so many bytes.
    pub(crate) fn is_segment_size(&self, bytes: u64) -> bool {
        self.segment_sizes().contains(&bytes) && bytes.is_multiple_of(self.segment_bytes)
    }
}

/// The least room that a new server needs, in bytes: for the first segment, one in reserve, and the
/// small files beside them.
pub fn bytes_to_begin(segment_bytes: u64) -> u64 {
    2 * segment_bytes + SMALL_FILES_BYTES
}

/// Counters since the journal was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Records appended.
    pub records: u64,
    /// Frames written, one for each commit that had records.
    pub writes: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Flushes to stable storage.
    pub syncs: u64,
}
