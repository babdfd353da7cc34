//! Checkpoints: the whole state of a server as a stream of records, so that the journal need not be
//! replayed from its beginning.
//!
//! A checkpoint is **fuzzy**: the state is walked in slices while the server goes on working, so
//! the slices show it at different moments. Recovery loads the checkpoint and replays the journal
//! from `start_lsn`. Why the result is exact:
//!
//! - `start_lsn` is the number of the first record after the walk began; `end_lsn` of the last
//!   record when it ended. A slice taken at some moment between them holds the effects of all
//!   records before that moment.
//! - Every journal record is absolute: its effect on a part of the state (an entry, an inode, a
//!   byte of an object's map) depends on the record alone, or joins by maximum, never on what was
//!   there. Replaying a record whose effect the slice holds already may move that part of the state
//!   back for a while, but the last record that touches the part is replayed last, and leaves it as
//!   it was live. Parts that no record from `start_lsn` on touches are in their slice as they were
//!   at `start_lsn`.
//! - So the state is exact after record `end_lsn` and every later one, but not in between: a
//!   journal that does not reach `end_lsn` cannot complete the checkpoint. Therefore **the journal
//!   is synced through `end_lsn` before a checkpoint counts**, and
//!   [`crate::journal::Replay::finish`] asks for it again.
//!
//! The order for the nodes: write the stream to a temporary file, sync the journal through
//! `end_lsn`, sync the file, rename it to its final name, sync the directory; only then recycle
//! journal segments before `start_lsn` and delete the older checkpoint.
//!
//! The stream is a header, numbered chunks with checksums, and a trailer with counts and a checksum
//! over everything, so an incomplete or patched-together checkpoint is recognised
//! ([`CheckpointReader::finish`]). Records are opaque here.

mod reader;
mod writer;

use crate::Lsn;
use std::fmt;
use weft_base::{ExtensionError, FsId, ServerId};

pub use reader::{CheckpointReader, Chunk};
pub use writer::CheckpointWriter;

/// Version of the checkpoint layout.
pub const CHECKPOINT_VERSION: u32 = 2;
/// Bytes of the header at the beginning of the stream.
pub const CHECKPOINT_HEADER_BYTES: usize = 48;
/// Bytes of the header of a chunk.
pub const CHUNK_HEADER_BYTES: usize = 24;
/// Bytes of the trailer at the end of the stream.
pub const CHECKPOINT_TRAILER_BYTES: usize = 48;
/// A chunk is closed when its records reach this many bytes.
pub const CHUNK_BYTES: usize = 1 << 20;

/// No chunk has a larger payload: it is closed as soon as it reaches [`CHUNK_BYTES`], by at most
/// one largest record.
const CHUNK_PAYLOAD_BYTES_MAX: usize = CHUNK_BYTES + crate::RECORD_BYTES_MAX + 4;

const MAGIC: &[u8; 8] = b"WEFTCKPT";
const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"WCHK");
const TRAILER_MAGIC: u32 = u32::from_le_bytes(*b"WEND");

/// What a checkpoint says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// The file system.
    pub fs_id: FsId,
    /// The server whose state it is.
    pub server_id: ServerId,
    /// Counts the checkpoints of the server from 1.
    pub generation: u64,
    /// The first journal record to replay on top of it.
    pub start_lsn: Lsn,
}

/// A checkpoint that was read to its end and holds together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointEnd {
    /// The header.
    pub header: CheckpointHeader,
    /// The journal record up to which the replay must reach.
    pub end_lsn: Lsn,
    /// Number of chunks.
    pub chunk_count: u64,
    /// Number of records.
    pub record_count: u64,
}

/// Why a checkpoint cannot be used. The nodes then fall back to an older one, if they have it with
/// its journal, or stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointError {
    /// It does not begin like a checkpoint.
    NotACheckpoint,
    /// A format that this version cannot read.
    Version(u32),
    /// It needs this extension, which this version does not know.
    Newer(u16),
    /// It ends before its trailer: it was never completed.
    Incomplete,
    /// Bytes after this offset in the stream fail a check.
    Damaged {
        /// Byte offset in the stream.
        offset: u64,
    },
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointError::NotACheckpoint => write!(f, "not a checkpoint"),
            CheckpointError::Version(v) => write!(f, "checkpoint format {v}, this version reads {CHECKPOINT_VERSION}"),
            CheckpointError::Newer(tag) => write!(f, "checkpoint {}", ExtensionError::Unknown(*tag)),
            CheckpointError::Incomplete => write!(f, "the checkpoint is incomplete"),
            CheckpointError::Damaged { offset } => write!(f, "the checkpoint is damaged at byte {offset}"),
        }
    }
}
impl std::error::Error for CheckpointError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> CheckpointHeader {
        CheckpointHeader { fs_id: FsId(7), server_id: ServerId(2), generation: 4, start_lsn: Lsn(100) }
    }

    fn record(i: usize) -> Vec<u8> {
        vec![i as u8; i % 97]
    }

    fn stream(records: usize, chunk_bytes: usize) -> Vec<u8> {
        let mut writer = CheckpointWriter::with_chunk_bytes(header(), chunk_bytes);
        let mut out = Vec::new();
        for i in 0..records {
            if let Some(bytes) = writer.push(&record(i)) {
                out.extend_from_slice(&bytes);
            }
        }
        out.extend_from_slice(&writer.finish(Lsn(200)));
        out
    }

    fn read(stream: &[u8], piece: usize) -> Result<(Vec<Vec<u8>>, CheckpointEnd), CheckpointError> {
        let mut reader = CheckpointReader::new();
        let mut records = Vec::new();
        for bytes in stream.chunks(piece.max(1)) {
            reader.push(bytes);
            while let Some(chunk) = reader.next_chunk()? {
                records.extend(chunk.records().map(<[u8]>::to_vec));
            }
        }
        Ok((records, reader.finish()?))
    }

    #[test]
    fn round_trip_in_pieces_of_any_size() {
        for (records, chunk_bytes) in [(0, 100), (1, 100), (50, 1), (200, 500), (200, CHUNK_BYTES)] {
            let bytes = stream(records, chunk_bytes);
            for piece in [1, 7, 64, 4096, bytes.len()] {
                let (got, end) = read(&bytes, piece).unwrap();
                assert_eq!(got, (0..records).map(record).collect::<Vec<_>>());
                assert_eq!((end.header, end.end_lsn, end.record_count), (header(), Lsn(200), records as u64));
            }
        }
    }

    #[test]
    fn bytes_behind_the_trailer_do_not_matter() {
        let mut bytes = stream(20, 100);
        bytes.resize(bytes.len() + 5000, 0);
        assert_eq!(read(&bytes, 512).unwrap().0.len(), 20);
    }

    #[test]
    fn every_cut_is_incomplete() {
        let bytes = stream(40, 300);
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut], 256).unwrap_err(), CheckpointError::Incomplete, "cut at {cut}");
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = stream(12, 100);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&bad, 256).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_chunk_of_another_checkpoint_is_noticed() {
        // Chunks of equal size and number, each with a valid checksum of its own: only the sum over
        // everything tells.
        let (one, mut other) = (stream(30, 200), stream(30, 200));
        let (from, to) = (CHECKPOINT_HEADER_BYTES + CHUNK_HEADER_BYTES, one.len() - CHECKPOINT_TRAILER_BYTES);
        let mut writer = CheckpointWriter::with_chunk_bytes(header(), 200);
        let mut changed = Vec::new();
        for i in 0..30 {
            let mut bytes = record(i);
            bytes.iter_mut().for_each(|b| *b ^= 0xff);
            changed.extend(writer.push(&bytes).into_iter().flatten());
        }
        changed.extend_from_slice(&writer.finish(Lsn(200)));
        assert_eq!(changed.len(), one.len());
        other[from - CHUNK_HEADER_BYTES..to].copy_from_slice(&changed[from - CHUNK_HEADER_BYTES..to]);
        assert!(matches!(read(&other, 4096), Err(CheckpointError::Damaged { .. })));
        assert!(read(&one, 4096).is_ok());
    }

    #[test]
    fn chunks_come_in_order() {
        let bytes = stream(30, 200);
        let mut reader = CheckpointReader::new();
        reader.push(&bytes[..CHECKPOINT_HEADER_BYTES]);
        assert!(matches!(reader.next_chunk(), Ok(None)));
        let second = bytes.windows(4).enumerate().filter(|(_, four)| *four == b"WCHK").nth(1).expect("several chunks").0;
        reader.push(&bytes[second..]);
        assert!(matches!(reader.next_chunk(), Err(CheckpointError::Damaged { offset: 48 })), "chunk 1 in place of chunk 0");
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = stream(1, 100);
        bytes[8] = 9;
        assert_eq!(read(&bytes, 100).unwrap_err(), CheckpointError::Version(9));
        bytes[0] = 0;
        assert_eq!(read(&bytes, 100).unwrap_err(), CheckpointError::NotACheckpoint);
    }
}
