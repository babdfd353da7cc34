use super::*;
use proptest::prelude::*;
use weft_base::Layout;

fn samples() -> Vec<Change> {
    let tx = TxId { coordinator: ServerId(1), number: 9 };
    let layout = Layout { stripe_bytes: 4096, width: 2, first: 1, generation: 1 };
    let inode = Inode::new(FileKind::File, 0o640, 7, 8, layout, WallTime(5));
    let name = Bytes::from_static(b"name");
    let (handle, dir) = (Handle(3), Handle(1));
    let prepared = Prepared { parts: vec![TxPart::MoveToken {}], handles: vec![Handle(0)], time: WallTime(4) };
    vec![
        Change::PutInode { handle, inode: inode.clone() },
        Change::DeleteInode { handle },
        Change::PutEntry { dir, name: name.clone(), handle, kind: FileKind::Symlink },
        Change::DeleteEntry { dir, name: name.clone() },
        Change::Touch { handle, mtime: WallTime(1), ctime: WallTime(2), version: 3 },
        Change::PutTarget { handle, target: name.clone() },
        Change::PutXattr { handle, name: name.clone(), value: Bytes::new() },
        Change::DeleteXattr { handle, name },
        Change::PutPrepared { tx, prepared },
        Change::DeletePrepared { tx },
        Change::PutDecided { tx, participants: vec![ServerId(0), ServerId(2)] },
        Change::DeleteDecided { tx },
        Change::PutReply { client: ClientId(6), incarnation: 1, sequence: 2, finished_below: 1, body: Bytes::from_static(b"r") },
        Change::ForgetClient { client: ClientId(6) },
        Change::PutLocker { client: ClientId(6) },
        Change::DeleteLocker { client: ClientId(6) },
        Change::PutCounter { next: 77 },
        Change::PutHolder { client: ClientId(6) },
        Change::DeleteHolder { client: ClientId(6) },
        Change::PutPartition { dir, map: PartitionMap::even(&[ServerId(1), ServerId(0)]), known: (&inode).into() },
        Change::DeletePartition { dir },
        Change::TouchPartition { dir, mtime: WallTime(1), ctime: WallTime(2), version: 3 },
        Change::GiveNames { dir, names: vec![Bytes::from_static(b"one"), Bytes::from_static(b"other")] },
        Change::TakeNames { dir, names: vec![MovedName { name: Bytes::from_static(b"one"), handle, kind: FileKind::File }] },
        Change::PutContent { handle, content: Bytes::from_static(b"bytes") },
        Change::PutLimit { uid: 7, inodes: 100 },
        Change::PutLoan { uid: 7, server: ServerId(1), inodes: 50 },
        Change::PutByteLimit { uid: 7, bytes: 1 << 40 },
        Change::PutByteLoan { uid: 7, server: ServerId(1), bytes: 1 << 30 },
        Change::PutProjectLimit { project: 9, is_bytes: true, most: 1 << 40 },
        Change::PutProjectLoan { project: 9, server: ServerId(1), is_bytes: false, most: 50 },
        Change::PutCeiling { handle: Handle(9), file_bytes: 5 << 20, beside_bytes: 4096 },
        Change::PutDelegation { dir: Handle(9), client: ClientId(7) },
        Change::DeleteDelegation { dir: Handle(9) },
        Change::PutHandles { client: ClientId(7), first: 100, end: 4196 },
    ]
}

#[test]
fn records_round_trip() {
    let record = Record { changes: samples(), open: None };
    let mut out = Vec::new();
    record.encode(&mut out);
    assert_eq!(Record::decode(out.clone().into()), Ok(record));
    for end in 0..out.len() {
        // A cut record is refused or is a shorter list of the same changes; it never becomes
        // something else.
        if let Ok(cut) = Record::decode(out[..end].to_vec().into()) {
            assert_eq!(cut.changes, samples()[..cut.changes.len()]);
        }
    }
    out[0] = 1;
    assert_eq!(Record::decode(out.into()), Err(Status::VersionMismatch));
}

#[test]
fn records_of_the_version_before_are_read() {
    let layout = Layout { stripe_bytes: 4096, width: 2, first: 1, generation: 1 };
    let inode = Inode { born: WallTime(0), ..Inode::new(FileKind::File, 0o7640, 7, 8, layout, WallTime(5)) };
    let changes = vec![Change::PutInode { handle: Handle(3), inode }, Change::PutCounter { next: 7 }];
    let mut out = Vec::new();
    encode(&changes, &mut out);
    assert_eq!(out.len(), 1 + (1 + 8 + 96) + (1 + 8), "as it was");
    out[0] = 3;
    assert_eq!(Record::decode(out.into()).map(|record| record.changes), Ok(changes));
}

#[test]
fn extensions_follow_the_changes() {
    let with = |tag: u8| {
        let mut out = Vec::new();
        encode(&samples()[1..3], &mut out);
        out.extend([EXTENSIONS, tag, 0, 1, 0, 0, 0, 77]);
        Record::decode(out.into()).map(|record| record.changes)
    };
    assert_eq!(with(2), Ok(samples()[1..3].to_vec()));
    assert_eq!(with(11), Err(Status::NewerExtension));
    assert_eq!(with(0), Err(Status::BadMessage));
    assert_eq!(with(3), Err(Status::BadMessage), "with a value, which it has not");
}

#[test]
fn a_record_with_strips_is_refused_by_older_programs() {
    let layout = Layout { stripe_bytes: 4096, width: 2, first: 0, generation: 1 | Layout::VARSTRIP };
    let inode = Inode::new(FileKind::File, 0o640, 7, 8, layout, WallTime(5));
    let target = Bytes::from_static(b"strips:0:4096;1:8192");
    let changes = vec![Change::PutInode { handle: Handle(3), inode }, Change::PutTarget { handle: Handle(3), target }];
    let mut out = Vec::new();
    encode(&changes, &mut out);
    assert_eq!(out[out.len() - 7..], [EXTENSIONS, 1, 0, 0, 0, 0, 0], "an odd tag");
    assert_eq!(Record::decode(out.into()).map(|record| record.changes), Ok(changes));
}

#[test]
fn a_record_of_a_project_is_refused_by_older_programs() {
    let layout = Layout { stripe_bytes: 4096, width: 2, first: 0, generation: 1 };
    let inode = Inode { project: 0x0102_0304, ..Inode::new(FileKind::File, 0o640, 7, 8, layout, WallTime(5)) };
    let changes = vec![Change::PutInode { handle: Handle(3), inode }];
    let mut out = Vec::new();
    encode(&changes, &mut out);
    assert_eq!(out[out.len() - 11..], [4, 3, 2, 1, EXTENSIONS, 9, 0, 0, 0, 0, 0], "behind the inode, and an odd tag");
    assert_eq!(Record::decode(out.clone().into()).map(|record| record.changes), Ok(changes));
    out.truncate(out.len() - 7);
    assert_eq!(Record::decode(out.into()), Err(Status::BadMessage), "without its mark it is none");
}

#[test]
fn on_disk_md_metadata_records_golden_bytes() {
    let mut out = Vec::new();
    encode(&samples()[1..5], &mut out);
    #[rustfmt::skip]
    let expected = [
        4,
        2, 3, 0, 0, 0, 0, 0, 0, 0,
        3, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, b'n', b'a', b'm', b'e', 3, 0, 0, 0, 0, 0, 0, 0, 10,
        4, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, b'n', b'a', b'm', b'e',
        5, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(out, expected);
    let mut inode = Vec::new();
    samples()[0].put(&mut inode);
    assert_eq!(inode.len(), 1 + 8 + 96 + 8);
    assert_eq!(inode[9..15], [8, 0, 0xa0, 0x11, 7, 0], "kind, flags, mode, owner");
    assert_eq!(inode[105..], [5, 0, 0, 0, 0, 0, 0, 0], "when it was made");
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut with_version = vec![RECORD_VERSION];
        with_version.extend_from_slice(&bytes);
        let _ = Record::decode(with_version.into());
        let _ = Record::decode(bytes.into());
    }
}
