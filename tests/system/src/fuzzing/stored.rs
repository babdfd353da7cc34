//! Valid pieces of what servers keep on disk.

use bytes::Bytes;
use weft_base::{ClientId, ClusterMap, DataTime, FileKind, FsId, Handle, Layout, ServerEntry, ServerId, WallTime};
use weft_journal::Superblock;
use weft_namespace::{Change, Inode, Prepared};
use weft_store::Lsn;
use weft_store::checkpoint::{CheckpointHeader, CheckpointWriter};
use weft_store::journal::{FrameBuilder, SegmentHeader};
use weft_store::objects::{ContainerHeader, ExtentPut, ObjectKey, ObjectRecord};
use weft_wire::ops::{TxId, TxPart};

const HEADER: SegmentHeader = SegmentHeader { fs_id: FsId(5), server_id: ServerId(1), salt: 77, sequence: 2, first_lsn: Lsn(10) };

/// Records of metadata servers and of data servers.
pub fn records() -> Vec<(String, Vec<u8>)> {
    let (tx, name) = (TxId { coordinator: ServerId(1), number: 9 }, Bytes::from_static(b"name"));
    let layout = Layout { stripe_bytes: 4096, width: 2, first: 1, generation: 1 };
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
        ("punch", ObjectRecord::Punch { key, mtime, local_offset: 4000, len: 9000 }),
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

/// The files of a data server: superblock, journal, checkpoint, container.
pub fn server_files() -> [(&'static str, Vec<u8>); 4] {
    let (fs_id, server_id) = (FsId(5), ServerId::data(1));
    let entry = |id: ServerId, name: &str| ServerEntry { id, name: name.into(), address: String::new() };
    let servers = [entry(ServerId(0), "meta0"), entry(ServerId::data(0), "data0"), entry(server_id, "data1")];
    let map = ClusterMap::of(fs_id, "weft", servers, 1 << 20).founded(1);
    let objects: Vec<Vec<u8>> = records().into_iter().filter(|(name, _)| name.starts_with("data-")).map(|(_, bytes)| bytes).collect();
    let segment = SegmentHeader { server_id, sequence: 1, first_lsn: Lsn(1), ..HEADER };
    let mut frames = FrameBuilder::new(Lsn(1), 0);
    for object in &objects {
        frames.push(&[&[1], &object[..]].concat());
    }
    let journal = [&segment.encode()[..], &frames.finish(&segment, Lsn::NONE), &[0; 64]].concat();
    let mut checkpoint = CheckpointWriter::new(CheckpointHeader { fs_id, server_id, generation: 1, start_lsn: Lsn(1) });
    checkpoint.push(&objects[0]);
    [
        ("superblock", Superblock::new(&map, server_id, "journal", 3, 9).to_text().into_bytes()),
        ("journal.1", journal),
        ("checkpoint.1", checkpoint.finish(Lsn(1)).to_vec()),
        ("objects", ContainerHeader { fs_id, server_id }.encode().to_vec()),
    ]
}

/// The same, each behind the byte that says which it is.
pub fn files() -> Vec<(String, Vec<u8>)> {
    let files = server_files().into_iter().enumerate();
    files.map(|(which, (name, bytes))| (name.replace('.', "-"), [&[which as u8], &bytes[..]].concat())).collect()
}
