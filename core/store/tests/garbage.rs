//! Every reader of bytes takes any bytes: random ones, and valid ones with random damage.

use proptest::prelude::*;
use weft_base::{DataTime, FsId, Handle, ServerId, WallTime};
use weft_store::Lsn;
use weft_store::checkpoint::{CheckpointHeader, CheckpointReader, CheckpointWriter};
use weft_store::journal::{EndReason, FrameBuilder, Replay, SEGMENT_HEADER_BYTES, SegmentHeader, scan};
use weft_store::objects::{ContainerHeader, ObjectKey, ObjectRecord};

const HEADER: SegmentHeader = SegmentHeader { fs_id: FsId(1), server_id: ServerId(2), salt: 3, sequence: 4, first_lsn: Lsn(1) };

fn record(i: u64) -> Vec<u8> {
    let key = ObjectKey { handle: Handle(i), index: 1 };
    ObjectRecord::Truncate { key, size_bytes: i * i, mtime: DataTime { epoch: 2, at: WallTime(5) }, truncate_epoch: 6 }.to_vec()
}

fn segment_image() -> Vec<u8> {
    let mut image = HEADER.encode().to_vec();
    let mut builder = FrameBuilder::new(HEADER.first_lsn, 0);
    for frame in 0..8 {
        let durable = builder.next_lsn().prev();
        for _ in 0..=frame % 3 {
            builder.push(&record(builder.next_lsn().0));
        }
        image.extend_from_slice(&builder.finish(&HEADER, durable));
    }
    image.resize(image.len() + 500, 0);
    image
}

fn checkpoint_stream() -> Vec<u8> {
    let header = CheckpointHeader { fs_id: FsId(1), server_id: ServerId(2), generation: 3, start_lsn: Lsn(4) };
    let mut writer = CheckpointWriter::with_chunk_bytes(header, 64);
    let mut bytes: Vec<u8> = (0..20).flat_map(|i| writer.push(&record(i)).unwrap_or_default()).collect();
    bytes.extend_from_slice(&writer.finish(Lsn(5)));
    bytes
}

/// What a scan finds is always a prefix of what was written.
fn check_scan(image: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(found) = scan(image) {
        prop_assert!(found.end_offset <= image.len());
        let mut next = found.header.first_lsn;
        for (lsn, bytes) in found.records() {
            prop_assert_eq!(lsn, next);
            prop_assert_eq!(bytes, &record(lsn.0)[..]);
            next = next.next();
        }
        prop_assert_eq!(next, found.next_lsn);
    }
    let mut replay = Replay::new(HEADER.fs_id, HEADER.server_id, Lsn::FIRST);
    if let Ok(records) = replay.segment(HEADER.sequence, image) {
        records.for_each(drop);
    }
    Ok(())
}

fn read_checkpoint(bytes: &[u8], piece: usize) -> bool {
    let mut reader = CheckpointReader::new();
    for part in bytes.chunks(piece) {
        reader.push(part);
        loop {
            match reader.next_chunk() {
                Ok(Some(chunk)) => chunk.records().for_each(|record| drop(ObjectRecord::decode(record))),
                Ok(None) => break,
                Err(_) => return false,
            }
        }
    }
    reader.finish().is_ok()
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(usize, u8),
    Zero(usize, usize),
    Swap(usize, usize, usize),
    Cut(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<usize>(), 1u8..).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        (any::<usize>(), 1usize..200).prop_map(|(at, len)| Damage::Zero(at, len)),
        (any::<usize>(), any::<usize>(), 1usize..120).prop_map(|(from, to, len)| Damage::Swap(from, to, len)),
        any::<usize>().prop_map(Damage::Cut),
    ]
}

/// Damages `bytes` behind the first `keep`.
fn apply(bytes: &mut Vec<u8>, keep: usize, damage: &Damage) {
    let room = bytes.len() - keep;
    if room < 250 {
        return;
    }
    let at = |i: usize, len: usize| keep + i % (room - len);
    match *damage {
        Damage::Flip(i, bits) => bytes[at(i, 1)] ^= bits,
        Damage::Zero(i, len) => bytes[at(i, len)..][..len].fill(0),
        Damage::Swap(from, to, len) => bytes.copy_within(at(from, len)..at(from, len) + len, at(to, len)),
        Damage::Cut(i) => bytes.truncate(at(i, 1)),
    }
}

#[test]
fn the_undamaged_samples_are_whole() {
    let image = segment_image();
    let found = scan(&image).expect("a header");
    assert_eq!((found.end, found.next_lsn), (EndReason::Clean, Lsn(16)));
    assert!(read_checkpoint(&checkpoint_stream(), 100));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_segments_yield_a_prefix(hits in proptest::collection::vec(damage(), 1..5)) {
        let mut image = segment_image();
        hits.iter().for_each(|hit| apply(&mut image, SEGMENT_HEADER_BYTES, hit));
        check_scan(&image)?;
    }

    #[test]
    fn random_frames_yield_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..600), magic in any::<bool>()) {
        let mut image = HEADER.encode().to_vec();
        if magic {
            image.extend_from_slice(b"WFRM");
        }
        image.extend_from_slice(&bytes);
        check_scan(&image)?;
        prop_assert_eq!(scan(&image).expect("a header").next_lsn, Lsn(1));
    }

    #[test]
    fn damaged_checkpoints_are_refused(hits in proptest::collection::vec(damage(), 1..4), piece in 1usize..300) {
        let mut bytes = checkpoint_stream();
        hits.iter().for_each(|hit| apply(&mut bytes, 0, hit));
        prop_assert_eq!(read_checkpoint(&bytes, piece), bytes == checkpoint_stream());
    }

    #[test]
    fn random_bytes_are_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
        prop_assert!(scan(&bytes).is_err());
        prop_assert!(ContainerHeader::decode(&bytes).is_err());
        prop_assert!(!read_checkpoint(&bytes, 512));
        let mut replay = Replay::new(HEADER.fs_id, HEADER.server_id, Lsn::FIRST);
        prop_assert_eq!(replay.segment(1, &bytes).map(|records| records.count()).unwrap_or(0), 0);
    }
}
