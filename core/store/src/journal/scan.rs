//! Scanning one segment: how far do its frames reach, and why do they end there?

use super::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameRead, MAGIC, read_frame};
use super::{FRAME_ALIGN, Lsn, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::codec::{Reader, take_record};
use crate::header::HeaderError;

/// Why the frames of a segment end. Offsets are bytes from the beginning of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Nothing of this segment follows: the rest is unwritten or from an earlier life of the file.
    Clean,
    /// The next frame is incomplete and nothing follows it: the power cut (or crash) came while it
    /// was written.
    TornFrame {
        /// Where the incomplete frame begins.
        offset: usize,
    },
    /// Frames are missing although later ones arrived, but none of the missing records was known to
    /// be durable: the disk had not yet been asked to keep them, and a power cut lost them.
    LostUnsynced {
        /// Where the first missing frame should begin.
        offset: usize,
        /// The newest record seen behind the hole.
        later_lsn: Lsn,
    },
    /// A frame that had been durable is unreadable: the disk lost acknowledged records. Nobody may
    /// go on from here.
    DamageInside {
        /// Where the unreadable frame begins.
        offset: usize,
        /// A later frame says that everything up to this record was durable.
        durable_lsn: Lsn,
    },
    /// A valid frame of this segment repeats numbers that were already used: its writer broke the
    /// rules.
    OutOfOrder {
        /// Where that frame begins.
        offset: usize,
    },
}

/// What one segment holds.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    /// The header of the segment.
    pub header: SegmentHeader,
    /// Bytes from the beginning of the segment up to which its frames are whole and in order.
    pub end_offset: usize,
    /// The number after the last record.
    pub next_lsn: Lsn,
    /// Why the frames end at `end_offset`.
    pub end: EndReason,
    /// A mark at `end_offset` says that all records before it are on stable storage.
    pub is_marked: bool,
    bytes: &'a [u8],
}

impl<'a> Scan<'a> {
    /// The records in order, with their numbers.
    pub fn records(&self) -> SegmentRecords<'a> {
        let frames = &self.bytes[SEGMENT_HEADER_BYTES..self.end_offset];
        SegmentRecords::of_frames(self.header, frames, self.header.first_lsn)
    }
}

/// Scans the image of a whole segment file. Any bytes are allowed; the work is linear in their
/// number.
///
/// Errors tell that the header cannot be read; then nothing is known about the frames.
pub fn scan(bytes: &[u8]) -> Result<Scan<'_>, HeaderError> {
    let header = SegmentHeader::decode(bytes)?;
    let mut end_offset = SEGMENT_HEADER_BYTES;
    let mut next_lsn = header.first_lsn;
    let mut is_marked = false;
    let end = loop {
        match read_frame(bytes, end_offset, &header) {
            FrameRead::Whole { header: frame, end, .. } if frame.first_lsn == next_lsn => match frame.next_lsn() {
                Some(next) => (end_offset, next_lsn) = (end, next),
                None => break EndReason::OutOfOrder { offset: end_offset },
            },
            FrameRead::Whole { header: frame, .. } if frame.first_lsn < next_lsn => break EndReason::OutOfOrder { offset: end_offset },
            FrameRead::Whole { .. } => break judge_hole(bytes, end_offset, next_lsn, &header, true),
            FrameRead::Mark { header: mark } if mark.first_lsn < next_lsn => break EndReason::OutOfOrder { offset: end_offset },
            FrameRead::Mark { header: mark } => {
                is_marked = mark.first_lsn == next_lsn && mark.durable_lsn.next() == next_lsn;
                // A frame may have been written over the mark and lost, and later ones not.
                break judge_hole(bytes, end_offset, next_lsn, &header, false);
            }
            FrameRead::Broken => break judge_hole(bytes, end_offset, next_lsn, &header, true),
            FrameRead::Absent => break judge_hole(bytes, end_offset, next_lsn, &header, false),
        }
    };
    // The padding of the last frame may lie beyond the end of a file that was cut short.
    Ok(Scan { header, end_offset: end_offset.min(bytes.len()), next_lsn, end, is_marked, bytes })
}

/// No frame could be read at `offset`, where record `missing` should begin. Looks for witnesses
/// behind it: headers are enough, since a sealed header tells what was durable even if its own
/// payload did not arrive. Marks are such headers.
fn judge_hole(bytes: &[u8], offset: usize, missing: Lsn, segment: &SegmentHeader, torn: bool) -> EndReason {
    let mut newest: Option<(Lsn, Lsn)> = None;
    let mut at = offset;
    while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= FRAME_HEADER_BYTES) {
        if rest[..4] == MAGIC.to_le_bytes()
            && let Some(frame) = FrameHeader::decode(rest, segment)
            && let Some(next) = frame.next_lsn().filter(|_| frame.first_lsn > missing)
        {
            let (later, durable) = newest.unwrap_or_default();
            newest = Some((later.max(next.prev()), durable.max(frame.durable_lsn)));
        }
        at += FRAME_ALIGN;
    }
    match newest {
        Some((_, durable_lsn)) if durable_lsn >= missing => EndReason::DamageInside { offset, durable_lsn },
        Some((later_lsn, _)) => EndReason::LostUnsynced { offset, later_lsn },
        None if torn => EndReason::TornFrame { offset },
        None => EndReason::Clean,
    }
}

/// The records of a scanned segment in order.
#[derive(Clone, Debug)]
pub struct SegmentRecords<'a> {
    segment: SegmentHeader,
    frames: &'a [u8],
    payload: Reader<'a>,
    next_lsn: Lsn,
}

impl<'a> SegmentRecords<'a> {
    /// Those of whole frames of which the first begins with record `first`.
    pub(super) fn of_frames(segment: SegmentHeader, frames: &'a [u8], first: Lsn) -> SegmentRecords<'a> {
        SegmentRecords { segment, frames, payload: Reader::new(&[]), next_lsn: first }
    }
}

impl<'a> Iterator for SegmentRecords<'a> {
    type Item = (Lsn, &'a [u8]);

    fn next(&mut self) -> Option<(Lsn, &'a [u8])> {
        while self.payload.is_empty() {
            // The scan has checked these frames, so the checksums are not computed again.
            let header = FrameHeader::decode(self.frames, &self.segment)?;
            let frame_bytes = FRAME_HEADER_BYTES + header.payload_bytes as usize;
            self.payload = Reader::new(&self.frames[FRAME_HEADER_BYTES..frame_bytes]);
            let padded = frame_bytes.next_multiple_of(FRAME_ALIGN).min(self.frames.len());
            self.frames = &self.frames[padded..];
        }
        let record = take_record(&mut self.payload)?;
        let lsn = self.next_lsn;
        self.next_lsn = lsn.next();
        Some((lsn, record))
    }
}

#[cfg(test)]
mod tests {
    use super::super::FrameBuilder;
    use super::*;
    use weft_base::{FsId, ServerId};

    fn header(sequence: u64, first: u64) -> SegmentHeader {
        SegmentHeader { fs_id: FsId(1), server_id: ServerId(2), salt: 0x51 + sequence as u32, sequence, first_lsn: Lsn(first) }
    }

    fn record(lsn: u64) -> Vec<u8> {
        (0..lsn * 7 % 41).map(|i| (lsn * 31 + i) as u8).collect()
    }

    /// A segment image and the offsets where its frames begin; frame `i` holds `counts[i]` records
    /// and claims `durable[i]`.
    fn segment(header: SegmentHeader, counts: &[u64], durable: &[u64], size: usize) -> (Vec<u8>, Vec<usize>) {
        let mut image = header.encode().to_vec();
        let mut starts = Vec::new();
        let mut builder = FrameBuilder::new(header.first_lsn, 0);
        for (count, durable) in counts.iter().zip(durable) {
            starts.push(image.len());
            for _ in 0..*count {
                builder.push(&record(builder.next_lsn().0));
            }
            image.extend_from_slice(&builder.finish(&header, Lsn(*durable)));
        }
        starts.push(image.len());
        image.resize(size.max(image.len()), 0);
        (image, starts)
    }

    fn check_prefix(scan: &Scan<'_>, last: u64) {
        let first = scan.header.first_lsn.0;
        let got: Vec<_> = scan.records().map(|(lsn, bytes)| (lsn.0, bytes.to_vec())).collect();
        let want: Vec<_> = (first..=last).map(|lsn| (lsn, record(lsn))).collect();
        assert_eq!(got, want);
        assert_eq!(scan.next_lsn, Lsn(last + 1));
    }

    #[test]
    fn whole_segment() {
        let (image, starts) = segment(header(1, 10), &[1, 3, 2], &[0, 10, 13], 8192);
        let scan = scan(&image).unwrap();
        assert_eq!(scan.end, EndReason::Clean);
        assert_eq!(scan.end_offset, starts[3]);
        check_prefix(&scan, 15);
    }

    #[test]
    fn cut_at_every_byte() {
        let (image, starts) = segment(header(1, 1), &[2, 1, 3], &[0, 2, 3], 0);
        for cut in SEGMENT_HEADER_BYTES..image.len() {
            let scan = scan(&image[..cut]).unwrap();
            // A cut inside the zero padding of a frame loses nothing.
            let whole = starts[1..].iter().filter(|end| cut + 7 >= **end && scan.end_offset.next_multiple_of(8) >= **end).count();
            check_prefix(&scan, [0, 2, 3, 6][whole]);
            assert!(matches!(scan.end, EndReason::Clean | EndReason::TornFrame { .. }), "{:?}", scan.end);
            let full = starts[1..].iter().filter(|end| **end <= cut).count();
            assert!(whole >= full, "cut at {cut} lost a whole frame");
        }
    }

    #[test]
    fn a_torn_tail_filled_with_zeros_is_torn() {
        let (image, starts) = segment(header(1, 1), &[2, 3], &[0, 2], 8192);
        for cut in starts[1]..starts[2] {
            let mut torn = image.clone();
            torn[cut..].fill(0);
            if torn == image {
                continue;
            }
            let scan = scan(&torn).unwrap();
            check_prefix(&scan, 2);
            // Magic and the one nonzero byte of the sequence number tell that a frame was begun.
            let want = if cut - starts[1] < 9 { EndReason::Clean } else { EndReason::TornFrame { offset: starts[1] } };
            assert_eq!(scan.end, want, "cut {cut}");
        }
    }

    #[test]
    fn flipped_bits_never_change_a_record() {
        let (image, starts) = segment(header(1, 1), &[2, 1, 3], &[0, 2, 3], 4096 + 400);
        for bit in SEGMENT_HEADER_BYTES * 8..starts[3] * 8 {
            let mut bad = image.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let hit = starts[1..].iter().filter(|end| **end <= bit / 8).count();
            let scan = scan(&bad).unwrap();
            if scan.next_lsn == Lsn(7) {
                // Only padding may change unnoticed.
                check_prefix(&scan, 6);
                continue;
            }
            check_prefix(&scan, [0, 2, 3][hit]);
            match hit {
                // The frames behind say that records 1..=2 and 3 were durable.
                0 | 1 => assert_eq!(scan.end, EndReason::DamageInside { offset: starts[hit], durable_lsn: Lsn(3) }, "bit {bit}"),
                _ => assert!(matches!(scan.end, EndReason::TornFrame { .. } | EndReason::Clean), "bit {bit}: {:?}", scan.end),
            }
        }
    }

    #[test]
    fn a_hole_without_a_durable_witness_is_no_damage() {
        let (mut image, starts) = segment(header(1, 1), &[2, 1, 3], &[0, 2, 2], 8192);
        image[starts[1]..starts[2]].fill(0);
        let scan = scan(&image).unwrap();
        check_prefix(&scan, 2);
        assert_eq!(scan.end, EndReason::LostUnsynced { offset: starts[1], later_lsn: Lsn(6) });
    }

    #[test]
    fn a_header_alone_is_a_witness() {
        let (mut image, starts) = segment(header(1, 1), &[2, 1, 3], &[0, 2, 3], 8192);
        image[starts[1]] ^= 1;
        image[starts[2] + FRAME_HEADER_BYTES..].fill(0);
        assert_eq!(scan(&image).unwrap().end, EndReason::DamageInside { offset: starts[1], durable_lsn: Lsn(3) });
    }

    #[test]
    fn recycled_segments_end_where_their_new_life_ends() {
        let (old, _) = segment(header(1, 1), &[2, 2, 2, 2, 2], &[0, 2, 4, 6, 8], 8192);
        for counts in [&[][..], &[2][..], &[2, 2][..], &[1, 1][..]] {
            let mut image = old.clone();
            let (new, starts) = segment(header(2, 11), counts, &[10, 10], 0);
            image[..new.len()].copy_from_slice(&new);
            let scan = scan(&image).unwrap();
            assert_eq!(scan.end, EndReason::Clean);
            assert_eq!(scan.end_offset, *starts.last().unwrap());
            check_prefix(&scan, 10 + counts.iter().sum::<u64>());
        }
    }

    #[test]
    fn repeated_numbers_are_named() {
        let segment_header = header(1, 1);
        let (mut image, starts) = segment(segment_header, &[2], &[0], 8192);
        let again = image[starts[0]..starts[1]].to_vec();
        image[starts[1]..starts[1] + again.len()].copy_from_slice(&again);
        assert_eq!(scan(&image).unwrap().end, EndReason::OutOfOrder { offset: starts[1] });
    }
}
