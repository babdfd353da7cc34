//! The nouns: what is queued (a piece), what the disk gets (a job), and what a job is made of
//! (parts).

use weft_base::Nanos;

/// Reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// A file, as the owner of the layer numbers it: two accesses disturb each other only within one
/// file, and only within one file is there a notion of nearness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey(pub u64);

/// One contiguous access that waits in a cache layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Read or write.
    pub access: Access,
    /// Where.
    pub file: FileKey,
    /// First byte.
    pub offset: u64,
    /// Length in bytes, not 0.
    pub bytes: u64,
    /// Whatever the owner wants to find again in [`JobPiece::tag`].
    pub tag: u64,
}

impl Piece {
    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// Cuts the piece into pieces of at most `bytes_max` bytes (not 0), in order. Layers never cut
    /// what they are given: whoever must keep to an I/O granularity cuts before
    /// [`crate::CacheLayer::add`]. A larger piece becomes a larger job.
    pub fn cut(self, bytes_max: u64) -> impl Iterator<Item = Piece> {
        assert!(bytes_max > 0, "pieces must grow");
        (0..self.bytes.div_ceil(bytes_max)).map(move |index| {
            let done = index * bytes_max;
            Piece { offset: self.offset + done, bytes: bytes_max.min(self.bytes - done), ..self }
        })
    }
}

/// A piece, or what is left of it, inside a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobPiece {
    /// As in [`Piece::tag`].
    pub tag: u64,
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// One access to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Read or write.
    pub access: Access,
    /// Where.
    pub file: FileKey,
    /// First byte.
    pub offset: u64,
    /// Length in bytes, holes that are read through included.
    pub bytes: u64,
}

impl Job {
    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// What the disk shall do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This, now. It has left the queue.
    Job(Job),
    /// Nothing before this time, if nothing is added and nothing completes before.
    At(Nanos),
    /// Nothing, until something is added or completes (or memory becomes free).
    Idle,
}

/// What waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queued {
    /// Entries: pieces, or what became of them by merging and overwriting.
    pub entries: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What a layer has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerStats {
    /// Pieces added.
    pub added_pieces: u64,
    /// Bytes added.
    pub added_bytes: u64,
    /// Jobs issued, flushed ones included.
    pub jobs: u64,
    /// Bytes of these jobs.
    pub job_bytes: u64,
    /// Queued bytes that newer writes replaced, so that they never reached the disk.
    pub overwritten_bytes: u64,
    /// Bytes that were lost by the fault that [`crate::classic::ClassicConfig::loses_tails`] keeps.
    pub lost_bytes: u64,
    /// Bytes that jobs took along only because they lie between two wanted ranges, whether or not
    /// somebody wanted them soon after.
    pub sieved_bytes: u64,
}

impl LayerStats {
    pub(crate) fn note_added(&mut self, piece: &Piece) {
        self.added_pieces += 1;
        self.added_bytes += piece.bytes;
    }

    pub(crate) fn note_job(&mut self, job: &Job) {
        self.jobs += 1;
        self.job_bytes += job.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_keeps_every_byte_in_order() {
        let piece = Piece { access: Access::Read, file: FileKey(1), offset: 7, bytes: 25, tag: 3 };
        let cut: Vec<_> = piece.cut(10).map(|piece| (piece.offset, piece.bytes, piece.tag)).collect();
        assert_eq!(cut, [(7, 10, 3), (17, 10, 3), (27, 5, 3)]);
        assert_eq!(piece.cut(25).count(), 1);
    }
}
