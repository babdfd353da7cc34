//! Names of a directory whose inode is on another server: kept over checkpoints, and gone as one.

mod common;

use bytes::Bytes;
use common::*;
use weft_base::{FileKind, Handle, ServerId, Status, WallTime};
use weft_namespace::*;
use weft_wire::ops::*;

/// A directory of server 1 of which some names are here.
const DIR: Handle = Handle(1 << 48 | 7);

fn map() -> PartitionMap {
    PartitionMap::even(&[ServerId(1), ServerId(0)])
}

/// Names that are here, or not.
fn names_here(state: &State, is_here: bool) -> impl Iterator<Item = String> + use<'_> {
    (0..).map(|number| format!("n{number}")).filter(move |name| (map().server(state.hash(name.as_bytes())) == ServerId(0)) == is_here)
}

/// One part after the other, each as a participant of a transaction of server 1 does it.
fn take_part(m: &mut Machine, number: u64, part: TxPart) -> Result<(), Status> {
    let tx = TxId { coordinator: ServerId(1), number };
    let handles = m.state.prepare_parts(tx, None, std::slice::from_ref(&part), &ROOT, Status::Conflict)?;
    let prepared = Prepared { parts: vec![part], handles, time: WallTime(m.now) };
    m.commit(Record { changes: vec![Change::PutPrepared { tx, prepared: prepared.clone() }], open: None });
    let mut record = Record::default();
    m.state.commit_parts(&prepared, &mut record);
    record.changes.push(Change::DeletePrepared { tx });
    m.commit(record);
    Ok(())
}

fn make_partition() -> TxPart {
    let hints = vec![(name("user.weft.stripe_size"), name("65536"))];
    TxPart::MakePartition { dir: DIR, map: map(), mode: 0o2755, uid: 0, gid: 44, layout: LAYOUT, hints }
}

fn split() -> Machine {
    let mut m = Machine::new();
    assert_eq!(take_part(&mut m, 1, make_partition()), Ok(()));
    m
}

/// All that a state holds, as its checkpoint says it.
fn checkpoint(state: &State, slice: usize) -> Vec<Bytes> {
    let (mut cursor, mut records) = (SnapshotCursor::Start, Vec::new());
    while cursor != SnapshotCursor::End {
        let (more, next) = state.snapshot_from(cursor, slice);
        records.extend(more);
        cursor = next;
    }
    records
}

fn changes(records: Vec<Bytes>) -> Vec<Change> {
    records.into_iter().flat_map(|record| Record::decode(record).expect("just encoded").changes).collect()
}

#[test]
fn names_are_made_here_as_the_directory_elsewhere_says() {
    let mut m = split();
    let (here, there) = (names_here(&m.state, true).next().unwrap(), names_here(&m.state, false).next().unwrap());
    let file = m.create(DIR, &here).expect("it is here");
    let attr = m.look(|state, cx| state.getattr(cx, file)).expect("made").attr;
    assert_eq!((file.server(), attr.gid, attr.layout.stripe_bytes), (ServerId(0), 44, 65536));
    assert_eq!(m.create(DIR, &there), Err(Status::StaleMap));
    let told = m.look(|state, cx| state.getattr(cx, DIR)).expect("some names are here");
    assert_eq!((told.attr.size, told.attr.version, told.partitions), (1, 2, Some(map())));

    let change = |mode, mtime, value: Option<&str>| TxPart::ChangePartition {
        dir: DIR,
        mode,
        uid: 5,
        gid: 6,
        atime: None,
        mtime,
        attributes: vec![(name("user.weft.stripe_size"), value.map(name))],
    };
    assert_eq!(take_part(&mut m, 2, change(0o700, Some(WallTime(77)), Some("4096"))), Ok(()));
    let attr = m.look(|state, cx| state.getattr(cx, DIR)).expect("still").attr;
    assert_eq!((attr.mode, attr.uid, attr.gid, attr.mtime, attr.version), (0o700, 5, 6, WallTime(77), 3));
    assert_eq!(m.state.hints(DIR).stripe_bytes, Some(4096));
    assert_eq!(take_part(&mut m, 3, change(0o755, None, None)), Ok(()));
    assert_eq!((m.state.hints(DIR).stripe_bytes, m.state.known_inode(DIR).map(|inode| inode.mtime)), (None, Some(WallTime(77))));

    // It goes when no name is here, and nothing of it stays.
    let remove = TxPart::RemovePartition { dir: DIR, must_own: false };
    assert_eq!(take_part(&mut m, 4, remove.clone()), Err(Status::NotEmpty));
    m.unlink(DIR, &here).expect("it is there");
    assert_eq!(take_part(&mut m, 5, remove.clone()), Ok(()));
    assert_eq!(m.look(|state, cx| state.getattr(cx, DIR)).map(drop), Err(Status::WrongServer));
    assert_eq!(take_part(&mut m, 6, remove), Err(Status::Conflict), "the coordinator believes something else");
    let left = changes(checkpoint(&m.state, 100));
    let is_left = |change: &Change| matches!(change, Change::PutPartition { .. } | Change::PutXattr { .. });
    assert!(!left.iter().any(is_left) && !m.state.has_locks(), "{left:?}");
}

#[test]
fn a_partition_is_made_once_and_only_of_a_directory_elsewhere() {
    let mut m = split();
    assert_eq!(take_part(&mut m, 2, make_partition()), Err(Status::Invalid));
    let own = Handle::new(ServerId(0), 99);
    for dir in [own, Handle(0)] {
        let TxPart::MakePartition { map, mode, uid, gid, layout, hints, .. } = make_partition() else { unreachable!("as made") };
        let part = TxPart::MakePartition { dir, map, mode, uid, gid, layout, hints };
        assert_eq!(take_part(&mut m, 3, part), Err(Status::Invalid), "{dir}");
    }
    // While nobody knows whether a directory was made, nobody is told that it was not.
    let mut m = Machine::new();
    let tx = TxId { coordinator: ServerId(1), number: 1 };
    let prepared = Prepared { parts: vec![make_partition()], handles: vec![DIR], time: WallTime(5) };
    m.commit(Record { changes: vec![Change::PutPrepared { tx, prepared }], open: None });
    assert_eq!(m.look(|state, cx| state.getattr(cx, DIR)).map(drop), Err(Status::Busy));
    assert_eq!(m.create(DIR, "x"), Err(Status::Busy));
}

#[test]
fn a_checkpoint_has_everything_and_a_replay_over_it_ends_the_same() {
    let mut m = split();
    let names: Vec<String> = names_here(&m.state, true).take(20).collect();
    for name in &names {
        m.create(DIR, name).expect("it is here");
    }
    for slice in [1, 3, 100] {
        let mut state = State::new(settings());
        changes(checkpoint(&m.state, slice)).into_iter().for_each(|change| state.apply_change(change));
        assert_eq!(changes(checkpoint(&state, 100)), changes(checkpoint(&m.state, 100)));
        assert_eq!((state.known_inode(DIR), state.hints(DIR)), (m.state.known_inode(DIR), m.state.hints(DIR)));
        assert!(names.iter().all(|name| state.entry(DIR, name.as_bytes()).is_some_and(|(_, kind)| kind == FileKind::File)));
        // The whole journal again.
        for record in &m.log {
            state.apply(&mut Record::decode(record.clone().into()).expect("just encoded"));
        }
        assert_eq!(changes(checkpoint(&state, 100)), changes(checkpoint(&m.state, 100)));
    }
}
