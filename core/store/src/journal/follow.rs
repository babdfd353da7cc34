//! Reading a journal that is being written, frame by frame.

use super::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameRead, read_frame};
use super::{FRAME_ALIGN, Lsn, SegmentHeader, SegmentRecords};

/// What begins at some place of a segment.
#[derive(Clone, Debug)]
pub enum FrameAt<'a> {
    /// A whole frame.
    Whole {
        /// Its first record.
        first: Lsn,
        /// Its records, with their numbers.
        records: SegmentRecords<'a>,
        /// Bytes to the next frame.
        bytes: usize,
    },
    /// A frame of so many bytes, which do not all belong to what was read.
    Longer {
        /// Its length.
        bytes: usize,
    },
    /// No frame, or none that is whole yet.
    Nothing,
}

/// Looks at the frame with which `bytes` begin, a piece of the segment. Any bytes are allowed.
pub fn frame_at<'a>(bytes: &'a [u8], segment: &SegmentHeader) -> FrameAt<'a> {
    match read_frame(bytes, 0, segment) {
        FrameRead::Whole { header, end } => {
            let records = SegmentRecords::of_frames(*segment, &bytes[..end.min(bytes.len())], header.first_lsn);
            FrameAt::Whole { first: header.first_lsn, records, bytes: end }
        }
        FrameRead::Broken => match FrameHeader::decode(bytes, segment) {
            Some(header) => {
                let needed = (FRAME_HEADER_BYTES + header.payload_bytes as usize).next_multiple_of(FRAME_ALIGN);
                if needed > bytes.len() { FrameAt::Longer { bytes: needed } } else { FrameAt::Nothing }
            }
            None => FrameAt::Nothing,
        },
        FrameRead::Mark { .. } | FrameRead::Absent => FrameAt::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::super::FrameBuilder;
    use super::*;
    use weft_base::{FsId, ServerId};

    #[test]
    fn a_frame_is_whole_longer_or_not_there() {
        let segment = SegmentHeader { fs_id: FsId(1), server_id: ServerId(2), salt: 9, sequence: 3, first_lsn: Lsn(5) };
        let mut builder = FrameBuilder::new(Lsn(5), 0);
        for record in [&b"one"[..], b"", b"three"] {
            builder.push(record);
        }
        let frame = builder.finish(&segment, Lsn(4));
        let FrameAt::Whole { first, records, bytes } = frame_at(&frame, &segment) else { panic!("it is whole") };
        let records: Vec<(u64, &[u8])> = records.map(|(lsn, record)| (lsn.0, record)).collect();
        assert_eq!((first, bytes, records), (Lsn(5), frame.len(), vec![(5, &b"one"[..]), (6, b""), (7, b"three")]));
        for end in 0..frame.len() {
            match frame_at(&frame[..end], &segment) {
                FrameAt::Longer { bytes } => assert_eq!(bytes, frame.len(), "{end}"),
                // Without its padding it is whole.
                FrameAt::Whole { records, .. } => assert_eq!((records.count(), end + 8 > frame.len()), (3, true)),
                FrameAt::Nothing => assert!(end < FRAME_HEADER_BYTES, "{end}"),
            }
        }
        let mut damaged = frame.to_vec();
        damaged[60] ^= 1;
        assert!(matches!(frame_at(&damaged, &segment), FrameAt::Nothing));
        assert!(matches!(frame_at(&frame, &SegmentHeader { salt: 8, ..segment }), FrameAt::Nothing), "another life of the file");
    }
}
