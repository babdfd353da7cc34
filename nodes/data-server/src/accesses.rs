//! Requests whose pieces the cache layer has, and how far they are.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

use weft_base::{FastMap, Payload};
use weft_rt::DiskError;
use weft_sched::JobPiece;
use weft_store::objects::ReadPiece;

use crate::transfer::{ReadPart, join, merged_reads};

/// Bits of a tag that number the pieces of an access.
pub const INDEX_BITS: u32 = 20;
/// All of them.
#[derive(Default)]
pub struct Accesses {
    pub last: u64,
    pub running: FastMap<u64, Running>,
    /// Writes among them that are answered.
    pub answered: BTreeSet<u64>,
    pub answered_bytes: u64,
    /// What these writes have replaced.
    pub replaces: BTreeMap<u64, Vec<JobPiece>>,
}

/// Pieces of one request.
#[derive(Default)]
pub struct Running {
    /// Data of a write.
    pub data: Payload,
    pub pieces: Vec<PiecePlace>,
    /// What a read has got: place in its answer and data.
    pub got: Vec<(u64, Payload)>,
    pub left_bytes: u64,
    /// For its trace record: the farthest seek of its operations, and when the first of them began.
    pub class: u8,
    pub begun: u64,
    pub error: Option<DiskError>,
    pub waker: Option<Waker>,
}

/// Where a piece lies on the disk and in the data of its request.
#[derive(Clone, Copy)]
pub struct PiecePlace {
    pub disk_offset: u64,
    pub data_offset: u64,
}

impl Accesses {
    /// The access of a part, and where the part is in its data.
    pub fn find(&self, part: &JobPiece) -> (&Running, u64) {
        let running = &self.running[&(part.tag >> INDEX_BITS)];
        let place = running.pieces[(part.tag & ((1 << INDEX_BITS) - 1)) as usize];
        (running, place.data_offset + (part.offset - place.disk_offset))
    }

    /// An operation with these parts begins.
    pub fn begin(&mut self, parts: &[JobPiece], class: u8) {
        let now = weft_trace::now();
        for part in parts {
            let running = self.running.get_mut(&(part.tag >> INDEX_BITS)).expect("an access waits for all its pieces");
            running.class = running.class.max(class);
            if running.begun == 0 {
                running.begun = now;
            }
        }
    }

    /// The newest write that overlaps a part of an older one.
    pub fn newer_write(&self, part: &JobPiece) -> Option<u64> {
        let id = part.tag >> INDEX_BITS;
        let overlaps = |running: &Running| {
            let ends = running.pieces.iter().skip(1).map(|next| next.data_offset).chain([running.data.len()]);
            running.pieces.iter().zip(ends).any(|(place, data_end)| {
                place.disk_offset < part.offset + part.bytes && part.offset < place.disk_offset + (data_end - place.data_offset)
            })
        };
        // Reads bring no data.
        let writes = self.running.iter().filter(|(other, running)| **other > id && !running.data.is_empty());
        writes.filter(|(_, running)| overlaps(running)).map(|(other, _)| *other).max()
    }

    /// Counts what is done. Gives the error if it hits a write that was answered.
    pub fn done(&mut self, parts: &[JobPiece], error: Option<&DiskError>) -> Option<DiskError> {
        let mut lost = None;
        let mut parts = parts.to_vec();
        while let Some(part) = parts.pop() {
            let id = part.tag >> INDEX_BITS;
            let running = self.running.get_mut(&id).expect("an access waits for all its pieces");
            running.left_bytes -= part.bytes;
            if running.error.is_none() {
                running.error = error.cloned();
            }
            if running.left_bytes > 0 {
                continue;
            }
            if let Some(waker) = running.waker.take() {
                waker.wake();
            }
            parts.append(&mut self.replaces.remove(&id).unwrap_or_default());
            if self.answered.remove(&id) {
                let done = self.running.remove(&id).expect("just seen");
                self.answered_bytes -= done.data.len();
                lost = lost.or(done.error);
            }
        }
        lost
    }
}

/// Puts what was read in order, with zeros for holes.
pub fn fill(pieces: &[ReadPiece], mut got: Vec<(u64, Payload)>) -> Payload {
    got.sort_unstable_by_key(|(at, _)| *at);
    let mut got = got.into_iter().map(|(_, data)| data);
    let mut parts = Vec::with_capacity(pieces.len());
    for piece in merged_reads(pieces) {
        match piece {
            ReadPiece::Hole { len } => parts.push(ReadPart::Zeros(len)),
            ReadPiece::Data { len, .. } => {
                let mut left = len;
                while left > 0 {
                    let data = got.next().expect("every byte was read once");
                    left -= data.len();
                    parts.push(ReadPart::Data(data));
                }
            }
        }
    }
    join(parts)
}
