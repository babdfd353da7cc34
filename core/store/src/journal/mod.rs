//! The journal: the ordered list of everything that was decided, kept in preallocated segment
//! files.
//!
//! A segment is a header block and then frames, one per group commit; a frame carries the records
//! of one turn of the server. Records are opaque here and numbered by their [`Lsn`]. Writers go
//! through [`JournalWriter`] (or [`FrameBuilder`] alone), readers through [`Replay`] (or [`scan`]
//! for one segment).
//!
//! Where a journal ends is a question of trust, because three things look alike: the unwritten rest
//! of the segment, a frame that a power cut tore, and damage to a frame that was acknowledged. The
//! format answers it by five rules, which the nodes obey:
//!
//! 1. **Before a segment is begun** (its header written), all earlier segments are synced; the new
//!    header is synced before the first frame follows. So a gap between segments is always damage,
//!    and so is a frame below an unreadable header.
//! 2. **A restarted server goes on where its journal ends**, behind its last whole frame, after it
//!    has overwritten everything behind that with zeros and synced the zeros. Otherwise a frame
//!    written over a torn one could make an older frame behind it look like its successor.
//! 3. **Every frame tells how far the journal was durable** when it was sealed. A hole followed by
//!    a frame that says the hole was durable is damage ([`EndReason::DamageInside`]) and nobody may
//!    go on; a hole without such a witness lost only what was never promised to survive a power cut
//!    ([`EndReason::LostUnsynced`]).
//! 4. **Every segment has a random salt**, drawn by the caller, that seeds the checksum of its
//!    frame headers. Frames of an earlier life of a recycled file, or user data that happens to
//!    look like a frame, do not pass.
//!
//! 5. **A writer that rests says so**: when everything is on stable storage and nothing more comes,
//!    it writes a *mark* where the next frame will go: a frame header without records that tells,
//!    as rule 3 has it, that all before it is durable. So the last frame has a witness too. The
//!    next frame is written over the mark, and carries the same witness.
//!
//! All frames of a segment are aligned to 8 bytes. A frame may share a disk sector with its
//! predecessor; the rewritten sector carries the same old bytes, so a disk that writes sectors
//! whole cannot hurt what was durable.

mod follow;
mod frame;
mod replay;
mod scan;
mod segment;
mod writer;

use std::fmt;

pub use follow::{FrameAt, frame_at};
pub use frame::{FRAME_HEADER_BYTES, FrameBuilder, MARK_BYTES};
pub use replay::{Replay, ReplayEnd, ReplayError, first_segment_for};
pub use scan::{EndReason, Scan, SegmentRecords, scan};
pub use segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
pub use writer::{Append, JournalWriter};

/// Version of the segment and frame layout.
pub const JOURNAL_VERSION: u32 = 2;

/// The usual size of the first segment file in bytes; a journal that grows takes larger ones.
pub const SEGMENT_BYTES_DEFAULT: u64 = 16 << 20;

/// Frames begin at multiples of this many bytes.
pub const FRAME_ALIGN: usize = 8;

/// Log sequence number: counts the records of one server's journal from 1, without gaps, over all
/// segments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before the first record.
    pub const NONE: Lsn = Lsn(0);
    /// The first record of a journal.
    pub const FIRST: Lsn = Lsn(1);

    /// The number after this one.
    pub fn next(self) -> Lsn {
        Lsn(self.0 + 1)
    }

    /// The number before this one; [`Lsn::NONE`] stays.
    pub fn prev(self) -> Lsn {
        Lsn(self.0.saturating_sub(1))
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lsn{}", self.0)
    }
}
impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
