//! Random operations: against a naive tree, and against their own records (replay, and a checkpoint
//! that was taken while they ran).

#[path = "../common/mod.rs"]
mod common;
mod tree;

use bytes::Bytes;
use common::*;
use proptest::prelude::*;
use tree::{Model, Op, ops, text};
use weft_base::{ClientId, Credentials, DataTime, FileKind, Handle, RequestId, ServerId, Status, WallTime};
use weft_namespace::*;
use weft_wire::Rights;
use weft_wire::ops::*;

fn run(machine: &mut Machine, model: &Model, op: &Op) -> Result<(), Status> {
    let dir = |number: usize| model.pick(number, true).expect("the root is always there");
    match *op {
        Op::Create(at, name) => machine.create(dir(at), &text(name)).map(|_| ()),
        Op::Symlink(at, name) => {
            let request = CreateRequest { kind: FileKind::Symlink, target: Bytes::from_static(b"to"), ..create(dir(at), &text(name)) };
            machine.change(|state, cx, record| state.prepare_create(cx, &request, record)).map(|_| ())
        }
        Op::Mkdir(at, name) => machine.mkdir(dir(at), &text(name)).map(|_| ()),
        Op::Unlink(at, name) => machine.unlink(dir(at), &text(name)),
        Op::Rmdir(at, name) => machine.rmdir(dir(at), &text(name)),
        Op::Link(file, at, name) => match model.pick(file, false) {
            Some(file) => machine.link(file, dir(at), &text(name)),
            None => Ok(()),
        },
        Op::Rename { from, from_name, to, to_name, no_replace, exchange } => {
            machine.rename_with(&RenameRequest { no_replace, exchange, ..rename(dir(from), &text(from_name), dir(to), &text(to_name)) })
        }
        Op::Chmod(object, mode) => {
            let handle = model.any(object);
            if model.kinds[&handle] == FileKind::Symlink {
                return Ok(());
            }
            machine.setattr(&SetAttrRequest { mode: Some(mode), ..setattr(handle, &ROOT) }).map(|_| ())
        }
        Op::Chown(object, uid) => {
            let handle = model.any(object);
            machine.setattr(&SetAttrRequest { uid: Some(uid), ..setattr(handle, &ROOT) }).map(|_| ())
        }
        Op::Project(object, project) => machine.set_project(model.any(object), project),
    }
}

fn check(machine: &Machine, model: &Model) {
    assert_eq!(sums(&machine.state), walked(&machine.state));
    assert_eq!(machine.state.inode_count(), model.kinds.len() as u64);
    for ((dir, name), handle) in &model.entries {
        assert_eq!(machine.lookup(*dir, &text(*name)), Ok(*handle));
    }
    for (handle, kind) in &model.kinds {
        let attr = machine.attr(*handle);
        let names = model.entries.values().filter(|other| *other == handle).count() as u32;
        assert_eq!(attr.kind, *kind);
        assert_eq!(machine.project(*handle), model.project(*handle));
        if *kind == FileKind::Directory {
            let entries: Vec<Handle> = model.entries.iter().filter(|((dir, _), _)| dir == handle).map(|(_, h)| *h).collect();
            let subdirectories = entries.iter().filter(|entry| model.is_dir(**entry)).count() as u32;
            assert_eq!((attr.size, attr.nlink), (entries.len() as u64, 2 + subdirectories));
            assert_eq!(machine.state.parent(*handle), Ok(model.parent(*handle)));
        } else {
            assert_eq!(attr.nlink, names);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn operations_behave_like_a_naive_tree(ops in proptest::collection::vec(ops(), 1..60)) {
        let (mut machine, mut model) = (Machine::new(), Model::new());
        for op in &ops {
            let made = machine.state.next_handle();
            let got = run(&mut machine, &model, op);
            let want = model.run(op, made);
            prop_assert_eq!(got, want, "{:?}", op);
            check(&machine, &model);
        }
        let replayed = replay(machine.log.iter().cloned().map(Bytes::from));
        prop_assert_eq!(dump(&replayed), dump(&machine.state));
        prop_assert_eq!(usage(&replayed), usage(&machine.state));
    }
}

/// What else makes records: transactions as a participant, answers, files and attributes.
#[derive(Clone, Debug)]
enum Deed {
    Names(Op),
    Prepare(u64, usize, u8, u8),
    Decide(u64, bool),
    Answer(u64, u64),
    Forget(u64),
    Xattr(usize, u8, bool),
    Write(usize, u64),
    Close(usize, u64),
    Decided(u64),
    Limit(u32, u64),
    Loan(u32, u16, u64),
    ByteLoan(u32, u16, u64),
    ProjectLimit(u32, bool, u64),
    ProjectLoan(u32, u16, bool, u64),
    Room(usize, u64),
    Slice,
}

fn deeds() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => ops().prop_map(Deed::Names),
        2 => (0..4u64, 0..6usize, 0..5u8, any::<u8>()).prop_map(|(tx, dir, name, kind)| Deed::Prepare(tx, dir, name, kind)),
        2 => (0..4u64, any::<bool>()).prop_map(|(tx, commit)| Deed::Decide(tx, commit)),
        2 => (0..3u64, 0..40u64).prop_map(|(client, sequence)| Deed::Answer(client, sequence)),
        1 => (0..3u64).prop_map(Deed::Forget),
        2 => (0..8usize, 0..4u8, any::<bool>()).prop_map(|(object, name, remove)| Deed::Xattr(object, name, remove)),
        1 => (0..8usize, 1..9u64).prop_map(|(file, sequence)| Deed::Write(file, sequence)),
        1 => (0..8usize, 0..5000u64).prop_map(|(file, end)| Deed::Close(file, end)),
        1 => (0..4u64).prop_map(Deed::Decided),
        1 => (0..3u32, 0..4u64).prop_map(|(uid, inodes)| Deed::Limit(uid, inodes)),
        1 => (0..3u32, 0..2u16, 0..9u64).prop_map(|(uid, server, inodes)| Deed::Loan(uid, server, inodes)),
        2 => (0..3u32, 0..2u16, 0..9u64).prop_map(|(uid, server, mebibytes)| Deed::ByteLoan(uid, server, mebibytes)),
        1 => (1..4u32, any::<bool>(), 0..4u64).prop_map(|(project, is_bytes, most)| Deed::ProjectLimit(project, is_bytes, most)),
        1 => (1..4u32, 0..2u16, any::<bool>(), 0..9u64)
            .prop_map(|(project, server, is_bytes, most)| Deed::ProjectLoan(project, server, is_bytes, most)),
        2 => (0..8usize, 0..1u64 << 24).prop_map(|(file, end)| Deed::Room(file, end)),
        6 => Just(Deed::Slice),
    ]
}

/// Handles of all inodes, for picking one.
fn handles(state: &State, directories: bool) -> Vec<Handle> {
    let candidates = 1..state.next_handle().counter();
    candidates.map(Handle).filter(|handle| state.peek(*handle).is_some_and(|inode| inode.is_directory() == directories)).collect()
}

fn tx(number: u64) -> TxId {
    TxId { coordinator: ServerId(1), number }
}

fn part(state: &State, dir: Handle, name: u8, kind: u8) -> TxPart {
    let name_bytes = Bytes::from(text(name));
    let entry = state.entry(dir, &name_bytes);
    match (kind % 5, entry) {
        (0, _) => TxPart::MakeDirectory { parent: Handle(1 << 48), mode: 0o700, uid: 1, gid: 2, layout: LAYOUT },
        (1, Some((handle, FileKind::Directory))) => TxPart::RemoveDirectory { dir: handle, must_own: false },
        (2, Some((handle, kind))) if kind != FileKind::Directory => TxPart::ChangeLinks { handle, kind, delta: 1, must_own: false },
        (3, Some((handle, _))) => TxPart::RemoveEntry { dir, name: name_bytes, handle },
        (_, entry) => TxPart::InsertEntry {
            dir,
            name: name_bytes,
            handle: Handle((1 << 48) + u64::from(kind)),
            kind: FileKind::File,
            replaces: entry.map(|(handle, _)| handle),
        },
    }
}

fn act(machine: &mut Machine, deed: &Deed) {
    let dirs = handles(&machine.state, true);
    let files = handles(&machine.state, false);
    let file = |number: usize| (!files.is_empty()).then(|| files[number % files.len()]);
    match deed {
        Deed::Names(op) => {
            // The model only picks handles here.
            let kinds =
                dirs.iter().map(|handle| (*handle, FileKind::Directory)).chain(files.iter().map(|handle| (*handle, FileKind::File)));
            let model = Model { kinds: kinds.collect(), ..Model::default() };
            let _ = run(machine, &model, op);
        }
        Deed::Prepare(number, dir, name, kind) => {
            let (tx, parts) = (tx(*number), vec![part(&machine.state, dirs[dir % dirs.len()], *name, *kind)]);
            if machine.state.prepared(tx).is_some() {
                return;
            }
            if let Ok(handles) = machine.state.prepare_parts(tx, None, &parts, &Credentials::ROOT, Status::Conflict) {
                let prepared = Prepared { parts, handles, time: WallTime(machine.now) };
                machine.commit(Record { changes: vec![Change::PutPrepared { tx, prepared }], open: None });
            }
        }
        Deed::Decide(number, commit) => {
            let tx = tx(*number);
            let mut record = Record::default();
            if let Some(prepared) = machine.state.prepared(tx) {
                if *commit {
                    machine.state.commit_parts(prepared, &mut record);
                }
                record.changes.push(Change::DeletePrepared { tx });
            }
            machine.commit(record);
        }
        Deed::Answer(client, sequence) => {
            let body = Bytes::copy_from_slice(&sequence.to_le_bytes());
            let (client, sequence, finished_below) = (ClientId(*client), *sequence, sequence - sequence % 5);
            // Only admitted requests are answered.
            if machine.state.admit(RequestId { client, incarnation: 1, sequence }, finished_below) != Ok(Admission::New) {
                return;
            }
            let changes = vec![Change::PutReply { client, incarnation: 1, sequence, finished_below, body }];
            machine.commit(Record { changes, open: None });
        }
        Deed::Forget(client) => {
            machine.commit(Record { changes: vec![Change::ForgetClient { client: ClientId(*client) }], open: None });
        }
        Deed::Xattr(number, attribute, remove) => {
            let Some(handle) = file(*number) else { return };
            let (attribute, who) = (Bytes::from(format!("user.{attribute}")), ROOT);
            let _ = if *remove {
                let request = RemoveXattrRequest { handle, name: attribute, who };
                machine.change(|state, cx, record| state.prepare_remove_xattr(cx, &request, record))
            } else {
                let value = Bytes::from(machine.now.to_le_bytes().to_vec());
                let request = SetXattrRequest { handle, name: attribute, value, create_only: false, replace_only: false, who };
                machine.change(|state, cx, record| state.prepare_set_xattr(cx, &request, record))
            };
        }
        Deed::Write(number, sequence) => {
            if let Some(handle) = file(*number) {
                let _ = machine.open(handle, Rights::WRITE, *sequence);
            }
        }
        Deed::Close(number, end_bytes) => {
            let Some(handle) = file(*number) else { return };
            let epoch = machine.state.peek(handle).map_or(0, |inode| inode.truncate_epoch);
            let written =
                Some(Written { end_bytes: *end_bytes, mtime: DataTime { epoch: 0, at: WallTime(machine.now) }, truncate_epoch: epoch });
            let request = CloseRequest { handle, open_sequence: 100, keeps: Rights::default(), written };
            let _ = machine.change(|state, cx, record| state.prepare_close(cx, &request, None, record));
        }
        Deed::Decided(number) => {
            let tx = TxId { coordinator: ServerId(0), number: *number };
            let change = match machine.state.is_decided(tx) {
                true => Change::DeleteDecided { tx },
                false => Change::PutDecided { tx, participants: vec![ServerId(1)] },
            };
            machine.commit(Record { changes: vec![change], open: None });
        }
        // The largest number ends a limit or a loan.
        Deed::Limit(uid, inodes) => {
            let inodes = inodes.checked_sub(1).unwrap_or(u64::MAX);
            machine.commit(Record { changes: vec![Change::PutLimit { uid: *uid, inodes }], open: None });
        }
        Deed::Loan(uid, server, inodes) => {
            let inodes = inodes.checked_sub(1).unwrap_or(u64::MAX);
            machine.commit(Record { changes: vec![Change::PutLoan { uid: *uid, server: ServerId(*server), inodes }], open: None });
        }
        Deed::ByteLoan(uid, server, mebibytes) => {
            let bytes = mebibytes.checked_sub(1).map_or(u64::MAX, |mebibytes| mebibytes << 20);
            machine.commit(Record { changes: vec![Change::PutByteLoan { uid: *uid, server: ServerId(*server), bytes }], open: None });
        }
        Deed::ProjectLimit(project, is_bytes, most) => {
            let (project, is_bytes, most) = (*project, *is_bytes, most.checked_sub(1).unwrap_or(u64::MAX));
            machine.commit(Record { changes: vec![Change::PutProjectLimit { project, is_bytes, most }], open: None });
        }
        Deed::ProjectLoan(project, server, is_bytes, most) => {
            let (project, server, is_bytes) = (*project, ServerId(*server), *is_bytes);
            let most = most.checked_sub(1).map_or(u64::MAX, |most| if is_bytes { most << 20 } else { most });
            machine.commit(Record { changes: vec![Change::PutProjectLoan { project, server, is_bytes, most }], open: None });
        }
        Deed::Room(number, end_bytes) => {
            let Some(handle) = file(*number) else { return };
            let uid = machine.state.peek(handle).map_or(0, |inode| inode.uid);
            let account = Account { id: QuotaId::user(uid), of: Resource::Bytes };
            let room = Some(RoomWanted { above_bytes: end_bytes / 2, end_bytes: *end_bytes });
            let (rights, who) = (Rights::WRITE, ROOT);
            let request = OpenRequest { room, ..OpenRequest::of(handle, rights, 9, who) };
            let (had, _) = machine.state.allowance(account);
            let opened = machine.change(|state, cx, record| state.prepare_open(cx, &request, record));
            let (has, allowance) = machine.state.allowance(account);
            assert!(has <= had || allowance.is_none_or(|allowance| has <= allowance), "{has} of {allowance:?}: {opened:?}");
        }
        Deed::Slice => {}
    }
}

/// Whose inodes are about to go is counted, and found by a walk.
fn check_leaving(state: &State) {
    let counts = |inode: &Inode, id: QuotaId| inode.charged().ids().any(|other| other == id);
    let of = |handles: Vec<Handle>, id| handles.into_iter().any(|handle| state.peek(handle).is_some_and(|inode| counts(inode, id)));
    for id in (0..4).flat_map(|number| [QuotaId::user(number), QuotaId::project(number + 1)]) {
        let without_name = handles(state, false).into_iter().filter(|handle| state.peek(*handle).is_some_and(|inode| inode.nlink == 0));
        let (reapable, unnamed) = (of(state.reapable(Handle(0), usize::MAX), id), of(without_name.collect(), id));
        let is_leaving = state.is_leaving(id);
        assert!(is_leaving >= reapable && is_leaving <= unnamed, "{id:?}: {is_leaving}, {reapable}, {unnamed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_checkpoint_taken_while_the_state_changes_recovers_exactly(
        before in proptest::collection::vec(deeds(), 0..60),
        during in proptest::collection::vec(deeds(), 1..120),
        slice in 1..8usize,
    ) {
        let mut machine = Machine::new();
        before.iter().for_each(|deed| act(&mut machine, deed));
        let start = machine.log.len();
        let (mut cursor, mut checkpoint) = (SnapshotCursor::Start, Vec::new());
        for deed in &during {
            act(&mut machine, deed);
            check_leaving(&machine.state);
            if matches!(deed, Deed::Slice) {
                let (records, next) = machine.state.snapshot_from(cursor, slice);
                checkpoint.extend(records);
                cursor = next;
            }
        }
        while cursor != SnapshotCursor::End {
            let (records, next) = machine.state.snapshot_from(cursor, slice);
            checkpoint.extend(records);
            cursor = next;
        }
        let tail = machine.log[start..].iter().cloned().map(Bytes::from);
        let recovered = replay(checkpoint.into_iter().chain(tail));
        prop_assert_eq!(dump(&recovered), dump(&machine.state));
        prop_assert_eq!(usage(&recovered), usage(&machine.state));
        prop_assert_eq!(sums(&recovered), walked(&machine.state));
        check_leaving(&recovered);
        prop_assert_eq!(recovered.next_handle(), machine.state.next_handle());
        prop_assert_eq!(recovered.has_locks(), machine.state.has_locks());
        let whole = replay(machine.log.iter().cloned().map(Bytes::from));
        prop_assert_eq!(dump(&whole), dump(&machine.state));
    }
}
