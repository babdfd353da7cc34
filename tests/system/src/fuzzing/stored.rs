//! Valid pieces of what servers keep on disk.

use bytes::Bytes;
use weft_base::{ClientId, DataTime, FileKind, FsId, Handle, Layout, ServerId, WallTime};
use weft_namespace::{Change, Inode, Prepared};
use weft_store::Lsn;
use weft_store::checkpoint::{CheckpointHeader, CheckpointWriter};
use weft_store::journal::{FrameBuilder, SegmentHeader};
use weft_store::objects::{ExtentPut, ObjectKey, ObjectRecord};
use weft_wire::ops::{TxId, TxPart};

const HEADER: SegmentHeader = SegmentHeader { fs_id: FsId(5), server_id: ServerId(1), salt: 77, sequence: 2, first_lsn: Lsn(10) };

/// Records of metadata servers and of data servers.
pub fn records() -> Vec<(String, Vec<u8>)> {
    let (tx, name) = (TxId { coordinator: ServerId(1), number: 9 }, Bytes::from_static(b"name"));
    let layout = Layout { stripe_bytes: 4096, width: 2, first: 1 };
    let inode = Inode::new(FileKind::File, 0o640, 7, 8, layout, WallTime(5));
    let (handle, dir) = (Handle(3), Handle(1));
    let prepared = Prepared { parts: vec![TxPart::MoveToken {}], handles: vec![Handle(0)], time: WallTime(4) };
    let body = Bytes::from_static(b"reply");
    let metadata = [
        (
            "create",
            vec![
                Change::PutInode { handle, inode },
                Change::PutEntry { dir, name: name.clone(), handle, kind: FileKind::File },
                Change::Touch { handle: dir, mtime: WallTime(1), ctime: WallTime(2), version: 3 },
                Change::PutReply { client: ClientId(6), incarnation: 1, sequence: 2, finished_below: 1, body },
            ],
        ),
        ("remove", vec![Change::DeleteEntry { dir, name: name.clone() }, Change::DeleteInode { handle }]),
        (
            "attributes",
            vec![
                Change::PutTarget { handle, target: name.clone() },
                Change::PutXattr { handle, name: name.clone(), value: name.clone() },
                Change::DeleteXattr { handle, name },
            ],
        ),
        (
            "transaction",
            vec![
                Change::PutPrepared { tx, prepared },
                Change::DeletePrepared { tx },
                Change::PutDecided { tx, participants: vec![ServerId(0), ServerId(2)] },
                Change::DeleteDecided { tx },
            ],
        ),
        ("client", vec![Change::ForgetClient { client: ClientId(6) }, Change::PutCounter { next: 77 }]),
    ];
    let mut records: Vec<_> = metadata
        .into_iter()
        .map(|(name, changes)| {
            let mut bytes = Vec::new();
            weft_namespace::encode(&changes, &mut bytes);
            (format!("meta-{name}"), bytes)
        })
        .collect();
    let key = ObjectKey { handle: Handle(0x0001_0000_0000_1234), index: 3 };
    let mtime = DataTime { epoch: 2, at: WallTime(1_700_000_000_123_456_789) };
    let extents = vec![
        ExtentPut { local_offset: 5, disk_offset: 4096 * 9 + 5, len: 100 },
        ExtentPut { local_offset: 1 << 20, disk_offset: 1 << 21, len: 1 << 20 },
    ];
    let objects = [
        ("put", ObjectRecord::Put { key, size_bytes: 1 << 22, mtime, truncate_epoch: 2, extents }),
        ("truncate", ObjectRecord::Truncate { key, size_bytes: 77, mtime, truncate_epoch: 9 }),
        ("remove", ObjectRecord::Remove { key }),
    ];
    records.extend(objects.map(|(name, record)| (format!("data-{name}"), record.to_vec())));
    records
}

/// Segments of a journal.
pub fn segments() -> Vec<(String, Vec<u8>)> {
    let records = records();
    let mut image = HEADER.encode().to_vec();
    let mut builder = FrameBuilder::new(HEADER.first_lsn, 0);
    for turn in 0..4 {
        let durable = builder.next_lsn().prev();
        for (_, bytes) in records.iter().skip(turn).step_by(3) {
            builder.push(bytes);
        }
        image.extend_from_slice(&builder.finish(&HEADER, durable));
    }
    let empty = HEADER.encode().to_vec();
    let with_rest = [&image[..], &[0; 200]].concat();
    vec![("full".into(), image), ("with-rest".into(), with_rest), ("empty".into(), empty)]
}

/// Checkpoints, behind the byte that chooses the pieces in which they are read.
pub fn checkpoints() -> Vec<(String, Vec<u8>)> {
    let header = CheckpointHeader { fs_id: FsId(5), server_id: ServerId(1), generation: 3, start_lsn: Lsn(4) };
    let checkpoint = |piece: u8, count: usize| {
        let mut writer = CheckpointWriter::with_chunk_bytes(header, 128);
        let mut bytes = vec![piece];
        for (_, record) in records().iter().cycle().take(count) {
            bytes.extend_from_slice(&writer.push(record).unwrap_or_default());
        }
        bytes.extend_from_slice(&writer.finish(Lsn(50)));
        bytes
    };
    vec![("some".into(), checkpoint(3, 12)), ("empty".into(), checkpoint(255, 0))]
}
